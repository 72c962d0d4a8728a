/* What all linear attentions share: from features to outputs and back, tile by tile of tokens, for all heads of one image
 * (formulas in linear_attention.c).  The operation makes the features of a tile and uses their gradients while they are
 * in the cache; nothing here is as long as the sequence.
 *
 *   forward    add_tile for each tile of keys; then read_tile for each tile of queries
 *   backward   begin_gradient; query_tile for each tile of queries; turn_gradient; key_tile for each tile of keys
 *
 * S and z are kept as sums, not means, and eps as N eps: a common factor of numerator and denominator.  Feature tiles f
 * and their gradients df are (tokens, h D), contiguous, D the width of a head's features; head i has columns i D ..
 * i D + D - 1, and in v and y, which are d wide, columns i d .. i d + d - 1.
 */
#ifndef MLA_AUTOGRAD_OPS_LINEAR_CORE_H
#define MLA_AUTOGRAD_OPS_LINEAR_CORE_H

#include <stddef.h>

#include "core/real.h"

typedef struct mla_linear_image {
    size_t tokens, heads, width, d; /* of the whole image; D = width; C = heads d */
    real floor;                     /* N eps */
    real *s, *z;                    /* (heads, D, d) and (heads, D): the sums; mla_linear_saved reals from s on */
    real *ds, *dz;                  /* their gradients, in scratch; backward only */
    real *st, *part, *dnum;         /* scratch: packed transposes of s or ds; one tile's sums; (tile, C) */
} mla_linear_image;

/* Tokens of a tile: its features, or v where that is wider, fill a part of the L1 or L2 cache. */
size_t mla_linear_tile(size_t columns);

/* Reals that s and z take, and reals of scratch, for one image. */
size_t mla_linear_saved(size_t heads, size_t width, size_t d);
size_t mla_linear_scratch(size_t heads, size_t width, size_t d);
/* Sets the pointers into such memory. */
mla_linear_image mla_linear_image_at(size_t tokens, size_t heads, size_t width, size_t d, double eps, real *saved,
                                     real *scratch);

/* S += fk^T v, z += sums of fk, from zero at the first tile (first = 0). */
void mla_linear_add_tile(const mla_linear_image *m, size_t first, size_t tokens, const real *fk, const real *v,
                         size_t v_stride);
/* y = fq S / (fq . z + N eps), rows of y `stride` apart. */
void mla_linear_read_tile(const mla_linear_image *m, size_t tokens, real *y, size_t stride, const real *fq);

void mla_linear_begin_gradient(const mla_linear_image *m);
/* dfq of a tile from dy and y; adds to dS and dz, from zero at the first tile. */
void mla_linear_query_tile(const mla_linear_image *m, size_t first, size_t tokens, real *dfq, const real *fq, const real *dy,
                           const real *y, size_t stride);
void mla_linear_turn_gradient(const mla_linear_image *m); /* between queries and keys */
/* dfk (NULL: not wanted) of a tile; dv += fk dS (NULL: not wanted). */
void mla_linear_key_tile(const mla_linear_image *m, size_t tokens, real *dfk, real *dv, size_t dv_stride, const real *fk,
                         const real *v, size_t v_stride);

#endif
