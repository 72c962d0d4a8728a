/* Any bytes as a log whose curves are drawn, in two parts as a running report reads it: nothing is kept beyond its bounds,
 * and what is kept is in order. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "train/report_curves.h"

static void append(const char *path, const uint8_t *data, size_t bytes) {
    FILE *file = fopen(path, "ab");
    MLA_REQUIRE(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, "%s cannot be written", path);
}

static void check_buckets(const mla_curves *c) {
    MLA_REQUIRE(c->buckets <= MLA_CURVE_BUCKETS, "%zu buckets", c->buckets);
    for (size_t i = 0; i < c->buckets; i++)
        for (int n = 0; n < MLA_STEP_NUMBERS; n++) {
            const mla_curve_bucket *b = &c->bucket[i];
            if (b->count[n] == 0) continue;
            MLA_REQUIRE(b->low[n] <= b->high[n] && isfinite(b->low[n]) && isfinite(b->high[n]), "extremes %g, %g", b->low[n],
                        b->high[n]);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const char *path = fuzz_path("log.jsonl");
    mla_curves *curves = mla_curves_new();
    mla_curves_file file = {.path = path};
    mla_error error = {0};
    mla_status status = MLA_OK;
    MLA_REQUIRE(curves, "out of memory");
    unlink(path);
    for (int part = 0; part < 2 && status == MLA_OK; part++) {
        append(path, data + (part ? bytes / 2 : 0), part ? bytes - bytes / 2 : bytes / 2);
        status = mla_curves_read(curves, &file, &error);
        MLA_REQUIRE(file.offset <= bytes, "read beyond the end");
    }
    fuzz_check(status, &error);
    check_buckets(curves);
    MLA_REQUIRE(curves->epochs <= MLA_CURVE_EPOCHS + 1 && curves->samples <= MLA_CURVE_LAYERS + 1, "%zu epochs, %zu samples",
                curves->epochs, curves->samples);
    mla_curves_free(curves);
    return 0;
}
