/* channel_softmax: in every row, softmax over the d channels of each head (the queries of Efficient Attention, Shen et al.,
 * arXiv 1812.01243).
 *
 *   y_c = exp(x_c - max x) / sum_j exp(x_j - max x),   dx_c += y_c (dy_c - sum_j y_j dy_j)
 *
 * The largest exponent is 0: nothing overflows, and the sum is at least 1.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

typedef struct attributes {
    size_t heads;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    const size_t heads = ((const attributes *)args->attr)->heads;
    MLA_REQUIRE(x->ndim == 3 && heads > 0 && x->shape[2] % heads == 0, "channel_softmax: x %s, %zu heads", mla_shape_text(x),
                heads);
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[0];
    const size_t d = x->shape[2] / ((const attributes *)args->attr)->heads;
    real *y = args->out.data;
    for (size_t n = 0; n < mla_tensor_rows(x); n++)
        for (size_t c = 0; c < x->shape[2]; c += d, y += d) {
            const real *row = x->data + n * x->stride + c;
            const real factor = 1 / mla_vec_exp(d, y, row, 1, mla_vec_max(d, row));
            for (size_t i = 0; i < d; i++) y[i] *= factor;
        }
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[0];
    if (!dx->data) return;
    const size_t d = dx->shape[2] / ((const attributes *)args->attr)->heads;
    const real *restrict y = args->out.data, *restrict dy = args->dout.data;
    for (size_t n = 0; n < mla_tensor_rows(dx); n++)
        for (size_t c = 0; c < dx->shape[2]; c += d, y += d, dy += d) {
            real *restrict row = dx->data + n * dx->stride + c;
            real dot = 0;
#pragma omp simd reduction(+ : dot)
            for (size_t i = 0; i < d; i++) dot += y[i] * dy[i];
#pragma omp simd
            for (size_t i = 0; i < d; i++) row[i] += y[i] * (dy[i] - dot);
        }
}

const mla_op mla_op_channel_softmax = {.name = "channel_softmax", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_channel_softmax(mla_tape *tape, mla_var x, size_t heads) {
    return mla_record(tape, MLA_OP_CHANNEL_SOFTMAX, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads}, sizeof(attributes));
}
