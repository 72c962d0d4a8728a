/* depthwise_conv: y = residual + conv(x), each channel with its own k x k filter, zero padding, stride 1.
 *
 *   y[i, j, c] = residual[i, j, c] + b[c] + sum_{u, v} w[c, u, v] x[i + u - k/2, j + v - k/2, c]
 *   dx[i, j, c] += sum_{u, v} w[c, u, v] dy[i - u + k/2, j - v + k/2, c]      (the same with the filter turned round)
 *   dw[c, u, v] += sum_{i, j} dy[i, j, c] x[i + u - k/2, j + v - k/2, c],  db[c] += sum dy,  dresidual += dy
 *
 * Tokens stay rows of channels: the inner loop runs over a chunk of channels whose sums stay in registers, so that
 * nothing is transposed.  The filter is turned to (u, v, c) in scratch first.
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

enum { X, WEIGHT, BIAS, RESIDUAL };
enum { CHUNK = 32 }; /* channels summed at once: four registers of eight floats */

typedef struct attributes {
    size_t height, width;
} attributes;

static size_t side_of(const mla_op_args *args) { return args->in[WEIGHT].shape[3]; }

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
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    const size_t taps = w->shape[3] * w->shape[3];
    plan->scratch = 2 * taps * x->shape[2];
    plan->flops = 2.0 * (double)mla_tensor_count(x) * (double)taps;
}

/* Filter (C, k, k) -> (k, k, C); turned round for the gradient of x. */
static void turn_filter(real *out, const real *weight, size_t channels, size_t taps, bool round) {
    for (size_t c = 0; c < channels; c++)
        for (size_t t = 0; t < taps; t++) out[(round ? taps - 1 - t : t) * channels + c] = weight[c * taps + t];
}

typedef struct grid {
    size_t height, width, side, channels;
} grid;

/* Taps of one dimension that stay inside: first .. last - 1 for position i of n. */
static size_t first_tap(size_t i, size_t side) { return i < side / 2 ? side / 2 - i : 0; }
static size_t last_tap(size_t i, size_t n, size_t side) { return i + side / 2 >= n ? side - (i + side / 2 + 1 - n) : side; }

/* sum over the taps of token (i, j), channels c .. c + n - 1, added to sum. */
static inline void tap_sum(real *restrict sum, const real *x, size_t stride, const real *filter, grid g, size_t i, size_t j,
                           size_t c, size_t n) {
    for (size_t u = first_tap(i, g.side); u < last_tap(i, g.height, g.side); u++)
        for (size_t v = first_tap(j, g.side); v < last_tap(j, g.width, g.side); v++) {
            const real *restrict in = x + ((i + u - g.side / 2) * g.width + j + v - g.side / 2) * stride + c;
            const real *restrict w = filter + (u * g.side + v) * g.channels + c;
#pragma omp simd
            for (size_t l = 0; l < n; l++) sum[l] += w[l] * in[l];
        }
}

/* y += filter over x for one image; x and y have their own row strides. */
static void convolve(real *y, size_t y_stride, const real *x, size_t x_stride, const real *filter, grid g) {
    for (size_t i = 0; i < g.height; i++)
        for (size_t j = 0; j < g.width; j++) {
            real *out = y + (i * g.width + j) * y_stride;
            size_t c = 0;
            for (; c + CHUNK <= g.channels; c += CHUNK) {
                real sum[CHUNK] = {0};
                tap_sum(sum, x, x_stride, filter, g, i, j, c, CHUNK);
                for (size_t l = 0; l < CHUNK; l++) out[c + l] += sum[l];
            }
            tap_sum(out + c, x, x_stride, filter, g, i, j, c, g.channels - c);
        }
}

/* dw[u, v, c ..] += sum over the grid dy x for one tap and n channels from c. */
static inline void tap_gradient(real *restrict sum, const real *dy, const real *x, size_t x_stride, grid g, size_t u,
                                size_t v, size_t c, size_t n) {
    const size_t half = g.side / 2;
    const size_t top = u < half ? half - u : 0,
                 bottom = u > half ? g.height - (u - half < g.height ? u - half : g.height) : g.height;
    const size_t left = v < half ? half - v : 0,
                 right = v > half ? g.width - (v - half < g.width ? v - half : g.width) : g.width;
    for (size_t i = top; i < bottom; i++)
        for (size_t j = left; j < right; j++) {
            const real *restrict out = dy + (i * g.width + j) * g.channels + c;
            const real *restrict in = x + ((i + u - half) * g.width + j + v - half) * x_stride + c;
#pragma omp simd
            for (size_t l = 0; l < n; l++) sum[l] += out[l] * in[l];
        }
}

static void filter_gradient(real *dfilter, const real *dy, const real *x, size_t x_stride, grid g) {
    for (size_t t = 0; t < g.side * g.side; t++) {
        size_t c = 0;
        for (; c + CHUNK <= g.channels; c += CHUNK) {
            real sum[CHUNK] = {0};
            tap_gradient(sum, dy, x, x_stride, g, t / g.side, t % g.side, c, CHUNK);
            for (size_t l = 0; l < CHUNK; l++) dfilter[t * g.channels + c + l] += sum[l];
        }
        tap_gradient(dfilter + t * g.channels + c, dy, x, x_stride, g, t / g.side, t % g.side, c, g.channels - c);
    }
}

static grid grid_of(const mla_op_args *args) {
    const attributes *attr = args->attr;
    return (grid){attr->height, attr->width, side_of(args), args->in[X].shape[2]};
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const grid g = grid_of(args);
    const size_t tokens = x->shape[1], channels = g.channels;
    real *filter = args->scratch;
    turn_filter(filter, args->in[WEIGHT].data, channels, g.side * g.side, false);
    for (size_t b = 0; b < x->shape[0]; b++) {
        real *y = args->out.data + b * tokens * channels;
        const real *residual = args->in[RESIDUAL].data ? args->in[RESIDUAL].data + b * tokens * channels : NULL;
        for (size_t n = 0; n < tokens; n++)
            for (size_t c = 0; c < channels; c++)
                y[n * channels + c] = args->in[BIAS].data[c] + (residual ? residual[n * channels + c] : 0);
        convolve(y, channels, x->data + b * tokens * x->stride, x->stride, filter, g);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X];
    const grid g = grid_of(args);
    const size_t tokens = x->shape[1], channels = g.channels, taps = g.side * g.side;
    real *filter = args->scratch, *dfilter = args->scratch + taps * channels;
    const real *dy = args->dout.data;
    turn_filter(filter, args->in[WEIGHT].data, channels, taps, true);
    memset(dfilter, 0, taps * channels * sizeof(real));
    for (size_t b = 0; b < x->shape[0]; b++) {
        const real *image = dy + b * tokens * channels;
        if (dx->data) convolve(dx->data + b * tokens * dx->stride, dx->stride, image, channels, filter, g);
        if (args->din[WEIGHT].data) filter_gradient(dfilter, image, x->data + b * tokens * x->stride, x->stride, g);
    }
    if (args->din[WEIGHT].data)
        for (size_t c = 0; c < channels; c++)
            for (size_t t = 0; t < taps; t++) args->din[WEIGHT].data[c * taps + t] += dfilter[t * channels + c];
    if (args->din[BIAS].data) mla_vec_add_rows(x->shape[0] * tokens, channels, args->din[BIAS].data, dy, channels, filter);
}

const mla_op mla_op_depthwise_conv = {
    .name = "depthwise_conv", .plan = plan, .forward = forward, .backward = backward, .passes = RESIDUAL + 1};

mla_var mla_depthwise_conv(mla_tape *tape, mla_var x, mla_var weight, mla_var bias, mla_var residual, size_t height,
                           size_t width) {
    return mla_record(tape, MLA_OP_DEPTHWISE_CONV, (mla_var[MLA_MAX_INPUTS]){x, weight, bias, residual},
                      &(attributes){height, width}, sizeof(attributes));
}
