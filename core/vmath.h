/* Elementwise functions over arrays, in vectors. */
#ifndef MLA_CORE_VMATH_H
#define MLA_CORE_VMATH_H

#include <stddef.h>

#include "core/real.h"

/* y[i] = exp(scale x[i] - shift); y may be x.  Returns the sum of all y.  In single precision results are zero below the
 * normal numbers and infinite from 2.4e38 on. */
real mla_vec_exp(size_t n, real *y, const real *x, real scale, real shift);

/* The largest of n >= 1 numbers; a NaN is passed over. */
real mla_vec_max(size_t n, const real *x);

/* Exact GELU, y = x Phi(x), and its derivative slope = Phi(x) + x phi(x), Phi and phi the standard normal
 * distribution and density (Hendrycks & Gimpel, arXiv 1606.08415).  y and slope may be x. */
void mla_vec_gelu(size_t n, real *y, real *slope, const real *x);

/* y[i] = elu(x[i]) + 1: x + 1 for x > 0, exp(x) otherwise (Katharopoulos et al., arXiv 2006.16236). */
void mla_vec_elu1(size_t n, real *y, const real *x);

/* y[i] = x[i]^p[i] for x >= 0, p > 0; y may be x. */
void mla_vec_pow(size_t n, real *y, const real *x, const real *p);

/* y[i] = log x[i]; y may be x. */
void mla_vec_log(size_t n, real *y, const real *x);

/* y[i] += factor x[i].  Inline: rows of a few dozen values are common. */
static inline void mla_vec_add(size_t n, real *restrict y, real factor, const real *restrict x) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) y[i] += factor * x[i];
}

/* The product of two rows. */
static inline real mla_vec_dot(size_t n, const real *restrict a, const real *restrict b) {
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* sum[j] += the sum of column j of x (rows, columns), its rows `stride` reals apart; in blocks of rows whose sums are added
 * up, so that rounding does not grow with the number of rows.  part: (columns) scratch. */
void mla_vec_add_rows(size_t rows, size_t columns, real *restrict sum, const real *restrict x, size_t stride,
                      real *restrict part);

#endif
