/* cross_entropy: the loss of each image, with label smoothing (Szegedy et al., arXiv 1512.00567) and soft targets.
 *
 *   t = (1 - s) target + s / K                 target: one at the label, or w at it and 1 - w at a second one (Mixup,
 *                                              Zhang et al., arXiv 1710.09412), or the given row
 *   loss_b = sum_k t_k (lse - x_k),  lse = log sum_k exp(x_k)
 *   dx_k += dloss_b (p_k sum_j t_j - t_k),  p = softmax(x)
 *
 * Sums run in double.  Saved: lse an image.
 */
#include <math.h>

#include "autograd/ops.h"

typedef struct attributes {
    const int *labels, *others; /* others: NULL, or the second labels */
    const real *shares;         /* of the first labels; with others */
    const real *soft;
    double smoothing;
} attributes;

static void check_labels(const int *labels, const mla_tensor *x) {
    for (size_t b = 0; labels && b < x->shape[0]; b++)
        MLA_REQUIRE(labels[b] >= 0 && (size_t)labels[b] < x->shape[1], "cross_entropy: label %d of image %zu, logits %s",
                    labels[b], b, mla_shape_text(x));
}

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    const attributes *attr = args->attr;
    MLA_REQUIRE(x->ndim == 2 && mla_tensor_contiguous(x), "cross_entropy: logits %s", mla_shape_text(x));
    MLA_REQUIRE(!attr->labels != !attr->soft, "cross_entropy: either labels or soft targets");
    check_labels(attr->labels, x);
    check_labels(attr->others, x);
    plan->ndim = 1;
    plan->shape[0] = x->shape[0];
    plan->saved = x->shape[0];
}

static double unsmoothed(const attributes *attr, size_t b, size_t k, size_t classes) {
    if (!attr->labels) return (double)attr->soft[b * classes + k];
    const double first = (size_t)attr->labels[b] == k;
    if (!attr->others) return first;
    const double second = (size_t)attr->others[b] == k, share = (double)attr->shares[b];
    return share * first + (1 - share) * second;
}

static double target(const attributes *attr, size_t b, size_t k, size_t classes) {
    return (1 - attr->smoothing) * unsmoothed(attr, b, k, classes) + attr->smoothing / (double)classes;
}

static void forward(mla_op_args *args) {
    const size_t classes = args->in[0].shape[1];
    for (size_t b = 0; b < args->in[0].shape[0]; b++) {
        const real *x = args->in[0].data + b * classes;
        double largest = x[0], sum = 0, loss = 0;
        for (size_t k = 1; k < classes; k++)
            if (x[k] > largest) largest = x[k];
        for (size_t k = 0; k < classes; k++) sum += exp(x[k] - largest);
        const double lse = largest + log(sum);
        for (size_t k = 0; k < classes; k++) loss += target(args->attr, b, k, classes) * (lse - x[k]);
        args->saved[b] = (real)lse;
        args->out.data[b] = (real)loss;
    }
}

static void backward(mla_op_args *args) {
    const size_t classes = args->in[0].shape[1];
    if (!args->din[0].data) return;
    for (size_t b = 0; b < args->in[0].shape[0]; b++) {
        const real *x = args->in[0].data + b * classes;
        real *dx = args->din[0].data + b * classes;
        double total = 0;
        for (size_t k = 0; k < classes; k++) total += target(args->attr, b, k, classes);
        for (size_t k = 0; k < classes; k++)
            dx[k] += (real)((double)args->dout.data[b] *
                            (exp((double)x[k] - (double)args->saved[b]) * total - target(args->attr, b, k, classes)));
    }
}

const mla_op mla_op_cross_entropy = {.name = "cross_entropy", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_cross_entropy(mla_tape *tape, mla_var logits, const int *labels, const real *soft, double smoothing) {
    return mla_record(tape, MLA_OP_CROSS_ENTROPY, (mla_var[MLA_MAX_INPUTS]){logits, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){.labels = labels, .soft = soft, .smoothing = smoothing}, sizeof(attributes));
}

mla_var mla_cross_entropy_mixed(mla_tape *tape, mla_var logits, const int *labels, const int *others, const real *shares,
                                double smoothing) {
    MLA_REQUIRE(labels && others && shares, "cross_entropy: two labels and their shares are needed");
    return mla_record(tape, MLA_OP_CROSS_ENTROPY, (mla_var[MLA_MAX_INPUTS]){logits, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){.labels = labels, .others = others, .shares = shares, .smoothing = smoothing},
                      sizeof(attributes));
}
