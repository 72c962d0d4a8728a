/* plane_angle: the variance-aware angle of the mirror in learned planes.  Every block of b channels of q and of k turns in
 * a plane of its own by one angle an image, which follows the block's variance over the tokens as in pair_angle; with
 * angles of their own q and k each by what their own variance says.  Orthonormal rows u, w span the plane of a block, x is
 * a row of it:
 *
 *   al = x . u,  ga = x . w,  k = cos t - 1,  s = sin t,   y = x + (k al - s ga) u + (k ga + s al) w
 *
 *   gu = dy . u,  gw = dy . w,  dal = k gu + s gw,  dga = k gw - s gu
 *   dx += dy + dal u + dga w + ds (2 / (b parts N)) (x - mu)
 *   dt += -s (al gu + ga gw) + (k + 1)(al gw - ga gu)                     summed over tokens, and parts
 *   du += dal x + (k al - s ga) dy,   dw += dga x + (k ga + s al) dy
 *
 * It is H(u) H(u cos(t/2) + w sin(t/2)).  Saved for what turns together: mu, k, s and the modulation (modulation.h).
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/modulation.h"
#include "core/vmath.h"

enum { X, GAIN, OFFSET, PLANES };

typedef struct attributes {
    double angle_max;
    bool own;
} attributes;

static size_t saved_group(size_t parts, size_t channels, size_t planes) { return parts * channels + 5 * planes; }

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *a = &args->in[GAIN], *c = &args->in[OFFSET], *p = &args->in[PLANES];
    MLA_REQUIRE(x->ndim == 3 && p->ndim == 3 && mla_tensor_contiguous(p) && p->shape[1] == 2 &&
                    2 * p->shape[0] * p->shape[2] == x->shape[2] && mla_tensor_count(a) == p->shape[0] &&
                    mla_tensor_count(c) == p->shape[0],
                "plane_angle: qk %s, a %s, c %s, planes %s", mla_shape_text(x), mla_shape_text(a), mla_shape_text(c),
                mla_shape_text(p));
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->saved = x->shape[0] * 2 * saved_group(1, x->shape[2] / 2, p->shape[0]);
    plan->scratch = 2 * x->shape[2] + p->shape[0];
    /* As the product with a b x b matrix that it stands for. */
    plan->flops = 2.0 * (double)mla_tensor_count(x) * (double)p->shape[2];
}

/* What turns by the same angles: q and k of an image side by side (parts = 2), or one of them (parts = 1). */
typedef struct group {
    size_t tokens, channels, parts, b, planes;
    const real *x, *plane;     /* rows of parts * C, `stride` apart; (M, 2, b) */
    size_t stride, offset;     /* of its first row, in an output of whole rows */
    real *mu, *turn[2];        /* (parts * C); cos t - 1 and sin t (M each) */
    mla_modulation modulation; /* (M) */
} group;

static group group_of(const mla_op_args *args, size_t index) {
    const mla_tensor *x = &args->in[X], *p = &args->in[PLANES];
    const size_t groups = ((const attributes *)args->attr)->own ? 2 : 1, b = index / groups, side = index % groups;
    group g = {.tokens = x->shape[1], .channels = x->shape[2] / 2, .parts = 2 / groups, .b = p->shape[2]};
    g.planes = p->shape[0];
    g.x = x->data + b * g.tokens * x->stride + side * g.channels;
    g.plane = p->data;
    g.stride = x->stride;
    g.offset = b * g.tokens * x->shape[2] + side * g.channels;
    g.mu = args->saved + (2 * b + side) * saved_group(1, g.channels, g.planes);
    g.turn[0] = g.mu + g.parts * g.channels;
    g.turn[1] = g.turn[0] + g.planes;
    g.modulation = mla_modulation_at(g.planes, g.turn[1] + g.planes);
    return g;
}

static size_t group_count(const mla_op_args *args) {
    return args->in[X].shape[0] * (((const attributes *)args->attr)->own ? 2 : 1);
}

static void measure(const group *g, const mla_op_args *args) {
    const size_t width = g->parts * g->channels;
    real *squares = args->scratch;
    mla_token_squares(g->tokens, width, g->mu, squares, g->x, g->stride, squares + width);
    memset(g->modulation.variance, 0, g->planes * sizeof(real));
    for (size_t i = 0; i < width; i++) g->modulation.variance[i % g->channels / g->b] += squares[i];
    for (size_t j = 0; j < g->planes; j++) g->modulation.variance[j] /= (real)(g->tokens * g->parts * g->b);
    mla_modulation_measure(&g->modulation, args->in[GAIN].data, args->in[OFFSET].data);
    for (size_t j = 0; j < g->planes; j++) {
        const double t = ((const attributes *)args->attr)->angle_max * (double)g->modulation.tangent[j];
        g->turn[0][j] = (real)(-2 * sin(t / 2) * sin(t / 2));
        g->turn[1][j] = (real)sin(t);
    }
}

static void forward_group(const group *g, real *y, size_t y_stride) {
    const size_t b = g->b;
    for (size_t n = 0; n < g->tokens; n++)
        for (size_t block = 0; block < g->parts * g->planes; block++) {
            const size_t j = block % g->planes;
            const real *restrict x = g->x + n * g->stride + block * b, *restrict u = g->plane + 2 * j * b,
                                 *restrict w = u + b;
            const real k = g->turn[0][j], s = g->turn[1][j], al = mla_vec_dot(b, x, u), ga = mla_vec_dot(b, x, w);
            real *restrict out = y + n * y_stride + block * b;
            for (size_t i = 0; i < b; i++) out[i] = x[i] + (k * al - s * ga) * u[i] + (k * ga + s * al) * w[i];
        }
}

static void forward(mla_op_args *args) {
    for (size_t i = 0; i < group_count(args); i++) {
        const group g = group_of(args, i);
        measure(&g, args);
        forward_group(&g, args->out.data + g.offset, 2 * g.channels);
    }
}

/* One row of a block back.  dx, dplane: NULL when not wanted; gives its part of dt. */
static real return_block(const group *g, size_t j, real *restrict dx, real *restrict dplane, const real *restrict x,
                         const real *restrict dy) {
    const size_t b = g->b;
    const real *restrict u = g->plane + 2 * j * b, *restrict w = u + b;
    const real k = g->turn[0][j], s = g->turn[1][j];
    const real al = mla_vec_dot(b, x, u), ga = mla_vec_dot(b, x, w), gu = mla_vec_dot(b, dy, u), gw = mla_vec_dot(b, dy, w);
    const real dal = k * gu + s * gw, dga = k * gw - s * gu;
    for (size_t i = 0; dx && i < b; i++) dx[i] += dy[i] + dal * u[i] + dga * w[i];
    for (size_t i = 0; dplane && i < b; i++) {
        dplane[i] += dal * x[i] + (k * al - s * ga) * dy[i];
        dplane[b + i] += dga * x[i] + (k * ga + s * al) * dy[i];
    }
    return (k + 1) * (al * gw - ga * gu) - s * (al * gu + ga * gw);
}

static void backward_group(const mla_op_args *args, const group *g) {
    const mla_tensor *dx = &args->din[X];
    const real *dy = args->dout.data + g->offset;
    real *to = dx->data ? dx->data + g->offset / (2 * g->channels) * dx->stride + g->offset % (2 * g->channels) : NULL;
    real *dt = args->scratch, *dplanes = args->din[PLANES].data;
    const size_t b = g->b, blocks = g->parts * g->planes;
    memset(dt, 0, g->planes * sizeof(real));
    for (size_t n = 0; n < g->tokens; n++)
        for (size_t block = 0; block < blocks; block++) {
            const size_t j = block % g->planes;
            dt[j] += return_block(g, j, to ? to + n * dx->stride + block * b : NULL, dplanes ? dplanes + 2 * j * b : NULL,
                                  g->x + n * g->stride + block * b, dy + n * 2 * g->channels + block * b);
        }
    mla_modulation_gradient(&g->modulation, dt, args->din[GAIN].data, args->din[OFFSET].data, args->in[GAIN].data,
                            ((const attributes *)args->attr)->angle_max);
    const real scale = 2 / (real)(g->tokens * g->parts * b);
    for (size_t n = 0; to && n < g->tokens; n++)
        for (size_t i = 0; i < g->parts * g->channels; i++)
            to[n * dx->stride + i] += scale * dt[i % g->channels / b] * (g->x[n * g->stride + i] - g->mu[i]);
}

static void backward(mla_op_args *args) {
    for (size_t i = 0; i < group_count(args); i++) {
        const group g = group_of(args, i);
        backward_group(args, &g);
    }
}

const mla_op mla_op_plane_angle = {.name = "plane_angle", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_plane_angle(mla_tape *tape, mla_var qk, mla_var a, mla_var c, mla_var planes, double angle_max, bool own) {
    return mla_record(tape, MLA_OP_PLANE_ANGLE, (mla_var[MLA_MAX_INPUTS]){qk, a, c, planes}, &(attributes){angle_max, own},
                      sizeof(attributes));
}
