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

/* Sum over tokens of the squared deviation of channel c of (N, 2C) from its mean. */
static double channel_squares(const mla_view *view, const real *qk, size_t c) {
    const size_t stride = 2 * view->channels;
    double mean = 0, squares = 0;
    for (size_t n = 0; n < view->tokens; n++) mean += (double)qk[n * stride + c] / (double)view->tokens;
    for (size_t n = 0; n < view->tokens; n++)
        squares += ((double)qk[n * stride + c] - mean) * ((double)qk[n * stride + c] - mean);
    return squares;
}

static double pair_log_variance(const mla_view *view, const real *qk, size_t pair) {
    double squares = 0;
    for (size_t i = 0; i < 4; i++) squares += channel_squares(view, qk, i / 2 * view->channels + 2 * pair + i % 2);
    return log(squares / (4 * (double)view->tokens) + MLA_PAIR_ANGLE_FLOOR);
}

/* log_variance (C / 2) is scratch. */
static void apply_angle(const mla_view *view, real *qk, const real *a, const real *c, double *log_variance) {
    const size_t pairs = view->channels / 2;
    double mean = 0;
    for (size_t i = 0; i < pairs; i++) mean += (log_variance[i] = pair_log_variance(view, qk, i)) / (double)pairs;
    for (size_t i = 0; i < pairs; i++) {
        const double t =
            view->attention->spec.mirror.angle_max * tanh((double)a[i] * (log_variance[i] - mean) + (double)c[i]);
        for (size_t row = 0; row < 2 * view->tokens; row++) {
            real *x = qk + row * view->channels + 2 * i;
            const double x1 = (double)x[0], x2 = (double)x[1];
            x[0] = (real)(x1 * cos(t) - x2 * sin(t));
            x[1] = (real)(x1 * sin(t) + x2 * cos(t));
        }
    }
}

static void apply_cross(const mla_view *view, real *qk, const mla_tensor *u, real *unit) {
    for (size_t row = 0; row < 2 * view->tokens; row++)
        for (size_t j = 0; j < u->shape[0]; j++)
            reflect(qk + row * view->channels, u->data + j * view->channels, view->channels, unit);
}

/* Fills the stages; scratch: (C) doubles and (C) reals. */
static void run_mirror(mla_view *view, mla_tape *tape, double *log_variance, real *unit) {
    const mla_attention *layer = view->attention;
    const size_t bytes = 2 * view->tokens * view->channels * sizeof(real);
    memcpy(view->qk[MLA_AFTER_BLOCK], view->qk[MLA_BEFORE], bytes);
    if (layer->block_v >= 0) {
        const mla_tensor v = param(tape, layer->block_v);
        apply_blocks(view, view->qk[MLA_AFTER_BLOCK], &v, unit);
    }
    memcpy(view->qk[MLA_AFTER_ANGLE], view->qk[MLA_AFTER_BLOCK], bytes);
    if (layer->angle_a >= 0)
        apply_angle(view, view->qk[MLA_AFTER_ANGLE], param(tape, layer->angle_a).data, param(tape, layer->angle_c).data,
                    log_variance);
    memcpy(view->qk[MLA_AFTER_CROSS], view->qk[MLA_AFTER_ANGLE], bytes);
    if (layer->cross_v >= 0) {
        const mla_tensor u = param(tape, layer->cross_v);
        apply_cross(view, view->qk[MLA_AFTER_CROSS], &u, unit);
    }
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
    double *log_variance = malloc(channels * sizeof(double));
    if (!block || !unit || !log_variance) {
        free(block);
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory for the channels of %zu tokens", tokens);
    } else {
        for (size_t i = 0; i < MLA_MIRROR_STAGES; i++) view->qk[i] = block + 2 * i * size;
        view->v = block + 2 * MLA_MIRROR_STAGES * size;
        const mla_tensor weight = param(tape, layer->qkv.weight);
        const real *bias = layer->qkv.bias < 0 ? NULL : param(tape, layer->qkv.bias).data, *in = x.data + image * size;
        project(view->qk[MLA_BEFORE], in, &weight, bias, tokens, 0, 2 * channels);
        project(view->v, in, &weight, bias, tokens, 2 * channels, channels);
        run_mirror(view, tape, log_variance, unit);
        view->pass = tape;
        view->tape = mla_tape_new();
        if (!view->tape) status = mla_fail(error, MLA_NO_MEMORY, "out of memory for a look at %zu tokens", tokens);
    }
    free(unit);
    free(log_variance);
    return status;
}

void mla_view_close(mla_view *view) {
    free(view->qk[0]); /* the one block of all */
    mla_tape_free(view->tape);
    *view = (mla_view){0};
}

/* ---- the implied attention */

/* Tokens that one run of the core tells of: the width of a head, or half of it where its halves are mixed differently. */
static size_t units_of(const mla_view *view) { return view->attention->kind == MLA_ATTENTION_POLA ? view->d / 2 : view->d; }

/* Columns first .. first + units - 1 of the attention of all heads: what the core makes of unit vectors as v, (N, C).
 * Token first + i has its one in channel i of each part of `units` channels. */
static mla_status run_units(const real **y, const mla_view *view, size_t first, mla_error *error) {
    const size_t tokens = view->tokens, channels = view->channels, units = units_of(view);
    mla_tape_begin_like(view->tape, view->pass);
    real *qkv = mla_tape_alloc(view->tape, 3 * tokens * channels * sizeof(real));
    for (size_t n = 0; qkv && n < tokens; n++) {
        real *row = qkv + n * 3 * channels;
        memcpy(row, view->qk[MLA_AFTER_BLOCK] + n * 2 * channels, 2 * channels * sizeof(real));
        for (size_t c = 0; c < channels; c++) row[2 * channels + c] = n >= first && c % units == n - first;
    }
    const mla_tensor t = mla_tensor_make(qkv, 3, (size_t[]){1, tokens, 3 * channels});
    const mla_var out = mla_attention_core(view->attention, view->tape, mla_tape_input(view->tape, t));
    const mla_status status = mla_tape_status(view->tape, error);
    if (status == MLA_OK) *y = mla_value(view->tape, out).data;
    return status;
}

/* A[n, first + i] of a head, from row n of run_units. */
static real unit_entry(const mla_view *view, const real *row, size_t head, size_t i) {
    const size_t units = units_of(view), parts = view->d / units;
    real sum = 0;
    for (size_t part = 0; part < parts; part++) sum += row[head * view->d + part * units + i];
    return sum / (real)parts;
}

mla_status mla_view_attention(real *a, const mla_view *view, size_t head, size_t first, size_t rows, mla_error *error) {
    const size_t tokens = view->tokens, units = units_of(view);
    MLA_REQUIRE(head < view->heads && first + rows <= tokens, "head %zu of %zu, rows %zu + %zu of %zu", head, view->heads,
                first, rows, tokens);
    for (size_t m = 0; m < tokens; m += units) {
        const real *y;
        const mla_status status = run_units(&y, view, m, error);
        if (status != MLA_OK) return status;
        for (size_t n = 0; n < rows; n++)
            for (size_t i = 0; i < units && m + i < tokens; i++)
                a[n * tokens + m + i] = unit_entry(view, y + (first + n) * view->channels, head, i);
    }
    return MLA_OK;
}

mla_status mla_view_received(real *received, const mla_view *view, mla_error *error) {
    const size_t tokens = view->tokens, units = units_of(view);
    for (size_t m = 0; m < tokens; m += units) {
        const real *y;
        const mla_status status = run_units(&y, view, m, error);
        if (status != MLA_OK) return status;
        for (size_t head = 0; head < view->heads; head++)
            for (size_t i = 0; i < units && m + i < tokens; i++) {
                double sum = 0;
                for (size_t n = 0; n < tokens; n++) sum += (double)unit_entry(view, y + n * view->channels, head, i);
                received[head * tokens + m + i] = (real)(sum / (double)tokens);
            }
    }
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

double mla_view_kept(const mla_view *view, mla_mirror_stage stage, mla_side side, int head) {
    size_t width;
    const real *x = mla_view_channels(&width, view, stage, side, head);
    double all = 0, kept = 0;
    for (size_t n = 0; n < view->tokens; n++, x += 2 * view->channels)
        for (size_t i = 0; i < width; i++) {
            all += (double)x[i] * (double)x[i];
            if (x[i] > 0) kept += (double)x[i] * (double)x[i];
        }
    return kept / all;
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
