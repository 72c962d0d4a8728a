/* Softmax attention, and linear attention with the feature maps of other papers. */
#include <math.h>

#include "layers/attention_kinds.h"

static mla_var softmax_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return mla_softmax_attention(tape, mla_attention_third(layer, tape, qkv, 0), mla_attention_third(layer, tape, qkv, 1),
                                 mla_attention_third(layer, tape, qkv, 2), layer->heads);
}

static mla_var mapped_core(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_feature_map map) {
    return mla_linear_attention(tape, mla_attention_third(layer, tape, qkv, 0), mla_attention_third(layer, tape, qkv, 1),
                                mla_attention_third(layer, tape, qkv, 2), layer->heads, map, layer->spec.eps);
}

static void mapped_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_feature_map map, mla_var *fq,
                            mla_var *fk) {
    *fq = mla_features(tape, mla_attention_third(layer, tape, qkv, 0), map);
    *fk = mla_features(tape, mla_attention_third(layer, tape, qkv, 1), map);
}

static mla_var relu_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return mapped_core(layer, tape, qkv, MLA_FEATURE_RELU);
}

static void relu_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    mapped_features(layer, tape, qkv, MLA_FEATURE_RELU, fq, fk);
}

static mla_var elu1_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return mapped_core(layer, tape, qkv, MLA_FEATURE_ELU1);
}

static void elu1_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    mapped_features(layer, tape, qkv, MLA_FEATURE_ELU1, fq, fk);
}

/* ---- kinds whose feature maps are operations of their own */

/* Linear attention of what `features` gives, with `heads` heads and the floor `eps`. */
static mla_var given_core(const mla_attention *layer, mla_tape *tape, mla_var qkv, size_t heads, double eps,
                          void (*features)(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq,
                                           mla_var *fk)) {
    mla_var fq, fk;
    features(layer, tape, qkv, &fq, &fk);
    return mla_linear_attention(tape, fq, fk, mla_attention_third(layer, tape, qkv, 2), heads, MLA_FEATURE_GIVEN, eps);
}

/* As many as the estimate of softmax needs for a given error, m = d ln d (arXiv 2009.14794, theorem 4). */
static void performer_declare(mla_attention *layer, mla_params *params, const char *prefix) {
    const size_t d = layer->channels / layer->heads, some = (size_t)((double)d * log((double)d));
    const size_t features = layer->spec.performer_features ? (size_t)layer->spec.performer_features : some ? some : 1;
    layer->projection = mla_attention_param(params, prefix, "projection_matrix", 2, (size_t[]){features, d},
                                            (mla_init){MLA_INIT_ORTHOGONAL_ROWS, 1});
    mla_params_fix(params, layer->projection);
}

static void performer_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    const mla_var w = mla_tape_param(tape, layer->projection);
    *fq = mla_positive_features(tape, mla_attention_third(layer, tape, qkv, 0), w, layer->heads, true);
    *fk = mla_positive_features(tape, mla_attention_third(layer, tape, qkv, 1), w, layer->heads, false);
}

/* Without a floor: no feature is below 1e-6 / sqrt(m), and once the largest exponents are taken off, the denominator is
 * small by itself (1e-7 for ordinary q and k), so that a floor would take most of the output away. */
static mla_var performer_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return given_core(layer, tape, qkv, layer->heads, 0, performer_features);
}

static void cosformer_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    *fq = mla_cosine_features(tape, mla_attention_third(layer, tape, qkv, 0), layer->heads);
    *fk = mla_cosine_features(tape, mla_attention_third(layer, tape, qkv, 1), layer->heads);
}

static mla_var cosformer_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return given_core(layer, tape, qkv, layer->heads, layer->spec.eps, cosformer_features);
}

/* q (0) or k (1) over the learned scale that both share. */
static mla_var scaled(const mla_attention *layer, mla_tape *tape, mla_var qkv, size_t i) {
    return mla_soft_scale(tape, mla_attention_third(layer, tape, qkv, i), mla_tape_param(tape, layer->qk_scale));
}

/* One value a head and channel, zeros. */
static int channel_param(const mla_attention *layer, mla_params *params, const char *prefix, const char *name) {
    return mla_attention_param(params, prefix, name, 3, (size_t[]){layer->heads, 1, layer->channels / layer->heads},
                               (mla_init){MLA_INIT_CONSTANT, 0});
}

static void focused_declare(mla_attention *layer, mla_params *params, const char *prefix) {
    layer->qk_scale = channel_param(layer, params, prefix, "qk_scale");
}

static void focused_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    *fq = mla_focused_features(tape, scaled(layer, tape, qkv, 0), layer->heads, layer->spec.focused_factor);
    *fk = mla_focused_features(tape, scaled(layer, tape, qkv, 1), layer->heads, layer->spec.focused_factor);
}

static mla_var focused_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return given_core(layer, tape, qkv, layer->heads, layer->spec.eps, focused_features);
}

static void pola_declare(mla_attention *layer, mla_params *params, const char *prefix) {
    layer->qk_scale = channel_param(layer, params, prefix, "qk_scale");
    layer->power = channel_param(layer, params, prefix, "power");
}

static void pola_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    const mla_var power = mla_tape_param(tape, layer->power);
    *fq = mla_polar_features(tape, scaled(layer, tape, qkv, 0), power, layer->heads, true);
    *fk = mla_polar_features(tape, scaled(layer, tape, qkv, 1), power, layer->heads, false);
}

/* Each head is two, one for each half of its v. */
static mla_var pola_core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    return given_core(layer, tape, qkv, 2 * layer->heads, layer->spec.eps, pola_features);
}

const mla_attention_row mla_attention_softmax = {.core = softmax_core};
const mla_attention_row mla_attention_relu = {.linear = true, .core = relu_core, .features = relu_features};
const mla_attention_row mla_attention_elu1 = {.linear = true, .core = elu1_core, .features = elu1_features};
const mla_attention_row mla_attention_performer = {
    .linear = true, .declare = performer_declare, .core = performer_core, .features = performer_features};
const mla_attention_row mla_attention_cosformer = {.linear = true, .core = cosformer_core, .features = cosformer_features};
const mla_attention_row mla_attention_focused = {
    .linear = true, .declare = focused_declare, .core = focused_core, .features = focused_features};
const mla_attention_row mla_attention_pola = {
    .linear = true, .gated = true, .declare = pola_declare, .core = pola_core, .features = pola_features};
