/* Reverse-mode automatic differentiation on a tape.
 *
 * Recording an operation runs its forward pass at once and writes a node {operation, inputs, output, saved values}
 * into the tape's arena; mla_tape_backward walks the nodes from the last to the first.  A tape belongs to one thread
 * and holds one shard; mla_tape_begin gives all its memory up again, so that after the first shard nothing is
 * allocated.
 *
 *     mla_tape *tape = mla_tape_new();
 *     mla_tape_begin(tape, &params, params.value, gradient);       // gradient: a flat buffer, or NULL: forward only
 *     mla_var x = mla_tape_input(tape, images);
 *     mla_var y = mla_linear(tape, x, mla_tape_param(tape, w), mla_tape_param(tape, b), MLA_NO_VAR, MLA_IDENTITY);
 *     mla_var loss = mla_cross_entropy(tape, y, labels, NULL, 0);
 *     if (mla_tape_backward(tape, loss, weights, &error) != MLA_OK) ...   // adds into `gradient`
 *     mla_tape_free(tape);
 *
 * Ownership: values, gradients and saved values live in the tape's arena until the next begin or free; parameters
 * and their gradients belong to the caller.  Running out of memory is remembered: later records do nothing, and
 * mla_tape_status or mla_tape_backward tell it.  A shape that does not fit is a mistake in the code and stops the
 * program with the operation and the shapes.
 *
 * The backward law, for every operation:
 *   1. output memory is uninitialised on entry of forward, and forward writes all of it;
 *   2. backward adds into its inputs' gradients, never overwrites: an input used twice gets the sum;
 *   3. backward reads its inputs, its output, what it saved, and its own output's gradient, which it may use up;
 *   4. it never reads another node's gradient, and skips inputs whose gradient is absent (data == NULL);
 *   5. what backward needs belongs to the node, never to the operation or the layer: a layer may be used twice;
 *   6. operations never allocate: saved and scratch memory is asked for by the plan, from the shapes;
 *   7. an operation may declare one input whose gradient is dout itself (y = x + ...): the tape then passes dout on, and
 *      backward leaves it as it is; and inputs whose gradient it can write as well as add to: when args->fresh is set for
 *      one, its memory is uninitialised, nobody has added to it, and backward writes all of it.
 */
#ifndef MLA_AUTOGRAD_TAPE_H
#define MLA_AUTOGRAD_TAPE_H

#include <stdint.h>

#include "core/params.h"
#include "core/status.h"
#include "core/tensor.h"

typedef struct mla_var {
    int32_t id;
} mla_var; /* a value on a tape */

#define MLA_NO_VAR ((mla_var){-1}) /* an optional input that is absent */

enum { MLA_MAX_INPUTS = 4, MLA_MAX_ATTR_BYTES = 64 };

/* What an operation sees.  Tensors of absent inputs, and gradients that nobody needs, have data == NULL. */
typedef struct mla_op_args {
    const void *attr; /* the operation's own parameter struct */
    mla_tensor in[MLA_MAX_INPUTS], out;
    mla_tensor din[MLA_MAX_INPUTS], dout; /* backward only */
    bool fresh[MLA_MAX_INPUTS];           /* write din instead of adding to it (law 7) */
    const struct mla_param_form *form;    /* other forms of in[1], when it is a parameter that has them; or NULL */
    real *saved, *scratch;
} mla_op_args;

/* What an operation asks for, from its inputs' shapes and its attributes. */
typedef struct mla_op_plan {
    int ndim;
    size_t shape[MLA_MAX_DIMS]; /* of the output, always contiguous */
    size_t saved, scratch;      /* reals */
    double flops;               /* of matrix products and convolutions in forward, multiply-adds times two */
} mla_op_plan;

typedef struct mla_op {
    const char *name;
    void (*plan)(const mla_op_args *args, mla_op_plan *plan); /* also checks the shapes (MLA_REQUIRE) */
    void (*forward)(mla_op_args *args);
    void (*backward)(mla_op_args *args);
    int passes;       /* law 7: the input whose gradient is dout, counted from 1; 0: none */
    unsigned rewrite; /* law 7: bit i is set when input i's gradient may come fresh */
} mla_op;

/* The one list of operations: enum, names and table come from ops.def. */
typedef enum mla_op_id {
#define MLA_OP(ID, name) MLA_OP_##ID,
#include "autograd/ops.def"
#undef MLA_OP
    MLA_OP_COUNT
} mla_op_id;
const mla_op *mla_op_get(mla_op_id id);

typedef struct mla_tape mla_tape;

mla_tape *mla_tape_new(void); /* NULL when out of memory */
void mla_tape_free(mla_tape *tape);

/* Starts anew.  `values` is a flat buffer in the layout of *params (its own or an average); `gradient` likewise, added
 * to by backward, or NULL for forward only.  params may be NULL when no parameter is used. */
void mla_tape_begin(mla_tape *tape, const mla_params *params, const real *values, real *gradient);

/* The same for a further tape on the parameters and values that `like` has now; forward only. */
void mla_tape_begin_like(mla_tape *tape, const mla_tape *like);

/* Forms of a parameter made once a step for all shards (layers/prepared.h). */
typedef struct mla_param_form {
    const real *value;              /* stands for the flat buffer's values; NULL: those */
    const real *forward, *backward; /* of a matrix W (n, k): panels of W^T (k, n) and of W (n, k); NULL: made at each use */
} mla_param_form;

/* From now to the next begin parameters are taken in these forms: one a parameter of the store, kept by the caller. */
void mla_tape_use_forms(mla_tape *tape, const mla_param_form *forms);
/* The form of parameter `index`, or NULL. */
const mla_param_form *mla_tape_form(const mla_tape *tape, int index);

/* A constant: values that need no gradient.  The caller keeps them until the next begin. */
mla_var mla_tape_input(mla_tape *tape, mla_tensor values);
/* A leaf whose gradient is added to `gradient` (same shape and stride, the caller's). */
mla_var mla_tape_leaf(mla_tape *tape, mla_tensor values, real *gradient);
/* Parameter `index` of the store given to begin, in its own shape; a constant when it is fixed. */
mla_var mla_tape_param(mla_tape *tape, int index);

/* Columns first .. first + count - 1 of x, as a view: no copy, and its gradient is that part of x's. */
mla_var mla_columns(mla_tape *tape, mla_var x, size_t first, size_t count);
/* The same values in another shape of the same count; x must be contiguous. */
mla_var mla_reshape(mla_tape *tape, mla_var x, int ndim, const size_t *shape);

/* Runs an operation and records it.  `inputs` has MLA_MAX_INPUTS entries, absent ones MLA_NO_VAR; the attributes are
 * copied.  The typed functions of ops.h are what models call. */
mla_var mla_record(mla_tape *tape, mla_op_id op, const mla_var *inputs, const void *attr, size_t attr_bytes);
/* The same for an operation of the caller's own, which must stay until the tape's next begin. */
mla_var mla_record_op(mla_tape *tape, const mla_op *op, const mla_var *inputs, const void *attr, size_t attr_bytes);

/* Marks x as a loss of a layer's own, beside the one at the end; the one who makes the whole loss (layers/model.h) finds
 * those of this tape here: the next one after `after`, or with MLA_NO_VAR the first; MLA_NO_VAR when there is none. */
void mla_tape_mark_loss(mla_tape *tape, mla_var x);
mla_var mla_tape_next_loss(const mla_tape *tape, mla_var after);

mla_tensor mla_value(const mla_tape *tape, mla_var x);
/* Memory that lives as long as the recorded values; NULL when out of memory (which the tape remembers). */
void *mla_tape_alloc(mla_tape *tape, size_t bytes);

/* MLA_OK, or MLA_NO_MEMORY since the last begin. */
MLA_MUST_CHECK mla_status mla_tape_status(const mla_tape *tape, mla_error *error);

/* Gradients of sum(out * seed) with respect to all leaves and parameters; `seed` has out's element count, contiguous. */
MLA_MUST_CHECK mla_status mla_tape_backward(mla_tape *tape, mla_var out, const real *seed, mla_error *error);

/* Forward FLOPs of everything recorded since begin (matrix products and convolutions). */
double mla_tape_flops(const mla_tape *tape);
size_t mla_tape_peak_bytes(const mla_tape *tape);
/* Empties `tape` and gives it the room that `like` has come to need, so that recording the same graph allocates nothing. */
void mla_tape_match(mla_tape *tape, const mla_tape *like);
size_t mla_tape_allocations(const mla_tape *tape); /* system allocations ever made */

/* Position of the first recorded value that has a number that is not finite, or -1. */
int mla_tape_not_finite(const mla_tape *tape);

/* One recorded node, for inspection; i from 0 while it returns true. */
typedef struct mla_node_info {
    const char *op;
    mla_tensor out;
    double flops;
    size_t bytes; /* output and saved values */
    int param;    /* index of the first parameter among its inputs, or else of the nearest node before; -1: none */
    int reads[MLA_MAX_INPUTS]; /* indices of the parameters among its inputs; others -1 */
} mla_node_info;
bool mla_tape_node(const mla_tape *tape, int i, mla_node_info *info);

#endif
