/* patches, patches_grid: non-overlapping p x p patches as rows, so that a patch embedding (a convolution whose kernel
 * equals its stride) is one matrix product.  Columns are ordered (channel, row, column), as a convolution weight is.
 *
 *   patches       x (B, c, S, S) planar   -> y (B, (S / p)^2, c p p)
 *   patches_grid  x (B, side^2, C) tokens -> y (B, (side / p)^2, C p p)
 *
 * Both only move values: the gradient goes back the way they came.
 */
#include "autograd/ops.h"

typedef struct attributes {
    size_t side, patch;
} attributes;

/* Where the elements of a patch stand in one image: reals from one channel, row and column to the next. */
typedef struct layout {
    size_t channels, channel, row, column;
} layout;

static layout layout_of(const mla_op_args *args, bool planar) {
    const attributes *attr = args->attr;
    const mla_tensor *x = &args->in[0];
    if (planar) return (layout){x->shape[1], attr->side * attr->side, attr->side, 1};
    return (layout){x->shape[2], 1, attr->side * x->shape[2], x->shape[2]};
}

static void plan_patches(const mla_op_args *args, mla_op_plan *plan, size_t channels, const char *name) {
    const attributes *attr = args->attr;
    const mla_tensor *x = &args->in[0];
    MLA_REQUIRE(mla_tensor_contiguous(x) && attr->patch > 0 && attr->side % attr->patch == 0, "%s: x %s, patch %zu", name,
                mla_shape_text(x), attr->patch);
    const size_t across = attr->side / attr->patch;
    plan->ndim = 3;
    plan->shape[0] = x->shape[0];
    plan->shape[1] = across * across;
    plan->shape[2] = channels * attr->patch * attr->patch;
}

static void plan_image(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    const size_t side = ((const attributes *)args->attr)->side;
    MLA_REQUIRE(x->ndim == 4 && x->shape[2] == side && x->shape[3] == side, "patches: x %s", mla_shape_text(x));
    plan_patches(args, plan, x->shape[1], "patches");
}

static void plan_grid(const mla_op_args *args, mla_op_plan *plan) {
    const mla_tensor *x = &args->in[0];
    const size_t side = ((const attributes *)args->attr)->side;
    MLA_REQUIRE(x->ndim == 3 && x->shape[1] == side * side, "patches_grid: x %s, side %zu", mla_shape_text(x), side);
    plan_patches(args, plan, x->shape[2], "patches_grid");
}

/* Walks all patches of one image; forward copies x to y, backward adds dy to dx. */
static void move(real *restrict image, real *restrict rows, const attributes *attr, layout at, bool backward) {
    const size_t across = attr->side / attr->patch, p = attr->patch;
    for (size_t cell = 0; cell < across * across; cell++) {
        const size_t corner = cell / across * p * at.row + cell % across * p * at.column;
        for (size_t c = 0; c < at.channels; c++)
            for (size_t i = 0; i < p; i++) {
                real *source = image + corner + c * at.channel + i * at.row;
                if (backward)
                    for (size_t j = 0; j < p; j++) source[j * at.column] += *rows++;
                else
                    for (size_t j = 0; j < p; j++) *rows++ = source[j * at.column];
            }
    }
}

static void move_all(real *images, real *rows, const mla_op_args *args, bool planar, bool backward) {
    const size_t count = args->in[0].shape[0], n = mla_tensor_count(&args->in[0]) / count;
    const layout at = layout_of(args, planar);
    for (size_t b = 0; b < count; b++) move(images + b * n, rows + b * n, args->attr, at, backward);
}

static void forward_image(mla_op_args *args) { move_all(args->in[0].data, args->out.data, args, true, false); }
static void forward_grid(mla_op_args *args) { move_all(args->in[0].data, args->out.data, args, false, false); }

static void backward_image(mla_op_args *args) {
    if (args->din[0].data) move_all(args->din[0].data, args->dout.data, args, true, true);
}
static void backward_grid(mla_op_args *args) {
    if (args->din[0].data) move_all(args->din[0].data, args->dout.data, args, false, true);
}

const mla_op mla_op_patches = {.name = "patches", .plan = plan_image, .forward = forward_image, .backward = backward_image};
const mla_op mla_op_patches_grid = {
    .name = "patches_grid", .plan = plan_grid, .forward = forward_grid, .backward = backward_grid};

mla_var mla_patches(mla_tape *tape, mla_var x, size_t patch) {
    const mla_tensor t = mla_value(tape, x);
    return mla_record(tape, MLA_OP_PATCHES, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){t.shape[MLA_MAX_DIMS - 1], patch}, sizeof(attributes));
}

mla_var mla_patches_grid(mla_tape *tape, mla_var x, size_t side, size_t patch) {
    return mla_record(tape, MLA_OP_PATCHES_GRID, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR},
                      &(attributes){side, patch}, sizeof(attributes));
}
