/* pair_angle: the variance-aware angle of the mirror.  Channel pair i = (2i, 2i + 1) of q and of k turns by one angle an
 * image, t_i, which follows how much the pair varies over the tokens:
 *
 *   s_i = (1 / 4N) sum over tokens, q and k, both channels (x - mu)^2       mu: the channel's token mean
 *   l_i = log(s_i + 1e-6),   e_i = l_i - mean_j l_j                         j: all C / 2 pairs of the image
 *   t_i = T tanh(a_i e_i + c_i)
 *   y1 = x1 cos t - x2 sin t,   y2 = x1 sin t + x2 cos t
 *
 * A turn by t is the product of two reflections whose mirrors stand at t / 2.  Angles of their own: q and k each turn by
 * what their own variance says (s without the mean over the two), with the same a and c.
 *
 *   dt = sum over tokens, q and k (dy2 y1 - dy1 y2)
 *   dz = dt T (1 - tanh^2),  da += dz e,  dc += dz,  dl = a dz,  dl -= mean_j dl,  ds = dl / (s + 1e-6)
 *   dx1 += dy1 cos t + dy2 sin t + ds (x1 - mu1) / 2N,   dx2 += -dy1 sin t + dy2 cos t + ds (x2 - mu2) / 2N
 *   (the mean's own term vanishes)
 *
 * Saved an image: mu, then cos t and sin t as a row is turned by them, tanh, e, s (pair_angle.h).  Models use it within
 * mirror_attention, whose plain twin it is, and by itself where the channels do not fill whole vectors or other options of
 * the mirror are on.
 */
#include "autograd/ops/pair_angle.h"

#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/vector.h"
#include "core/vmath.h"

enum { X, GAIN, OFFSET };

typedef struct attributes {
    double angle_max;
    bool own;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *a = &args->in[GAIN], *c = &args->in[OFFSET];
    MLA_REQUIRE(x->ndim == 3 && x->shape[2] % 4 == 0 && mla_tensor_count(a) == x->shape[2] / 4 &&
                    mla_tensor_count(c) == x->shape[2] / 4,
                "pair_angle: qk %s, a %s, c %s", mla_shape_text(x), mla_shape_text(a), mla_shape_text(c));
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    const size_t width = x->shape[2];
    plan->saved = x->shape[0] * 2 * mla_angle_saved(width / 2, 1);
    plan->scratch = 2 * width;
    /* A rotation of a pair counts as a product with a 2 x 2 matrix. */
    plan->flops = 4.0 * (double)mla_tensor_count(x);
}

size_t mla_angle_saved(size_t channels, size_t parts) { return (parts + 2) * channels + 3 * (channels / 2); }

mla_angle_image mla_angle_image_at(size_t tokens, size_t channels, size_t parts, const real *x, size_t stride, real *saved) {
    mla_angle_image m = {.tokens = tokens, .pairs = channels / 2, .parts = parts, .stride = stride, .x = x, .mu = saved};
    m.same = m.mu + parts * channels;
    m.other = m.same + channels;
    m.modulation = mla_modulation_at(m.pairs, m.other + channels);
    return m;
}

/* How many things of an image turn by themselves: one, or with angles of their own two, q and k. */
static size_t groups_of(const mla_op_args *args) { return ((const attributes *)args->attr)->own ? 2 : 1; }

static mla_angle_image image_of(const mla_op_args *args, size_t b, size_t group) {
    const mla_tensor *x = &args->in[X];
    const size_t channels = x->shape[2] / 2;
    return mla_angle_image_at(x->shape[1], channels, 2 / groups_of(args),
                              x->data + b * x->shape[1] * x->stride + group * channels, x->stride,
                              args->saved + (2 * b + group) * mla_angle_saved(channels, 1));
}

void mla_angle_measure(const mla_angle_image *m, const real *a, const real *c, double angle_max, real *scratch) {
    const size_t channels = 2 * m->pairs, width = m->parts * channels;
    const real scale = 1 / (real)(2 * m->parts * m->tokens), *second = scratch + channels;
    mla_token_squares(m->tokens, width, m->mu, scratch, m->x, m->stride, scratch + width);
    for (size_t i = 0; i < m->pairs; i++) {
        real sum = scratch[2 * i] + scratch[2 * i + 1];
        if (m->parts == 2) sum = sum + second[2 * i] + second[2 * i + 1];
        m->modulation.variance[i] = scale * sum;
    }
    mla_modulation_measure(&m->modulation, a, c);
    for (size_t i = 0; i < m->pairs; i++) {
        const double angle = angle_max * (double)m->modulation.tangent[i];
        m->same[2 * i] = m->same[2 * i + 1] = (real)cos(angle);
        m->other[2 * i + 1] = (real)sin(angle);
        m->other[2 * i] = -m->other[2 * i + 1];
    }
}

/* y = x same + sign swap(x) other. */
static inline void turn(const mla_angle_image *m, real *y, const real *x, const real sign) {
    const size_t n = 2 * m->pairs;
    size_t i = 0;
    for (; i + MLA_LANES_PER_VECTOR <= n; i += MLA_LANES_PER_VECTOR) {
        const mla_vector v = mla_vector_load(x + i);
        mla_vector_store(y + i, v * mla_vector_load(m->same + i) +
                                    mla_vector_swap_pairs(v) * (sign * mla_vector_load(m->other + i)));
    }
    for (; i < n; i += 2) {
        const real x1 = x[i], x2 = x[i + 1];
        y[i] = x1 * m->same[i] + sign * x2 * m->other[i];
        y[i + 1] = x2 * m->same[i + 1] + sign * x1 * m->other[i + 1];
    }
}

void mla_angle_turn(const mla_angle_image *m, real *y, const real *x) { turn(m, y, x, 1); }
void mla_angle_turn_back(const mla_angle_image *m, real *y, const real *x) { turn(m, y, x, -1); }

void mla_angle_add_variance_part(const mla_angle_image *m, real *restrict dx, const real *restrict x,
                                 const real *restrict mu, const real *restrict ds) {
    const real scale = 1 / (real)(m->parts * m->tokens);
#pragma omp simd
    for (size_t i = 0; i < m->pairs; i++) {
        const real weight = ds[i] * scale;
        dx[2 * i] += weight * (x[2 * i] - mu[2 * i]);
        dx[2 * i + 1] += weight * (x[2 * i + 1] - mu[2 * i + 1]);
    }
}

/* Row n: token n / parts, and which part of it. */
static size_t row_offset(const mla_angle_image *m, size_t stride, size_t n) {
    return n / m->parts * stride + n % m->parts * (2 * m->pairs);
}

static void forward(mla_op_args *args) {
    const size_t groups = groups_of(args), width = args->in[X].shape[2];
    for (size_t i = 0; i < groups * args->in[X].shape[0]; i++) {
        const mla_angle_image m = image_of(args, i / groups, i % groups);
        mla_angle_measure(&m, args->in[GAIN].data, args->in[OFFSET].data, ((const attributes *)args->attr)->angle_max,
                          args->scratch);
        real *y = args->out.data + i / groups * m.tokens * width + i % groups * (width / 2);
        for (size_t n = 0; n < m.parts * m.tokens; n++)
            mla_angle_turn(&m, y + row_offset(&m, width, n), m.x + row_offset(&m, m.stride, n));
    }
}

/* One row: dt += dy2 y1 - dy1 y2. */
static void add_angle_gradient(real *restrict dt, const real *restrict y, const real *restrict dy, size_t pairs) {
#pragma omp simd
    for (size_t i = 0; i < pairs; i++) dt[i] += dy[2 * i + 1] * y[2 * i] - dy[2 * i] * y[2 * i + 1];
}

static void backward_group(const mla_op_args *args, size_t b, size_t group) {
    const mla_tensor *dx = &args->din[X];
    const mla_angle_image m = image_of(args, b, group);
    const size_t channels = 2 * m.pairs, width = 2 * channels, offset = b * m.tokens * width + group * channels;
    const real *y = args->out.data + offset, *dy = args->dout.data + offset;
    real *dt = args->scratch, *turned = dt + width;
    memset(dt, 0, m.pairs * sizeof(real));
    for (size_t n = 0; n < m.parts * m.tokens; n++)
        add_angle_gradient(dt, y + row_offset(&m, width, n), dy + row_offset(&m, width, n), m.pairs);
    mla_modulation_gradient(&m.modulation, dt, args->din[GAIN].data, args->din[OFFSET].data, args->in[GAIN].data,
                            ((const attributes *)args->attr)->angle_max);
    for (size_t n = 0; dx->data && n < m.parts * m.tokens; n++) {
        real *to = dx->data + b * m.tokens * dx->stride + group * channels + row_offset(&m, dx->stride, n);
        mla_angle_turn_back(&m, turned, dy + row_offset(&m, width, n));
        mla_vec_add(channels, to, 1, turned);
        mla_angle_add_variance_part(&m, to, m.x + row_offset(&m, m.stride, n), m.mu + n % m.parts * channels, dt);
    }
}

static void backward(mla_op_args *args) {
    const size_t groups = groups_of(args);
    for (size_t i = 0; i < groups * args->in[X].shape[0]; i++) backward_group(args, i / groups, i % groups);
}

const mla_op mla_op_pair_angle = {.name = "pair_angle", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_pair_angle(mla_tape *tape, mla_var qk, mla_var a, mla_var c, double angle_max, bool own) {
    return mla_record(tape, MLA_OP_PAIR_ANGLE, (mla_var[MLA_MAX_INPUTS]){qk, a, c, MLA_NO_VAR},
                      &(attributes){angle_max, own}, sizeof(attributes));
}
