/* mirror_attention: everything between the projections of a MirrorLA layer in one pass over the tokens.  It is the
 * composition
 *
 *   pair_angle (or nothing)  ->  cross_reflect (or nothing)  ->  relu_features, relu or split  ->  linear_attention
 *
 * whose files have the formulas; here q and k are turned, reflected and cut off row by row into tiles of features that stay
 * in the cache, so that nothing of their size is written or kept but the output.
 *
 *   a row:      s = x U'^T with U' = U R^T, R the turn of the image;   f = relu(x R - (s T) U)
 *   its back:   g = df [f > 0],  k = g U^T,   dx = (g - (k T^T) U) R^T + the variance's part
 *               dt_i += x_1 dx_2 - x_2 dx_1   (a turn changes neither side of this product)
 *               sums of -(s T)^T g and s^T k; of k^T x, turned by R at the end of the image
 *   split:      f = [relu(y), relu(-y)] head by head, y = x R - (s T) U;   g = df_1 [f_1 > 0] - df_2 [f_2 > 0]
 *
 * Features are computed again in backward: that costs less than reading them would.
 */
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/cross_reflect.h"
#include "autograd/ops/linear_core.h"
#include "autograd/ops/pair_angle.h"
#include "core/vector.h"
#include "core/vmath.h"

enum { X, GAIN, OFFSET, VECTORS };
enum { LANES = MLA_LANES_PER_VECTOR, AHEAD = 8 /* tokens */ };

typedef struct attributes {
    size_t heads;
    mla_feature_kept kept;
    double angle_max, eps;
} attributes;

/* What is the same for all images of a shard, and where an image's values stand. */
typedef struct layout {
    size_t images, tokens, channels, heads, d, r, tile;
    size_t width, columns; /* D of a head's features, d or 2d; h D */
    bool turns;
    size_t saved_image, linear_scratch; /* reals */
} layout;

static layout layout_of(const mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const attributes *attr = args->attr;
    layout l = {.images = x->shape[0], .tokens = x->shape[1], .channels = x->shape[2] / 3, .heads = attr->heads};
    l.d = l.channels / l.heads;
    l.r = args->in[VECTORS].data ? args->in[VECTORS].shape[0] : 0;
    l.width = attr->kept == MLA_KEPT_SPLIT ? 2 * l.d : l.d;
    l.columns = l.heads * l.width;
    l.tile = mla_linear_tile(l.columns);
    l.turns = args->in[GAIN].data != NULL;
    l.saved_image = mla_angle_saved(l.channels, 2) + mla_linear_saved(l.heads, l.width, l.d);
    l.linear_scratch = mla_linear_scratch(l.heads, l.width, l.d);
    return l;
}

bool mla_mirror_attention_fits(size_t channels) { return channels % LANES == 0 && channels % 2 == 0; }

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *a = &args->in[GAIN], *c = &args->in[OFFSET], *v = &args->in[VECTORS];
    const attributes *attr = args->attr;
    const size_t channels = x->shape[x->ndim - 1] / 3;
    MLA_REQUIRE(x->ndim == 3 && x->shape[2] % 3 == 0 && attr->heads > 0 && channels % attr->heads == 0 &&
                    mla_mirror_attention_fits(channels) && attr->kept != MLA_KEPT_TWIN,
                "mirror_attention: qkv %s, %zu heads", mla_shape_text(x), attr->heads);
    MLA_REQUIRE(!a->data == !c->data &&
                    (!a->data || (mla_tensor_count(a) == channels / 2 && mla_tensor_count(c) == channels / 2)),
                "mirror_attention: qkv %s, a %s, c %s", mla_shape_text(x), mla_shape_text(a), mla_shape_text(c));
    MLA_REQUIRE(!v->data || (v->ndim == 2 && mla_tensor_contiguous(v) && v->shape[1] == channels &&
                             v->shape[0] <= MLA_MAX_REFLECTIONS),
                "mirror_attention: qkv %s, vectors %s", mla_shape_text(x), mla_shape_text(v));
    const layout l = layout_of(args);
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->shape[2] = channels;
    plan->saved = l.images * l.saved_image + mla_cross_saved(l.r, channels);
    /* Of linear_core; two tiles; s of a tile's rows; U', k^T x, its turned sum, -(s T)^T g and s^T k; dt wide and its
     * scratch; a row. */
    plan->scratch = l.linear_scratch + 2 * l.tile * l.columns + l.tile * l.r + 4 * l.r * channels + l.r * l.r + 5 * channels;
    const double tokens = (double)(l.images * l.tokens), c2 = 2 * (double)channels;
    plan->flops = tokens * (double)l.columns * (4.0 * (double)l.d + 2.0);
    if (l.turns) plan->flops += 4.0 * tokens * c2;
    plan->flops += 4.0 * tokens * c2 * (double)l.r;
}

/* One image at work. */
typedef struct image {
    layout l;
    mla_angle_image angle;
    mla_cross cross;
    mla_linear_image linear;
    const real *x; /* its rows of qkv */
    size_t stride;
    real *f, *df, *s;                   /* a tile's features, their gradients (tile, h D), and s (tile, r) */
    real *turned_unit, *kx, *kx_turned; /* (r, C): U'; k^T x of the image; k^T x R of all images */
    real *du, *sk;                      /* (r, C), (r, r): sums over all images */
    real *dt;                           /* (C): terms of dt, then dt in its first half; more scratch (3C) behind it */
    real *row;                          /* (C): what is split, and its gradient */
} image;

static image image_of(const mla_op_args *args, const layout *l, size_t b) {
    const attributes *attr = args->attr;
    const mla_tensor *x = &args->in[X];
    real *saved = args->saved + b * l->saved_image, *scratch = args->scratch;
    image m = {.l = *l, .x = x->data + b * l->tokens * x->stride, .stride = x->stride};
    m.angle = mla_angle_image_at(l->tokens, l->channels, 2, m.x, m.stride, saved);
    m.cross = mla_cross_at(l->r, l->channels, args->saved + l->images * l->saved_image);
    m.linear = mla_linear_image_at(l->tokens, l->heads, l->width, l->d, attr->eps, saved + mla_angle_saved(l->channels, 2),
                                   scratch);
    m.f = scratch + l->linear_scratch;
    m.df = m.f + l->tile * l->columns;
    m.s = m.df + l->tile * l->columns;
    m.turned_unit = m.s + l->tile * l->r;
    m.kx = m.turned_unit + l->r * l->channels;
    m.kx_turned = m.kx + l->r * l->channels;
    m.du = m.kx_turned + l->r * l->channels;
    m.sk = m.du + l->r * l->channels;
    m.dt = m.sk + l->r * l->r;
    m.row = m.dt + 4 * l->channels;
    return m;
}

/* The image's U'; without an angle, U itself and a turn that changes nothing. */
static void prepare_turn(const image *m) {
    const size_t channels = m->l.channels;
    for (size_t i = 0; !m->l.turns && i < channels; i++) {
        m->angle.same[i] = 1;
        m->angle.other[i] = 0;
    }
    for (size_t j = 0; j < m->l.r; j++)
        mla_angle_turn_back(&m->angle, m->turned_unit + j * channels, m->cross.unit + j * channels);
}

/* out (r) = products of a row x (C) with the r rows of `rows`.  Inlined for each usual r, like the functions below. */
static inline __attribute__((always_inline)) void dots(real *out, const real *x, const real *rows, size_t n,
                                                       const size_t r) {
    for (size_t j = 0; j < r; j++) {
        mla_vector sum = {0};
        for (size_t i = 0; i < n; i += LANES) sum += mla_vector_load(x + i) * mla_vector_load(rows + j * n + i);
        out[j] = mla_vector_sum(sum);
    }
}

/* y = x R - st U, and with `cut` relu of it.  Inlined for each usual r, so that its loop goes away. */
static inline __attribute__((always_inline)) void reorient_row(const image *m, real *f, const real *x, const real *st,
                                                               const size_t r, const bool cut) {
    const size_t n = m->l.channels;
    const real *same = m->angle.same, *other = m->angle.other, *unit = m->cross.unit;
    for (size_t i = 0; i < n; i += LANES) {
        const mla_vector v = mla_vector_load(x + i);
        mla_vector y = v * mla_vector_load(same + i) + mla_vector_swap_pairs(v) * mla_vector_load(other + i);
        for (size_t j = 0; j < r; j++) y -= st[j] * mla_vector_load(unit + j * n + i);
        mla_vector_store(f + i, cut ? mla_vector_relu(y) : y);
    }
}

static inline __attribute__((always_inline)) void reorient(const image *m, real *f, const real *x, const real *st,
                                                           const bool cut) {
    switch (m->l.r) {
    case 0: reorient_row(m, f, x, st, 0, cut); break;
    case 2: reorient_row(m, f, x, st, 2, cut); break;
    default: reorient_row(m, f, x, st, m->l.r, cut);
    }
}

/* f (h, 2d) = [relu(y), relu(-y)] of each head of y (C). */
static void split_row(const image *m, real *restrict f, const real *restrict y) {
    const size_t d = m->l.d;
    for (size_t h = 0; h < m->l.heads; h++, f += 2 * d, y += d)
        for (size_t i = 0; i < d; i++) {
            f[i] = y[i] < 0 ? 0 : y[i]; /* a NaN stays one */
            f[d + i] = y[i] > 0 ? 0 : -y[i];
        }
}

/* dy (C) from the features and their gradients. */
static void join_row(const image *m, real *restrict dy, const real *restrict f, const real *restrict df) {
    const size_t d = m->l.d;
    for (size_t h = 0; h < m->l.heads; h++, f += 2 * d, df += 2 * d, dy += d)
        for (size_t i = 0; i < d; i++) dy[i] = (f[i] > 0 ? df[i] : 0) - (f[d + i] > 0 ? df[d + i] : 0);
}

static bool splits(const image *m) { return m->l.width > m->l.d; }

/* Features of `tokens` rows of q (part 0) or k (part 1) from `first` on, and their s. */
static void features(const image *m, size_t part, size_t first, size_t tokens) {
    const size_t channels = m->l.channels, r = m->l.r;
    const real *x = m->x + first * m->stride + part * channels;
    for (size_t n = 0; n < tokens; n++, x += m->stride) {
        mla_prefetch(x + AHEAD * m->stride, part == 1 ? 2 * channels : channels); /* k, and its v */
        real *s = m->s + n * r, *f = m->f + n * m->l.columns, st[MLA_MAX_REFLECTIONS];
        dots(s, x, m->turned_unit, channels, r);
        mla_cross_times_factor(&m->cross, st, s, false);
        if (splits(m)) {
            reorient(m, m->row, x, st, false);
            split_row(m, f, m->row);
        } else {
            reorient(m, f, x, st, true);
        }
    }
}

static size_t tile_tokens(const image *m, size_t first) {
    return m->l.tokens - first < m->l.tile ? m->l.tokens - first : m->l.tile;
}

static void forward(mla_op_args *args) {
    const layout l = layout_of(args);
    const mla_tensor *y = &args->out;
    for (size_t b = 0; b < l.images; b++) {
        const image m = image_of(args, &l, b);
        const real *v = m.x + 2 * l.channels;
        if (b == 0 && l.r) mla_cross_prepare(&m.cross, args->in[VECTORS].data);
        if (l.turns)
            mla_angle_measure(&m.angle, args->in[GAIN].data, args->in[OFFSET].data,
                              ((const attributes *)args->attr)->angle_max, m.f);
        prepare_turn(&m);
        for (size_t first = 0; first < l.tokens; first += l.tile) {
            features(&m, 1, first, tile_tokens(&m, first));
            mla_linear_add_tile(&m.linear, first, tile_tokens(&m, first), m.f, v + first * m.stride, m.stride);
        }
        for (size_t first = 0; first < l.tokens; first += l.tile) {
            real *rows = y->data + (b * l.tokens + first) * y->stride;
            features(&m, 0, first, tile_tokens(&m, first));
            mla_linear_read_tile(&m.linear, tile_tokens(&m, first), rows, y->stride, m.f);
        }
    }
}

/* One row back: dx += (g - kt U) R^T, g = df [f > 0] (stored in df); terms of dt; du -= st g; kx += k x. */
static inline __attribute__((always_inline)) void return_row(const image *m, real *dx, const real *g, const real *x,
                                                             const real *k, const real *kt, const real *st, const size_t r) {
    const size_t n = m->l.channels;
    const real *same = m->angle.same, *other = m->angle.other, *unit = m->cross.unit;
    for (size_t i = 0; i < n; i += LANES) {
        const mla_vector row = mla_vector_load(g + i), in = mla_vector_load(x + i);
        mla_vector dy = row;
        for (size_t j = 0; j < r; j++) {
            dy -= kt[j] * mla_vector_load(unit + j * n + i);
            mla_vector_store(m->du + j * n + i, mla_vector_load(m->du + j * n + i) - st[j] * row);
            mla_vector_store(m->kx + j * n + i, mla_vector_load(m->kx + j * n + i) + k[j] * in);
        }
        const mla_vector back = dy * mla_vector_load(same + i) - mla_vector_swap_pairs(dy) * mla_vector_load(other + i);
        mla_vector_store(m->dt + i, mla_vector_load(m->dt + i) + in * mla_vector_swap_pairs(back));
        mla_vector_store(dx + i, mla_vector_load(dx + i) + back);
    }
}

/* Rows of q (part 0) or k (part 1) of a tile, whose feature gradients stand in df: adds to dx and to the sums. */
static void return_tile(const image *m, size_t part, size_t first, size_t tokens, real *dx, size_t dx_stride) {
    const size_t channels = m->l.channels, r = m->l.r;
    const real *x = m->x + first * m->stride + part * channels;
    dx += first * dx_stride + part * channels;
    for (size_t n = 0; n < tokens; n++, x += m->stride, dx += dx_stride) {
        mla_prefetch(dx + AHEAD * dx_stride, channels);
        real *restrict g = splits(m) ? m->row : m->df + n * channels, *s = m->s + n * r;
        const real *restrict f = m->f + n * m->l.columns;
        real k[MLA_MAX_REFLECTIONS], kt[MLA_MAX_REFLECTIONS], st[MLA_MAX_REFLECTIONS];
        if (splits(m))
            join_row(m, g, f, m->df + n * m->l.columns);
        else
            for (size_t i = 0; i < channels; i++) g[i] = f[i] > 0 ? g[i] : 0;
        dots(k, g, m->cross.unit, channels, r);
        mla_cross_times_factor(&m->cross, kt, k, true);
        mla_cross_times_factor(&m->cross, st, s, false);
        for (size_t j = 0; j < r; j++)
            for (size_t l = 0; l < r; l++) m->sk[j * r + l] += s[j] * k[l];
        switch (r) {
        case 0: return_row(m, dx, g, x, k, kt, st, 0); break;
        case 2: return_row(m, dx, g, x, k, kt, st, 2); break;
        default: return_row(m, dx, g, x, k, kt, st, r);
        }
    }
}

/* The end of an image: its k^T x turned and added to that of all; the angle's gradients, and the variance's part of dx
 * (NULL: not wanted). */
static void finish_image(const mla_op_args *args, const image *m, real *dx, size_t dx_stride) {
    const size_t channels = m->l.channels;
    real *turned = m->dt + channels;
    for (size_t j = 0; j < m->l.r; j++) {
        mla_angle_turn(&m->angle, turned, m->kx + j * channels);
        mla_vec_add(channels, m->kx_turned + j * channels, 1, turned);
    }
    if (!m->l.turns) return;
    for (size_t i = 0; i < channels / 2; i++) m->dt[i] = m->dt[2 * i] - m->dt[2 * i + 1];
    mla_modulation_gradient(&m->angle.modulation, m->dt, args->din[GAIN].data, args->din[OFFSET].data, args->in[GAIN].data,
                            ((const attributes *)args->attr)->angle_max);
    for (size_t n = 0; dx && n < 2 * m->l.tokens; n++) {
        const size_t part = n % 2 * channels;
        mla_prefetch(dx + (n / 2 + AHEAD) * dx_stride + part, channels);
        mla_prefetch(m->x + (n / 2 + AHEAD) * m->stride + part, channels);
        mla_angle_add_variance_part(&m->angle, dx + n / 2 * dx_stride + part, m->x + n / 2 * m->stride + part,
                                    m->angle.mu + part, m->dt);
    }
}

static void backward_image(const mla_op_args *args, const layout *l, size_t b) {
    const image m = image_of(args, l, b);
    const mla_tensor *y = &args->out, *dqkv = &args->din[X];
    const size_t channels = l->channels;
    const real *v = m.x + 2 * channels;
    /* Nobody wants dx: one row of scratch takes it. */
    const size_t stride = dqkv->data ? dqkv->stride : 0;
    real *dx = dqkv->data ? dqkv->data + b * l->tokens * stride : m.dt + channels;
    prepare_turn(&m);
    memset(m.kx, 0, l->r * channels * sizeof(real));
    memset(m.dt, 0, 4 * channels * sizeof(real));
    mla_linear_begin_gradient(&m.linear);
    for (size_t first = 0; first < l->tokens; first += l->tile) {
        const size_t tokens = tile_tokens(&m, first), offset = (b * l->tokens + first) * y->stride;
        features(&m, 0, first, tokens);
        mla_linear_query_tile(&m.linear, first, tokens, m.df, m.f, args->dout.data + offset, y->data + offset, y->stride);
        return_tile(&m, 0, first, tokens, dx, stride);
    }
    mla_linear_turn_gradient(&m.linear);
    for (size_t first = 0; first < l->tokens; first += l->tile) {
        const size_t tokens = tile_tokens(&m, first);
        features(&m, 1, first, tokens);
        mla_linear_key_tile(&m.linear, tokens, m.df, dqkv->data ? dx + first * stride + 2 * channels : NULL, stride, m.f,
                            v + first * m.stride, m.stride);
        return_tile(&m, 1, first, tokens, dx, stride);
    }
    finish_image(args, &m, dqkv->data ? dx : NULL, stride);
}

static void backward(mla_op_args *args) {
    const layout l = layout_of(args);
    const image m = image_of(args, &l, 0);
    const size_t vectors = l.r * l.channels;
    memset(m.kx_turned, 0, (2 * vectors + l.r * l.r) * sizeof(real)); /* du and sk behind it */
    for (size_t b = 0; b < l.images; b++) backward_image(args, &l, b);
    if (args->din[VECTORS].data) mla_cross_gradient(&m.cross, args->din[VECTORS].data, m.du, m.kx_turned, m.sk);
}

const mla_op mla_op_mirror_attention = {.name = "mirror_attention", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_mirror_attention(mla_tape *tape, mla_var qkv, mla_var a, mla_var c, mla_var u, size_t heads,
                             mla_feature_kept kept, double angle_max, double eps) {
    return mla_record(tape, MLA_OP_MIRROR_ATTENTION, (mla_var[MLA_MAX_INPUTS]){qkv, a, c, u},
                      &(attributes){heads, kept, angle_max, eps}, sizeof(attributes));
}
