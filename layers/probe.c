/* Meant to be read; nothing here is on the way of a training step. */
#include "layers/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/reflection.h"
#include "core/gemm.h"
#include "core/vmath.h"

/* ---- noting */

void mla_probe_free(mla_probe *probe) {
    free(probe->layer);
    *probe = (mla_probe){0};
}

void mla_probe_attention(mla_probe *probe, const mla_attention *attention, mla_var x) {
    if (!probe) return;
    if (probe->layers == probe->capacity) {
        const int capacity = probe->capacity ? 2 * probe->capacity : 16;
        mla_probed_layer *larger = realloc(probe->layer, (size_t)capacity * sizeof *larger);
        if (!larger) {
            probe->out_of_memory = true;
            return;
        }
        probe->layer = larger;
        probe->capacity = capacity;
    }
    probe->layer[probe->layers++] = (mla_probed_layer){attention, x};
}

void mla_probe_head(mla_probe *probe, const mla_norm_layer *norm, const mla_linear_layer *head, mla_var tokens) {
    if (!probe) return;
    probe->tokens = tokens;
    probe->norm = norm;
    probe->head = head;
}

static mla_status check_pass(const mla_probe *probe, const mla_tape *tape, mla_error *error) {
    if (probe->out_of_memory) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the list of attention layers");
    return mla_tape_status(tape, error);
}

/* ---- the mirror, step by step */

static mla_tensor param(mla_tape *tape, int index) { return mla_value(tape, mla_tape_param(tape, index)); }

/* x (n) -= 2 (x . u) u, u = v / |v|; unit (n) is scratch. */
static void reflect(real *x, const real *v, size_t n, real *unit) {
    double dot = 0;
    mla_reflection_unit(unit, v, n);
    for (size_t i = 0; i < n; i++) dot += (double)x[i] * (double)unit[i];
    for (size_t i = 0; i < n; i++) x[i] -= (real)(2 * dot) * unit[i];
}

/* out (N, columns) = x W^T + bias, for rows first .. of W. */
static void project(real *out, const real *x, const mla_tensor *weight, const real *bias, size_t tokens, size_t first,
                    size_t columns) {
    const size_t in = mla_tensor_columns(weight);
    mla_gemm(MLA_N, MLA_T, tokens, columns, in, 1, x, in, weight->data + first * in, in, 0, out, columns);
    for (size_t n = 0; bias && n < tokens; n++) mla_vec_add(columns, out + n * columns, 1, bias + first);
}

/* v (h, C / (h b), r, b): the blocks of all heads lie behind each other in q, and again in k. */
static void apply_blocks(const mla_view *view, real *qk, const mla_tensor *v, real *unit) {
    const size_t r = v->shape[2], b = v->shape[3], blocks = view->channels / b;
    for (size_t row = 0; row < 2 * view->tokens; row++)
        for (size_t i = 0; i < blocks * r; i++) reflect(qk + row * view->channels + i / r * b, v->data + i * b, b, unit);
}

/* Rows of a result for one image, (1, N, columns), to `out`, whose rows are `stride` apart. */
static void copy_rows(real *out, size_t stride, const mla_tape *tape, mla_var x) {
    const mla_tensor t = mla_value(tape, x);
    for (size_t n = 0; t.data && n < t.shape[1]; n++)
        memcpy(out + n * stride, t.data + n * t.stride, t.shape[2] * sizeof(real));
}

/* q and k after the block isometry, and a v, side by side, (1, N, 3C), with zeros for v. */
static mla_var core_input(const mla_view *view, mla_tape *tape) {
    const size_t tokens = view->tokens, channels = view->channels, width = 3 * channels;
    real *qkv = mla_tape_alloc(tape, tokens * width * sizeof(real));
    for (size_t n = 0; qkv && n < tokens; n++) {
        memcpy(qkv + n * width, view->qk[MLA_AFTER_BLOCK] + n * 2 * channels, 2 * channels * sizeof(real));
        memset(qkv + n * width + 2 * channels, 0, channels * sizeof(real));
    }
    return mla_tape_input(tape, mla_tensor_make(qkv, 3, (size_t[]){1, tokens, width}));
}

/* The stages after the block isometry, and what the feature map makes of them. */
static mla_status run_steps(mla_view *view, mla_tape *tape, mla_error *error) {
    const mla_attention *layer = view->attention;
    const size_t channels = view->channels;
    const bool mirror = layer->kind == MLA_ATTENTION_MIRROR;
    const mla_var input = core_input(view, tape);
    mla_var qk = mla_columns(tape, input, 0, 2 * channels), fq, fk;
    if (mirror) qk = mla_mirror_turn(layer, tape, mla_mirror_scale(layer, tape, qk));
    copy_rows(view->qk[MLA_AFTER_ANGLE], 2 * channels, tape, qk);
    if (mirror) qk = mla_mirror_reflect(layer, tape, qk);
    copy_rows(view->qk[MLA_AFTER_CROSS], 2 * channels, tape, qk);
    const bool has_features = mla_attention_features(layer, tape, input, &fq, &fk);
    const mla_status status = mla_tape_status(tape, error);
    if (status != MLA_OK || !has_features) return status;
    const size_t columns = mla_value(tape, fq).shape[2];
    view->width = columns / view->heads;
    view->f = malloc(view->tokens * 2 * columns * sizeof(real));
    if (!view->f) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the features of %zu tokens", view->tokens);
    copy_rows(view->f, 2 * columns, tape, fq);
    copy_rows(view->f + columns, 2 * columns, tape, fk);
    return MLA_OK;
}

/* Fills in the stages after the projection and the features; unit (C) is scratch. */
static mla_status run_mirror(mla_view *view, mla_tape *pass, real *unit, mla_error *error) {
    const mla_attention *layer = view->attention;
    memcpy(view->qk[MLA_AFTER_BLOCK], view->qk[MLA_BEFORE], 2 * view->tokens * view->channels * sizeof(real));
    if (layer->block_v >= 0) {
        const mla_tensor v = param(pass, layer->block_v);
        apply_blocks(view, view->qk[MLA_AFTER_BLOCK], &v, unit);
    }
    mla_tape *tape = mla_tape_new();
    if (!tape) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a look at %zu tokens", view->tokens);
    mla_tape_begin_like(tape, pass);
    const mla_status status = run_steps(view, tape, error);
    mla_tape_free(tape);
    return status;
}

mla_status mla_view_open(mla_view *view, const mla_probe *probe, int index, size_t image, mla_tape *tape, mla_error *error) {
    *view = (mla_view){0};
    mla_status status = check_pass(probe, tape, error);
    if (status != MLA_OK) return status;
    MLA_REQUIRE(index >= 0 && index < probe->layers, "attention layer %d of %d", index, probe->layers);
    const mla_attention *layer = probe->layer[index].attention;
    const mla_tensor x = mla_value(tape, probe->layer[index].x);
    MLA_REQUIRE(image < x.shape[0], "image %zu of %s", image, mla_shape_text(&x));
    const size_t tokens = x.shape[1], channels = layer->channels, size = tokens * channels;
    *view = (mla_view){
        .attention = layer, .tokens = tokens, .channels = channels, .heads = layer->heads, .d = channels / layer->heads};
    real *block = malloc((2 * MLA_MIRROR_STAGES + 1) * size * sizeof(real)), *unit = malloc(channels * sizeof(real));
    if (!block || !unit) {
        free(block);
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory for the channels of %zu tokens", tokens);
    } else {
        for (size_t i = 0; i < MLA_MIRROR_STAGES; i++) view->qk[i] = block + 2 * i * size;
        view->v = block + 2 * MLA_MIRROR_STAGES * size;
        const mla_tensor weight = param(tape, layer->qkv.weight);
        const real *bias = layer->qkv.bias < 0 ? NULL : param(tape, layer->qkv.bias).data, *in = x.data + image * size;
        project(view->qk[MLA_BEFORE], in, &weight, bias, tokens, 0, 2 * channels);
        project(view->v, in, &weight, bias, tokens, 2 * channels, channels);
        status = run_mirror(view, tape, unit, error);
        view->pass = tape;
        view->tape = mla_tape_new();
        if (status == MLA_OK && !view->tape)
            status = mla_fail(error, MLA_NO_MEMORY, "out of memory for a look at %zu tokens", tokens);
    }
    free(unit);
    if (status != MLA_OK) mla_view_close(view);
    return status;
}

void mla_view_close(mla_view *view) {
    free(view->qk[0]); /* the one block of all but the features */
    free(view->f);
    mla_tape_free(view->tape);
    *view = (mla_view){0};
}

/* ---- received attention */

mla_status mla_view_received(real *received, const mla_view *view, bool mean, mla_error *error) {
    const size_t tokens = view->tokens, channels = view->channels;
    mla_tape_begin_like(view->tape, view->pass);
    real *seed = mla_tape_alloc(view->tape, tokens * channels * sizeof(real));
    real *gradient = mla_tape_alloc(view->tape, 3 * tokens * channels * sizeof(real));
    const mla_var qkv = mla_tape_leaf(view->tape, mla_value(view->tape, core_input(view, view->tape)), gradient);
    const mla_var y = mla_attention_core(view->attention, view->tape, qkv);
    mla_status status = mla_tape_status(view->tape, error);
    if (status != MLA_OK) return status;
    for (size_t i = 0; i < tokens * channels; i++) seed[i] = 1;
    memset(gradient, 0, 3 * tokens * channels * sizeof(real));
    status = mla_tape_backward(view->tape, y, seed, error);
    if (status != MLA_OK) return status;
    for (size_t i = 0; i < tokens * view->heads; i++) {
        const real *dv = gradient + i / view->heads * 3 * channels + 2 * channels + i % view->heads * view->d;
        double sum = 0;
        for (size_t c = 0; c < view->d; c++) sum += (double)dv[c];
        received[i % view->heads * tokens + i / view->heads] = (real)(sum / (double)view->d);
    }
    if (!mean) return MLA_OK;
    for (size_t i = tokens; i < tokens * view->heads; i++) received[i % tokens] += received[i];
    for (size_t n = 0; n < tokens; n++) received[n] /= (real)view->heads;
    return MLA_OK;
}

bool mla_view_is_relu(const mla_view *view) {
    return view->attention->kind == MLA_ATTENTION_RELU || view->attention->kind == MLA_ATTENTION_MIRROR;
}

const real *mla_view_channels(size_t *width, const mla_view *view, mla_mirror_stage stage, mla_side side, int head) {
    const size_t first = head == MLA_ALL_HEADS ? 0 : (size_t)head * view->d;
    *width = head == MLA_ALL_HEADS ? view->channels : view->d;
    return view->qk[stage] + (side == MLA_SIDE_K) * view->channels + first;
}

/* The sum of squares of (N, columns), rows `stride` apart; with `cut` of what ReLU leaves. */
static double energy(const real *x, size_t tokens, size_t columns, size_t stride, bool cut) {
    double sum = 0;
    for (size_t n = 0; n < tokens; n++, x += stride)
        for (size_t i = 0; i < columns; i++)
            if (!cut || x[i] > 0) sum += (double)x[i] * (double)x[i];
    return sum;
}

double mla_view_kept(const mla_view *view, mla_mirror_stage stage, mla_side side, int head) {
    size_t width;
    const real *x = mla_view_channels(&width, view, stage, side, head);
    const double all = energy(x, view->tokens, width, 2 * view->channels, false);
    if (stage != MLA_AFTER_CROSS || !view->f) return energy(x, view->tokens, width, 2 * view->channels, true) / all;
    const size_t columns = view->heads * view->width, first = head == MLA_ALL_HEADS ? 0 : (size_t)head * view->width;
    const real *f = view->f + (side == MLA_SIDE_K) * columns + first;
    return energy(f, view->tokens, head == MLA_ALL_HEADS ? columns : view->width, 2 * columns, false) / all;
}

/* ---- class evidence */

mla_status mla_probe_evidence(real *evidence, double *offset, const mla_probe *probe, size_t class, size_t image,
                              mla_tape *tape, mla_error *error) {
    mla_status status = check_pass(probe, tape, error);
    if (status != MLA_OK) return status;
    const mla_tensor x = mla_value(tape, probe->tokens), weight = param(tape, probe->head->weight);
    const real *gamma = param(tape, probe->norm->weight).data, *beta = param(tape, probe->norm->bias).data;
    const real *bias = probe->head->bias < 0 ? NULL : param(tape, probe->head->bias).data;
    const size_t tokens = x.shape[1], channels = x.shape[2], classes = weight.shape[0];
    const real *in = x.data + image * tokens * channels;
    double *w = calloc(2 * channels, sizeof *w), mean = 0, variance = 0, weight_mean = 0;
    if (!w) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the evidence of %zu channels", channels);
    double *pooled = w + channels;
    *offset = bias ? (double)bias[class] : 0;
    for (size_t k = 0; bias && k < classes; k++) *offset -= (double)bias[k] / (double)classes;
    for (size_t c = 0; c < channels; c++) {
        w[c] = (double)weight.data[class * channels + c];
        for (size_t k = 0; k < classes; k++) w[c] -= (double)weight.data[k * channels + c] / (double)classes;
        *offset += w[c] * (double)beta[c];
        w[c] *= (double)gamma[c];
        for (size_t n = 0; n < tokens; n++) pooled[c] += (double)in[n * channels + c] / (double)tokens;
        mean += pooled[c] / (double)channels;
        weight_mean += w[c] / (double)channels;
    }
    for (size_t c = 0; c < channels; c++) variance += (pooled[c] - mean) * (pooled[c] - mean) / (double)channels;
    /* sum_c w_c (x_c - mean_c x) = sum_c (w_c - mean_c w) x_c */
    for (size_t n = 0; n < tokens; n++) {
        double sum = 0;
        for (size_t c = 0; c < channels; c++) sum += (w[c] - weight_mean) * (double)in[n * channels + c];
        evidence[n] = (real)(sum / sqrt(variance + probe->norm->eps));
    }
    free(w);
    return MLA_OK;
}
