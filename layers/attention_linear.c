/* Softmax attention, and linear attention with a feature map that has no parameters. */
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

const mla_attention_row mla_attention_softmax = {.core = softmax_core};
const mla_attention_row mla_attention_relu = {.linear = true, .core = relu_core, .features = relu_features};
const mla_attention_row mla_attention_elu1 = {.linear = true, .core = elu1_core, .features = elu1_features};
