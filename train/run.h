/* The parts of a run in progress, shared by the files that make up the trainer: setup (run.c) and loop (trainer.c). */
#ifndef MLA_TRAIN_RUN_H
#define MLA_TRAIN_RUN_H

#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/checkpoint.h"
#include "train/diagnostics.h"
#include "train/finetune.h"
#include "train/loader.h"
#include "train/progress.h"
#include "train/report.h"
#include "train/runlog.h"
#include "train/trainer.h"

typedef struct mla_run {
    mla_config config;
    int threads;
    mla_dataset *train_set, *test_set;
    mla_model *model;
    mla_engine *engine;
    mla_optimizer *optimizer;
    mla_schedule schedule;
    mla_runlog *log;
    mla_diagnostics *diagnostics;
    mla_report_live *report; /* NULL: none is written */
    mla_counters counters;
    bool finetuned; /* the first weights were not drawn but taken: `finetune` says from where */
    mla_finetune finetune;
    uint32_t *order; /* of the running epoch */
    uint64_t order_epoch;
    bool has_order;
    char folder[MLA_PATH_BYTES];
    mla_progress progress;
    double epoch_start_s;
    uint64_t epoch_start_images;
} mla_run;

/* Everything but the folder: data, model, engine, optimiser; initial weights drawn, or taken from a checkpoint.  A run
 * that was stopped before its first checkpoint is resumed at step 0, if its config.yaml is the same. */
MLA_MUST_CHECK mla_status mla_run_setup(mla_run *run, const mla_train_options *options, mla_error *error);
void mla_run_free(mla_run *run);

mla_params *mla_run_params(const mla_run *run);
mla_run_buffers mla_run_buffers_of(const mla_run *run);
mla_class_info mla_run_classes(const mla_run *run);
mla_class_info mla_classes_of(const mla_dataset_info *info); /* names stay the data set's */
uint64_t mla_run_steps_per_epoch(const mla_run *run);

/* Images of a shard: train.shard, or what suits the model; no more than a batch.  Sums are rounded shard by shard, so who
 * wants the same bits takes the same shards. */
int mla_run_shard(const mla_config *config);

/* What the config asks of the optimiser. */
mla_optimizer_spec mla_run_optimizer_spec(const mla_config *config, int threads);

#endif
