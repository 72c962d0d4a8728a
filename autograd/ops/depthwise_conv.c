/* depthwise_conv: y = residual + conv(x), each channel with its own k x k filter, zero padding, stride 1.
 *
 *   y[i, j, c] = residual[i, j, c] + b[c] + sum_{u, v} w[c, u, v] x[i + u - k/2, j + v - k/2, c]
 *   dx[i, j, c] += sum_{u, v} w[c, u, v] dy[i - u + k/2, j - v + k/2, c]      (the same with the filter turned round)
 *   dw[c, u, v] += sum_{i, j} dy[i, j, c] x[i + u - k/2, j + v - k/2, c],  db[c] += sum dy,  dresidual += dy
 *
 * Tokens stay rows of channels.  Of one image, a chunk of channels as wide as two vectors is copied into a plane with a
 * border of zeros; there every output has all its taps, and what they read stands close together, so that four tokens at a
 * time are summed in registers, and a row of taps of the filter's gradient likewise.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/vector.h"
#include "core/vmath.h"

enum { X, WEIGHT, BIAS, RESIDUAL };
enum { LANES = MLA_LANES_PER_VECTOR, CHUNK = 2 * LANES, MOST_TAPS = 5, AHEAD = 16 /* tokens */ };

typedef struct attributes {
    size_t height, width;
} attributes;

typedef struct grid {
    size_t height, width, side, channels;
} grid;

static grid grid_of(const mla_op_args *args) {
    const attributes *attr = args->attr;
    return (grid){attr->height, attr->width, args->in[WEIGHT].shape[3], args->in[X].shape[2]};
}

static size_t plane_width(grid g) { return g.width + g.side - 1; }
static size_t plane_reals(grid g) { return (g.height + g.side - 1) * plane_width(g) * CHUNK; }
static size_t filter_reals(grid g) { return g.side * g.side * CHUNK; }

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *w = &args->in[WEIGHT], *b = &args->in[BIAS], *r = &args->in[RESIDUAL];
    const attributes *attr = args->attr;
    MLA_REQUIRE(x->ndim == 3 && x->shape[1] == attr->height * attr->width && w->ndim == 4 && mla_tensor_contiguous(w) &&
                    w->shape[0] == x->shape[2] && w->shape[1] == 1 && w->shape[2] == w->shape[3] && w->shape[3] % 2 == 1 &&
                    b->data && mla_tensor_count(b) == x->shape[2],
                "depthwise_conv: x %s on a grid of %zu x %zu, weight %s, bias %s", mla_shape_text(x), attr->height,
                attr->width, mla_shape_text(w), mla_shape_text(b));
    MLA_REQUIRE(!r->data || (mla_tensor_same_shape(x, r) && mla_tensor_contiguous(r)), "depthwise_conv: x %s, residual %s",
                mla_shape_text(x), mla_shape_text(r));
    const grid g = grid_of(args);
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    /* Forward: a plane and a chunk's filter.  Backward: two planes, the filter turned round, its gradient, sums for db. */
    plan->scratch = 2 * plane_reals(g) + 2 * filter_reals(g) + g.channels;
    plan->flops = 2.0 * (double)mla_tensor_count(x) * (double)(g.side * g.side);
}

/* Channels first .. of a chunk that are there. */
static size_t chunk_width(grid g, size_t first) { return g.channels - first < CHUNK ? g.channels - first : CHUNK; }

/* plane = a chunk of one image's channels, x its first, with zeros around. */
static void fill_plane(real *plane, const real *x, size_t stride, grid g, size_t channels) {
    const size_t half = g.side / 2, width = plane_width(g);
    memset(plane, 0, plane_reals(g) * sizeof(real));
    for (size_t i = 0; i < g.height; i++)
        for (size_t j = 0; j < g.width; j++) {
            __builtin_prefetch(x + (i * g.width + j + AHEAD) * stride);
            memcpy(plane + ((i + half) * width + j + half) * CHUNK, x + (i * g.width + j) * stride, channels * sizeof(real));
        }
}

/* A chunk of the filter (C, k, k) as (k, k, chunk); turned round for the gradient of x. */
static void fill_filter(real *out, const real *weight, grid g, size_t channels, bool round) {
    const size_t taps = g.side * g.side;
    memset(out, 0, filter_reals(g) * sizeof(real));
    for (size_t c = 0; c < channels; c++)
        for (size_t t = 0; t < taps; t++) out[(round ? taps - 1 - t : t) * CHUNK + c] = weight[c * taps + t];
}

/* sum (tokens, chunk) = filter over `tokens` neighbours whose first taps begin at `in`.  Always inlined with a constant. */
static inline __attribute__((always_inline)) void tap_sums(real *sum, const real *in, const real *filter, grid g,
                                                           const int tokens) {
    const size_t width = plane_width(g);
    mla_vector s[4][2] = {{{0}}};
    for (size_t u = 0; u < g.side; u++)
        for (size_t v = 0; v < g.side; v++, filter += CHUNK) {
            const real *x = in + (u * width + v) * CHUNK;
            const mla_vector w0 = mla_vector_load(filter), w1 = mla_vector_load(filter + LANES);
#pragma GCC unroll 4
            for (int t = 0; t < tokens; t++) {
                s[t][0] += w0 * mla_vector_load(x + t * CHUNK);
                s[t][1] += w1 * mla_vector_load(x + t * CHUNK + LANES);
            }
        }
#pragma GCC unroll 4
    for (int t = 0; t < tokens; t++) {
        mla_vector_store(sum + t * CHUNK, s[t][0]);
        mla_vector_store(sum + t * CHUNK + LANES, s[t][1]);
    }
}

/* y += filter over the plane, for the chunk's channels; rows of y are `stride` apart. */
static void convolve(real *y, size_t stride, const real *plane, const real *filter, grid g, size_t channels) {
    real sum[4 * CHUNK];
    for (size_t i = 0; i < g.height; i++)
        for (size_t j = 0; j < g.width;) {
            const real *in = plane + (i * plane_width(g) + j) * CHUNK;
            real *out = y + (i * g.width + j) * stride;
            const size_t tokens = g.width - j >= 4 ? 4 : 1;
            if (tokens == 4)
                tap_sums(sum, in, filter, g, 4);
            else
                tap_sums(sum, in, filter, g, 1);
            for (size_t t = 0; t < tokens; t++)
                if (channels == CHUNK)
                    for (size_t c = 0; c < CHUNK; c++) out[t * stride + c] += sum[t * CHUNK + c];
                else
                    mla_vec_add(channels, out + t * stride, 1, sum + t * CHUNK);
            j += tokens;
        }
}

/* dfilter (taps, chunk) += sums over the grid of dy times x at `taps` neighbouring places, from `x` on. */
static inline __attribute__((always_inline)) void row_gradient(real *dfilter, const real *dy, const real *x, grid g,
                                                               const int taps) {
    const size_t width = plane_width(g);
    mla_vector s[MOST_TAPS][2] = {{{0}}};
    for (size_t i = 0; i < g.height; i++)
        for (size_t j = 0; j < g.width; j++) {
            const real *out = dy + (i * width + j) * CHUNK, *in = x + (i * width + j) * CHUNK;
            const mla_vector g0 = mla_vector_load(out), g1 = mla_vector_load(out + LANES);
#pragma GCC unroll 5
            for (int t = 0; t < taps; t++) {
                s[t][0] += g0 * mla_vector_load(in + t * CHUNK);
                s[t][1] += g1 * mla_vector_load(in + t * CHUNK + LANES);
            }
        }
#pragma GCC unroll 5
    for (int t = 0; t < taps; t++)
        for (int v = 0; v < 2; v++) {
            real *to = dfilter + t * CHUNK + v * LANES;
            mla_vector_store(to, mla_vector_load(to) + s[t][v]);
        }
}

/* dy and x are planes; dy begins at the token that the plane's border leaves free. */
static void filter_gradient(real *dfilter, const real *dy, const real *x, grid g) {
    const size_t width = plane_width(g), half = g.side / 2;
    dy += (half * width + half) * CHUNK;
    for (size_t u = 0; u < g.side; u++)
        for (size_t v = 0; v < g.side; v += MOST_TAPS) {
            real *to = dfilter + (u * g.side + v) * CHUNK;
            const real *in = x + (u * width + v) * CHUNK;
            switch (g.side - v) {
            case 1: row_gradient(to, dy, in, g, 1); break;
            case 2: row_gradient(to, dy, in, g, 2); break;
            case 3: row_gradient(to, dy, in, g, 3); break;
            case 4: row_gradient(to, dy, in, g, 4); break;
            default: row_gradient(to, dy, in, g, MOST_TAPS);
            }
        }
}

/* y = bias + residual. */
static void start_rows(const mla_op_args *args, size_t rows, size_t channels) {
    const real *bias = args->in[BIAS].data, *residual = args->in[RESIDUAL].data;
    for (size_t n = 0; n < rows; n++) {
        real *restrict y = args->out.data + n * channels;
        if (residual)
            for (size_t c = 0; c < channels; c++) y[c] = bias[c] + residual[n * channels + c];
        else
            memcpy(y, bias, channels * sizeof(real));
    }
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const grid g = grid_of(args);
    const size_t tokens = x->shape[1], channels = g.channels;
    real *plane = args->scratch, *filter = plane + plane_reals(g);
    start_rows(args, x->shape[0] * tokens, channels);
    for (size_t c = 0; c < channels; c += CHUNK) {
        const size_t width = chunk_width(g, c);
        fill_filter(filter, args->in[WEIGHT].data + c * g.side * g.side, g, width, false);
        for (size_t b = 0; b < x->shape[0]; b++) {
            fill_plane(plane, x->data + b * tokens * x->stride + c, x->stride, g, width);
            convolve(args->out.data + b * tokens * channels + c, channels, plane, filter, g, width);
        }
    }
}

/* One chunk of channels of all images: dx and dw. */
static void backward_chunk(const mla_op_args *args, grid g, size_t first) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X];
    const size_t tokens = x->shape[1], taps = g.side * g.side, width = chunk_width(g, first);
    real *dy = args->scratch, *plane = dy + plane_reals(g), *filter = plane + plane_reals(g);
    real *dfilter = filter + filter_reals(g), *dw = args->din[WEIGHT].data;
    fill_filter(filter, args->in[WEIGHT].data + first * taps, g, width, true);
    memset(dfilter, 0, filter_reals(g) * sizeof(real));
    for (size_t b = 0; b < x->shape[0]; b++) {
        fill_plane(dy, args->dout.data + b * tokens * g.channels + first, g.channels, g, width);
        if (dx->data) convolve(dx->data + b * tokens * dx->stride + first, dx->stride, dy, filter, g, width);
        if (!dw) continue;
        fill_plane(plane, x->data + b * tokens * x->stride + first, x->stride, g, width);
        filter_gradient(dfilter, dy, plane, g);
    }
    for (size_t c = 0; dw && c < width; c++)
        for (size_t t = 0; t < taps; t++) dw[(first + c) * taps + t] += dfilter[t * CHUNK + c];
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const grid g = grid_of(args);
    for (size_t c = 0; c < g.channels; c += CHUNK) backward_chunk(args, g, c);
    if (args->din[BIAS].data)
        mla_vec_add_rows(mla_tensor_rows(x), g.channels, args->din[BIAS].data, args->dout.data, g.channels, args->scratch);
}

const mla_op mla_op_depthwise_conv = {
    .name = "depthwise_conv", .plan = plan, .forward = forward, .backward = backward, .passes = RESIDUAL + 1};

mla_var mla_depthwise_conv(mla_tape *tape, mla_var x, mla_var weight, mla_var bias, mla_var residual, size_t height,
                           size_t width) {
    return mla_record(tape, MLA_OP_DEPTHWISE_CONV, (mla_var[MLA_MAX_INPUTS]){x, weight, bias, residual},
                      &(attributes){height, width}, sizeof(attributes));
}
