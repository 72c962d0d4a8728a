/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
 * 1, 2, 3", SC 2011).
 *
 * A stream is named, not carried along: (seed, purpose, epoch, index) always gives the same numbers, whoever
 * draws them and in whatever order.  So augmentation, shuffling and drop path do not depend on the number of
 * threads, and resuming needs no generator state.
 *
 *     mla_rng rng = mla_rng_stream(config.seed, MLA_RNG_AUGMENT, epoch, sample);
 *     int dx = (int)mla_rng_below(&rng, 9);
 */
#ifndef MLA_CORE_RNG_H
#define MLA_CORE_RNG_H

#include <stdint.h>

/* What a stream is for; the number is part of the stream's name, so entries are only ever appended. */
typedef enum mla_rng_purpose {
    MLA_RNG_INIT = 0,      /* initial weights: index = parameter */
    MLA_RNG_SHUFFLE = 1,   /* order of an epoch */
    MLA_RNG_AUGMENT = 2,   /* crop, flip: index = sample */
    MLA_RNG_DROP_PATH = 3, /* stochastic depth: index = sample */
    MLA_RNG_DATASET = 4,   /* generated data sets: index = sample */
    MLA_RNG_SUBSET = 5,    /* which samples a subset keeps */
    MLA_RNG_TEST = 6,      /* test data and benchmarks */
    MLA_RNG_RANDAUG = 16,  /* RandAugment: index = sample */
    MLA_RNG_JITTER = 17,   /* colour jitter: index = sample */
    MLA_RNG_ERASE = 18,    /* random erasing: index = sample */
    MLA_RNG_MIX = 19,      /* Mixup and CutMix: index = place in the epoch */
    MLA_RNG_CROP = 20      /* resized crop: index = sample */
} mla_rng_purpose;

typedef struct mla_rng {
    uint32_t key[2], counter[4], block[4];
    unsigned used; /* words of `block` already given out, 4 when a new block is due */
} mla_rng;

/* The stream named (seed, purpose, epoch, index), at its start; epoch < 2^32, index < 2^56. */
mla_rng mla_rng_stream(uint64_t seed, mla_rng_purpose purpose, uint64_t epoch, uint64_t index);

uint32_t mla_rng_u32(mla_rng *rng);                   /* uniform on 0 .. 2^32 - 1 */
uint32_t mla_rng_below(mla_rng *rng, uint32_t bound); /* uniform on 0 .. bound - 1, unbiased; bound > 0 */
double mla_rng_uniform(mla_rng *rng);                 /* uniform on [0, 1), 53 bits */
double mla_rng_normal(mla_rng *rng);                  /* standard normal (Box-Muller, two uniforms each) */

/* One Philox 4x32-10 block: out = f(counter, key); the published known-answer vectors hold for it. */
void mla_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

#endif
