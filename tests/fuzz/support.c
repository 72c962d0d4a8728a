#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "train/file.h"
#include "train/text.h"

/* ---- files ---- */

static int descriptor(int file) {
    static int descriptors[FUZZ_FILES];
    MLA_REQUIRE(file >= 0 && file < FUZZ_FILES, "file %d", file);
    if (!descriptors[file]) descriptors[file] = memfd_create("fuzz", MFD_CLOEXEC);
    MLA_REQUIRE(descriptors[file] > 0, "no file in memory");
    return descriptors[file];
}

void fuzz_file_fill(int file, const void *data, size_t bytes) {
    const int fd = descriptor(file);
    MLA_REQUIRE(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0 && mla_write_all(fd, data, bytes),
                "a file in memory cannot be written");
}

const char *fuzz_file_path(int file) {
    static char paths[FUZZ_FILES][32];
    snprintf(paths[file], sizeof paths[file], "/proc/self/fd/%d", descriptor(file));
    return paths[file];
}

static char folder[256];

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static void remove_folder(void) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

const char *fuzz_folder(void) {
    if (*folder) return folder;
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    snprintf(folder, sizeof folder, "%s/mirrorla-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : parent);
    MLA_REQUIRE(mkdtemp(folder), "%s cannot be made", folder);
    atexit(remove_folder);
    return folder;
}

const char *fuzz_path(const char *name) {
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fuzz_folder(), name);
    return path;
}

void fuzz_link(const char *name, int file) {
    MLA_REQUIRE(symlink(fuzz_file_path(file), fuzz_path(name)) == 0, "%s cannot be made", fuzz_path(name));
}

char *fuzz_config_fill(const uint8_t *data, size_t bytes, const char *overrides[FUZZ_OVERRIDES_MOST], size_t *count) {
    if (access(fuzz_path("config.yaml"), F_OK) != 0) {
        fuzz_link("config.yaml", 0);
        fuzz_link("base.yaml", 1);
    }
    char *text = malloc(bytes + 1);
    MLA_REQUIRE(text, "out of memory");
    memcpy(text, data, bytes);
    text[bytes] = 0;
    const char *end = text + bytes, *base = text + strlen(text) + 1, *next = base;
    fuzz_file_fill(0, text, strlen(text));
    fuzz_file_fill(1, base, base < end ? strlen(base) : 0);
    if (base < end) next += strlen(base) + 1;
    for (*count = 0; next < end && *count < FUZZ_OVERRIDES_MOST; next += strlen(next) + 1) overrides[(*count)++] = next;
    return text;
}

/* ---- hangs ---- */

static volatile sig_atomic_t checks; /* of results, so far */

/* Every target checks a result after each reader: none in a whole period, and the reader hangs. */
static void on_period(int number) {
    static sig_atomic_t before = -1;
    static const char words[] = "hangs: no result in 10 seconds of processor time\n";
    (void)number;
    if (checks == before && write(STDERR_FILENO, words, sizeof words - 1) > 0) abort();
    before = checks;
}

/* libFuzzer's own limit counts seconds by the clock, in which a busy machine may not run the process at all. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    const struct itimerval period = {{10, 0}, {10, 0}};
    const struct sigaction action = {.sa_handler = on_period, .sa_flags = SA_RESTART};
    (void)argc, (void)argv;
    MLA_REQUIRE(sigaction(SIGPROF, &action, NULL) == 0 && setitimer(ITIMER_PROF, &period, NULL) == 0, "no timer");
    return 0;
}

/* ---- what every reader promises ---- */

void fuzz_check(mla_status status, const mla_error *error) {
    checks++;
    if (status == MLA_OK) return;
    MLA_REQUIRE(status != MLA_NO_MEMORY, "a small input asks for much memory: %s", error->text);
    MLA_REQUIRE(error->status == status, "status %d, but %d in the error", status, error->status);
    MLA_REQUIRE(*error->text, "an error without a sentence");
    MLA_REQUIRE(mla_is_utf8(error->text), "an error that is not UTF-8: %s", error->text);
    for (const char *at = error->text; *at; at++)
        MLA_REQUIRE((unsigned char)*at >= ' ' && *at != 0x7f, "a control character in the error: %s", error->text);
}

/* ---- random numbers ---- */

fuzz_random fuzz_seed(unsigned seed) { return (fuzz_random){seed}; }

/* SplitMix64: http://prng.di.unimi.it/splitmix64.c */
size_t fuzz_below(fuzz_random *random, size_t below) {
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return below ? (size_t)((z ^ z >> 31) % below) : 0;
}
