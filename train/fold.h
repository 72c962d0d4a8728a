/* Folding for inference: isometries that are the same for every token and image go into the q, k, v projection.
 *
 * The mirror's block isometry always is; the isometry across heads is when no angle stands between the two
 * (mirror.variance_angle off).  Both turn rows of the projection's weight and bias, as block_reflect does in training.
 */
#ifndef MLA_TRAIN_FOLD_H
#define MLA_TRAIN_FOLD_H

#include "core/params.h"
#include "train/config.h"

typedef struct mla_folded {
    bool *gone;             /* (entries) parameters that the folded model does not have */
    int blocks, cross;      /* isometries folded, over all layers */
    size_t tensors, values; /* that are gone */
} mla_folded;

/* Folds what can be folded in params->value, in place, and takes it out of `config` (mirror.reflections 0, mirror.cross_head
 * 0).  Nothing to fold is no error: blocks and cross are 0 then.  mla_folded_free releases *folded. */
MLA_MUST_CHECK mla_status mla_fold(mla_folded *folded, mla_params *params, mla_config *config, mla_error *error);
void mla_folded_free(mla_folded *folded);

#endif
