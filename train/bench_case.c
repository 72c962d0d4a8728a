#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/bench.h"
#include "train/machine.h"
#include "train/progress.h"
#include "train/run.h"

/* Too small to make anything of random labels: times are what is wanted. */
static const double RATE = 1e-7;

/* The data set if it is at hand; its absence is no error.  What it is for the model is filled in either way. */
static mla_status open_data(mla_bench_case *c, bool synthetic, mla_error *error) {
    mla_error missing = {0};
    const size_t before = mla_machine_memory();
    if (!synthetic &&
        mla_dataset_open(&c->dataset, &c->config.data, MLA_SPLIT_TRAIN, c->config.train.seed, &missing) == MLA_OK) {
        const mla_dataset_info *info = mla_dataset_get_info(c->dataset);
        c->order = malloc(info->count * sizeof *c->order);
        c->batch = malloc((size_t)c->config.train.batch * sizeof *c->batch);
        if (!c->order || !c->batch)
            return mla_fail(error, MLA_NO_MEMORY, "out of memory for the order of %zu images", info->count);
        mla_shuffle(c->order, info->count, c->config.train.seed, 0);
        c->loader = (mla_loader){.dataset = c->dataset,
                                 .order = c->batch,
                                 .batch = (uint64_t)c->config.train.batch,
                                 .augment = &c->config.augment};
        memcpy(c->loader.mean, info->mean, sizeof info->mean);
        memcpy(c->loader.std, info->std, sizeof info->std);
        c->config.model.classes = info->classes;
        c->config.model.image = info->size;
        const size_t after = mla_machine_memory();
        c->data_bytes = after > before ? after - before : 0;
        return MLA_OK;
    }
    if (mla_config_fill_from_data(&c->config, &missing) != MLA_OK) {
        c->config.model.image = c->config.data.size;
        c->config.model.classes = c->config.data.set == MLA_SET_TINY_IMAGENET ? 200 : 1000;
    }
    return mla_stand_in_open(&c->stand_in, &c->config, error);
}

static mla_status open_parts(mla_bench_case *c, const mla_bench_options *o, mla_error *error) {
    mla_status status = mla_config_load(&c->config, o->path, o->overrides, o->override_count, error);
    if (status == MLA_OK) status = open_data(c, o->synthetic, error);
    if (status == MLA_OK) status = mla_model_new(&c->model, &c->config.model, error);
    if (status != MLA_OK) return status;
    c->threads = mla_machine_threads(o->threads, c->config.train.lanes);
    c->shard = mla_run_shard(&c->config);
    const int side = c->config.model.image / c->config.model.patch;
    c->tokens = (size_t)side * (size_t)side;
    mla_machine_flush_denormals(c->threads);
    mla_params *params = mla_model_params(c->model);
    mla_params_init(params, c->config.train.seed);
    const mla_optimizer_spec spec = mla_run_optimizer_spec(&c->config, c->threads);
    const mla_engine_options engine = {c->threads, c->config.train.lanes, c->shard};
    status = mla_engine_new(&c->engine, c->model, &engine, error);
    if (status == MLA_OK) status = mla_optimizer_new(&c->optimizer, &spec, params, error);
    if (status != MLA_OK) return status;
    const size_t values = (size_t)o->steps + MLA_BENCH_PEAK_TRIES;
    c->samples = calloc((size_t)o->steps, sizeof *c->samples);
    c->peaks = calloc(values, sizeof *c->peaks);
    c->scratch = calloc(values, sizeof *c->scratch);
    if (!c->samples || !c->peaks || !c->scratch)
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the times of %d steps", o->steps);
    mla_engine_profile_set(c->engine, true);
    return MLA_OK;
}

mla_status mla_bench_case_open(mla_bench_case *c, const mla_bench_options *options, mla_error *error) {
    *c = (mla_bench_case){0};
    const mla_status status = open_parts(c, options, error);
    if (status != MLA_OK) mla_bench_case_close(c);
    return status;
}

void mla_bench_case_close(mla_bench_case *c) {
    mla_optimizer_free(c->optimizer);
    mla_engine_free(c->engine);
    mla_model_free(c->model);
    mla_dataset_close(c->dataset);
    mla_stand_in_close(&c->stand_in);
    free(c->order);
    free(c->batch);
    free(c->samples);
    free(c->peaks);
    free(c->scratch);
    *c = (mla_bench_case){0};
}

/* The next images of the data set's order, which begins again at its end. */
static void deal_batch(mla_bench_case *c) {
    const size_t count = mla_dataset_get_info(c->dataset)->count, size = (size_t)c->config.train.batch;
    for (size_t i = 0; i < size; i++) c->batch[i] = c->order[(c->step * size + i) % count];
}

mla_status mla_bench_case_step(mla_bench_case *c, mla_bench_sample *sample, mla_error *error) {
    const mla_train_config *train = &c->config.train;
    mla_batch_result result;
    mla_engine_profile profile;
    if (c->dataset) deal_batch(c);
    const mla_image_source source = c->dataset ? mla_loader_source(&c->loader) : mla_stand_in_source(&c->stand_in);
    const double start = mla_seconds();
    const mla_status status =
        mla_engine_gradient(c->engine, &source, (size_t)train->batch, train->label_smoothing, &result, error);
    const double middle = mla_seconds();
    if (status != MLA_OK) return status;
    if (result.images == 0)
        return mla_fail(error, MLA_INVALID, "none of the %d images of a step could be read", train->batch);
    const double norm = result.scale * mla_gradient_norm(c->optimizer, result.gradient);
    mla_optimizer_step(c->optimizer, result.gradient, RATE, result.scale * mla_clip_factor(norm, c->config.optim.clip),
                       ++c->step);
    const double end = mla_seconds();
    mla_engine_profile_take(c->engine, &profile);
    double *ms = sample->ms, busy = 0;
    static const mla_bench_part parts[MLA_PARTS] = {[MLA_PART_LOAD] = MLA_BENCH_DATA,
                                                    [MLA_PART_FORWARD] = MLA_BENCH_FORWARD,
                                                    [MLA_PART_BACKWARD] = MLA_BENCH_BACKWARD,
                                                    [MLA_PART_SUM] = MLA_BENCH_SUM};
    for (int i = 0; i < MLA_PARTS; i++) busy += ms[parts[i]] = 1e-6 * (double)profile.ns[i] / c->threads;
    ms[MLA_BENCH_STEP] = 1e3 * (end - start);
    ms[MLA_BENCH_OPTIMIZER] = 1e3 * (end - middle);
    ms[MLA_BENCH_WAIT] = 1e3 * (middle - start) - busy;
    mla_profile_sum(&c->profile.operations, &profile.operations);
    return MLA_OK;
}

double mla_bench_case_flops(const mla_bench_case *c) {
    double forward = 0;
    for (int i = 0; i <= MLA_OP_COUNT; i++) forward += c->profile.operations.forward[i].flops;
    return c->sample_count ? 3 * forward / c->sample_count : 0;
}

size_t mla_bench_case_state_bytes(const mla_bench_case *c, int *buffers) {
    *buffers = 1 + (mla_optimizer_moment1(c->optimizer) != NULL) + (mla_optimizer_moment2(c->optimizer) != NULL) +
               (mla_optimizer_average(c->optimizer) != NULL);
    return (size_t)*buffers * mla_model_params(c->model)->size * sizeof(real);
}

void mla_bench_case_data(const mla_bench_case *c, char out[512]) {
    if (c->dataset)
        snprintf(out, 512, "%s (%s)", mla_data_set_name(c->config.data.set), mla_dataset_get_info(c->dataset)->source);
    else
        snprintf(out, 512, "random bytes, augmented (but not mixed) and normalised as images of %s are",
                 mla_data_set_name(c->config.data.set));
}
