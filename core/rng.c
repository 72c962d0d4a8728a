#include "core/rng.h"

#include <math.h>

#include "core/status.h"

enum { PHILOX_ROUNDS = 10 };

/* Multipliers and key increments of Philox 4x32 (the second increment is sqrt(3) - 1, the first the golden
 * ratio's fraction, both times 2^32). */
static const uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
static const uint32_t weyl[2] = {0x9E3779B9u, 0xBB67AE85u};

void mla_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)multiplier[0] * c0, p1 = (uint64_t)multiplier[1] * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += weyl[0];
        k1 += weyl[1];
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The stream's name fills key and counter: the key is the seed, the counter holds block number, index (56
 * bits) with the purpose (8 bits) above it, and epoch.  Different names never share a block. */
mla_rng mla_rng_stream(uint64_t seed, mla_rng_purpose purpose, uint64_t epoch, uint64_t index) {
    MLA_REQUIRE(epoch <= UINT32_MAX, "random stream: epoch %llu is over 2^32 - 1", (unsigned long long)epoch);
    MLA_REQUIRE(index >> 56 == 0, "random stream: index %llu is over 2^56 - 1", (unsigned long long)index);
    MLA_REQUIRE((unsigned)purpose < 256u, "random stream: purpose %u is over 255", (unsigned)purpose);
    mla_rng rng = {
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, (uint32_t)index, (uint32_t)(index >> 32) | (uint32_t)purpose << 24, (uint32_t)epoch},
        .used = 4,
    };
    return rng;
}

uint32_t mla_rng_u32(mla_rng *rng) {
    if (rng->used == 4) {
        mla_philox(rng->block, rng->counter, rng->key);
        rng->counter[0]++;
        MLA_REQUIRE(rng->counter[0] != 0, "random stream: all of its 2^34 numbers are used up");
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

/* Lemire, "Fast Random Integer Generation in an Interval" (2019): the high word of a product is uniform
 * once the few low words that would make it uneven are drawn again. */
uint32_t mla_rng_below(mla_rng *rng, uint32_t bound) {
    MLA_REQUIRE(bound > 0, "random number below 0");
    uint64_t product = (uint64_t)mla_rng_u32(rng) * bound;
    if ((uint32_t)product < bound) {
        uint32_t uneven = (0u - bound) % bound;
        while ((uint32_t)product < uneven) product = (uint64_t)mla_rng_u32(rng) * bound;
    }
    return (uint32_t)(product >> 32);
}

double mla_rng_uniform(mla_rng *rng) {
    uint64_t high = mla_rng_u32(rng), low = mla_rng_u32(rng);
    return (double)((high << 32 | low) >> 11) * 0x1p-53;
}

double mla_rng_normal(mla_rng *rng) {
    double radius = mla_rng_uniform(rng), angle = mla_rng_uniform(rng);
    return sqrt(-2.0 * log1p(-radius)) * cos(6.283185307179586476925 * angle);
}
