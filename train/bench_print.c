#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gemm.h"
#include "core/isa.h"
#include "train/bench.h"
#include "train/run.h"

static const double MEBIBYTE = 1048576.0;

static const char *kind_of(const mla_bench_case *c, char out[MLA_KINDS_BYTES]) {
    return mla_attention_kinds_text(&c->config.model, out);
}

static double images_per_second(const mla_bench_case *c) {
    return 1e3 * c->config.train.batch / mla_bench_case_spread(c, MLA_BENCH_STEP).median;
}

static void print_subject(const mla_bench_case *c) {
    char data[512], kinds[MLA_KINDS_BYTES];
    mla_bench_case_data(c, data);
    printf("model      %s, %s attention, %zu parameters, %d x %d images, %zu tokens in the first stage\n",
           mla_family_name(c->config.model.family), kind_of(c, kinds), mla_model_params(c->model)->count,
           c->config.model.image, c->config.model.image, c->tokens);
    printf("step       batch %d = shards of %d images on %d lanes, %d thread%s\n", c->config.train.batch, c->shard,
           c->config.train.lanes, c->threads, c->threads == 1 ? "" : "s");
    printf("data       %s\n", data);
    printf("products   %s\nvectors    %s\n\n", mla_gemm_backend(), mla_isa_engine.name);
}

static void print_times(const mla_bench_case *c) {
    const double whole = mla_bench_case_spread(c, MLA_BENCH_STEP).median;
    printf("%d steps, ms    median     least      25 %%      75 %%      most   of step\n", c->sample_count);
    for (int part = 0; part < MLA_BENCH_PARTS; part++) {
        const mla_spread s = mla_bench_case_spread(c, (mla_bench_part)part);
        printf("  %-10s %9.2f %9.2f %9.2f %9.2f %9.2f  %6.1f %%\n", mla_bench_part_name((mla_bench_part)part), s.median,
               s.least, s.quarter, s.three_quarters, s.most, 100 * s.median / whole);
    }
}

static void print_rates(const mla_bench_case *c) {
    const double flops = mla_bench_case_flops(c), step_s = 1e-3 * mla_bench_case_spread(c, MLA_BENCH_STEP).median;
    printf("\nimages/s   %.1f\n", images_per_second(c));
    printf("GFLOP      %.2f a step (matrix products and convolutions of forward, times three), %.1f a second\n", flops / 1e9,
           flops / step_s / 1e9);
    if (!c->peak_count) return;
    const mla_spread peak = mla_bench_case_peak(c);
    printf("peak       %.1f GFLOP/s at best, %.1f in the median of %d products of side %d on %d thread%s: the step runs at "
           "%.1f %% and %.1f %%\n",
           peak.most, peak.median, c->peak_count, MLA_BENCH_PEAK_SIDE, c->threads, c->threads == 1 ? "" : "s",
           100 * flops / step_s / 1e9 / peak.most, 100 * flops / step_s / 1e9 / peak.median);
}

static void print_memory(const mla_bench_case *c) {
    int buffers;
    const mla_engine_memory memory = mla_engine_memory_of(c->engine);
    const size_t state = mla_bench_case_state_bytes(c, &buffers);
    if (c->peak_bytes)
        printf("memory     %.1f MiB at most, %.1f MiB without the data set; of these\n", (double)c->peak_bytes / MEBIBYTE,
               (double)(c->peak_bytes - c->data_bytes) / MEBIBYTE);
    printf("           tapes %.1f MiB (%.1f MiB a thread), lanes' gradients %.1f MiB, packed weights %.1f MiB, images %.1f "
           "MiB, "
           "weights and optimiser %.1f MiB\n\n",
           (double)memory.tapes / MEBIBYTE, (double)memory.tape / MEBIBYTE, (double)memory.lane_gradients / MEBIBYTE,
           (double)memory.prepared / MEBIBYTE, (double)memory.loading / MEBIBYTE, (double)state / MEBIBYTE);
}

static int slower(const void *a, const void *b) {
    const mla_bench_row *x = a, *y = b;
    return (x->ms < y->ms) - (x->ms > y->ms);
}

static void print_row(const mla_bench_row *row, double whole_ms) {
    printf("  %-18s %-9s", row->name, row->pass);
    if (row->calls > 0)
        printf(" %7.0f", row->calls);
    else
        printf(" %7s", "");
    printf(" %9.2f  %6.1f %%", row->ms, 100 * row->ms / whole_ms);
    if (row->calls > 0) printf(" %9.1f", row->mebibytes);
    if (row->gflop > 0) printf(" %9.2f %9.1f", row->gflop, row->gflop / row->ms * 1e3);
    putchar('\n');
}

/* Operations by the time they take, then the rest of the step. */
static void print_operations(const mla_bench_case *c) {
    mla_bench_row rows[MLA_BENCH_ROWS];
    const int count = mla_bench_rows(c, rows);
    int operations = 0;
    double whole = 0;
    while (operations < count && rows[operations].pass[0]) operations++;
    for (int i = 0; i < count; i++) whole += rows[i].ms;
    qsort(rows, (size_t)operations, sizeof *rows, slower);
    printf("mean step          pass        calls        ms   of step       MiB     GFLOP   GFLOP/s\n");
    for (int i = 0; i < count; i++) print_row(&rows[i], whole);
    printf("  %-18s %-9s %7s %9.2f   100.0 %%\n\n", "all", "", "", whole);
}

/* Each case against the first one of the same threads (kinds), and of the same kind (threads). */
static void print_comparison(const mla_bench_case *cases, int count) {
    printf("comparison, rounds in turn\n  %-9s %7s %9s %9s %9s  %-22s %s\n", "attention", "threads", "ms/step", "least",
           "images/s", "time over first kind", "speed over first threads");
    for (int i = 0; i < count; i++) {
        const mla_bench_case *c = &cases[i], *kind = cases, *threads = c;
        char own[MLA_KINDS_BYTES], other[MLA_KINDS_BYTES];
        while (kind->threads != c->threads) kind++;
        for (int k = i; k >= 0; k--)
            if (!strcmp(kind_of(&cases[k], other), kind_of(c, own))) threads = &cases[k];
        const mla_spread step = mla_bench_case_spread(c, MLA_BENCH_STEP), over = mla_bench_ratio(c, kind),
                         speed = mla_bench_ratio(threads, c);
        printf("  %-9s %7d %9.2f %9.2f %9.1f  %.3f (%.3f to %.3f)  %.3f (%.3f to %.3f)\n", kind_of(c, own), c->threads,
               step.median, step.least, images_per_second(c), over.median, over.quarter, over.three_quarters, speed.median,
               speed.quarter, speed.three_quarters);
    }
    puts("  ratios: median of rounds (quartiles)");
}

void mla_bench_print(const mla_bench_case *cases, int count) {
    for (int i = 0; i < count; i++) {
        print_subject(&cases[i]);
        print_times(&cases[i]);
        print_rates(&cases[i]);
        print_memory(&cases[i]);
        print_operations(&cases[i]);
    }
    if (count > 1) print_comparison(cases, count);
}
