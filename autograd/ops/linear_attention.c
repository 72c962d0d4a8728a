/* linear_attention: non-causal linear attention with a non-negative feature map f (Katharopoulos et al., arXiv
 * 2006.16236), in token means, so that the floor eps does not depend on N.  Per image and head, with fq = f(q), fk = f(k),
 * D wide, which is d but for features that are given (f the identity):
 *
 *   S = (1/N) sum_m fk_m^T v_m  (D, d),   z = (1/N) sum_m fk_m  (D)
 *   den_n = fq_n . z + eps,   y_n = fq_n S / den_n
 *
 *   dnum = dy / den,  dden = -(dy . y) / den
 *   dfq = dnum S^T + dden z,   dS = sum_n fq_n^T dnum_n,   dz = sum_n dden_n fq_n
 *   dfk = (v dS^T + dz) / N,   dv += fk dS / N
 *   relu: dx += df [f > 0];   elu + 1: dx += df min(1, f)  (f is the slope exp(x) where x <= 0);   given: dx += df
 *
 * A query without a positive feature gives y = 0 and no gradient; eps bounds 1 / den.  Saved: S and z a head; the
 * features are cheaper to compute again than to keep, and given ones are read where they stand.  Tokens are worked on tile
 * by tile (linear_core.h).
 */
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/feature_rows.h"
#include "autograd/ops/linear_core.h"

enum { Q, K, V };
typedef struct attributes {
    size_t heads;
    mla_feature_map map;
    double eps;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *q = &args->in[Q], *v = &args->in[V];
    const attributes *attr = args->attr;
    const size_t heads = attr->heads;
    MLA_REQUIRE(q->ndim == 3 && v->ndim == 3 && heads > 0 && q->shape[2] % heads == 0 && v->shape[2] % heads == 0 &&
                    mla_tensor_same_shape(q, &args->in[K]) && q->shape[0] == v->shape[0] && q->shape[1] == v->shape[1] &&
                    (attr->map == MLA_FEATURE_GIVEN || q->shape[2] == v->shape[2]),
                "linear_attention: q %s, k %s, v %s, %zu heads", mla_shape_text(q), mla_shape_text(&args->in[K]),
                mla_shape_text(v), heads);
    plan->ndim = 3;
    memcpy(plan->shape, v->shape, sizeof plan->shape);
    const size_t columns = q->shape[2], width = columns / heads, d = v->shape[2] / heads;
    plan->saved = q->shape[0] * mla_linear_saved(heads, width, d);
    plan->scratch = mla_linear_scratch(heads, width, d) + 2 * mla_linear_tile(heads * (width > d ? width : d)) * columns;
    plan->flops = (double)mla_tensor_count(q) * (4.0 * (double)d + 2.0);
}

/* One image, and scratch for a tile of features and of their gradients. */
typedef struct image {
    mla_linear_image linear;
    size_t columns, tile;
    mla_feature_map map;
    real *f, *df; /* (tile, h D) */
} image;

static image image_of(const mla_op_args *args, size_t b) {
    const attributes *attr = args->attr;
    const size_t heads = attr->heads, columns = args->in[Q].shape[2], width = columns / heads,
                 d = args->in[V].shape[2] / heads;
    image m = {.columns = columns, .tile = mla_linear_tile(heads * (width > d ? width : d)), .map = attr->map};
    m.f = args->scratch + mla_linear_scratch(heads, width, d);
    m.df = m.f + m.tile * columns;
    m.linear = mla_linear_image_at(args->in[Q].shape[1], heads, width, d, attr->eps,
                                   args->saved + b * mla_linear_saved(heads, width, d), args->scratch);
    return m;
}

/* Tokens of the tile that begins at `first`. */
static size_t tile_tokens(const image *m, size_t first) {
    return m->linear.tokens - first < m->tile ? m->linear.tokens - first : m->tile;
}

/* Row `token` of image b, or NULL. */
static real *row(const mla_tensor *t, size_t b, size_t token) {
    return t->data ? t->data + (b * t->shape[1] + token) * t->stride : NULL;
}

/* The features of `tokens` rows of x, whole rows one after the other. */
static const real *features(const image *m, const real *x, size_t stride, size_t tokens) {
    if (m->map == MLA_FEATURE_GIVEN && stride == m->columns) return x;
    mla_feature_rows(m->map, m->f, x, stride, tokens, m->columns);
    return m->f;
}

static void forward_image(const mla_op_args *args, size_t b) {
    const image m = image_of(args, b);
    const mla_tensor *q = &args->in[Q], *k = &args->in[K], *v = &args->in[V];
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        const size_t tokens = tile_tokens(&m, first);
        mla_linear_add_tile(&m.linear, first, tokens, features(&m, row(k, b, first), k->stride, tokens), row(v, b, first),
                            v->stride);
    }
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        const size_t tokens = tile_tokens(&m, first);
        mla_linear_read_tile(&m.linear, tokens, row(&args->out, b, first), args->out.stride,
                             features(&m, row(q, b, first), q->stride, tokens));
    }
}

static void backward_image(const mla_op_args *args, size_t b) {
    const image m = image_of(args, b);
    const mla_tensor *q = &args->in[Q], *k = &args->in[K], *v = &args->in[V], *dq = &args->din[Q], *dk = &args->din[K],
                     *dv = &args->din[V];
    mla_linear_begin_gradient(&m.linear);
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        const size_t tokens = tile_tokens(&m, first);
        const real *f = features(&m, row(q, b, first), q->stride, tokens);
        mla_linear_query_tile(&m.linear, first, tokens, m.df, f, row(&args->dout, b, first), row(&args->out, b, first),
                              args->out.stride);
        if (dq->data) mla_feature_rows_gradient(m.map, row(dq, b, first), dq->stride, f, m.df, tokens, m.columns);
    }
    mla_linear_turn_gradient(&m.linear);
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        const size_t tokens = tile_tokens(&m, first);
        const real *f = features(&m, row(k, b, first), k->stride, tokens);
        mla_linear_key_tile(&m.linear, tokens, dk->data ? m.df : NULL, row(dv, b, first), dv->stride, f, row(v, b, first),
                            v->stride);
        if (dk->data) mla_feature_rows_gradient(m.map, row(dk, b, first), dk->stride, f, m.df, tokens, m.columns);
    }
}

static void forward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[Q].shape[0]; b++) forward_image(args, b);
}

static void backward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[Q].shape[0]; b++) backward_image(args, b);
}

const mla_op mla_op_linear_attention = {.name = "linear_attention", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_linear_attention(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t heads, mla_feature_map map,
                             double eps) {
    return mla_record(tape, MLA_OP_LINEAR_ATTENTION, (mla_var[MLA_MAX_INPUTS]){q, k, v, MLA_NO_VAR},
                      &(attributes){heads, map, eps}, sizeof(attributes));
}
