/* gelu: y = x Phi(x), exact (Hendrycks & Gimpel, arXiv 1606.08415); dx += dy (Phi(x) + x phi(x)).
 *
 * linear has it built in; this is its plain twin.  Saved: the slope.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    MLA_REQUIRE(mla_tensor_contiguous(x), "gelu: a view %s", mla_shape_text(x));
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->saved = mla_tensor_count(x);
}

static void forward(mla_op_args *args) {
    mla_vec_gelu(mla_tensor_count(&args->in[0]), args->out.data, args->saved, args->in[0].data);
}

static void backward(mla_op_args *args) {
    const size_t n = mla_tensor_count(&args->in[0]);
    if (!args->din[0].data) return;
    for (size_t i = 0; i < n; i++) args->din[0].data[i] += args->dout.data[i] * args->saved[i];
}

const mla_op mla_op_gelu = {.name = "gelu", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_gelu(mla_tape *tape, mla_var x) {
    return mla_record(tape, MLA_OP_GELU, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
