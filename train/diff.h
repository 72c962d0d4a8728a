/* What differs between two configs, checkpoints, exports or other safetensors files. */
#ifndef MLA_TRAIN_DIFF_H
#define MLA_TRAIN_DIFF_H

#include "train/loaded.h"

/* One side: a config, a file of tensors, or a checkpoint or export, which is both. */
typedef struct mla_diff_side {
    const char *path;
    bool has_config;
    mla_config config;
    mla_safetensors *file;     /* NULL for a config */
    mla_checkpoint checkpoint; /* verified; path NULL for configs and files of other tools */
    bool full, trained;        /* full: a checkpoint, no export; trained: with training state */
} mla_diff_side;

MLA_MUST_CHECK mla_status mla_diff_open(mla_diff_side *side, const char *path, mla_error *error);
void mla_diff_close(mla_diff_side *side);

typedef struct mla_tensor_diff {
    const char *name;
    const mla_file_tensor *a, *b; /* NULL: only in the other */
    bool same_shape;
    double largest, mean, relative; /* |a - b|; relative: |a - b| / |a| in the 2-norm; NaN when not comparable */
    size_t differing;               /* elements whose bits differ as floats, or bytes of other types */
} mla_tensor_diff;

/* Called for what differs alone. */
typedef struct mla_diff_sink {
    void *context;
    void (*key)(void *context, const char *section, const char *key, const char *a, const char *b); /* NULL: not there */
    void (*tensor)(void *context, const mla_tensor_diff *diff);
} mla_diff_sink;

typedef struct mla_diff_result {
    size_t keys, tensors; /* that differ */
    size_t compared_keys, compared_tensors;
    bool weights_alone; /* training state was left out */
} mla_diff_result;

/* Configs are compared where both sides have one, tensors where both have tensors; MLA_INVALID when the two have neither in
 * common.  Two checkpoints are compared whole, unless `weights` says which weights; everything else by its weights: those of
 * a checkpoint under their own names (auto: the average where one is kept). */
MLA_MUST_CHECK mla_status mla_diff(mla_diff_result *result, const mla_diff_side *a, const mla_diff_side *b,
                                   const mla_weights *weights, const mla_diff_sink *sink, mla_error *error);

#endif
