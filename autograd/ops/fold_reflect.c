/* fold_reflect: mirrors that only reflect what stands behind them.  Every block of b channels of q and of k meets f
 * conditional reflections, v_1 first; a row x of a block:
 *
 *   x <- x - 2 min(0, x . u) u,   u = v / |v|
 *
 * It keeps the length and is no linear map: the negative side of each mirror is folded onto the positive one.
 *
 *   with s = x . u, where s < 0:  du += -2 ((dy . u) x + s dy),   dx = dy - 2 (dy . u) u;   elsewhere dx = dy
 *   dv += (du - (du . u) u) / |v|
 *
 * Saved: s of every mirror and row, and the unit vectors.  Backward rebuilds each x from the output, since where s < 0 it
 * is the reflection of what came after.
 */
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/reflection.h"
#include "core/vmath.h"

enum { X, VECTORS };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *v = &args->in[VECTORS];
    MLA_REQUIRE(x->ndim == 3 && v->ndim == 4 && mla_tensor_contiguous(v) &&
                    2 * v->shape[0] * v->shape[1] * v->shape[3] == x->shape[2],
                "fold_reflect: qk %s, vectors %s", mla_shape_text(x), mla_shape_text(v));
    const size_t blocks = 2 * v->shape[0] * v->shape[1], mirrors = v->shape[2], b = v->shape[3];
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->saved = mla_tensor_rows(x) * blocks * mirrors + mla_tensor_count(v);
    plan->scratch = mla_tensor_count(v) + 2 * b;
    plan->flops = 4.0 * (double)mla_tensor_count(x) * (double)mirrors;
}

/* Both passes go over the blocks of all rows, q's and k's in turn: block n stands at row n / blocks. */
typedef struct layout {
    size_t blocks, mirrors, b, count; /* blocks of a row; all blocks */
    real *s, *unit;                   /* (count, f), (blocks / 2, f, b): saved */
} layout;

static layout layout_of(const mla_op_args *args) {
    const mla_tensor *v = &args->in[VECTORS];
    layout l = {.blocks = 2 * v->shape[0] * v->shape[1], .mirrors = v->shape[2], .b = v->shape[3], .s = args->saved};
    l.count = mla_tensor_rows(&args->in[X]) * l.blocks;
    l.unit = l.s + l.count * l.mirrors;
    return l;
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const layout l = layout_of(args);
    for (size_t i = 0; i < l.blocks / 2 * l.mirrors; i++)
        mla_reflection_unit(l.unit + i * l.b, args->in[VECTORS].data + i * l.b, l.b);
    for (size_t n = 0; n < l.count; n++) {
        const real *unit = l.unit + n % (l.blocks / 2) * l.mirrors * l.b;
        real *y = args->out.data + n * l.b;
        memcpy(y, x->data + n / l.blocks * x->stride + n % l.blocks * l.b, l.b * sizeof(real));
        for (size_t i = 0; i < l.mirrors; i++) {
            const real s = mla_vec_dot(l.b, y, unit + i * l.b);
            l.s[n * l.mirrors + i] = s;
            if (s < 0) mla_vec_add(l.b, y, -2 * s, unit + i * l.b);
        }
    }
}

/* One block of a row: y, its value, and g, its gradient, are worked back in place; du (f, b). */
static void return_block(const layout *l, real *y, real *g, real *du, const real *unit, const real *s) {
    for (size_t i = l->mirrors; i-- > 0;) {
        const real *u = unit + i * l->b;
        if (!(s[i] < 0)) continue;
        const real along = mla_vec_dot(l->b, g, u);
        mla_vec_add(l->b, y, 2 * s[i], u);
        mla_vec_add(l->b, du + i * l->b, -2 * along, y);
        mla_vec_add(l->b, du + i * l->b, -2 * s[i], g);
        mla_vec_add(l->b, g, -2 * along, u);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[X];
    const layout l = layout_of(args);
    const size_t vectors = l.blocks / 2 * l.mirrors;
    real *du = args->scratch, *y = du + vectors * l.b, *g = y + l.b;
    memset(du, 0, vectors * l.b * sizeof(real));
    for (size_t n = 0; n < l.count; n++) {
        const size_t offset = n % (l.blocks / 2) * l.mirrors * l.b;
        memcpy(y, args->out.data + n * l.b, l.b * sizeof(real));
        memcpy(g, args->dout.data + n * l.b, l.b * sizeof(real));
        return_block(&l, y, g, du + offset, l.unit + offset, l.s + n * l.mirrors);
        if (dx->data) mla_vec_add(l.b, dx->data + n / l.blocks * dx->stride + n % l.blocks * l.b, 1, g);
    }
    for (size_t i = 0; args->din[VECTORS].data && i < vectors; i++) {
        const real inverse = mla_reflection_unit(y, args->in[VECTORS].data + i * l.b, l.b);
        mla_vec_add(l.b, du + i * l.b, -mla_vec_dot(l.b, du + i * l.b, y), y);
        mla_vec_add(l.b, args->din[VECTORS].data + i * l.b, inverse, du + i * l.b);
    }
}

const mla_op mla_op_fold_reflect = {.name = "fold_reflect", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_fold_reflect(mla_tape *tape, mla_var qk, mla_var v) {
    return mla_record(tape, MLA_OP_FOLD_REFLECT, (mla_var[MLA_MAX_INPUTS]){qk, v, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
