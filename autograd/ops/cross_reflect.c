/* cross_reflect: q and k times X = H(u_1) ... H(u_r) in R^C, across all heads, in the compact WY form (Schreiber & Van
 * Loan, SIAM J. Sci. Stat. Comput. 10, 1989) with unit vectors u:
 *
 *   T^-1 = strict upper triangle of U U^T + I / 2          (r, r); a vector that counts as zero leaves T's row to itself
 *   s = x U^T,   y = x - (s T) U                           two thin products a token instead of a C x C one
 *
 *   k = dy U^T,  dx += dy - (k T^T) U
 *   dT = -s^T k (sum over tokens),  dTinv = -T^T dT T^T,  dG = strict upper triangle of dTinv
 *   dU = -(s T)^T dy - T (k^T x) + (dG + dG^T) U           sums over tokens
 *   du is then made orthogonal to u and divided by the vector's length (reflection.h)
 *
 * r is small (2 by default), so each token's row is read once and the r products are taken while it is in cache.
 * Saved: s, U, T and the inverse lengths.  Models use it within mirror_attention,
 * whose plain twin it is, and by itself where the channels do not fill whole vectors.
 */
#include "autograd/ops/cross_reflect.h"

#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/reflection.h"
#include "core/vmath.h"

enum { X, VECTORS };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *v = &args->in[VECTORS];
    MLA_REQUIRE(x->ndim == 3 && v->ndim == 2 && mla_tensor_contiguous(v) && x->shape[2] == 2 * v->shape[1] &&
                    v->shape[0] <= MLA_MAX_REFLECTIONS,
                "cross_reflect: qk %s, vectors %s", mla_shape_text(x), mla_shape_text(v));
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    const size_t r = v->shape[0], channels = v->shape[1], rows = 2 * mla_tensor_rows(x);
    plan->saved = rows * r + mla_cross_saved(r, channels);
    plan->scratch = 2 * r * channels + r * r;
    plan->flops = 4.0 * (double)mla_tensor_count(x) * (double)r;
}

size_t mla_cross_saved(size_t r, size_t channels) { return r * channels + r * r + r; }

mla_cross mla_cross_at(size_t r, size_t channels, real *saved) {
    return (mla_cross){r, channels, saved, saved + r * channels, saved + r * channels + r * r};
}

/* Its saved values stand behind s (rows, r). */
static mla_cross cross_of(const mla_op_args *args) {
    const size_t r = args->in[VECTORS].shape[0], channels = args->in[VECTORS].shape[1];
    return mla_cross_at(r, channels, args->saved + 2 * mla_tensor_rows(&args->in[X]) * r);
}

/* Row `n` of q and k in turn: token n / 2, half n % 2. */
static size_t row_offset(const mla_tensor *t, size_t n) { return n / 2 * t->stride + n % 2 * (t->shape[2] / 2); }

/* T, upper triangular, by back substitution of T^-1 T = I. */
static void compact_factor(real *t, const real *unit, size_t r, size_t channels) {
    memset(t, 0, r * r * sizeof(real));
    for (size_t i = r; i-- > 0;) {
        t[i * r + i] = 2;
        for (size_t l = i + 1; l < r; l++) {
            double dot = 0;
            for (size_t c = 0; c < channels; c++) dot += (double)unit[i * channels + c] * (double)unit[l * channels + c];
            for (size_t j = l; j < r; j++) t[i * r + j] -= (real)(2 * dot) * t[l * r + j];
        }
    }
}

void mla_cross_prepare(const mla_cross *c, const real *v) {
    for (size_t j = 0; j < c->r; j++)
        c->inverse[j] = mla_reflection_unit(c->unit + j * c->channels, v + j * c->channels, c->channels);
    compact_factor(c->t, c->unit, c->r, c->channels);
}

void mla_cross_times_factor(const mla_cross *c, real *out, const real *s, bool transpose) {
    for (size_t j = 0; j < c->r; j++) {
        out[j] = 0;
        for (size_t i = 0; i < c->r; i++) out[j] += s[i] * (transpose ? c->t[j * c->r + i] : c->t[i * c->r + j]);
    }
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *v = &args->in[VECTORS];
    const size_t r = v->shape[0], channels = v->shape[1], rows = 2 * mla_tensor_rows(x);
    const mla_cross p = cross_of(args);
    mla_cross_prepare(&p, v->data);
    for (size_t n = 0; n < rows; n++) {
        const real *in = x->data + row_offset(x, n);
        real *y = args->out.data + n * channels, *s = args->saved + n * r, st[MLA_MAX_REFLECTIONS];
        for (size_t j = 0; j < r; j++) s[j] = mla_vec_dot(channels, in, p.unit + j * channels);
        mla_cross_times_factor(&p, st, s, false);
        memcpy(y, in, channels * sizeof(real));
        for (size_t j = 0; j < r; j++) mla_vec_add(channels, y, -st[j], p.unit + j * channels);
    }
}

/* dG + dG^T from S^T K: dTinv = -T^T (-S^T K) T^T = T^T (S^T K) T^T. */
static void factor_gradient(real *symmetric, const real *sk, const real *t, size_t r) {
    for (size_t i = 0; i < r; i++) symmetric[i * r + i] = 0;
    for (size_t i = 0; i < r; i++)
        for (size_t j = i + 1; j < r; j++) {
            double sum = 0;
            for (size_t a = 0; a < r; a++)
                for (size_t b = 0; b < r; b++) sum += (double)t[a * r + i] * (double)sk[a * r + b] * (double)t[j * r + b];
            symmetric[i * r + j] = symmetric[j * r + i] = (real)sum;
        }
}

/* du becomes all of dU, then is projected, scaled and added to dv. */
void mla_cross_gradient(const mla_cross *c, real *dv, real *du, const real *kx, const real *sk) {
    const size_t r = c->r, channels = c->channels;
    real symmetric[MLA_MAX_REFLECTIONS * MLA_MAX_REFLECTIONS];
    factor_gradient(symmetric, sk, c->t, r);
    for (size_t j = 0; j < r; j++) {
        real *row = du + j * channels;
        for (size_t l = 0; l < r; l++) {
            mla_vec_add(channels, row, -c->t[j * r + l], kx + l * channels);
            mla_vec_add(channels, row, symmetric[j * r + l], c->unit + l * channels);
        }
        const real along = mla_vec_dot(channels, row, c->unit + j * channels);
        mla_vec_add(channels, row, -along, c->unit + j * channels);
        mla_vec_add(channels, dv + j * channels, c->inverse[j], row);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X];
    const size_t r = args->in[VECTORS].shape[0], channels = args->in[VECTORS].shape[1], rows = 2 * mla_tensor_rows(x);
    const mla_cross p = cross_of(args);
    real *du = args->scratch, *kx = du + r * channels, *sk = kx + r * channels;
    memset(args->scratch, 0, (2 * r * channels + r * r) * sizeof(real));
    for (size_t n = 0; n < rows; n++) {
        const real *in = x->data + row_offset(x, n), *dy = args->dout.data + n * channels, *s = args->saved + n * r;
        real k[MLA_MAX_REFLECTIONS], kt[MLA_MAX_REFLECTIONS], st[MLA_MAX_REFLECTIONS];
        for (size_t j = 0; j < r; j++) k[j] = mla_vec_dot(channels, dy, p.unit + j * channels);
        mla_cross_times_factor(&p, kt, k, true);
        mla_cross_times_factor(&p, st, s, false);
        if (dx->data) {
            real *out = dx->data + row_offset(dx, n);
            mla_vec_add(channels, out, 1, dy);
            for (size_t j = 0; j < r; j++) mla_vec_add(channels, out, -kt[j], p.unit + j * channels);
        }
        for (size_t j = 0; args->din[VECTORS].data && j < r; j++) {
            mla_vec_add(channels, du + j * channels, -st[j], dy);
            mla_vec_add(channels, kx + j * channels, k[j], in);
            for (size_t l = 0; l < r; l++) sk[j * r + l] += s[j] * k[l];
        }
    }
    if (args->din[VECTORS].data) mla_cross_gradient(&p, args->din[VECTORS].data, du, kx, sk);
}

const mla_op mla_op_cross_reflect = {.name = "cross_reflect", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_cross_reflect(mla_tape *tape, mla_var qk, mla_var u) {
    return mla_record(tape, MLA_OP_CROSS_REFLECT, (mla_var[MLA_MAX_INPUTS]){qk, u, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
