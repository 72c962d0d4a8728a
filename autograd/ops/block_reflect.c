/* block_reflect: the block isometry of the mirror, folded into the projection weight.
 *
 * For each head and block, q and k are multiplied by P = H(v_1) ... H(v_r) (row vectors: x P applies v_1 first).  It is
 * the same for every token, so it goes into the weight: with x = t W^T, x P = t (P^T W)^T, and P^T W = H(v_r) ... H(v_1) W
 * is r reflections of the block's b rows of W.  It costs nothing a token.  v_1 is applied first.
 *
 *   one reflection, unit u, rows X (b, K):  Y = X - 2 u (u^T X)
 *   with s = u^T X, g = u^T G (K each), G = dY:
 *   dX = G - 2 u g,   du = -2 (X g^T + G s^T) + 4 (s . g) u,   dv = du / |v|
 *
 * A reflection is its own inverse: backward rebuilds each X from the output, nothing is saved.
 */
#include "autograd/ops/block_reflect.h"

#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/reflection.h"
#include "core/vmath.h"

enum { WEIGHT, VECTORS };

static mla_block_fold fold_of(const mla_op_args *args) {
    const mla_tensor *w = &args->in[WEIGHT], *v = &args->in[VECTORS];
    return (mla_block_fold){.blocks = v->shape[0] * v->shape[1],
                            .reflections = v->shape[2],
                            .width = v->shape[3],
                            .columns = w->ndim == 1 ? 1 : mla_tensor_columns(w)};
}

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *w = &args->in[WEIGHT], *v = &args->in[VECTORS];
    MLA_REQUIRE(w->ndim <= 2 && mla_tensor_contiguous(w) && v->ndim == 4 && mla_tensor_contiguous(v) &&
                    w->shape[0] % 3 == 0 && v->shape[0] * v->shape[1] * v->shape[3] == w->shape[0] / 3,
                "block_reflect: weight %s, vectors %s", mla_shape_text(w), mla_shape_text(v));
    const mla_block_fold fold = fold_of(args);
    plan->ndim = w->ndim;
    memcpy(plan->shape, w->shape, sizeof plan->shape);
    plan->scratch = mla_block_fold_scratch(&fold);
}

size_t mla_block_scratch(size_t b, size_t k) { return 2 * k + 2 * b; }

size_t mla_block_fold_scratch(const mla_block_fold *f) {
    return f->width * f->columns + mla_block_scratch(f->width, f->columns);
}

/* out (K) = u^T X, X (b, K). */
static void project(real *restrict out, const real *restrict u, const real *restrict x, size_t b, size_t k) {
    memset(out, 0, k * sizeof(real));
    for (size_t i = 0; i < b; i++)
        for (size_t j = 0; j < k; j++) out[j] += u[i] * x[i * k + j];
}

/* X -= 2 u s. */
static void reflect(real *restrict x, const real *restrict u, const real *restrict s, size_t b, size_t k) {
    for (size_t i = 0; i < b; i++)
        for (size_t j = 0; j < k; j++) x[i * k + j] -= 2 * u[i] * s[j];
}

void mla_block_apply(real *x, const real *v, size_t r, size_t b, size_t k, real *scratch) {
    real *u = scratch, *s = u + b;
    for (size_t i = 0; i < r; i++) {
        mla_reflection_unit(u, v + i * b, b);
        project(s, u, x, b, k);
        reflect(x, u, s, b, k);
    }
}

void mla_block_fold_rows(const mla_block_fold *f, real *out, const real *w, const real *v, real *scratch) {
    const size_t b = f->width, k = f->columns, r = f->reflections;
    memcpy(out, w, 3 * f->blocks * b * k * sizeof(real));
    for (size_t block = 0; block < 2 * f->blocks; block++)
        mla_block_apply(out + block * b * k, v + block % f->blocks * r * b, r, b, k, scratch);
}

/* du from one reflection of X with output gradient G and their projections s, g on u. */
static void vector_gradient(real *du, const real *u, const real *x, const real *gradient, const real *s, const real *g,
                            size_t b, size_t k) {
    double dot = 0;
    for (size_t j = 0; j < k; j++) dot += (double)s[j] * (double)g[j];
    for (size_t i = 0; i < b; i++) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < k; j++) sum += x[i * k + j] * g[j] + gradient[i * k + j] * s[j];
        du[i] = -2 * sum + (real)(4 * dot) * u[i];
    }
}

void mla_block_apply_gradient(real *x, real *gradient, real *dv, const real *v, size_t r, size_t b, size_t k,
                              real *scratch) {
    real *s = scratch, *g = s + k, *u = g + k, *du = u + b;
    for (size_t i = r; i-- > 0;) {
        const real inverse = mla_reflection_unit(u, v + i * b, b);
        project(s, u, x, b, k);
        reflect(x, u, s, b, k);
        project(s, u, x, b, k);
        project(g, u, gradient, b, k);
        if (dv) {
            vector_gradient(du, u, x, gradient, s, g, b, k);
            for (size_t j = 0; j < b; j++) dv[i * b + j] += du[j] * inverse;
        }
        reflect(gradient, u, g, b, k);
    }
}

void mla_block_fold_gradient(const mla_block_fold *f, real *gradient, real *dv, const real *folded, const real *v,
                             real *scratch) {
    const size_t size = f->width * f->columns, vectors = f->reflections * f->width;
    for (size_t block = 0; block < 2 * f->blocks; block++) {
        const size_t offset = block % f->blocks * vectors;
        memcpy(scratch, folded + block * size, size * sizeof(real));
        mla_block_apply_gradient(scratch, gradient + block * size, dv ? dv + offset : NULL, v + offset, f->reflections,
                                 f->width, f->columns, scratch + size);
    }
}

static void forward(mla_op_args *args) {
    const mla_block_fold fold = fold_of(args);
    mla_block_fold_rows(&fold, args->out.data, args->in[WEIGHT].data, args->in[VECTORS].data, args->scratch);
}

static void backward(mla_op_args *args) {
    const mla_block_fold fold = fold_of(args);
    mla_block_fold_gradient(&fold, args->dout.data, args->din[VECTORS].data, args->out.data, args->in[VECTORS].data,
                            args->scratch);
    if (args->din[WEIGHT].data) mla_vec_add(mla_tensor_count(&args->out), args->din[WEIGHT].data, 1, args->dout.data);
}

const mla_op mla_op_block_reflect = {.name = "block_reflect", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_block_reflect(mla_tape *tape, mla_var weight, mla_var v) {
    return mla_record(tape, MLA_OP_BLOCK_REFLECT, (mla_var[MLA_MAX_INPUTS]){weight, v, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
