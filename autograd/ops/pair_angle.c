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
 * Saved an image: mu (2C), then cos t, sin t, tanh, e, s (C / 2 each).
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
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
    plan->saved = x->shape[0] * (width + 5 * width / 4);
    plan->scratch = 2 * width;
    /* A rotation of a pair counts as a product with a 2 x 2 matrix. */
    plan->flops = 4.0 * (double)mla_tensor_count(x);
}

/* One image: q and k side by side, width = 2C, pairs = C / 2. */
typedef struct image {
    size_t tokens, width, pairs, stride;
    const real *x;
    real *mu, *cosine, *sine, *tangent, *deviation, *variance;
} image;

static image image_of(const mla_op_args *args, size_t b) {
    const mla_tensor *x = &args->in[X];
    const size_t width = x->shape[2], pairs = width / 4;
    image m = {x->shape[1], width, pairs, x->stride, x->data + b * x->shape[1] * x->stride, 0, 0, 0, 0, 0, 0};
    m.mu = args->saved + b * (width + 5 * pairs);
    m.cosine = m.mu + width;
    m.sine = m.cosine + pairs;
    m.tangent = m.sine + pairs;
    m.deviation = m.tangent + pairs;
    m.variance = m.deviation + pairs;
    return m;
}

/* square[i] += sum over tokens (x_i - mu_i)^2, in blocks of tokens as in mla_vec_add_rows. */
static void add_squares(const image *m, real *restrict square, real *restrict part) {
    enum { BLOCK = 64 };
    for (size_t first = 0; first < m->tokens; first += BLOCK) {
        memset(part, 0, m->width * sizeof(real));
        for (size_t n = first; n < m->tokens && n < first + BLOCK; n++) {
            const real *restrict x = m->x + n * m->stride, *restrict mu = m->mu;
#pragma omp simd
            for (size_t i = 0; i < m->width; i++) part[i] += (x[i] - mu[i]) * (x[i] - mu[i]);
        }
        mla_vec_add(m->width, square, 1, part);
    }
}

/* mu, then s; scratch: (2C) twice. */
static void token_variance(const image *m, real *scratch) {
    const real mean = 1 / (real)m->tokens;
    real *square = scratch, *part = scratch + m->width;
    memset(m->mu, 0, m->width * sizeof(real));
    memset(square, 0, m->width * sizeof(real));
    mla_vec_add_rows(m->tokens, m->width, m->mu, m->x, m->stride, part);
    for (size_t i = 0; i < m->width; i++) m->mu[i] *= mean;
    add_squares(m, square, part);
    const real *k = square + m->width / 2;
    for (size_t i = 0; i < m->pairs; i++)
        m->variance[i] = REAL(0.25) * mean * (square[2 * i] + square[2 * i + 1] + k[2 * i] + k[2 * i + 1]);
}

static void angles(const image *m, const real *a, const real *c, double angle_max) {
    double mean = 0;
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
        m->cosine[i] = (real)cos(angle_max * tangent);
        m->sine[i] = (real)sin(angle_max * tangent);
    }
}

static void rotate(real *restrict y, const real *restrict x, const real *restrict cosine, const real *restrict sine,
                   size_t pairs) {
#pragma omp simd
    for (size_t i = 0; i < pairs; i++) {
        const real x1 = x[2 * i], x2 = x[2 * i + 1];
        y[2 * i] = x1 * cosine[i] - x2 * sine[i];
        y[2 * i + 1] = x1 * sine[i] + x2 * cosine[i];
    }
}

static void forward(mla_op_args *args) {
    for (size_t b = 0; b < args->in[X].shape[0]; b++) {
        const image m = image_of(args, b);
        token_variance(&m, args->scratch);
        angles(&m, args->in[GAIN].data, args->in[OFFSET].data, ((const attributes *)args->attr)->angle_max);
        real *y = args->out.data + b * m.tokens * m.width;
        for (size_t n = 0; n < 2 * m.tokens; n++) /* q and k of each token in turn */
            rotate(y + n * m.width / 2, m.x + n / 2 * m.stride + n % 2 * m.width / 2, m.cosine, m.sine, m.pairs);
    }
}

static void angle_gradient(real *restrict dt, const real *restrict y, const real *restrict dy, size_t pairs) {
#pragma omp simd
    for (size_t i = 0; i < pairs; i++) dt[i] += dy[2 * i + 1] * y[2 * i] - dy[2 * i] * y[2 * i + 1];
}

/* dt -> ds in place; adds to da and dc (NULL: not wanted). */
static void modulation_gradient(real *dt, real *da, real *dc, const image *m, const real *a, double angle_max) {
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

/* Rotates back and adds the variance's part: one token of q or k. */
static void token_gradient(real *restrict dx, const real *restrict dy, const real *restrict x, const real *restrict mu,
                           const real *restrict ds, const image *m) {
    const real scale = REAL(0.5) / (real)m->tokens;
    const real *restrict cosine = m->cosine, *restrict sine = m->sine;
#pragma omp simd
    for (size_t i = 0; i < m->pairs; i++) {
        const real g1 = dy[2 * i], g2 = dy[2 * i + 1], weight = ds[i] * scale;
        dx[2 * i] += g1 * cosine[i] + g2 * sine[i] + weight * (x[2 * i] - mu[2 * i]);
        dx[2 * i + 1] += g2 * cosine[i] - g1 * sine[i] + weight * (x[2 * i + 1] - mu[2 * i + 1]);
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[X];
    for (size_t b = 0; b < args->in[X].shape[0]; b++) {
        const image m = image_of(args, b);
        const size_t half = m.width / 2;
        const real *y = args->out.data + b * m.tokens * m.width, *dy = args->dout.data + b * m.tokens * m.width;
        real *dt = args->scratch;
        memset(dt, 0, m.pairs * sizeof(real));
        for (size_t n = 0; n < 2 * m.tokens; n++) angle_gradient(dt, y + n * half, dy + n * half, m.pairs);
        modulation_gradient(dt, args->din[GAIN].data, args->din[OFFSET].data, &m, args->in[GAIN].data,
                            ((const attributes *)args->attr)->angle_max);
        for (size_t n = 0; dx->data && n < 2 * m.tokens; n++)
            token_gradient(dx->data + (b * m.tokens + n / 2) * dx->stride + n % 2 * half, dy + n * half,
                           m.x + n / 2 * m.stride + n % 2 * half, m.mu + n % 2 * half, dt, &m);
    }
}

const mla_op mla_op_pair_angle = {"pair_angle", plan, forward, backward};

mla_var mla_pair_angle(mla_tape *tape, mla_var qk, mla_var a, mla_var c, double angle_max) {
    return mla_record(tape, MLA_OP_PAIR_ANGLE, (mla_var[MLA_MAX_INPUTS]){qk, a, c, MLA_NO_VAR}, &(attributes){angle_max},
                      sizeof(attributes));
}
