/* state_attention: linear attention that needs no denominator, because its weights sum to one by themselves.  Per image
 * and head, with features fq and fk of width d:
 *
 *   plain     y_n = factor fq_n S,              S = sum_m fk_m^T v_m
 *   centred   y_n = mean v + factor fq_n S,     S = sum_m (fk_m - mean fk)^T (v_m - mean v)
 *
 * Plain is Efficient Attention (Shen et al., arXiv 1812.01243), whose fq_n sums to one over the channels and fk over the
 * tokens; factor is 1.  Centred is the injective attention of InLine (Han et al., arXiv 2412.06590): the weight of token m,
 * factor fq_n . (fk_m - mean fk) + 1 / N, is the similarity minus its mean over the tokens plus 1 / N.  Its authors write
 * y_n = factor fq_n sum_m fk_m^T v_m + (1 - factor N fq_n . mean fk) mean v, the same number as a difference of two that may
 * be large; here the means are taken off before the sum (one would do; two keep the other's rounding out of S).
 *
 *   dfq_n += factor dy_n S^T,   dS = factor sum_n fq_n^T dy_n
 *   dfk_m += v_m dS^T,          dv_m += fk_m dS
 *   centred: v - mean v and fk - mean fk in the place of v and fk, and dv_m += (1 / N) sum_n dy_n
 *
 * Saved: factor S, and the means.  Tokens are worked on tile by tile.
 */
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/linear_core.h"
#include "core/panel.h"
#include "core/vmath.h"

enum { Q, K, V };
typedef struct attributes {
    size_t heads;
    double factor;
    bool centred;
} attributes;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static size_t state_reals(size_t channels, size_t d) { return channels * d; } /* heads matrices (d, d) */
static size_t saved_reals(size_t channels, size_t d) { return state_reals(channels, d) + 2 * channels; }

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *q = &args->in[Q];
    const attributes *attr = args->attr;
    MLA_REQUIRE(q->ndim == 3 && attr->heads > 0 && q->shape[2] % attr->heads == 0 &&
                    mla_tensor_same_shape(q, &args->in[K]) && mla_tensor_same_shape(q, &args->in[V]),
                "state_attention: q %s, k %s, v %s, %zu heads", mla_shape_text(q), mla_shape_text(&args->in[K]),
                mla_shape_text(&args->in[V]), attr->heads);
    plan->ndim = 3;
    memcpy(plan->shape, q->shape, sizeof plan->shape);
    const size_t channels = q->shape[2], d = channels / attr->heads;
    plan->saved = q->shape[0] * saved_reals(channels, d);
    /* dS, packed transposes, sums of one tile, the mean of dy, and tiles of k and v less their means. */
    plan->scratch = state_reals(channels, d) + attr->heads * mla_panel_reals(d, d) + larger(d * d, channels) + channels +
                    2 * mla_linear_tile(channels) * channels;
    plan->flops = 4.0 * (double)mla_tensor_count(q) * (double)d;
}

/* One image. */
typedef struct image {
    size_t tokens, heads, d, channels, tile;
    bool centred;
    real factor;
    real *s, *k_mean, *v_mean;                            /* saved: factor S (h, d, d) and two rows (C) */
    real *ds, *packed, *part, *dy_mean, *k_tile, *v_tile; /* scratch */
} image;

static image image_of(const mla_op_args *args, size_t b) {
    const attributes *attr = args->attr;
    const size_t channels = args->in[Q].shape[2], d = channels / attr->heads;
    image m = {.tokens = args->in[Q].shape[1],
               .heads = attr->heads,
               .d = d,
               .channels = channels,
               .tile = mla_linear_tile(channels),
               .centred = attr->centred,
               .factor = (real)attr->factor,
               .s = args->saved + b * saved_reals(channels, d),
               .ds = args->scratch};
    m.k_mean = m.s + state_reals(channels, d);
    m.v_mean = m.k_mean + channels;
    m.packed = m.ds + state_reals(channels, d);
    m.part = m.packed + attr->heads * mla_panel_reals(d, d);
    m.dy_mean = m.part + larger(d * d, channels);
    m.k_tile = m.dy_mean + channels;
    m.v_tile = m.k_tile + m.tile * channels;
    return m;
}

/* Rows of an operand, `stride` apart. */
typedef struct rows {
    real *data;
    size_t stride;
} rows;

static rows image_rows(const mla_tensor *t, size_t b) {
    return (rows){t->data ? t->data + b * t->shape[1] * t->stride : NULL, t->stride};
}

static real *at(rows r, size_t token) { return r.data + token * r.stride; }

/* mean (C) = that of all tokens. */
static void mean_of(const image *m, real *mean, rows x) {
    memset(mean, 0, m->channels * sizeof(real));
    mla_vec_add_rows(m->tokens, m->channels, mean, x.data, x.stride, m->part);
    for (size_t c = 0; c < m->channels; c++) mean[c] /= (real)m->tokens;
}

/* The tile of x from token `first` on; less the mean, in `tile`, when centred. */
static rows tile_of(const image *m, rows x, size_t first, size_t tokens, const real *restrict mean, real *tile) {
    if (!m->centred) return (rows){at(x, first), x.stride};
    for (size_t n = 0; n < tokens; n++) {
        const real *restrict row = at(x, first + n);
        real *restrict out = tile + n * m->channels;
        for (size_t c = 0; c < m->channels; c++) out[c] = row[c] - mean[c];
    }
    return (rows){tile, m->channels};
}

/* sums (h, d, d) = a^T b of the first tile, += of the others: by way of `part`, so that rounding grows with the number of
 * tiles and not of tokens. */
static void add_outer(const image *m, real *sums, size_t first, rows a, rows b, size_t tokens) {
    const size_t d = m->d;
    for (size_t h = 0; h < m->heads; h++, sums += d * d) {
        mla_panel_product(d, d, tokens, mla_columns_of(a.data + h * d, a.stride),
                          mla_panels_direct(b.data + h * d, b.stride), (mla_panel_start){0}, first ? m->part : sums, d);
        if (first) mla_vec_add(d * d, sums, 1, m->part);
    }
}

/* y of head h = start + x S_h, or x S_h^T with the transposes packed; start: y itself and the row `bias` (C), or NULL. */
static void times_state(const image *m, rows y, bool add, const real *bias, rows x, const real *state, size_t tokens) {
    const size_t d = m->d;
    for (size_t h = 0; h < m->heads; h++) {
        const mla_panels right =
            state ? mla_panels_direct(state + h * d * d, d) : mla_panels_packed(m->packed + h * mla_panel_reals(d, d), d);
        mla_panel_product(tokens, d, d, mla_rows(x.data + h * d, x.stride), right,
                          (mla_panel_start){.bias = bias ? bias + h * d : NULL,
                                            .add = add ? y.data + h * d : NULL,
                                            .add_row = add ? y.stride : 0},
                          y.data + h * d, y.stride);
    }
}

static void pack_transposed(const image *m, const real *state) {
    const size_t d = m->d, reals = mla_panel_reals(d, d);
    for (size_t h = 0; h < m->heads; h++) mla_panel_pack(m->packed + h * reals, d, d, state + h * d * d, 1, d);
}

static size_t tokens_of(const image *m, size_t first) { return m->tokens - first < m->tile ? m->tokens - first : m->tile; }

static void scale_state(const image *m, real *state) {
    for (size_t i = 0; i < state_reals(m->channels, m->d); i++) state[i] *= m->factor;
}

static void forward_image(const mla_op_args *args, size_t b) {
    const image m = image_of(args, b);
    const rows q = image_rows(&args->in[Q], b), k = image_rows(&args->in[K], b), v = image_rows(&args->in[V], b);
    const rows y = image_rows(&args->out, b);
    if (m.centred) {
        mean_of(&m, m.k_mean, k);
        mean_of(&m, m.v_mean, v);
    }
    for (size_t first = 0; first < m.tokens; first += m.tile) {
        const size_t tokens = tokens_of(&m, first);
        add_outer(&m, m.s, first, tile_of(&m, k, first, tokens, m.k_mean, m.k_tile),
                  tile_of(&m, v, first, tokens, m.v_mean, m.v_tile), tokens);
    }
    scale_state(&m, m.s);
    times_state(&m, y, false, m.centred ? m.v_mean : NULL, q, m.s, m.tokens);
}

static void backward_image(const mla_op_args *args, size_t b) {
    const image m = image_of(args, b);
    const rows q = image_rows(&args->in[Q], b), k = image_rows(&args->in[K], b), v = image_rows(&args->in[V], b);
    const rows dq = image_rows(&args->din[Q], b), dk = image_rows(&args->din[K], b), dv = image_rows(&args->din[V], b);
    const rows dy = image_rows(&args->dout, b);
    pack_transposed(&m, m.s);
    for (size_t first = 0; first < m.tokens; first += m.tile) {
        const size_t tokens = tokens_of(&m, first);
        const rows tile = {at(dy, first), dy.stride};
        if (dq.data) times_state(&m, (rows){at(dq, first), dq.stride}, true, NULL, tile, NULL, tokens);
        add_outer(&m, m.ds, first, (rows){at(q, first), q.stride}, tile, tokens);
    }
    scale_state(&m, m.ds);
    pack_transposed(&m, m.ds);
    if (m.centred) mean_of(&m, m.dy_mean, dy);
    for (size_t first = 0; first < m.tokens; first += m.tile) {
        const size_t tokens = tokens_of(&m, first);
        if (dk.data)
            times_state(&m, (rows){at(dk, first), dk.stride}, true, NULL, tile_of(&m, v, first, tokens, m.v_mean, m.v_tile),
                        NULL, tokens);
        if (dv.data)
            times_state(&m, (rows){at(dv, first), dv.stride}, true, m.centred ? m.dy_mean : NULL,
                        tile_of(&m, k, first, tokens, m.k_mean, m.k_tile), m.ds, tokens);
    }
}

static void forward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[Q].shape[0]; b++) forward_image(args, b);
}

static void backward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[Q].shape[0]; b++) backward_image(args, b);
}

const mla_op mla_op_state_attention = {.name = "state_attention", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_state_attention(mla_tape *tape, mla_var fq, mla_var fk, mla_var v, size_t heads, double factor, bool centred) {
    return mla_record(tape, MLA_OP_STATE_ATTENTION, (mla_var[MLA_MAX_INPUTS]){fq, fk, v, MLA_NO_VAR},
                      &(attributes){heads, factor, centred}, sizeof(attributes));
}
