/* Compiled as the engine is: see isa.h. */
#include "core/isa.h"

#if defined(__AVX512F__)
#define NAME "AVX-512"
#elif defined(__AVX2__)
#define NAME "AVX2 + FMA"
#elif defined(__AVX__)
#define NAME "AVX"
#elif defined(__SSE2__)
#define NAME "SSE2 (baseline x86-64)"
#elif defined(__ARM_NEON)
#define NAME "NEON"
#else
#define NAME "scalar"
#endif

#define NEEDS(name) 1u << MLA_ISA_BIT_##name |

const mla_isa mla_isa_engine = {
    .name = NAME,
    .needs =
#ifdef __SSE3__
        NEEDS(SSE3)
#endif
#ifdef __SSSE3__
            NEEDS(SSSE3)
#endif
#ifdef __SSE4_1__
                NEEDS(SSE4_1)
#endif
#ifdef __SSE4_2__
                    NEEDS(SSE4_2)
#endif
#ifdef __POPCNT__
                        NEEDS(POPCNT)
#endif
#ifdef __AVX__
                            NEEDS(AVX)
#endif
#ifdef __FMA__
                                NEEDS(FMA)
#endif
#ifdef __AVX2__
                                    NEEDS(AVX2)
#endif
#ifdef __BMI__
                                        NEEDS(BMI)
#endif
#ifdef __BMI2__
                                            NEEDS(BMI2)
#endif
#ifdef __AVX512F__
                                                NEEDS(AVX512F)
#endif
#ifdef __AVX512CD__
                                                    NEEDS(AVX512CD)
#endif
#ifdef __AVX512BW__
                                                        NEEDS(AVX512BW)
#endif
#ifdef __AVX512DQ__
                                                            NEEDS(AVX512DQ)
#endif
#ifdef __AVX512VL__
                                                                NEEDS(AVX512VL)
#endif
                                                                    0,
#ifdef MLA_LIBMVEC
    .vector_maths = true,
#endif
};
