/* layer_norm: y = xhat gamma + beta, xhat = (x - mean) rstd, rstd = (variance + eps)^-1/2, over the last dimension
 * (Ba, Kiros, Hinton, arXiv 1607.06450).
 *
 *   dxhat  = dy gamma
 *   dx    += rstd (dxhat - mean(dxhat) - xhat mean(dxhat xhat))
 *   dgamma += sum over rows dy xhat,  dbeta += sum over rows dy
 *
 * The variance is taken in two passes: mean(x^2) - mean^2 cancels in single precision.  Saved: mean and rstd a row.
 */
#include <math.h>
#include <string.h>

#include "autograd/ops.h"

enum { X, GAMMA, BETA };
typedef struct attributes {
    double eps;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X];
    const size_t columns = mla_tensor_columns(x);
    MLA_REQUIRE(mla_tensor_contiguous(x) && mla_tensor_count(&args->in[GAMMA]) == columns &&
                    mla_tensor_count(&args->in[BETA]) == columns,
                "layer_norm: x %s, gamma %s, beta %s", mla_shape_text(x), mla_shape_text(&args->in[GAMMA]),
                mla_shape_text(&args->in[BETA]));
    plan->ndim = x->ndim;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->saved = 2 * mla_tensor_rows(x);
    plan->scratch = 2 * columns;
}

static void forward(mla_op_args *args) {
    const size_t rows = mla_tensor_rows(&args->in[X]), n = mla_tensor_columns(&args->in[X]);
    const real *gamma = args->in[GAMMA].data, *beta = args->in[BETA].data;
    const real eps = (real)((const attributes *)args->attr)->eps, scale = 1 / (real)n;
    for (size_t i = 0; i < rows; i++) {
        const real *x = args->in[X].data + i * n;
        real *y = args->out.data + i * n;
        real sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < n; j++) sum += x[j];
        const real mean = sum * scale;
#pragma omp simd reduction(+ : squares)
        for (size_t j = 0; j < n; j++) squares += (x[j] - mean) * (x[j] - mean);
        const real rstd = 1 / (real)sqrt((double)(squares * scale + eps));
        for (size_t j = 0; j < n; j++) y[j] = (x[j] - mean) * rstd * gamma[j] + beta[j];
        args->saved[2 * i] = mean;
        args->saved[2 * i + 1] = rstd;
    }
}

/* Adds one row's part to dx and to the sums dgamma, dbeta. */
static void backward_row(real *restrict dx, real *restrict dgamma, real *restrict dbeta, const real *restrict x,
                         const real *restrict dy, const real *restrict gamma, real mean, real rstd, size_t n) {
    real sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (size_t j = 0; j < n; j++) {
        const real xhat = (x[j] - mean) * rstd, dxhat = dy[j] * gamma[j];
        sum += dxhat;
        dot += dxhat * xhat;
        dgamma[j] += dy[j] * xhat;
        dbeta[j] += dy[j];
    }
    if (!dx) return;
    sum /= (real)n;
    dot /= (real)n;
    for (size_t j = 0; j < n; j++) dx[j] += rstd * (dy[j] * gamma[j] - sum - (x[j] - mean) * rstd * dot);
}

static void backward(mla_op_args *args) {
    const size_t rows = mla_tensor_rows(&args->in[X]), n = mla_tensor_columns(&args->in[X]);
    /* Summed apart and added once, so that a shard's sum does not depend on what the lane held before. */
    real *dgamma = args->scratch, *dbeta = args->scratch + n;
    memset(args->scratch, 0, 2 * n * sizeof(real));
    for (size_t i = 0; i < rows; i++)
        backward_row(args->din[X].data ? args->din[X].data + i * n : NULL, dgamma, dbeta, args->in[X].data + i * n,
                     args->dout.data + i * n, args->in[GAMMA].data, args->saved[2 * i], args->saved[2 * i + 1], n);
    if (args->din[GAMMA].data)
        for (size_t j = 0; j < n; j++) args->din[GAMMA].data[j] += dgamma[j];
    if (args->din[BETA].data)
        for (size_t j = 0; j < n; j++) args->din[BETA].data[j] += dbeta[j];
}

const mla_op mla_op_layer_norm = {.name = "layer_norm", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_layer_norm(mla_tape *tape, mla_var x, mla_var gamma, mla_var beta, double eps) {
    return mla_record(tape, MLA_OP_LAYER_NORM, (mla_var[MLA_MAX_INPUTS]){x, gamma, beta, MLA_NO_VAR}, &(attributes){eps},
                      sizeof(attributes));
}
