/* Training images as a picture: what augmentation makes of them. */
#ifndef MLA_TRAIN_PREVIEW_H
#define MLA_TRAIN_PREVIEW_H

#include "train/config.h"

typedef struct mla_preview_options {
    const char *path;  /* of the PNG */
    const char *title; /* usually the config's name */
    size_t count;      /* images, at least 1; those of a whole epoch at most */
    uint64_t epoch;    /* from 0 */
} mla_preview_options;

/* Writes the first `count` images of the epoch, in the order and through the code of training: normalised ones are
 * brought back to colours, and cut to what can be shown.  Above each stands the image as the data set has it, and where
 * the epoch mixes the one it was mixed with; below, the labels and their shares.  *count receives how many were drawn. */
MLA_MUST_CHECK mla_status mla_preview_write(const mla_config *config, const mla_preview_options *options, size_t *count,
                                            mla_error *error);

#endif
