/* token_softmax: in every image and channel, softmax over the N tokens (the keys of Efficient Attention, Shen et al., arXiv
 * 1812.01243).
 *
 *   y_n = exp(x_n - max x) / sum_m exp(x_m - max x),   dx_n += y_n (dy_n - sum_m y_m dy_m)
 *
 * The largest exponent of a channel is 0: nothing overflows, and the sum is at least 1.  Sums over tokens are those of
 * blocks of 64, so that rounding does not grow with N.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

enum { BLOCK = 64 };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    MLA_REQUIRE(x->ndim == 3, "token_softmax: x %s", mla_shape_text(x));
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->scratch = 2 * x->shape[2];
}

/* One image: x and its rows' stride, y (N, C), scratch (2, C). */
static void forward_image(real *y, const real *x, size_t stride, size_t tokens, size_t channels, real *scratch) {
    real *restrict most = scratch;
    memcpy(most, x, channels * sizeof(real));
    for (size_t n = 1; n < tokens; n++)
        for (size_t c = 0; c < channels; c++) most[c] = x[n * stride + c] > most[c] ? x[n * stride + c] : most[c];
    for (size_t n = 0; n < tokens; n++) {
        real *restrict row = y + n * channels;
        for (size_t c = 0; c < channels; c++) row[c] = x[n * stride + c] - most[c];
        mla_vec_exp(channels, row, row, 1, 0);
    }
    real *restrict sum = scratch + channels;
    memset(sum, 0, channels * sizeof(real));
    mla_vec_add_rows(tokens, channels, sum, y, channels, scratch); /* the largest have served */
    for (size_t c = 0; c < channels; c++) sum[c] = 1 / sum[c];
    for (size_t n = 0; n < tokens; n++)
        for (size_t c = 0; c < channels; c++) y[n * channels + c] *= sum[c];
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[0];
    const size_t tokens = x->shape[1], channels = x->shape[2];
    for (size_t b = 0; b < x->shape[0]; b++)
        forward_image(args->out.data + b * tokens * channels, x->data + b * tokens * x->stride, x->stride, tokens, channels,
                      args->scratch);
}

/* One image; y and dy (N, C), scratch (2, C). */
static void backward_image(real *dx, size_t stride, const real *y, const real *dy, size_t tokens, size_t channels,
                           real *scratch) {
    real *restrict dot = scratch, *restrict part = scratch + channels;
    memset(dot, 0, channels * sizeof(real));
    for (size_t first = 0; first < tokens; first += BLOCK) {
        const size_t last = first + BLOCK < tokens ? first + BLOCK : tokens;
        memset(part, 0, channels * sizeof(real));
        for (size_t i = first * channels; i < last * channels; i += channels)
            for (size_t c = 0; c < channels; c++) part[c] += y[i + c] * dy[i + c];
        mla_vec_add(channels, dot, 1, part);
    }
    for (size_t n = 0; n < tokens; n++) {
        const real *restrict value = y + n * channels, *restrict gradient = dy + n * channels;
        real *restrict row = dx + n * stride;
        for (size_t c = 0; c < channels; c++) row[c] += value[c] * (gradient[c] - dot[c]);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[0];
    if (!dx->data) return;
    const size_t tokens = dx->shape[1], channels = dx->shape[2], size = tokens * channels;
    for (size_t b = 0; b < dx->shape[0]; b++)
        backward_image(dx->data + b * tokens * dx->stride, dx->stride, args->out.data + b * size, args->dout.data + b * size,
                       tokens, channels, args->scratch);
}

const mla_op mla_op_token_softmax = {.name = "token_softmax", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_token_softmax(mla_tape *tape, mla_var x) {
    return mla_record(tape, MLA_OP_TOKEN_SOFTMAX, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
