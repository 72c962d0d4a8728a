/* soft_scale: y = x / softplus(s), a learned positive scale for every channel, as FLatten (Han et al., arXiv 2308.00442)
 * and PolaFormer (Meng et al., arXiv 2501.15061) give q and k.
 *
 *   softplus(s) = log(1 + exp(s)),   its slope is sigmoid(s)
 *   dx += dy / softplus(s),   ds += -sum dy y sigmoid(s) / softplus(s)
 *
 * Columns are added up in tiles of rows, so that rounding does not grow with their number.
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

enum { X, S };
enum { TILE = 64 };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *s = &args->in[S];
    const size_t columns = mla_tensor_columns(x);
    MLA_REQUIRE(mla_tensor_contiguous(s) && mla_tensor_count(s) == columns, "soft_scale: x %s, s %s", mla_shape_text(x),
                mla_shape_text(s));
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->scratch = 3 * columns;
}

/* max(s, 0) + log1p(exp(-|s|)): no overflow, and nothing is lost where exp(s) is small. */
static double softplus(double s) { return fmax(s, 0) + log1p(exp(-fabs(s))); }

static real *fill_factors(const mla_op_args *args, size_t columns) {
    for (size_t i = 0; i < columns; i++) args->scratch[i] = (real)(1 / softplus((double)args->in[S].data[i]));
    return args->scratch;
}

static void forward(mla_op_args *args) {
    const mla_tensor *x = &args->in[X];
    const size_t columns = mla_tensor_columns(x), rows = mla_tensor_rows(x);
    const real *restrict factor = fill_factors(args, columns);
    for (size_t n = 0; n < rows; n++) {
        const real *restrict in = x->data + n * x->stride;
        real *restrict out = args->out.data + n * columns;
        for (size_t i = 0; i < columns; i++) out[i] = in[i] * factor[i];
    }
}

static void backward(mla_op_args *args) {
    const mla_tensor *dx = &args->din[X];
    const size_t columns = mla_tensor_columns(&args->out), rows = mla_tensor_rows(&args->out);
    const real *restrict factor = fill_factors(args, columns);
    real *restrict sum = args->scratch + columns, *restrict tile = sum + columns;
    memset(sum, 0, columns * sizeof(real));
    for (size_t first = 0; first < rows; first += TILE) {
        memset(tile, 0, columns * sizeof(real));
        for (size_t n = first; n < rows && n < first + TILE; n++) {
            const real *restrict dy = args->dout.data + n * columns, *restrict y = args->out.data + n * columns;
            for (size_t i = 0; i < columns; i++) tile[i] += dy[i] * y[i];
            real *restrict out = dx->data ? dx->data + n * dx->stride : NULL;
            for (size_t i = 0; out && i < columns; i++) out[i] += dy[i] * factor[i];
        }
        mla_vec_add(columns, sum, 1, tile);
    }
    for (size_t i = 0; args->din[S].data && i < columns; i++) {
        const double slope = 1 / (1 + exp(-(double)args->in[S].data[i]));
        args->din[S].data[i] -= sum[i] * factor[i] * (real)slope;
    }
}

const mla_op mla_op_soft_scale = {.name = "soft_scale", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_soft_scale(mla_tape *tape, mla_var x, mla_var s) {
    return mla_record(tape, MLA_OP_SOFT_SCALE, (mla_var[MLA_MAX_INPUTS]){x, s, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
