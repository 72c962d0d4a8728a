#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/bench.h"
#include "train/interrupt.h"
#include "train/machine.h"
#include "train/progress.h"

enum { WARM_UP = 2 };

const char *mla_bench_part_name(mla_bench_part part) {
    static const char *const names[MLA_BENCH_PARTS] = {"step", "data",    "forward",  "backward",
                                                       "sums", "waiting", "optimiser"};
    return names[part];
}

static mla_status interrupted(mla_error *error) { return mla_fail(error, MLA_INTERRUPTED, "interrupted"); }

/* Steps that do not count: memory is taken, code and data come into the caches, the processor speeds up. */
static mla_status warm_up(mla_bench_case *c, const mla_bench_options *options, mla_error *error) {
    const double start = mla_seconds();
    for (int i = 0; i < WARM_UP; i++) {
        mla_bench_sample ignored;
        if (mla_interrupted) return interrupted(error);
        /* One is enough of steps so long that two would use up the budget. */
        if (i && 2 * (mla_seconds() - start) > options->budget_s) break;
        const mla_status status = mla_bench_case_step(c, &ignored, error);
        if (status != MLA_OK) return status;
    }
    c->spent_s = mla_seconds() - start;
    c->profile = (mla_engine_profile){0};
    if (options->alone) c->peak_bytes = mla_machine_peak_memory();
    return MLA_OK;
}

/* Steps of one case in turn with the others'. */
static mla_status take_round(mla_bench_case *cases, int count, const mla_bench_options *options, mla_bench_peak *peak,
                             mla_error *error) {
    for (int i = 0; i < count; i++) {
        mla_bench_case *c = &cases[i];
        if (mla_interrupted) return interrupted(error);
        if (c->sample_count && c->spent_s + c->spent_s / (c->sample_count + WARM_UP) > options->budget_s) continue;
        mla_bench_sample *sample = &c->samples[c->sample_count];
        if (peak) c->peaks[c->peak_count++] = mla_bench_peak_measure(peak, c->threads);
        const mla_status status = mla_bench_case_step(c, sample, error);
        if (status != MLA_OK) return status;
        c->sample_count++;
        c->spent_s += 1e-3 * sample->ms[MLA_BENCH_STEP];
    }
    return MLA_OK;
}

/* One after the last step, and more if the steps were few. */
static mla_status last_peaks(mla_bench_case *c, mla_bench_peak *peak, mla_error *error) {
    do {
        if (mla_interrupted) return interrupted(error);
        c->peaks[c->peak_count++] = mla_bench_peak_measure(peak, c->threads);
    } while (c->peak_count < MLA_BENCH_PEAK_TRIES);
    return MLA_OK;
}

mla_status mla_bench_measure(mla_bench_case *cases, int count, const mla_bench_options *options, mla_error *error) {
    mla_status status = MLA_OK;
    mla_progress progress;
    mla_bench_peak *peak = NULL;
    int threads = 1;
    for (int i = 0; i < count && status == MLA_OK; i++) {
        status = warm_up(&cases[i], options, error);
        if (cases[i].threads > threads) threads = cases[i].threads;
    }
    /* Not before the warm-up: its operands are no part of a case's memory. */
    if (status == MLA_OK && options->with_peak && !(peak = mla_bench_peak_new(threads)))
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory for the products that measure the machine's peak");
    mla_progress_start(&progress, 0);
    for (int round = 0; round < options->steps && status == MLA_OK; round++) {
        char text[64];
        uint64_t images = 0;
        status = take_round(cases, count, options, peak, error);
        for (int i = 0; i < count; i++) images += (uint64_t)cases[i].config.train.batch;
        snprintf(text, sizeof text, "round %d of %d", round + 1, options->steps);
        mla_progress_show(&progress, (uint64_t)(round + 1) * images, (uint64_t)options->steps * images, text);
    }
    mla_progress_clear(&progress);
    for (int i = 0; peak && i < count && status == MLA_OK; i++) status = last_peaks(&cases[i], peak, error);
    mla_bench_peak_free(peak);
    return status;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value at share `q` of the sorted values, between two neighbours where it falls between them. */
static double quantile(const double *sorted, int count, double q) {
    const double place = q * (count - 1);
    const int low = (int)place, high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (place - low) * (sorted[high] - sorted[low]);
}

mla_spread mla_spread_of(double *values, int count) {
    double sum = 0;
    qsort(values, (size_t)count, sizeof *values, compare);
    for (int i = 0; i < count; i++) sum += values[i];
    return (mla_spread){quantile(values, count, 0.5),  values[0],         quantile(values, count, 0.25),
                        quantile(values, count, 0.75), values[count - 1], sum / count};
}

mla_spread mla_bench_case_spread(const mla_bench_case *c, mla_bench_part part) {
    for (int i = 0; i < c->sample_count; i++) c->scratch[i] = c->samples[i].ms[part];
    return mla_spread_of(c->scratch, c->sample_count);
}

mla_spread mla_bench_case_peak(const mla_bench_case *c) {
    memcpy(c->scratch, c->peaks, (size_t)c->peak_count * sizeof *c->scratch);
    return mla_spread_of(c->scratch, c->peak_count);
}

mla_spread mla_bench_ratio(const mla_bench_case *other, const mla_bench_case *one) {
    const int count = other->sample_count < one->sample_count ? other->sample_count : one->sample_count;
    for (int i = 0; i < count; i++)
        one->scratch[i] = other->samples[i].ms[MLA_BENCH_STEP] / one->samples[i].ms[MLA_BENCH_STEP];
    return mla_spread_of(one->scratch, count);
}

static int add_operations(mla_bench_row *rows, const mla_bench_case *c, const mla_profile_row *profile, const char *pass) {
    const double steps = c->sample_count;
    int count = 0;
    for (int i = 0; i <= MLA_OP_COUNT; i++) {
        const mla_profile_row *p = &profile[i];
        if (!p->calls) continue;
        rows[count++] = (mla_bench_row){mla_profile_name(i),      pass,
                                        (double)p->calls / steps, 1e-6 * (double)p->ns / c->threads / steps,
                                        1e-9 * p->flops / steps,  (double)p->bytes / 1048576.0 / steps};
    }
    return count;
}

int mla_bench_rows(const mla_bench_case *c, mla_bench_row rows[MLA_BENCH_ROWS]) {
    static const mla_bench_part rest[] = {MLA_BENCH_DATA, MLA_BENCH_SUM, MLA_BENCH_OPTIMIZER, MLA_BENCH_WAIT};
    int count = add_operations(rows, c, c->profile.operations.forward, "forward");
    count += add_operations(rows + count, c, c->profile.operations.backward, "backward");
    double left = mla_bench_case_spread(c, MLA_BENCH_STEP).mean;
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        rows[count++] =
            (mla_bench_row){.name = mla_bench_part_name(rest[i]), .pass = "", .ms = mla_bench_case_spread(c, rest[i]).mean};
    for (int i = 0; i < count; i++) left -= rows[i].ms;
    /* Recording, counting right answers, the clock itself. */
    rows[count++] = (mla_bench_row){.name = "between", .pass = "", .ms = left};
    return count;
}
