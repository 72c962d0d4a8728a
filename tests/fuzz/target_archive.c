/* Any bytes as the .tar.gz that a CIFAR set is served as: every entry on its own, then all four splits. */
#include "tests/fuzz/target_data.h"
#include "train/archive.h"

enum { ENTRY_MOST_BYTES = 1 << 16 };

static void read_entries(const char *path) {
    static uint8_t content[ENTRY_MOST_BYTES];
    mla_archive *archive;
    mla_archive_entry entry;
    mla_error error = {0};
    mla_status status = mla_archive_open(&archive, path, &error);
    while (status == MLA_OK) {
        status = mla_archive_next(archive, &entry, &error);
        if (status != MLA_OK || !entry.name) break;
        /* half of it: the rest is passed over */
        if (entry.bytes <= sizeof content) status = mla_archive_read(archive, content, (size_t)entry.bytes / 2, &error);
    }
    fuzz_check(status, &error);
    mla_archive_close(archive);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    fuzz_file_fill(0, data, bytes);
    read_entries(fuzz_file_path(0));
    for (int i = 0; i < 4; i++)
        fuzz_open_data(i < 2 ? MLA_SET_CIFAR10 : MLA_SET_CIFAR100, fuzz_file_path(0),
                       i % 2 ? MLA_SPLIT_TRAIN : MLA_SPLIT_TEST, 32, 1);
    return 0;
}
