/* feature_map: a non-negative map of linear attention by itself, element by element.
 *
 *   relu:  f = max(x, 0),      dx += df [f > 0]
 *   elu1:  f = elu(x) + 1,     dx += df min(1, f)     (f is the slope exp(x) where x <= 0)
 *
 * linear_attention has these built in, tile by tile; this is for maps with something before or after.
 */
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/feature_rows.h"

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[0];
    mla_feature_rows(*(const mla_feature_map *)args->attr, args->out.data, x->data, x->stride, mla_tensor_rows(x),
                     mla_tensor_columns(x));
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[0];
    if (!dx->data) return;
    mla_feature_rows_gradient(*(const mla_feature_map *)args->attr, dx->data, dx->stride, args->out.data, args->dout.data,
                              mla_tensor_rows(dx), mla_tensor_columns(dx));
}

const mla_op mla_op_feature_map = {.name = "feature_map", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_features(mla_tape *tape, mla_var x, mla_feature_map map) {
    return mla_record(tape, MLA_OP_FEATURE_MAP, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR}, &map,
                      sizeof map);
}
