/* The images of a shard, and the room that making them takes. */
#ifndef MLA_TRAIN_SHARD_H
#define MLA_TRAIN_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/real.h"

typedef struct mla_shard {
    real *images;      /* (count, 3, S, S), normalised */
    int *labels;       /* (count); -1: the image is left out */
    int *others;       /* (count) labels of what the images were mixed with */
    real *shares;      /* (count) of the images' own labels; 1: not mixed */
    uint64_t *samples; /* (count) names of the images' random streams */
    uint8_t *pixels;   /* room: MLA_AUGMENT_BUFFERS images of bytes */
    real *partner;     /* room: an image */
} mla_shard;

/* Room for `count` images of side `side`; false when out of memory (what there is then still goes to mla_shard_free). */
bool mla_shard_allocate(mla_shard *shard, size_t count, size_t side);
void mla_shard_free(mla_shard *shard);

/* The label with the larger share, the image's own if both are the same: what counts as the right answer. */
int mla_shard_answer(const mla_shard *shard, size_t i);

#endif
