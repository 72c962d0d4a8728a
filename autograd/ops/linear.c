/* linear: y = x W^T + b + residual, or gelu(x W^T + b).
 *
 *   a = x W^T + b        x (rows, in), W (out, in), b (out)
 *   y = a + residual     or, with GELU, y = a Phi(a), which goes with no residual
 *   da = dy              or dy (Phi(a) + a phi(a)); that slope is what forward saves, not a itself: it costs one
 *                        exponential more there and none here
 *   dx += da W,  dW += da^T x,  db += column sums of da,  dresidual += dy
 *
 * The output starts as bias + residual, and the product is added to it: one pass over memory less than adding later.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/gemm.h"
#include "core/vmath.h"

enum { X, WEIGHT, BIAS, RESIDUAL };
typedef struct attributes {
    mla_activation activation;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *w = &args->in[WEIGHT], *b = &args->in[BIAS], *r = &args->in[RESIDUAL];
    const attributes *attr = args->attr;
    const size_t rows = mla_tensor_rows(x), in = mla_tensor_columns(x), out = w->shape[0];
    MLA_REQUIRE(mla_tensor_contiguous(w) && mla_tensor_count(w) == out * in, "linear: x %s, weight %s", mla_shape_text(x),
                mla_shape_text(w));
    MLA_REQUIRE(!b->data || mla_tensor_count(b) == out, "linear: weight %s, bias %s", mla_shape_text(w), mla_shape_text(b));
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->shape[x->ndim - 1] = out;
    MLA_REQUIRE(!r->data || (mla_tensor_contiguous(r) && mla_tensor_rows(r) == rows && mla_tensor_columns(r) == out),
                "linear: %zu rows of %zu, residual %s", rows, out, mla_shape_text(r));
    MLA_REQUIRE(!r->data || attr->activation == MLA_IDENTITY, "linear: a residual goes with no activation");
    plan->saved = attr->activation == MLA_GELU ? rows * out : 0;
    plan->scratch = out;
    plan->flops = 2.0 * (double)rows * (double)in * (double)out;
}

static void start_rows(real *y, size_t rows, size_t out, const real *bias, const real *residual) {
    for (size_t i = 0; i < rows; i++, y += out) {
        const real *r = residual ? residual + i * out : NULL;
        if (bias && r)
            for (size_t j = 0; j < out; j++) y[j] = bias[j] + r[j];
        else if (bias || r)
            memcpy(y, bias ? bias : r, out * sizeof(real));
        else
            memset(y, 0, out * sizeof(real));
    }
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const attributes *attr = args->attr;
    const size_t rows = mla_tensor_rows(x), in = mla_tensor_columns(x), out = args->in[WEIGHT].shape[0];
    real *y = args->out.data;
    start_rows(y, rows, out, args->in[BIAS].data, args->in[RESIDUAL].data);
    mla_gemm(MLA_N, MLA_T, rows, out, in, 1, x->data, x->stride, args->in[WEIGHT].data, in, 1, y, out);
    if (attr->activation == MLA_GELU) mla_vec_gelu(rows * out, y, args->saved, y);
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const attributes *attr = args->attr;
    const size_t rows = mla_tensor_rows(x), in = mla_tensor_columns(x), out = args->in[WEIGHT].shape[0];
    real *dy = args->dout.data;
    if (args->din[RESIDUAL].data) mla_vec_add(rows * out, args->din[RESIDUAL].data, 1, dy);
    if (attr->activation == MLA_GELU)
        for (size_t i = 0; i < rows * out; i++) dy[i] *= args->saved[i];
    if (args->din[WEIGHT].data)
        mla_gemm(MLA_T, MLA_N, out, in, rows, 1, dy, out, x->data, x->stride, 1, args->din[WEIGHT].data, in);
    if (args->din[BIAS].data) mla_vec_add_rows(rows, out, args->din[BIAS].data, dy, out, args->scratch);
    if (args->din[X].data)
        mla_gemm(MLA_N, MLA_N, rows, in, out, 1, dy, out, args->in[WEIGHT].data, in, 1, args->din[X].data,
                 args->din[X].stride);
}

const mla_op mla_op_linear = {"linear", plan, forward, backward};

mla_var mla_linear(mla_tape *tape, mla_var x, mla_var weight, mla_var bias, mla_var residual, mla_activation activation) {
    return mla_record(tape, MLA_OP_LINEAR, (mla_var[MLA_MAX_INPUTS]){x, weight, bias, residual}, &(attributes){activation},
                      sizeof(attributes));
}
