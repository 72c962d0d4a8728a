/* A run that starts from weights instead of from its seed.
 *
 * The run folder's finetune.json says which: {"checkpoint": path, "weights": "raw" or "average", "weight_hash": hash of the
 * run's own first weights}.  A run that is resumed before its first checkpoint takes them again, and they must be the same.
 */
#ifndef MLA_TRAIN_FINETUNE_H
#define MLA_TRAIN_FINETUNE_H

#include "train/loaded.h"

typedef struct mla_finetune {
    char checkpoint[MLA_PATH_BYTES]; /* absolute */
    mla_weights weights;             /* raw or average */
    char weight_hash[17];
} mla_finetune;

/* Fills params->value, which holds initial weights, from the checkpoint or export at `path`, for `classes`; what does not
 * fit `config`'s model is refused (train/adapt.h).  Fills in *record. */
MLA_MUST_CHECK mla_status mla_finetune_start(mla_finetune *record, mla_params *params, const mla_config *config,
                                             const mla_class_info *classes, const char *path, mla_weights weights,
                                             mla_error *error);

/* The text of finetune.json; the caller frees it, NULL when out of memory. */
char *mla_finetune_text(const mla_finetune *record);
/* Reads a run folder's; *found is false when it has none. */
MLA_MUST_CHECK mla_status mla_finetune_read(mla_finetune *record, bool *found, const char *folder, mla_error *error);

#endif
