/* token_mean: y_b = (1 / N) sum_n x_bn; dx_bn += dy_b / N. */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    MLA_REQUIRE(x->ndim == 3 && mla_tensor_contiguous(x), "token_mean: x %s", mla_shape_text(x));
    plan->ndim = 2;
    plan->shape[0] = x->shape[0];
    plan->shape[1] = x->shape[2];
    plan->scratch = x->shape[2];
}

static void forward(mla_op_args *args) {
    const size_t tokens = args->in[0].shape[1], n = args->in[0].shape[2];
    for (size_t b = 0; b < args->in[0].shape[0]; b++) {
        const real *x = args->in[0].data + b * tokens * n;
        real *y = args->out.data + b * n;
        memset(y, 0, n * sizeof(real));
        mla_vec_add_rows(tokens, n, y, x, n, args->scratch);
        for (size_t i = 0; i < n; i++) y[i] /= (real)tokens;
    }
}

static void backward(mla_op_args *args) {
    const size_t tokens = args->in[0].shape[1], n = args->in[0].shape[2];
    const real scale = 1 / (real)tokens;
    if (!args->din[0].data) return;
    for (size_t b = 0; b < args->in[0].shape[0]; b++)
        for (size_t t = 0; t < tokens; t++)
            mla_vec_add(n, args->din[0].data + (b * tokens + t) * n, scale, args->dout.data + b * n);
}

const mla_op mla_op_token_mean = {.name = "token_mean", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_token_mean(mla_tape *tape, mla_var x) {
    return mla_record(tape, MLA_OP_TOKEN_MEAN, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
