/* Checkpoints: everything a run needs to go on, bit for bit, in one safetensors file.
 *
 * Tensors: the weights under their state_dict names; `optim.exp_avg.NAME` and `optim.exp_avg_sq.NAME` (AdamW) or
 * `optim.momentum.NAME` (SGD); `ema.NAME` when a weight average is kept.  All are F32 in PyTorch's shapes.
 * __metadata__ (strings): format "pt", mirrorla.checkpoint "1", mirrorla.version, config (the resolved YAML),
 * counters (JSON), classes (JSON list), mean, std (JSON lists), size, weight_hash (16 hex digits), crc32 (JSON object
 * name -> 8 hex digits; the entry "__metadata__" covers the metadata itself).  Opening verifies every CRC, loading
 * every name, every shape, that weights are finite, and the weight hash, before anything is copied.  The weight hash is
 * that of the stored bytes (mla_params_hash; of an export in another type, of the bytes of that type).
 * Imported weights are a checkpoint at step 0 without optimiser state and average.
 * Random numbers are counter-based (core/rng.h): the counters and the config's seed are the whole random state.
 */
#ifndef MLA_TRAIN_CHECKPOINT_H
#define MLA_TRAIN_CHECKPOINT_H

#include "core/params.h"
#include "train/config.h"
#include "train/safetensors.h"

/* Where a run stands.  Sums of the running epoch are kept so that its log line is the same after a resume. */
typedef struct mla_counters {
    uint64_t step;          /* optimiser updates done in all */
    uint64_t epoch;         /* running epoch, 0-based */
    uint64_t step_in_epoch; /* updates done in it */
    double epoch_loss_sum;  /* over the images of the running epoch so far */
    uint64_t epoch_correct, epoch_images;
    uint64_t best_correct, best_images, best_epoch; /* best test result so far, of so many test images; best_epoch
                                                       counts from 1, 0 = none yet */
} mla_counters;

/* The flat buffers of a run, in the layout of `params`; unused ones are NULL. */
typedef struct mla_run_buffers {
    real *value, *moment1, *moment2, *ema; /* SGD keeps its momentum in moment1 */
} mla_run_buffers;

typedef struct mla_class_info {
    const char *const *names;
    int count;
    double mean[3], std[3];
    int size; /* input side, pixels */
} mla_class_info;

/* Writes the file atomically (mla_safetensors_write). */
MLA_MUST_CHECK mla_status mla_checkpoint_save(const char *path, const mla_params *params, const mla_run_buffers *buffers,
                                              const mla_counters *counters, const mla_config *config,
                                              const mla_class_info *classes, mla_error *error);

#define MLA_NO_HASH "none"

/* A checkpoint opened and verified (CRC, metadata); nothing of the model is needed yet.  Exported weights open too:
 * without optimiser state, average or counters (all 0), and `config.model` complete in both cases. */
typedef struct mla_checkpoint {
    mla_safetensors *file;
    char *path;
    mla_config config;
    mla_counters counters;
    mla_class_info classes; /* owned by the checkpoint */
    char *weight_hash;      /* 16 hex digits, or MLA_NO_HASH in an export that another tool saved again and could not hash */
    bool has_ema, has_optimizer; /* has_optimizer: a run can be resumed from it */
    bool weights_only;           /* opened by mla_checkpoint_open_weights */
} mla_checkpoint;

/* Whether a safetensors file is of this project: a checkpoint or an export.  Any other holds tensors and no more; one
 * of ours in which one key is damaged is still ours, and opening it says so. */
bool mla_checkpoint_is_own(const mla_safetensors *file);

/* `overrides` change the stored config ("key=value"). */
MLA_MUST_CHECK mla_status mla_checkpoint_open(mla_checkpoint *checkpoint, const char *path, const char *const *overrides,
                                              size_t override_count, mla_error *error);
/* The same for who takes the weights or their average alone: the optimiser's moments, two thirds of the file, are neither
 * read nor verified, and loading them is a mistake of the code.  What is used is verified as ever, by its CRC or, in a file
 * without CRCs, by the weight hash. */
MLA_MUST_CHECK mla_status mla_checkpoint_open_weights(mla_checkpoint *checkpoint, const char *path, mla_error *error);
void mla_checkpoint_close(mla_checkpoint *checkpoint);

/* Whether the file has the weights (with `average` their average) of exactly these parameters, which need no memory yet; an
 * error lists the first few names. */
MLA_MUST_CHECK mla_status mla_checkpoint_fits(const mla_checkpoint *checkpoint, const mla_params *params, bool average,
                                              mla_error *error);

/* Copies the buffers that are not NULL in *buffers; a missing, unexpected or reshaped tensor is an error that
 * lists the first few names, a weight that is not finite is told by name, and then nothing has been copied. */
MLA_MUST_CHECK mla_status mla_checkpoint_load(const mla_checkpoint *checkpoint, const mla_params *params,
                                              const mla_run_buffers *buffers, mla_error *error);

/* "RUN/checkpoints/step-00000391.safetensors"; the caller frees it, NULL when out of memory. */
char *mla_checkpoint_path(const char *run_folder, uint64_t step);
/* The step in such a file's name (without folder); false for any other name. */
bool mla_checkpoint_step(uint64_t *step, const char *name);
/* Steps of a run folder's checkpoints, newest first; the caller frees *steps.  No folder: none. */
MLA_MUST_CHECK mla_status mla_checkpoint_list(uint64_t **steps, size_t *count, const char *run_folder, mla_error *error);

/* Newest readable checkpoint of a run folder's checkpoints/ by step (unreadable ones are reported on stderr and
 * passed over).  *path is the caller's to free. */
MLA_MUST_CHECK mla_status mla_checkpoint_newest(char **path, const char *run_folder, mla_error *error);

#endif
