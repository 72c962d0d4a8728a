/* Where the time of a tape goes, by operation.
 *
 *     mla_profile profile = {0};
 *     mla_tape_profile(tape, &profile);
 *     ... record and go backwards, any number of times ...
 *     profile.forward[MLA_OP_LINEAR].ns is what all linear layers took in forward
 *
 * Off, as a tape is to begin with, it costs a branch an operation; on, two readings of the clock.
 */
#ifndef MLA_AUTOGRAD_PROFILE_H
#define MLA_AUTOGRAD_PROFILE_H

#include "autograd/tape.h"

typedef struct mla_profile_row {
    uint64_t calls, ns;
    uint64_t bytes; /* of the operands, each counted once: see mla_profile_add */
    double flops;   /* of matrix products and convolutions, as the operation's plan says; backward counts twice that */
} mla_profile_row;

/* A row an operation, by mla_op_id; the last one is for all operations of the caller's own (mla_record_op). */
typedef struct mla_profile {
    mla_profile_row forward[MLA_OP_COUNT + 1], backward[MLA_OP_COUNT + 1];
} mla_profile;

/* From now on the tape adds to *profile, which is the caller's; NULL: no longer. */
void mla_tape_profile(mla_tape *tape, mla_profile *profile);

/* Name of row `row`: the operation's, or "(own)". */
const char *mla_profile_name(int row);

/* sum += more */
void mla_profile_sum(mla_profile *sum, const mla_profile *more);

/* ---- for those who take the times */

/* Nanoseconds of a clock that only goes forward. */
uint64_t mla_profile_now(void);

/* Counts a call that began at `start_ns` in the operation's row.  Bytes: inputs, output and the `saved` reals, and in
 * backward (args->dout given) the gradients of output and inputs too. */
void mla_profile_add(mla_profile_row rows[MLA_OP_COUNT + 1], const mla_op *op, uint64_t start_ns, double flops,
                     const mla_op_args *args, size_t saved);

#endif
