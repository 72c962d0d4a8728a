/* Images of a data set as a source for the engine: read, augmented, normalised by the thread that needs them. */
#ifndef MLA_TRAIN_LOADER_H
#define MLA_TRAIN_LOADER_H

#include "train/dataset.h"
#include "train/lanes.h"

typedef struct mla_loader {
    const mla_dataset *dataset;
    const uint32_t *order;             /* image i of the source is order[i] of the data set; NULL: i itself */
    const mla_augment_config *augment; /* NULL: evaluation */
    double mean[3], std[3];
    uint64_t seed, epoch;
} mla_loader;

/* A source that reads through `loader`, which the caller keeps. */
mla_image_source mla_loader_source(mla_loader *loader);

#endif
