/* focused_features: the focusing map of FLatten (Han et al., arXiv 2308.00442): an elementwise power that keeps the norm.
 * Per token and head, with r = relu(x) + 1e-6 and w = r^p:
 *
 *   f = w |r| / |w|
 *
 *   with G = sum df w / |w| and u = w / |w|:
 *   dr = G r / |r| + |r| (df - G u) u p / r,   dx += dr [x > 0]
 *
 * u does not change when r does by a factor, so the power is taken of r / max(r): nothing underflows whatever p, not even
 * in a head without a positive channel.  |w| is then at least 1.
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

typedef struct attributes {
    size_t heads;
    double power;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    const attributes *attr = args->attr;
    const size_t columns = mla_tensor_columns(x);
    MLA_REQUIRE(attr->heads > 0 && columns % attr->heads == 0, "focused_features: x %s, %zu heads", mla_shape_text(x),
                attr->heads);
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->scratch = 3 * (columns / attr->heads);
}

/* One token and head at work. */
typedef struct row {
    size_t d;
    real power, norm, *r, *u, *powers; /* |r|; (d) each */
} row;

static row row_of(const mla_op_args *args) {
    const attributes *attr = args->attr;
    const size_t d = mla_tensor_columns(&args->in[0]) / attr->heads;
    row m = {
        .d = d, .power = (real)attr->power, .r = args->scratch, .u = args->scratch + d, .powers = args->scratch + 2 * d};
    for (size_t i = 0; i < d; i++) m.powers[i] = m.power;
    return m;
}

/* r, |r| and u of x (d). */
static void focus(row *m, const real *x) {
    real squares = 0, w_squares = 0;
    for (size_t i = 0; i < m->d; i++) {
        m->r[i] = (x[i] < 0 ? 0 : x[i]) + REAL(1e-6); /* a NaN stays one */
        squares += m->r[i] * m->r[i];
    }
    const real scale = 1 / mla_vec_max(m->d, m->r);
    for (size_t i = 0; i < m->d; i++) m->u[i] = m->r[i] * scale;
    if (m->power == 3)
        for (size_t i = 0; i < m->d; i++) m->u[i] *= m->u[i] * m->u[i];
    else
        mla_vec_pow(m->d, m->u, m->u, m->powers);
    for (size_t i = 0; i < m->d; i++) w_squares += m->u[i] * m->u[i];
    const real factor = (real)(1 / sqrt((double)w_squares));
    for (size_t i = 0; i < m->d; i++) m->u[i] *= factor;
    m->norm = (real)sqrt((double)squares);
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[0];
    const size_t columns = mla_tensor_columns(x), rows = mla_tensor_rows(x);
    row m = row_of(args);
    for (size_t n = 0; n < rows; n++)
        for (size_t head = 0; head < columns; head += m.d) {
            focus(&m, x->data + n * x->stride + head);
            for (size_t i = 0; i < m.d; i++) args->out.data[n * columns + head + i] = m.u[i] * m.norm;
        }
}

static void backward(mla_op_args *args) {
    const mla_tensor *x = &args->in[0], *dx = &args->din[0];
    const size_t columns = mla_tensor_columns(x), rows = mla_tensor_rows(x);
    row m = row_of(args);
    for (size_t n = 0; dx->data && n < rows; n++)
        for (size_t head = 0; head < columns; head += m.d) {
            const real *in = x->data + n * x->stride + head, *df = args->dout.data + n * columns + head;
            real *out = dx->data + n * dx->stride + head, sum = 0;
            focus(&m, in);
            for (size_t i = 0; i < m.d; i++) sum += df[i] * m.u[i];
            for (size_t i = 0; i < m.d; i++) {
                const real dr = sum * m.r[i] / m.norm + m.norm * (df[i] - sum * m.u[i]) * m.u[i] * m.power / m.r[i];
                out[i] += in[i] > 0 ? dr : 0;
            }
        }
}

const mla_op mla_op_focused_features = {.name = "focused_features", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_focused_features(mla_tape *tape, mla_var x, size_t heads, double power) {
    return mla_record(tape, MLA_OP_FOCUSED_FEATURES, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads, power}, sizeof(attributes));
}
