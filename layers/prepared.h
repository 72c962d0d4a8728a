/* Parameters made ready for a step: what is the same for every shard is computed once, not once a shard.
 *
 * - The block isometry of the mirror is folded into the weight and bias of its projection (autograd/ops/block_reflect.c),
 *   so that it costs nothing a token.
 * - The matrices of linear layers are packed for the products of core/panel.h, forward and backward.
 *
 *     mla_prepared_update(prepared, params->value, threads);       after each update of the weights
 *     mla_tape_begin(tape, params, params->value, gradient);
 *     mla_prepared_use(prepared, tape);                            shards run, on any number of tapes
 *     mla_prepared_gradient(prepared, params->value, gradient);    once, for the sum of all shards
 *
 * A tape without it computes the same function from the parameters as they are; so does its gradient, up to rounding.
 */
#ifndef MLA_LAYERS_PREPARED_H
#define MLA_LAYERS_PREPARED_H

#include "layers/model.h"

typedef struct mla_prepared mla_prepared;

/* For a model, which must outlive it.  Memory: the matrices twice, and the folded projections. */
MLA_MUST_CHECK mla_status mla_prepared_new(mla_prepared **prepared, const mla_model *model, mla_error *error);
void mla_prepared_free(mla_prepared *prepared); /* NULL is allowed */

/* Folds and packs `values`, a flat buffer in the model's layout; the same bits for any number of threads. */
void mla_prepared_update(mla_prepared *prepared, const real *values, int threads);

/* Lets a tape that has begun take the prepared forms, until it begins anew. */
void mla_prepared_use(const mla_prepared *prepared, mla_tape *tape);

/* Turns a gradient with respect to the folded projections, as shards add it up, into one with respect to the parameters:
 * in place, with the part of the reflection vectors added.  `values` as given to update. */
void mla_prepared_gradient(const mla_prepared *prepared, const real *values, real *gradient);

size_t mla_prepared_bytes(const mla_prepared *prepared);

#endif
