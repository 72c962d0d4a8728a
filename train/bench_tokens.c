/* Time and memory against the number of tokens.
 *
 * Images of side patch * sqrt(N) have N tokens in the first stage; the batch shrinks as N grows, so that a step works on
 * the same number of tokens, and no more agents than the smallest grid has room for.  The kinds take steps in turn at each
 * N.  A kind that would not get two steps into its budget, judged by the step before, is left out and said to be.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/bench.h"
#include "train/json_out.h"
#include "train/run.h"

/* One kind at one number of tokens. */
typedef struct cell {
    bool measured;
    double expected_s; /* of a step, where it was left out */
    int batch, shard, steps;
    double step_ms, token_us, token_bytes;
    mla_spread over_softmax; /* median 0: not known */
} cell;

typedef struct table {
    const mla_bench_options *options;
    const mla_bench_sweep *sweep;
    size_t step_tokens;
    int patch, stages, agents; /* agents: the side of their grid */
    cell *cells;               /* (tokens, kinds) */
} table;

static cell *cell_at(const table *t, int n, int k) { return &t->cells[n * t->sweep->kind_count + k]; }

static int side_of(int tokens) {
    const int side = (int)(sqrt((double)tokens) + 0.5);
    return side * side == tokens ? side : 0;
}

static const char *kind_name(const table *t, int k) {
    return mla_attention_kind_name((mla_attention_kind)t->sweep->kinds[k]);
}

static mla_status open_case(mla_bench_case *c, const table *t, int n, int k, mla_error *error) {
    enum { OWN = 6 };
    char own[OWN][64];
    const size_t given = t->options->override_count;
    const int smallest = side_of(t->sweep->tokens[n]) >> (t->stages - 1), room = smallest ? smallest : 1;
    const int tokens = t->sweep->tokens[n], batch = (int)(t->step_tokens / (size_t)tokens);
    const char **overrides = malloc((given + OWN) * sizeof *overrides);
    if (!overrides) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the overrides");
    if (given) memcpy(overrides, t->options->overrides, given * sizeof *overrides);
    snprintf(own[0], sizeof own[0], "model.attention.kind=%s", kind_name(t, k));
    snprintf(own[1], sizeof own[1], "data.size=%d", t->patch * side_of(tokens));
    snprintf(own[2], sizeof own[2], "train.batch=%d", batch ? batch : 1);
    snprintf(own[3], sizeof own[3], "train.shard=auto");
    snprintf(own[4], sizeof own[4], "data.set=cifar10"); /* has no demands on its size, and is not opened */
    snprintf(own[5], sizeof own[5], "model.attention.agent.side=%d", t->agents < room ? t->agents : room);
    for (int i = 0; i < OWN; i++) overrides[given + (size_t)i] = own[i];
    mla_bench_options options = *t->options;
    options.overrides = overrides;
    options.override_count = given + OWN;
    options.synthetic = true;
    const mla_status status = mla_bench_case_open(c, &options, error);
    free(overrides);
    return status;
}

/* Seconds that a step will take, from the number of tokens before: a step's tokens are the same, and softmax looks at all
 * others for each.  0: not known. */
static double expect(const table *t, int n, int k) {
    if (n == 0) return 0;
    const cell *before = cell_at(t, n - 1, k);
    const double grown = (double)t->sweep->tokens[n] / t->sweep->tokens[n - 1];
    const double step_s = before->measured ? 1e-3 * before->step_ms : before->expected_s;
    return t->sweep->kinds[k] == MLA_ATTENTION_SOFTMAX && grown > 1 ? step_s * grown : step_s;
}

static void fill(cell *one, const mla_bench_case *c) {
    const mla_engine_memory memory = mla_engine_memory_of(c->engine);
    const mla_spread step = mla_bench_case_spread(c, MLA_BENCH_STEP);
    *one = (cell){.measured = true, .batch = c->config.train.batch, .shard = c->shard, .steps = c->sample_count};
    one->step_ms = step.median;
    one->token_us = 1e3 * step.median / ((double)one->batch * (double)c->tokens);
    one->token_bytes = (double)memory.tape / ((double)one->shard * (double)c->tokens);
}

/* All kinds at tokens[n]. */
static mla_status measure(table *t, int n, mla_error *error) {
    const mla_bench_sweep *s = t->sweep;
    int count = 0, softmax = -1;
    int kind_of[MLA_ATTENTION_KINDS]; /* of each case, its place among the kinds */
    mla_bench_case cases[MLA_ATTENTION_KINDS];
    mla_status status = MLA_OK;
    for (int k = 0; k < s->kind_count && status == MLA_OK; k++) {
        cell *one = cell_at(t, n, k);
        one->expected_s = expect(t, n, k);
        if (2 * one->expected_s > t->options->budget_s) continue;
        status = open_case(&cases[count], t, n, k, error);
        if (status != MLA_OK) break;
        if (s->kinds[k] == MLA_ATTENTION_SOFTMAX) softmax = count;
        kind_of[count++] = k;
    }
    if (status == MLA_OK) status = mla_bench_measure(cases, count, t->options, error);
    for (int i = 0; i < count && status == MLA_OK; i++) {
        cell *one = cell_at(t, n, kind_of[i]);
        fill(one, &cases[i]);
        if (softmax >= 0 && i != softmax) one->over_softmax = mla_bench_ratio(&cases[i], &cases[softmax]);
    }
    for (int i = 0; i < count; i++) mla_bench_case_close(&cases[i]);
    return status;
}

/* Tokens from which on kind k is faster than softmax: where its ratio crosses one, on logarithmic axes between the two
 * neighbours.  0: not among the tokens measured; negative: at the fewest tokens already. */
static double crossover(const table *t, int k) {
    double x_before = 0, y_before = 0;
    for (int n = 0; n < t->sweep->token_count; n++) {
        const double ratio = cell_at(t, n, k)->over_softmax.median;
        if (ratio <= 0) continue;
        const double x = log(t->sweep->tokens[n]), y = log(ratio);
        if (y < 0 && x_before <= 0) return -1;
        if (y < 0 && y_before >= 0) return exp(x_before + (x - x_before) * y_before / (y_before - y));
        x_before = x;
        y_before = y;
    }
    return 0;
}

static void print_head(const table *t) {
    printf("%s: about %zu tokens a step, %d threads; images of random bytes\n", t->options->path, t->step_tokens,
           t->options->threads);
    printf("  attention   tokens  batch  shard  steps     ms/step   us/token  bytes/token  time over softmax\n");
}

static void print_row(const table *t, int n, int k) {
    const cell *c = cell_at(t, n, k);
    printf("  %-9s %8d", kind_name(t, k), t->sweep->tokens[n]);
    if (!c->measured) {
        printf("  not measured: a step would take about %.0f s (--budget %.0f)\n", c->expected_s, t->options->budget_s);
        return;
    }
    printf(" %6d %6d %6d %11.2f %10.3f %12.0f", c->batch, c->shard, c->steps, c->step_ms, c->token_us, c->token_bytes);
    if (c->over_softmax.median > 0)
        printf("  %.3f (%.3f to %.3f)", c->over_softmax.median, c->over_softmax.quarter, c->over_softmax.three_quarters);
    putchar('\n');
}

static void print_crossovers(const table *t) {
    for (int k = 0; k < t->sweep->kind_count; k++) {
        bool known = false;
        for (int n = 0; n < t->sweep->token_count; n++) known |= cell_at(t, n, k)->over_softmax.median > 0;
        if (!known) continue;
        const double tokens = crossover(t, k);
        if (tokens > 0)
            printf("%s is faster than softmax from about %.0f tokens on\n", kind_name(t, k), tokens);
        else
            printf("%s is %s than softmax at all token counts measured\n", kind_name(t, k),
                   tokens < 0 ? "faster" : "not faster");
    }
}

static json_t *row_json(const table *t, int n, int k) {
    const cell *c = cell_at(t, n, k);
    json_t *row =
        json_pack("{s:s, s:i, s:b}", "attention", kind_name(t, k), "tokens", t->sweep->tokens[n], "measured", c->measured);
    if (!c->measured) {
        json_object_set_new(row, "expected_s", json_real(c->expected_s));
        return row;
    }
    json_t *more = json_pack("{s:i, s:i, s:i, s:f, s:f, s:f}", "batch", c->batch, "shard", c->shard, "steps", c->steps, "ms",
                             c->step_ms, "us_per_token", c->token_us, "bytes_per_token", c->token_bytes);
    json_object_update(row, more);
    json_decref(more);
    if (c->over_softmax.median > 0) json_object_set_new(row, "over_softmax", json_real(c->over_softmax.median));
    return row;
}

static mla_status print_json(const table *t, mla_error *error) {
    json_t *rows = json_array(), *crossovers = json_object();
    for (int n = 0; n < t->sweep->token_count; n++)
        for (int k = 0; k < t->sweep->kind_count; k++) json_array_append_new(rows, row_json(t, n, k));
    for (int k = 0; k < t->sweep->kind_count; k++) {
        const double tokens = crossover(t, k);
        if (tokens > 0) json_object_set_new(crossovers, kind_name(t, k), json_real(tokens));
    }
    return mla_json_put(
        json_pack("{s:i, s:o, s:o}", "threads", t->options->threads, "rows", rows, "crossover_tokens", crossovers), error);
}

static mla_status check(table *t, mla_error *error) {
    mla_config config;
    const mla_bench_sweep *s = t->sweep;
    const mla_status status =
        mla_config_load(&config, t->options->path, t->options->overrides, t->options->override_count, error);
    if (status != MLA_OK) return status;
    const size_t side = (size_t)(config.data.size / config.model.patch);
    t->patch = config.model.patch;
    t->stages = config.model.stages;
    t->agents = config.model.attention.agent.side;
    t->step_tokens = (size_t)config.train.batch * side * side;
    for (int n = 0; n < s->token_count; n++) {
        if (!side_of(s->tokens[n]))
            return mla_fail(error, MLA_INVALID, "--tokens: %d is not a square number: tokens stand on a square grid",
                            s->tokens[n]);
        if (n && s->tokens[n] < s->tokens[n - 1])
            return mla_fail(error, MLA_INVALID, "--tokens: %d comes after %d: they are to grow", s->tokens[n],
                            s->tokens[n - 1]);
    }
    return MLA_OK;
}

mla_status mla_bench_tokens(const mla_bench_options *options, const mla_bench_sweep *sweep, mla_error *error) {
    table t = {.options = options, .sweep = sweep};
    mla_status status = check(&t, error);
    if (status != MLA_OK) return status;
    t.cells = calloc((size_t)(sweep->token_count * sweep->kind_count), sizeof *t.cells);
    if (!t.cells) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %d token counts", sweep->token_count);
    if (!sweep->json) print_head(&t);
    for (int n = 0; n < sweep->token_count && status == MLA_OK; n++) {
        status = measure(&t, n, error);
        for (int k = 0; k < sweep->kind_count && status == MLA_OK && !sweep->json; k++) print_row(&t, n, k);
        fflush(stdout);
    }
    if (status == MLA_OK && sweep->json) status = print_json(&t, error);
    if (status == MLA_OK && !sweep->json) print_crossovers(&t);
    free(t.cells);
    return status;
}
