#include "train/shard.h"

#include <stdlib.h>

#include "train/augment.h"

bool mla_shard_allocate(mla_shard *s, size_t count, size_t side) {
    const size_t values = 3 * side * side;
    *s = (mla_shard){.images = malloc(count * values * sizeof(real)),
                     .labels = malloc(count * sizeof(int)),
                     .others = malloc(count * sizeof(int)),
                     .shares = malloc(count * sizeof(real)),
                     .samples = malloc(count * sizeof(uint64_t)),
                     .pixels = malloc(MLA_AUGMENT_BUFFERS * values),
                     .partner = malloc(values * sizeof(real))};
    return s->images && s->labels && s->others && s->shares && s->samples && s->pixels && s->partner;
}

void mla_shard_free(mla_shard *s) {
    free(s->images);
    free(s->labels);
    free(s->others);
    free(s->shares);
    free(s->samples);
    free(s->pixels);
    free(s->partner);
    *s = (mla_shard){0};
}

int mla_shard_answer(const mla_shard *s, size_t i) { return s->shares[i] < (real)0.5 ? s->others[i] : s->labels[i]; }
