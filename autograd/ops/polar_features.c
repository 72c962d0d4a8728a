/* polar_features: positive and negative halves with a learned power, of PolaFormer (Meng et al., arXiv 2501.15061).
 * Per channel, with p = 1 + 4 sigmoid(s), x+ = relu(x)^p and x- = relu(-x)^p.  A head becomes two, for the two halves of
 * its v:
 *
 *   f = [x+, x-], [x+, x-]      or crossed:      f = [x+, x-], [x-, x+]      (d each)
 *
 * With q crossed and k not, the first half of v is read with polarities that agree (q+ k+ + q- k-), the second with opposite
 * ones.  With a = |x|^p, g the sum of df in the two places of x's own sign:
 *
 *   dx += g p a / |x| sign(x),   ds += sum g a log|x| 4 sigmoid(s) (1 - sigmoid(s));   nothing where x = 0
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

enum { X, S };
enum { TILE = 64 };

typedef struct attributes {
    size_t heads;
    bool crossed;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *s = &args->in[S];
    const attributes *attr = args->attr;
    MLA_REQUIRE(x->ndim == 3 && attr->heads > 0 && x->shape[2] % attr->heads == 0 && mla_tensor_contiguous(s) &&
                    mla_tensor_count(s) == x->shape[2],
                "polar_features: x %s, s %s, %zu heads", mla_shape_text(x), mla_shape_text(s), attr->heads);
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->shape[2] = 4 * x->shape[2];
    plan->scratch = 6 * x->shape[2];
}

static double sigmoid(double s) { return 1 / (1 + exp(-s)); }

static void fill_powers(real *p, const mla_op_args *args) {
    for (size_t i = 0; i < args->in[X].shape[2]; i++) p[i] = (real)(1 + 4 * sigmoid((double)args->in[S].data[i]));
}

/* a = |x|^p */
static void raise(real *restrict a, real *restrict size, const real *x, const real *p, size_t columns) {
    for (size_t i = 0; i < columns; i++) size[i] = x[i] < 0 ? -x[i] : x[i];
    mla_vec_pow(columns, a, size, p);
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const attributes *attr = args->attr;
    const size_t columns = x->shape[2], rows = mla_tensor_rows(x), d = columns / attr->heads;
    real *p = args->scratch, *a = p + columns, *size = a + columns;
    const size_t plus = attr->crossed ? 3 * d : 2 * d, minus = attr->crossed ? 2 * d : 3 * d;
    fill_powers(p, args);
    for (size_t n = 0; n < rows; n++) {
        const real *in = x->data + n * x->stride;
        raise(a, size, in, p, columns);
        for (size_t head = 0; head < columns; head += d) {
            real *restrict f = args->out.data + 4 * (n * columns + head);
            for (size_t i = 0; i < d; i++) {
                const real value = a[head + i], below = in[head + i] < 0 ? value : 0, above = in[head + i] < 0 ? 0 : value;
                f[i] = f[plus + i] = above;
                f[d + i] = f[minus + i] = below;
            }
        }
    }
}

/* g (C): df in the two places of x's own sign. */
static void gather(real *restrict g, const real *df, const real *x, const attributes *attr, size_t columns) {
    const size_t d = columns / attr->heads, plus = attr->crossed ? 3 * d : 2 * d, minus = attr->crossed ? 2 * d : 3 * d;
    for (size_t head = 0; head < columns; head += d, df += 4 * d)
        for (size_t i = 0; i < d; i++) g[head + i] = x[head + i] < 0 ? df[d + i] + df[minus + i] : df[i] + df[plus + i];
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X], *dx = &args->din[X], *ds = &args->din[S];
    const size_t columns = x->shape[2], rows = mla_tensor_rows(x);
    real *restrict p = args->scratch, *restrict a = p + columns, *restrict size = a + columns, *restrict g = size + columns,
                   *restrict sum = g + columns, *restrict tile = sum + columns;
    fill_powers(p, args);
    memset(sum, 0, columns * sizeof(real));
    for (size_t first = 0; first < rows; first += TILE) {
        memset(tile, 0, columns * sizeof(real));
        for (size_t n = first; n < rows && n < first + TILE; n++) {
            const real *in = x->data + n * x->stride;
            raise(a, size, in, p, columns);
            gather(g, args->dout.data + 4 * n * columns, in, args->attr, columns);
            for (size_t i = 0; i < columns; i++) g[i] = size[i] > 0 ? g[i] * a[i] : 0;
            real *out = dx->data ? dx->data + n * dx->stride : NULL;
            for (size_t i = 0; out && i < columns; i++) out[i] += size[i] > 0 ? g[i] * p[i] / in[i] : 0;
            if (!ds->data) continue;
            mla_vec_log(columns, size, size);
            for (size_t i = 0; i < columns; i++) tile[i] += g[i] != 0 ? g[i] * size[i] : 0;
        }
        mla_vec_add(columns, sum, 1, tile);
    }
    for (size_t i = 0; ds->data && i < columns; i++) {
        const double s = sigmoid((double)args->in[S].data[i]);
        ds->data[i] += sum[i] * (real)(4 * s * (1 - s));
    }
}

const mla_op mla_op_polar_features = {.name = "polar_features", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_polar_features(mla_tape *tape, mla_var x, mla_var s, size_t heads, bool crossed) {
    return mla_record(tape, MLA_OP_POLAR_FEATURES, (mla_var[MLA_MAX_INPUTS]){x, s, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads, crossed}, sizeof(attributes));
}
