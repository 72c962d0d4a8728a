/* position: y = x + position, the same for every image.  dx += dy, dposition += sum over images dy. */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

enum { X, POSITION };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *p = &args->in[POSITION];
    MLA_REQUIRE(x->ndim == 3 && mla_tensor_contiguous(x) && mla_tensor_contiguous(p) &&
                    mla_tensor_count(p) * x->shape[0] == mla_tensor_count(x),
                "position: x %s, position %s", mla_shape_text(x), mla_shape_text(p));
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
}

static void forward(mla_op_args *args) {
    const size_t n = mla_tensor_count(&args->in[POSITION]);
    const real *position = args->in[POSITION].data;
    for (size_t b = 0; b < args->in[X].shape[0]; b++)
        for (size_t i = 0; i < n; i++) args->out.data[b * n + i] = args->in[X].data[b * n + i] + position[i];
}

static void backward(mla_op_args *args) {
    const size_t n = mla_tensor_count(&args->in[POSITION]);
    for (size_t b = 0; args->din[POSITION].data && b < args->in[X].shape[0]; b++)
        mla_vec_add(n, args->din[POSITION].data, 1, args->dout.data + b * n);
}

const mla_op mla_op_position = {.name = "position", .plan = plan, .forward = forward, .backward = backward, .passes = X + 1};

mla_var mla_position(mla_tape *tape, mla_var x, mla_var position) {
    return mla_record(tape, MLA_OP_POSITION, (mla_var[MLA_MAX_INPUTS]){x, position, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
