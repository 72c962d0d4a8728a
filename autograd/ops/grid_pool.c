/* grid_pool: the mean of the tokens of a side x side grid in each cell of an out x out grid, as torch's
 * adaptive_avg_pool2d has it.  Cell i of a direction takes tokens floor(i side / out) .. ceil((i + 1) side / out) - 1: equal
 * squares where out divides side, squares that overlap by a row otherwise.
 *
 *   y_k = (1 / |cell k|) sum over the cell x_n,   dx_n += dy_k / |cell k| for every cell k that n belongs to
 */
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

typedef struct attributes {
    size_t side, out;
} attributes;

static void plan(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    const attributes *attr = args->attr;
    MLA_REQUIRE(x->ndim == 3 && x->shape[1] == attr->side * attr->side && attr->out > 0 && attr->out <= attr->side,
                "grid_pool: x %s on a grid of side %zu, pooled to side %zu", mla_shape_text(x), attr->side, attr->out);
    plan->ndim = 3;
    plan->shape[0] = x->shape[0];
    plan->shape[1] = attr->out * attr->out;
    plan->shape[2] = x->shape[2];
}

/* First token of cell i in one direction, and the first one after it. */
static size_t first_of(const attributes *attr, size_t i) { return i * attr->side / attr->out; }
static size_t end_of(const attributes *attr, size_t i) { return ((i + 1) * attr->side + attr->out - 1) / attr->out; }

/* Walks the cells of one image and their tokens: x (rows `stride` apart) to y (out^2, C), or dy back to dx. */
static void walk(real *x, size_t stride, real *y, size_t channels, const attributes *attr, bool backward) {
    for (size_t cell = 0; cell < attr->out * attr->out; cell++, y += channels) {
        const size_t top = first_of(attr, cell / attr->out), bottom = end_of(attr, cell / attr->out);
        const size_t left = first_of(attr, cell % attr->out), right = end_of(attr, cell % attr->out);
        const real share = 1 / (real)((bottom - top) * (right - left));
        if (!backward) memset(y, 0, channels * sizeof(real));
        for (size_t row = top; row < bottom; row++)
            for (size_t column = left; column < right; column++) {
                real *token = x + (row * attr->side + column) * stride;
                if (backward)
                    mla_vec_add(channels, token, share, y);
                else
                    mla_vec_add(channels, y, share, token);
            }
    }
}

static void walk_all(const mla_tensor *x, const mla_tensor *y, const attributes *attr, bool backward) {
    const size_t channels = x->shape[2];
    for (size_t b = 0; b < x->shape[0]; b++)
        walk(x->data + b * x->shape[1] * x->stride, x->stride, y->data + b * y->shape[1] * channels, channels, attr,
             backward);
}

static void forward(mla_op_args *args) { walk_all(&args->in[0], &args->out, args->attr, false); }

static void backward(mla_op_args *args) {
    if (args->din[0].data) walk_all(&args->din[0], &args->dout, args->attr, true);
}

const mla_op mla_op_grid_pool = {.name = "grid_pool", .plan = plan, .forward = forward, .backward = backward};

mla_var mla_grid_pool(mla_tape *tape, mla_var x, size_t side, size_t out) {
    return mla_record(tape, MLA_OP_GRID_POOL, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){side, out}, sizeof(attributes));
}
