#include <check.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/run_suite.h"
#include "core/rng.h"
#include "tests/scratch.h"
#include "train/checkpoint.h"
#include "train/export.h"
#include "train/file.h"
#include "train/text.h"

static const char *const class_names[] = {"Fähre", "sports car", "鳥", "\"quoted\"\\", ""};
static const mla_class_info classes = {class_names, 5, {0.4914, 0.4822, 0.4465}, {0.247, 1.0 / 3, 1}, 32};
static const mla_counters counters = {.step = 391,
                                      .epoch = 1,
                                      .step_in_epoch = 17,
                                      .epoch_loss_sum = 0x1.23456789abcdfp+9,
                                      .epoch_correct = 99,
                                      .epoch_images = 2176,
                                      .best_correct = 4312,
                                      .best_images = 10000,
                                      .best_epoch = 1};
static mla_params params;
static mla_run_buffers buffers;
static mla_config config;

static void build_params(mla_params *out) {
    *out = (mla_params){0};
    mla_init normal = {MLA_INIT_NORMAL, 1};
    (void)mla_params_add(out, "blocks.0.attn.qkv.weight", 2, (size_t[]){15, 5}, normal, true);
    (void)mla_params_add(out, "blocks.0.attn.qkv.bias", 1, (size_t[]){15}, normal, false);
    (void)mla_params_add(out, "blocks.0.attn.block_v", 3, (size_t[]){2, 2, 3}, (mla_init){MLA_INIT_REFLECTION_PAIRS, 0.1},
                         false);
    (void)mla_params_add(out, "head.weight", 2, (size_t[]){5, 5}, normal, true);
    ck_assert(mla_params_allocate(out, NULL) == MLA_OK);
}

/* Values over the whole range, with -0, subnormals and (moments alone may have one) a NaN with a payload: bits must come
 * back, not numbers. */
static real *random_buffer(uint64_t stream, bool finite) {
    real *buffer = mla_params_buffer(&params);
    mla_rng rng = mla_rng_stream(9, MLA_RNG_TEST, 0, stream);
    ck_assert_ptr_nonnull(buffer);
    for (int i = 0; i < params.entries; i++)
        for (size_t j = 0; j < params.entry[i].count; j++) {
            uint32_t bits = j == 0 ? 0x7FC01234 : j == 1 ? 0x80000000 : j == 2 ? 1 : mla_rng_u32(&rng);
            if (finite && (bits & 0x7F800000) == 0x7F800000) bits ^= 0x00800000;
            memcpy(&buffer[params.entry[i].offset + j], &bits, sizeof bits);
        }
    return buffer;
}

static void build(void) {
    scratch_make();
    build_params(&params);
    mla_params_init(&params, 3);
    buffers = (mla_run_buffers){params.value, random_buffer(1, false), random_buffer(2, false), random_buffer(3, true)};
    mla_config_defaults(&config);
}

static void clear(void) {
    free(buffers.moment1);
    free(buffers.moment2);
    free(buffers.ema);
    mla_params_free(&params);
    scratch_remove();
}

static void save(const char *path) {
    mla_error error = {0};
    expect_ok(mla_checkpoint_save(path, &params, &buffers, &counters, &config, &classes, &error), error);
}

static mla_error refuse(const char *path) {
    mla_checkpoint checkpoint;
    mla_error error = {0};
    ck_assert_msg(mla_checkpoint_open(&checkpoint, path, NULL, 0, &error) == MLA_INVALID, "%s: accepted or another status",
                  path);
    ck_assert_ptr_null(checkpoint.file);
    expect_text(error.text, path);
    return error;
}

/* Four fresh buffers filled with a mark. */
static mla_run_buffers marked_buffers(void) {
    mla_run_buffers out = {mla_params_buffer(&params), mla_params_buffer(&params), mla_params_buffer(&params),
                           mla_params_buffer(&params)};
    real *const all[] = {out.value, out.moment1, out.moment2, out.ema};
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < params.entries; i++)
            for (size_t j = 0; j < params.entry[i].count; j++) all[b][params.entry[i].offset + j] = 77;
    return out;
}

static void free_buffers(mla_run_buffers *out) {
    free(out->value);
    free(out->moment1);
    free(out->moment2);
    free(out->ema);
}

static bool is_marked(const mla_run_buffers *out) {
    const real *const all[] = {out->value, out->moment1, out->moment2, out->ema};
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < params.entries; i++)
            for (size_t j = 0; j < params.entry[i].count; j++)
                if (all[b][params.entry[i].offset + j] != 77) return false;
    return true;
}

START_TEST(everything_comes_back_bit_for_bit) {
    mla_checkpoint checkpoint;
    mla_error error = {0};
    const char *path = in_scratch("a b.safetensors");
    save(path);
    expect_ok(mla_checkpoint_open(&checkpoint, path, NULL, 0, &error), error);
    ck_assert(checkpoint.has_ema && checkpoint.has_optimizer);
    ck_assert_mem_eq(&checkpoint.counters, &counters, sizeof counters);
    ck_assert_int_eq(checkpoint.classes.count, 5);
    for (int i = 0; i < 5; i++) ck_assert_str_eq(checkpoint.classes.names[i], class_names[i]);
    ck_assert_mem_eq(checkpoint.classes.mean, classes.mean, sizeof classes.mean);
    ck_assert_mem_eq(checkpoint.classes.std, classes.std, sizeof classes.std);
    ck_assert_int_eq(checkpoint.classes.size, 32);
    ck_assert_int_eq(checkpoint.config.model.classes, 5);
    ck_assert_int_eq(checkpoint.config.model.image, 32);
    char *stored = mla_config_text(&checkpoint.config), *given = mla_config_text(&config);
    ck_assert_str_eq(stored, given);
    free(stored);
    free(given);
    mla_run_buffers out = marked_buffers();
    expect_ok(mla_checkpoint_load(&checkpoint, &params, &out, &error), error);
    ck_assert_mem_eq(out.value, buffers.value, params.size * sizeof(real));
    ck_assert_mem_eq(out.moment1, buffers.moment1, params.size * sizeof(real));
    ck_assert_mem_eq(out.moment2, buffers.moment2, params.size * sizeof(real));
    ck_assert_mem_eq(out.ema, buffers.ema, params.size * sizeof(real));
    free_buffers(&out);
    mla_checkpoint_close(&checkpoint);
    mla_checkpoint_close(&checkpoint);
}
END_TEST

START_TEST(names_of_tensors) {
    mla_safetensors *file;
    mla_error error = {0};
    const char *path = in_scratch("c");
    save(path);
    expect_ok(mla_safetensors_open(&file, path, &error), error);
    ck_assert_uint_eq(mla_safetensors_count(file), 16);
    ck_assert_ptr_nonnull(mla_safetensors_find(file, "head.weight"));
    ck_assert_ptr_nonnull(mla_safetensors_find(file, "optim.exp_avg.head.weight"));
    ck_assert_ptr_nonnull(mla_safetensors_find(file, "optim.exp_avg_sq.head.weight"));
    ck_assert_ptr_nonnull(mla_safetensors_find(file, "ema.head.weight"));
    ck_assert_str_eq(mla_safetensors_metadata(file, "format"), "pt");
    ck_assert_str_eq(mla_safetensors_metadata(file, "mirrorla.checkpoint"), "1");
    mla_safetensors_close(file);
    config.optim.name = MLA_SGD;
    mla_run_buffers all = buffers;
    buffers.ema = NULL;
    save(path);
    buffers = all;
    expect_ok(mla_safetensors_open(&file, path, &error), error);
    ck_assert_uint_eq(mla_safetensors_count(file), 8);
    ck_assert_ptr_nonnull(mla_safetensors_find(file, "optim.momentum.head.weight"));
    mla_safetensors_close(file);
}
END_TEST

START_TEST(overrides_change_the_config) {
    mla_checkpoint checkpoint;
    mla_error error = {0};
    const char *path = in_scratch("c"), *set[] = {"train.epochs=99"}, *wrong[] = {"train.epoch=99"};
    save(path);
    expect_ok(mla_checkpoint_open(&checkpoint, path, set, 1, &error), error);
    ck_assert_int_eq(checkpoint.config.train.epochs, 99);
    mla_checkpoint_close(&checkpoint);
    ck_assert(mla_checkpoint_open(&checkpoint, path, wrong, 1, &error) == MLA_INVALID);
    expect_text(error.text, "train.epoch");
}
END_TEST

/* Any one byte changed, anywhere, is found; in a tensor, its name is told. */
START_TEST(damage_is_found) {
    size_t bytes;
    mla_error error = {0};
    mla_safetensors *file;
    const char *path = in_scratch("c");
    save(path);
    char *data = get_file(path, &bytes);
    expect_ok(mla_safetensors_open(&file, path, &error), error);
    size_t begin = bytes;
    for (size_t i = 0; i < mla_safetensors_count(file); i++) begin -= mla_safetensors_at(file, i)->bytes;
    size_t position = begin;
    for (size_t i = 0; i < mla_safetensors_count(file); i++) {
        const mla_file_tensor *tensor = mla_safetensors_at(file, i);
        size_t at = position + tensor->bytes / 2;
        char expected[128];
        data[at] ^= 0x10;
        put_file(in_scratch("damaged"), data, bytes);
        data[at] ^= 0x10;
        snprintf(expected, sizeof expected, "tensor \"%s\" does not have the CRC-32", tensor->name);
        error = refuse(in_scratch("damaged"));
        expect_text(error.text, expected);
        position += tensor->bytes;
    }
    mla_safetensors_close(file);
    for (size_t at = 0; at < begin; at++) {
        mla_checkpoint checkpoint;
        if (data[at] == ' ') continue; /* padding; a tab there is as good */
        data[at] ^= 1;
        put_file(in_scratch("damaged"), data, bytes);
        data[at] ^= 1;
        bool opened = mla_checkpoint_open(&checkpoint, in_scratch("damaged"), NULL, 0, &error) == MLA_OK;
        mla_run_buffers out = marked_buffers();
        /* what opens (a name of metadata nobody reads, a shape of the same size) must not load, or load the same */
        if (opened && mla_checkpoint_load(&checkpoint, &params, &out, &error) == MLA_OK)
            ck_assert_msg(memcmp(out.value, buffers.value, params.size * sizeof(real)) == 0, "byte %zu", at);
        else
            ck_assert(is_marked(&out));
        free_buffers(&out);
        if (opened) mla_checkpoint_close(&checkpoint);
    }
    for (size_t cut = 0; cut < bytes; cut += 97) {
        put_file(in_scratch("damaged"), data, cut);
        (void)refuse(in_scratch("damaged"));
    }
    free(data);
}
END_TEST

/* Opens `path` and loads into other parameters, which must fail without copying. */
static mla_error mismatch(const char *path, const mla_params *other) {
    mla_checkpoint checkpoint;
    mla_error error = {0};
    mla_run_buffers out = {.value = mla_params_buffer(other)};
    expect_ok(mla_checkpoint_open(&checkpoint, path, NULL, 0, &error), error);
    ck_assert(mla_checkpoint_load(&checkpoint, other, &out, &error) == MLA_INVALID);
    for (size_t i = 0; i < other->size; i++) ck_assert(out.value[i] == 0);
    free(out.value);
    mla_checkpoint_close(&checkpoint);
    expect_text(error.text, path);
    return error;
}

START_TEST(another_model_is_told_by_names) {
    const char *path = in_scratch("c");
    mla_params other = {0};
    mla_init zero = {MLA_INIT_CONSTANT, 0};
    save(path);
    (void)mla_params_add(&other, "blocks.0.attn.qkv.weight", 2, (size_t[]){5, 15}, zero, true);
    (void)mla_params_add(&other, "blocks.0.attn.qkv.bias", 1, (size_t[]){15}, zero, false);
    (void)mla_params_add(&other, "blocks.0.attn.cross_v", 1, (size_t[]){3}, zero, false);
    (void)mla_params_add(&other, "head.weight", 2, (size_t[]){5, 5}, zero, true);
    ck_assert(mla_params_allocate(&other, NULL) == MLA_OK);
    mla_error error = mismatch(path, &other);
    expect_text(error.text, "1 missing (blocks.0.attn.cross_v)");
    expect_text(error.text, "4 unexpected (blocks.0.attn.block_v, optim.exp_avg.blocks.0.attn.block_v");
    expect_text(error.text, "1 of another shape (blocks.0.attn.qkv.weight)");
    mla_params_free(&other);
}
END_TEST

START_TEST(another_optimizer_is_told) {
    mla_checkpoint checkpoint;
    mla_error error = {0};
    const char *path = in_scratch("c"), *set[] = {"optim.name=sgd"};
    save(path);
    expect_ok(mla_checkpoint_open(&checkpoint, path, set, 1, &error), error);
    mla_run_buffers out = marked_buffers();
    ck_assert(mla_checkpoint_load(&checkpoint, &params, &out, &error) == MLA_INVALID);
    expect_text(error.text, "4 missing (optim.momentum.blocks.0.attn.qkv.weight");
    ck_assert(is_marked(&out));
    free_buffers(&out);
    mla_checkpoint_close(&checkpoint);
}
END_TEST

/* Writes the tensors of a good checkpoint with changed metadata. */
static void rewrite(const char *from, const char *to, const char *key, const char *value) {
    static const char *const keys[] = {"mirrorla.checkpoint",
                                       "mirrorla.version",
                                       "config",
                                       "counters",
                                       "classes",
                                       "mean",
                                       "std",
                                       "size",
                                       "weight_hash",
                                       "crc32"};
    mla_file_pair pairs[10];
    mla_file_tensor tensors[16];
    mla_safetensors *file;
    mla_error error = {0};
    size_t count = 0;
    expect_ok(mla_safetensors_open(&file, from, &error), error);
    for (size_t i = 0; i < 10; i++) {
        const char *text = strcmp(keys[i], key) == 0 ? value : mla_safetensors_metadata(file, keys[i]);
        if (text) pairs[count++] = (mla_file_pair){keys[i], text};
    }
    for (size_t i = 0; i < 16; i++) tensors[i] = *mla_safetensors_at(file, i);
    expect_ok(mla_safetensors_write(to, tensors, 16, pairs, count, &error), error);
    mla_safetensors_close(file);
}

START_TEST(metadata_is_checked) {
    static const struct {
        const char *key, *value, *expected;
    } cases[] = {
        {"mirrorla.checkpoint", "2", "has checkpoint format \"2\", this program reads format 1"},
        {"config", NULL, "its metadata has no \"config\""},
        {"config", "model: {famly: vit}\n", "does not have the CRC-32"},
        {"crc32", NULL, "its metadata has no \"crc32\""},
        {"crc32", "{}", "does not have the CRC-32"},
        {"crc32", "[]", "\"crc32\" must be a JSON object"},
        {"crc32", "{", "\"crc32\" is not valid JSON"},
        {"counters", "{}", "the metadata does not have the CRC-32"},
        {"weight_hash", "0123456789abcdef", "the metadata does not have the CRC-32"},
        {"size", NULL, "the metadata does not have the CRC-32"},
    };
    save(in_scratch("c"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rewrite(in_scratch("c"), in_scratch("changed"), cases[i].key, cases[i].value);
        mla_error error = refuse(in_scratch("changed"));
        expect_text(error.text, cases[i].expected);
    }
}
END_TEST

START_TEST(foreign_weights_are_told) {
    mla_error error = {0};
    float one = 1;
    mla_file_tensor tensor = {"head.bias", MLA_F32, 1, {1}, &one, sizeof one, NULL};
    expect_ok(mla_safetensors_write(in_scratch("foreign"), &tensor, 1, NULL, 0, &error), error);
    error = refuse(in_scratch("foreign"));
    expect_text(error.text, "expected a checkpoint or weights exported by mirrorla");
    expect_text(error.text, "mirrorla import");
}
END_TEST

/* ---- exports */

static mla_status export(const char *path, const real *value, mla_error *error) {
    mla_checkpoint checkpoint;
    save(in_scratch("c"));
    expect_ok(mla_checkpoint_open(&checkpoint, in_scratch("c"), NULL, 0, error), *error);
    mla_status status =
        mla_export_safetensors(path, &params, value, &checkpoint, &(mla_export_options){.dtype = MLA_F32}, error);
    mla_checkpoint_close(&checkpoint);
    return status;
}

START_TEST(exported_weights_open) {
    mla_checkpoint checkpoint;
    mla_error error = {0};
    const char *path = in_scratch("weights.safetensors");
    expect_ok(export(path, buffers.ema, &error), error);
    expect_ok(mla_checkpoint_open(&checkpoint, path, NULL, 0, &error), error);
    ck_assert(!checkpoint.has_ema && !checkpoint.has_optimizer);
    ck_assert_uint_eq(mla_safetensors_count(checkpoint.file), 4);
    ck_assert_uint_eq(checkpoint.counters.step, 0);
    ck_assert_str_eq(checkpoint.classes.names[2], "鳥");
    ck_assert_str_eq(mla_safetensors_metadata(checkpoint.file, "format"), "pt");
    ck_assert_str_eq(mla_safetensors_metadata(checkpoint.file, "architecture"), mla_family_name(config.model.family));
    ck_assert_str_eq(mla_safetensors_metadata(checkpoint.file, "mean"), "[0.4914,0.4822,0.4465]");
    ck_assert_str_eq(mla_safetensors_metadata(checkpoint.file, "std"), "[0.247,0.3333333333333333,1.0]");
    ck_assert_str_eq(mla_safetensors_metadata(checkpoint.file, "best_test_accuracy"), "0.4312");
    ck_assert_str_eq(mla_safetensors_metadata(checkpoint.file, "best_test_epoch"), "1");
    ck_assert_ptr_null(mla_safetensors_metadata(checkpoint.file, "counters"));
    mla_run_buffers out = {.value = mla_params_buffer(&params)}, all = marked_buffers();
    expect_ok(mla_checkpoint_load(&checkpoint, &params, &out, &error), error);
    ck_assert_mem_eq(out.value, buffers.ema, params.size * sizeof(real));
    ck_assert(mla_checkpoint_load(&checkpoint, &params, &all, &error) == MLA_INVALID);
    expect_text(error.text, "12 missing (optim.exp_avg.blocks.0.attn.qkv.weight");
    ck_assert(is_marked(&all));
    free_buffers(&all);
    free(out.value);
    mla_checkpoint_close(&checkpoint);
}
END_TEST

START_TEST(changed_export_is_told_by_its_hash) {
    size_t bytes;
    mla_checkpoint checkpoint;
    mla_error error = {0};
    const char *path = in_scratch("weights.safetensors");
    expect_ok(export(path, buffers.value, &error), error);
    char *data = get_file(path, &bytes);
    data[bytes - 1] ^= 1;
    put_file(path, data, bytes);
    free(data);
    expect_ok(mla_checkpoint_open(&checkpoint, path, NULL, 0, &error), error);
    mla_run_buffers out = {.value = mla_params_buffer(&params)};
    ck_assert(mla_checkpoint_load(&checkpoint, &params, &out, &error) == MLA_INVALID);
    expect_text(error.text, "the file was changed or is damaged");
    ck_assert(out.value[0] == 0);
    free(out.value);
    mla_checkpoint_close(&checkpoint);
}
END_TEST

START_TEST(class_names_must_be_utf8) {
    const char *const names[] = {"ok", "\xff\xfe"};
    mla_class_info wrong = classes;
    mla_error error = {0};
    wrong.names = names;
    wrong.count = 2;
    ck_assert(mla_checkpoint_save(in_scratch("c"), &params, &buffers, &counters, &config, &wrong, &error) == MLA_INVALID);
    expect_text(error.text, "the name of class 1, \"\\xff\\xfe\", is not valid UTF-8");
    ck_assert(!exists(in_scratch("c")));
}
END_TEST

/* Other tools, and older files, hold CRC values of exactly these bytes. */
START_TEST(crc_covers_the_metadata) {
    static const char *const keys[] = {"mirrorla.version", "config", "counters", "classes", "mean", "std", "size",
                                       "weight_hash"};
    mla_safetensors *file;
    mla_error error = {0};
    char *all = NULL, expected[64];
    size_t bytes = 0;
    save(in_scratch("c"));
    expect_ok(mla_safetensors_open(&file, in_scratch("c"), &error), error);
    FILE *stream = open_memstream(&all, &bytes);
    ck_assert_ptr_nonnull(stream);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *text = mla_safetensors_metadata(file, keys[i]);
        ck_assert_msg(text != NULL, "%s", keys[i]);
        fwrite(text, 1, strlen(text) + 1, stream);
    }
    ck_assert_int_eq(fclose(stream), 0);
    snprintf(expected, sizeof expected, "\"__metadata__\":\"%08" PRIx32 "\"", mla_tensor_crc(all, bytes));
    expect_text(mla_safetensors_metadata(file, "crc32"), expected);
    free(all);
    mla_safetensors_close(file);
}
END_TEST

/* ---- text */

START_TEST(utf8_is_told) {
    static const char *const good[] = {"", "a", "\xc3\xa4", "\xe9\xb3\xa5", "\xf0\x9f\x90\xa6", "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\xff",         "caf\xe9",
                                      "\x80",         "\xc0\xaf",
                                      "\xe0\x80\xaf", "\xed\xa0\x80",
                                      "\xe9\xb3",     "\xf4\x90\x80\x80",
                                      "\xc3(",        "a\xf8\x88\x80\x80\x80"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) ck_assert_msg(mla_is_utf8(good[i]), "text %zu", i);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) ck_assert_msg(!mla_is_utf8(bad[i]), "text %zu", i);
    char out[12];
    mla_text_escape(out, sizeof out, "\xc3\xa4\xe4\n!");
    ck_assert_str_eq(out, "\xc3\xa4\\xe4\\x0a!");
    mla_text_escape(out, sizeof out, "0123456789\xc3\xa4");
    ck_assert_str_eq(out, "0123456789"); /* no half characters */
}
END_TEST

/* ---- numbers */

START_TEST(numbers_survive) {
    static const double values[] = {0, -0.0, 1, -1, 0.1, 1.0 / 3, 3, 1e22, 1e-5, 5e-324, 1.7976931348623157e308, 123456789};
    const char *locales[] = {"C", "de_DE.UTF-8", "ps_AF.UTF-8"};
    for (size_t l = 0; l < 3; l++) {
        if (!setlocale(LC_ALL, locales[l])) continue;
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            char hex[MLA_NUMBER_BYTES], text[MLA_NUMBER_BYTES];
            double back;
            mla_number_hex(hex, values[i]);
            ck_assert(mla_number_read(&back, hex) && memcmp(&back, &values[i], 8) == 0);
            mla_number_text(text, values[i]);
            ck_assert_msg(strpbrk(text, ".e") && !strchr(text, ','), "%s", text);
        }
    }
    setlocale(LC_ALL, "C");
    char text[MLA_NUMBER_BYTES];
    double back;
    mla_number_text(text, 0.1);
    ck_assert_str_eq(text, "0.1");
    mla_number_text(text, 3);
    ck_assert_str_eq(text, "3.0");
    mla_number_text(text, (double)NAN);
    ck_assert_str_eq(text, "null");
    mla_number_hex(text, (double)-INFINITY);
    ck_assert(mla_number_read(&back, text) && back < 0 && isinf(back));
    ck_assert(!mla_number_read(&back, "") && !mla_number_read(&back, " 1") && !mla_number_read(&back, "1x"));
}
END_TEST

/* ---- the newest one */

static void save_step(uint64_t step) {
    char *path = mla_checkpoint_path(in_scratch("run"), step);
    save(path);
    free(path);
}

START_TEST(newest_is_by_number) {
    mla_error error = {0};
    char *path;
    ck_assert(mla_checkpoint_newest(&path, in_scratch("run"), &error) == MLA_INVALID);
    expect_text(error.text, "run: nothing to resume from: expected");
    expect_text(error.text, "checkpoints/step-");
    ck_assert_ptr_null(path);
    expect_ok(mla_folders_make(in_scratch("run/checkpoints"), NULL, &error), error);
    ck_assert(mla_checkpoint_newest(&path, in_scratch("run"), &error) == MLA_INVALID);
    save_step(999);
    save_step(99999999);
    save_step(100000000); /* one digit more: sorts before the others as text */
    save(in_scratch("run/checkpoints/best.safetensors"));
    put_file(in_scratch("run/checkpoints/step-7.safetensors"), "x", 1);
    put_file(in_scratch("run/checkpoints/step-999999999.safetensors.part"), "x", 1);
    expect_ok(mla_checkpoint_newest(&path, in_scratch("run"), &error), error);
    expect_text(path, "run/checkpoints/step-100000000.safetensors");
    put_file(path, "cut", 3);
    free(path);
    expect_ok(mla_checkpoint_newest(&path, in_scratch("run"), &error), error);
    expect_text(path, "step-99999999.safetensors");
    put_file(path, "", 0);
    free(path);
    put_file(in_scratch("run/checkpoints/step-00000999.safetensors"), "version https://git-lfs", 23);
    ck_assert(mla_checkpoint_newest(&path, in_scratch("run"), &error) == MLA_INVALID);
    expect_text(error.text, "none of the 3 files");
}
END_TEST

static _Noreturn void save_forever(void) {
    mla_error error = {0};
    for (uint64_t step = 0;; step++) {
        char *path = mla_checkpoint_path(in_scratch("run"), step % 3);
        if (!path || mla_checkpoint_save(path, &params, &buffers, &counters, &config, &classes, &error) != MLA_OK) _exit(1);
        free(path);
    }
}

START_TEST(a_kill_at_any_moment_leaves_a_good_one) {
    mla_error error = {0};
    mla_rng rng = mla_rng_stream(4, MLA_RNG_TEST, 0, 0);
    expect_ok(mla_folders_make(in_scratch("run/checkpoints"), NULL, &error), error);
    save_step(0);
    for (int kills = 0; kills < 50; kills++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) save_forever();
        nanosleep(&(struct timespec){0, 200000 + (long)mla_rng_below(&rng, 20000000)}, NULL);
        kill(child, SIGKILL);
        int how;
        ck_assert_int_eq(waitpid(child, &how, 0), child);
        ck_assert(WIFSIGNALED(how));
        uint64_t *steps;
        size_t count;
        expect_ok(mla_checkpoint_list(&steps, &count, in_scratch("run"), &error), error);
        ck_assert_uint_ge(count, 1);
        for (size_t i = 0; i < count; i++) {
            mla_checkpoint checkpoint;
            char *path = mla_checkpoint_path(in_scratch("run"), steps[i]);
            expect_ok(mla_checkpoint_open(&checkpoint, path, NULL, 0, &error), error);
            mla_checkpoint_close(&checkpoint);
            free(path);
        }
        free(steps);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("checkpoint");
    TCase *tests = tcase_create("checkpoint");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, build, clear);
    tcase_add_test(tests, everything_comes_back_bit_for_bit);
    tcase_add_test(tests, names_of_tensors);
    tcase_add_test(tests, overrides_change_the_config);
    tcase_add_test(tests, damage_is_found);
    tcase_add_test(tests, another_model_is_told_by_names);
    tcase_add_test(tests, another_optimizer_is_told);
    tcase_add_test(tests, metadata_is_checked);
    tcase_add_test(tests, foreign_weights_are_told);
    tcase_add_test(tests, exported_weights_open);
    tcase_add_test(tests, changed_export_is_told_by_its_hash);
    tcase_add_test(tests, class_names_must_be_utf8);
    tcase_add_test(tests, crc_covers_the_metadata);
    tcase_add_test(tests, utf8_is_told);
    tcase_add_test(tests, numbers_survive);
    tcase_add_test(tests, newest_is_by_number);
    tcase_add_test(tests, a_kill_at_any_moment_leaves_a_good_one);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
