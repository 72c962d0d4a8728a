/* The run folder and its logs.
 *
 *     config.yaml      the resolved config
 *     log.jsonl        one object a step and an epoch; depends on config and data alone: the same run gives the same bytes
 *     timing.jsonl     what a clock said: images/s, seconds, peak memory; one object an epoch, not reproducible
 *     events.out.tfevents.*   the same numbers for TensorBoard (train/tensorboard.h), with `log.tensorboard`
 *     report.html      the same numbers for people (train/report.h), with `log.report`
 *     finetune.json    the weights that the run started from, if not from its seed
 *     checkpoints/     step-00000391.safetensors, best.safetensors
 *
 *     {"event":"step","step":12,"epoch":1,"loss":2.3,"lr":0.001,"grad_norm":1.7,"images":128,"correct":14}
 *     {"event":"epoch","step":391,"epoch":1,"train_loss":2.1,"train_correct":9100,"train_images":50000,"test_loss":1.9,
 *      "test_correct":3100,"test_images":10000,"ema_test_loss":2.0,"ema_test_correct":2900,"weight_hash":"..."}
 *     {"event":"layers","step":391,"epoch":1,"images":4,"layers":[{"kind":"mirror","tokens":64,"heads":4,"energy_q":0.51,...
 *      (train/layer_numbers.h)},...]}
 *     {"event":"timing","step":391,"epoch":1,"seconds":30.5,"images_per_second":1639.3,"evaluation_seconds":2.1,
 *      "diagnostics_seconds":0.05,"peak_memory_bytes":91234304}
 *
 * Test fields stand only where a test was made; a step has "retention_loss", the mirror's loss before its weight, when
 * mirror.retention_loss is on ("loss" is that of the logits in any case); a number that is not finite is null.
 *
 * A folder is created and write-tested before the first step, and only after everything else has been checked.  One
 * process at a time holds it.  On resume, lines of log.jsonl after the resumed step go to log.dropped.jsonl and the
 * log goes on without gap or repeat.
 */
#ifndef MLA_TRAIN_RUNLOG_H
#define MLA_TRAIN_RUNLOG_H

#include <stdint.h>

#include "core/status.h"
#include "train/layer_numbers.h"

typedef struct mla_runlog mla_runlog;

typedef struct mla_step_record {
    uint64_t step;              /* 1-based: updates done */
    uint64_t epoch;             /* 1-based */
    double loss, lr, grad_norm; /* grad_norm before clipping */
    uint64_t images, correct;
    double retention_loss; /* written when has_retention */
    bool has_retention;
} mla_step_record;

typedef struct mla_epoch_record {
    uint64_t step, epoch;
    double train_loss;
    uint64_t train_correct, train_images;
    double test_loss;
    uint64_t test_correct, test_images; /* test_images 0: not evaluated in this epoch */
    double ema_test_loss;
    uint64_t ema_test_correct; /* written when has_ema */
    int has_ema;
    const char *weight_hash;
} mla_epoch_record;

typedef struct mla_timing_record {
    uint64_t step, epoch;
    double seconds, images_per_second, evaluation_seconds, diagnostics_seconds;
    uint64_t peak_memory_bytes;
} mla_timing_record;

/* Creates `folder` (and parents) for a new run; an existing folder that holds a run is MLA_INVALID and says so
 * (resume, or another --out).  Writes config.yaml and, unless NULL, finetune.json (train/finetune.h) atomically. */
MLA_MUST_CHECK mla_status mla_runlog_create(mla_runlog **log, const char *folder, const char *config_text,
                                            const char *finetune_text, mla_error *error);
/* Opens an existing run's log for going on after `step`, with `epochs` of them completed: later lines and a cut last
 * line move to log.dropped.jsonl (timing.dropped.jsonl), later checkpoints are renamed to dropped-step-*, and a later best
 * one to dropped-best.safetensors.  The epoch line of the same step is a later one too when that epoch is not completed: it
 * is written after its last step.  A damaged line of either log is MLA_INVALID with file and line, and then nothing has been
 * moved.  Step 0 starts the run over. */
MLA_MUST_CHECK mla_status mla_runlog_resume(mla_runlog **log, const char *folder, uint64_t step, uint64_t epochs,
                                            mla_error *error);
void mla_runlog_close(mla_runlog *log);

/* Each line is written with one write(2).  Numbers: shortest text that reads back to the same double, C locale. */
MLA_MUST_CHECK mla_status mla_runlog_step(mla_runlog *log, const mla_step_record *record, mla_error *error);
MLA_MUST_CHECK mla_status mla_runlog_epoch(mla_runlog *log, const mla_epoch_record *record, mla_error *error);
MLA_MUST_CHECK mla_status mla_runlog_timing(mla_runlog *log, const mla_timing_record *record, mla_error *error);
MLA_MUST_CHECK mla_status mla_runlog_layers(mla_runlog *log, const mla_layers_record *record, mla_error *error);
/* From now on the numbers of all lines also go to a new TensorBoard event file; the next line is of step `next_step`. */
MLA_MUST_CHECK mla_status mla_runlog_tensorboard(mla_runlog *log, uint64_t next_step, mla_error *error);
/* Makes the log durable; called before a checkpoint is written, so that a checkpoint never is ahead of its log. */
MLA_MUST_CHECK mla_status mla_runlog_sync(mla_runlog *log, mla_error *error);

/* Removes all but the `keep` newest step-*.safetensors (best.safetensors stays) and left-over temporary files. */
void mla_runlog_prune(const char *folder, int keep);

#endif
