/* What an attention layer does, in numbers: for logs and reports, not on the way of a training step.
 *
 * Nothing here knows a kind.  y = A v is linear in v, so the kind's own core, run with unit vectors in the place of v, gives
 * A: exactly what the model computes, normalisation, floors and signs included.  In double from there on.
 */
#ifndef MLA_LAYERS_MEASURE_H
#define MLA_LAYERS_MEASURE_H

#include "layers/layers.h"

/* Attention matrices of a head: 1, or 2 where the halves of v's channels see different ones (PolaFormer). */
size_t mla_measure_parts(const mla_attention *layer);

/* Queries that are looked at: all of up to 1,024 tokens; of more, 256 spread evenly. */
size_t mla_measure_rows(size_t tokens);

/* a (heads, parts, rows, N) = the attention matrices of all heads for one image: row r is query r N / rows.
 * qkv (N, 3C), as mla_attention_project gives it.  `tape` is begun anew for each few columns of A, with the parameters
 * `values` of `params`.  MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_measure_attention(real *a, const mla_attention *layer, mla_tape *tape,
                                                const mla_params *params, const real *values, const real *qkv, size_t tokens,
                                                size_t rows, mla_error *error);

/* Mean over the rows of -sum_m p_m ln p_m / ln N, p = |a| / sum |a|: 0 = one token is looked at, 1 = all alike.  Rows of
 * zeros (dead queries) do not count; NaN if no row does, or for N = 1.  a (rows, N). */
double mla_measure_entropy(const real *a, size_t rows, size_t tokens);

/* Effective rank (Roy and Vetterli, EUSIPCO 2007): exp(-sum_i p_i ln p_i), p = singular values / their sum; those below 1e-6
 * of the largest are rounding and do not count.  NaN for zero and for what is not finite.  a (rows, columns), rows `stride`
 * reals apart.  MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_measure_rank(double *rank, const real *a, size_t rows, size_t columns, size_t stride,
                                           mla_error *error);

/* How far P = H(v_1) ... H(v_r) is from P0, the same of `start`: |P - P0| / (2 sqrt(min(b, 2 r))), Frobenius' norm; v and
 * start (r, b).  It does not depend on the vectors' lengths and signs.  P0^T P is a product of 2r reflections, so it turns
 * at most 2r dimensions, each by no more than a half turn, which is distance 2: the result is 0 for the start and at most 1.
 * MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_measure_moved(double *moved, const real *v, const real *start, size_t r, size_t b,
                                            mla_error *error);

#endif
