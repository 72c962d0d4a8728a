/* The vector type of hand-written kernels: as wide as the registers this build may use, in the compiler's portable
 * vector extension (gcc, clang), so that one source serves SSE, AVX2, AVX-512 and NEON. */
#ifndef MLA_CORE_VECTOR_H
#define MLA_CORE_VECTOR_H

#include "core/real.h"

#if defined(__AVX512F__)
#define MLA_VECTOR_BYTES 64
#elif defined(__AVX__)
#define MLA_VECTOR_BYTES 32
#else
#define MLA_VECTOR_BYTES 16
#endif

/* Loads and stores through a pointer to it need no alignment, and may touch any real array. */
typedef real mla_vector __attribute__((vector_size(MLA_VECTOR_BYTES), aligned(sizeof(real)), may_alias));

#ifdef MLA_DOUBLE
typedef long long mla_vector_bits __attribute__((vector_size(MLA_VECTOR_BYTES)));
#else
typedef int mla_vector_bits __attribute__((vector_size(MLA_VECTOR_BYTES)));
#endif

enum { MLA_LANES_PER_VECTOR = MLA_VECTOR_BYTES / (int)sizeof(real) };

static inline mla_vector mla_vector_load(const real *p) { return *(const mla_vector *)p; }
static inline void mla_vector_store(real *p, mla_vector v) { *(mla_vector *)p = v; }

/* Asks for n reals from p on, which are needed soon: the rows of a strided matrix are not foreseen by the processor.  What
 * lies behind an array's end may be asked for. */
static inline void mla_prefetch(const real *p, size_t n) {
    enum { LINE = MLA_ALIGN_BYTES / sizeof(real) };
    for (size_t i = 0; i < n; i += LINE) __builtin_prefetch(p + i);
}

/* The sum of the entries, halves first. */
static inline real mla_vector_sum(mla_vector v) {
    real part[MLA_LANES_PER_VECTOR];
#if MLA_VECTOR_BYTES == 32 && !defined(MLA_DOUBLE)
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    (void)part;
    return v[0] + v[1];
#else
    mla_vector_store(part, v);
    for (int n = MLA_LANES_PER_VECTOR / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    return part[0];
#endif
}

/* The larger of each pair; b where they do not compare. */
static inline mla_vector mla_vector_larger(mla_vector a, mla_vector b) {
    const mla_vector_bits first = a > b;
    return (mla_vector)(((mla_vector_bits)a & first) | ((mla_vector_bits)b & ~first));
}

/* max(v, 0); a NaN stays one. */
static inline mla_vector mla_vector_relu(mla_vector v) {
    const mla_vector_bits negative = v < 0;
    return (mla_vector)((mla_vector_bits)v & ~negative);
}

/* (x1, x0, x3, x2, ...): the partners of channel pairs. */
static inline mla_vector mla_vector_swap_pairs(mla_vector v) {
#if MLA_VECTOR_BYTES == 64 && !defined(MLA_DOUBLE)
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
#elif MLA_VECTOR_BYTES == 64 || (MLA_VECTOR_BYTES == 32 && !defined(MLA_DOUBLE))
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
#elif MLA_VECTOR_BYTES == 32 || !defined(MLA_DOUBLE)
    return __builtin_shufflevector(v, v, 1, 0, 3, 2);
#else
    return __builtin_shufflevector(v, v, 1, 0);
#endif
}

#endif
