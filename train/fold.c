#include "train/fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/ops.h"
#include "layers/layers.h"

/* NAME of "NAME.ending"; false for another ending. */
static bool layer_of(char out[MLA_PARAM_NAME_BYTES], const char *name, const char *ending) {
    const size_t length = strlen(name), end = strlen(ending);
    if (length <= end || strcmp(name + length - end, ending) != 0) return false;
    snprintf(out, MLA_PARAM_NAME_BYTES, "%.*s", (int)(length - end), name);
    return true;
}

static int find(const mla_params *params, const char *layer, const char *name) {
    char full[MLA_PARAM_NAME_BYTES + 16];
    snprintf(full, sizeof full, "%s%s", layer, name);
    return mla_params_find(params, full);
}

/* The vectors as block_reflect takes them: (heads, blocks, reflections, width).  Those across heads are one block. */
static mla_tensor vectors(const mla_params *params, int param) {
    const mla_param *p = &params->entry[param];
    real *data = params->value + p->offset;
    if (p->ndim == 4) return mla_tensor_make(data, 4, p->shape);
    return mla_tensor_make(data, 4, (size_t[]){1, 1, p->shape[0], p->shape[1]});
}

/* Turns the rows of q and k of one projection tensor. */
static mla_status turn(mla_tape *tape, const mla_params *params, int projection, int isometry, mla_error *error) {
    const mla_param *p = &params->entry[projection];
    mla_tape_begin(tape, params, params->value, NULL);
    const mla_var out =
        mla_block_reflect(tape, mla_tape_param(tape, projection), mla_tape_input(tape, vectors(params, isometry)));
    const mla_status status = mla_tape_status(tape, error);
    if (status == MLA_OK) memcpy(params->value + p->offset, mla_value(tape, out).data, p->count * sizeof(real));
    return status;
}

/* Every isometry of a name into the projection that it stands behind; *count receives how many there are. */
static mla_status fold_all(mla_folded *folded, int *count, const char *ending, mla_tape *tape, const mla_params *params,
                           mla_error *error) {
    for (int i = 0; i < params->entries; i++) {
        char layer[MLA_PARAM_NAME_BYTES];
        if (!layer_of(layer, params->entry[i].name, ending)) continue;
        const int weight = find(params, layer, ".qkv.weight"), bias = find(params, layer, ".qkv.bias");
        MLA_REQUIRE(weight >= 0, "%s has no projection", layer);
        mla_status status = turn(tape, params, weight, i, error);
        if (status == MLA_OK && bias >= 0) status = turn(tape, params, bias, i, error);
        if (status != MLA_OK) return status;
        folded->gone[i] = true;
        folded->tensors++;
        folded->values += params->entry[i].count;
        ++*count;
    }
    return MLA_OK;
}

mla_status mla_fold(mla_folded *folded, mla_params *params, mla_config *config, mla_error *error) {
    mla_mirror_spec *mirror = &config->model.attention.mirror;
    *folded = (mla_folded){.gone = calloc((size_t)params->entries + 1, sizeof *folded->gone)};
    mla_tape *tape = mla_tape_new();
    mla_status status = folded->gone && tape ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for folding");
    if (mla_model_has_kind(&config->model, MLA_ATTENTION_MIRROR)) {
        if (status == MLA_OK) status = fold_all(folded, &folded->blocks, ".block_v", tape, params, error);
        /* row vectors pass the blocks first, so their isometry is in the weight already */
        if (status == MLA_OK && mla_mirror_only_isometries(mirror))
            status = fold_all(folded, &folded->cross, ".cross_v", tape, params, error);
    }
    if (status == MLA_OK && folded->blocks) {
        /* what `auto` took from the number of reflections has to stay */
        if (mirror->feature == MLA_KEPT_TWIN && mirror->twin_init == MLA_TWIN_RANDOM)
            mirror->twin_reflections = mla_mirror_twin_reflections(mirror, 0);
        mirror->reflections = 0;
    }
    if (status == MLA_OK && folded->cross) mirror->cross_head = 0;
    mla_tape_free(tape);
    if (status != MLA_OK) mla_folded_free(folded);
    return status;
}

void mla_folded_free(mla_folded *folded) {
    free(folded->gone);
    *folded = (mla_folded){0};
}
