/* residual: y = x + scale_b f for image b (scale 1 when none is given); dx += dy, df += scale_b dy.
 *
 * Drop path (stochastic depth, Huang et al., arXiv 1603.09382) is this with scale_b = 0 or 1 / (1 - rate), as timm does
 * it: the branch of an image is dropped whole, and the expectation stays.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

enum { X, BRANCH };
typedef struct attributes {
    const real *scale; /* (B) or NULL */
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *f = &args->in[BRANCH];
    MLA_REQUIRE(mla_tensor_same_shape(x, f) && mla_tensor_contiguous(x) && mla_tensor_contiguous(f),
                "residual: x %s, branch %s", mla_shape_text(x), mla_shape_text(f));
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
}

static void forward(mla_op_args *args) {
    const attributes *attr = args->attr;
    const size_t images = args->in[X].shape[0], n = mla_tensor_count(&args->in[X]) / images;
    for (size_t b = 0; b < images; b++) {
        const real *x = args->in[X].data + b * n, *f = args->in[BRANCH].data + b * n;
        const real scale = attr->scale ? attr->scale[b] : 1;
        real *y = args->out.data + b * n;
        for (size_t i = 0; i < n; i++) y[i] = x[i] + scale * f[i];
    }
}

static void backward(mla_op_args *args) {
    const attributes *attr = args->attr;
    const size_t images = args->in[X].shape[0], n = mla_tensor_count(&args->in[X]) / images;
    for (size_t b = 0; b < images; b++) {
        const real *dy = args->dout.data + b * n;
        const real scale = attr->scale ? attr->scale[b] : 1;
        if (args->din[BRANCH].data) mla_vec_add(n, args->din[BRANCH].data + b * n, scale, dy);
    }
}

const mla_op mla_op_residual = {.name = "residual", .plan = plan, .forward = forward, .backward = backward, .passes = X + 1};

mla_var mla_residual(mla_tape *tape, mla_var x, mla_var f, const real *scale) {
    return mla_record(tape, MLA_OP_RESIDUAL, (mla_var[MLA_MAX_INPUTS]){x, f, MLA_NO_VAR, MLA_NO_VAR}, &(attributes){scale},
                      sizeof(attributes));
}

mla_var mla_drop_path(mla_tape *tape, mla_var x, mla_var f, double rate, const double *uniform) {
    if (rate <= 0) return mla_residual(tape, x, f, NULL);
    const mla_tensor t = mla_value(tape, x);
    real *scale = mla_tape_alloc(tape, (t.data ? t.shape[0] : 1) * sizeof(real));
    if (!scale || !t.data) return MLA_NO_VAR;
    for (size_t b = 0; b < t.shape[0]; b++) scale[b] = uniform[b] < rate ? 0 : (real)(1 / (1 - rate));
    return mla_residual(tape, x, f, scale);
}
