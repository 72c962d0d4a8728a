/* The course of a run, read from its logs and thinned out to what a chart can show.
 *
 * Lines are fed one by one and only looked at once, so a report that is rewritten after each epoch reads what is new.
 * Steps are gathered in buckets of a power of two of them, with the mean, least and largest of each; epochs and layers are
 * thinned by keeping every 2^k-th and the last.  Memory does not grow with the length of the run.
 */
#ifndef MLA_TRAIN_REPORT_CURVES_H
#define MLA_TRAIN_REPORT_CURVES_H

#include "core/status.h"
#include "train/layer_numbers.h"

enum { MLA_CURVE_BUCKETS = 200, MLA_CURVE_EPOCHS = 400, MLA_CURVE_LAYERS = 60 };

/* X(NAME, name): of a step, under the names of the log */
#define MLA_STEP_NUMBER_LIST(X)                                                                                             \
    X(LOSS, loss)                                                                                                           \
    X(RETENTION, retention_loss)                                                                                            \
    X(GRAD_NORM, grad_norm)                                                                                                 \
    X(LR, lr)
enum {
#define MLA_STEP_NUMBER_ENUM(NAME, name) MLA_STEP_##NAME,
    MLA_STEP_NUMBER_LIST(MLA_STEP_NUMBER_ENUM)
#undef MLA_STEP_NUMBER_ENUM
        MLA_STEP_NUMBERS
};
extern const char *const mla_step_number_names[MLA_STEP_NUMBERS];
/* Numbers that are not finite are passed over; a bucket without one has count 0. */
typedef struct mla_curve_bucket {
    uint64_t last_step;
    uint64_t count[MLA_STEP_NUMBERS];
    double sum[MLA_STEP_NUMBERS], low[MLA_STEP_NUMBERS], high[MLA_STEP_NUMBERS];
} mla_curve_bucket;

/* X(NAME, name): of an epoch; accuracies in per cent; NaN where there is none */
#define MLA_EPOCH_NUMBER_LIST(X)                                                                                            \
    X(TRAIN_LOSS, train_loss)                                                                                               \
    X(TRAIN_ACCURACY, train_accuracy)                                                                                       \
    X(TEST_LOSS, test_loss)                                                                                                 \
    X(TEST_ACCURACY, test_accuracy)                                                                                         \
    X(AVERAGE_LOSS, average_loss)                                                                                           \
    X(AVERAGE_ACCURACY, average_accuracy)                                                                                   \
    X(RATE, images_per_second)                                                                                              \
    X(MEMORY, peak_memory_mib)
enum {
#define MLA_EPOCH_NUMBER_ENUM(NAME, name) MLA_EPOCH_##NAME,
    MLA_EPOCH_NUMBER_LIST(MLA_EPOCH_NUMBER_ENUM)
#undef MLA_EPOCH_NUMBER_ENUM
        MLA_EPOCH_NUMBERS
};
extern const char *const mla_epoch_number_names[MLA_EPOCH_NUMBERS];

typedef struct mla_curve_epoch {
    uint64_t step, epoch;
    double number[MLA_EPOCH_NUMBERS];
} mla_curve_epoch;

typedef struct mla_curve_layers {
    uint64_t step, epoch;
    double *number; /* (layers, MLA_LAYER_NUMBERS) */
} mla_curve_layers;

/* Which of a row of entries are kept. */
typedef struct mla_thinning {
    uint64_t stride, seen;
    bool last_waits; /* the entry at the end is the newest, which does not stay */
} mla_thinning;

typedef struct mla_curve_layer {
    char kind[32];
    double tokens, heads;
} mla_curve_layer;

typedef struct mla_curves {
    mla_curve_bucket bucket[MLA_CURVE_BUCKETS];
    uint64_t bucket_steps; /* of a bucket; 0: none yet */
    size_t buckets;
    mla_curve_epoch epoch[MLA_CURVE_EPOCHS + 1];
    size_t epochs;
    mla_thinning epoch_thinning;
    double steps_per_epoch; /* NaN until an epoch has ended */
    mla_curve_layer *layer;
    size_t layers;
    mla_curve_layers sample[MLA_CURVE_LAYERS + 1];
    size_t samples;
    mla_thinning sample_thinning;
    mla_curve_epoch best; /* the one with the best test accuracy (the average's where there is one); epoch 0: none */
} mla_curves;

mla_curves *mla_curves_new(void);         /* NULL when out of memory */
void mla_curves_free(mla_curves *curves); /* NULL is allowed */

/* One line of log.jsonl or timing.jsonl, without its newline; lines of timing.jsonl come after the epoch's own.  Events that
 * are not known are passed over.  MLA_INVALID says what is wrong, without the place; MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_curves_add(mla_curves *curves, const char *line, size_t bytes, mla_error *error);

/* Where a file has been read up to. */
typedef struct mla_curves_file {
    const char *path;
    uint64_t offset, lines;
} mla_curves_file;

/* Feeds the whole lines that the file has behind file->offset; a last line without newline waits.  A file that does not
 * exist is empty.  Errors name file and line. */
MLA_MUST_CHECK mla_status mla_curves_read(mla_curves *curves, mla_curves_file *file, mla_error *error);

#endif
