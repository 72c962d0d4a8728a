/* softmax_attention: y = P v, P = softmax(q k^T / sqrt(d)) per head (Vaswani et al., arXiv 1706.03762), in tiles of
 * queries: scores exist for one tile at a time, and only lse_n = log sum_m exp(score_nm) is saved (the scheme of
 * Rabe & Staats, arXiv 2112.05682, and Dao et al., arXiv 2205.14135).  There may be other numbers M of keys than N of
 * queries, as agent attention has it.
 *
 *   backward, tile by tile: P = exp(score - lse) again, D_n = dy_n . y_n,
 *   dv += P^T dy,  dP = dy v^T,  dscore = P (dP - D) / sqrt(d),  dq += dscore k,  dk += dscore^T q
 *
 * k and v of a head are packed transposed once for all its tiles (core/panel.h).
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/panel.h"
#include "core/vmath.h"

enum { Q, K, V };
enum {
    TILE = 48,  /* queries whose scores are held at once */
    BLOCK = 128 /* keys that backward goes through at a time: what it makes of a tile and a block stays in the L1 cache */
};

typedef struct attributes {
    size_t heads;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *q = &args->in[Q];
    const mla_tensor *k = &args->in[K];
    const size_t heads = ((const attributes *)args->attr)->heads;
    MLA_REQUIRE(q->ndim == 3 && heads > 0 && q->shape[2] % heads == 0 && k->ndim == 3 && k->shape[0] == q->shape[0] &&
                    k->shape[2] == q->shape[2] && mla_tensor_same_shape(k, &args->in[V]),
                "softmax_attention: q %s, k %s, v %s, %zu heads", mla_shape_text(q), mla_shape_text(k),
                mla_shape_text(&args->in[V]), heads);
    plan->ndim = 3;
    memcpy(plan->shape, q->shape, sizeof plan->shape);
    const size_t keys = k->shape[1], d = q->shape[2] / heads;
    plan->saved = q->shape[0] * heads * q->shape[1];
    /* Scores of a tile, gradients of a block of them, and the panels of k^T, v^T, and v or k. */
    plan->scratch = TILE * (keys + BLOCK) + 2 * mla_panel_reals(d, keys) + mla_panel_reals(keys, d);
    plan->flops = 4.0 * (double)mla_tensor_count(q) * (double)keys;
}

/* One head of one image. */
typedef struct head {
    size_t queries, keys, d;
    const real *q, *k, *v, *dy;
    size_t q_stride, k_stride, v_stride, y_stride;
    real *y, *dq, *dk, *dv, *lse;
    size_t dq_stride, dk_stride, dv_stride;
    real *p, *ds;                       /* (TILE, M) and (TILE, BLOCK) scratch */
    real *k_turned, *v_turned, *packed; /* panels of k^T, v^T, and of v (forward) or k (backward); scratch */
} head;

static real *part(const mla_tensor *t, size_t image, size_t first) {
    return t->data ? t->data + image * t->shape[1] * t->stride + first : NULL;
}

static head head_of(const mla_op_args *args, size_t image, size_t index) {
    const size_t heads = ((const attributes *)args->attr)->heads;
    const size_t queries = args->in[Q].shape[1], keys = args->in[K].shape[1];
    const size_t d = args->in[Q].shape[2] / heads, first = index * d;
    real *packed = args->scratch + TILE * (keys + BLOCK);
    return (head){.queries = queries,
                  .keys = keys,
                  .d = d,
                  .q = part(&args->in[Q], image, first),
                  .k = part(&args->in[K], image, first),
                  .v = part(&args->in[V], image, first),
                  .q_stride = args->in[Q].stride,
                  .k_stride = args->in[K].stride,
                  .v_stride = args->in[V].stride,
                  .y = part(&args->out, image, first),
                  .dy = part(&args->dout, image, first),
                  .y_stride = args->out.stride,
                  .dq = part(&args->din[Q], image, first),
                  .dk = part(&args->din[K], image, first),
                  .dv = part(&args->din[V], image, first),
                  .dq_stride = args->din[Q].stride,
                  .dk_stride = args->din[K].stride,
                  .dv_stride = args->din[V].stride,
                  .lse = args->saved + (image * heads + index) * queries,
                  .p = args->scratch,
                  .ds = args->scratch + TILE * keys,
                  .k_turned = packed,
                  .v_turned = packed + mla_panel_reals(d, keys),
                  .packed = packed + 2 * mla_panel_reals(d, keys)};
}

static real scale_of(const head *h) { return (real)(1 / sqrt((double)h->d)); }

/* out (rows, keys) = x y^T with y packed. */
static void times_packed(const head *h, real *out, const real *x, size_t stride, const real *packed, size_t rows,
                         size_t keys) {
    mla_panel_product(rows, keys, h->d, mla_rows(x, stride), mla_panels_packed(packed, h->d), (mla_panel_start){0}, out,
                      keys);
}

static void forward_tile(const head *h, size_t first, size_t rows) {
    const real scale = scale_of(h);
    real *y = h->y + first * h->y_stride;
    real factor[TILE];
    times_packed(h, h->p, h->q + first * h->q_stride, h->q_stride, h->k_turned, rows, h->keys);
    for (size_t i = 0; i < rows; i++) {
        real *row = h->p + i * h->keys;
        const real largest = mla_vec_max(h->keys, row);
        const real sum = mla_vec_exp(h->keys, row, row, scale, scale * largest);
        factor[i] = 1 / sum;
        h->lse[first + i] = scale * largest + (real)log((double)sum);
    }
    mla_panel_product(rows, h->d, h->keys, mla_rows(h->p, h->keys), mla_panels_packed(h->packed, h->keys),
                      (mla_panel_start){0}, y, h->y_stride);
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < h->d; c++) y[i * h->y_stride + c] *= factor[i];
}

/* sum (keys, d) += a^T b, a (rows, keys), b (rows, d); sum NULL: not wanted. */
static void add_outer(const head *h, real *sum, size_t sum_stride, const real *a, const real *b, size_t stride, size_t rows,
                      size_t keys) {
    if (sum)
        mla_panel_product(keys, h->d, rows, mla_columns_of(a, keys), mla_panels_direct(b, stride),
                          (mla_panel_start){.add = sum, .add_row = sum_stride}, sum, sum_stride);
}

static real *row_of(real *rows, size_t stride, size_t first) { return rows ? rows + first * stride : NULL; }

/* Queries first .. + rows against keys from .. + keys; dot: D of the queries. */
static void backward_block(const head *h, size_t first, size_t rows, size_t from, size_t keys, const real *dot) {
    const real *q = h->q + first * h->q_stride, *dy = h->dy + first * h->y_stride, scale = scale_of(h);
    times_packed(h, h->p, q, h->q_stride, h->k_turned + from * h->d, rows, keys);
    times_packed(h, h->ds, dy, h->y_stride, h->v_turned + from * h->d, rows, keys);
    for (size_t i = 0; i < rows; i++) {
        real *restrict p = h->p + i * keys, *restrict ds = h->ds + i * keys;
        mla_vec_exp(keys, p, p, scale, h->lse[first + i]);
        for (size_t j = 0; j < keys; j++) ds[j] = p[j] * (ds[j] - dot[i]) * scale;
    }
    add_outer(h, row_of(h->dv, h->dv_stride, from), h->dv_stride, h->p, dy, h->y_stride, rows, keys);
    add_outer(h, row_of(h->dk, h->dk_stride, from), h->dk_stride, h->ds, q, h->q_stride, rows, keys);
    if (h->dq) {
        real *dq = h->dq + first * h->dq_stride;
        const mla_panels k = {h->packed + from * MLA_PANEL, h->keys * MLA_PANEL, MLA_PANEL, true};
        mla_panel_product(rows, h->d, keys, mla_rows(h->ds, keys), k, (mla_panel_start){.add = dq, .add_row = h->dq_stride},
                          dq, h->dq_stride);
    }
}

static void backward_tile(const head *h, size_t first, size_t rows) {
    const real *dy = h->dy + first * h->y_stride, *y = h->y + first * h->y_stride;
    real dot[TILE];
    for (size_t i = 0; i < rows; i++) {
        dot[i] = 0;
        for (size_t c = 0; c < h->d; c++) dot[i] += dy[i * h->y_stride + c] * y[i * h->y_stride + c];
    }
    for (size_t from = 0; from < h->keys; from += BLOCK)
        backward_block(h, first, rows, from, h->keys - from < BLOCK ? h->keys - from : BLOCK, dot);
}

static void each_tile(mla_op_args *args, void (*run)(const head *h, size_t first, size_t rows), bool backward) {
    const size_t heads = ((const attributes *)args->attr)->heads;
    for (size_t b = 0; b < args->in[Q].shape[0]; b++)
        for (size_t i = 0; i < heads; i++) {
            const head h = head_of(args, b, i);
            mla_panel_pack(h.k_turned, h.d, h.keys, h.k, 1, h.k_stride);
            if (backward) mla_panel_pack(h.v_turned, h.d, h.keys, h.v, 1, h.v_stride);
            mla_panel_pack(h.packed, h.keys, h.d, backward ? h.k : h.v, backward ? h.k_stride : h.v_stride, 1);
            for (size_t first = 0; first < h.queries; first += TILE)
                run(&h, first, h.queries - first < TILE ? h.queries - first : TILE);
        }
}

static void forward(mla_op_args *args) { each_tile(args, forward_tile, false); }
static void backward(mla_op_args *args) { each_tile(args, backward_tile, true); }

const mla_op mla_op_softmax_attention = {
    .name = "softmax_attention", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_softmax_attention(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t heads) {
    return mla_record(tape, MLA_OP_SOFTMAX_ATTENTION, (mla_var[MLA_MAX_INPUTS]){q, k, v, MLA_NO_VAR}, &(attributes){heads},
                      sizeof(attributes));
}
