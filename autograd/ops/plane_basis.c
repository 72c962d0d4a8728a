/* plane_basis: two vectors a plane, made orthonormal (Gram-Schmidt, u first): what plane_angle turns in.
 *
 *   u = u0 / |u0|,   p = w0 . u,   r = w0 - p u,   w = r / |r|
 *
 *   dr = (dw - (dw . w) w) / |r|,   dw0 += dr - (dr . u) u
 *   du += -p dr - (dr . u) w0,      du0 += (du - (du . u) u) / |u0|
 *
 * Lengths are taken as reflections take theirs (reflection.h): a vector that counts as zero stays zero and gets no
 * gradient, and a plane of such a vector is turned by nothing or by half.
 */
#include <string.h>

#include "autograd/ops.h"
#include "autograd/ops/reflection.h"

enum { U, W };

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *u = &args->in[U], *w = &args->in[W];
    MLA_REQUIRE(u->ndim >= 2 && mla_tensor_same_shape(u, w) && mla_tensor_contiguous(u) && mla_tensor_contiguous(w),
                "plane_basis: u %s, w %s", mla_shape_text(u), mla_shape_text(w));
    const size_t b = mla_tensor_columns(u), planes = mla_tensor_count(u) / b;
    plan->ndim = 3;
    plan->shape[0] = planes;
    plan->shape[1] = 2;
    plan->shape[2] = b;
    plan->saved = 2 * planes;
    plan->scratch = b;
}

static double dot(const real *a, const real *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void forward(mla_op_args *args) {
    const size_t planes = args->out.shape[0], b = args->out.shape[2];
    for (size_t j = 0; j < planes; j++) {
        const real *w0 = args->in[W].data + j * b;
        real *u = args->out.data + 2 * j * b, *w = u + b;
        args->saved[2 * j] = mla_reflection_unit(u, args->in[U].data + j * b, b);
        const double along = dot(w0, u, b);
        for (size_t i = 0; i < b; i++) args->scratch[i] = (real)((double)w0[i] - along * (double)u[i]);
        args->saved[2 * j + 1] = mla_reflection_unit(w, args->scratch, b);
    }
}

static void backward(mla_op_args *args) {
    const size_t planes = args->out.shape[0], b = args->out.shape[2];
    for (size_t j = 0; j < planes; j++) {
        const real *u = args->out.data + 2 * j * b, *w = u + b, *w0 = args->in[W].data + j * b;
        const real *inverse = args->saved + 2 * j;
        real *du = args->dout.data + 2 * j * b, *dr = du + b; /* dw becomes dr */
        const double dw_w = dot(dr, w, b), along = dot(w0, u, b);
        for (size_t i = 0; i < b; i++) dr[i] = (real)(((double)dr[i] - dw_w * (double)w[i]) * (double)inverse[1]);
        const double dr_u = dot(dr, u, b);
        for (size_t i = 0; i < b; i++) du[i] -= (real)(along * (double)dr[i] + dr_u * (double)w0[i]);
        const double du_u = dot(du, u, b);
        for (size_t i = 0; args->din[W].data && i < b; i++)
            args->din[W].data[j * b + i] += (real)((double)dr[i] - dr_u * (double)u[i]);
        for (size_t i = 0; args->din[U].data && i < b; i++)
            args->din[U].data[j * b + i] += (real)(((double)du[i] - du_u * (double)u[i]) * (double)inverse[0]);
    }
}

const mla_op mla_op_plane_basis = {.name = "plane_basis", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_plane_basis(mla_tape *tape, mla_var u, mla_var w) {
    return mla_record(tape, MLA_OP_PLANE_BASIS, (mla_var[MLA_MAX_INPUTS]){u, w, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
}
