/* Matrix products: a thin wrapper of row-major cblas, always on the calling thread alone.
 *
 * Parallelism lives above operations (one thread runs a whole shard), so BLAS must not start threads of its own.
 * mla_gemm_setup sees to that and checks the BLAS in use against a plain triple loop: releases exist whose kernels
 * compute wrong results on some processors (OpenBLAS issues 2914, 3152).  If it fails, the plain loop is used.
 *
 * OpenBLAS's OpenMP build takes as many threads as an OpenMP region would by default, so one thread for BLAS means one
 * for every region that does not say how many: all regions here do.
 */
#ifndef MLA_CORE_GEMM_H
#define MLA_CORE_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "core/real.h"

typedef enum mla_transpose { MLA_N, MLA_T } mla_transpose;

/* C (m, n) = alpha op(A) op(B) + beta C, op(A) (m, k), op(B) (k, n); row-major with leading dimensions lda, ldb,
 * ldc in reals.  With beta = 0, C is not read.  Any of m, n, k may be 0. */
void mla_gemm(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, const real *a, size_t lda,
              const real *b, size_t ldb, real beta, real *c, size_t ldc);

/* The same by the definition, for tests and as the fallback. */
void mla_gemm_plain(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, const real *a, size_t lda,
                    const real *b, size_t ldb, real beta, real *c, size_t ldc);

typedef void mla_gemm_function(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, const real *a,
                               size_t lda, const real *b, size_t ldb, real beta, real *c, size_t ldc);

/* Largest error of `gemm` against the plain loop, relative to the size of the terms, over all four transpositions,
 * odd sizes, k = 0 and both betas; infinity if a result is not finite. */
double mla_gemm_error(mla_gemm_function *gemm);

/* Once, before the first product: one BLAS thread, self-test (under 10 ms).  False: the BLAS in use computes wrong
 * results and the plain loop has been put in its place (slow but right); the caller tells the user. */
bool mla_gemm_setup(void);

/* Library, version, kernel and threading of the BLAS in use, e.g. "OpenBLAS 0.3.21 Zen (1 thread a call)". */
const char *mla_gemm_backend(void);

#endif
