/* What the fuzz targets share.
 *
 * A target is one file with LLVMFuzzerTestOneInput: it gives any bytes to one of the program's readers, as the file that a
 * user would name, and checks what the reader promises.  A reader may refuse; it may not crash, hang, leak, or fail
 * without a sentence.  A mutator (LLVMFuzzerCustomMutator, mutate_*.c) changes a file and then mends what would hide the
 * change: lengths, offsets, checksums, compression.
 *
 * Each target is built twice: with replay.c, which feeds the files of corpus/NAME and a few changed forms of each (in
 * every test run), and with `meson setup -Dfuzz=true` on libFuzzer (run.sh).  docs/fuzzing.md has the rest.
 */
#ifndef MLA_TESTS_FUZZ_H
#define MLA_TESTS_FUZZ_H

#include <stdint.h>

#include "core/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
/* libFuzzer's start, alone: from here on a reader that takes 10 to 20 seconds of processor time is stopped as a crash. */
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Changes data[bytes] in place and returns its new length, at most `most`. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
/* The same without knowledge of the format, for mutators: libFuzzer's own, or replay.c's. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

/* Files without a folder, filled anew for each input: no cost of a file system. */
enum { FUZZ_FILES = 2 };
/* Gives file 0 or 1 the content. */
void fuzz_file_fill(int file, const void *data, size_t bytes);
/* Its path, valid to the end of the process. */
const char *fuzz_file_path(int file);

/* A folder in memory (/dev/shm where there is one), removed at the end of the process. */
const char *fuzz_folder(void);
/* folder/name; static storage, four at a time. */
const char *fuzz_path(const char *name);
/* Makes folder/name a symbolic link to a file's path. */
void fuzz_link(const char *name, int file);

/* A config as the input of a target: TEXT [0 BASE [0 KEY=VALUE]...].  Fills config.yaml and base.yaml of the folder, files 0
 * and 1, and lists the overrides, which point into what is returned: the text, which the caller frees. */
enum { FUZZ_OVERRIDES_MOST = 16 };
char *fuzz_config_fill(const uint8_t *data, size_t bytes, const char *overrides[FUZZ_OVERRIDES_MOST], size_t *count);

/* Stops when an error is not what core/status.h promises (a sentence in UTF-8 on one line, and the status in it), and when
 * memory ran out: none of the inputs is large. */
void fuzz_check(mla_status status, const mla_error *error);

/* A small generator for mutators. */
typedef struct fuzz_random {
    uint64_t state;
} fuzz_random;
fuzz_random fuzz_seed(unsigned seed);
/* 0 .. below - 1; 0 for below = 0. */
size_t fuzz_below(fuzz_random *random, size_t below);

#endif
