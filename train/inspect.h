/* What `mirrorla inspect` finds out, by recording one image on a tape and computing one training step. */
#ifndef MLA_TRAIN_INSPECT_H
#define MLA_TRAIN_INSPECT_H

#include <jansson.h>

#include "train/lanes.h"
#include "train/loaded.h"

/* One operation of one image. */
typedef struct mla_inspect_operation {
    const char *name;
    char layer[MLA_PARAM_NAME_BYTES];
    mla_tensor out;
    size_t parameters; /* that this operation is the first to read */
    double flops;
    size_t bytes; /* output and what it saves for backward */
} mla_inspect_operation;

typedef struct mla_inspection {
    const char *path;
    const mla_checkpoint *checkpoint; /* NULL: a config */
    const mla_config *config;         /* the model's image size and classes filled in */
    mla_model *model;
    mla_inspect_operation *operations;
    int operation_count, threads, shard;
    double flops; /* forward, one image */
    mla_engine_memory memory;
    int moments, averages; /* buffers of the optimiser, each as large as the weights */
    size_t flat_bytes;     /* of the weights */
} mla_inspection;

/* Fills in everything after `model`; mla_inspect_close gives it up. */
MLA_MUST_CHECK mla_status mla_inspect_open(mla_inspection *inspection, int threads, mla_error *error);
void mla_inspect_close(mla_inspection *inspection);
size_t mla_inspect_total_bytes(const mla_inspection *inspection); /* of a training step, without the data set */

MLA_MUST_CHECK mla_status mla_inspect_print(const mla_inspection *inspection, mla_error *error);
json_t *mla_inspect_json(const mla_inspection *inspection); /* NULL when out of memory */

#endif
