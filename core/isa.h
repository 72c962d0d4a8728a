/* Processor instructions: what the engine was compiled for, and whether this processor has it.
 *
 * The engine is compiled for a processor (-Dcpu), and nothing compiled so may run before it is known that this one will do:
 * isa.c and the program's main are compiled for any processor, and what the engine needs is data.
 */
#ifndef MLA_CORE_ISA_H
#define MLA_CORE_ISA_H

#include <stdbool.h>

/* X(name, gcc's name): what __builtin_cpu_supports knows with both compilers.  BMI2 stands for what came with it (LZCNT,
 * MOVBE, F16C). */
#define MLA_ISA_LIST(X)                                                                                                     \
    X(SSE3, "sse3")                                                                                                         \
    X(SSSE3, "ssse3")                                                                                                       \
    X(SSE4_1, "sse4.1")                                                                                                     \
    X(SSE4_2, "sse4.2")                                                                                                     \
    X(POPCNT, "popcnt")                                                                                                     \
    X(AVX, "avx")                                                                                                           \
    X(FMA, "fma")                                                                                                           \
    X(AVX2, "avx2")                                                                                                         \
    X(BMI, "bmi")                                                                                                           \
    X(BMI2, "bmi2")                                                                                                         \
    X(AVX512F, "avx512f") X(AVX512CD, "avx512cd") X(AVX512BW, "avx512bw") X(AVX512DQ, "avx512dq") X(AVX512VL, "avx512vl")

typedef enum mla_isa_bit {
#define MLA_ISA_ENUM(name, text) MLA_ISA_BIT_##name,
    MLA_ISA_LIST(MLA_ISA_ENUM)
#undef MLA_ISA_ENUM
} mla_isa_bit;

typedef struct mla_isa {
    const char *name;  /* of the vectors, e.g. "AVX2 + FMA" */
    unsigned needs;    /* 1 << mla_isa_bit, ... */
    bool vector_maths; /* exp and erf are the C library's vector variants */
} mla_isa;

/* Of the engine linked into this program; only data, may be read on any processor. */
extern const mla_isa mla_isa_engine;

/* Names of the needed instructions that this processor lacks ("avx512f, avx512bw") in static memory, or NULL: none. */
const char *mla_isa_missing(const mla_isa *isa);

#endif
