/* Data sets that are bytes already (CIFAR, twins), the front of all of them, augmentation and order. */
#include <math.h>
#include <zlib.h>

#include "tests/data_support.h"
#include "train/cli.h"

enum { PIXELS = 3072 };

/* ---- CIFAR ---- */

static void expect_record(const mla_dataset *set, size_t index, int id, int label_bytes, int classes) {
    uint8_t record[RECORD100], pixels[PIXELS];
    int label = -1;
    mla_error error = {0};
    fill_record(record, label_bytes, id, classes);
    expect_ok(mla_dataset_read(set, index, 3, pixels, &label, &error), error);
    ck_assert_int_eq(label, id % classes);
    ck_assert_mem_eq(pixels, record + label_bytes, PIXELS);
}

static void expect_cifar10(const char *name, int each) {
    mla_data_config config = data_config(MLA_SET_CIFAR10, name);
    mla_dataset *train = open_data(&config, MLA_SPLIT_TRAIN, 0), *test = open_data(&config, MLA_SPLIT_TEST, 0);
    const mla_dataset_info *info = mla_dataset_get_info(train);
    ck_assert_uint_eq(info->count, 5 * (size_t)each);
    ck_assert_uint_eq(mla_dataset_get_info(test)->count, (size_t)each);
    ck_assert_int_eq(info->classes, 10);
    ck_assert_int_eq(info->size, 32);
    ck_assert_str_eq(info->names[9], "truck");
    ck_assert_double_eq(info->mean[0], 0.4914);
    ck_assert_double_eq(info->std[2], 0.2616);
    for (int i = 0; i < 5 * each; i++) expect_record(train, (size_t)i, i, 1, 10);
    for (int i = 0; i < each; i++) expect_record(test, (size_t)i, 5 * each + i, 1, 10);
    mla_dataset_close(train);
    mla_dataset_close(test);
}

START_TEST(cifar10_folder_and_parent) {
    put_cifar10("parent/cifar-10-batches-bin", 3);
    expect_cifar10("parent/cifar-10-batches-bin", 3);
    expect_cifar10("parent/cifar-10-batches-bin/", 3);
    expect_cifar10("parent", 3);
}
END_TEST

/* Batches need not be of one size, and names come from the folder. */
START_TEST(cifar10_uneven_and_named) {
    put_cifar10("set", 2);
    put_records(in_scratch("set/data_batch_2.bin"), 1, 10, 2, 1);
    put_file(in_scratch("set/batches.meta.txt"), "a\nb\nc\nd\ne\nf\ng\nh\ni\nzebra\n\n", 25);
    mla_data_config config = data_config(MLA_SET_CIFAR10, "set");
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    ck_assert_uint_eq(mla_dataset_get_info(set)->count, 9);
    ck_assert_str_eq(mla_dataset_get_info(set)->names[9], "zebra");
    expect_record(set, 2, 2, 1, 10);
    expect_record(set, 3, 4, 1, 10);
    expect_record(set, 8, 9, 1, 10);
    mla_dataset_close(set);
}
END_TEST

START_TEST(cifar100_fine_labels) {
    put_cifar100("set", 130, 5);
    mla_data_config config = data_config(MLA_SET_CIFAR100, "set");
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    ck_assert_int_eq(mla_dataset_get_info(set)->classes, 100);
    ck_assert_str_eq(mla_dataset_get_info(set)->names[99], "worm");
    for (int i = 0; i < 130; i++) expect_record(set, (size_t)i, i, 2, 100);
    mla_dataset_close(set);
}
END_TEST

START_TEST(cifar_is_found) {
    put_cifar10("place/cifar-10-batches-bin", 1);
    mla_data_config config = data_config(MLA_SET_CIFAR10, NULL), other = data_config(MLA_SET_CIFAR100, NULL);
    setenv("HOME", in_scratch("home"), 1);
    unsetenv("XDG_CACHE_HOME");
    setenv("MLA_DATA", in_scratch("place"), 1);
    ck_assert_int_eq(chdir(scratch), 0);
    mla_dataset_close(open_data(&config, MLA_SPLIT_TEST, 0));
    refuse_data(&other, MLA_SPLIT_TEST, "CIFAR-100 not found", "cifar-100-binary.tar.gz", "/place, ./data, ., ",
                "/home/.cache/mirrorla", "/home/data", "$MLA_DATA", NULL);
    unsetenv("MLA_DATA");
    refuse_data(&config, MLA_SPLIT_TEST, "CIFAR-10 not found", NULL);
    put_cifar10("home/.cache/mirrorla/cifar-10-batches-bin", 1);
    mla_dataset_close(open_data(&config, MLA_SPLIT_TEST, 0));
}
END_TEST

START_TEST(cifar_in_another_size) {
    put_cifar10("set", 2);
    uint8_t pixels[3 * 48 * 48];
    int label = -1;
    mla_data_config config = data_config(MLA_SET_CIFAR10, "set");
    config.size = 48;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    ck_assert_int_eq(mla_dataset_get_info(set)->size, 48);
    ck_assert(mla_dataset_read(set, 7, 0, pixels, &label, NULL) == MLA_OK);
    ck_assert_int_eq(label, 7);
    mla_dataset_close(set);
}
END_TEST

/* ---- CIFAR archives ---- */

typedef struct packed {
    const char *name;
    const void *bytes;
    size_t count;
} packed;

static void put_tar_entry(gzFile out, const packed *entry) {
    uint8_t header[512] = {0};
    static const uint8_t filling[512];
    unsigned sum = 0;
    snprintf((char *)header, 100, "%s", entry->name);
    snprintf((char *)header + 124, 12, "%011o", (unsigned)entry->count);
    memset(header + 148, ' ', 8);
    header[156] = entry->bytes ? '0' : '5';
    memcpy(header + 257, "ustar", 5); /* then a zero and the version */
    memcpy(header + 263, "00", 2);
    for (int i = 0; i < 512; i++) sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
    gzwrite(out, header, 512);
    if (entry->count) gzwrite(out, entry->bytes, (unsigned)entry->count);
    gzwrite(out, filling, (unsigned)(-entry->count & 511));
}

static void put_tar(const char *path, const packed *entries, size_t count) {
    static const uint8_t end[1024];
    gzFile out = gzopen(path, "wb1");
    for (size_t i = 0; i < count; i++) put_tar_entry(out, &entries[i]);
    gzwrite(out, end, sizeof end);
    ck_assert_int_eq(gzclose(out), Z_OK);
}

/* The six files of two records each, the last `without` of them missing, under `folder` in the archive. */
static void put_archive(const char *path, const char *folder, size_t without) {
    static const char *const files[] = {"data_batch_3.bin", "test_batch.bin",   "data_batch_1.bin",
                                        "data_batch_2.bin", "data_batch_4.bin", "data_batch_5.bin"};
    static const int first[] = {4, 10, 0, 2, 6, 8};
    static uint8_t bytes[6][2 * RECORD10];
    static char names[7][64];
    packed entries[7] = {{names[6], NULL, 0}};
    snprintf(names[6], sizeof names[6], "%s/", folder);
    for (int i = 0; i < 6; i++) {
        snprintf(names[i], sizeof names[i], "%s/%s", folder, files[i]);
        fill_record(bytes[i], 1, first[i], 10);
        fill_record(bytes[i] + RECORD10, 1, first[i] + 1, 10);
        entries[i + 1] = (packed){names[i], bytes[i], 2 * RECORD10};
    }
    put_tar(path, entries, 7 - without);
}

START_TEST(cifar10_archive) {
    put_archive(data_path("place/cifar-10-binary.tar.gz"), "cifar-10-batches-bin", 0);
    expect_cifar10("place/cifar-10-binary.tar.gz", 2);
    expect_cifar10("place", 2);
}
END_TEST

START_TEST(refuses_archives) {
    const char *path = data_path("a.tar.gz");
    mla_data_config config = data_config(MLA_SET_CIFAR10, "a.tar.gz"), other = data_config(MLA_SET_CIFAR100, "a.tar.gz");
    put_archive(path, "cifar-10-batches-bin", 0);
    refuse_data(&other, MLA_SPLIT_TRAIN, "this is CIFAR-10", "CIFAR-100", NULL);
    size_t bytes = 0;
    char *data = get_file(path, &bytes);
    put_file(path, data, bytes * 6 / 10);
    refuse_data(&config, MLA_SPLIT_TRAIN, "a.tar.gz", "cut off", "data_batch_", NULL);
    data[bytes / 2] = (char)(data[bytes / 2] ^ 0x10);
    put_file(path, data, bytes);
    mla_dataset *set = NULL; /* what gzip notices depends on the byte; the checksum always does at the end */
    ck_assert(mla_dataset_open(&set, &config, MLA_SPLIT_TRAIN, 0, NULL) != MLA_OK);
    free(data);
    put_archive(path, "cifar-10-batches-bin", 1);
    refuse_data(&config, MLA_SPLIT_TRAIN, "data_batch_5.bin is missing", NULL);
    put_file(path, "some text that is no archive", 28);
    refuse_data(&config, MLA_SPLIT_TRAIN, "a.tar.gz", "cut off", NULL);
    char text[2000];
    memset(text, 'x', sizeof text);
    put_file(path, text, sizeof text);
    refuse_data(&config, MLA_SPLIT_TRAIN, "not a tar archive", NULL);
    const packed python[] = {{"cifar-10-batches-py/data_batch_1", "x", 1}, {"cifar-10-batches-py/test_batch", "x", 1}};
    put_tar(path, python, 2);
    refuse_data(&config, MLA_SPLIT_TRAIN, "python version", "cifar-10-binary.tar.gz", NULL);
    const packed odd[] = {{"cifar-10-batches-bin/test_batch.bin", text, 100}};
    put_tar(path, odd, 1);
    refuse_data(&config, MLA_SPLIT_TEST, "test_batch.bin has 100 bytes", "3073", NULL);
    put_file(path, "", 0);
    refuse_data(&config, MLA_SPLIT_TEST, "a.tar.gz", NULL);
}
END_TEST

/* ---- CIFAR refusals ---- */

static void change_byte(const char *path, size_t at, uint8_t value) {
    size_t bytes = 0;
    char *data = get_file(path, &bytes);
    data[at] = (char)value;
    put_file(path, data, bytes);
    free(data);
}

START_TEST(refuses_cifar_places) {
    mla_data_config config = data_config(MLA_SET_CIFAR10, "set");
    refuse_data(&config, MLA_SPLIT_TRAIN, "/set", "No such file", NULL);
    make_folder("set");
    refuse_data(&config, MLA_SPLIT_TRAIN, "no CIFAR-10 here", "cifar-10-batches-bin", "cifar-10-binary.tar.gz", NULL);
    put_cifar100("set", 2, 2);
    refuse_data(&config, MLA_SPLIT_TRAIN, "this is CIFAR-100", "data.set", NULL);
    put_file(data_path("py/data_batch_1"), "x", 1);
    put_file(data_path("py/test_batch"), "x", 1);
    put_file(data_path("py/batches.meta"), "x", 1);
    mla_data_config python = data_config(MLA_SET_CIFAR10, "py");
    refuse_data(&python, MLA_SPLIT_TRAIN, "python version", "download cifar-10-binary.tar.gz", NULL);
    make_folder("up/cifar-10-batches-py");
    mla_data_config parent = data_config(MLA_SET_CIFAR10, "up");
    refuse_data(&parent, MLA_SPLIT_TRAIN, "python version", NULL);
    put_cifar10("ten", 1);
    mla_data_config other = data_config(MLA_SET_CIFAR100, "ten");
    refuse_data(&other, MLA_SPLIT_TEST, "this is CIFAR-10,", NULL);
}
END_TEST

START_TEST(refuses_cifar_files) {
    mla_data_config config = data_config(MLA_SET_CIFAR10, "set"), hundred = data_config(MLA_SET_CIFAR100, "hundred");
    put_cifar10("set", 3);
    put_cifar100("hundred", 3, 3);
    ck_assert_int_eq(truncate(in_scratch("set/data_batch_3.bin"), 3 * RECORD10 - 1), 0);
    refuse_data(&config, MLA_SPLIT_TRAIN, "data_batch_3.bin has 9218 bytes", "multiple of 3073", "cut off", NULL);
    put_file(in_scratch("set/data_batch_3.bin"), "", 0);
    refuse_data(&config, MLA_SPLIT_TRAIN, "data_batch_3.bin is empty", NULL);
    put_records(in_scratch("set/data_batch_3.bin"), 2, 100, 0, 3);
    refuse_data(&config, MLA_SPLIT_TRAIN, "data_batch_3.bin has 9222 bytes", "the size fits CIFAR-100", NULL);
    ck_assert_int_eq(remove(in_scratch("set/data_batch_3.bin")), 0);
    refuse_data(&config, MLA_SPLIT_TRAIN, "data_batch_3.bin is missing", NULL);
    mla_dataset_close(open_data(&config, MLA_SPLIT_TEST, 0));
    make_folder("set/data_batch_3.bin");
    refuse_data(&config, MLA_SPLIT_TRAIN, "data_batch_3.bin", "not a regular file", NULL);
    put_cifar10("set2", 3);
    change_byte(in_scratch("set2/data_batch_2.bin"), RECORD10, 200);
    mla_data_config second = data_config(MLA_SET_CIFAR10, "set2");
    refuse_data(&second, MLA_SPLIT_TRAIN, "data_batch_2.bin: record 1 of 3: label 200, expected 0 to 9", NULL);
    put_file(in_scratch("set2/batches.meta.txt"), "a\nb\n", 4);
    refuse_data(&second, MLA_SPLIT_TEST, "batches.meta.txt has 2 class names, expected 10", NULL);
    change_byte(in_scratch("hundred/train.bin"), 2 * RECORD100 + 1, 100);
    refuse_data(&hundred, MLA_SPLIT_TRAIN, "train.bin: record 2 of 3: label 100, expected 0 to 99", NULL);
    change_byte(in_scratch("hundred/test.bin"), 0, 20);
    refuse_data(&hundred, MLA_SPLIT_TEST, "test.bin: record 0 of 3: coarse label 20, expected 0 to 19", NULL);
}
END_TEST

/* ---- subset, classes ---- */

/* Which of the 200 images a subset keeps: image i has label i mod 10. */
static void kept_images(uint8_t kept[200], double share, uint64_t seed) {
    uint8_t pixels[PIXELS], record[RECORD10];
    int per_class[10] = {0}, label = -1;
    mla_data_config config = data_config(MLA_SET_CIFAR10, "set");
    config.subset = share;
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, seed);
    memset(kept, 0, 200);
    for (size_t i = 0; i < mla_dataset_get_info(set)->count; i++) {
        ck_assert(mla_dataset_read(set, i, 0, pixels, &label, NULL) == MLA_OK);
        per_class[label]++;
        for (int id = label; id < 200; id += 10) {
            fill_record(record, 1, id, 10);
            kept[id] |= memcmp(record + 1, pixels, PIXELS) == 0;
        }
    }
    int expected = (int)fmax(1, 20 * share + 0.5);
    for (int c = 0; c < 10; c++) ck_assert_int_eq(per_class[c], expected);
    mla_dataset_close(set);
}

START_TEST(subset_is_stratified_and_nested) {
    uint8_t small[200], large[200], again[200], other[200];
    put_cifar10("set", 40);
    kept_images(small, 0.1, 7);
    kept_images(large, 0.5, 7);
    kept_images(again, 0.1, 7);
    kept_images(other, 0.1, 8);
    ck_assert_mem_eq(small, again, sizeof small);
    ck_assert_mem_ne(small, other, sizeof small);
    for (int i = 0; i < 200; i++) ck_assert_int_le(small[i], large[i]);
    kept_images(small, 0.001, 7);
    mla_data_config config = data_config(MLA_SET_CIFAR10, "set");
    config.subset = 0.1;
    mla_dataset *test = open_data(&config, MLA_SPLIT_TEST, 0);
    ck_assert_uint_eq(mla_dataset_get_info(test)->count, 40);
    mla_dataset_close(test);
    config.subset = 0.0;
    refuse_data(&config, MLA_SPLIT_TRAIN, "data.subset is 0", NULL);
}
END_TEST

START_TEST(classes_are_mapped_by_name) {
    static const char *const names[] = {"truck", "extra", "ship", "horse",      "frog",    "dog",
                                        "deer",  "cat",   "bird", "automobile", "airplane"};
    put_cifar10("set", 2);
    mla_error error = {0};
    mla_data_config config = data_config(MLA_SET_CIFAR10, "set");
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 0);
    ck_assert(mla_dataset_map_classes(set, names, 10, &error) == MLA_INVALID);
    expect_text(error.text, "'airplane' is not among the 10 classes");
    /* the second mapping, to the reverse order, goes by the names that the first one left */
    static const char *reversed[11];
    for (int i = 0; i < 11; i++) reversed[i] = names[10 - i];
    for (int pass = 0; pass < 2; pass++) {
        expect_ok(mla_dataset_map_classes(set, pass ? reversed : names, 11, &error), error);
        ck_assert_int_eq(mla_dataset_get_info(set)->classes, 11);
        for (size_t i = 0; i < 10; i++) {
            uint8_t pixels[PIXELS];
            int label = -1, mapped = i == 9 ? 0 : 10 - (int)i;
            ck_assert(mla_dataset_read(set, i, 0, pixels, &label, NULL) == MLA_OK);
            ck_assert_int_eq(label, pass ? 10 - mapped : mapped);
        }
    }
    mla_dataset_close(set);
}
END_TEST

START_TEST(shuffle_is_a_permutation) {
    enum { N = 1000 };
    uint32_t a[N], b[N], seen[N] = {0};
    int fixed = 0;
    mla_shuffle(a, N, 1, 0);
    mla_shuffle(b, N, 1, 0);
    ck_assert_mem_eq(a, b, sizeof a);
    for (uint32_t i = 0; i < N; i++) {
        seen[a[i]]++;
        fixed += a[i] == i;
    }
    for (int i = 0; i < N; i++) ck_assert_uint_eq(seen[i], 1);
    ck_assert_int_lt(fixed, 10);
    mla_shuffle(b, N, 1, 1);
    ck_assert_mem_ne(a, b, sizeof a);
    mla_shuffle(b, N, 2, 0);
    ck_assert_mem_ne(a, b, sizeof a);
    mla_shuffle(b, 1, 0, 0);
    ck_assert_uint_eq(b[0], 0);
}
END_TEST

/* ---- augmentation ---- */

static const double mean[3] = {0.5, 0.25, 0.125}, deviation[3] = {0.25, 0.5, 2.0};

/* Finds the crop and flip that give `out` from `pixels`: (top, left, flip) or -1. */
static int find_placement(const real *out, const uint8_t *pixels, int size, int padding) {
    for (int code = 0; code < 2 * (2 * padding + 1) * (2 * padding + 1); code++) {
        int flip = code % 2, left = code / 2 % (2 * padding + 1) - padding, top = code / 2 / (2 * padding + 1) - padding;
        bool same = true;
        for (int i = 0; i < 3 * size * size && same; i++) {
            int c = i / (size * size), y = i / size % size + top, x = i % size;
            x = (flip ? size - 1 - x : x) + left;
            bool inside = y >= 0 && y < size && x >= 0 && x < size;
            double value = inside ? pixels[c * size * size + y * size + x] / 255.0 : 0.0;
            same = fabs((double)out[i] - (value - mean[c]) / deviation[c]) < 1e-6;
        }
        if (same) return code;
    }
    return -1;
}

START_TEST(augmentation_is_a_padded_crop_and_a_flip) {
    enum { SIZE = 8, PADDING = 2, DRAWS = 600, PLACES = 2 * 25 };
    uint8_t pixels[3 * SIZE * SIZE];
    real out[3 * SIZE * SIZE];
    int counts[PLACES] = {0};
    mla_augment_config augment = {.crop_padding = PADDING, .flip = 0.5};
    for (int i = 0; i < 3 * SIZE * SIZE; i++) pixels[i] = (uint8_t)(1 + i);
    for (uint64_t sample = 0; sample < DRAWS; sample++) {
        mla_image_prepare(out, pixels, SIZE, mean, deviation, &augment, 1, 0, sample);
        int code = find_placement(out, pixels, SIZE, PADDING);
        ck_assert_int_ge(code, 0);
        counts[code]++;
    }
    for (int i = 0; i < PLACES; i++)
        ck_assert_msg(counts[i] > 0 && counts[i] < 40, "placement %d came %d times", i, counts[i]);
    mla_image_prepare(out, pixels, SIZE, mean, deviation, NULL, 1, 0, 0);
    ck_assert_int_eq(find_placement(out, pixels, SIZE, 0), 0);
    augment = (mla_augment_config){.crop_padding = 0, .flip = 1.0};
    mla_image_prepare(out, pixels, SIZE, mean, deviation, &augment, 1, 0, 0);
    ck_assert_int_eq(find_placement(out, pixels, SIZE, 0), 1);
    augment = (mla_augment_config){.crop_padding = SIZE, .flip = 0.0};
    for (uint64_t sample = 0; sample < 100; sample++)
        mla_image_prepare(out, pixels, SIZE, mean, deviation, &augment, 1, 0, sample);
}
END_TEST

START_TEST(augmentation_depends_on_its_name_alone) {
    uint8_t pixels[PIXELS];
    static real base[PIXELS], out[PIXELS];
    mla_augment_config augment = {.crop_padding = 4, .flip = 0.5};
    mla_rng rng = mla_rng_stream(3, MLA_RNG_TEST, 0, 0);
    for (int i = 0; i < PIXELS; i++) pixels[i] = (uint8_t)mla_rng_u32(&rng);
    int changes[3] = {0};
    for (uint64_t i = 0; i < 32; i++) {
        mla_image_prepare(base, pixels, 32, mean, deviation, &augment, 1, 2, i);
        mla_image_prepare(out, pixels, 32, mean, deviation, &augment, 1, 2, i);
        ck_assert_mem_eq(base, out, sizeof base);
        mla_image_prepare(out, pixels, 32, mean, deviation, &augment, 2, 2, i);
        changes[0] += memcmp(base, out, sizeof base) != 0;
        mla_image_prepare(out, pixels, 32, mean, deviation, &augment, 1, 3, i);
        changes[1] += memcmp(base, out, sizeof base) != 0;
        mla_image_prepare(out, pixels, 32, mean, deviation, &augment, 1, 2, i + 100);
        changes[2] += memcmp(base, out, sizeof base) != 0;
    }
    for (int i = 0; i < 3; i++) ck_assert_int_gt(changes[i], 28);
}
END_TEST

static void prepare_all(real *out, const mla_dataset *set, size_t count, int threads) {
    mla_augment_config augment = {.crop_padding = 4, .flip = 0.5};
    const mla_dataset_info *info = mla_dataset_get_info(set);
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (size_t i = 0; i < count; i++) {
        uint8_t pixels[PIXELS];
        int label = -1;
        if (mla_dataset_read(set, i, 5, pixels, &label, NULL) == MLA_OK)
            mla_image_prepare(out + i * PIXELS, pixels, 32, info->mean, info->std, &augment, 9, 5, i);
    }
}

START_TEST(same_pixels_for_any_threads) {
    enum { COUNT = 64 };
    real *one = calloc(COUNT * PIXELS, sizeof *one), *many = calloc(COUNT * PIXELS, sizeof *many);
    mla_data_config config = data_config(MLA_SET_TWINS, NULL);
    mla_dataset *set = open_data(&config, MLA_SPLIT_TRAIN, 1);
    prepare_all(one, set, COUNT, 1);
    static const int threads[] = {2, 4, 7};
    for (int i = 0; i < 3; i++) {
        memset(many, 0, COUNT * PIXELS * sizeof *many);
        prepare_all(many, set, COUNT, threads[i]);
        ck_assert_int_eq(memcmp(one, many, COUNT * PIXELS * sizeof *one), 0);
    }
    mla_dataset_close(set);
    free(one);
    free(many);
}
END_TEST

/* ---- the command ---- */

static int command(const char *const *words, int count) {
    char *argv[10] = {NULL};
    for (int i = 0; i < count; i++) argv[i] = strdup(words[i]);
    int code = mla_cmd_data(count, argv);
    for (int i = 0; i < count; i++) free(argv[i]);
    return code;
}

#define COMMAND(...)                                                                                                        \
    command((const char *const[]){"data", __VA_ARGS__},                                                                     \
            (int)(sizeof((const char *const[]){"data", __VA_ARGS__}) / sizeof(char *)))

START_TEST(command_verifies_and_prepares) {
    ck_assert_ptr_nonnull(freopen(in_scratch("stdout"), "w+", stdout));
    put_archive(data_path("place/cifar-10-binary.tar.gz"), "cifar-10-batches-bin", 0);
    const char *place = in_scratch("place"), *out = in_scratch("new/out");
    ck_assert_int_eq(COMMAND("list"), 0);
    ck_assert_int_eq(COMMAND("verify", "cifar10", "--path", place), 0);
    ck_assert_int_eq(COMMAND("prepare", "cifar10", "--path", place, "--out", out), 0);
    expect_cifar10("new/out", 2);
    ck_assert_int_eq(COMMAND("prepare", "twins", "--out", in_scratch("twins")), 0);
    mla_data_config twins = data_config(MLA_SET_CIFAR10, "twins");
    mla_dataset *set = open_data(&twins, MLA_SPLIT_TRAIN, 0);
    ck_assert_str_eq(mla_dataset_get_info(set)->names[0], "red");
    mla_dataset_close(set);
    ck_assert(exists(in_scratch("twins/twins.png")));
    ck_assert_int_eq(COMMAND("prepare", "imagefolder"), 0);
    ck_assert_int_eq(COMMAND("--help"), 0);
    fflush(stdout);
    char *text = get_file(in_scratch("stdout"), NULL);
    expect_text(text, "tiny-imagenet");
    expect_text(text, "train: 10 images, 10 classes, read as 32 x 32");
    expect_text(text, "unreadable    0");
    expect_text(text, "no preparation is needed");
    expect_text(text, "Usage: mirrorla data");
    free(text);
}
END_TEST

START_TEST(command_refuses) {
    ck_assert_int_eq(command((const char *const[]){"data"}, 1), 2);
    ck_assert_int_eq(COMMAND("destroy"), 2);
    ck_assert_int_eq(COMMAND("verify"), 2);
    ck_assert_int_eq(COMMAND("verify", "mnist"), 2);
    ck_assert_int_eq(COMMAND("verify", "twins", "--size", "x"), 2);
    ck_assert_int_eq(COMMAND("verify", "twins", "--size"), 2);
    ck_assert_int_eq(COMMAND("verify", "twins", "--colour"), 2);
    ck_assert_int_eq(COMMAND("verify", "twins", "more"), 2);
    ck_assert_int_eq(COMMAND("verify", "twins", "--out", "x"), 2);
    ck_assert_int_eq(COMMAND("prepare", "twins"), 2);
    ck_assert_int_eq(COMMAND("verify", "cifar10", "--path", in_scratch("nowhere")), 1);
    make_folder("set");
    ck_assert_int_eq(COMMAND("verify", "cifar10", "--path", in_scratch("set")), 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data");
    ADD_GROUP(suite, "cifar", cifar10_folder_and_parent, cifar10_uneven_and_named, cifar100_fine_labels, cifar_is_found,
              cifar_in_another_size, cifar10_archive);
    ADD_GROUP(suite, "refusals", refuses_archives, refuses_cifar_places, refuses_cifar_files);
    ADD_GROUP(suite, "front", subset_is_stratified_and_nested, classes_are_mapped_by_name, shuffle_is_a_permutation);
    ADD_GROUP(suite, "augmentation", augmentation_is_a_padded_crop_and_a_flip, augmentation_depends_on_its_name_alone,
              same_pixels_for_any_threads);
    ADD_GROUP(suite, "command", command_verifies_and_prepares, command_refuses);
    return run_suite(suite);
}
