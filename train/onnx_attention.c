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

/* What sets a kind apart. */
typedef struct kind_row {
    value (*core)(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received);
    /* Linear kinds: qk (B, N, 2C) -> features of q and of k, (B, N, h D) each. */
    void (*features)(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]);
    bool paired;   /* they are of twice as many heads, two for the two halves of v */
    bool no_floor; /* of the denominator */
} kind_row;
static const kind_row *kind_of(const mla_attention *layer);

/* (B, N, h D) -> (B, h, N, D), or `transposed` (B, h, D, N); h counts paired heads twice. */
static value by_head(mla_onnx_graph *g, const mla_attention *layer, value x, bool transposed) {
    const int64_t heads = (int64_t)layer->heads << kind_of(layer)->paired, d = x.shape[2] / heads;
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

/* q, k and v, (B, N, C) each. */
static void split_qkv(mla_onnx_graph *g, const mla_attention *layer, value qkv, value part[3]) {
    const int64_t channels = (int64_t)layer->channels;
    mla_onnx_split(g, part, 3, (int64_t[]){channels, channels, channels}, qkv, 2);
}

static double score_scale(const mla_attention *layer) { return 1 / sqrt((double)layer->channels / (double)layer->heads); }

/* The mean over the queries of (B, h, N, ..), which stay as one. */
static value over_queries(mla_onnx_graph *g, value x) { return mla_onnx_mean(g, x, 1, (int64_t[]){2}, true); }

/* softmax(q k^T / sqrt(d)) of q (B, M, C) and k (B, N, C) -> (B, h, M, N) */
static value softmax_shares(mla_onnx_graph *g, const mla_attention *layer, value q, value k) {
    const value scale = mla_onnx_scalar(g, score_scale(layer));
    const value scaled = mla_onnx_binary(g, "Mul", by_head(g, layer, q, false), scale);
    return mla_onnx_softmax(g, mla_onnx_matmul(g, scaled, by_head(g, layer, k, true)));
}

static value softmax_core(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received) {
    mla_onnx_graph *g = b->graph;
    value part[3];
    split_qkv(g, layer, qkv, part);
    const value share = softmax_shares(g, layer, part[0], part[1]);
    if (received) *received = over_heads(g, over_queries(g, share));
    return join_heads(g, mla_onnx_matmul(g, share, by_head(g, layer, part[2], false)));
}

/* y = softmax over channels (q) S, S = (softmax over tokens (k))^T v */
static value efficient_core(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received) {
    mla_onnx_graph *g = b->graph;
    value part[3];
    split_qkv(g, layer, qkv, part);
    const value fq = mla_onnx_softmax(g, by_head(g, layer, part[0], false));
    const value fk = mla_onnx_softmax(g, by_head(g, layer, part[1], true));
    if (received) *received = over_heads(g, mla_onnx_matmul(g, over_queries(g, fq), fk));
    return join_heads(g, mla_onnx_matmul(g, fq, mla_onnx_matmul(g, fk, by_head(g, layer, part[2], false))));
}

/* y = mean v + (q / (N sqrt d)) S, S = (k - mean k)^T (v - mean v) */
static value injective_core(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received) {
    mla_onnx_graph *g = b->graph;
    const double tokens = (double)qkv.shape[1];
    value part[3];
    split_qkv(g, layer, qkv, part);
    const value q =
        mla_onnx_binary(g, "Mul", by_head(g, layer, part[0], false), mla_onnx_scalar(g, score_scale(layer) / tokens));
    const value k = by_head(g, layer, part[1], true), v = by_head(g, layer, part[2], false), mean = over_queries(g, v);
    const value k_part = mla_onnx_binary(g, "Sub", k, mla_onnx_mean(g, k, 1, (int64_t[]){3}, true));
    const value v_part = mla_onnx_binary(g, "Sub", v, mean);
    if (received)
        *received = over_heads(
            g, mla_onnx_binary(g, "Add", mla_onnx_matmul(g, over_queries(g, q), k_part), mla_onnx_scalar(g, 1 / tokens)));
    return join_heads(g, mla_onnx_binary(g, "Add", mla_onnx_matmul(g, q, mla_onnx_matmul(g, k_part, v_part)), mean));
}

/* Means over the cells of a grid, rows and columns one after the other: each a product with a matrix (out, side). */
static value grid_pool(mla_onnx_graph *g, const mla_attention *layer, value x) {
    const size_t side = layer->side, out = (size_t)layer->spec.agent.side;
    const int64_t rows = (int64_t)side, cells = (int64_t)out, channels = (int64_t)layer->channels;
    float *share = mla_onnx_alloc(g, out * side * sizeof *share);
    if (!share) return x;
    for (size_t i = 0; i < out; i++) {
        const size_t first = i * side / out, end = ((i + 1) * side + out - 1) / out;
        for (size_t j = 0; j < side; j++) share[i * side + j] = j >= first && j < end ? 1 / (float)(end - first) : 0;
    }
    char name[64];
    snprintf(name, sizeof name, "pool.%zu.%zu", side, out);
    const value matrix = mla_onnx_weight(g, name, 2, (int64_t[]){cells, rows}, share);
    x = mla_onnx_matmul(g, matrix, mla_onnx_reshape(g, x, 3, (int64_t[]){MLA_ONNX_BATCH, rows, rows * channels}));
    x = mla_onnx_matmul(g, matrix, mla_onnx_reshape(g, x, 4, (int64_t[]){MLA_ONNX_BATCH, cells, rows, channels}));
    return mla_onnx_reshape(g, x, 3, (int64_t[]){MLA_ONNX_BATCH, cells * cells, channels});
}

/* y = softmax(q a^T / sqrt(d)) (softmax(a k^T / sqrt(d)) v), a = pooled q */
static value agent_core(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received) {
    mla_onnx_graph *g = b->graph;
    value part[3];
    split_qkv(g, layer, qkv, part);
    const value agents = grid_pool(g, layer, part[0]);
    const value gather = softmax_shares(g, layer, agents, part[1]), spread = softmax_shares(g, layer, part[0], agents);
    if (received) *received = over_heads(g, mla_onnx_matmul(g, over_queries(g, spread), gather));
    return join_heads(g, mla_onnx_matmul(g, spread, mla_onnx_matmul(g, gather, by_head(g, layer, part[2], false))));
}

/* y = fq S / (fq z + eps), S = (1/N) fk^T v, z = (1/N) sum fk */
static value linear_core(const mla_onnx_builder *b, const mla_attention *layer, value qkv, value *received) {
    mla_onnx_graph *g = b->graph;
    const int64_t channels = (int64_t)layer->channels;
    const value share = mla_onnx_scalar(g, 1 / (double)qkv.shape[1]);
    value half[2], part[2];
    mla_onnx_split(g, half, 2, (int64_t[]){2 * channels, channels}, qkv, 2);
    kind_of(layer)->features(b, layer, half[0], part);
    const value fq = by_head(g, layer, part[0], false), fk = by_head(g, layer, part[1], true);
    const value v = by_head(g, layer, half[1], false);
    const value state = mla_onnx_binary(g, "Mul", mla_onnx_matmul(g, fk, v), share);
    const value total = mla_onnx_mean(g, fk, 1, (int64_t[]){3}, true);
    const value den = mla_onnx_binary(g, "Add", mla_onnx_matmul(g, fq, total),
                                      mla_onnx_scalar(g, kind_of(layer)->no_floor ? 0 : layer->spec.eps));
    if (received) {
        const value query = mla_onnx_mean(g, mla_onnx_binary(g, "Div", fq, den), 1, (int64_t[]){2}, true);
        *received = over_heads(g, mla_onnx_binary(g, "Mul", mla_onnx_matmul(g, query, fk), share));
    }
    return join_heads(g, mla_onnx_binary(g, "Div", mla_onnx_matmul(g, fq, state), den));
}

static const kind_row kinds[] = {
    [MLA_ATTENTION_SOFTMAX] = {.core = softmax_core},
    [MLA_ATTENTION_ELU1] = {.core = linear_core, .features = elu1_features},
    [MLA_ATTENTION_RELU] = {.core = linear_core, .features = relu_features},
    [MLA_ATTENTION_PERFORMER] = {.core = linear_core, .features = mla_onnx_performer, .no_floor = true},
    [MLA_ATTENTION_COSFORMER] = {.core = linear_core, .features = mla_onnx_cosformer},
    [MLA_ATTENTION_EFFICIENT] = {.core = efficient_core},
    [MLA_ATTENTION_FOCUSED] = {.core = linear_core, .features = mla_onnx_focused},
    [MLA_ATTENTION_POLA] = {.core = linear_core, .features = mla_onnx_pola, .paired = true},
    [MLA_ATTENTION_INLINE] = {.core = injective_core},
    [MLA_ATTENTION_AGENT] = {.core = agent_core},
    [MLA_ATTENTION_MIRROR] = {.core = linear_core, .features = mla_onnx_mirror},
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
