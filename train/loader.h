/* Images of a data set as a source for the engine: read, augmented, normalised, mixed by the thread that needs them. */
#ifndef MLA_TRAIN_LOADER_H
#define MLA_TRAIN_LOADER_H

#include "train/dataset.h"
#include "train/lanes.h"

typedef struct mla_loader {
    const mla_dataset *dataset;
    const uint32_t *order;             /* of the epoch or set; NULL: 0, 1, 2 ... */
    uint64_t first, batch;             /* image i of the source is order[first + i] (with augment.aug_repeats R:
                                          order[(first + i) / R]); how many belong together, for mixing */
    const mla_augment_config *augment; /* NULL: evaluation */
    double mean[3], std[3];
    uint64_t seed, epoch;
} mla_loader;

/* Which image of the data set image `place` of the source is. */
uint64_t mla_loader_sample(const mla_loader *loader, uint64_t place);

/* A source that reads through `loader`, which the caller keeps. */
mla_image_source mla_loader_source(mla_loader *loader);

#endif
