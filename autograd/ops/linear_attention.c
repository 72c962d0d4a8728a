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
 * features are cheaper to compute again than to keep.  Tokens are worked on tile by tile (linear_core.h).
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
    const mla_tensor *q = &args->in[Q];
    const attributes *attr = args->attr;
    MLA_REQUIRE(q->ndim == 3 && attr->heads > 0 && q->shape[2] % attr->heads == 0 &&
                    mla_tensor_same_shape(q, &args->in[K]) && mla_tensor_same_shape(q, &args->in[V]),
                "linear_attention: q %s, k %s, v %s, %zu heads", mla_shape_text(q), mla_shape_text(&args->in[K]),
                mla_shape_text(&args->in[V]), attr->heads);
    plan->ndim = 3;
    memcpy(plan->shape, q->shape, sizeof plan->shape);
    const size_t channels = q->shape[2], d = channels / attr->heads;
    plan->saved = q->shape[0] * mla_linear_saved(attr->heads, d);
    plan->scratch = mla_linear_scratch(attr->heads, d) + 2 * mla_linear_tile(channels) * channels;
    plan->flops = (double)mla_tensor_count(q) * (4.0 * (double)d + 2.0);
}

/* One image, and scratch for a tile of features and of their gradients. */
typedef struct image {
    mla_linear_image linear;
    size_t channels, tile;
    mla_feature_map map;
    real *f, *df; /* (tile, C) */
} image;

static image image_of(const mla_op_args *args, size_t b) {
    const attributes *attr = args->attr;
    const size_t channels = args->in[Q].shape[2], d = channels / attr->heads;
    image m = {.channels = channels, .tile = mla_linear_tile(channels), .map = attr->map};
    m.f = args->scratch + mla_linear_scratch(attr->heads, d);
    m.df = m.f + m.tile * channels;
    m.linear = mla_linear_image_at(args->in[Q].shape[1], attr->heads, d, attr->eps,
                                   args->saved + b * mla_linear_saved(attr->heads, d), args->scratch);
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

static void feature(const image *m, const real *x, size_t stride, size_t tokens) {
    mla_feature_rows(m->map, m->f, x, stride, tokens, m->channels);
}

static void feature_gradient(const image *m, real *dx, size_t stride, size_t tokens) {
    mla_feature_rows_gradient(m->map, dx, stride, m->f, m->df, tokens, m->channels);
}

static void forward_image(const mla_op_args *args, size_t b) {
    const image m = image_of(args, b);
    const mla_tensor *q = &args->in[Q], *k = &args->in[K], *v = &args->in[V];
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        feature(&m, row(k, b, first), k->stride, tile_tokens(&m, first));
        mla_linear_add_tile(&m.linear, first, tile_tokens(&m, first), m.f, row(v, b, first), v->stride);
    }
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        feature(&m, row(q, b, first), q->stride, tile_tokens(&m, first));
        mla_linear_read_tile(&m.linear, tile_tokens(&m, first), row(&args->out, b, first), args->out.stride, m.f);
    }
}

static void backward_image(const mla_op_args *args, size_t b) {
    const image m = image_of(args, b);
    const mla_tensor *q = &args->in[Q], *k = &args->in[K], *v = &args->in[V], *dq = &args->din[Q], *dk = &args->din[K],
                     *dv = &args->din[V];
    mla_linear_begin_gradient(&m.linear);
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        const size_t tokens = tile_tokens(&m, first);
        feature(&m, row(q, b, first), q->stride, tokens);
        mla_linear_query_tile(&m.linear, first, tokens, m.df, m.f, row(&args->dout, b, first), row(&args->out, b, first),
                              args->out.stride);
        if (dq->data) feature_gradient(&m, row(dq, b, first), dq->stride, tokens);
    }
    mla_linear_turn_gradient(&m.linear);
    for (size_t first = 0; first < m.linear.tokens; first += m.tile) {
        const size_t tokens = tile_tokens(&m, first);
        feature(&m, row(k, b, first), k->stride, tokens);
        mla_linear_key_tile(&m.linear, tokens, dk->data ? m.df : NULL, row(dv, b, first), dv->stride, m.f, row(v, b, first),
                            v->stride);
        if (dk->data) feature_gradient(&m, row(dk, b, first), dk->stride, tokens);
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
