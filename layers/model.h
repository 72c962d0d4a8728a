/* Models: images to logits.
 *
 *     mla_model *model;
 *     if (mla_model_new(&model, &config.model, &error) != MLA_OK) ...
 *     mla_params *params = mla_model_params(model);
 *     mla_params_init(params, seed);
 *     mla_tape_begin(tape, params, params->value, gradient);
 *     mla_var logits = mla_model_forward(model, tape, mla_tape_input(tape, images), &forward);
 *     mla_model_free(model);
 *
 * A model holds no values but its parameters and may be used by several tapes at once.  Another family is one file in
 * layers/models/ and one row of the table in layers/model.c; another attention kind one row of the table in
 * layers/attention.c.
 */
#ifndef MLA_LAYERS_MODEL_H
#define MLA_LAYERS_MODEL_H

#include "layers/layers.h"

typedef struct mla_model mla_model;

/* Checks the spec (MLA_INVALID says what does not fit), declares and allocates the parameters (zeros). */
MLA_MUST_CHECK mla_status mla_model_new(mla_model **model, const mla_model_spec *spec, mla_error *error);
/* The same without memory for the weights: a spec from a file may ask for any amount, and its names and shapes can be
 * compared with the file first.  mla_params_allocate(mla_model_params(model)) makes the model whole. */
MLA_MUST_CHECK mla_status mla_model_declare(mla_model **model, const mla_model_spec *spec, mla_error *error);
void mla_model_free(mla_model *model); /* NULL is allowed */

mla_params *mla_model_params(mla_model *model); /* owned by the model */
const mla_model_spec *mla_model_get_spec(const mla_model *model);

/* What forward applies, in order, for code that walks a model without running it; owned by the model. */
typedef struct mla_model_parts {
    const mla_stage *stage;
    int stages;
    mla_norm_layer norm; /* after the token mean */
    mla_linear_layer head;
} mla_model_parts;
mla_model_parts mla_model_get_parts(const mla_model *model);

/* Images (B, 3, S, S), normalised -> logits (B, classes). */
mla_var mla_model_forward(const mla_model *model, mla_tape *tape, mla_var images, const mla_forward *forward);

/* The loss that is trained, from that of the logits: plus mirror.retention_loss times the mean over the layers of what they
 * marked on the tape (mla_retention).  loss (B) -> (B); without such a loss, `loss` itself. */
mla_var mla_model_loss(const mla_model *model, mla_tape *tape, mla_var loss);
/* That mean for image b, without its weight; 0 when the model has no such loss. */
double mla_model_retention(const mla_tape *tape, size_t b);

/* Images of a shard for `train.shard: auto`: the power of two, at most 16, whose tokens of the first stage take about 64 Ki
 * reals, so that activations are met again in the cache; a function of the model alone, never of the machine. */
int mla_model_auto_shard(const mla_model_spec *spec);

/* ---- for the files in layers/models/ */
typedef struct mla_family_row {
    const char *name;
    /* Largest number of stages, and whether patch embeddings have a norm. */
    int max_stages;
    bool embed_norm;
    /* Prefix of stage i's parameter names, "" or ending in '.'. */
    void (*stage_prefix)(char out[MLA_PARAM_NAME_BYTES], int stage);
} mla_family_row;
extern const mla_family_row mla_family_vit, mla_family_pvt;

#endif
