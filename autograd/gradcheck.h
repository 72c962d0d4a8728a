/* Gradient checks: backward against central differences, element by element.
 *
 * The checked function records a graph from its inputs and returns the result.  Every element of every input (and of
 * every parameter of a store, if given) is moved by +-step, the loss is sum(output * upstream) with a random asymmetric
 * upstream gradient, and (L(x + h) - L(x - h)) / 2h is compared with the recorded gradient, sign and all, relative to
 * max(|analytic|, |numeric|, 1).  A value that is not finite fails, and so does a check that compared nothing.
 * Meant for the double build: with step 1e-5 the differences are right to about 1e-9.
 *
 *     static mla_var build(mla_tape *tape, const mla_var *inputs, void *context) {
 *         return mla_layer_norm(tape, inputs[0], inputs[1], inputs[2], 1e-6);
 *     }
 *     mla_gradcheck check = {.build = build, .inputs = 3, .input = {x, gamma, beta}};
 *     mla_gradcheck_result result;
 *     if (mla_gradcheck_run(&check, &result, &error) != MLA_OK) puts(error.text);
 */
#ifndef MLA_AUTOGRAD_GRADCHECK_H
#define MLA_AUTOGRAD_GRADCHECK_H

#include "autograd/tape.h"

enum { MLA_GRADCHECK_INPUTS = 8 };

typedef struct mla_gradcheck {
    /* Records the function; called once a difference. */
    mla_var (*build)(mla_tape *tape, const mla_var *inputs, void *context);
    void *context;
    int inputs;                             /* tensors that are moved, contiguous; may be 0 with params */
    mla_tensor input[MLA_GRADCHECK_INPUTS]; /* moved in place and restored */
    mla_params *params;                     /* every parameter is moved too; NULL for none */
    double step;                            /* 0: 1e-5 */
    double tolerance;                       /* 0: 1e-6 */
} mla_gradcheck;

typedef struct mla_gradcheck_result {
    size_t compared; /* elements */
    double worst;    /* largest relative difference */
} mla_gradcheck_result;

/* MLA_OK; MLA_INVALID with input, element and both values where they differ by more than the tolerance, or when
 * nothing was compared; MLA_NOT_FINITE; MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_gradcheck_run(const mla_gradcheck *check, mla_gradcheck_result *result, mla_error *error);

#endif
