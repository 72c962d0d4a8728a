/* A folder of its own for a test's files, and what tests of files ask of messages. */
#ifndef MLA_TESTS_SCRATCH_H
#define MLA_TESTS_SCRATCH_H

#include <check.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/status.h"

static char scratch[512];

static inline void scratch_make(void) {
    const char *parent = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/mirrorla-test-XXXXXX", parent && *parent ? parent : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(scratch));
}

static inline int scratch_remove_one(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static inline void scratch_remove(void) { nftw(scratch, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Path of a file in the folder; static storage, four at a time. */
static inline const char *in_scratch(const char *name) {
    static char paths[4][1024];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static inline bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

static inline void put_file(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

/* The content with a zero byte behind it; the caller frees it. */
static inline char *get_file(const char *path, size_t *bytes) {
    struct stat info;
    ck_assert_msg(stat(path, &info) == 0, "%s is not there", path);
    char *data = malloc((size_t)info.st_size + 1);
    FILE *file = fopen(path, "rb");
    ck_assert(data && file);
    ck_assert_uint_eq(fread(data, 1, (size_t)info.st_size, file), (size_t)info.st_size);
    fclose(file);
    data[info.st_size] = 0;
    if (bytes) *bytes = (size_t)info.st_size;
    return data;
}

#define expect_text(text, part) ck_assert_msg(strstr(text, part) != NULL, "expected \"%s\" in: %s", part, text)
#define expect_ok(call, error) ck_assert_msg((call) == MLA_OK, "%s", (error).text)

#endif
