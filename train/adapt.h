/* Weights of one model into another: by name, strictly, with every difference told.
 *
 * A source is a list of tensors: those of a checkpoint or export of this project (verified, the raw weights or the average),
 * or of any other safetensors file.  Adapting fills the parameters of a model from it.  Equal name and shape: copied, and
 * widened to F32.  Three things are converted without being asked, each told on stderr:
 *
 *   pos_embed of another token grid    interpolated, bicubic with PIL's filter (what timm's loading does); rows of class,
 *                                      distillation and register tokens, which this project's models do not have, are left
 *                                      out, but those tokens themselves must be dropped by name
 *   head of other classes              rows are taken by class name where the source names all that are needed; else, with
 *                                      another number of classes or other names, the head keeps its initial values
 *   tensor type                        F64, F16 and BF16 become F32
 *
 * Everything else that does not fit is listed on stderr and refused, unless a rule names it.
 */
#ifndef MLA_TRAIN_ADAPT_H
#define MLA_TRAIN_ADAPT_H

#include "train/cli.h"
#include "train/loaded.h"

typedef struct mla_source {
    const char *path;
    mla_file_tensor *tensor; /* of float types or others; names and data belong to `loaded` or `file` */
    size_t count;
    mla_loaded loaded;     /* a file of this project: config, classes, verified weights */
    mla_safetensors *file; /* any other */
} mla_source;

/* `weights` chooses between those of a checkpoint; of a file of another tool it must be auto. */
MLA_MUST_CHECK mla_status mla_source_open(mla_source *source, const char *path, mla_weights weights, mla_error *error);
void mla_source_close(mla_source *source);

/* Patterns are those of the shell (* ? [...]; * also matches dots). */
typedef struct mla_adapt_rules {
    mla_cli_list allow_missing; /* parameters that may keep their initial values */
    mla_cli_list drop;          /* tensors of the source that are left out, under the source's names */
    mla_cli_list rename;        /* FROM=TO: the start FROM of a tensor's name becomes TO */
} mla_adapt_rules;

typedef struct mla_adapted {
    size_t taken, dropped, fresh; /* tensors; fresh: parameters that kept their initial values */
    bool new_head;
} mla_adapted;

/* Fills params->value, which holds initial weights, for a model of `classes`.  Notes and lists go to stderr.  MLA_INVALID
 * when something does not fit, a rule matches nothing, or a value is not finite; then nothing has been written. */
MLA_MUST_CHECK mla_status mla_adapt(mla_adapted *adapted, mla_params *params, const mla_class_info *classes,
                                    const mla_source *source, const mla_adapt_rules *rules, mla_error *error);

/* Keys of `model` that differ between the source's config, if it has one, and `config`: what the same weights then compute
 * is something else, which no tensor can tell.  One line each on stderr. */
void mla_source_tell_config(const mla_source *source, const mla_config *config);

/* in (side_in^2, channels) -> out (side_out^2, channels), as torch's interpolate(mode='bicubic', antialias=True). */
MLA_MUST_CHECK mla_status mla_positions_resize(float *out, int side_out, const float *in, int side_in, size_t channels,
                                               mla_error *error);

#endif
