/* scale_modulation: the other reading of a variance-aware modulation: each channel of q and of k is scaled by a power of
 * its variance over the tokens of the image.
 *
 *   s = (1/N) sum over tokens (x - mu)^2,   p = (s + 1e-6)^-gamma,   y = p x          gamma (C): the same for q and k
 *
 *   dp = sum over tokens dy x,   dgamma += -dp p log(s + 1e-6),   ds = -dp gamma p / (s + 1e-6)
 *   dx += p dy + ds (2/N) (x - mu)                                 (the mean's own term vanishes)
 *
 * Saved an image: mu, s and p, (2C) each.
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/modulation.h"

enum { X, GAMMA };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *gamma = &args->in[GAMMA];
    MLA_REQUIRE(x->ndim == 3 && mla_tensor_contiguous(gamma) && 2 * mla_tensor_count(gamma) == x->shape[2],
                "scale_modulation: qk %s, gamma %s", mla_shape_text(x), mla_shape_text(gamma));
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->saved = 3 * x->shape[0] * x->shape[2];
    plan->scratch = x->shape[2];
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const size_t tokens = x->shape[1], width = x->shape[2];
    for (size_t b = 0; b < x->shape[0]; b++) {
        const real *in = x->data + b * tokens * x->stride;
        real *mu = args->saved + 3 * b * width, *s = mu + width, *p = s + width;
        real *y = args->out.data + b * tokens * width;
        mla_token_squares(tokens, width, mu, s, in, x->stride, args->scratch);
        for (size_t i = 0; i < width; i++) {
            s[i] /= (real)tokens;
            p[i] = (real)pow((double)s[i] + MLA_VARIANCE_FLOOR, -(double)args->in[GAMMA].data[i % (width / 2)]);
        }
        for (size_t n = 0; n < tokens; n++)
            for (size_t i = 0; i < width; i++) y[n * width + i] = p[i] * in[n * x->stride + i];
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X];
    const size_t tokens = x->shape[1], width = x->shape[2], channels = width / 2;
    for (size_t b = 0; b < x->shape[0]; b++) {
        const real *in = x->data + b * tokens * x->stride, *dy = args->dout.data + b * tokens * width;
        const real *mu = args->saved + 3 * b * width, *s = mu + width, *p = s + width;
        real *dp = args->scratch;
        memset(dp, 0, width * sizeof(real));
        for (size_t n = 0; n < tokens; n++)
            for (size_t i = 0; i < width; i++) dp[i] += dy[n * width + i] * in[n * x->stride + i];
        for (size_t i = 0; i < width; i++) {
            const double level = (double)s[i] + MLA_VARIANCE_FLOOR, dlog = -(double)dp[i] * (double)p[i];
            if (args->din[GAMMA].data) args->din[GAMMA].data[i % channels] += (real)(dlog * log(level));
            dp[i] = (real)(dlog * (double)args->in[GAMMA].data[i % channels] / level * 2 / (double)tokens);
        }
        for (size_t n = 0; dx->data && n < tokens; n++) {
            real *to = dx->data + (b * tokens + n) * dx->stride;
            for (size_t i = 0; i < width; i++) to[i] += p[i] * dy[n * width + i] + dp[i] * (in[n * x->stride + i] - mu[i]);
        }
    }
}

const mla_op mla_op_scale_modulation = {.name = "scale_modulation", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_scale_modulation(mla_tape *tape, mla_var qk, mla_var gamma) {
    return mla_record(tape, MLA_OP_SCALE_MODULATION, (mla_var[MLA_MAX_INPUTS]){qk, gamma, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
