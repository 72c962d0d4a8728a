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

/* The same for one block by itself: X (b, k) becomes H(v_r) ... H(v_1) X = P^T X.  v (r, b); scratch: mla_block_scratch. */
size_t mla_block_scratch(size_t b, size_t k); /* reals */
void mla_block_apply(real *x, const real *v, size_t r, size_t b, size_t k, real *scratch);
/* x: that result, gradient: its gradient; both are worked back in place, to X and its gradient.  Adds to dv unless NULL. */
void mla_block_apply_gradient(real *x, real *gradient, real *dv, const real *v, size_t r, size_t b, size_t k, real *scratch);

#endif
