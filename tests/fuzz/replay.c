/* Feeds files to a target, as they are and then changed; without libFuzzer, so that any compiler will do.
 *
 *     replay_NAME [--changed N] FILE|FOLDER...      N changed forms of each file (default 0), always the same ones
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/fuzz/fuzz.h"
#include "train/dataset_kind.h"
#include "train/file.h"

enum { MOST_BYTES = 1 << 20 };

/* A reader that asks for 1 GiB at once is told that there is none, with sanitizers and without. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }

#if defined __has_feature /* clang */
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

static void limit_memory(void) {
#ifndef __SANITIZE_ADDRESS__ /* whose shadow takes terabytes of addresses */
    const struct rlimit limit = {(rlim_t)2 << 30, (rlim_t)2 << 30};
    MLA_REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0, "no limit of memory");
#endif
}

static fuzz_random plain;

/* A bit, a byte, a repeated or a missing piece. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most) {
    const size_t at = fuzz_below(&plain, bytes), length = fuzz_below(&plain, bytes - at < 16 ? bytes - at : 16);
    if (bytes == 0 || fuzz_below(&plain, 8) == 0) {
        if (bytes == most) return bytes;
        data[bytes] = (uint8_t)fuzz_below(&plain, 256);
        return bytes + 1;
    }
    switch (fuzz_below(&plain, 4)) {
    case 0: data[at] ^= (uint8_t)(1 << fuzz_below(&plain, 8)); return bytes;
    case 1: data[at] = (uint8_t)fuzz_below(&plain, 256); return bytes;
    case 2: memmove(data + at, data + at + length, bytes - at - length); return bytes - length;
    default:
        if (bytes + length > most) return bytes;
        memmove(data + at + length, data + at, bytes - at);
        return bytes + length;
    }
}

/* Targets without a mutator of their own. */
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    (void)seed;
    return LLVMFuzzerMutate(data, bytes, most);
}

static void run(const uint8_t *data, size_t bytes) {
    uint8_t *exact = malloc(bytes ? bytes : 1); /* so that a sanitizer sees a read behind the end */
    MLA_REQUIRE(exact, "out of memory");
    memcpy(exact, data, bytes);
    (void)LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

static size_t replay_file(const char *path, unsigned changed) {
    char *data = NULL;
    size_t bytes = 0;
    mla_error error = {0};
    MLA_REQUIRE(mla_file_read(&data, &bytes, path, MOST_BYTES, &error) == MLA_OK, "%s", error.text);
    printf("%s\n", path);
    fflush(stdout);
    run((const uint8_t *)data, bytes);
    uint8_t *copy = malloc(MOST_BYTES);
    MLA_REQUIRE(copy, "out of memory");
    size_t length = 0;
    for (unsigned i = 0; i < changed; i++) {
        if (i % 8 == 0) { /* up to eight changes on top of each other */
            memcpy(copy, data, bytes);
            length = bytes;
        }
        plain = fuzz_seed(i);
        length = LLVMFuzzerCustomMutator(copy, length, MOST_BYTES, i);
        run(copy, length);
    }
    free(copy);
    free(data);
    return 1 + changed;
}

static size_t replay(const char *path, unsigned changed) {
    if (!mla_path_is_folder(path)) return replay_file(path, changed);
    struct dirent **entries;
    size_t count = 0;
    const int found = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < found; i++) {
        if (entries[i]->d_name[0] != '.') {
            char *name = mla_path_join(path, entries[i]->d_name);
            MLA_REQUIRE(name, "out of memory");
            count += replay_file(name, changed);
            free(name);
        }
        free(entries[i]);
    }
    if (found >= 0) free(entries);
    return count;
}

int main(int argc, char **argv) {
    unsigned changed = 0;
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--changed") == 0) {
        changed = (unsigned)strtoul(argv[2], NULL, 10);
        first = 3;
    }
    limit_memory();
    size_t count = 0;
    for (int i = first; i < argc; i++) count += replay(argv[i], changed);
    printf("%zu inputs\n", count);
    return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
