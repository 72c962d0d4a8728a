/* cosine_features: the feature map of cosFormer (Qin et al., arXiv 2202.08791), for all tokens of an image in raster order,
 * positions 1 .. N and M = N.  Per head, with r = relu(x):
 *
 *   f_n = [r cos t_n, r sin t_n],   t_n = pi n / (2 N)
 *
 * so that fq_n . fk_m = (rq_n . rk_m) cos(t_n - t_m) >= 0.    dx += (dfc cos t + dfs sin t) [x > 0]
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    const size_t heads = *(const size_t *)args->attr;
    MLA_REQUIRE(x->ndim == 3 && heads > 0 && x->shape[2] % heads == 0, "cosine_features: x %s, %zu heads", mla_shape_text(x),
                heads);
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->shape[2] = 2 * x->shape[2];
    plan->saved = 2 * x->shape[1];
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[0];
    const size_t tokens = x->shape[1], columns = x->shape[2], d = columns / *(const size_t *)args->attr;
    real *cosine = args->saved, *sine = cosine + tokens;
    for (size_t n = 0; n < tokens; n++) {
        const double t = 1.57079632679489661923 * (double)(n + 1) / (double)tokens;
        cosine[n] = (real)cos(t);
        sine[n] = (real)sin(t);
    }
    for (size_t n = 0; n < x->shape[0] * tokens; n++) {
        const real *in = x->data + n * x->stride, c = cosine[n % tokens], s = sine[n % tokens];
        real *out = args->out.data + n * 2 * columns;
        for (size_t head = 0; head < columns; head += d)
            for (size_t i = head; i < head + d; i++) {
                const real r = in[i] < 0 ? 0 : in[i]; /* a NaN stays one */
                out[head + i] = r * c;
                out[head + d + i] = r * s;
            }
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[0], *dx = &args->din[0];
    const size_t tokens = x->shape[1], columns = x->shape[2], d = columns / *(const size_t *)args->attr;
    const real *cosine = args->saved, *sine = cosine + tokens;
    for (size_t n = 0; dx->data && n < x->shape[0] * tokens; n++) {
        const real *in = x->data + n * x->stride, *df = args->dout.data + n * 2 * columns, c = cosine[n % tokens],
                   s = sine[n % tokens];
        real *out = dx->data + n * dx->stride;
        for (size_t head = 0; head < columns; head += d)
            for (size_t i = head; i < head + d; i++) out[i] += in[i] > 0 ? df[head + i] * c + df[head + d + i] * s : 0;
    }
}

const mla_op mla_op_cosine_features = {.name = "cosine_features", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_cosine_features(mla_tape *tape, mla_var x, size_t heads) {
    return mla_record(tape, MLA_OP_COSINE_FEATURES, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR}, &heads,
                      sizeof heads);
}
