/* feature_power: features f >= 0 to a power, which sharpens them.  Given:  y = f^e, e >= 1.  Learned, one power a channel of
 * a head, shared by q and k and by both halves of features that are twice as wide as the head:
 *
 *   e = 1 + 4 sigmoid(p),   y = (f + 1e-6)^e
 *   df += dy e y / (f + 1e-6),   dp += 4 sigmoid (1 - sigmoid) sum dy y log(f + 1e-6)
 *
 * The floor is inside, as log f is needed at f = 0 as well.
 */
#include <string.h>
#include <tgmath.h>

#include "autograd/ops.h"

enum { F, POWER };
typedef struct attributes {
    size_t heads;
    double exponent;
} attributes;

static const real FLOOR = REAL(1e-6);

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *f = &args->in[F], *p = &args->in[POWER];
    const attributes *attr = args->attr;
    MLA_REQUIRE(f->ndim == 3 && mla_tensor_contiguous(f) && attr->heads > 0 && f->shape[2] % (2 * attr->heads) == 0 &&
                    (p->data ? mla_tensor_contiguous(p) && f->shape[2] % (2 * mla_tensor_count(p)) == 0 &&
                                   mla_tensor_count(p) % attr->heads == 0
                             : attr->exponent >= 1),
                "feature_power: features %s, power %s, exponent %g, %zu heads", mla_shape_text(f), mla_shape_text(p),
                attr->exponent, attr->heads);
    plan->ndim = 3;
    memcpy(plan->shape, f->shape, sizeof plan->shape);
    plan->scratch = p->data ? 3 * f->shape[2] : 0;
}

/* Place in p of column i of a row of features: the same for q and k, and for all parts of a head. */
static size_t power_of(const mla_op_args *args, size_t i) {
    const size_t heads = ((const attributes *)args->attr)->heads, d = mla_tensor_count(&args->in[POWER]) / heads;
    return i / (args->in[F].shape[2] / (2 * heads)) % heads * d + i % d;
}

/* exponent, slope (columns): e of each column and de/dp. */
static void exponents(const mla_op_args *args, real *exponent, real *slope) {
    for (size_t i = 0; i < args->in[F].shape[2]; i++) {
        const real sigmoid = 1 / (1 + exp(-args->in[POWER].data[power_of(args, i)]));
        exponent[i] = 1 + 4 * sigmoid;
        slope[i] = 4 * sigmoid * (1 - sigmoid);
    }
}

/* x^exponent; whole: the exponent where it is 1, 2 or 3, which needs no logarithm, else 0. */
static inline __attribute__((always_inline)) real raised(real x, real exponent, const int whole) {
    switch (whole) {
    case 1: return x;
    case 2: return x * x;
    case 3: return x * x * x;
    default: return pow(x, exponent);
    }
}

static int whole_of(real exponent) { return exponent == 1 || exponent == 2 || exponent == 3 ? (int)exponent : 0; }

/* y = f^e of n features. */
static inline __attribute__((always_inline)) void raise_all(real *restrict y, const real *restrict f, size_t n,
                                                            real exponent, const int whole) {
    for (size_t i = 0; i < n; i++) y[i] = raised(f[i], exponent, whole);
}

static void fixed_power(real *y, const real *f, size_t n, real exponent) {
    switch (whole_of(exponent)) {
    case 1: raise_all(y, f, n, exponent, 1); break;
    case 2: raise_all(y, f, n, exponent, 2); break;
    case 3: raise_all(y, f, n, exponent, 3); break;
    default: raise_all(y, f, n, exponent, 0);
    }
}

/* df += e f^(e - 1) dy. */
static inline __attribute__((always_inline)) void return_all(real *restrict df, const real *restrict f,
                                                             const real *restrict dy, size_t n, real exponent,
                                                             const int whole) {
    for (size_t i = 0; i < n; i++) df[i] += dy[i] * exponent * raised(f[i], exponent - 1, whole);
}

static void forward(mla_op_args *args) {
    const size_t columns = args->in[F].shape[2];
    const real fixed = (real)((const attributes *)args->attr)->exponent, *f = args->in[F].data;
    real *y = args->out.data, *exponent = args->scratch;
    if (!args->in[POWER].data) {
        fixed_power(y, f, mla_tensor_count(&args->in[F]), fixed);
        return;
    }
    exponents(args, exponent, exponent + columns);
    for (size_t n = 0; n < mla_tensor_count(&args->in[F]); n++) y[n] = pow(f[n] + FLOOR, exponent[n % columns]);
}

static void fixed_gradient(const mla_op_args *args) {
    const real fixed = (real)((const attributes *)args->attr)->exponent, *f = args->in[F].data, *dy = args->dout.data;
    const size_t n = mla_tensor_count(&args->in[F]);
    if (!args->din[F].data) return;
    switch (whole_of(fixed - 1)) {
    case 1: return_all(args->din[F].data, f, dy, n, fixed, 1); break;
    case 2: return_all(args->din[F].data, f, dy, n, fixed, 2); break;
    default: return_all(args->din[F].data, f, dy, n, fixed, 0);
    }
}

static void backward(mla_op_args *args) {
    const size_t columns = args->in[F].shape[2];
    const real *f = args->in[F].data, *y = args->out.data, *dy = args->dout.data;
    real *exponent = args->scratch, *slope = exponent + columns, *sum = slope + columns;
    if (!args->in[POWER].data) {
        fixed_gradient(args);
        return;
    }
    exponents(args, exponent, slope);
    memset(sum, 0, columns * sizeof(real));
    for (size_t n = 0; n < mla_tensor_count(&args->in[F]); n++) {
        const size_t i = n % columns;
        const real share = dy[n] * y[n];
        if (args->din[F].data) args->din[F].data[n] += exponent[i] * share / (f[n] + FLOOR);
        if (args->din[POWER].data) sum[i] += share * log(f[n] + FLOOR);
    }
    for (size_t i = 0; args->din[POWER].data && i < columns; i++)
        args->din[POWER].data[power_of(args, i)] += slope[i] * sum[i];
}

const mla_op mla_op_feature_power = {.name = "feature_power", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_feature_power(mla_tape *tape, mla_var features, mla_var power, size_t heads, double exponent) {
    return mla_record(tape, MLA_OP_FEATURE_POWER, (mla_var[MLA_MAX_INPUTS]){features, power, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads, exponent}, sizeof(attributes));
}
