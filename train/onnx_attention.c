/* Attention as ONNX nodes: one row a kind.  A linear kind is its features; the rest is shared.  Formulas: docs/math.md. */
#include <math.h>
#include <stdio.h>

#include "autograd/ops.h"
#include "train/onnx_layers.h"

typedef mla_onnx_value value;

/* ---- feature maps, element by element; others stand in onnx_features.c */

static value relu(mla_onnx_graph *graph, value x) { return mla_onnx_unary(graph, "Relu", x); }

/* elu(x) + 1 = relu(x) + exp(min(x, 0)): nothing is lost where it is near zero, as it would be in (exp(x) - 1) + 1. */
static value elu1(mla_onnx_graph *graph, value x) {
    const value below = mla_onnx_binary(graph, "Min", x, mla_onnx_scalar(graph, 0));
    return mla_onnx_binary(graph, "Add", relu(graph, x), mla_onnx_unary(graph, "Exp", below));
}

/* (B, N, 2C) -> q and k, (B, N, C) each */
static void parts(const mla_onnx_builder *b, const mla_attention *layer, value qk, value part[2]) {
    mla_onnx_split(b->graph, part, 2, (int64_t[]){(int64_t)layer->channels, (int64_t)layer->channels}, qk, 2);
}

static void relu_features(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]) {
    parts(b, layer, relu(b->graph, qk), features);
}

static void elu1_features(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]) {
    parts(b, layer, elu1(b->graph, qk), features);
}

/* ---- cores: qkv (B, N, 3C) -> (B, N, C) */

/* (B, N, h D) -> (B, h, N, D), or `transposed` (B, h, D, N). */
static value by_head(mla_onnx_graph *g, int64_t heads, value x, bool transposed) {
    const int64_t d = x.shape[2] / heads;
    const value split = mla_onnx_reshape(g, x, 4, (int64_t[]){MLA_ONNX_BATCH, x.shape[1], heads, d});
    return mla_onnx_transpose(g, split, transposed ? (int64_t[]){0, 2, 3, 1} : (int64_t[]){0, 2, 1, 3});
}

/* (B, h, N, d) -> (B, N, C) */
static value join_heads(mla_onnx_graph *g, value x) {
    const int64_t tokens = x.shape[2], channels = x.shape[1] * x.shape[3];
    const value y = mla_onnx_transpose(g, x, (int64_t[]){0, 2, 1, 3});
    return mla_onnx_reshape(g, y, 3, (int64_t[]){MLA_ONNX_BATCH, tokens, channels});
}

/* Attention received, (B, h, 1, N), as its mean over the heads, (B, N). */
static value over_heads(mla_onnx_graph *g, value x) { return mla_onnx_mean(g, x, 2, (int64_t[]){1, 2}, false); }

/* What sets a kind apart. */
typedef struct kind_row {
    value (*core)(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received);
    /* Linear kinds: qk (B, N, 2C) -> features of q and of k, (B, N, h D) each. */
    void (*features)(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]);
    bool paired;   /* they are of twice as many heads, two for the two halves of v */
    bool no_floor; /* of the denominator */
} kind_row;
static const kind_row *kind_of(const mla_attention *layer);

static value softmax_core(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received) {
    mla_onnx_graph *g = b->graph;
    const int64_t channels = (int64_t)layer->channels, heads = (int64_t)layer->heads;
    value part[3];
    mla_onnx_split(g, part, 3, (int64_t[]){channels, channels, channels}, qkv, 2);
    const double scale = 1 / sqrt((double)layer->channels / (double)layer->heads);
    const value q = mla_onnx_binary(g, "Mul", by_head(g, heads, part[0], false), mla_onnx_scalar(g, scale));
    const value share = mla_onnx_softmax(g, mla_onnx_matmul(g, q, by_head(g, heads, part[1], true)));
    if (received) *received = over_heads(g, mla_onnx_mean(g, share, 1, (int64_t[]){2}, true));
    return join_heads(g, mla_onnx_matmul(g, share, by_head(g, heads, part[2], false)));
}

/* y = fq S / (fq z + eps), S = (1/N) fk^T v, z = (1/N) sum fk */
static value linear_core(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received) {
    mla_onnx_graph *g = b->graph;
    const kind_row *kind = kind_of(layer);
    const int64_t channels = (int64_t)layer->channels, heads = (int64_t)layer->heads << kind->paired;
    const value share = mla_onnx_scalar(g, 1 / (double)qkv.shape[1]);
    value half[2], part[2];
    mla_onnx_split(g, half, 2, (int64_t[]){2 * channels, channels}, qkv, 2);
    kind->features(b, layer, half[0], part);
    const value fq = by_head(g, heads, part[0], false), fk = by_head(g, heads, part[1], true);
    const value v = by_head(g, heads, half[1], false);
    const value state = mla_onnx_binary(g, "Mul", mla_onnx_matmul(g, fk, v), share);
    const value total = mla_onnx_mean(g, fk, 1, (int64_t[]){3}, true);
    const value den =
        mla_onnx_binary(g, "Add", mla_onnx_matmul(g, fq, total), mla_onnx_scalar(g, kind->no_floor ? 0 : layer->spec.eps));
    if (received) {
        const value query = mla_onnx_mean(g, mla_onnx_binary(g, "Div", fq, den), 1, (int64_t[]){2}, true);
        *received = over_heads(g, mla_onnx_binary(g, "Mul", mla_onnx_matmul(g, query, fk), share));
    }
    return join_heads(g, mla_onnx_binary(g, "Div", mla_onnx_matmul(g, fq, state), den));
}

static const kind_row kinds[] = {
    [MLA_ATTENTION_SOFTMAX] = {softmax_core, NULL, false, false},
    [MLA_ATTENTION_RELU] = {linear_core, relu_features, false, false},
    [MLA_ATTENTION_ELU1] = {linear_core, elu1_features, false, false},
    [MLA_ATTENTION_PERFORMER] = {linear_core, mla_onnx_performer, false, true},
    [MLA_ATTENTION_COSFORMER] = {linear_core, mla_onnx_cosformer, false, false},
    [MLA_ATTENTION_FOCUSED] = {linear_core, mla_onnx_focused, false, false},
    [MLA_ATTENTION_POLA] = {linear_core, mla_onnx_pola, true, false},
    [MLA_ATTENTION_MIRROR] = {linear_core, mla_onnx_mirror, false, false},
};

bool mla_onnx_attention_known(mla_attention_kind kind) {
    return (size_t)kind < sizeof kinds / sizeof *kinds && kinds[kind].core;
}

static const kind_row *kind_of(const mla_attention *layer) { return &kinds[layer->kind]; }

/* ---- the layer */

/* A parameter of the projection with the block isometry applied, as a constant of its own. */
static value folded(const mla_onnx_builder *b, const mla_attention *layer, int param) {
    const mla_param *p = &b->params->entry[param];
    const mla_var v = mla_tape_param(b->tape, layer->block_v);
    const mla_tensor t = mla_value(b->tape, mla_block_reflect(b->tape, mla_tape_param(b->tape, param), v));
    char name[MLA_PARAM_NAME_BYTES + 8];
    int64_t shape[2] = {(int64_t)p->shape[0], (int64_t)p->shape[1]};
    snprintf(name, sizeof name, "%s.folded", p->name);
    return mla_onnx_weight(b->graph, name, p->ndim, shape, t.data);
}

static value qkv(const mla_onnx_builder *b, const mla_attention *layer, value x) {
    if (layer->block_v < 0) return mla_onnx_linear(b, &layer->qkv, x);
    mla_onnx_scope_of(b, layer->qkv.weight, 1);
    const value weight = folded(b, layer, layer->qkv.weight);
    return mla_onnx_project(b->graph, x, weight, layer->qkv.bias < 0 ? (value){0} : folded(b, layer, layer->qkv.bias));
}

value mla_onnx_attention(const mla_onnx_builder *b, const mla_attention *layer, value x, value *received) {
    mla_onnx_graph *g = b->graph;
    const value projected = qkv(b, layer, x);
    mla_onnx_scope_of(b, layer->qkv.weight, 2);
    value y = kind_of(layer)->core(b, layer, projected, received);
    if (layer->dwconv_weight >= 0) {
        const int64_t channels = (int64_t)layer->channels;
        value part[2];
        mla_onnx_split(g, part, 2, (int64_t[]){2 * channels, channels}, projected, 2);
        const value weight = mla_onnx_param(b, layer->dwconv_weight), bias = mla_onnx_param(b, layer->dwconv_bias);
        const value local =
            mla_onnx_conv(g, mla_onnx_to_image(g, part[1], layer->side), weight, bias, 1, weight.shape[3] / 2, channels);
        y = mla_onnx_binary(g, "Add", y, mla_onnx_to_tokens(g, local));
    }
    if (layer->gate.weight >= 0) y = mla_onnx_binary(g, "Mul", y, mla_onnx_linear(b, &layer->gate, x));
    return mla_onnx_linear(b, &layer->proj, y);
}
