/* relu_features: what is kept of q and k, head by head; x is a row of a head (d), f its features:
 *
 *   relu    f = relu(x)                           (d)      the negative half is cut off
 *   split   f = [relu(x), relu(-x)]               (2d)     nothing is: |f| = |x|
 *   twin    f = [relu(x), relu(y)]                (2d)     y: x turned (block_turn)
 *
 *   dx += df_1 [x > 0],   and with split dx -= df_2 [x < 0],   with twin dy += df_2 [y > 0]
 */
#include <string.h>

#include "autograd/ops.h"

enum { X, TWIN };
typedef struct attributes {
    size_t heads;
    mla_feature_kept kept;
} attributes;

static size_t halves(const mla_op_args *args) { return ((const attributes *)args->attr)->kept == MLA_KEPT_RELU ? 1 : 2; }

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[X], *y = &args->in[TWIN];
    const attributes *attr = args->attr;
    MLA_REQUIRE(x->ndim == 3 && attr->heads > 0 && x->shape[2] % (2 * attr->heads) == 0 &&
                    !y->data == (attr->kept != MLA_KEPT_TWIN) && (!y->data || mla_tensor_same_shape(x, y)),
                "relu_features: qk %s, twin %s, %zu heads", mla_shape_text(x), mla_shape_text(y), attr->heads);
    plan->ndim = 3;
    memcpy(plan->shape, x->shape, sizeof plan->shape);
    plan->shape[2] *= halves(args);
}

/* Head n, q's and k's of all rows in turn, of a tensor of rows of heads; NULL when it is absent. */
static real *head(const mla_tensor *t, size_t n, size_t heads, size_t d) {
    return t->data ? t->data + n / (2 * heads) * t->stride + n % (2 * heads) * d : NULL;
}

static void forward(mla_op_args *args) {
    const size_t heads = ((const attributes *)args->attr)->heads, d = args->in[X].shape[2] / (2 * heads), h = halves(args);
    for (size_t n = 0; n < 2 * heads * mla_tensor_rows(&args->in[X]); n++) {
        const real *restrict x = head(&args->in[X], n, heads, d), *restrict y = head(&args->in[TWIN], n, heads, d);
        real *restrict f = args->out.data + n * h * d, *restrict second = f + d;
        for (size_t i = 0; i < d; i++) f[i] = x[i] < 0 ? 0 : x[i]; /* a NaN stays one */
        for (size_t i = 0; y && i < d; i++) second[i] = y[i] < 0 ? 0 : y[i];
        for (size_t i = 0; !y && h == 2 && i < d; i++) second[i] = x[i] > 0 ? 0 : -x[i];
    }
}

static void backward(mla_op_args *args) {
    const size_t heads = ((const attributes *)args->attr)->heads, d = args->in[X].shape[2] / (2 * heads), h = halves(args);
    const bool split = ((const attributes *)args->attr)->kept == MLA_KEPT_SPLIT;
    for (size_t n = 0; n < 2 * heads * mla_tensor_rows(&args->in[X]); n++) {
        const real *restrict f = args->out.data + n * h * d, *restrict df = args->dout.data + n * h * d;
        real *restrict dx = head(&args->din[X], n, heads, d), *restrict dy = head(&args->din[TWIN], n, heads, d);
        for (size_t i = 0; dx && i < d; i++) dx[i] += f[i] > 0 ? df[i] : 0;
        for (size_t i = 0; dx && split && i < d; i++) dx[i] -= f[d + i] > 0 ? df[d + i] : 0;
        for (size_t i = 0; dy && i < d; i++) dy[i] += f[d + i] > 0 ? df[d + i] : 0;
    }
}

const mla_op mla_op_relu_features = {.name = "relu_features", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_relu_features(mla_tape *tape, mla_var qk, mla_var twin, size_t heads, mla_feature_kept kept) {
    return mla_record(tape, MLA_OP_RELU_FEATURES, (mla_var[MLA_MAX_INPUTS]){qk, twin, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){heads, kept}, sizeof(attributes));
}
