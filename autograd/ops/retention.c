/* retention: the share of energy that ReLU cuts off, an auxiliary loss of the mirror.  For each image, over q and k and all
 * heads, each with its own share:
 *
 *   E = sum over tokens and channels x^2,   K = sum relu(x)^2,   loss = 1 - mean over q, k, heads K / (E + 1e-6)
 *
 *   dx += dloss (-1 / 2h) (2 / (E + 1e-6)) (relu(x) - x K / (E + 1e-6))
 *
 * Saved: E and K of each image, side and head.
 */
#include <string.h>

#include "autograd/ops.h"

enum { X };
typedef struct attributes {
    size_t heads;
} attributes;

static const real FLOOR = REAL(1e-6);

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X];
    const size_t heads = ((const attributes *)args->attr)->heads;
    MLA_REQUIRE(x->ndim == 3 && heads > 0 && x->shape[2] % (2 * heads) == 0, "retention: qk %s, %zu heads",
                mla_shape_text(x), heads);
    plan->ndim = 1;
    plan->shape[0] = x->shape[0];
    plan->saved = x->shape[0] * 4 * heads;
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const size_t heads = 2 * ((const attributes *)args->attr)->heads, d = x->shape[2] / heads;
    for (size_t b = 0; b < x->shape[0]; b++) {
        double share = 0;
        for (size_t j = 0; j < heads; j++) {
            double all = 0, kept = 0;
            for (size_t n = 0; n < x->shape[1]; n++) {
                const real *restrict row = x->data + (b * x->shape[1] + n) * x->stride + j * d;
                real squares = 0, positive = 0;
#pragma omp simd reduction(+ : squares, positive)
                for (size_t i = 0; i < d; i++) {
                    squares += row[i] * row[i];
                    positive += row[i] > 0 ? row[i] * row[i] : 0;
                }
                all += (double)squares;
                kept += (double)positive;
            }
            args->saved[(b * heads + j) * 2] = (real)all;
            args->saved[(b * heads + j) * 2 + 1] = (real)kept;
            share += kept / (all + (double)FLOOR);
        }
        args->out.data[b] = (real)(1 - share / (double)heads);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X];
    const size_t heads = 2 * ((const attributes *)args->attr)->heads, d = x->shape[2] / heads, rows = mla_tensor_rows(x);
    for (size_t n = 0; dx->data && n < rows * heads; n++) {
        const size_t b = n / heads / x->shape[1], j = n % heads;
        const real *sums = args->saved + (b * heads + j) * 2, all = sums[0] + FLOOR, share = sums[1] / all;
        const real scale = -2 * args->dout.data[b] / ((real)heads * all);
        const real *restrict row = x->data + n / heads * x->stride + j * d;
        real *restrict to = dx->data + n / heads * dx->stride + j * d;
        for (size_t i = 0; i < d; i++) to[i] += scale * ((row[i] > 0 ? row[i] : 0) - share * row[i]);
    }
}

const mla_op mla_op_retention = {.name = "retention", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_retention(mla_tape *tape, mla_var qk, size_t heads) {
    return mla_record(tape, MLA_OP_RETENTION, (mla_var[MLA_MAX_INPUTS]){qk, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads}, sizeof(attributes));
}
