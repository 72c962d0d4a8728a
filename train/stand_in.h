/* What stands in for a data set where a model is to be looked at or timed without one. */
#ifndef MLA_TRAIN_STAND_IN_H
#define MLA_TRAIN_STAND_IN_H

#include "train/config.h"
#include "train/lanes.h"

/* Fills in the model's image size and number of classes from the config alone where the set is one that says it, or else
 * from the data set itself, which is an error where that cannot be found. */
MLA_MUST_CHECK mla_status mla_config_fill_from_data(mla_config *config, mla_error *error);

/* Random bytes as images, augmented and normalised as in training, but not mixed.  Labels go round the classes. */
typedef struct mla_stand_in {
    int size, classes;
    const mla_augment_config *augment; /* the caller keeps it */
    uint8_t *bytes;
} mla_stand_in;

MLA_MUST_CHECK mla_status mla_stand_in_open(mla_stand_in *stand_in, const mla_config *config, mla_error *error);
void mla_stand_in_close(mla_stand_in *stand_in);
mla_image_source mla_stand_in_source(mla_stand_in *stand_in); /* reads through `stand_in`, which the caller keeps */

#endif
