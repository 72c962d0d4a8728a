/* A folder of CIFAR's binary version: a byte of choices, the class names up to a zero byte if it says so, and the records
 * that stand in each of the folder's files. */
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/target_data.h"
#include "train/file.h"

enum { IS_100 = 1, IS_TRAIN = 2, HAS_NAMES = 4, IS_RESIZED = 8 };

static void make_folder(const char *folder, const char *const *files, const char *names_file) {
    mla_error error = {0};
    MLA_REQUIRE(mla_folders_make(fuzz_path(folder), NULL, &error) == MLA_OK, "%s", error.text);
    for (; *files; files++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", folder, *files);
        fuzz_link(name, 0);
    }
    if (names_file) {
        char name[64];
        snprintf(name, sizeof name, "%s/%s", folder, names_file);
        fuzz_link(name, 1);
    }
}

static void make_folders(void) {
    static const char *const files10[] = {"data_batch_1.bin",
                                          "data_batch_2.bin",
                                          "data_batch_3.bin",
                                          "data_batch_4.bin",
                                          "data_batch_5.bin",
                                          "test_batch.bin",
                                          NULL};
    static const char *const files100[] = {"train.bin", "test.bin", NULL};
    make_folder("10", files10, NULL);
    make_folder("10-named", files10, "batches.meta.txt");
    make_folder("100", files100, NULL);
    make_folder("100-named", files100, "fine_label_names.txt");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1) return 0;
    if (access(fuzz_path("100-named"), F_OK) != 0) make_folders();
    const unsigned choices = data[0];
    const uint8_t *records = data + 1, *end = data + bytes;
    if (choices & HAS_NAMES) {
        const uint8_t *zero = memchr(records, 0, (size_t)(end - records));
        const uint8_t *names_end = zero ? zero : end;
        fuzz_file_fill(1, records, (size_t)(names_end - records));
        records = zero ? zero + 1 : end;
    }
    fuzz_file_fill(0, records, (size_t)(end - records));
    char folder[16];
    snprintf(folder, sizeof folder, "%s%s", choices & IS_100 ? "100" : "10", choices & HAS_NAMES ? "-named" : "");
    fuzz_open_data(choices & IS_100 ? MLA_SET_CIFAR100 : MLA_SET_CIFAR10, fuzz_path(folder),
                   choices & IS_TRAIN ? MLA_SPLIT_TRAIN : MLA_SPLIT_TEST, choices & IS_RESIZED ? 20 : 32,
                   choices & IS_TRAIN ? 0.5 : 1);
    return 0;
}
