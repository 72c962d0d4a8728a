/* block_turn: every block of b channels of q and of k times the product of its reflections, P = H(v_1) ... H(v_r), token by
 * token: where the product can't stand in the projection (block_reflect), as both x and x P are wanted.
 *
 *   y = x P,   dx += dy P^T,   dP = sum over tokens, q and k, x^T dy
 *
 * dv comes from dP as block_reflect's does: P^T is what the reflections make of the identity.  Saved: P^T of every block.
 */
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/block_reflect.h"
#include "core/vmath.h"

enum { X, VECTORS };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *v = &args->in[VECTORS];
    MLA_REQUIRE(x->ndim == 3 && v->ndim == 4 && mla_tensor_contiguous(v) &&
                    2 * v->shape[0] * v->shape[1] * v->shape[3] == x->shape[2],
                "block_turn: qk %s, vectors %s", mla_shape_text(x), mla_shape_text(v));
    const size_t blocks = v->shape[0] * v->shape[1], b = v->shape[3];
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->saved = blocks * b * b;
    plan->scratch = blocks * b * b + b * b + mla_block_scratch(b, b);
    plan->flops = 2.0 * (double)mla_tensor_count(x) * (double)b;
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *v = &args->in[VECTORS];
    const size_t blocks = v->shape[0] * v->shape[1], r = v->shape[2], b = v->shape[3];
    memset(args->saved, 0, blocks * b * b * sizeof(real));
    for (size_t j = 0; j < blocks; j++) {
        real *turn = args->saved + j * b * b;
        for (size_t i = 0; i < b; i++) turn[i * b + i] = 1;
        mla_block_apply(turn, v->data + j * r * b, r, b, b, args->scratch);
    }
    for (size_t n = 0; n < 2 * blocks * mla_tensor_rows(x); n++) {
        const real *restrict turn = args->saved + n % blocks * b * b;
        const real *restrict in = x->data + n / (2 * blocks) * x->stride + n % (2 * blocks) * b;
        for (size_t i = 0; i < b; i++) args->out.data[n * b + i] = mla_vec_dot(b, turn + i * b, in);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *v = &args->in[VECTORS], *dx = &args->din[X];
    const size_t blocks = v->shape[0] * v->shape[1], r = v->shape[2], b = v->shape[3];
    real *dturn = args->scratch, *turn = dturn + blocks * b * b, *scratch = turn + b * b; /* d(P^T) of each block */
    memset(dturn, 0, blocks * b * b * sizeof(real));
    for (size_t n = 0; n < 2 * blocks * mla_tensor_rows(x); n++) {
        const size_t j = n % blocks, offset = n % (2 * blocks) * b;
        const real *in = x->data + n / (2 * blocks) * x->stride + offset, *dy = args->dout.data + n * b;
        for (size_t i = 0; i < b; i++) {
            if (dx->data)
                mla_vec_add(b, dx->data + n / (2 * blocks) * dx->stride + offset, dy[i], args->saved + (j * b + i) * b);
            mla_vec_add(b, dturn + (j * b + i) * b, dy[i], in);
        }
    }
    for (size_t j = 0; args->din[VECTORS].data && j < blocks; j++) {
        memcpy(turn, args->saved + j * b * b, b * b * sizeof(real));
        mla_block_apply_gradient(turn, dturn + j * b * b, args->din[VECTORS].data + j * r * b, v->data + j * r * b, r, b, b,
                                 scratch);
    }
}

const mla_op mla_op_block_turn = {.name = "block_turn", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_block_turn(mla_tape *tape, mla_var qk, mla_var v) {
    return mla_record(tape, MLA_OP_BLOCK_TURN, (mla_var[MLA_MAX_INPUTS]){qk, v, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
