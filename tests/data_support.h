/* What the tests of data sets share: small sets written into the scratch folder, and refusals with their words. */
#ifndef MLA_TESTS_DATA_SUPPORT_H
#define MLA_TESTS_DATA_SUPPORT_H

#include <stdarg.h>

#include "tests/run_suite.h"
#include "core/rng.h"
#include "tests/scratch.h"
#include "train/dataset.h"
#include "train/file.h"

enum { RECORD10 = 3073, RECORD100 = 3074, DATA_PATH_BYTES = 1024 };

/* A path below the scratch folder whose folders are made; static storage, four at a time. */
static inline const char *data_path(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline const char *data_path(const char *format, ...) {
    char name[DATA_PATH_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    const char *path = in_scratch(name), *slash = strrchr(path, '/');
    char folder[DATA_PATH_BYTES];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    ck_assert(mla_folders_make(folder, NULL, NULL) == MLA_OK);
    return path;
}

static inline void make_folder(const char *name) { data_path("%s/.", name); }

static inline mla_data_config data_config(mla_data_set set, const char *name) {
    mla_data_config config = {.set = set,
                              .size = 32,
                              .mean_auto = true,
                              .std_auto = true,
                              .subset = 1.0,
                              .crop_pct = 0.875,
                              .interpolation = MLA_BICUBIC,
                              .twins_grid = 4,
                              .twins_train = 500,
                              .twins_test = 200};
    snprintf(config.path, sizeof config.path, "%s", name ? in_scratch(name) : "auto");
    return config;
}

static inline mla_dataset *open_data(const mla_data_config *config, mla_split split, uint64_t seed) {
    mla_dataset *set = NULL;
    mla_error error = {0};
    expect_ok(mla_dataset_open(&set, config, split, seed, &error), error);
    return set;
}

/* The set is refused with each of the words (up to a NULL) in the message. */
static inline void refuse_data(const mla_data_config *config, mla_split split, ...) __attribute__((sentinel));
static inline void refuse_data(const mla_data_config *config, mla_split split, ...) {
    mla_dataset *set = (mla_dataset *)(uintptr_t)1;
    mla_error error = {0};
    mla_status status = mla_dataset_open(&set, config, split, 0, &error);
    ck_assert_msg(status != MLA_OK, "opened: %s", config->path);
    ck_assert_ptr_null(set);
    va_list words;
    va_start(words, split);
    for (const char *word; (word = va_arg(words, const char *));) expect_text(error.text, word);
    va_end(words);
}

/* Bytes that differ from record to record: image `id` has label id mod classes. */
static inline void fill_record(uint8_t *record, int label_bytes, int id, int classes) {
    mla_rng rng = mla_rng_stream(1, MLA_RNG_TEST, 0, (uint64_t)id);
    if (label_bytes == 2) record[0] = (uint8_t)(id % 20);
    record[label_bytes - 1] = (uint8_t)(id % classes);
    for (int i = 0; i < 3072; i++) record[label_bytes + i] = (uint8_t)mla_rng_u32(&rng);
}

/* A file of `count` records with ids from `first`. */
static inline void put_records(const char *path, int label_bytes, int classes, int first, int count) {
    size_t record = (size_t)label_bytes + 3072;
    uint8_t *bytes = malloc(record * (size_t)count + 1);
    for (int i = 0; i < count; i++) fill_record(bytes + record * (size_t)i, label_bytes, first + i, classes);
    put_file(path, bytes, record * (size_t)count);
    free(bytes);
}

/* CIFAR-10 in the folder `name`: five batches of `each` records, ids from 0, and `each` of test, ids from 5 each. */
static inline void put_cifar10(const char *name, int each) {
    for (int i = 0; i < 5; i++) put_records(data_path("%s/data_batch_%d.bin", name, i + 1), 1, 10, i * each, each);
    put_records(data_path("%s/test_batch.bin", name), 1, 10, 5 * each, each);
}

static inline void put_cifar100(const char *name, int train, int test) {
    put_records(data_path("%s/train.bin", name), 2, 100, 0, train);
    put_records(data_path("%s/test.bin", name), 2, 100, train, test);
}

/* A file of tests/data of the source folder. */
static inline char *get_fixture(const char *name, size_t *bytes) {
    const char *source = getenv("MLA_SOURCE_DIR");
    char path[DATA_PATH_BYTES];
    snprintf(path, sizeof path, "%s/tests/data/%s", source ? source : ".", name);
    return get_file(path, bytes);
}

/* A fixture, or its first `share`, under another name. */
static inline void put_fixture(const char *path, const char *name, double share) {
    size_t bytes = 0;
    char *data = get_fixture(name, &bytes);
    put_file(path, data, (size_t)((double)bytes * share));
    free(data);
}

/* A group whose tests each have a scratch folder. */
static inline void add_group(Suite *suite, const char *name, const TTest *const *tests, size_t count) {
    TCase *group = tcase_create(name);
    tcase_add_checked_fixture(group, scratch_make, scratch_remove);
    tcase_set_timeout(group, 120);
    for (size_t i = 0; i < count; i++) tcase_add_test(group, tests[i]);
    suite_add_tcase(suite, group);
}

#define ADD_GROUP(suite, name, ...)                                                                                         \
    add_group(suite, name, (const TTest *const[]){__VA_ARGS__},                                                             \
              sizeof((const TTest *const[]){__VA_ARGS__}) / sizeof(const TTest *))

#endif
