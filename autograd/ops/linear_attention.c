/* linear_attention: non-causal linear attention with a non-negative feature map f (Katharopoulos et al., arXiv
 * 2006.16236), in token means, so that the floor eps does not depend on N.  Per image and head, with fq = f(q), fk = f(k):
 *
 *   S = (1/N) sum_m fk_m^T v_m  (d, d),   z = (1/N) sum_m fk_m  (d)
 *   den_n = fq_n . z + eps,   y_n = fq_n S / den_n
 *
 *   dnum = dy / den,  dden = -(dy . y) / den
 *   dfq = dnum S^T + dden z,   dS = sum_n fq_n^T dnum_n,   dz = sum_n dden_n fq_n
 *   dfk = (v dS^T + dz) / N,   dv += fk dS / N
 *   relu: dx += df [f > 0];   elu + 1: dx += df min(1, f)  (f is the slope exp(x) where x <= 0)
 *
 * A query without a positive feature gives y = 0 and no gradient; eps bounds 1 / den.  Saved: S and z a head; the
 * features are cheaper to compute again than to keep.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/gemm.h"
#include "core/vmath.h"

enum { Q, K, V };
typedef struct attributes {
    size_t heads;
    mla_feature_map map;
    double eps;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *q = &args->in[Q];
    const attributes *attr = args->attr;
    MLA_REQUIRE(q->ndim == 3 && attr->heads > 0 && q->shape[2] % attr->heads == 0 &&
                    mla_tensor_same_shape(q, &args->in[K]) && mla_tensor_same_shape(q, &args->in[V]),
                "linear_attention: q %s, k %s, v %s, %zu heads", mla_shape_text(q), mla_shape_text(&args->in[K]),
                mla_shape_text(&args->in[V]), attr->heads);
    plan->ndim = 3;
    memcpy(plan->shape, q->shape, sizeof plan->shape);
    const size_t tokens = q->shape[1], d = q->shape[2] / attr->heads;
    plan->saved = q->shape[0] * attr->heads * (d * d + d);
    plan->scratch = 4 * tokens * d + 2 * tokens + d * d + 2 * d;
    plan->flops = (double)mla_tensor_count(q) * (4.0 * (double)d + 2.0);
}

/* One head of one image; strides are those of q, k, v (and of their gradients). */
typedef struct head {
    size_t tokens, d;
    const real *q, *k, *v;
    size_t q_stride, k_stride, v_stride;
    real *s, *z;                       /* saved */
    real *fq, *fk, *dnum, *df;         /* (N, d) scratch */
    real *den, *dden, *ds, *dz, *part; /* (N), (N), (d, d), (d), (d) scratch */
} head;

static const real *columns(const mla_tensor *t, size_t image, size_t first) {
    return t->data + image * t->shape[1] * t->stride + first;
}

static head head_of(const mla_op_args *args, size_t image, size_t index) {
    const size_t heads = ((const attributes *)args->attr)->heads, tokens = args->in[Q].shape[1];
    const size_t d = args->in[Q].shape[2] / heads;
    head h = {.tokens = tokens,
              .d = d,
              .q = columns(&args->in[Q], image, index * d),
              .q_stride = args->in[Q].stride,
              .k = columns(&args->in[K], image, index * d),
              .k_stride = args->in[K].stride,
              .v = columns(&args->in[V], image, index * d),
              .v_stride = args->in[V].stride};
    h.s = args->saved + (image * heads + index) * (d * d + d);
    h.z = h.s + d * d;
    h.fq = args->scratch;
    h.fk = h.fq + tokens * d;
    h.dnum = h.fk + tokens * d;
    h.df = h.dnum + tokens * d;
    h.den = h.df + tokens * d;
    h.dden = h.den + tokens;
    h.ds = h.dden + tokens;
    h.dz = h.ds + d * d;
    h.part = h.dz + d;
    return h;
}

static void feature(real *f, const real *x, size_t stride, size_t tokens, size_t d, mla_feature_map map) {
    for (size_t n = 0; n < tokens; n++, f += d, x += stride) {
        if (map == MLA_FEATURE_ELU1)
            mla_vec_elu1(d, f, x);
        else
            for (size_t i = 0; i < d; i++) f[i] = x[i] < 0 ? 0 : x[i]; /* a NaN stays one */
    }
}

/* dx += df times the slope of the map, which is read off its value f. */
static void feature_gradient(real *dx, size_t stride, const real *df, const real *f, size_t tokens, size_t d,
                             mla_feature_map map) {
    for (size_t n = 0; n < tokens; n++, dx += stride, df += d, f += d) {
        if (map == MLA_FEATURE_ELU1)
            for (size_t i = 0; i < d; i++) dx[i] += df[i] * (f[i] < 1 ? f[i] : 1);
        else
            for (size_t i = 0; i < d; i++) dx[i] += f[i] > 0 ? df[i] : 0;
    }
}

/* out (d) = sum over tokens of weight_n x_n, in blocks as in mla_vec_add_rows. */
static void token_sum(real *out, real *part, const real *x, const real *weight, size_t tokens, size_t d) {
    enum { BLOCK = 64 };
    memset(out, 0, d * sizeof(real));
    for (size_t first = 0; first < tokens; first += BLOCK) {
        const size_t last = first + BLOCK < tokens ? first + BLOCK : tokens;
        memset(part, 0, d * sizeof(real));
        for (size_t n = first; n < last; n++) {
            mla_vec_add(d, part, weight[n], x + n * d);
        }
        mla_vec_add(d, out, 1, part);
    }
}

static void denominators(const head *h, double eps) {
    const real *restrict fq = h->fq, *restrict z = h->z;
    const size_t d = h->d;
    for (size_t n = 0; n < h->tokens; n++, fq += d) {
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < d; i++) sum += fq[i] * z[i];
        h->den[n] = sum + (real)eps;
    }
}

static void forward_head(const mla_op_args *args, size_t image, size_t index) {
    const attributes *attr = args->attr;
    const head h = head_of(args, image, index);
    const size_t d = h.d, y_stride = args->out.stride;
    const real mean = 1 / (real)h.tokens;
    real *y = args->out.data + image * h.tokens * y_stride + index * d;
    feature(h.fk, h.k, h.k_stride, h.tokens, d, attr->map);
    memset(h.z, 0, d * sizeof(real));
    mla_vec_add_rows(h.tokens, d, h.z, h.fk, d, h.part);
    for (size_t i = 0; i < d; i++) h.z[i] *= mean;
    mla_gemm(MLA_T, MLA_N, d, d, h.tokens, mean, h.fk, d, h.v, h.v_stride, 0, h.s, d);
    feature(h.fq, h.q, h.q_stride, h.tokens, d, attr->map);
    denominators(&h, attr->eps);
    mla_gemm(MLA_N, MLA_N, h.tokens, d, d, 1, h.fq, d, h.s, d, 0, y, y_stride);
    for (size_t n = 0; n < h.tokens; n++) {
        const real factor = 1 / h.den[n];
        for (size_t i = 0; i < d; i++) y[n * y_stride + i] *= factor;
    }
}

/* dnum and dden from dy and y. */
static void quotient_gradient(const head *h, const real *dy, const real *y, size_t stride) {
    for (size_t n = 0; n < h->tokens; n++) {
        const real factor = 1 / h->den[n];
        real dot = 0;
#pragma omp simd reduction(+ : dot)
        for (size_t i = 0; i < h->d; i++) dot += dy[n * stride + i] * y[n * stride + i];
        h->dden[n] = -dot * factor;
        for (size_t i = 0; i < h->d; i++) h->dnum[n * h->d + i] = dy[n * stride + i] * factor;
    }
}

static real *gradient(const mla_op_args *args, int input, size_t image, size_t first) {
    const mla_tensor *t = &args->din[input];
    return t->data ? t->data + image * t->shape[1] * t->stride + first : NULL;
}

static void backward_head(const mla_op_args *args, size_t image, size_t index) {
    const attributes *attr = args->attr;
    const head h = head_of(args, image, index);
    const size_t d = h.d, n = h.tokens, first = index * d, y_stride = args->out.stride;
    const real mean = 1 / (real)n;
    const size_t y_offset = image * n * y_stride + first;
    feature(h.fq, h.q, h.q_stride, n, d, attr->map);
    feature(h.fk, h.k, h.k_stride, n, d, attr->map);
    denominators(&h, attr->eps);
    quotient_gradient(&h, args->dout.data + y_offset, args->out.data + y_offset, y_stride);
    real *dq = gradient(args, Q, image, first), *dk = gradient(args, K, image, first), *dv = gradient(args, V, image, first);
    if (dq) {
        mla_gemm(MLA_N, MLA_T, n, d, d, 1, h.dnum, d, h.s, d, 0, h.df, d);
        for (size_t t = 0; t < n; t++)
            for (size_t i = 0; i < d; i++) h.df[t * d + i] += h.dden[t] * h.z[i];
        feature_gradient(dq, args->din[Q].stride, h.df, h.fq, n, d, attr->map);
    }
    mla_gemm(MLA_T, MLA_N, d, d, n, mean, h.fq, d, h.dnum, d, 0, h.ds, d);
    token_sum(h.dz, h.part, h.fq, h.dden, n, d);
    if (dk) {
        mla_gemm(MLA_N, MLA_T, n, d, d, 1, h.v, h.v_stride, h.ds, d, 0, h.df, d);
        for (size_t t = 0; t < n; t++)
            for (size_t i = 0; i < d; i++) h.df[t * d + i] += mean * h.dz[i];
        feature_gradient(dk, args->din[K].stride, h.df, h.fk, n, d, attr->map);
    }
    if (dv) mla_gemm(MLA_N, MLA_N, n, d, d, 1, h.fk, d, h.ds, d, 1, dv, args->din[V].stride);
}

static void forward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[Q].shape[0]; b++)
        for (size_t i = 0; i < ((const attributes *)args->attr)->heads; i++) forward_head(args, b, i);
}

static void backward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[Q].shape[0]; b++)
        for (size_t i = 0; i < ((const attributes *)args->attr)->heads; i++) backward_head(args, b, i);
}

const mla_op mla_op_linear_attention = {"linear_attention", plan, forward, backward};

mla_var mla_linear_attention(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t heads, mla_feature_map map,
                             double eps) {
    return mla_record(tape, MLA_OP_LINEAR_ATTENTION, (mla_var[MLA_MAX_INPUTS]){q, k, v, MLA_NO_VAR},
                      &(attributes){heads, map, eps}, sizeof(attributes));
}
