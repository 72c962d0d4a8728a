#include "core/vmath.h"

#include <math.h>
#include <string.h>

#include "core/vector.h"

/* glibc's vector variants (libmvec) are declared only under -ffast-math, which gives up NaN; declaring them here
 * lets an `omp simd` loop use them without it.  They are within 4 units in the last place. */
#ifdef MLA_LIBMVEC
#pragma omp declare simd notinbranch
extern float expf(float);
#pragma omp declare simd notinbranch
extern double exp(double);
#pragma omp declare simd notinbranch
extern double erf(double);
#pragma omp declare simd notinbranch
extern float powf(float, float);
#pragma omp declare simd notinbranch
extern double pow(double, double);
#pragma omp declare simd notinbranch
extern float logf(float);
#pragma omp declare simd notinbranch
extern double log(double);
#define VECTOR_LOOP _Pragma("omp simd")
#else
#define VECTOR_LOOP /* nothing to call in a vector loop: clang would warn that it stays scalar */
#endif

#ifdef MLA_DOUBLE
#define EXP exp
#define POW pow
#define LOG log
static const double INVERSE_SQRT2 = 0.70710678118654752440;
#else
#define EXP expf
#define POW powf
#define LOG logf
#endif
static const double INVERSE_SQRT_2PI = 0.39894228040143267794;

real mla_vec_max(size_t n, const real *x) {
    enum { LANES = MLA_LANES_PER_VECTOR };
    real largest = x[0];
    size_t i = 0;
    if (n >= LANES) {
        mla_vector most = mla_vector_load(x);
        for (i = LANES; i + LANES <= n; i += LANES) most = mla_vector_larger(most, mla_vector_load(x + i));
        for (int lane = 0; lane < LANES; lane++) largest = most[lane] > largest ? most[lane] : largest;
    }
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
}

#ifdef MLA_DOUBLE
real mla_vec_exp(size_t n, real *y, const real *x, real scale, real shift) {
    real sum = 0;
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) y[i] = exp(scale * x[i] - shift);
    for (size_t i = 0; i < n; i++) sum += y[i];
    return sum;
}

void mla_vec_gelu(size_t n, real *y, real *slope, const real *x) {
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) {
        const real a = x[i];
        const real distribution = REAL(0.5) * (1 + erf(a * REAL(INVERSE_SQRT2)));
        const real density = REAL(INVERSE_SQRT_2PI) * exp(REAL(-0.5) * a * a);
        slope[i] = distribution + a * density;
        y[i] = a * distribution;
    }
}
#else
/* exp(x): 2^n exp(r), n whole, |r| <= ln 2 / 2, the Taylor series to r^7 (its rest is under 6e-9); 0 below -87.33, where
 * normal numbers end, and infinite above 88.37, where n would be 128.  A NaN stays one. */
static inline mla_vector vector_exp(mla_vector x) {
    const float shift = 12582912; /* 1.5 2^23: adding it leaves the nearest whole number in the low bits */
    const mla_vector moved = x * 1.44269504f + shift, n = moved - shift;
    const mla_vector r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    mla_vector p = r * (1 / 5040.0f) + 1 / 720.0f;
    p = p * r + 1 / 120.0f;
    p = p * r + 1 / 24.0f;
    p = p * r + 1 / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* Unsigned: arguments far below the range wrap round, and their results are not used. */
    typedef unsigned int vector_power __attribute__((vector_size(MLA_VECTOR_BYTES)));
    const vector_power power = ((vector_power)moved + (127u - 0x4B400000u)) << 23;
    const mla_vector_bits large = x > 88.37f, value = (mla_vector_bits)(p * (mla_vector)power);
    return (mla_vector)((value & ~(x < -87.33f) & ~large) | (large & 0x7F800000));
}

/* Phi(-s) for s >= 0 is exp(-s^2 / 2) Q(s); Q in powers of t = 1 / (1 + 0.255 s), fitted to Q(s) = erfc(s / sqrt 2)
 * exp(s^2 / 2) / 2 on 0 .. 14: these coefficients are off by less than 5.3e-8 in Phi and 4.2e-6 of the tail itself, which is
 * under the rounding of single precision about Phi = 1.  So both of GELU's factors need one exponential, and the left tail
 * is no difference of ones, as it would be with erf. */
static inline void gelu(mla_vector *y, mla_vector *slope, mla_vector a) {
    static const float q[] = {0.1013296710f,  0.1078524746f, 0.05700854560f, 0.2068367495f,
                              -0.1677918967f, 0.2753202434f, -0.08055578877f};
    const mla_vector_bits negative = a < 0.0f;
    const mla_vector s = (mla_vector)((mla_vector_bits)a & 0x7FFFFFFF), t = 1.0f / (1.0f + 0.255f * s);
    const mla_vector e = vector_exp(-0.5f * s * s);
    mla_vector tail = t * q[6] + q[5];
    for (int k = 4; k >= 0; k--) tail = tail * t + q[k];
    tail *= t * e;
    const mla_vector other = 1.0f - tail;
    const mla_vector distribution = (mla_vector)(((mla_vector_bits)tail & negative) | ((mla_vector_bits)other & ~negative));
    *y = a * distribution;
    *slope = distribution + a * (e * (float)INVERSE_SQRT_2PI);
}

real mla_vec_exp(size_t n, real *y, const real *x, real scale, real shift) {
    enum { LANES = MLA_LANES_PER_VECTOR, BLOCK = 64 * LANES };
    double sum = 0; /* of blocks, which are summed in vectors */
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t last = n - first < BLOCK ? n : first + BLOCK;
        mla_vector part = {0};
        size_t i = first;
        for (; i + LANES <= last; i += LANES) {
            const mla_vector e = vector_exp(scale * mla_vector_load(x + i) - shift);
            mla_vector_store(y + i, e);
            part += e;
        }
        sum += (double)mla_vector_sum(part);
        for (; i < last; i++) {
            const mla_vector e = vector_exp((mla_vector){scale * x[i] - shift});
            y[i] = e[0];
            sum += (double)e[0];
        }
    }
    return (real)sum;
}

void mla_vec_gelu(size_t n, real *y, real *slope, const real *x) {
    enum { LANES = MLA_LANES_PER_VECTOR };
    mla_vector value, derivative;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        gelu(&value, &derivative, mla_vector_load(x + i));
        mla_vector_store(slope + i, derivative);
        mla_vector_store(y + i, value);
    }
    if (i == n) return;
    real rest[LANES] = {0};
    memcpy(rest, x + i, (n - i) * sizeof(real));
    gelu(&value, &derivative, mla_vector_load(rest));
    mla_vector_store(rest, derivative);
    memcpy(slope + i, rest, (n - i) * sizeof(real));
    mla_vector_store(rest, value);
    memcpy(y + i, rest, (n - i) * sizeof(real));
}
#endif

void mla_vec_elu1(size_t n, real *y, const real *x) {
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) {
        const real a = x[i];
        const real e = EXP(a > 0 ? 0 : a); /* written so that a NaN stays one */
        y[i] = a > 0 ? a + 1 : e;
    }
}

void mla_vec_pow(size_t n, real *y, const real *x, const real *p) {
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) y[i] = POW(x[i], p[i]);
}

void mla_vec_log(size_t n, real *y, const real *x) {
    VECTOR_LOOP
    for (size_t i = 0; i < n; i++) y[i] = LOG(x[i]);
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
