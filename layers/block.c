/* Transformer blocks and stages. */
#include <math.h>
#include <stdio.h>

#include "core/rng.h"
#include "layers/probe.h"

mla_block mla_block_declare(mla_params *params, const char *prefix, size_t channels, size_t heads, size_t side,
                            mla_attention_kind kind, const mla_model_spec *spec, double drop_path, unsigned index) {
    char name[MLA_PARAM_NAME_BYTES];
    const size_t hidden = (size_t)(spec->mlp_ratio * (double)channels);
    mla_block block = {.drop_path = drop_path, .index = index};
    snprintf(name, sizeof name, "%s.norm1", prefix);
    block.norm1 = mla_norm_declare(params, name, channels, spec->norm_eps);
    snprintf(name, sizeof name, "%s.attn", prefix);
    block.attention = mla_attention_declare(params, name, channels, heads, side, kind, &spec->attention);
    snprintf(name, sizeof name, "%s.norm2", prefix);
    block.norm2 = mla_norm_declare(params, name, channels, spec->norm_eps);
    snprintf(name, sizeof name, "%s.mlp.fc1", prefix);
    block.fc1 = mla_linear_declare(params, name, channels, hidden, true, 0);
    snprintf(name, sizeof name, "%s.mlp.fc2", prefix);
    block.fc2 = mla_linear_declare(params, name, hidden, channels, true, 0);
    return block;
}

/* x + branch, the branch dropped for some images.  Each image draws from the stream (seed, drop path, epoch, sample);
 * `draw` says which of its numbers this branch takes. */
static mla_var drop_path(const mla_block *block, mla_tape *tape, mla_var x, mla_var branch, unsigned draw,
                         const mla_forward *forward) {
    const mla_tensor t = mla_value(tape, x);
    double *uniform = mla_tape_alloc(tape, (t.data ? t.shape[0] : 1) * sizeof(double));
    if (!uniform || !t.data) return MLA_NO_VAR;
    for (size_t b = 0; b < t.shape[0]; b++) {
        mla_rng rng = mla_rng_stream(forward->seed, MLA_RNG_DROP_PATH, forward->epoch, forward->samples[b]);
        for (unsigned i = 0; i <= draw; i++) uniform[b] = mla_rng_uniform(&rng);
    }
    return mla_drop_path(tape, x, branch, block->drop_path, uniform);
}

mla_var mla_block_forward(const mla_block *block, mla_tape *tape, mla_var x, const mla_forward *forward) {
    const bool drops = forward->training && block->drop_path > 0;
    mla_var y = mla_norm_forward(&block->norm1, tape, x);
    mla_probe_attention(forward->probe, &block->attention, y);
    y = mla_attention_forward(&block->attention, tape, y, drops ? MLA_NO_VAR : x);
    x = drops ? drop_path(block, tape, x, y, 2 * block->index, forward) : y;
    y = mla_norm_forward(&block->norm2, tape, x);
    y = mla_linear_forward(&block->fc1, tape, y, MLA_NO_VAR, MLA_GELU);
    y = mla_linear_forward(&block->fc2, tape, y, drops ? MLA_NO_VAR : x, MLA_IDENTITY);
    return drops ? drop_path(block, tape, x, y, 2 * block->index + 1, forward) : y;
}

mla_stage mla_stage_declare(mla_params *params, const char *prefix, const mla_model_spec *spec, int index, size_t side_in,
                            size_t channels_in, bool norm, mla_block *blocks, unsigned first_block) {
    char name[MLA_PARAM_NAME_BYTES];
    const size_t patch = index == 0 ? (size_t)spec->patch : 2, channels = (size_t)spec->dims[index];
    mla_stage stage = {.patch = patch,
                       .side_in = side_in,
                       .side = side_in / patch,
                       .first = index == 0,
                       .has_norm = norm,
                       .depth = spec->depths[index],
                       .blocks = blocks};
    const mla_init init = {MLA_INIT_NORMAL, 1 / sqrt((double)(channels_in * patch * patch))};
    snprintf(name, sizeof name, "%spatch_embed.proj.weight", prefix);
    stage.embed.weight = mla_params_add(params, name, 4, (size_t[]){channels, channels_in, patch, patch}, init, true);
    mla_params_mark_matrix(params, stage.embed.weight);
    snprintf(name, sizeof name, "%spatch_embed.proj.bias", prefix);
    stage.embed.bias = mla_params_add(params, name, 1, &channels, (mla_init){MLA_INIT_CONSTANT, 0}, false);
    snprintf(name, sizeof name, "%spatch_embed.norm", prefix);
    if (norm) stage.norm = mla_norm_declare(params, name, channels, spec->norm_eps);
    snprintf(name, sizeof name, "%spos_embed", prefix);
    stage.position = mla_params_add(params, name, 3, (size_t[]){1, stage.side * stage.side, channels},
                                    (mla_init){MLA_INIT_NORMAL, 0.02}, false);
    int total = 0;
    for (int i = 0; i < spec->stages; i++) total += spec->depths[i];
    for (int i = 0; i < stage.depth; i++) {
        const unsigned block = first_block + (unsigned)i;
        const double rate = total > 1 ? spec->drop_path * (double)block / (double)(total - 1) : spec->drop_path;
        snprintf(name, sizeof name, "%sblocks.%d", prefix, i);
        blocks[i] = mla_block_declare(params, name, channels, (size_t)spec->heads[index], stage.side, spec->kinds[index],
                                      spec, rate, block);
    }
    return stage;
}

mla_var mla_stage_forward(const mla_stage *stage, mla_tape *tape, mla_var x, const mla_forward *forward) {
    x = stage->first ? mla_patches(tape, x, stage->patch) : mla_patches_grid(tape, x, stage->side_in, stage->patch);
    x = mla_linear_forward(&stage->embed, tape, x, MLA_NO_VAR, MLA_IDENTITY);
    if (stage->has_norm) x = mla_norm_forward(&stage->norm, tape, x);
    x = mla_position(tape, x, mla_tape_param(tape, stage->position));
    for (int i = 0; i < stage->depth; i++) x = mla_block_forward(&stage->blocks[i], tape, x, forward);
    return x;
}
