#include "core/gemm.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/rng.h"

static bool use_plain;

void mla_gemm_plain(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, const real *a, size_t lda,
                    const real *b, size_t ldb, real beta, real *c, size_t ldc) {
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t p = 0; p < k; p++)
                sum += (double)(ta == MLA_N ? a[i * lda + p] : a[p * lda + i]) *
                       (double)(tb == MLA_N ? b[p * ldb + j] : b[j * ldb + p]);
            c[i * ldc + j] = (real)((double)alpha * sum) + (beta == 0 ? 0 : beta * c[i * ldc + j]);
        }
}

static void blas(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, const real *a, size_t lda,
                 const real *b, size_t ldb, real beta, real *c, size_t ldc) {
    const CBLAS_TRANSPOSE at = ta == MLA_N ? CblasNoTrans : CblasTrans, bt = tb == MLA_N ? CblasNoTrans : CblasTrans;
#ifdef MLA_DOUBLE
    cblas_dgemm
#else
    cblas_sgemm
#endif
        (CblasRowMajor, at, bt, (blasint)m, (blasint)n, (blasint)k, alpha, a, (blasint)lda, b, (blasint)ldb, beta, c,
         (blasint)ldc);
}

void mla_gemm(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, const real *a, size_t lda,
              const real *b, size_t ldb, real beta, real *c, size_t ldc) {
    if (m == 0 || n == 0) return;
    (use_plain ? mla_gemm_plain : blas)(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

enum { TEST_SIDE = 71, TEST_DEPTH = 400, TEST_REALS = TEST_SIDE * TEST_SIDE, TEST_OPERAND = TEST_SIDE * TEST_DEPTH };

static double compare(mla_gemm_function *gemm, const real *a, const real *b, const size_t size[3], int variant) {
    static _Thread_local real got[TEST_REALS], want[TEST_REALS];
    const mla_transpose ta = variant & 1 ? MLA_T : MLA_N, tb = variant & 2 ? MLA_T : MLA_N;
    const real beta = variant & 4 ? REAL(0.5) : 0;
    for (int i = 0; i < TEST_REALS; i++) got[i] = want[i] = REAL(0.25) * (real)(i % 7) - 1;
    for (size_t i = 0; beta == 0 && i < size[0] * size[1]; i++) got[i / size[1] * TEST_SIDE + i % size[1]] = NAN;
    const size_t lda = ta == MLA_N ? TEST_DEPTH : TEST_SIDE, ldb = tb == MLA_N ? TEST_SIDE : TEST_DEPTH;
    mla_gemm_plain(ta, tb, size[0], size[1], size[2], REAL(1.5), a, lda, b, ldb, beta, want, TEST_SIDE);
    gemm(ta, tb, size[0], size[1], size[2], REAL(1.5), a, lda, b, ldb, beta, got, TEST_SIDE);
    double worst = 0;
    for (int i = 0; i < TEST_REALS; i++) {
        if (!isfinite(got[i])) return INFINITY;
        const double error = fabs((double)got[i] - (double)want[i]) / (1 + sqrt((double)size[2]));
        if (error > worst) worst = error;
    }
    return worst;
}

double mla_gemm_error(mla_gemm_function *gemm) {
    /* Small and odd ones for the edges of kernels, and one beyond the block sizes of the inner dimension. */
    static const size_t sizes[][3] = {{1, 1, 1},    {3, 5, 7},   {4, 4, 0},  {17, 33, 64},
                                      {71, 70, 69}, {64, 2, 71}, {8, 71, 2}, {24, 40, TEST_DEPTH}};
    static _Thread_local real a[TEST_OPERAND], b[TEST_OPERAND];
    mla_rng rng = mla_rng_stream(1, MLA_RNG_TEST, 0, 0);
    for (int i = 0; i < TEST_OPERAND; i++) {
        a[i] = (real)(2 * mla_rng_uniform(&rng) - 1);
        b[i] = (real)(2 * mla_rng_uniform(&rng) - 1);
    }
    double worst = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int variant = 0; variant < 8; variant++) {
            const double error = compare(gemm, a, b, sizes[s], variant);
            if (error > worst) worst = error;
        }
    return worst;
}

bool mla_gemm_setup(void) {
    openblas_set_num_threads(1);
    /* Rounding of one product term; a wrong kernel is off by far more. */
    const double tolerance = sizeof(real) == sizeof(float) ? 1e-5 : 1e-13;
    use_plain = !(mla_gemm_error(blas) < tolerance);
    return !use_plain;
}

const char *mla_gemm_backend(void) {
    static char text[160];
    if (use_plain) return "built-in loops (the BLAS in use failed its self-test)";
    /* "OpenBLAS 0.3.21 NO_AFFINITY USE_OPENMP ...": the first two words name the release. */
    char release[64] = "BLAS";
    sscanf(openblas_get_config(), "%31s %31s", release, release + 32);
    snprintf(text, sizeof text, "%s %s, %s kernels, %s build, 1 thread a call", release, release + 32,
             openblas_get_corename(),
             openblas_get_parallel() == 2 ? "OpenMP"
             : openblas_get_parallel()    ? "pthread"
                                          : "serial");
    return text;
}
