#include "core/vmath.h"

#include <math.h>
#include <string.h>

/* glibc's vector variants (libmvec) are declared only under -ffast-math, which gives up NaN; declaring them here
 * lets an `omp simd` loop use them without it.  They are within 4 units in the last place. */
#ifdef MLA_LIBMVEC
#pragma omp declare simd notinbranch
extern float expf(float);
#pragma omp declare simd notinbranch
extern float erff(float);
#pragma omp declare simd notinbranch
extern double exp(double);
#pragma omp declare simd notinbranch
extern double erf(double);
#define VECTOR_LOOP _Pragma("omp simd")
#else
#define VECTOR_LOOP /* nothing to call in a vector loop: clang would warn that it stays scalar */
#endif

#ifdef MLA_DOUBLE
#define EXP exp
#define ERF erf
#else
#define EXP expf
#define ERF erff
#endif

static const double INVERSE_SQRT2 = 0.70710678118654752440, INVERSE_SQRT_2PI = 0.39894228040143267794;

void mla_vec_exp(size_t n, real *y, const real *x, real shift) {
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) y[i] = EXP(x[i] - shift);
}

void mla_vec_gelu(size_t n, real *y, real *slope, const real *x) {
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) {
        const real a = x[i];
        const real distribution = REAL(0.5) * (1 + ERF(a * REAL(INVERSE_SQRT2)));
        const real density = REAL(INVERSE_SQRT_2PI) * EXP(REAL(-0.5) * a * a);
        slope[i] = distribution + a * density;
        y[i] = a * distribution;
    }
}

void mla_vec_elu1(size_t n, real *y, const real *x) {
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) {
        const real a = x[i];
        const real e = EXP(a > 0 ? 0 : a); /* written so that a NaN stays one */
        y[i] = a > 0 ? a + 1 : e;
    }
}

void mla_vec_add_rows(size_t rows, size_t columns, real *restrict sum, const real *restrict x, size_t stride,
                      real *restrict part) {
    enum { BLOCK = 64 };
    for (size_t first = 0; first < rows; first += BLOCK) {
        const size_t last = first + BLOCK < rows ? first + BLOCK : rows;
        memset(part, 0, columns * sizeof(real));
        for (size_t i = first; i < last; i++) mla_vec_add(columns, part, 1, x + i * stride);
        mla_vec_add(columns, sum, 1, part);
    }
}
