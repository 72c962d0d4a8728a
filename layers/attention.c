/* Attention layers: one row a kind. */
#include <stdio.h>

#include "layers/layers.h"

/* Parameters of a kind beyond the projections, and its core: qkv (B, N, 3C) -> (B, N, C). */
typedef struct kind_row {
    bool linear; /* takes the depthwise convolution of v */
    void (*declare)(mla_attention *layer, mla_params *params, const char *prefix);
    mla_var (*core)(const mla_attention *layer, mla_tape *tape, mla_var qkv);
} kind_row;

static mla_var third(const mla_attention *layer, mla_tape *tape, mla_var qkv, size_t i) {
    return mla_columns(tape, qkv, i * layer->channels, layer->channels);
}

static int declare(mla_params *params, const char *prefix, const char *name, int ndim, const size_t *shape, mla_init init) {
    char full[MLA_PARAM_NAME_BYTES];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    return mla_params_add(params, full, ndim, shape, init, false);
}

static mla_var softmax_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return mla_softmax_attention(tape, third(layer, tape, qkv, 0), third(layer, tape, qkv, 1), third(layer, tape, qkv, 2),
                                 layer->heads);
}

static mla_var mapped_core(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_feature_map map) {
    return mla_linear_attention(tape, third(layer, tape, qkv, 0), third(layer, tape, qkv, 1), third(layer, tape, qkv, 2),
                                layer->heads, map, layer->spec.eps);
}

static mla_var relu_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return mapped_core(layer, tape, qkv, MLA_FEATURE_RELU);
}

static mla_var elu1_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return mapped_core(layer, tape, qkv, MLA_FEATURE_ELU1);
}

static void mirror_declare(mla_attention *layer, mla_params *params, const char *prefix) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const size_t channels = layer->channels, d = channels / layer->heads, b = m->block ? (size_t)m->block : d;
    const mla_init pairs = {MLA_INIT_REFLECTION_PAIRS, 0.1};
    if (m->reflections)
        layer->block_v =
            declare(params, prefix, "block_v", 4, (size_t[]){layer->heads, d / b, (size_t)m->reflections, b}, pairs);
    if (m->variance_angle) {
        const size_t planes = channels / 2;
        layer->angle_a = declare(params, prefix, "angle_a", 1, &planes, (mla_init){MLA_INIT_CONSTANT, m->angle_gain});
        layer->angle_c = declare(params, prefix, "angle_c", 1, &planes, (mla_init){MLA_INIT_CONSTANT, 0});
    }
    if (m->cross_head)
        layer->cross_v = declare(params, prefix, "cross_v", 2, (size_t[]){(size_t)m->cross_head, channels}, pairs);
}

/* The block isometry stands in the projection already (project). */
static mla_var mirror_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    const size_t channels = layer->channels;
    const bool turns = layer->angle_a >= 0, reflects = layer->cross_v >= 0;
    if (!turns && !reflects) return relu_core(layer, tape, qkv);
    const mla_var a = turns ? mla_tape_param(tape, layer->angle_a) : MLA_NO_VAR;
    const mla_var c = turns ? mla_tape_param(tape, layer->angle_c) : MLA_NO_VAR;
    const mla_var u = reflects ? mla_tape_param(tape, layer->cross_v) : MLA_NO_VAR;
    const double angle_max = layer->spec.mirror.angle_max, eps = layer->spec.eps;
    if (mla_mirror_attention_fits(channels)) return mla_mirror_attention(tape, qkv, a, c, u, layer->heads, angle_max, eps);
    /* Step by step where the channels do not fill whole vectors. */
    mla_var qk = mla_columns(tape, qkv, 0, 2 * channels);
    if (turns) qk = mla_pair_angle(tape, qk, a, c, angle_max);
    if (reflects) qk = mla_cross_reflect(tape, qk, u);
    return mla_linear_attention(tape, mla_columns(tape, qk, 0, channels), mla_columns(tape, qk, channels, channels),
                                third(layer, tape, qkv, 2), layer->heads, MLA_FEATURE_RELU, eps);
}

static const kind_row kinds[] = {
    [MLA_ATTENTION_SOFTMAX] = {false, NULL, softmax_core},
    [MLA_ATTENTION_RELU] = {true, NULL, relu_core},
    [MLA_ATTENTION_ELU1] = {true, NULL, elu1_core},
    [MLA_ATTENTION_MIRROR] = {true, mirror_declare, mirror_core},
};

mla_attention mla_attention_declare(mla_params *params, const char *prefix, size_t channels, size_t heads, size_t side,
                                    const mla_attention_spec *spec) {
    char name[MLA_PARAM_NAME_BYTES];
    mla_attention layer = {.spec = *spec,
                           .channels = channels,
                           .heads = heads,
                           .side = side,
                           .dwconv_weight = -1,
                           .dwconv_bias = -1,
                           .block_v = -1,
                           .angle_a = -1,
                           .angle_c = -1,
                           .cross_v = -1};
    snprintf(name, sizeof name, "%s.qkv", prefix);
    layer.qkv = mla_linear_declare(params, name, channels, 3 * channels, spec->qkv_bias, 0);
    snprintf(name, sizeof name, "%s.proj", prefix);
    layer.proj = mla_linear_declare(params, name, channels, channels, true, 0);
    if (kinds[spec->kind].linear && spec->dwconv) {
        const size_t k = (size_t)spec->dwconv;
        const mla_init init = {MLA_INIT_NORMAL, 1.0 / (double)k};
        layer.dwconv_weight = declare(params, prefix, "dwconv.weight", 4, (size_t[]){channels, 1, k, k}, init);
        layer.dwconv_bias = declare(params, prefix, "dwconv.bias", 1, &channels, (mla_init){MLA_INIT_CONSTANT, 0});
    }
    if (kinds[spec->kind].declare) kinds[spec->kind].declare(&layer, params, prefix);
    return layer;
}

/* x (B, N, C) -> qkv (B, N, 3C).  The mirror's block isometry is the same for every token, so it is applied to the
 * projection's weight and bias: here, unless that has been done for all shards (layers/prepared.h). */
static mla_var project(const mla_attention *layer, mla_tape *tape, mla_var x) {
    const mla_param_form *form = mla_tape_form(tape, layer->qkv.weight);
    if (layer->block_v < 0 || (form && form->value))
        return mla_linear_forward(&layer->qkv, tape, x, MLA_NO_VAR, MLA_IDENTITY);
    const mla_var v = mla_tape_param(tape, layer->block_v);
    const mla_var weight = mla_block_reflect(tape, mla_tape_param(tape, layer->qkv.weight), v);
    const mla_var bias =
        layer->qkv.bias < 0 ? MLA_NO_VAR : mla_block_reflect(tape, mla_tape_param(tape, layer->qkv.bias), v);
    return mla_linear(tape, x, weight, bias, MLA_NO_VAR, MLA_IDENTITY);
}

mla_var mla_attention_forward(const mla_attention *layer, mla_tape *tape, mla_var x, mla_var residual) {
    const mla_var qkv = project(layer, tape, x);
    mla_var y = kinds[layer->spec.kind].core(layer, tape, qkv);
    if (layer->dwconv_weight >= 0)
        y = mla_depthwise_conv(tape, third(layer, tape, qkv, 2), mla_tape_param(tape, layer->dwconv_weight),
                               mla_tape_param(tape, layer->dwconv_bias), y, layer->side, layer->side);
    return mla_linear_forward(&layer->proj, tape, y, residual, MLA_IDENTITY);
}
