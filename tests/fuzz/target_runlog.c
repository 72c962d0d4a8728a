/* Any bytes as the log of a run that goes on: the lines after a step are moved away.  The first byte is the step; every
 * epoch has four steps.  What stays and what goes is all that was there, and a second time nothing moves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "train/file.h"
#include "train/runlog_cut.h"

enum { STEPS_OF_EPOCH = 4, MOST_BYTES = 1 << 20 };

static void put(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    MLA_REQUIRE(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, "%s cannot be written", path);
}

static size_t length_of(const char *path) {
    char *data = NULL;
    size_t bytes = 0;
    if (access(path, F_OK) == 0)
        MLA_REQUIRE(mla_file_read(&data, &bytes, path, MOST_BYTES, NULL) == MLA_OK, "%s cannot be read", path);
    free(data);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < 1) return 0;
    const char *log = fuzz_path("log.jsonl"), *dropped = fuzz_path("log.dropped.jsonl");
    const uint64_t step = data[0];
    const size_t length = bytes - 1;
    put(log, data + 1, length);
    unlink(dropped);
    mla_log_cut cut = {.path = log, .dropped_path = dropped};
    mla_error error = {0};
    mla_status status = mla_runlog_cut(&cut, 1, step, step / STEPS_OF_EPOCH, &error);
    fuzz_check(status, &error);
    const size_t kept = length_of(log), moved = length_of(dropped);
    if (status != MLA_OK) {
        MLA_REQUIRE(kept == length && moved == 0, "a refused log was changed");
        return 0;
    }
    const size_t newline = length > 0 && data[length] != '\n';
    MLA_REQUIRE(kept + moved == length + newline, "%zu bytes kept and %zu moved of %zu", kept, moved, length);
    MLA_REQUIRE(cut.last <= step, "the last line kept is of a later step");
    MLA_REQUIRE(mla_runlog_cut(&cut, 1, step, step / STEPS_OF_EPOCH, &error) == MLA_OK, "refused a second time: %s",
                error.text);
    MLA_REQUIRE(length_of(log) == kept && length_of(dropped) == moved, "a second cut moved more");
    return 0;
}
