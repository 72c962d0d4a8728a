/* Weights for other tools: one row a format.
 *
 * A format writes the weights of a loaded checkpoint to one file, whole or not at all.  Another format is one file of
 * train/ and one row of the table in cmd_export.c.
 */
#ifndef MLA_TRAIN_EXPORT_H
#define MLA_TRAIN_EXPORT_H

#include "train/fold.h"
#include "train/loaded.h"

typedef struct mla_export_options {
    mla_dtype dtype;          /* MLA_F32, MLA_BF16 or MLA_F16 */
    bool average;             /* which weights `value` holds, for the metadata */
    const mla_folded *folded; /* what was folded into them, NULL: nothing */
} mla_export_options;

/* Safetensors under the state_dict names, with metadata but without the training state.  `value` is a buffer in the layout
 * of *params, `checkpoint` what it came from, its config the one to store.  Types narrower than F32 are rounded to nearest,
 * ties to even, while they are written: no second copy of the weights is made.  MLA_INVALID names the tensor with a value
 * that is too large for the type; then no file is touched. */
MLA_MUST_CHECK mla_status mla_export_safetensors(const char *path, const mla_params *params, const real *value,
                                                 const mla_checkpoint *checkpoint, const mla_export_options *options,
                                                 mla_error *error);

#endif
