/* head_norm: root-mean-square normalisation (Zhang & Sennrich, arXiv 1910.07467) of each head of q and k by itself, with a
 * gain for every channel of each.  One row x (d) of one head:
 *
 *   k = (mean_i x_i^2 + 1e-6)^-1/2,   y = k x w
 *   dx += k dy w - k^3 x mean_i(dy w x),   dw += k x dy
 *
 * Saved: k of every row and head.
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"

enum { X, GAIN };
typedef struct attributes {
    size_t heads;
} attributes;

static const double FLOOR = 1e-6;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *w = &args->in[GAIN];
    const size_t heads = ((const attributes *)args->attr)->heads;
    MLA_REQUIRE(x->ndim == 3 && heads > 0 && x->shape[2] % (2 * heads) == 0 && mla_tensor_contiguous(w) &&
                    mla_tensor_count(w) == x->shape[2],
                "head_norm: qk %s, gain %s, %zu heads", mla_shape_text(x), mla_shape_text(w), heads);
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->saved = mla_tensor_rows(x) * 2 * heads;
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const size_t heads = 2 * ((const attributes *)args->attr)->heads, width = x->shape[2], d = width / heads;
    for (size_t n = 0; n < heads * mla_tensor_rows(x); n++) {
        const size_t first = n % heads * d;
        const real *restrict in = x->data + n / heads * x->stride + first, *restrict w = args->in[GAIN].data + first;
        real *restrict y = args->out.data + n * d, squares = 0;
#pragma omp simd reduction(+ : squares)
        for (size_t i = 0; i < d; i++) squares += in[i] * in[i];
        const real factor = (real)(1 / sqrt((double)squares / (double)d + FLOOR));
        args->saved[n] = factor;
        for (size_t i = 0; i < d; i++) y[i] = factor * in[i] * w[i];
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X];
    const size_t heads = 2 * ((const attributes *)args->attr)->heads, width = x->shape[2], d = width / heads;
    for (size_t n = 0; n < heads * mla_tensor_rows(x); n++) {
        const size_t first = n % heads * d;
        const real *restrict in = x->data + n / heads * x->stride + first, *restrict w = args->in[GAIN].data + first;
        const real *restrict dy = args->dout.data + n * d, factor = args->saved[n];
        real dot = 0;
#pragma omp simd reduction(+ : dot)
        for (size_t i = 0; i < d; i++) dot += dy[i] * w[i] * in[i];
        const real along = factor * factor * factor * dot / (real)d;
        real *restrict to = dx->data ? dx->data + n / heads * dx->stride + first : NULL;
        real *restrict dw = args->din[GAIN].data ? args->din[GAIN].data + first : NULL;
        for (size_t i = 0; to && i < d; i++) to[i] += factor * dy[i] * w[i] - along * in[i];
        for (size_t i = 0; dw && i < d; i++) dw[i] += factor * in[i] * dy[i];
    }
}

const mla_op mla_op_head_norm = {.name = "head_norm", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_head_norm(mla_tape *tape, mla_var qk, mla_var gain, size_t heads) {
    return mla_record(tape, MLA_OP_HEAD_NORM, (mla_var[MLA_MAX_INPUTS]){qk, gain, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads}, sizeof(attributes));
}
