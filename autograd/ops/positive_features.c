/* positive_features: FAVOR+ of the Performer (Choromanski et al., arXiv 2009.14794, lemma 1), with the stabilisers of the
 * authors' code.  Per head, with the m rows of W (m, d) and x' = x d^-1/4, so that fq . fk estimates exp(q . k / sqrt(d)):
 *
 *   u = x' W^T,   f = (exp(u - |x'|^2 / 2 - M) + 1e-6) / sqrt(m)
 *   M = max_j u_j of a query; of keys, the largest u of all tokens of the image and head
 *
 *   with e the exponential, g = df e / sqrt(m) and G = sum_j g_j:
 *   du = g, and -G at the place of M (for keys the sum over all tokens);   dx += d^-1/4 du W - G x / sqrt(d)
 *
 * A factor common to all keys, or to the features of one query, cancels in attention (up to the 1e-6).  W is drawn once and
 * has no gradient.  e is read off f in backward; the place of a key's M is saved.
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/panel.h"
#include "core/vmath.h"

enum { X, W };
enum { TILE = 64 };
static const real STABILISER = REAL(1e-6);

typedef struct attributes {
    size_t heads;
    bool query;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *w = &args->in[W];
    const attributes *attr = args->attr;
    MLA_REQUIRE(x->ndim == 3 && attr->heads > 0 && x->shape[2] % attr->heads == 0 && w->ndim == 2 &&
                    mla_tensor_contiguous(w) && w->shape[1] == x->shape[2] / attr->heads,
                "positive_features: x %s, w %s, %zu heads", mla_shape_text(x), mla_shape_text(w), attr->heads);
    const size_t m = w->shape[0], d = w->shape[1];
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->shape[2] = attr->heads * m;
    plan->saved = attr->query ? 0 : 2 * x->shape[0] * attr->heads;
    plan->scratch = m * d + mla_panel_reals(d, m) + TILE * m + TILE;
    plan->flops = 2 * (double)mla_tensor_count(x) * (double)m;
}

/* One image and head at work. */
typedef struct head {
    size_t tokens, m, d, x_stride, f_stride;
    const real *x;
    real *f;            /* its columns of the output */
    real *w, *packed;   /* d^-1/4 W; the same, packed transposed */
    real *du, *half;    /* scratch: (TILE, m); (TILE) |x'|^2 / 2 */
    real *place, ratio; /* token and feature of M (keys); 1 / sqrt(m) */
} head;

static head head_of(const mla_op_args *args, size_t image, size_t i) {
    const mla_tensor *x = &args->in[X], *w = &args->in[W];
    const attributes *attr = args->attr;
    head h = {.tokens = x->shape[1], .m = w->shape[0], .d = w->shape[1], .x_stride = x->stride};
    h.f_stride = attr->heads * h.m;
    h.x = x->data + image * h.tokens * x->stride + i * h.d;
    h.f = args->out.data + image * h.tokens * h.f_stride + i * h.m;
    h.w = args->scratch;
    h.packed = h.w + h.m * h.d;
    h.du = h.packed + mla_panel_reals(h.d, h.m);
    h.half = h.du + TILE * h.m;
    h.place = attr->query ? NULL : args->saved + 2 * (image * attr->heads + i);
    h.ratio = (real)(1 / sqrt((double)h.m));
    return h;
}

static void scale_weights(const mla_op_args *args, const head *h) {
    const real factor = (real)(1 / sqrt(sqrt((double)h->d)));
    for (size_t i = 0; i < h->m * h->d; i++) h->w[i] = factor * args->in[W].data[i];
}

/* |x'|^2 / 2 = |x|^2 / (2 sqrt(d)) */
static real half_square(const head *h, const real *x) {
    real sum = 0;
    for (size_t i = 0; i < h->d; i++) sum += x[i] * x[i];
    return sum * (real)(0.5 / sqrt((double)h->d));
}

static void map_row(const head *h, real *f, const real *x, real largest) {
    mla_vec_exp(h->m, f, f, 1, largest + half_square(h, x));
    for (size_t j = 0; j < h->m; j++) f[j] = h->ratio * (f[j] + STABILISER);
}

/* The largest u of all tokens; notes its place. */
static real find_largest(const head *h) {
    real largest = h->f[0];
    h->place[0] = h->place[1] = 0;
    for (size_t n = 0; n < h->tokens; n++) {
        const real *u = h->f + n * h->f_stride;
        if (!(mla_vec_max(h->m, u) > largest)) continue;
        for (size_t j = 0; j < h->m; j++)
            if (u[j] > largest) {
                largest = u[j];
                h->place[0] = (real)n;
                h->place[1] = (real)j;
            }
    }
    return largest;
}

static void forward(mla_op_args *args) {
    const size_t heads = ((const attributes *)args->attr)->heads;
    for (size_t i = 0; i < args->in[X].shape[0] * heads; i++) {
        const head h = head_of(args, i / heads, i % heads);
        if (i == 0) {
            scale_weights(args, &h);
            mla_panel_pack(h.packed, h.d, h.m, h.w, 1, h.d);
        }
        mla_panel_product(h.tokens, h.m, h.d, mla_rows(h.x, h.x_stride), mla_panels_packed(h.packed, h.d),
                          (mla_panel_start){0}, h.f, h.f_stride);
        const real largest = h.place ? find_largest(&h) : 0;
        for (size_t n = 0; n < h.tokens; n++) {
            real *f = h.f + n * h.f_stride;
            map_row(&h, f, h.x + n * h.x_stride, h.place ? largest : mla_vec_max(h.m, f));
        }
    }
}

/* du of one token (g); gives G.  For a query, -G is added at the place of M, where e is largest. */
static real row_gradient(const head *h, real *restrict du, const real *f, const real *df) {
    real sum = 0;
    size_t largest = 0;
    for (size_t j = 0; j < h->m; j++) {
        du[j] = df[j] * (f[j] - h->ratio * STABILISER);
        sum += du[j];
    }
    if (h->place) return sum;
    for (size_t j = 1; j < h->m; j++)
        if (f[j] > f[largest]) largest = j;
    du[largest] -= sum;
    return sum;
}

static void backward_head(const mla_op_args *args, const head *h, real *dx, size_t dx_stride) {
    const real *df = args->dout.data + (h->f - args->out.data);
    const real factor = (real)(1 / sqrt((double)h->d));
    double total = 0;
    for (size_t first = 0; first < h->tokens; first += TILE) {
        const size_t tokens = h->tokens - first < TILE ? h->tokens - first : TILE;
        for (size_t n = 0; n < tokens; n++) {
            const size_t at = (first + n) * h->f_stride;
            const real sum = row_gradient(h, h->du + n * h->m, h->f + at, df + at);
            total += (double)sum;
            mla_vec_add(h->d, dx + (first + n) * dx_stride, -sum * factor, h->x + (first + n) * h->x_stride);
        }
        real *rows = dx + first * dx_stride;
        mla_panel_product(tokens, h->d, h->m, mla_rows(h->du, h->m), mla_panels_direct(h->w, h->d),
                          (mla_panel_start){.add = rows, .add_row = dx_stride}, rows, dx_stride);
    }
    if (h->place) mla_vec_add(h->d, dx + (size_t)h->place[0] * dx_stride, -(real)total, h->w + (size_t)h->place[1] * h->d);
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[X];
    const size_t heads = ((const attributes *)args->attr)->heads;
    MLA_REQUIRE(!args->din[W].data, "positive_features: the projection %s has no gradient", mla_shape_text(&args->in[W]));
    for (size_t i = 0; dx->data && i < dx->shape[0] * heads; i++) {
        const head h = head_of(args, i / heads, i % heads);
        if (i == 0) scale_weights(args, &h);
        backward_head(args, &h, dx->data + i / heads * h.tokens * dx->stride + i % heads * h.d, dx->stride);
    }
}

const mla_op mla_op_positive_features = {
    .name = "positive_features", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_positive_features(mla_tape *tape, mla_var x, mla_var w, size_t heads, bool query) {
    return mla_record(tape, MLA_OP_POSITIVE_FEATURES, (mla_var[MLA_MAX_INPUTS]){x, w, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads, query}, sizeof(attributes));
}
