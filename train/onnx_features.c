/* Feature maps of linear kinds as ONNX nodes: qk (B, N, 2C), after what the kind does to it before -> features of q and of
 * k, (B, N, h D) each.  Formulas: the operations of the same names in autograd/ops/, docs/math.md. */
#include <math.h>
#include <stdio.h>

#include "train/onnx_layers.h"

typedef mla_onnx_value value;

static int64_t width_of(const mla_attention *layer) { return (int64_t)(layer->channels / layer->heads); }

/* (B, N, 2C) -> (B, N, 2, h, d) */
static value by_head(mla_onnx_graph *g, const mla_attention *layer, value qk) {
    return mla_onnx_reshape(g, qk, 5, (int64_t[]){MLA_ONNX_BATCH, qk.shape[1], 2, (int64_t)layer->heads, width_of(layer)});
}

/* (B, N, ., h, D) -> (B, N, . h D) */
static value joined(mla_onnx_graph *g, value x) {
    return mla_onnx_reshape(g, x, 3, (int64_t[]){MLA_ONNX_BATCH, x.shape[1], x.shape[2] * x.shape[3] * x.shape[4]});
}

/* (B, N, 2, h, D) -> q and k, (B, N, 1, h, D) each */
static void halves(mla_onnx_graph *g, value half[2], value x) { mla_onnx_split(g, half, 2, (int64_t[]){1, 1}, x, 2); }

/* A constant made of parameter `param`, called after it; `values` are the graph's. */
static value made_of(const mla_onnx_builder *b, int param, const char *what, int ndim, const int64_t *shape,
                     const float *values) {
    char name[MLA_PARAM_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s.%s", b->params->entry[param].name, what);
    return mla_onnx_weight(b->graph, name, ndim, shape, values);
}

/* One number a head and channel, (1, 1, 1, h, d), of those of parameter `param`. */
static value per_channel(const mla_onnx_builder *b, const mla_attention *layer, int param, const char *what,
                         double (*function)(double)) {
    float *values = mla_onnx_alloc(b->graph, layer->channels * sizeof *values);
    const float *from = b->params->value + b->params->entry[param].offset;
    for (size_t i = 0; values && i < layer->channels; i++) values[i] = (float)function((double)from[i]);
    return made_of(b, param, what, 5, (int64_t[]){1, 1, 1, (int64_t)layer->heads, width_of(layer)}, values);
}

static double inverse_softplus_value(double s) { return 1 / (fmax(s, 0) + log1p(exp(-fabs(s)))); }
static double power_value(double s) { return 1 + 4 / (1 + exp(-s)); }

static value scaled(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    return mla_onnx_binary(b->graph, "Mul", by_head(b->graph, layer, qk),
                           per_channel(b, layer, layer->qk_scale, "inverse", inverse_softplus_value));
}

/* sqrt(mean of squares over the last dimension) */
static value root_mean_square(mla_onnx_graph *g, value x) {
    return mla_onnx_unary(g, "Sqrt", mla_onnx_mean(g, mla_onnx_binary(g, "Mul", x, x), 1, (int64_t[]){4}, true));
}

void mla_onnx_focused(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]) {
    mla_onnx_graph *g = b->graph;
    const value r = mla_onnx_binary(g, "Add", mla_onnx_unary(g, "Relu", scaled(b, layer, qk)), mla_onnx_scalar(g, 1e-6));
    const value relative = mla_onnx_binary(g, "Div", r, mla_onnx_max(g, r, 1, (int64_t[]){4}));
    const value w = mla_onnx_binary(g, "Pow", relative, mla_onnx_scalar(g, layer->spec.focused_factor));
    const value length = mla_onnx_binary(g, "Div", root_mean_square(g, r), root_mean_square(g, w));
    halves(g, features, mla_onnx_binary(g, "Mul", w, length));
    for (int i = 0; i < 2; i++) features[i] = joined(g, features[i]);
}

void mla_onnx_pola(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]) {
    mla_onnx_graph *g = b->graph;
    const value x = scaled(b, layer, qk), power = per_channel(b, layer, layer->power, "value", power_value);
    const value plus = mla_onnx_binary(g, "Pow", mla_onnx_unary(g, "Relu", x), power);
    const value minus = mla_onnx_binary(g, "Pow", mla_onnx_unary(g, "Relu", mla_onnx_unary(g, "Neg", x)), power);
    value same[2], crossed[2];
    halves(g, same, mla_onnx_concat(g, plus, minus, 4));
    halves(g, crossed, mla_onnx_concat(g, minus, plus, 4));
    features[0] = joined(g, mla_onnx_concat(g, same[0], crossed[0], 4));
    features[1] = joined(g, mla_onnx_concat(g, same[1], same[1], 4));
}

/* cos or sin of pi n / (2 N), n = 1 .. N, as (1, N, 1, 1, 1) */
static value of_positions(const mla_onnx_builder *b, const mla_attention *layer, const char *what,
                          double (*function)(double)) {
    const size_t tokens = layer->side * layer->side;
    float *values = mla_onnx_alloc(b->graph, tokens * sizeof *values);
    for (size_t n = 0; values && n < tokens; n++)
        values[n] = (float)function(1.57079632679489661923 * (double)(n + 1) / (double)tokens);
    return made_of(b, layer->qkv.weight, what, 5, (int64_t[]){1, (int64_t)tokens, 1, 1, 1}, values);
}

void mla_onnx_cosformer(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]) {
    mla_onnx_graph *g = b->graph;
    const value r = mla_onnx_unary(g, "Relu", by_head(g, layer, qk));
    const value even = mla_onnx_binary(g, "Mul", r, of_positions(b, layer, "cos", cos));
    const value odd = mla_onnx_binary(g, "Mul", r, of_positions(b, layer, "sin", sin));
    halves(g, features, mla_onnx_concat(g, even, odd, 4));
    for (int i = 0; i < 2; i++) features[i] = joined(g, features[i]);
}

/* d^-1/4 W^T, (d, m) */
static value projection(const mla_onnx_builder *b, const mla_attention *layer) {
    const mla_param *w = &b->params->entry[layer->projection];
    const size_t m = w->shape[0], d = w->shape[1];
    const double factor = 1 / sqrt(sqrt((double)d));
    float *values = mla_onnx_alloc(b->graph, w->count * sizeof *values);
    for (size_t i = 0; values && i < w->count; i++)
        values[i] = (float)(factor * (double)b->params->value[w->offset + i % m * d + i / m]);
    return made_of(b, layer->projection, "scaled", 2, (int64_t[]){(int64_t)d, (int64_t)m}, values);
}

void mla_onnx_performer(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]) {
    mla_onnx_graph *g = b->graph;
    const value x = by_head(g, layer, qk), u = mla_onnx_matmul(g, x, projection(b, layer));
    const value squares = mla_onnx_mean(g, mla_onnx_binary(g, "Mul", x, x), 1, (int64_t[]){4}, true);
    const value half = mla_onnx_binary(g, "Mul", squares, mla_onnx_scalar(g, sqrt((double)width_of(layer)) / 2));
    value part[2], own_half[2];
    halves(g, part, u);
    halves(g, own_half, half);
    for (int i = 0; i < 2; i++) {
        const value largest =
            i == 0 ? mla_onnx_max(g, part[i], 1, (int64_t[]){4}) : mla_onnx_max(g, part[i], 2, (int64_t[]){1, 4});
        const value exponent = mla_onnx_binary(g, "Sub", mla_onnx_binary(g, "Sub", part[i], largest), own_half[i]);
        const value f = mla_onnx_binary(g, "Add", mla_onnx_unary(g, "Exp", exponent), mla_onnx_scalar(g, 1e-6));
        features[i] = joined(g, mla_onnx_binary(g, "Mul", f, mla_onnx_scalar(g, 1 / sqrt((double)u.shape[4]))));
    }
}
