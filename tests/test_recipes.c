/* The training recipes: pixels against PIL and torchvision (tests/golden/make_recipes.py), random parts against their
 * definitions, mixing through the loader. */
#include <math.h>

#include "autograd/ops.h"
#include "tests/data_support.h"
#include "train/augment.h"
#include "train/color_jitter.h"
#include "train/erase.h"
#include "train/loader.h"
#include "train/mix.h"
#include "train/randaug.h"
#include "train/resized_crop.h"
#include "train/safetensors.h"

enum { SIDE = 17, IMAGE = 3 * SIDE * SIDE };

static mla_safetensors *golden;

static void open_golden(void) {
    const char *source = getenv("MLA_SOURCE_DIR");
    char path[1024];
    mla_error error = {0};
    snprintf(path, sizeof path, "%s/tests/golden/recipes.safetensors", source ? source : ".");
    expect_ok(mla_safetensors_open(&golden, path, &error), error);
}

static void close_golden(void) {
    mla_safetensors_close(golden);
    golden = NULL;
}

static const mla_file_tensor *stored(const char *name, mla_dtype dtype) {
    const mla_file_tensor *t = mla_safetensors_find(golden, name);
    ck_assert_msg(t != NULL, "no tensor %s", name);
    ck_assert_msg(t->dtype == dtype, "%s is of type %s", name, mla_dtype_name(t->dtype));
    return t;
}

/* Up to `most` numbers of a tensor; how many there are. */
static size_t numbers(float *out, size_t most, const char *name) {
    const mla_file_tensor *t = stored(name, MLA_F32);
    const size_t count = mla_tensor_elements(t);
    ck_assert_msg(count <= most, "%s has %zu numbers", name, count);
    memcpy(out, t->data, count * sizeof *out);
    return count;
}

/* ---- pixels */

typedef struct canvas {
    uint8_t bytes[2 * IMAGE];
    mla_pixels p;
} canvas;

static void start(canvas *c, int image) {
    memcpy(c->bytes, (const uint8_t *)stored("images", MLA_U8)->data + (size_t)image * IMAGE, IMAGE);
    c->p = (mla_pixels){c->bytes, c->bytes + IMAGE, SIDE};
}

static void expect_pixels(const canvas *c, const char *name, size_t i) {
    const uint8_t *want = (const uint8_t *)stored(name, MLA_U8)->data + i * IMAGE;
    for (int k = 0; k < IMAGE; k++)
        ck_assert_msg(c->p.now[k] == want[k], "%s %zu: channel %d, row %d, column %d is %d, PIL has %d", name, i,
                      k / (SIDE * SIDE), k / SIDE % SIDE, k % SIDE, c->p.now[k], want[k]);
}

START_TEST(every_operation_is_pil_s) {
    static float cases[6 * 1024];
    float colour[3];
    const size_t count = numbers(cases, sizeof cases / sizeof *cases, "randaug.cases") / 6;
    unsigned seen[MLA_AUG_COUNT] = {0};
    numbers(colour, 3, "fill");
    const uint8_t fill[3] = {(uint8_t)colour[0], (uint8_t)colour[1], (uint8_t)colour[2]};
    for (size_t i = 0; i < count; i++) {
        const float *a = cases + 6 * i;
        canvas c;
        start(&c, (int)a[0]);
        const mla_randaug_draw draw = {.operation = (mla_randaug_operation)(int)a[1],
                                       .magnitude = (double)a[2] / 100,
                                       .negative = a[3] == 1,
                                       .filter = a[4] == 1 ? MLA_BICUBIC : MLA_BILINEAR};
        mla_randaug_apply(&c.p, &draw, a[5] == 1, fill);
        expect_pixels(&c, "randaug.out", i);
        seen[draw.operation]++;
    }
    for (int i = 0; i < MLA_AUG_COUNT; i++) ck_assert_msg(seen[i] >= 4, "operation %d has %u cases", i, seen[i]);
}
END_TEST

START_TEST(jitter_is_torchvision_s) {
    float cases[9 * 32];
    const size_t count = numbers(cases, sizeof cases / sizeof *cases, "jitter.cases") / 9;
    const mla_augment_config config = {.color_jitter = 1, .color_jitter_hue = 0.5};
    for (size_t i = 0; i < count; i++) {
        const float *a = cases + 9 * i;
        canvas c;
        mla_jitter_draw draw = {.applied = true};
        start(&c, (int)a[0]);
        for (int k = 0; k < 4; k++) {
            draw.amount[k] = (double)a[1 + k] / 1000;
            draw.order[k] = (mla_jitter_part)(int)a[5 + k];
        }
        mla_jitter_apply(&c.p, &draw, &config);
        expect_pixels(&c, "jitter.out", i);
    }
}
END_TEST

START_TEST(mixing_is_pytorch_s) {
    float image[IMAGE], other[IMAGE], want[IMAGE], share, box[4];
    numbers(image, IMAGE, "mix.image");
    numbers(other, IMAGE, "mix.other");
    numbers(want, IMAGE, "mix.out");
    numbers(&share, 1, "mix.share");
    numbers(box, 4, "cut.box");
    real mixed[IMAGE];
    memcpy(mixed, image, sizeof mixed);
    mla_mix_apply(mixed, other, SIDE, &(mla_mix){.share = (double)share});
    for (int i = 0; i < IMAGE; i++) ck_assert_float_eq_tol(mixed[i], want[i], 1e-6f);
    memcpy(mixed, image, sizeof mixed);
    const mla_mix cut = {.cut = true, .top = (int)box[0], .bottom = (int)box[1], .left = (int)box[2], .right = (int)box[3]};
    mla_mix_apply(mixed, other, SIDE, &cut);
    numbers(want, IMAGE, "cut.out");
    ck_assert_mem_eq(mixed, want, sizeof mixed);
}
END_TEST

START_TEST(loss_of_two_labels_is_pytorch_s) {
    enum { B = 6, K = 5 };
    float logits[B * K], y[B], dy[B], dlogits[B * K], first[B], second[B], shares[B];
    real gradient[B * K] = {0};
    int labels[B], others[B];
    mla_error error = {0};
    numbers(logits, B * K, "loss.logits");
    numbers(y, B, "loss.y");
    numbers(dy, B, "loss.dy");
    numbers(dlogits, B * K, "loss.dlogits");
    numbers(first, B, "loss.labels");
    numbers(second, B, "loss.others");
    numbers(shares, B, "loss.shares");
    for (int b = 0; b < B; b++) labels[b] = (int)first[b], others[b] = (int)second[b];
    mla_tape *tape = mla_tape_new();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var x = mla_tape_leaf(tape, mla_tensor_make(logits, 2, (size_t[]){B, K}), gradient);
    const mla_var loss = mla_cross_entropy_mixed(tape, x, labels, others, shares, 0.1);
    const mla_tensor got = mla_value(tape, loss);
    for (int b = 0; b < B; b++) ck_assert_float_eq_tol(got.data[b], y[b], 1e-6f);
    expect_ok(mla_tape_backward(tape, loss, dy, &error), error);
    for (int i = 0; i < B * K; i++) ck_assert_float_eq_tol(gradient[i], dlogits[i], 1e-6f);
    mla_tape_free(tape);
}
END_TEST

/* ---- what is drawn */

static const mla_augment_config RECIPE = {.crop_padding = 4,
                                          .flip = 0.5,
                                          .randaug = {2, 9, 0.5, 10, 0.5, 1},
                                          .interpolation = MLA_AUG_RANDOM,
                                          .color_jitter_prob = 1,
                                          .erase = 0.25,
                                          .erase_mode = MLA_ERASE_PIXEL,
                                          .erase_count = 1,
                                          .erase_area = {0.02, 1.0 / 3},
                                          .erase_aspect = {0.3, 1 / 0.3},
                                          .mixup = 0.8,
                                          .cutmix = 1,
                                          .mixup_prob = 1,
                                          .mixup_switch_prob = 0.5,
                                          .aug_repeats = 1};

/* Of 30,000 draws each figure lies within 5 standard deviations of what the definition says. */
START_TEST(randaug_draws) {
    enum { DRAWS = 30000 };
    mla_randaug_config config = RECIPE.randaug;
    mla_augment_filter filter = MLA_AUG_RANDOM;
    int operation[MLA_AUG_COUNT] = {0}, applied = 0, negative = 0, bicubic = 0;
    double sum = 0, square = 0, even = 0;
    mla_rng rng = mla_rng_stream(1, MLA_RNG_RANDAUG, 2, 3);
    config.m = 5;
    for (int i = 0; i < DRAWS; i++) {
        const mla_randaug_draw d = mla_randaug_next(&rng, &config, filter);
        operation[d.operation]++;
        applied += d.applied;
        negative += d.negative;
        bicubic += d.filter == MLA_BICUBIC;
        sum += d.magnitude;
        square += (d.magnitude - 5) * (d.magnitude - 5);
    }
    for (int i = 0; i < MLA_AUG_COUNT; i++) ck_assert_int_lt(abs(operation[i] - DRAWS / MLA_AUG_COUNT), 220);
    ck_assert_int_lt(abs(applied - DRAWS / 2), 435);
    ck_assert_int_lt(abs(negative - DRAWS / 2), 435);
    ck_assert_int_lt(abs(bicubic - DRAWS / 2), 435);
    ck_assert_double_eq_tol(sum / DRAWS, 5, 0.015);
    ck_assert_double_eq_tol(square / DRAWS, 0.25, 0.011);
    config = (mla_randaug_config){2, 9.5, 3, 10, 1, 1};
    int clipped = 0;
    filter = MLA_AUG_BILINEAR;
    for (int i = 0; i < DRAWS; i++) {
        const mla_randaug_draw d = mla_randaug_next(&rng, &config, filter);
        ck_assert(d.applied && d.filter == MLA_BILINEAR && d.magnitude >= 0 && d.magnitude <= 10);
        clipped += d.magnitude == 10;
    }
    ck_assert_double_eq_tol((double)clipped / DRAWS, 0.433816, 0.0144); /* 1 - Phi(1/6) */
    config.mstd = 101;
    for (int i = 0; i < DRAWS; i++) even += mla_randaug_next(&rng, &config, filter).magnitude;
    ck_assert_double_eq_tol(even / DRAWS, 4.75, 0.08);
}
END_TEST

/* The rectangle that differs from ones; false when there is none. */
static bool find_erased(const real *image, int size, int box[4]) {
    box[0] = box[2] = size, box[1] = box[3] = 0;
    for (int i = 0; i < 3 * size * size; i++)
        if (image[i] != 1) {
            const int y = i / size % size, x = i % size;
            box[0] = y < box[0] ? y : box[0], box[1] = y + 1 > box[1] ? y + 1 : box[1];
            box[2] = x < box[2] ? x : box[2], box[3] = x + 1 > box[3] ? x + 1 : box[3];
        }
    return box[1] > box[0];
}

/* Means over 1,000,000 draws of the definition with numpy: area 0.17562 of the image, height 13.635 of 32. */
START_TEST(erasing) {
    enum { SIZE = 32, DRAWS = 4000 };
    static real image[3 * SIZE * SIZE];
    mla_augment_config config = RECIPE;
    const mla_erase_mode mode = (mla_erase_mode)_i;
    config.erase_mode = mode;
    int erased = 0;
    double area = 0, height = 0;
    for (uint64_t sample = 0; sample < DRAWS; sample++) {
        int box[4], different = 0;
        for (int i = 0; i < 3 * SIZE * SIZE; i++) image[i] = 1;
        mla_erase(image, SIZE, &config, 4, 5, sample);
        if (!find_erased(image, SIZE, box)) continue;
        erased++;
        height += box[1] - box[0];
        area += (double)(box[1] - box[0]) * (box[3] - box[2]) / (SIZE * SIZE);
        const real *first = image + box[0] * SIZE + box[2];
        for (int y = box[0]; y < box[1]; y++)
            for (int x = box[2]; x < box[3]; x++) different += image[y * SIZE + x] != *first;
        if (mode == MLA_ERASE_CONST) ck_assert(*first == 0);
        ck_assert(mode == MLA_ERASE_PIXEL ? different > 0 : different == 0);
        ck_assert(mode == MLA_ERASE_CONST || first[SIZE * SIZE] != *first);
    }
    ck_assert_double_eq_tol((double)erased / DRAWS, 0.25, 0.035);
    ck_assert_double_eq_tol(area / erased, 0.17562, 0.015);
    ck_assert_double_eq_tol(height / erased, 13.635, 1.0);
}
END_TEST

START_TEST(erasing_several_and_noise) {
    enum { SIZE = 32 };
    static real image[3 * SIZE * SIZE];
    mla_augment_config config = RECIPE;
    double sum = 0, square = 0;
    long count = 0;
    config.erase = 1;
    config.erase_count = 4;
    int many = 0;
    for (uint64_t sample = 0; sample < 300; sample++) {
        int box[4], inside = 0;
        for (int i = 0; i < 3 * SIZE * SIZE; i++) image[i] = 1;
        mla_erase(image, SIZE, &config, 4, 5, sample);
        ck_assert(find_erased(image, SIZE, box));
        for (int i = 0; i < 3 * SIZE * SIZE; i++)
            if (image[i] != 1) inside++, count++, sum += (double)image[i], square += (double)(image[i] * image[i]);
        many += inside < 3 * (box[1] - box[0]) * (box[3] - box[2]);
        ck_assert_int_le(inside, 3 * SIZE * SIZE / 3 + 3 * 4 * 40);
    }
    ck_assert_int_gt(many, 150);
    ck_assert_double_eq_tol(sum / (double)count, 0, 0.03);
    ck_assert_double_eq_tol(square / (double)count, 1, 0.03);
}
END_TEST

START_TEST(jitter_draws) {
    mla_augment_config config = {.color_jitter = 0.4, .color_jitter_hue = 0.1, .color_jitter_prob = 0.8};
    int applied = 0, first[4] = {0};
    double sum = 0;
    for (uint64_t sample = 0; sample < 4000; sample++) {
        const mla_jitter_draw d = mla_jitter_of(&config, 1, 2, sample);
        int parts = 0;
        applied += d.applied;
        first[d.order[0]]++;
        for (int i = 0; i < 4; i++) parts |= 1 << d.order[i];
        for (int i = 0; i < 3; i++) ck_assert(d.amount[i] >= 0.6 && d.amount[i] <= 1.4);
        ck_assert(fabs(d.amount[MLA_JITTER_HUE]) <= 0.1);
        ck_assert_int_eq(parts, 15);
        sum += d.amount[1];
    }
    ck_assert_int_lt(abs(applied - 3200), 130);
    for (int i = 0; i < 4; i++) ck_assert_int_lt(abs(first[i] - 1000), 140);
    ck_assert_double_eq_tol(sum / 4000, 1, 0.02);
}
END_TEST

/* ---- mixing */

/* Means over 1,000,000 draws with numpy; of Beta(a, a) the variance is 1 / (4 (2a + 1)). */
START_TEST(mixing_draws) {
    enum { DRAWS = 20000 };
    mla_augment_config config = RECIPE;
    double sum = 0, square = 0, small = 0, cut_sum = 0;
    int cuts = 0;
    for (uint64_t first = 0; first < DRAWS; first++) {
        const mla_mix m = mla_mix_of(&config, 32, 1, 2, first, 0, 8);
        ck_assert(m.share >= 0 && m.share <= 1);
        cuts += m.cut;
        if (m.cut) {
            ck_assert(m.top >= 0 && m.top <= m.bottom && m.bottom <= 32 && m.left >= 0 && m.right <= 32);
            ck_assert_double_eq_tol(m.share, 1 - (m.bottom - m.top) * (m.right - m.left) / 1024.0, 1e-12);
            cut_sum += m.share;
        } else {
            sum += m.share;
            square += (m.share - 0.5) * (m.share - 0.5);
            small += m.share < 0.1;
        }
    }
    const double mixes = DRAWS - cuts;
    ck_assert_int_lt(abs(cuts - DRAWS / 2), 350);
    ck_assert_double_eq_tol(sum / mixes, 0.5, 0.0155);
    ck_assert_double_eq_tol(square / mixes, 1 / (4 * 2.6), 0.0045);
    ck_assert_double_eq_tol(small / mixes, 0.13181, 0.0175);
    ck_assert_double_eq_tol(cut_sum / cuts, 0.70080, 0.0095);
    static const double alphas[] = {0.05, 3};
    for (int a = 0; a < 2; a++) {
        config = (mla_augment_config){.mixup = alphas[a], .mixup_prob = 0.7};
        double variance = 0;
        int mixed = 0;
        for (uint64_t first = 0; first < DRAWS; first++) {
            const mla_mix m = mla_mix_of(&config, 32, 1, 2, first, 0, 8);
            ck_assert(!m.cut && isfinite(m.share));
            mixed += m.share != 1;
            if (m.share != 1) variance += (m.share - 0.5) * (m.share - 0.5);
        }
        if (a == 1) ck_assert_int_lt(abs(mixed - 14000), 330); /* Beta(0.05, 0.05) often is 1 to rounding */
        if (a == 1) ck_assert_double_eq_tol(variance / mixed, 1.0 / 28, 0.003);
    }
}
END_TEST

START_TEST(cutmix_between_bounds) {
    mla_augment_config config = {.cutmix_minmax = {0.25, 0.75}, .mixup_prob = 1};
    int least = 32, most = 0;
    ck_assert(mla_mix_on(&config, 0));
    for (uint64_t first = 0; first < 3000; first++) {
        const mla_mix m = mla_mix_of(&config, 32, 1, 2, first, 0, 8);
        const int height = m.bottom - m.top, width = m.right - m.left;
        ck_assert(m.cut && m.top >= 0 && m.left >= 0 && m.bottom <= 32 && m.right <= 32);
        least = height < least ? height : least;
        most = width > most ? width : most;
    }
    ck_assert_int_eq(least, 8);
    ck_assert_int_eq(most, 23); /* numpy's randint leaves the upper bound out */
}
END_TEST

START_TEST(who_shares_a_draw) {
    mla_augment_config config = RECIPE;
    mla_mix m[3][9];
    for (int mode = 0; mode < 3; mode++) {
        config.mixup_mode = (mla_mix_mode)mode;
        for (uint64_t i = 0; i < 9; i++) m[mode][i] = mla_mix_of(&config, 32, 1, 2, 90, i, 9);
        ck_assert_double_eq(m[mode][4].share, 1); /* the middle one has no partner */
    }
    ck_assert_mem_eq(&m[MLA_MIX_BATCH][0], &m[MLA_MIX_BATCH][8], sizeof m[0][0]);
    ck_assert_mem_eq(&m[MLA_MIX_BATCH][0], &m[MLA_MIX_BATCH][3], sizeof m[0][0]);
    ck_assert_mem_eq(&m[MLA_MIX_PAIR][2], &m[MLA_MIX_PAIR][6], sizeof m[0][0]);
    ck_assert_mem_ne(&m[MLA_MIX_PAIR][2], &m[MLA_MIX_PAIR][3], sizeof m[0][0]);
    ck_assert_mem_ne(&m[MLA_MIX_ELEM][2], &m[MLA_MIX_ELEM][6], sizeof m[0][0]);
    ck_assert(mla_mix_of(&config, 32, 1, 2, 0, 0, 1).share == 1);
    config.mixup_off_epoch = 3;
    ck_assert(mla_mix_on(&config, 2) && !mla_mix_on(&config, 3));
}
END_TEST

/* ---- the loader */

enum { BATCH = 7, PIXELS = 3072 };

static mla_loader make_loader(const mla_dataset *set, const mla_augment_config *augment) {
    const mla_dataset_info *info = mla_dataset_get_info(set);
    mla_loader l = {.dataset = set, .augment = augment, .seed = 3, .epoch = 1, .first = 21, .batch = BATCH};
    memcpy(l.mean, info->mean, sizeof l.mean);
    memcpy(l.std, info->std, sizeof l.std);
    return l;
}

static void load_images(mla_shard *shard, mla_loader *l, size_t first, size_t count) {
    mla_error error = {0};
    const mla_image_source source = mla_loader_source(l);
    ck_assert(mla_shard_allocate(shard, count, 32));
    for (size_t i = 0; i < count; i++) shard->shares[i] = 1;
    expect_ok(source.load(source.context, first, count, shard, &error), error);
}

/* A batch of an odd number, by itself and in pieces; each image is that of its two parts. */
START_TEST(a_batch_is_mixed_with_its_mirror_image) {
    mla_data_config data = data_config(MLA_SET_TWINS, NULL);
    mla_dataset *set = open_data(&data, MLA_SPLIT_TRAIN, 3);
    mla_augment_config mixing = RECIPE, plain = RECIPE;
    mixing.mixup_mode = (mla_mix_mode)_i;
    plain.mixup = plain.cutmix = 0;
    mla_loader with = make_loader(set, &mixing), without = make_loader(set, &plain);
    mla_shard mixed, single, piece;
    load_images(&mixed, &with, 0, BATCH);
    load_images(&single, &without, 0, BATCH);
    for (size_t i = 0; i < BATCH; i++) {
        real want[PIXELS];
        const size_t j = BATCH - 1 - i;
        const mla_mix mix = mla_mix_of(&mixing, 32, 3, 1, 21, i, BATCH);
        memcpy(want, single.images + i * PIXELS, sizeof want);
        mla_mix_apply(want, single.images + j * PIXELS, 32, &mix);
        if (mix.share != 1) ck_assert_mem_eq(want, mixed.images + i * PIXELS, sizeof want);
        if (i == j) ck_assert_mem_eq(single.images + i * PIXELS, mixed.images + i * PIXELS, sizeof want);
        ck_assert_int_eq(mixed.labels[i], single.labels[i]);
        ck_assert(mixed.shares[i] == (real)mix.share);
        if (mix.share != 1) ck_assert_int_eq(mixed.others[i], single.labels[j]);
        ck_assert_int_eq(mla_shard_answer(&mixed, i), mix.share < 0.5 ? single.labels[j] : single.labels[i]);
        load_images(&piece, &with, i, 1);
        ck_assert_mem_eq(piece.images, mixed.images + i * PIXELS, sizeof want);
        mla_shard_free(&piece);
    }
    mla_shard_free(&mixed);
    mla_shard_free(&single);
    mla_dataset_close(set);
}
END_TEST

/* Repeats stand side by side, differ, and the first of them is what stands there without. */
START_TEST(repeats_of_an_image) {
    mla_data_config data = data_config(MLA_SET_TWINS, NULL);
    mla_dataset *set = open_data(&data, MLA_SPLIT_TRAIN, 3);
    mla_augment_config once = {.crop_padding = 4, .flip = 0.5}, thrice = once;
    thrice.aug_repeats = 3;
    mla_loader one = make_loader(set, &once), three = make_loader(set, &thrice);
    mla_shard a, b;
    one.first = 7;
    load_images(&a, &one, 0, 3);
    load_images(&b, &three, 0, 9);
    int different = 0;
    for (size_t i = 0; i < 9; i++) {
        ck_assert_int_eq(b.labels[i], a.labels[i / 3]);
        ck_assert_uint_eq(b.samples[i], (7 + i / 3) | (uint64_t)(i % 3) << 40);
        const bool same = !memcmp(b.images + i * PIXELS, a.images + i / 3 * PIXELS, PIXELS * sizeof(real));
        if (i % 3 == 0) ck_assert(same);
        different += !same;
    }
    ck_assert_int_ge(different, 5);
    mla_shard_free(&a);
    mla_shard_free(&b);
    mla_dataset_close(set);
}
END_TEST

/* ---- resized crop */

static mla_augment_config crops(double least, double most) {
    return (mla_augment_config){
        .crop_padding = 4, .scale = {least, most}, .ratio = {0.75, 4.0 / 3}, .interpolation = MLA_AUG_RANDOM};
}

/* Means over 400,000 draws of torchvision's rule with numpy, for an image of 100 x 60: area 0.3590 of it, width 46.09. */
START_TEST(resized_crop_draws) {
    enum { DRAWS = 5000, WIDTH = 100, HEIGHT = 60 };
    mla_augment_config config = crops(0.08, 1);
    double area = 0, width = 0;
    int bicubic = 0, right = 0;
    for (uint64_t sample = 0; sample < DRAWS; sample++) {
        const mla_crop_draw d = mla_resized_crop_draw(&(mla_crop_name){&config, 1, 2, sample}, WIDTH, HEIGHT);
        ck_assert(d.left >= 0 && d.top >= 0 && d.width >= 1 && d.height >= 1);
        ck_assert(d.left + d.width <= WIDTH && d.top + d.height <= HEIGHT);
        area += (double)d.width * d.height / (WIDTH * HEIGHT);
        width += d.width;
        bicubic += d.filter == MLA_BICUBIC;
        right += d.left + d.width == WIDTH;
    }
    ck_assert_double_eq_tol(area / DRAWS, 0.3590, 0.016);
    ck_assert_double_eq_tol(width / DRAWS, 46.09, 1.1);
    ck_assert_int_lt(abs(bicubic - DRAWS / 2), 180);
    ck_assert_int_gt(right, 20);
    config = crops(0.9, 1);
    const mla_crop_draw wide = mla_resized_crop_draw(&(mla_crop_name){&config, 1, 2, 3}, 400, 60);
    ck_assert(wide.width == 80 && wide.height == 60 && wide.left == 160 && wide.top == 0);
    const mla_crop_draw high = mla_resized_crop_draw(&(mla_crop_name){&config, 1, 2, 3}, 60, 401);
    ck_assert(high.width == 60 && high.height == 80 && high.left == 0 && high.top == 160);
}
END_TEST

/* The loader's image is the drawn part, resized as mla_image_resize (PIL's, to the last bit) does it. */
START_TEST(resized_crop_of_the_loader) {
    mla_data_config data = data_config(MLA_SET_TWINS, NULL);
    mla_dataset *set = open_data(&data, MLA_SPLIT_TRAIN, 3);
    mla_augment_config config = crops(0.3, 0.8);
    mla_loader l = make_loader(set, &config);
    mla_shard shard;
    mla_error error = {0};
    load_images(&shard, &l, 0, 5);
    for (size_t i = 0; i < 5; i++) {
        uint8_t pixels[PIXELS];
        int label;
        mla_image part, want;
        expect_ok(mla_dataset_read(set, 21 + i, 1, pixels, &label, &error), error);
        const mla_crop_draw d = mla_resized_crop_draw(&(mla_crop_name){&config, 3, 1, 21 + i}, 32, 32);
        expect_ok(mla_image_create(&part, d.width, d.height, "part", &error), error);
        for (int k = 0; k < 3 * d.width * d.height; k++)
            part.rgb[k] = pixels[k % 3 * 1024 + (d.top + k / 3 / d.width) * 32 + d.left + k / 3 % d.width];
        expect_ok(mla_image_resize(&want, &part, 32, 32, d.filter, &error), error);
        for (int k = 0; k < PIXELS; k++) {
            const double value = (want.rgb[3 * (k % 1024) + k / 1024] / 255.0 - l.mean[k / 1024]) / l.std[k / 1024];
            ck_assert_double_eq_tol((double)shard.images[i * PIXELS + (size_t)k], value, 1e-6);
        }
        mla_image_free(&part);
        mla_image_free(&want);
    }
    mla_shard_free(&shard);
    mla_dataset_close(set);
}
END_TEST

/* With the parts that work on bytes on but doing nothing, an image is what it is without them. */
START_TEST(both_ways_to_crop_are_one) {
    static uint8_t bytes[MLA_AUGMENT_BUFFERS * PIXELS], copy[MLA_AUGMENT_BUFFERS * PIXELS];
    static real plain[PIXELS], on_bytes[PIXELS];
    const double mean[3] = {0.5, 0.25, 0.125}, deviation[3] = {0.25, 0.5, 2.0};
    mla_augment_config off = {.crop_padding = 5, .flip = 0.5}, on = off;
    on.randaug = (mla_randaug_config){.n = 2, .m = 9, .mmax = 10};
    mla_rng rng = mla_rng_stream(3, MLA_RNG_TEST, 0, 0);
    for (int i = 0; i < PIXELS; i++) bytes[i] = copy[i] = (uint8_t)mla_rng_u32(&rng);
    for (uint64_t sample = 0; sample < 64; sample++) {
        mla_image_augment(plain, bytes, 32, mean, deviation, &off, 1, 2, sample);
        mla_image_augment(on_bytes, copy, 32, mean, deviation, &on, 1, 2, sample);
        ck_assert_mem_eq(plain, on_bytes, sizeof plain);
    }
}
END_TEST

START_TEST(in_words) {
    char text[MLA_AUGMENT_TEXT_BYTES];
    mla_augment_config config = RECIPE;
    mla_augment_describe(&config, text);
    ck_assert_str_eq(text,
                     "crop padding 4, flip 0.5, randaug n 2 m 9 mstd 0.5 inc 1, erase 0.25 pixel, mixup 0.8, cutmix 1");
    config.color_jitter = 0.4;
    mla_augment_describe(&config, text);
    ck_assert_ptr_null(strstr(text, "jitter"));
    config.force_color_jitter = true;
    mla_augment_describe(&config, text);
    ck_assert_ptr_nonnull(strstr(text, "colour jitter 0.4"));
    mla_augment_describe(&(mla_augment_config){0}, text);
    ck_assert_str_eq(text, "none");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("recipes");
    TCase *values = tcase_create("golden"), *draws = tcase_create("draws"), *images = tcase_create("loader");
    tcase_add_unchecked_fixture(values, open_golden, close_golden);
    tcase_add_test(values, every_operation_is_pil_s);
    tcase_add_test(values, jitter_is_torchvision_s);
    tcase_add_test(values, mixing_is_pytorch_s);
    tcase_add_test(values, loss_of_two_labels_is_pytorch_s);
    tcase_add_test(draws, randaug_draws);
    tcase_add_loop_test(draws, erasing, MLA_ERASE_CONST, MLA_ERASE_PIXEL + 1);
    tcase_add_test(draws, erasing_several_and_noise);
    tcase_add_test(draws, jitter_draws);
    tcase_add_test(draws, mixing_draws);
    tcase_add_test(draws, cutmix_between_bounds);
    tcase_add_test(draws, who_shares_a_draw);
    tcase_add_loop_test(images, a_batch_is_mixed_with_its_mirror_image, MLA_MIX_BATCH, MLA_MIX_ELEM + 1);
    tcase_add_test(images, repeats_of_an_image);
    tcase_add_test(draws, resized_crop_draws);
    tcase_add_test(images, resized_crop_of_the_loader);
    tcase_add_test(images, both_ways_to_crop_are_one);
    tcase_add_test(images, in_words);
    suite_add_tcase(suite, values);
    suite_add_tcase(suite, draws);
    suite_add_tcase(suite, images);
    return run_suite(suite);
}
