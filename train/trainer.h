/* Training: from a config to a run folder, and on from a checkpoint.
 *
 * A run is a function of its config, its data and nothing else: the weights after any step are the same bits for any
 * number of threads, and for a run that was stopped and resumed.  The order of things at the end of an epoch is
 * evaluation, log line, checkpoint; so a checkpoint is never ahead of its log.
 */
#ifndef MLA_TRAIN_TRAINER_H
#define MLA_TRAIN_TRAINER_H

#include "train/config.h"
#include "train/loaded.h"

typedef struct mla_train_options {
    const char *config_path;
    const char *const *overrides; /* "key=value" */
    size_t override_count;
    const char *out;        /* run folder; NULL: runs/NAME-OF-THE-CONFIG, numbered if that exists */
    bool resume;            /* with a checkpoint given by name, `out` may be a new folder */
    const char *checkpoint; /* to resume from; NULL: the newest of the run folder, or its beginning if it has none */
    const char *finetune;   /* checkpoint or export that the first weights are taken from; not with `resume` */
    mla_weights weights;    /* which of its weights */
    int threads;            /* 0: one a core */
} mla_train_options;

typedef struct mla_train_summary {
    char folder[MLA_PATH_BYTES];
    uint64_t steps;
    bool tested;
    uint64_t test_correct, test_images; /* of the last evaluation: the average's where one is kept */
    char weight_hash[17];
    char checkpoint[MLA_PATH_BYTES]; /* the last one written */
} mla_train_summary;

/* Runs to the end, to train.max_steps, or to the first interrupt (MLA_INTERRUPTED, after a checkpoint).  Progress and
 * notes go to stderr.  Nothing is created before config, data, model and disk space have been found in order. */
MLA_MUST_CHECK mla_status mla_train(const mla_train_options *options, mla_train_summary *summary, mla_error *error);

#endif
