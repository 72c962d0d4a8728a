/* product: y = a b, element by element; da += dy b, db += dy a. */
#include <string.h>

#include "autograd/ops.h"

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *a = &args->in[0], *b = &args->in[1];
    MLA_REQUIRE(mla_tensor_same_shape(a, b) && mla_tensor_contiguous(a) && mla_tensor_contiguous(b), "product: %s and %s",
                mla_shape_text(a), mla_shape_text(b));
    plan->ndim = a->ndim;
    memcpy(plan->shape, a->shape, sizeof plan->shape);
}

static void forward(mla_op_args *args) {
    const real *a = args->in[0].data, *b = args->in[1].data;
    real *restrict y = args->out.data;
    const size_t n = mla_tensor_count(&args->out);
    for (size_t i = 0; i < n; i++) y[i] = a[i] * b[i];
}

static void backward(mla_op_args *args) {
    const real *restrict dy = args->dout.data;
    const size_t n = mla_tensor_count(&args->dout);
    for (int side = 0; side < 2; side++) {
        real *dx = args->din[side].data; /* may be that of the other side, too */
        const real *restrict other = args->in[1 - side].data;
        for (size_t i = 0; dx && i < n; i++) dx[i] += dy[i] * other[i];
    }
}

const mla_op mla_op_product = {.name = "product", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_product(mla_tape *tape, mla_var a, mla_var b) {
    return mla_record(tape, MLA_OP_PRODUCT, (mla_var[MLA_MAX_INPUTS]){a, b, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
