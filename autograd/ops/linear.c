/* linear: y = x W^T + b + residual, or gelu(x W^T + b).
 *
 *   a = x W^T + b        x (rows, in), W (out, in), b (out)
 *   y = a + residual     or, with GELU, y = a Phi(a), which goes with no residual
 *   da = dy              or dy (Phi(a) + a phi(a)); that slope is what forward saves, not a itself: it costs one
 *                        exponential more there and none here
 *   dx += da W,  dW += da^T x,  db += column sums of da,  dresidual += dy
 *
 * Forward and dx go strip by strip of rows through products with packed weights (core/panel.h), so that what is done to
 * a strip besides (GELU and its slope, sums for db) finds it in the cache.  dW has both operands new at every call,
 * which is what the BLAS packs best.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/gemm.h"
#include "core/panel.h"
#include "core/vmath.h"

enum { X, WEIGHT, BIAS, RESIDUAL };
enum {
    STRIP = 24,                              /* rows; a multiple of MLA_TILE_ROWS */
    GROUP_REALS = 192 * 1024 / sizeof(real), /* of the panels that a sweep over the rows uses: they stay in the L2 cache */
    FAR_REALS = (2 << 20) / sizeof(real)     /* of an operand that no L2 cache holds */
};

typedef struct attributes {
    mla_activation activation;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *w = &args->in[WEIGHT], *b = &args->in[BIAS], *r = &args->in[RESIDUAL];
    const attributes *attr = args->attr;
    const size_t rows = mla_tensor_rows(x), in = mla_tensor_columns(x), out = w->shape[0];
    MLA_REQUIRE(mla_tensor_contiguous(w) && mla_tensor_count(w) == out * in, "linear: x %s, weight %s", mla_shape_text(x),
                mla_shape_text(w));
    MLA_REQUIRE(!b->data || mla_tensor_count(b) == out, "linear: weight %s, bias %s", mla_shape_text(w), mla_shape_text(b));
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->shape[x->ndim - 1] = out;
    MLA_REQUIRE(!r->data || (mla_tensor_contiguous(r) && mla_tensor_rows(r) == rows && mla_tensor_columns(r) == out),
                "linear: %zu rows of %zu, residual %s", rows, out, mla_shape_text(r));
    MLA_REQUIRE(!r->data || attr->activation == MLA_IDENTITY, "linear: a residual goes with no activation");
    plan->saved = attr->activation == MLA_GELU ? rows * out : 0;
    const size_t forward = mla_panel_reals(in, out), backward = mla_panel_reals(out, in);
    plan->scratch = out;
    if (!args->form || !args->form->forward || !args->form->backward)
        plan->scratch += forward > backward ? forward : backward;
    plan->flops = 2.0 * (double)rows * (double)in * (double)out;
}

/* Columns of the result for which the panels of depth k stay in the cache. */
static size_t group_columns(size_t k) {
    const size_t panels = GROUP_REALS / (k * MLA_PANEL);
    return (panels ? panels : 1) * MLA_PANEL;
}

/* A strip of a matrix of `rows` rows of k. */
static mla_panel_left strip_rows(const real *strip, size_t stride, size_t rows, size_t k) {
    mla_panel_left left = mla_rows(strip, stride);
    left.far = rows * k >= FAR_REALS;
    return left;
}

/* Panels of columns first .. of a packed (k, n) matrix. */
static mla_panels group(const real *packed, size_t k, size_t first) { return mla_panels_packed(packed + first * k, k); }

/* The prepared panels, or else panels made now in scratch (after the `out` reals of the bias sums). */
static const real *panels_of(const mla_op_args *args, bool transposed) {
    const size_t out = args->in[WEIGHT].shape[0], in = mla_tensor_count(&args->in[WEIGHT]) / out;
    const real *w = args->in[WEIGHT].data, *ready = NULL;
    if (args->form) ready = transposed ? args->form->forward : args->form->backward;
    if (ready) return ready;
    if (transposed)
        mla_panel_pack(args->scratch + out, in, out, w, 1, in);
    else
        mla_panel_pack(args->scratch + out, out, in, w, in, 1);
    return args->scratch + out;
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const size_t rows = mla_tensor_rows(x), in = mla_tensor_columns(x), out = args->in[WEIGHT].shape[0];
    const size_t width = group_columns(in);
    const real *packed = panels_of(args, true), *bias = args->in[BIAS].data, *residual = args->in[RESIDUAL].data;
    const bool gelu = ((const attributes *)args->attr)->activation == MLA_GELU;
    for (size_t j = 0; j < out; j += width) {
        const size_t columns = out - j < width ? out - j : width;
        for (size_t i = 0; i < rows; i += STRIP) {
            const size_t strip = rows - i < STRIP ? rows - i : STRIP, offset = i * out + j;
            const mla_panel_start start = {bias ? bias + j : NULL, residual ? residual + offset : NULL, out};
            real *y = args->out.data + offset;
            mla_panel_product(strip, columns, in, strip_rows(x->data + i * x->stride, x->stride, rows, in),
                              group(packed, in, j), start, y, out);
            for (size_t r = 0; gelu && r < strip; r++)
                mla_vec_gelu(columns, y + r * out, args->saved + offset + r * out, y + r * out);
        }
    }
}

/* da of a strip, in place of dy, and its part of db. */
static void strip_gradient(const mla_op_args *args, size_t first, size_t strip, size_t out) {
    real *restrict dy = args->dout.data + first * out;
    if (((const attributes *)args->attr)->activation == MLA_GELU) {
        const real *restrict slope = args->saved + first * out;
        for (size_t i = 0; i < strip * out; i++) dy[i] *= slope[i];
    }
    if (args->din[BIAS].data) mla_vec_add_rows(strip, out, args->din[BIAS].data, dy, out, args->scratch);
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X];
    const size_t rows = mla_tensor_rows(x), in = mla_tensor_columns(x), out = args->in[WEIGHT].shape[0];
    const size_t width = dx->data ? group_columns(out) : in;
    const real *packed = dx->data ? panels_of(args, false) : NULL, *dy = args->dout.data;
    for (size_t j = 0; j < in; j += width) {
        const size_t columns = in - j < width ? in - j : width;
        for (size_t i = 0; i < rows; i += STRIP) {
            const size_t strip = rows - i < STRIP ? rows - i : STRIP;
            if (j == 0) strip_gradient(args, i, strip, out);
            if (!dx->data) continue;
            real *to = dx->data + i * dx->stride + j;
            const mla_panel_start start = {.add = args->fresh[X] ? NULL : to, .add_row = dx->stride};
            mla_panel_product(strip, columns, out, strip_rows(dy + i * out, out, rows, out), group(packed, out, j), start,
                              to, dx->stride);
        }
    }
    if (args->din[WEIGHT].data)
        mla_gemm(MLA_T, MLA_N, out, in, rows, 1, dy, out, x->data, x->stride, 1, args->din[WEIGHT].data, in);
}

const mla_op mla_op_linear = {
    .name = "linear", .plan = plan, .forward = forward, .backward = backward, .passes = RESIDUAL + 1, .rewrite = 1u << X};

mla_var mla_linear(mla_tape *tape, mla_var x, mla_var weight, mla_var bias, mla_var residual, mla_activation activation) {
    return mla_record(tape, MLA_OP_LINEAR, (mla_var[MLA_MAX_INPUTS]){x, weight, bias, residual}, &(attributes){activation},
                      sizeof(attributes));
}
