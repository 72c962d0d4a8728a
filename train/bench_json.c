#include "core/gemm.h"
#include "core/isa.h"
#include "train/bench.h"
#include "train/run.h"

static json_t *spread_json(mla_spread s) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "median", s.median, "least", s.least, "quarter", s.quarter,
                     "three_quarters", s.three_quarters, "most", s.most, "mean", s.mean);
}

static json_t *times_json(const mla_bench_case *c) {
    json_t *times = json_object();
    for (int part = 0; part < MLA_BENCH_PARTS; part++)
        json_object_set_new(times, mla_bench_part_name((mla_bench_part)part),
                            spread_json(mla_bench_case_spread(c, (mla_bench_part)part)));
    return times;
}

static json_t *memory_json(const mla_bench_case *c) {
    int buffers;
    const mla_engine_memory memory = mla_engine_memory_of(c->engine);
    const size_t state = mla_bench_case_state_bytes(c, &buffers);
    json_t *json =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tapes", (json_int_t)memory.tapes, "tape", (json_int_t)memory.tape,
                  "lane_gradients", (json_int_t)memory.lane_gradients, "packed_weights", (json_int_t)memory.prepared,
                  "images", (json_int_t)memory.loading, "state", (json_int_t)state, "data_set", (json_int_t)c->data_bytes);
    if (c->peak_bytes) json_object_set_new(json, "process", json_integer((json_int_t)c->peak_bytes));
    return json;
}

static json_t *operations_json(const mla_bench_case *c) {
    mla_bench_row rows[MLA_BENCH_ROWS];
    const int count = mla_bench_rows(c, rows);
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f}", "name", rows[i].name, "pass", rows[i].pass,
                                              "calls", rows[i].calls, "ms", rows[i].ms, "gflop", rows[i].gflop, "mebibytes",
                                              rows[i].mebibytes));
    return list;
}

static json_t *case_json(const mla_bench_case *c) {
    char data[512], kinds[MLA_KINDS_BYTES];
    mla_bench_case_data(c, data);
    const mla_train_config *train = &c->config.train;
    const double step_s = 1e-3 * mla_bench_case_spread(c, MLA_BENCH_STEP).median, flops = mla_bench_case_flops(c);
    json_t *json = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:s, s:b, s:i, s:o, s:f, s:f, s:f, s:o, s:o}", "family",
        mla_family_name(c->config.model.family), "attention", mla_attention_kinds_text(&c->config.model, kinds), "threads",
        c->threads, "batch", train->batch, "shard", c->shard, "lanes", train->lanes, "tokens", (json_int_t)c->tokens,
        "parameters", (json_int_t)mla_model_params(c->model)->count, "data", data, "data_is_real", c->dataset != NULL,
        "steps", c->sample_count, "ms", times_json(c), "images_per_second", train->batch / step_s, "gflop_per_step",
        flops / 1e9, "gflops", flops / step_s / 1e9, "memory_bytes", memory_json(c), "operations", operations_json(c));
    if (c->peak_count) json_object_set_new(json, "peak_gflops", spread_json(mla_bench_case_peak(c)));
    return json;
}

json_t *mla_bench_json(const mla_bench_case *cases, int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(list, case_json(&cases[i]));
    return json_pack("{s:s, s:s, s:s, s:o}", "version", MLA_VERSION, "products", mla_gemm_backend(), "vectors",
                     mla_isa_engine.name, "cases", list);
}
