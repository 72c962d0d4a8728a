#include "layers/prepared.h"

#include <stdlib.h>

#include "autograd/ops/block_reflect.h"
#include "core/memory.h"
#include "core/panel.h"

struct mla_prepared {
    const mla_model *model;
    mla_param_form *forms; /* one a parameter, pointing into memory */
    real **scratch;        /* one a block: for its folds; NULL where nothing is folded */
    real *memory;
    size_t bytes;
};

static mla_params *params_of(const mla_prepared *p) { return mla_model_params((mla_model *)(uintptr_t)p->model); }

/* The blocks of all stages; the model keeps them one after the other. */
static const mla_block *blocks_of(const mla_model *model, size_t *count) {
    const mla_model_parts parts = mla_model_get_parts(model);
    *count = 0;
    for (int i = 0; i < parts.stages; i++) *count += (size_t)parts.stage[i].depth;
    return parts.stage[0].blocks;
}

/* The fold of one parameter, weight or bias, of an attention layer's projection. */
static mla_block_fold fold_of(const mla_prepared *p, const mla_attention *a, int index) {
    const mla_param *e = &params_of(p)->entry[index], *v = &params_of(p)->entry[a->block_v];
    return (mla_block_fold){.blocks = v->shape[0] * v->shape[1],
                            .reflections = v->shape[2],
                            .width = v->shape[3],
                            .columns = e->count / e->shape[0]};
}

static size_t rounded(size_t reals) { return (reals + MLA_ALIGN_REALS - 1) / MLA_ALIGN_REALS * MLA_ALIGN_REALS; }

/* Takes `reals` from `memory` when there is one; counts them in any case. */
static real *take(real *memory, size_t *used, size_t reals) {
    real *place = memory ? memory + *used : NULL;
    *used += rounded(reals);
    return place;
}

/* Lays all forms out in `memory`, or with NULL only measures; gives the reals needed. */
static size_t lay_out(mla_prepared *p, real *memory) {
    const mla_params *params = params_of(p);
    size_t used = 0, blocks;
    const mla_block *block = blocks_of(p->model, &blocks);
    for (size_t i = 0; i < blocks; i++) {
        const mla_attention *a = &block[i].attention;
        if (a->block_v < 0) continue;
        const mla_block_fold fold = fold_of(p, a, a->qkv.weight);
        p->scratch[i] = take(memory, &used, mla_block_fold_scratch(&fold));
        p->forms[a->qkv.weight].value = take(memory, &used, params->entry[a->qkv.weight].count);
        if (a->qkv.bias >= 0) p->forms[a->qkv.bias].value = take(memory, &used, params->entry[a->qkv.bias].count);
    }
    for (int i = 0; i < params->entries; i++) {
        const mla_param *e = &params->entry[i];
        if (!e->matrix) continue;
        const size_t out = e->shape[0], in = e->count / out;
        p->forms[i].forward = take(memory, &used, mla_panel_reals(in, out));
        p->forms[i].backward = take(memory, &used, mla_panel_reals(out, in));
    }
    return used;
}

mla_status mla_prepared_new(mla_prepared **out, const mla_model *model, mla_error *error) {
    *out = NULL;
    mla_prepared *p = calloc(1, sizeof *p);
    if (p) {
        size_t blocks;
        blocks_of(model, &blocks);
        p->model = model;
        p->forms = calloc((size_t)params_of(p)->entries, sizeof *p->forms);
        p->scratch = calloc(blocks, sizeof *p->scratch);
        const bool enough = p->forms && p->scratch;
        p->bytes = enough ? lay_out(p, NULL) * sizeof(real) : 0;
        p->memory = enough ? mla_memory_new(p->bytes) : NULL;
    }
    if (!p || !p->memory) {
        mla_prepared_free(p);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the packed weights of a step");
    }
    lay_out(p, p->memory);
    *out = p;
    return MLA_OK;
}

void mla_prepared_free(mla_prepared *p) {
    if (!p) return;
    free(p->forms);
    free(p->scratch);
    free(p->memory);
    free(p);
}

static void fold_projection(const mla_prepared *p, const mla_attention *a, const real *values, real *scratch) {
    const mla_params *params = params_of(p);
    const int index[] = {a->qkv.weight, a->qkv.bias};
    for (int i = 0; i < 2; i++) {
        if (index[i] < 0) continue;
        const mla_block_fold fold = fold_of(p, a, index[i]);
        /* The form is const for those who use it; this is where it is made. */
        mla_block_fold_rows(&fold, (real *)(uintptr_t)p->forms[index[i]].value, values + params->entry[index[i]].offset,
                            values + params->entry[a->block_v].offset, scratch);
    }
}

static void pack(const mla_param *e, const mla_param_form *form, const real *values) {
    const size_t out = e->shape[0], in = e->count / out;
    const real *w = form->value ? form->value : values + e->offset;
    mla_panel_pack((real *)(uintptr_t)form->forward, in, out, w, 1, in);
    mla_panel_pack((real *)(uintptr_t)form->backward, out, in, w, in, 1);
}

void mla_prepared_update(mla_prepared *p, const real *values, int threads) {
    const mla_params *params = params_of(p);
    size_t blocks;
    const mla_block *block = blocks_of(p->model, &blocks);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < blocks; i++)
            if (block[i].attention.block_v >= 0) fold_projection(p, &block[i].attention, values, p->scratch[i]);
#pragma omp for schedule(dynamic, 1)
        for (int i = 0; i < params->entries; i++)
            if (p->forms[i].forward) pack(&params->entry[i], &p->forms[i], values);
    }
}

void mla_prepared_use(const mla_prepared *p, mla_tape *tape) { mla_tape_use_forms(tape, p->forms); }

void mla_prepared_gradient(const mla_prepared *p, const real *values, real *gradient) {
    const mla_params *params = params_of(p);
    size_t blocks;
    const mla_block *block = blocks_of(p->model, &blocks);
    for (size_t i = 0; i < blocks; i++) {
        const mla_attention *a = &block[i].attention;
        const int index[] = {a->qkv.weight, a->qkv.bias};
        for (int j = 0; a->block_v >= 0 && j < 2; j++) {
            if (index[j] < 0) continue;
            const mla_block_fold fold = fold_of(p, a, index[j]);
            mla_block_fold_gradient(&fold, gradient + params->entry[index[j]].offset,
                                    gradient + params->entry[a->block_v].offset, p->forms[index[j]].value,
                                    values + params->entry[a->block_v].offset, p->scratch[i]);
        }
    }
}

size_t mla_prepared_bytes(const mla_prepared *p) { return p->bytes; }
