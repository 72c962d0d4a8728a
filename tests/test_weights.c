/* Weights on their way in and out: narrow types, folding, files that lie about them, interpolated positions. */
#include <math.h>

#include "layers/model.h"
#include "tests/run_suite.h"
#include "tests/scratch.h"
#include "train/adapt.h"
#include "train/export.h"

/* ---- narrow types */

static float widen(mla_dtype dtype, uint16_t bits) {
    float value;
    const mla_file_tensor tensor = {.name = "x", .dtype = dtype, .ndim = 0, .data = &bits, .bytes = sizeof bits};
    mla_tensor_widen(&value, &tensor, 0, 1);
    return value;
}

static uint16_t narrow(mla_dtype dtype, float value) {
    uint16_t bits;
    (void)mla_floats_narrow(&bits, dtype, &value, 1);
    return bits;
}

/* Every number of the type comes back; between two neighbours the nearer one is taken, in the middle the even one. */
static void check_type(mla_dtype dtype, uint16_t infinity) {
    for (unsigned sign = 0; sign <= 0x8000; sign += 0x8000) {
        for (unsigned bits = 0; bits < infinity; bits++) {
            const uint16_t low = (uint16_t)(sign | bits), high = (uint16_t)(low + 1), even = bits % 2 ? high : low;
            const double a = (double)widen(dtype, low);
            const double b =
                bits + 1 < infinity ? (double)widen(dtype, high) : (sign ? -1 : 1) * (dtype == MLA_F16 ? 65536.0 : 0x1p128);
            const float middle = (float)((a + b) / 2);
            ck_assert_msg(narrow(dtype, (float)a) == low, "%s %04x comes back as %04x", mla_dtype_name(dtype), low,
                          narrow(dtype, (float)a));
            ck_assert_msg(narrow(dtype, middle) == even, "%s: %.9g becomes %04x", mla_dtype_name(dtype), (double)middle,
                          narrow(dtype, middle));
            ck_assert_uint_eq(narrow(dtype, nextafterf(middle, (float)a)), low);
            ck_assert_uint_eq(narrow(dtype, nextafterf(middle, sign ? -INFINITY : INFINITY)), high);
        }
        ck_assert_uint_eq(narrow(dtype, sign ? -INFINITY : INFINITY), sign | infinity);
        ck_assert(isnan(widen(dtype, narrow(dtype, NAN))));
    }
}

START_TEST(half_rounds_to_nearest_even) { check_type(MLA_F16, 0x7C00); }
END_TEST

START_TEST(bfloat_rounds_to_nearest_even) { check_type(MLA_BF16, 0x7F80); }
END_TEST

START_TEST(too_large_values_are_told) {
    const float values[5] = {1, INFINITY, 65519, 65520, -1e9f};
    uint16_t bits[5];
    ck_assert_uint_eq(mla_floats_narrow(bits, MLA_F16, values, 5), 3);
    ck_assert_uint_eq(mla_floats_narrow(bits, MLA_F16, values, 3), 3); /* infinity is no overflow */
    ck_assert_uint_eq(bits[2], 0x7BFF);
    ck_assert_uint_eq(mla_floats_narrow(bits, MLA_BF16, values, 5), 5);
    ck_assert_uint_eq(mla_floats_narrow(bits, MLA_BF16, &(float){3.4e38f}, 1), 0);
}
END_TEST

/* ---- exports */

static mla_config config;
static mla_model *model;
static mla_params *params;
static const char *const names[] = {"a", "b", "c"};
static mla_checkpoint checkpoint; /* as far as an export needs it */

static void setup(void) {
    scratch_make();
    mla_error error = {0};
    mla_config_defaults(&config);
    config.model.image = config.data.size = 8;
    config.model.patch = 4;
    config.model.channels = 3;
    config.model.classes = 3;
    config.model.dims[0] = 16;
    config.model.depths[0] = 2;
    config.model.heads[0] = 2;
    config.model.attention.mirror.variance_angle = false;
    expect_ok(mla_model_new(&model, &config.model, &error), error);
    params = mla_model_params(model);
    mla_params_init(params, 3);
    checkpoint = (mla_checkpoint){.config = config,
                                  .classes = {.names = names, .count = 3, .std = {1, 1, 1}, .size = 8},
                                  .weight_hash = (char *)(uintptr_t) "0123456789abcdef"};
}

static void teardown(void) {
    mla_model_free(model);
    scratch_remove();
}

static const char *export(mla_dtype dtype, const mla_folded *folded) {
    mla_error error = {0};
    const mla_export_options options = {.dtype = dtype, .folded = folded};
    const char *path = in_scratch("weights.safetensors");
    expect_ok(mla_export_safetensors(path, params, params->value, &checkpoint, &options, &error), error);
    return path;
}

START_TEST(narrow_exports_load_and_verify) {
    static const mla_dtype types[] = {MLA_F32, MLA_BF16, MLA_F16};
    for (size_t t = 0; t < 3; t++) {
        mla_loaded loaded;
        mla_error error = {0};
        const char *path = export(types[t], NULL);
        expect_ok(mla_loaded_open(&loaded, path, MLA_WEIGHTS_AUTO, NULL, 0, &error), error);
        ck_assert_str_eq(mla_safetensors_metadata(loaded.checkpoint.file, "dtype"), mla_dtype_name(types[t]));
        ck_assert_str_eq(mla_safetensors_metadata(loaded.checkpoint.file, "source_weight_hash"), "0123456789abcdef");
        const real *value = mla_model_params(loaded.model)->value;
        for (size_t i = 0; i < params->size; i++) {
            const float expected =
                types[t] == MLA_F32 ? params->value[i] : widen(types[t], narrow(types[t], params->value[i]));
            ck_assert(value[i] == expected);
        }
        mla_loaded_close(&loaded);
        /* the stored hash is that of the stored bytes: one changed bit is found in every type */
        size_t bytes;
        char *data = get_file(path, &bytes);
        data[bytes - 1] ^= 1;
        put_file(path, data, bytes);
        free(data);
        ck_assert(mla_loaded_open(&loaded, path, MLA_WEIGHTS_AUTO, NULL, 0, &error) == MLA_INVALID);
        expect_text(error.text, "the file was changed or is damaged");
    }
}
END_TEST

START_TEST(overflow_is_refused_by_name) {
    mla_error error = {0};
    const char *path = in_scratch("weights.safetensors");
    const mla_export_options options = {.dtype = MLA_F16};
    const mla_param *p = &params->entry[mla_params_find(params, "blocks.1.mlp.fc1.bias")];
    put_file(path, "old", 3);
    params->value[p->offset + 5] = -70000;
    ck_assert(mla_export_safetensors(path, params, params->value, &checkpoint, &options, &error) == MLA_INVALID);
    expect_text(error.text, "\"blocks.1.mlp.fc1.bias\" holds -70000 at element 5, too large for F16 (at most 65504)");
    size_t bytes;
    char *data = get_file(path, &bytes);
    ck_assert_uint_eq(bytes, 3);
    free(data);
    (void)export(MLA_BF16, NULL);
}
END_TEST

START_TEST(not_finite_weights_are_told) {
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    static const char *const words[] = {"holds NaN at element 7", "holds infinity at element 7",
                                        "holds -infinity at element 7"};
    static const mla_dtype types[] = {MLA_F32, MLA_BF16, MLA_F16};
    const mla_param *p = &params->entry[mla_params_find(params, "blocks.0.norm2.weight")];
    for (int i = 0; i < 9; i++) {
        mla_loaded loaded;
        mla_error error = {0};
        params->value[p->offset + 7] = wrong[i / 3];
        ck_assert(mla_loaded_open(&loaded, export(types[i % 3], NULL), MLA_WEIGHTS_AUTO, NULL, 0, &error) == MLA_INVALID);
        expect_text(error.text, "tensor \"blocks.0.norm2.weight\"");
        expect_text(error.text, words[i / 3]);
    }
}
END_TEST

/* Logits of one random image. */
static void forward(real *logits, const mla_model *of, const real *values) {
    real image[3 * 8 * 8];
    for (size_t i = 0; i < sizeof image / sizeof *image; i++) image[i] = (real)sin(0.7 * (double)i);
    mla_error error = {0};
    mla_tape *tape = mla_tape_new();
    mla_tape_begin(tape, mla_model_params((mla_model *)(uintptr_t)of), values, NULL);
    const mla_var x = mla_tape_input(tape, mla_tensor_make(image, 4, (size_t[]){1, 3, 8, 8}));
    const mla_var out = mla_model_forward(of, tape, x, &(mla_forward){.training = false});
    expect_ok(mla_tape_status(tape, &error), error);
    memcpy(logits, mla_value(tape, out).data, 3 * sizeof *logits);
    mla_tape_free(tape);
}

START_TEST(both_isometries_fold) {
    real before[3], after[3];
    mla_folded folded;
    mla_loaded loaded;
    mla_error error = {0};
    for (size_t i = 0; i < params->size; i++) params->value[i] += (real)(0.1 * cos((double)i)); /* biases are not zero */
    forward(before, model, params->value);
    expect_ok(mla_fold(&folded, params, &checkpoint.config, &error), error);
    ck_assert(folded.blocks == 2 && folded.cross == 2 && folded.tensors == 4);
    ck_assert(checkpoint.config.model.attention.mirror.reflections == 0);
    ck_assert(checkpoint.config.model.attention.mirror.cross_head == 0);
    const char *path = export(MLA_F32, &folded);
    expect_ok(mla_loaded_open(&loaded, path, MLA_WEIGHTS_AUTO, NULL, 0, &error), error);
    ck_assert_int_eq(mla_model_params(loaded.model)->entries, params->entries - 4);
    ck_assert_str_eq(mla_safetensors_metadata(loaded.checkpoint.file, "folded"), "mirror.reflections,mirror.cross_head");
    forward(after, loaded.model, mla_model_params(loaded.model)->value);
    for (int i = 0; i < 3; i++)
        ck_assert_msg(fabs((double)(before[i] - after[i])) < 1e-5, "%g and %g", (double)before[i], (double)after[i]);
    mla_loaded_close(&loaded);
    mla_folded_free(&folded);
}
END_TEST

/* An angle between the two keeps the second where it is; other kinds have nothing to fold. */
START_TEST(what_depends_on_the_image_stays) {
    mla_folded folded;
    mla_error error = {0};
    checkpoint.config.model.attention.mirror.variance_angle = true;
    expect_ok(mla_fold(&folded, params, &checkpoint.config, &error), error);
    ck_assert(folded.blocks == 2 && folded.cross == 0);
    ck_assert(checkpoint.config.model.attention.mirror.cross_head == config.model.attention.mirror.cross_head);
    mla_folded_free(&folded);
    checkpoint.config.model.kinds[0] = MLA_ATTENTION_RELU;
    expect_ok(mla_fold(&folded, params, &checkpoint.config, &error), error);
    ck_assert(folded.blocks == 0 && folded.tensors == 0);
    mla_folded_free(&folded);
}
END_TEST

/* ---- positions */

START_TEST(positions_equal_torch) {
    const char *source = getenv("MLA_SOURCE_DIR");
    char path[1024];
    mla_safetensors *file;
    mla_error error = {0};
    size_t checked = 0;
    snprintf(path, sizeof path, "%s/tests/golden/positions.safetensors", source ? source : ".");
    expect_ok(mla_safetensors_open(&file, path, &error), error);
    for (size_t i = 0; i < mla_safetensors_count(file); i++) {
        int before, after;
        char name[64];
        const mla_file_tensor *in = mla_safetensors_at(file, i);
        if (!strstr(in->name, ".in")) continue;
        ck_assert_int_eq(sscanf(in->name, "%d.%d.in", &before, &after), 2);
        snprintf(name, sizeof name, "%d.%d.out", before, after);
        const size_t count = (size_t)after * (size_t)after * 3;
        float *expected = malloc(count * sizeof *expected), *found = malloc(count * sizeof *found);
        float *table = malloc(mla_tensor_elements(in) * sizeof *table);
        mla_tensor_widen(table, in, 0, mla_tensor_elements(in));
        expect_ok(mla_safetensors_floats(expected, count, file, name, &error), error);
        expect_ok(mla_positions_resize(found, after, table, before, 3, &error), error);
        for (size_t j = 0; j < count; j++)
            ck_assert_msg(fabsf(found[j] - expected[j]) < 1e-6f, "%s, value %zu: %.9g, torch has %.9g", name, j,
                          (double)found[j], (double)expected[j]);
        free(expected);
        free(found);
        free(table);
        checked++;
    }
    ck_assert_uint_eq(checked, 9);
    mla_safetensors_close(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("weights");
    TCase *types = tcase_create("types");
    tcase_add_test(types, half_rounds_to_nearest_even);
    tcase_add_test(types, bfloat_rounds_to_nearest_even);
    tcase_add_test(types, too_large_values_are_told);
    tcase_add_test(types, positions_equal_torch);
    suite_add_tcase(suite, types);
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, setup, teardown);
    tcase_add_test(files, narrow_exports_load_and_verify);
    tcase_add_test(files, overflow_is_refused_by_name);
    tcase_add_test(files, not_finite_weights_are_told);
    tcase_add_test(files, both_isometries_fold);
    tcase_add_test(files, what_depends_on_the_image_stays);
    suite_add_tcase(suite, files);
    return run_suite(suite);
}
