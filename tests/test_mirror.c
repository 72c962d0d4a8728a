/* What holds for the options of the mirror. */
#include "layers/model.h"
#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 2e-5 : 1e-12;

/* H(e_1) ... H(e_b) = -I, whatever the length of the axes: then twin is split, bit for bit. */
START_TEST(a_twin_at_minus_i_is_split) {
    enum { B = 4, HEADS = 2, BLOCKS = 2, WIDTH = 2 * HEADS * BLOCKS * B };
    mla_tensor v = mla_tensor_make(test_reals(HEADS * BLOCKS * B * B), SHAPE(HEADS, BLOCKS, B, B));
    for (size_t i = 0; i < HEADS * BLOCKS * B; i++) v.data[i * B + i % B] = i % 2 ? 1 : -3;
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var x = mla_tape_input(tape, test_tensor(1, SHAPE(2, 3, WIDTH)));
    const mla_var twin = mla_block_turn(tape, x, mla_tape_input(tape, v));
    const mla_tensor a = mla_value(tape, mla_relu_features(tape, x, twin, HEADS, MLA_KEPT_TWIN)),
                     b = mla_value(tape, mla_relu_features(tape, x, MLA_NO_VAR, HEADS, MLA_KEPT_SPLIT));
    test_close("twin at -I", a.data, b.data, mla_tensor_count(&b), 0);
}
END_TEST

static double squares(const real *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* What only turns, reflects or folds a block keeps its length; no mirror has anything behind it any more after the last of
 * a block's conditional reflections; the retention loss is the share that ReLU cuts off. */
START_TEST(blocks_keep_their_length) {
    enum { TOKENS = 5, BLOCKS = 4, B = 4, WIDTH = 2 * BLOCKS * B };
    const mla_tensor in = test_tensor(1, SHAPE(1, TOKENS, WIDTH)), v = test_tensor(2, SHAPE(2, 2, 3, B));
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var x = mla_tape_input(tape, in), mirrors = mla_tape_input(tape, v);
    const mla_var planes = mla_plane_basis(tape, mla_tape_input(tape, test_tensor(3, SHAPE(BLOCKS, B))),
                                           mla_tape_input(tape, test_tensor(4, SHAPE(BLOCKS, B))));
    const mla_var angle_a = mla_tape_input(tape, test_tensor(5, SHAPE(BLOCKS)));
    const mla_var results[] = {mla_fold_reflect(tape, x, mirrors), mla_block_turn(tape, x, mirrors),
                               mla_plane_angle(tape, x, angle_a, angle_a, planes, 1.5, true)};
    for (size_t r = 0; r < TEST_COUNT(results); r++)
        for (size_t i = 0; i < TOKENS * WIDTH; i += B) {
            const double before = squares(in.data + i, B), after = squares(mla_value(tape, results[r]).data + i, B);
            ck_assert_double_eq_tol(after / before, 1, 10 * CLOSE);
        }
    const real *folded = mla_value(tape, results[0]).data;
    for (size_t i = 0; i < TOKENS * WIDTH / B; i++) {
        const real *last = v.data + (i % BLOCKS * 3 + 2) * B;
        double dot = 0;
        for (size_t j = 0; j < B; j++) dot += (double)folded[i * B + j] * (double)last[j];
        ck_assert_double_ge(dot, -10 * CLOSE);
    }
    real negative[TOKENS * 2] = {1, -2, 1, -2, 1, -2, 1, -2, 1, -2}; /* q all positive, k all negative */
    const mla_tensor qk = mla_tensor_make(negative, SHAPE(1, TOKENS, 2));
    ck_assert_double_eq_tol((double)mla_value(tape, mla_retention(tape, mla_tape_input(tape, qk), 1)).data[0], 0.5, 1e-6);
}
END_TEST

/* ---- models */

static mla_model_spec spec_of(const mla_mirror_spec *mirror) {
    return (mla_model_spec){.family = MLA_FAMILY_VIT,
                            .image = 8,
                            .channels = 3,
                            .classes = 3,
                            .patch = 2,
                            .stages = 1,
                            .dims = {16},
                            .depths = {2},
                            .heads = {2},
                            .kinds = {MLA_ATTENTION_MIRROR},
                            .mlp_ratio = 1,
                            .norm_eps = 1e-6,
                            .attention = {.qkv_bias = true, .eps = 1e-6, .mirror = *mirror}};
}

static mla_model *model_of(const mla_mirror_spec *mirror) {
    const mla_model_spec spec = spec_of(mirror);
    mla_model *model;
    mla_error error = {0};
    ck_assert_msg(mla_model_new(&model, &spec, &error) == MLA_OK, "%s", error.text);
    mla_params_init(mla_model_params(model), 3);
    return model;
}

/* Logits of two images, and what the layers add to a loss of zero. */
static const real *logits_of(mla_model *model, mla_tape *tape, real *added) {
    static const real nothing[2];
    mla_params *params = mla_model_params(model);
    mla_tape_begin(tape, params, params->value, NULL);
    const mla_var logits =
        mla_model_forward(model, tape, mla_tape_input(tape, test_tensor(7, SHAPE(2, 3, 8, 8))), &(mla_forward){0});
    const mla_var zero = mla_tape_input(tape, mla_tensor_make((real *)(uintptr_t)nothing, SHAPE(2)));
    memcpy(added, mla_value(tape, mla_model_loss(model, tape, zero)).data, sizeof nothing);
    return mla_value(tape, logits).data;
}

/* A model whose parts are all off is plain ReLU attention; with split features alone it is not. */
START_TEST(all_parts_off_is_relu) {
    const mla_mirror_spec off = {0}, split = {.feature = MLA_KEPT_SPLIT};
    real added[2];
    mla_model *model = model_of(&off), *other = model_of(&split);
    const mla_params *params = mla_model_params(model);
    mla_model_spec spec = spec_of(&off);
    spec.kinds[0] = MLA_ATTENTION_RELU;
    mla_model *plain;
    mla_error error = {0};
    ck_assert(mla_model_new(&plain, &spec, &error) == MLA_OK);
    mla_params_init(mla_model_params(plain), 3);
    ck_assert_int_eq(params->entries, mla_model_params(plain)->entries);
    ck_assert_int_eq(params->entries, mla_model_params(other)->entries);
    mla_tape *a = test_tape(), *b = test_tape(), *c = test_tape();
    const real *mirror = logits_of(model, a, added), *relu = logits_of(plain, b, added), *both = logits_of(other, c, added);
    test_close("logits", mirror, relu, 6, 0);
    ck_assert_double_gt(test_error(both, relu, 6), 1e-3);
    mla_model_free(model);
    mla_model_free(plain);
    mla_model_free(other);
}
END_TEST

/* The loss of the layers is the weight times their mean, and changes no logit. */
START_TEST(retention_is_added_to_the_loss) {
    mla_mirror_spec mirror = {.block = 4, .reflections = 2, .variance_angle = true, .angle_max = 1, .cross_head = 2};
    real none[2], some[2], twice[2];
    mla_model *model = model_of(&mirror);
    mla_tape *tape = test_tape(), *other = test_tape();
    const real *logits = logits_of(model, tape, none);
    ck_assert(mla_tape_next_loss(tape, MLA_NO_VAR).id < 0);
    mirror.retention_loss = 0.5;
    mla_model *lossy = model_of(&mirror);
    test_close("logits", logits_of(lossy, other, some), logits, 6, CLOSE);
    for (size_t b = 0; b < 2; b++) {
        ck_assert_double_eq((double)none[b], 0);
        ck_assert(some[b] > REAL(0.05) && some[b] < REAL(0.5));
        ck_assert_double_eq_tol((double)some[b], 0.5 * mla_model_retention(other, b), CLOSE);
    }
    mirror.retention_loss = 1;
    mla_model *strong = model_of(&mirror);
    logits_of(strong, other, twice);
    for (size_t b = 0; b < 2; b++) ck_assert_double_eq_tol((double)twice[b], 2 * (double)some[b], CLOSE);
    mla_model_free(model);
    mla_model_free(lossy);
    mla_model_free(strong);
}
END_TEST

static const mla_param *param_of(mla_model *model, const char *name) {
    const int i = mla_params_find(mla_model_params(model), name);
    ck_assert_msg(i >= 0, "no parameter %s", name);
    return &mla_model_params(model)->entry[i];
}

/* P (b, b) of the first block of a parameter of vectors. */
static void first_product(real *product, mla_model *model, const char *name) {
    const mla_param *v = param_of(model, name);
    const size_t b = v->shape[3];
    real *identity = test_reals(b * 2 * v->shape[0] * v->shape[1] * b);
    const size_t width = 2 * v->shape[0] * v->shape[1] * b;
    for (size_t i = 0; i < b; i++) identity[i * width + i] = 1;
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var x = mla_tape_input(tape, mla_tensor_make(identity, SHAPE(1, b, width)));
    const mla_var vectors =
        mla_tape_input(tape, mla_tensor_make(mla_model_params(model)->value + v->offset, (int)v->ndim, v->shape));
    const real *y = mla_value(tape, mla_block_turn(tape, x, vectors)).data;
    for (size_t i = 0; i < b * b; i++) product[i] = y[i / b * width + i % b];
}

/* Distance of P from sign * I, relative to |I|. */
static double distance(const real *product, size_t b, double sign) {
    double sum = 0;
    for (size_t i = 0; i < b * b; i++) {
        const double d = (double)product[i] - (i / b == i % b ? sign : 0);
        sum += d * d;
    }
    return sqrt(sum / (double)b);
}

/* Pairs start near I, random vectors anywhere, the twin at -I exactly, or near it with a pair on top. */
START_TEST(vectors_start_as_said) {
    mla_mirror_spec mirror = {.block = 4, .reflections = 2, .feature = MLA_KEPT_TWIN, .twin_init = MLA_TWIN_NEGATIVE};
    real product[16];
    mla_model *model = model_of(&mirror);
    first_product(product, model, "blocks.0.attn.block_v");
    ck_assert_double_lt(distance(product, 4, 1), 0.4);
    ck_assert_uint_eq(param_of(model, "blocks.0.attn.twin_v")->shape[2], 4);
    first_product(product, model, "blocks.1.attn.twin_v");
    ck_assert_double_eq(distance(product, 4, -1), 0);
    mla_model_free(model);
    mirror.twin_reflections = 6;
    model = model_of(&mirror);
    first_product(product, model, "blocks.0.attn.twin_v");
    ck_assert(distance(product, 4, -1) > 1e-3 && distance(product, 4, -1) < 0.4);
    mla_model_free(model);
    mirror = (mla_mirror_spec){.block = 4, .reflections = 2, .block_init = MLA_VECTORS_RANDOM, .feature = MLA_KEPT_TWIN};
    model = model_of(&mirror);
    first_product(product, model, "blocks.0.attn.block_v");
    ck_assert(distance(product, 4, 1) > 0.4);
    ck_assert_uint_eq(param_of(model, "blocks.0.attn.twin_v")->shape[2], 2); /* as many as the block isometry has */
    first_product(product, model, "blocks.0.attn.twin_v");
    ck_assert(distance(product, 4, 1) > 0.4 && distance(product, 4, -1) > 0.4);
    mla_model_free(model);
}
END_TEST

/* What does not fit is refused when the model is made, too. */
START_TEST(what_does_not_fit_is_refused) {
    static const struct {
        mla_mirror_spec mirror;
        const char *hint;
    } refused[] = {
        {{.block = 3, .fold = 1}, "mirror.block 3"},
        {{.block = 3, .feature = MLA_KEPT_TWIN}, "mirror.block 3"},
        {{.block = 3, .variance_angle = true, .angle_planes = MLA_PLANES_LEARNED}, "mirror.block 3"},
        {{.block = 1, .variance_angle = true, .angle_planes = MLA_PLANES_LEARNED}, "no plane"},
        {{.block = 4, .feature = MLA_KEPT_TWIN, .twin_init = MLA_TWIN_NEGATIVE, .twin_reflections = 5}, "-I"},
        {{.block = 4, .feature = MLA_KEPT_TWIN, .twin_init = MLA_TWIN_NEGATIVE, .twin_reflections = 2}, "-I"},
        {{.power = MLA_POWER_FIXED, .exponent = 0.5}, "exponent"},
    };
    const mla_model_spec spec = spec_of(&refused[_i].mirror);
    mla_model *model;
    mla_error error = {0};
    ck_assert_int_eq(mla_model_new(&model, &spec, &error), MLA_INVALID);
    ck_assert_msg(strstr(error.text, refused[_i].hint) != NULL, "%s", error.text);
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_test(tcase, a_twin_at_minus_i_is_split);
    tcase_add_test(tcase, blocks_keep_their_length);
    tcase_add_test(tcase, all_parts_off_is_relu);
    tcase_add_test(tcase, retention_is_added_to_the_loss);
    tcase_add_test(tcase, vectors_start_as_said);
    tcase_add_loop_test(tcase, what_does_not_fit_is_refused, 0, 7);
}

int main(void) { return test_main("mirror", (void (*const[])(TCase *)){all}, 1); }
