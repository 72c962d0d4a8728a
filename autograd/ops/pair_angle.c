/* pair_angle: the variance-aware angle of the mirror.  Channel pair i = (2i, 2i + 1) of q and of k turns by one angle an
 * image, t_i, which follows how much the pair varies over the tokens:
 *
 *   s_i = (1 / 4N) sum over tokens, q and k, both channels (x - mu)^2       mu: the channel's token mean
 *   l_i = log(s_i + 1e-6),   e_i = l_i - mean_j l_j                         j: all C / 2 pairs of the image
 *   t_i = T tanh(a_i e_i + c_i)
 *   y1 = x1 cos t - x2 sin t,   y2 = x1 sin t + x2 cos t
 *
 * A turn by t is the product of two reflections whose mirrors stand at t / 2.  Taking the deviation from the mean makes
 * the angle independent of a common scale of q and k.
 *
 *   dt = sum over tokens, q and k (dy2 y1 - dy1 y2)
 *   dz = dt T (1 - tanh^2),  da += dz e,  dc += dz,  dl = a dz,  dl -= mean_j dl,  ds = dl / (s + 1e-6)
 *   dx1 += dy1 cos t + dy2 sin t + ds (x1 - mu1) / 2N,   dx2 += -dy1 sin t + dy2 cos t + ds (x2 - mu2) / 2N
 *   (the mean's own term vanishes)
 *
 * The variance takes two passes: E[x^2] - mu^2 cancels in single precision.  With one pair, or N = 1, e = 0: harmless.
 * Saved an image: mu, then cos t and sin t as a row is turned by them, tanh, e, s (pair_angle.h).  Models use it within
 * mirror_attention, whose plain twin it is, and by itself where the channels do not fill whole vectors.
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
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *a = &args->in[GAIN], *c = &args->in[OFFSET];
    MLA_REQUIRE(x->ndim == 3 && x->shape[2] % 4 == 0 && mla_tensor_count(a) == x->shape[2] / 4 &&
                    mla_tensor_count(c) == x->shape[2] / 4,
                "pair_angle: qk %s, a %s, c %s", mla_shape_text(x), mla_shape_text(a), mla_shape_text(c));
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    const size_t width = x->shape[2];
    plan->saved = x->shape[0] * mla_angle_saved(width / 2);
    plan->scratch = 2 * width;
    /* A rotation of a pair counts as a product with a 2 x 2 matrix. */
    plan->flops = 4.0 * (double)mla_tensor_count(x);
}

size_t mla_angle_saved(size_t channels) { return 4 * channels + 3 * (channels / 2); }

mla_angle_image mla_angle_image_at(size_t tokens, size_t channels, const real *x, size_t stride, real *saved) {
    mla_angle_image m = {.tokens = tokens, .pairs = channels / 2, .stride = stride, .x = x, .mu = saved};
    m.same = m.mu + 2 * channels;
    m.other = m.same + channels;
    m.tangent = m.other + channels;
    m.deviation = m.tangent + m.pairs;
    m.variance = m.deviation + m.pairs;
    return m;
}

static mla_angle_image image_of(const mla_op_args *args, size_t b) {
    const mla_tensor *x = &args->in[X];
    const size_t channels = x->shape[2] / 2;
    return mla_angle_image_at(x->shape[1], channels, x->data + b * x->shape[1] * x->stride, x->stride,
                              args->saved + b * mla_angle_saved(channels));
}

/* square[i] += sum over tokens (x_i - mu_i)^2, in blocks of tokens as in mla_vec_add_rows. */
static void add_squares(const mla_angle_image *m, real *restrict square, real *restrict part) {
    enum { BLOCK = 64 };
    const size_t width = 4 * m->pairs;
    for (size_t first = 0; first < m->tokens; first += BLOCK) {
        memset(part, 0, width * sizeof(real));
        for (size_t n = first; n < m->tokens && n < first + BLOCK; n++) {
            const real *restrict x = m->x + n * m->stride, *restrict mu = m->mu;
#pragma omp simd
            for (size_t i = 0; i < width; i++) part[i] += (x[i] - mu[i]) * (x[i] - mu[i]);
        }
        mla_vec_add(width, square, 1, part);
    }
}

/* mu, then s; scratch: (2C) twice. */
static void token_variance(const mla_angle_image *m, real *scratch) {
    const size_t width = 4 * m->pairs;
    const real mean = 1 / (real)m->tokens;
    real *square = scratch, *part = scratch + width;
    memset(m->mu, 0, width * sizeof(real));
    memset(square, 0, width * sizeof(real));
    mla_vec_add_rows(m->tokens, width, m->mu, m->x, m->stride, part);
    for (size_t i = 0; i < width; i++) m->mu[i] *= mean;
    add_squares(m, square, part);
    const real *k = square + width / 2;
    for (size_t i = 0; i < m->pairs; i++)
        m->variance[i] = REAL(0.25) * mean * (square[2 * i] + square[2 * i + 1] + k[2 * i] + k[2 * i + 1]);
}

void mla_angle_measure(const mla_angle_image *m, const real *a, const real *c, double angle_max, real *scratch) {
    double mean = 0;
    token_variance(m, scratch);
    for (size_t i = 0; i < m->pairs; i++) {
        const double l = log((double)m->variance[i] + MLA_PAIR_ANGLE_FLOOR);
        m->deviation[i] = (real)l;
        mean += l;
    }
    mean /= (double)m->pairs;
    for (size_t i = 0; i < m->pairs; i++) {
        m->deviation[i] = (real)((double)m->deviation[i] - mean);
        const double tangent = tanh((double)(a[i] * m->deviation[i] + c[i]));
        m->tangent[i] = (real)tangent;
        m->same[2 * i] = m->same[2 * i + 1] = (real)cos(angle_max * tangent);
        m->other[2 * i + 1] = (real)sin(angle_max * tangent);
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

void mla_angle_gradient(const mla_angle_image *m, real *dt, real *da, real *dc, const real *a, double angle_max) {
    double mean = 0;
    for (size_t i = 0; i < m->pairs; i++) {
        const real dz = dt[i] * (real)angle_max * (1 - m->tangent[i] * m->tangent[i]);
        if (da) da[i] += dz * m->deviation[i];
        if (dc) dc[i] += dz;
        dt[i] = a[i] * dz;
        mean += (double)dt[i];
    }
    mean /= (double)m->pairs;
    for (size_t i = 0; i < m->pairs; i++)
        dt[i] = (real)(((double)dt[i] - mean) / ((double)m->variance[i] + MLA_PAIR_ANGLE_FLOOR));
}

void mla_angle_add_variance_part(const mla_angle_image *m, real *restrict dx, const real *restrict x,
                                 const real *restrict mu, const real *restrict ds) {
    const real scale = REAL(0.5) / (real)m->tokens;
#pragma omp simd
    for (size_t i = 0; i < m->pairs; i++) {
        const real weight = ds[i] * scale;
        dx[2 * i] += weight * (x[2 * i] - mu[2 * i]);
        dx[2 * i + 1] += weight * (x[2 * i + 1] - mu[2 * i + 1]);
    }
}

/* Row n of q and k in turn: token n / 2, half n % 2. */
static size_t row_offset(const mla_angle_image *m, size_t stride, size_t n) {
    return n / 2 * stride + n % 2 * (2 * m->pairs);
}

static void forward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[X].shape[0]; b++) {
        const mla_angle_image m = image_of(args, b);
        const size_t width = 4 * m.pairs;
        mla_angle_measure(&m, args->in[GAIN].data, args->in[OFFSET].data, ((const attributes *)args->attr)->angle_max,
                          args->scratch);
        real *y = args->out.data + b * m.tokens * width;
        for (size_t n = 0; n < 2 * m.tokens; n++)
            mla_angle_turn(&m, y + row_offset(&m, width, n), m.x + row_offset(&m, m.stride, n));
    }
}

/* One row: dt += dy2 y1 - dy1 y2. */
static void add_angle_gradient(real *restrict dt, const real *restrict y, const real *restrict dy, size_t pairs) {
#pragma omp simd
    for (size_t i = 0; i < pairs; i++) dt[i] += dy[2 * i + 1] * y[2 * i] - dy[2 * i] * y[2 * i + 1];
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[X];
    for (size_t b = 0; b < args->in[X].shape[0]; b++) {
        const mla_angle_image m = image_of(args, b);
        const size_t width = 4 * m.pairs;
        const real *y = args->out.data + b * m.tokens * width, *dy = args->dout.data + b * m.tokens * width;
        real *dt = args->scratch, *turned = dt + width;
        memset(dt, 0, m.pairs * sizeof(real));
        for (size_t n = 0; n < 2 * m.tokens; n++)
            add_angle_gradient(dt, y + row_offset(&m, width, n), dy + row_offset(&m, width, n), m.pairs);
        mla_angle_gradient(&m, dt, args->din[GAIN].data, args->din[OFFSET].data, args->in[GAIN].data,
                           ((const attributes *)args->attr)->angle_max);
        for (size_t n = 0; dx->data && n < 2 * m.tokens; n++) {
            real *to = dx->data + b * m.tokens * dx->stride + row_offset(&m, dx->stride, n);
            mla_angle_turn_back(&m, turned, dy + row_offset(&m, width, n));
            mla_vec_add(width / 2, to, 1, turned);
            mla_angle_add_variance_part(&m, to, m.x + row_offset(&m, m.stride, n), m.mu + n % 2 * (width / 2), dt);
        }
    }
}

const mla_op mla_op_pair_angle = {.name = "pair_angle", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_pair_angle(mla_tape *tape, mla_var qk, mla_var a, mla_var c, double angle_max) {
    return mla_record(tape, MLA_OP_PAIR_ANGLE, (mla_var[MLA_MAX_INPUTS]){qk, a, c, MLA_NO_VAR}, &(attributes){angle_max},
                      sizeof(attributes));
}
