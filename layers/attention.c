/* Attention layers: the table of kinds, and what all of them share. */
#include <stdio.h>

#include "layers/attention_kinds.h"

static const mla_attention_row *const kinds[MLA_ATTENTION_KINDS] = {
    [MLA_ATTENTION_SOFTMAX] = &mla_attention_softmax,     [MLA_ATTENTION_ELU1] = &mla_attention_elu1,
    [MLA_ATTENTION_RELU] = &mla_attention_relu,           [MLA_ATTENTION_PERFORMER] = &mla_attention_performer,
    [MLA_ATTENTION_COSFORMER] = &mla_attention_cosformer, [MLA_ATTENTION_EFFICIENT] = &mla_attention_efficient,
    [MLA_ATTENTION_FOCUSED] = &mla_attention_focused,     [MLA_ATTENTION_POLA] = &mla_attention_pola,
    [MLA_ATTENTION_INLINE] = &mla_attention_inline,       [MLA_ATTENTION_AGENT] = &mla_attention_agent,
    [MLA_ATTENTION_MIRROR] = &mla_attention_mirror,
};

mla_var mla_attention_third(const mla_attention *layer, mla_tape *tape, mla_var qkv, size_t i) {
    return mla_columns(tape, qkv, i * layer->channels, layer->channels);
}

int mla_attention_param(mla_params *params, const char *prefix, const char *name, int ndim, const size_t *shape,
                        mla_init init) {
    char full[MLA_PARAM_NAME_BYTES];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    return mla_params_add(params, full, ndim, shape, init, false);
}

mla_attention mla_attention_declare(mla_params *params, const char *prefix, size_t channels, size_t heads, size_t side,
                                    mla_attention_kind kind, const mla_attention_spec *spec) {
    char name[MLA_PARAM_NAME_BYTES];
    mla_attention layer = {.kind = kind,
                           .spec = *spec,
                           .channels = channels,
                           .heads = heads,
                           .side = side,
                           .dwconv_weight = -1,
                           .dwconv_bias = -1,
                           .gate = {-1, -1},
                           .projection = -1,
                           .qk_scale = -1,
                           .power = -1,
                           .block_v = -1,
                           .angle_a = -1,
                           .angle_c = -1,
                           .cross_v = -1,
                           .mirror = {-1, -1, -1, -1, -1, -1, -1}};
    snprintf(name, sizeof name, "%s.qkv", prefix);
    layer.qkv = mla_linear_declare(params, name, channels, 3 * channels, spec->qkv_bias, 0);
    snprintf(name, sizeof name, "%s.proj", prefix);
    layer.proj = mla_linear_declare(params, name, channels, channels, true, 0);
    if (kinds[kind]->linear && spec->dwconv) {
        const size_t k = (size_t)spec->dwconv;
        const mla_init init = {MLA_INIT_NORMAL, 1.0 / (double)k};
        layer.dwconv_weight = mla_attention_param(params, prefix, "dwconv.weight", 4, (size_t[]){channels, 1, k, k}, init);
        layer.dwconv_bias =
            mla_attention_param(params, prefix, "dwconv.bias", 1, &channels, (mla_init){MLA_INIT_CONSTANT, 0});
    }
    snprintf(name, sizeof name, "%s.gate", prefix);
    if (kinds[kind]->gated || (kinds[kind]->linear && spec->gate))
        layer.gate = mla_linear_declare(params, name, channels, channels, spec->qkv_bias, 0);
    if (kinds[kind]->declare) kinds[kind]->declare(&layer, params, prefix);
    return layer;
}

/* The mirror's block isometry is the same for every token, so it is applied to the projection's weight and bias: here,
 * unless that has been done for all shards (layers/prepared.h). */
mla_var mla_attention_project(const mla_attention *layer, mla_tape *tape, mla_var x) {
    const mla_param_form *form = mla_tape_form(tape, layer->qkv.weight);
    if (layer->block_v < 0 || (form && form->value))
        return mla_linear_forward(&layer->qkv, tape, x, MLA_NO_VAR, MLA_IDENTITY);
    const mla_var v = mla_tape_param(tape, layer->block_v);
    const mla_var weight = mla_block_reflect(tape, mla_tape_param(tape, layer->qkv.weight), v);
    const mla_var bias =
        layer->qkv.bias < 0 ? MLA_NO_VAR : mla_block_reflect(tape, mla_tape_param(tape, layer->qkv.bias), v);
    return mla_linear(tape, x, weight, bias, MLA_NO_VAR, MLA_IDENTITY);
}

mla_var mla_attention_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return kinds[layer->kind]->core(layer, tape, qkv);
}

bool mla_attention_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    *fq = *fk = MLA_NO_VAR;
    if (!kinds[layer->kind]->features) return false;
    kinds[layer->kind]->features(layer, tape, qkv, fq, fk);
    return true;
}

mla_var mla_attention_forward(const mla_attention *layer, mla_tape *tape, mla_var x, mla_var residual) {
    const mla_var qkv = mla_attention_project(layer, tape, x);
    mla_var y = mla_attention_core(layer, tape, qkv);
    if (layer->dwconv_weight >= 0)
        y = mla_depthwise_conv(tape, mla_attention_third(layer, tape, qkv, 2), mla_tape_param(tape, layer->dwconv_weight),
                               mla_tape_param(tape, layer->dwconv_bias), y, layer->side, layer->side);
    if (layer->gate.weight >= 0)
        y = mla_product(tape, y, mla_linear_forward(&layer->gate, tape, x, MLA_NO_VAR, MLA_IDENTITY));
    return mla_linear_forward(&layer->proj, tape, y, residual, MLA_IDENTITY);
}
