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
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/reflection.h"

enum { WEIGHT, VECTORS };

static size_t row_length(const mla_tensor *w) { return w->ndim == 1 ? 1 : mla_tensor_columns(w); }

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *w = &args->in[WEIGHT], *v = &args->in[VECTORS];
    MLA_REQUIRE(w->ndim <= 2 && mla_tensor_contiguous(w) && v->ndim == 4 && mla_tensor_contiguous(v) &&
                    w->shape[0] % 3 == 0 && v->shape[0] * v->shape[1] * v->shape[3] == w->shape[0] / 3,
                "block_reflect: weight %s, vectors %s", mla_shape_text(w), mla_shape_text(v));
    plan->ndim = w->ndim;
    memcpy(plan->shape, w->shape, sizeof plan->shape);
    const size_t b = v->shape[3], k = row_length(w);
    plan->scratch = 2 * b * k + 2 * k + 2 * b;
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

static void forward(mla_op_args *args) {
    const mla_tensor *w = &args->in[WEIGHT], *v = &args->in[VECTORS];
    const size_t blocks = v->shape[0] * v->shape[1], r = v->shape[2], b = v->shape[3], k = row_length(w);
    real *u = args->scratch, *s = u + b;
    memcpy(args->out.data, w->data, w->shape[0] * k * sizeof(real));
    for (size_t block = 0; block < blocks; block++)
        for (size_t i = 0; i < r; i++) {
            mla_reflection_unit(u, v->data + (block * r + i) * b, b);
            for (size_t part = 0; part < 2; part++) {
                real *x = args->out.data + (part * blocks + block) * b * k;
                project(s, u, x, b, k);
                reflect(x, u, s, b, k);
            }
        }
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

/* One block of q's or k's rows: x holds the block of the output, gradient its gradient; both are worked on in place. */
static void backward_block(const mla_op_args *args, size_t block, real *x, real *gradient) {
    const mla_tensor *v = &args->in[VECTORS];
    const size_t r = v->shape[2], b = v->shape[3], k = row_length(&args->in[WEIGHT]);
    real *s = args->scratch + 2 * b * k, *g = s + k, *u = g + k, *du = u + b;
    for (size_t i = r; i-- > 0;) {
        const size_t offset = (block * r + i) * b;
        const real inverse = mla_reflection_unit(u, v->data + offset, b);
        project(s, u, x, b, k);
        reflect(x, u, s, b, k);
        project(s, u, x, b, k);
        project(g, u, gradient, b, k);
        if (args->din[VECTORS].data) {
            vector_gradient(du, u, x, gradient, s, g, b, k);
            for (size_t j = 0; j < b; j++) args->din[VECTORS].data[offset + j] += du[j] * inverse;
        }
        reflect(gradient, u, g, b, k);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *w = &args->in[WEIGHT], *v = &args->in[VECTORS];
    const size_t blocks = v->shape[0] * v->shape[1], b = v->shape[3], k = row_length(w), size = b * k;
    real *x = args->scratch, *gradient = x + size, *dw = args->din[WEIGHT].data;
    for (size_t block = 0; block < 2 * blocks; block++) {
        memcpy(x, args->out.data + block * size, size * sizeof(real));
        memcpy(gradient, args->dout.data + block * size, size * sizeof(real));
        backward_block(args, block % blocks, x, gradient);
        if (dw)
            for (size_t i = 0; i < size; i++) dw[block * size + i] += gradient[i];
    }
    if (dw) /* the rows of v pass through */
        for (size_t i = 2 * blocks * size; i < 3 * blocks * size; i++) dw[i] += args->dout.data[i];
}

const mla_op mla_op_block_reflect = {"block_reflect", plan, forward, backward};

mla_var mla_block_reflect(mla_tape *tape, mla_var weight, mla_var v) {
    return mla_record(tape, MLA_OP_BLOCK_REFLECT, (mla_var[MLA_MAX_INPUTS]){weight, v, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
