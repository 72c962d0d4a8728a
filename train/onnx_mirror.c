/* The mirror as ONNX nodes: what happens to q and k before linear attention, part by part.  Formulas: docs/math.md. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/block_reflect.h"
#include "autograd/ops/reflection.h"
#include "train/onnx_layers.h"

typedef mla_onnx_value value;

/* (B, N, 2C) as (B, N, 2, groups, C / groups), and back. */
static value grouped(const mla_onnx_builder *b, value qk, int64_t groups) {
    return mla_onnx_reshape(b->graph, qk, 5, (int64_t[]){MLA_ONNX_BATCH, qk.shape[1], 2, groups, qk.shape[2] / 2 / groups});
}

static value flat(const mla_onnx_builder *b, value x) {
    int64_t width = 1;
    for (int i = 2; i < x.ndim; i++) width *= x.shape[i];
    return mla_onnx_reshape(b->graph, x, 3, (int64_t[]){MLA_ONNX_BATCH, x.shape[1], width});
}

static value scalar_op(const mla_onnx_builder *b, const char *op, value x, double number) {
    return mla_onnx_binary(b->graph, op, x, mla_onnx_scalar(b->graph, number));
}

static value square(const mla_onnx_builder *b, value x) { return mla_onnx_binary(b->graph, "Mul", x, x); }

/* A constant made for the file, called after a parameter. */
static value made(const mla_onnx_builder *b, int param, const char *ending, int ndim, const int64_t *shape,
                  const float *values) {
    char name[MLA_PARAM_NAME_BYTES + 40];
    snprintf(name, sizeof name, "%s.%s", b->params->entry[param].name, ending);
    return mla_onnx_weight(b->graph, name, ndim, shape, values);
}

/* ---- parts: qk (B, N, 2C) -> (B, N, 2C).  The block isometry stands in the projection (onnx_attention.c). */

static value head_norm(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    mla_onnx_graph *g = b->graph;
    const value x = grouped(b, qk, (int64_t)layer->heads);
    const value mean = mla_onnx_mean(g, square(b, x), 1, (int64_t[]){4}, true);
    const value factor = scalar_op(b, "Pow", scalar_op(b, "Add", mean, 1e-6), -0.5);
    const value y = mla_onnx_reshape(g, mla_onnx_binary(g, "Mul", x, factor), 4,
                                     (int64_t[]){MLA_ONNX_BATCH, qk.shape[1], 2, qk.shape[2] / 2});
    return flat(b, mla_onnx_binary(g, "Mul", y, mla_onnx_param(b, layer->mirror.qk_gain)));
}

/* The variance of every channel over the tokens, (B, 2C). */
static value token_variance(const mla_onnx_builder *b, value qk) {
    const value mean = mla_onnx_mean(b->graph, qk, 1, (int64_t[]){1}, true);
    return mla_onnx_mean(b->graph, square(b, mla_onnx_binary(b->graph, "Sub", qk, mean)), 1, (int64_t[]){1}, false);
}

/* x exp(-gamma log(s + floor)) */
static value scale_modulation(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    mla_onnx_graph *g = b->graph;
    value x = mla_onnx_reshape(g, token_variance(b, qk), 4, (int64_t[]){MLA_ONNX_BATCH, 1, 2, qk.shape[2] / 2});
    x = mla_onnx_unary(g, "Log", scalar_op(b, "Add", x, MLA_VARIANCE_FLOOR));
    x = scalar_op(b, "Mul", mla_onnx_binary(g, "Mul", x, mla_onnx_param(b, layer->mirror.gamma)), -1);
    x = mla_onnx_reshape(g, mla_onnx_unary(g, "Exp", x), 3, (int64_t[]){MLA_ONNX_BATCH, 1, qk.shape[2]});
    return mla_onnx_binary(g, "Mul", qk, x);
}

/* The angle of every plane, `width` channels, (B, 1, 1 or 2, M, 1). */
static value angle(const mla_onnx_builder *b, const mla_attention *layer, value qk, int64_t width) {
    mla_onnx_graph *g = b->graph;
    const int64_t planes = qk.shape[2] / 2 / width;
    const bool own = layer->spec.mirror.angle_source == MLA_ANGLE_OWN;
    value x = mla_onnx_reshape(g, token_variance(b, qk), 4, (int64_t[]){MLA_ONNX_BATCH, 2, planes, width});
    x = own ? mla_onnx_mean(g, x, 1, (int64_t[]){3}, false) : mla_onnx_mean(g, x, 2, (int64_t[]){1, 3}, false);
    x = mla_onnx_unary(g, "Log", scalar_op(b, "Add", x, MLA_VARIANCE_FLOOR));
    x = mla_onnx_binary(g, "Sub", x, mla_onnx_mean(g, x, 1, (int64_t[]){own ? 2 : 1}, true));
    x = mla_onnx_binary(g, "Mul", x, mla_onnx_param(b, layer->angle_a));
    x = mla_onnx_binary(g, "Add", x, mla_onnx_param(b, layer->angle_c));
    x = scalar_op(b, "Mul", mla_onnx_unary(g, "Tanh", x), layer->spec.mirror.angle_max);
    return mla_onnx_reshape(g, x, 5, (int64_t[]){MLA_ONNX_BATCH, 1, own ? 2 : 1, planes, 1});
}

/* a x + sign b y */
static value combine(mla_onnx_graph *g, const char *sign, value a, value x, value b, value y) {
    return mla_onnx_binary(g, sign, mla_onnx_binary(g, "Mul", a, x), mla_onnx_binary(g, "Mul", b, y));
}

static value turn_pairs(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    mla_onnx_graph *g = b->graph;
    const value t = angle(b, layer, qk, 2), cosine = mla_onnx_unary(g, "Cos", t), sine = mla_onnx_unary(g, "Sin", t);
    value x[2];
    mla_onnx_split(g, x, 2, (int64_t[]){1, 1}, grouped(b, qk, (int64_t)layer->channels / 2), 4);
    const value y1 = combine(g, "Sub", x[0], cosine, x[1], sine), y2 = combine(g, "Add", x[0], sine, x[1], cosine);
    return flat(b, mla_onnx_concat(g, y1, y2, 4));
}

/* Products of x (B, N, 2, M, b) with the rows of u (M, b): (B, N, 2, M, 1). */
static value dots(const mla_onnx_builder *b, value x, value u) {
    const value mean = mla_onnx_mean(b->graph, mla_onnx_binary(b->graph, "Mul", x, u), 1, (int64_t[]){4}, true);
    return scalar_op(b, "Mul", mean, (double)u.shape[1]);
}

/* u (part 0) or w (part 1) of the orthonormal planes, (M, b). */
static value basis(const mla_onnx_builder *b, int param, mla_tensor planes, size_t part) {
    const size_t count = planes.shape[0], width = planes.shape[2];
    float *rows = mla_onnx_alloc(b->graph, count * width * sizeof *rows);
    for (size_t j = 0; rows && j < count; j++)
        memcpy(rows + j * width, planes.data + (2 * j + part) * width, width * sizeof *rows);
    return made(b, param, "unit", 2, (int64_t[]){(int64_t)count, (int64_t)width}, rows);
}

/* x + (k al - s ga) u + (k ga + s al) w with al = x . u, ga = x . w, k = cos t - 1, s = sin t */
static value turn_planes(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    mla_onnx_graph *g = b->graph;
    const mla_mirror_params *p = &layer->mirror;
    const mla_tensor planes = mla_value(
        b->tape, mla_plane_basis(b->tape, mla_tape_param(b->tape, p->plane_u), mla_tape_param(b->tape, p->plane_w)));
    if (!planes.data) return qk;
    const value u = basis(b, p->plane_u, planes, 0), w = basis(b, p->plane_w, planes, 1);
    const value x = grouped(b, qk, (int64_t)planes.shape[0]), t = angle(b, layer, qk, (int64_t)planes.shape[2]);
    const value k = scalar_op(b, "Sub", mla_onnx_unary(g, "Cos", t), 1), s = mla_onnx_unary(g, "Sin", t);
    const value al = dots(b, x, u), ga = dots(b, x, w);
    const value turned = combine(g, "Add", combine(g, "Sub", k, al, s, ga), u, combine(g, "Add", k, ga, s, al), w);
    return flat(b, mla_onnx_binary(g, "Add", x, turned));
}

/* x - 2 min(0, x . u) u for each mirror u of a block, in turn. */
static value fold_reflect(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    mla_onnx_graph *g = b->graph;
    const mla_param *v = &b->params->entry[layer->mirror.fold_v];
    const size_t blocks = v->shape[0] * v->shape[1], mirrors = v->shape[2], width = v->shape[3];
    value x = grouped(b, qk, (int64_t)blocks);
    for (size_t i = 0; i < mirrors; i++) {
        float *unit = mla_onnx_alloc(g, blocks * width * sizeof *unit);
        char ending[32];
        for (size_t j = 0; unit && j < blocks; j++)
            mla_reflection_unit(unit + j * width, b->params->value + v->offset + (j * mirrors + i) * width, width);
        snprintf(ending, sizeof ending, "unit%zu", i);
        const value u = made(b, layer->mirror.fold_v, ending, 2, (int64_t[]){(int64_t)blocks, (int64_t)width}, unit);
        const value behind = scalar_op(b, "Mul", scalar_op(b, "Min", dots(b, x, u), 0), 2);
        x = mla_onnx_binary(g, "Sub", x, mla_onnx_binary(g, "Mul", behind, u));
    }
    return flat(b, x);
}

/* H(u_1) ... H(u_r) = I - A U with unit rows U (r, C): column j of A (C, r) is 2 H(u_1) ... H(u_j-1) u_j. */
static void reflection_factors(float *a, float *unit, const float *v, size_t r, size_t channels) {
    for (size_t j = 0; j < r; j++) {
        float *u = unit + j * channels;
        mla_reflection_unit(u, v + j * channels, channels);
        for (size_t c = 0; c < channels; c++) a[c * r + j] = 2 * u[c];
        for (size_t i = 0; i < j; i++) {
            double dot = 0;
            for (size_t c = 0; c < channels; c++) dot += (double)unit[i * channels + c] * (double)u[c];
            for (size_t c = 0; c < channels; c++) a[c * r + j] -= (float)(2 * dot) * a[c * r + i];
        }
    }
}

static value cross_reflect(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    mla_onnx_graph *g = b->graph;
    const mla_param *v = &b->params->entry[layer->cross_v];
    const size_t r = v->shape[0], channels = v->shape[1];
    const int64_t rows = (int64_t)r, columns = (int64_t)channels, tokens = qk.shape[1];
    float *a = mla_onnx_alloc(g, r * channels * sizeof *a), *unit = mla_onnx_alloc(g, r * channels * sizeof *unit);
    if (!a || !unit) return qk;
    reflection_factors(a, unit, b->params->value + v->offset, r, channels);
    const value right = made(b, layer->cross_v, "unit", 2, (int64_t[]){rows, columns}, unit);
    const value left = made(b, layer->cross_v, "left", 2, (int64_t[]){columns, rows}, a);
    const value x = mla_onnx_reshape(g, qk, 4, (int64_t[]){MLA_ONNX_BATCH, tokens, 2, columns});
    const value y = mla_onnx_binary(g, "Sub", x, mla_onnx_matmul(g, mla_onnx_matmul(g, x, left), right));
    return mla_onnx_reshape(g, y, 3, (int64_t[]){MLA_ONNX_BATCH, tokens, 2 * columns});
}

/* ---- features */

/* Every block of x (B, N, 2C) times its product of reflections. */
static value block_turn(const mla_onnx_builder *b, int param, value qk) {
    mla_onnx_graph *g = b->graph;
    const mla_param *v = &b->params->entry[param];
    const size_t blocks = v->shape[0] * v->shape[1], r = v->shape[2], width = v->shape[3], size = width * width;
    float *turn = mla_onnx_alloc(g, blocks * size * sizeof *turn);
    float *other = mla_onnx_alloc(g, size * sizeof *other); /* P^T of a block, which is what block_apply makes of I */
    float *scratch = mla_onnx_alloc(g, mla_block_scratch(width, width) * sizeof *scratch);
    if (!turn || !other || !scratch) return qk;
    for (size_t j = 0; j < blocks; j++) {
        for (size_t i = 0; i < size; i++) other[i] = i / width == i % width;
        mla_block_apply(other, b->params->value + v->offset + j * r * width, r, width, width, scratch);
        for (size_t i = 0; i < size; i++) turn[j * size + i] = other[i % width * width + i / width];
    }
    const int64_t wide = (int64_t)width, shape[] = {(int64_t)blocks, wide, wide};
    const value matrices = made(b, param, "product", 3, shape, turn);
    const value x = mla_onnx_reshape(g, qk, 5, (int64_t[]){MLA_ONNX_BATCH, 2 * qk.shape[1], (int64_t)blocks, 1, wide});
    return mla_onnx_reshape(g, mla_onnx_matmul(g, x, matrices), 3, (int64_t[]){MLA_ONNX_BATCH, qk.shape[1], qk.shape[2]});
}

/* relu of the heads, with what else is kept behind it: (B, N, 2, h, D). */
static value kept(const mla_onnx_builder *b, const mla_attention *layer, value qk) {
    mla_onnx_graph *g = b->graph;
    const mla_feature_kept feature = layer->spec.mirror.feature;
    const int64_t heads = (int64_t)layer->heads;
    const value f = mla_onnx_unary(g, "Relu", grouped(b, qk, heads));
    if (feature == MLA_KEPT_RELU) return f;
    const value other = feature == MLA_KEPT_SPLIT ? mla_onnx_unary(g, "Neg", qk) : block_turn(b, layer->mirror.twin_v, qk);
    return mla_onnx_concat(g, f, mla_onnx_unary(g, "Relu", grouped(b, other, heads)), 4);
}

/* f (B, N, 2, h, D) to 1 + 4 sigmoid(p) of p (h, 1, d), for each of the D / d halves. */
static value learned_power(const mla_onnx_builder *b, int param, value f) {
    const mla_param *p = &b->params->entry[param];
    const size_t heads = p->shape[0], d = p->shape[2], width = (size_t)f.shape[4];
    float *exponent = mla_onnx_alloc(b->graph, heads * width * sizeof *exponent);
    for (size_t i = 0; exponent && i < heads * width; i++) {
        const double x = (double)b->params->value[p->offset + i / width * d + i % d];
        exponent[i] = (float)(1 + 4 / (1 + exp(-x)));
    }
    const value e = made(b, param, "exponent", 2, (int64_t[]){(int64_t)heads, (int64_t)width}, exponent);
    return mla_onnx_binary(b->graph, "Pow", scalar_op(b, "Add", f, 1e-6), e);
}

/* The cube of f + 1e-6, as long as it is. */
static value focused(const mla_onnx_builder *b, value f) {
    mla_onnx_graph *g = b->graph;
    const value x = scalar_op(b, "Add", f, 1e-6), cube = mla_onnx_binary(g, "Mul", square(b, x), x);
    const value before = mla_onnx_mean(g, square(b, x), 1, (int64_t[]){4}, true);
    const value after = mla_onnx_mean(g, square(b, cube), 1, (int64_t[]){4}, true);
    return mla_onnx_binary(g, "Mul", cube, scalar_op(b, "Pow", mla_onnx_binary(g, "Div", before, after), 0.5));
}

void mla_onnx_mirror(const mla_onnx_builder *b, const mla_attention *layer, value qk, value features[2]) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const mla_mirror_params *p = &layer->mirror;
    if (p->qk_gain >= 0) qk = head_norm(b, layer, qk);
    if (p->gamma >= 0) qk = scale_modulation(b, layer, qk);
    if (layer->angle_a >= 0) qk = p->plane_u >= 0 ? turn_planes(b, layer, qk) : turn_pairs(b, layer, qk);
    if (p->fold_v >= 0) qk = fold_reflect(b, layer, qk);
    if (layer->cross_v >= 0) qk = cross_reflect(b, layer, qk);
    value f = kept(b, layer, qk);
    if (m->power == MLA_POWER_LEARNED) f = learned_power(b, p->power, f);
    if (m->power == MLA_POWER_FIXED) f = scalar_op(b, "Pow", f, m->exponent);
    if (m->power == MLA_POWER_FOCUSED) f = focused(b, f);
    const int64_t width = f.shape[3] * f.shape[4];
    mla_onnx_split(b->graph, features, 2, (int64_t[]){width, width}, flat(b, f), 2);
}
