/* A checkpoint made ready for use: its model, with the weights that were asked for. */
#ifndef MLA_TRAIN_LOADED_H
#define MLA_TRAIN_LOADED_H

#include "layers/model.h"
#include "train/checkpoint.h"

/* MLA_WEIGHTS_AUTO: the average where one is kept, else the raw weights. */
typedef enum mla_weights { MLA_WEIGHTS_AUTO, MLA_WEIGHTS_RAW, MLA_WEIGHTS_AVERAGE } mla_weights;

typedef struct mla_loaded {
    mla_checkpoint checkpoint;
    mla_model *model; /* its parameters hold the chosen weights */
    bool average;     /* which those are */
} mla_loaded;

/* Opens, verifies and loads; `overrides` change the stored config.  MLA_INVALID when the weights that are asked for
 * are not there: an export holds one set. */
MLA_MUST_CHECK mla_status mla_loaded_open(mla_loaded *loaded, const char *path, mla_weights weights,
                                          const char *const *overrides, size_t override_count, mla_error *error);
/* The same without overrides and without verifying what it does not use (mla_checkpoint_open_weights): a third of the time
 * with a full checkpoint. */
MLA_MUST_CHECK mla_status mla_loaded_open_weights(mla_loaded *loaded, const char *path, mla_weights weights,
                                                  mla_error *error);
void mla_loaded_close(mla_loaded *loaded);

/* Length of the path without the ending .safetensors; 0 when it has another ending. */
size_t mla_checkpoint_stem(const char *path);

/* "auto", "raw" or "average"; false for any other word. */
bool mla_weights_parse(mla_weights *weights, const char *text);

#endif
