/* The block isometry folded into rows of a projection: what the operation block_reflect does on a tape, for those who do
 * it once a step (layers/prepared.h). */
#ifndef MLA_AUTOGRAD_OPS_BLOCK_REFLECT_H
#define MLA_AUTOGRAD_OPS_BLOCK_REFLECT_H

#include <stddef.h>

#include "core/real.h"

/* Sizes: W has 3 blocks * width rows of `columns` (1 for a bias), v is (blocks, reflections, width). */
typedef struct mla_block_fold {
    size_t blocks; /* of all heads together */
    size_t reflections, width, columns;
} mla_block_fold;

size_t mla_block_fold_scratch(const mla_block_fold *fold); /* reals that both functions need */

/* out = W with P^T applied to each block of q's and k's rows; the rows of v are copied. */
void mla_block_fold_rows(const mla_block_fold *fold, real *out, const real *w, const real *v, real *scratch);

/* gradient: of the folded rows on entry, of W's on return; adds to dv unless it is NULL.  folded: out of the above. */
void mla_block_fold_gradient(const mla_block_fold *fold, real *gradient, real *dv, const real *folded, const real *v,
                             real *scratch);

#endif
