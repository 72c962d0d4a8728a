/* softmax_attention: y = P v, P = softmax(q k^T / sqrt(d)) per head (Vaswani et al., arXiv 1706.03762), in tiles of
 * queries: scores exist for one tile at a time, and only lse_n = log sum_m exp(score_nm) is saved (the scheme of
 * Rabe & Staats, arXiv 2112.05682, and Dao et al., arXiv 2205.14135).
 *
 *   backward, tile by tile: P = exp(score - lse) again, D_n = dy_n . y_n,
 *   dv += P^T dy,  dP = dy v^T,  dscore = P (dP - D) / sqrt(d),  dq += dscore k,  dk += dscore^T q
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/gemm.h"
#include "core/vmath.h"

enum { Q, K, V };
enum { TILE = 64 }; /* queries whose scores are held at once */

typedef struct attributes {
    size_t heads;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *q = &args->in[Q];
    const size_t heads = ((const attributes *)args->attr)->heads;
    MLA_REQUIRE(q->ndim == 3 && heads > 0 && q->shape[2] % heads == 0 && mla_tensor_same_shape(q, &args->in[K]) &&
                    mla_tensor_same_shape(q, &args->in[V]),
                "softmax_attention: q %s, k %s, v %s, %zu heads", mla_shape_text(q), mla_shape_text(&args->in[K]),
                mla_shape_text(&args->in[V]), heads);
    plan->ndim = 3;
    memcpy(plan->shape, q->shape, sizeof plan->shape);
    const size_t tokens = q->shape[1];
    plan->saved = q->shape[0] * heads * tokens;
    plan->scratch = 2 * TILE * tokens;
    plan->flops = 4.0 * (double)mla_tensor_count(q) * (double)tokens;
}

/* One head of one image. */
typedef struct head {
    size_t tokens, d;
    const real *q, *k, *v, *dy;
    size_t q_stride, k_stride, v_stride, y_stride;
    real *y, *dq, *dk, *dv, *lse, *scratch;
    size_t dq_stride, dk_stride, dv_stride;
} head;

static real *part(const mla_tensor *t, size_t image, size_t first) {
    return t->data ? t->data + image * t->shape[1] * t->stride + first : NULL;
}

static head head_of(const mla_op_args *args, size_t image, size_t index) {
    const size_t heads = ((const attributes *)args->attr)->heads, tokens = args->in[Q].shape[1];
    const size_t d = args->in[Q].shape[2] / heads, first = index * d;
    return (head){.tokens = tokens,
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
                  .lse = args->saved + (image * heads + index) * tokens,
                  .scratch = args->scratch};
}

static real scale_of(const head *h) { return (real)(1 / sqrt((double)h->d)); }

static void scores(const head *h, real *out, size_t first, size_t rows) {
    mla_gemm(MLA_N, MLA_T, rows, h->tokens, h->d, scale_of(h), h->q + first * h->q_stride, h->q_stride, h->k, h->k_stride, 0,
             out, h->tokens);
}

static void forward_tile(const head *h, size_t first, size_t rows) {
    real *p = h->scratch;
    scores(h, p, first, rows);
    for (size_t i = 0; i < rows; i++) {
        real *row = p + i * h->tokens, largest = row[0];
        double sum = 0;
        for (size_t j = 1; j < h->tokens; j++) largest = row[j] > largest ? row[j] : largest;
        mla_vec_exp(h->tokens, row, row, largest);
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < h->tokens; j++) sum += (double)row[j];
        const real factor = (real)(1 / sum);
        for (size_t j = 0; j < h->tokens; j++) row[j] *= factor;
        h->lse[first + i] = largest + (real)log(sum);
    }
    mla_gemm(MLA_N, MLA_N, rows, h->d, h->tokens, 1, p, h->tokens, h->v, h->v_stride, 0, h->y + first * h->y_stride,
             h->y_stride);
}

static void backward_tile(const head *h, size_t first, size_t rows) {
    const size_t n = h->tokens;
    real *p = h->scratch, *ds = h->scratch + TILE * n;
    const real *dy = h->dy + first * h->y_stride, *y = h->y + first * h->y_stride, scale = scale_of(h);
    scores(h, p, first, rows);
    for (size_t i = 0; i < rows; i++) mla_vec_exp(n, p + i * n, p + i * n, h->lse[first + i]);
    if (h->dv) mla_gemm(MLA_T, MLA_N, n, h->d, rows, 1, p, n, dy, h->y_stride, 1, h->dv, h->dv_stride);
    mla_gemm(MLA_N, MLA_T, rows, n, h->d, 1, dy, h->y_stride, h->v, h->v_stride, 0, ds, n);
    for (size_t i = 0; i < rows; i++) {
        real dot = 0;
        for (size_t c = 0; c < h->d; c++) dot += dy[i * h->y_stride + c] * y[i * h->y_stride + c];
        for (size_t j = 0; j < n; j++) ds[i * n + j] = p[i * n + j] * (ds[i * n + j] - dot) * scale;
    }
    if (h->dq)
        mla_gemm(MLA_N, MLA_N, rows, h->d, n, 1, ds, n, h->k, h->k_stride, 1, h->dq + first * h->dq_stride, h->dq_stride);
    if (h->dk)
        mla_gemm(MLA_T, MLA_N, n, h->d, rows, 1, ds, n, h->q + first * h->q_stride, h->q_stride, 1, h->dk, h->dk_stride);
}

static void each_tile(mla_op_args *args, void (*run)(const head *h, size_t first, size_t rows)) {
    const size_t heads = ((const attributes *)args->attr)->heads;
    for (size_t b = 0; b < args->in[Q].shape[0]; b++)
        for (size_t i = 0; i < heads; i++) {
            const head h = head_of(args, b, i);
            for (size_t first = 0; first < h.tokens; first += TILE)
                run(&h, first, h.tokens - first < TILE ? h.tokens - first : TILE);
        }
}

static void forward(mla_op_args *args) { each_tile(args, forward_tile); }
static void backward(mla_op_args *args) { each_tile(args, backward_tile); }

const mla_op mla_op_softmax_attention = {
    .name = "softmax_attention", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_softmax_attention(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t heads) {
    return mla_record(tape, MLA_OP_SOFTMAX_ATTENTION, (mla_var[MLA_MAX_INPUTS]){q, k, v, MLA_NO_VAR}, &(attributes){heads},
                      sizeof(attributes));
}
