#include "train/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/run.h"
#include "train/stand_in.h"

/* The last part of a parameter's name is the tensor; what stands before it is the layer. */
static void layer_name(char out[MLA_PARAM_NAME_BYTES], const mla_params *params, int param) {
    snprintf(out, MLA_PARAM_NAME_BYTES, "%s", param >= 0 ? params->entry[param].name : "(input)");
    char *dot = strrchr(out, '.');
    if (dot && param >= 0) *dot = 0;
}

/* One image through the model, forward. */
static mla_status record(mla_tape *tape, const mla_inspection *x, real *image, mla_error *error) {
    const mla_params *params = mla_model_params(x->model);
    const size_t side = (size_t)x->config->model.image;
    mla_tape_begin(tape, params, params->value, NULL);
    mla_model_forward(x->model, tape, mla_tape_input(tape, mla_tensor_make(image, 4, (size_t[]){1, 3, side, side})),
                      &(mla_forward){0});
    return mla_tape_status(tape, error);
}

static mla_status list_operations(mla_inspection *x, const mla_tape *tape, mla_error *error) {
    const mla_params *params = mla_model_params(x->model);
    mla_node_info info;
    int count = 0;
    while (mla_tape_node(tape, count, &info)) count++;
    x->operations = calloc((size_t)count, sizeof *x->operations);
    bool *counted = calloc((size_t)params->entries, sizeof *counted);
    for (int i = 0; x->operations && counted && mla_tape_node(tape, i, &info); i++) {
        mla_inspect_operation *o = &x->operations[i];
        *o = (mla_inspect_operation){.name = info.op, .out = info.out, .flops = info.flops, .bytes = info.bytes};
        o->out.data = NULL;
        layer_name(o->layer, params, info.param);
        for (int k = 0; k < MLA_MAX_INPUTS; k++) {
            const int param = info.reads[k];
            if (param < 0 || counted[param]) continue;
            if (!params->entry[param].fixed) o->parameters += params->entry[param].count;
            counted[param] = true;
        }
    }
    x->operation_count = count;
    x->flops = mla_tape_flops(tape);
    const bool enough = x->operations && counted;
    free(counted);
    return enough ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for %d operations", count);
}

static mla_status look_at_one_image(mla_inspection *x, mla_error *error) {
    mla_tape *tape = mla_tape_new();
    const size_t side = (size_t)x->config->model.image;
    real *image = calloc(3 * side * side, sizeof(real));
    mla_status status = tape && image ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for one image");
    if (status == MLA_OK) status = record(tape, x, image, error);
    if (status == MLA_OK) status = list_operations(x, tape, error);
    mla_tape_free(tape);
    free(image);
    return status;
}

/* One training step, to see what it takes.  More shards than lanes take no more memory; fresh weights stand in for a
 * checkpoint's, which may have diverged. */
static mla_status look_at_a_step(mla_inspection *x, mla_error *error) {
    const mla_config *c = x->config;
    const size_t batch = (size_t)c->train.batch, round = (size_t)x->shard * (size_t)c->train.lanes;
    mla_params_init(mla_model_params(x->model), c->train.seed);
    mla_engine *engine;
    mla_stand_in images = {0};
    mla_status status =
        mla_engine_new(&engine, x->model, &(mla_engine_options){x->threads, c->train.lanes, x->shard}, error);
    if (status == MLA_OK) status = mla_stand_in_open(&images, c, error);
    if (status == MLA_OK) {
        const mla_image_source source = mla_stand_in_source(&images);
        mla_batch_result result;
        status =
            mla_engine_gradient(engine, &source, batch < round ? batch : round, c->train.label_smoothing, &result, error);
        x->memory = mla_engine_memory_of(engine);
    }
    mla_stand_in_close(&images);
    mla_engine_free(engine);
    return status;
}

mla_status mla_inspect_open(mla_inspection *x, int threads, mla_error *error) {
    const mla_optim_config *o = &x->config->optim;
    x->threads = threads;
    x->shard = mla_run_shard(x->config);
    x->moments = o->name == MLA_ADAMW ? 2 : o->momentum > 0;
    x->averages = o->ema > 0;
    x->flat_bytes = mla_model_params(x->model)->size * sizeof(real);
    const mla_status status = look_at_one_image(x, error);
    return status == MLA_OK ? look_at_a_step(x, error) : status;
}

void mla_inspect_close(mla_inspection *x) {
    free(x->operations);
    x->operations = NULL;
}

size_t mla_inspect_total_bytes(const mla_inspection *x) {
    return x->memory.tapes + x->memory.lane_gradients + x->memory.prepared + x->memory.loading +
           (size_t)(1 + x->moments + x->averages) * x->flat_bytes;
}
