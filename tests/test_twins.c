/* The twins: solvable by matching glyphs, not by pixels one at a time, and the same numbers under the same name. */
#include "tests/data_support.h"

#include <math.h>

enum { SIZE = 32, GRID = 4, CELL = 8, PLANE = SIZE * SIZE, PIXELS = 3 * PLANE, CLASSES = 10 };

static const uint8_t *pixel(const uint8_t *pixels, int size, int left, int top, uint8_t rgb[3]) {
    for (int c = 0; c < 3; c++) rgb[c] = pixels[c * size * size + top * size + left];
    return rgb;
}

/* The brightest pixel of the frame's upper edge that is not grey; false: the frame is grey. */
static bool frame_colour(const uint8_t *pixels, int size, int cell, int left, int top, uint8_t best[3]) {
    uint8_t rgb[3];
    int most = -1;
    for (int i = 0; i < cell; i++)
        for (int edge = 0; edge < 2; edge++) {
            pixel(pixels, size, left + (edge ? 0 : i), top + (edge ? i : 0), rgb);
            if (rgb[0] == 128 && rgb[1] == 128 && rgb[2] == 128) return false;
            if (rgb[0] + rgb[1] + rgb[2] > most) {
                most = rgb[0] + rgb[1] + rgb[2];
                memcpy(best, rgb, 3);
            }
        }
    return true;
}

static bool same_glyph(const uint8_t *pixels, int size, int cell, int a, int b, int frame) {
    int grid = size / cell;
    for (int y = frame; y < cell - frame; y++)
        for (int x = frame; x < cell - frame; x++) {
            int at_a = (a / grid * cell + y) * size + a % grid * cell + x;
            int at_b = (b / grid * cell + y) * size + b % grid * cell + x;
            if (pixels[at_a] != pixels[at_b]) return false;
        }
    return true;
}

/* Looks for the grey frame, then for the cells with its glyph; the colour of the only one, or -1. */
static int solve(const uint8_t *pixels, int size, int grid) {
    static const uint8_t palette[CLASSES][3] = {{255, 0, 0}, {255, 128, 0}, {255, 255, 0}, {0, 255, 0},  {0, 255, 255},
                                                {0, 0, 255}, {128, 0, 255}, {255, 0, 255}, {128, 64, 0}, {255, 160, 200}};
    int cell = size / grid, query = -1, twin = -1, frame = cell >= 8 ? cell / 8 : 1;
    uint8_t rgb[3];
    for (int i = 0; i < grid * grid; i++)
        if (!frame_colour(pixels, size, cell, i % grid * cell, i / grid * cell, rgb)) query = query < 0 ? i : grid * grid;
    if (query < 0 || query == grid * grid) return -1;
    for (int i = 0; i < grid * grid; i++)
        if (i != query && same_glyph(pixels, size, cell, i, query, frame)) {
            if (twin >= 0) return -1;
            twin = i;
        }
    if (twin < 0) return -1;
    frame_colour(pixels, size, cell, twin % grid * cell, twin / grid * cell, rgb);
    for (int c = 0; c < CLASSES; c++)
        if (memcmp(palette[c], rgb, 3) == 0) return c;
    return -1;
}

static void expect_solvable(int size, int grid, int images) {
    mla_data_config config = data_config(MLA_SET_TWINS, NULL);
    config.size = size;
    config.twins_grid = grid;
    uint8_t *pixels = malloc(3 * (size_t)size * (size_t)size);
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 3);
    int right = 0;
    for (int i = 0; i < images; i++) {
        int label = -1;
        ck_assert(mla_dataset_read(set, (size_t)i, 1, pixels, &label, NULL) == MLA_OK);
        right += solve(pixels, size, grid) == label;
    }
    ck_assert_msg(right > 0.99 * images, "size %d, grid %d: %d of %d solved", size, grid, right, images);
    mla_dataset_close(set);
    free(pixels);
}

START_TEST(matching_glyphs_solves_it) {
    expect_solvable(32, 4, 500);
    expect_solvable(32, 2, 200);
    expect_solvable(24, 4, 200); /* 4 x 4 dots */
    expect_solvable(28, 4, 200); /* 5 x 5 dots */
    expect_solvable(64, 4, 100); /* enlarged */
    expect_solvable(64, 8, 100);
    expect_solvable(96, 16, 20);
    expect_solvable(128, 16, 20);
    expect_solvable(192, 32, 5);
    expect_solvable(256, 32, 5);
}
END_TEST

/* ---- a linear classifier ---- */

typedef struct softmax_model {
    float weight[CLASSES][PIXELS], bias[CLASSES];
} softmax_model;

static void scores(const softmax_model *model, const uint8_t *pixels, float out[CLASSES]) {
    for (int c = 0; c < CLASSES; c++) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (int i = 0; i < PIXELS; i++) sum += model->weight[c][i] * ((float)pixels[i] / 255.0f - 0.42f);
        out[c] = sum + model->bias[c];
    }
}

static void learn(softmax_model *model, const uint8_t *pixels, int label, float rate) {
    float out[CLASSES], most = -INFINITY, sum = 0.0f;
    scores(model, pixels, out);
    for (int c = 0; c < CLASSES; c++) most = fmaxf(most, out[c]);
    for (int c = 0; c < CLASSES; c++) sum += out[c] = expf(out[c] - most);
    for (int c = 0; c < CLASSES; c++) {
        float step = rate * ((c == label) - out[c] / sum);
        model->bias[c] += step;
        for (int i = 0; i < PIXELS; i++) model->weight[c][i] += step * ((float)pixels[i] / 255.0f - 0.42f);
    }
}

START_TEST(pixels_alone_do_not_solve_it) {
    enum { IMAGES = 4000, EPOCHS = 5, FRESH = 1000 };
    softmax_model *model = calloc(1, sizeof *model);
    mla_data_config config = data_config(MLA_SET_TWINS, NULL);
    config.twins_train = IMAGES;
    config.twins_test = FRESH;
    mla_dataset *train = open_data(&config, MLA_SPLIT_TRAIN, 0), *test = open_data(&config, MLA_SPLIT_TEST, 0);
    uint8_t pixels[PIXELS];
    int label = -1, right = 0;
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        for (size_t i = 0; i < IMAGES; i++) {
            ck_assert(mla_dataset_read(train, i, 0, pixels, &label, NULL) == MLA_OK);
            learn(model, pixels, label, 1e-3f / (float)(1 + epoch));
        }
    for (size_t i = 0; i < FRESH; i++) {
        float out[CLASSES];
        int best = 0;
        ck_assert(mla_dataset_read(test, i, 0, pixels, &label, NULL) == MLA_OK);
        scores(model, pixels, out);
        for (int c = 1; c < CLASSES; c++) best = out[c] > out[best] ? c : best;
        right += best == label;
    }
    ck_assert_msg(right < 0.40 * FRESH, "%d of %d by a linear classifier", right, FRESH);
    ck_assert_msg(right > 0.10 * FRESH, "%d of %d: the classifier of this test does not learn", right, FRESH);
    mla_dataset_close(train);
    mla_dataset_close(test);
    free(model);
}
END_TEST

/* ---- names of images ---- */

static void read_one(uint8_t pixels[PIXELS], int *label, mla_split split, uint64_t seed, uint64_t epoch, size_t index) {
    mla_data_config config = data_config(MLA_SET_TWINS, NULL);
    mla_dataset *set = open_data(&config, split, seed);
    ck_assert(mla_dataset_read(set, index, epoch, pixels, label, NULL) == MLA_OK);
    mla_dataset_close(set);
}

START_TEST(images_depend_on_their_name_alone) {
    uint8_t a[PIXELS], b[PIXELS];
    int la = -1, lb = -1;
    read_one(a, &la, MLA_SPLIT_TRAIN, 1, 2, 3);
    read_one(b, &lb, MLA_SPLIT_TRAIN, 1, 2, 3);
    ck_assert_mem_eq(a, b, PIXELS);
    ck_assert_int_eq(la, lb);
    read_one(b, &lb, MLA_SPLIT_TRAIN, 2, 2, 3);
    ck_assert_mem_ne(a, b, PIXELS);
    read_one(b, &lb, MLA_SPLIT_TRAIN, 1, 3, 3);
    ck_assert_mem_ne(a, b, PIXELS);
    read_one(b, &lb, MLA_SPLIT_TRAIN, 1, 2, 4);
    ck_assert_mem_ne(a, b, PIXELS);
    read_one(a, &la, MLA_SPLIT_TEST, 1, 2, 3);
    read_one(b, &lb, MLA_SPLIT_TEST, 9, 8, 3);
    ck_assert_mem_eq(a, b, PIXELS);
    read_one(b, &lb, MLA_SPLIT_TRAIN, 1, 2, 3);
    ck_assert_mem_ne(a, b, PIXELS);
}
END_TEST

START_TEST(classes_are_even_and_constants_fit) {
    enum { IMAGES = 3000 };
    mla_data_config config = data_config(MLA_SET_TWINS, NULL);
    config.twins_train = IMAGES;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    const mla_dataset_info *info = mla_dataset_get_info(set);
    int counts[CLASSES] = {0}, label = -1;
    double sum[3] = {0}, square[3] = {0}, n = (double)IMAGES * PLANE;
    uint8_t pixels[PIXELS];
    ck_assert_int_eq(info->classes, CLASSES);
    ck_assert_str_eq(info->source, "generated");
    ck_assert_str_eq(info->names[2], "yellow");
    for (size_t i = 0; i < IMAGES; i++) {
        ck_assert(mla_dataset_read(set, i, 0, pixels, &label, NULL) == MLA_OK);
        counts[label]++;
        for (int p = 0; p < PIXELS; p++) {
            sum[p / PLANE] += pixels[p] / 255.0;
            square[p / PLANE] += pixels[p] / 255.0 * (pixels[p] / 255.0);
        }
    }
    for (int c = 0; c < CLASSES; c++)
        ck_assert_msg(abs(counts[c] - IMAGES / CLASSES) < 85, "class %d: %d images", c, counts[c]);
    for (int c = 0; c < 3; c++) {
        ck_assert_double_eq_tol(sum[c] / n, info->mean[c], 0.003);
        ck_assert_double_eq_tol(sqrt(square[c] / n - sum[c] / n * sum[c] / n), info->std[c], 0.003);
    }
    mla_dataset_close(set);
}
END_TEST

START_TEST(refuses_geometry) {
    mla_data_config config = data_config(MLA_SET_TWINS, NULL);
    config.twins_grid = 1;
    refuse_data(&config, MLA_SPLIT_TRAIN, "data.twins.grid is 1", "2 to 32", NULL);
    config.twins_grid = 33;
    refuse_data(&config, MLA_SPLIT_TRAIN, "data.twins.grid is 33", NULL);
    config.twins_grid = 5;
    refuse_data(&config, MLA_SPLIT_TRAIN, "data.size 32 does not divide into 5", NULL);
    config.twins_grid = 8;
    refuse_data(&config, MLA_SPLIT_TRAIN, "4 pixels for each of 8", "size 48 or more", NULL);
}
END_TEST

/* Fewer images are drawn, and mean and deviation of the config win. */
START_TEST(front_applies) {
    mla_data_config config = data_config(MLA_SET_TWINS, NULL);
    config.subset = 0.1;
    config.mean_auto = false;
    config.mean[1] = 0.75;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    ck_assert_uint_eq(mla_dataset_get_info(set)->count, 50);
    ck_assert_double_eq(mla_dataset_get_info(set)->mean[1], 0.75);
    ck_assert_double_ne(mla_dataset_get_info(set)->std[1], 0.0);
    mla_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("twins");
    ADD_GROUP(suite, "task", matching_glyphs_solves_it, pixels_alone_do_not_solve_it);
    ADD_GROUP(suite, "images", images_depend_on_their_name_alone, classes_are_even_and_constants_fit, refuses_geometry,
              front_applies);
    return run_suite(suite);
}
