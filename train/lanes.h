/* Shards on lanes: the parallel part of a training step.
 *
 * A batch is cut into shards of a few images; one thread runs forward and backward of a shard by itself, on its own tape.
 * Shard s belongs to lane s mod L; a lane's shards are run in order by one thread, into the lane's flat gradient; the
 * lanes' gradients are summed in a fixed binary tree, folded as lanes finish.  Which thread runs a lane changes nothing,
 * so the gradient has the same bits for any number of threads.
 *
 *     batch of 128 -> 32 shards of 4 -> 8 lanes, dealt to threads -> tree sum -> one gradient
 *
 *     mla_engine *engine;
 *     if (mla_engine_new(&engine, model, &(mla_engine_options){.threads = 2, .lanes = 8, .shard = 8}, &error) != MLA_OK) ...
 *     mla_batch_result result;
 *     if (mla_engine_gradient(engine, &source, 128, 0.1, &result, &error) != MLA_OK) ...
 *     use result.gradient; it is the engine's and is given up by the next call
 *     mla_engine_free(engine);
 *
 * After the first step an engine allocates nothing.
 */
#ifndef MLA_TRAIN_LANES_H
#define MLA_TRAIN_LANES_H

#include <signal.h>
#include <stdint.h>

#include "autograd/profile.h"
#include "layers/model.h"
#include "train/shard.h"

typedef struct mla_engine mla_engine;

typedef struct mla_engine_options {
    int threads; /* at least 1; more than lanes are not used in training */
    int lanes;   /* a power of two */
    int shard;   /* images */
} mla_engine_options;

/* Where images come from.  `load` is called by any thread, for `count` neighbouring images of the batch (or set) from
 * `first` on: writes the shard's images, labels and samples, and others and shares of what it mixes (shares are 1 before).
 */
typedef struct mla_image_source {
    mla_status (*load)(void *context, size_t first, size_t count, mla_shard *shard, mla_error *error);
    void *context;
    uint64_t seed, epoch; /* for drop path */
} mla_image_source;

typedef struct mla_batch_result {
    double loss_sum;          /* over the images used: of the logits, without what layers add to it */
    double retention_sum;     /* over the images used: mla_model_retention, 0 for models without that loss */
    uint64_t images, correct; /* images used; those whose largest logit is the label's, of mixed ones mla_shard_answer */
    real *gradient;           /* of the mean loss over the images used, up to `scale`; engine's */
    double scale;             /* multiply the gradient by it: 1 unless images were left out */
} mla_batch_result;

MLA_MUST_CHECK mla_status mla_engine_new(mla_engine **engine, const mla_model *model, const mla_engine_options *options,
                                         mla_error *error);
void mla_engine_free(mla_engine *engine); /* NULL is allowed */

/* One batch of `count` images: loss with label smoothing and its gradient with respect to the model's parameters.
 * MLA_NOT_FINITE names layer and operation of the first value that is not finite.  When every image was left out,
 * result->images is 0 and there is no gradient. */
MLA_MUST_CHECK mla_status mla_engine_gradient(mla_engine *engine, const mla_image_source *source, size_t count,
                                              double label_smoothing, mla_batch_result *result, mla_error *error);

/* `count` images without gradient or smoothing, with `values` as the weights; `logits` (count, classes) or NULL. Ends early
 * with MLA_INTERRUPTED when *stop becomes non-zero (NULL: never). */
MLA_MUST_CHECK mla_status mla_engine_evaluate(mla_engine *engine, const mla_image_source *source, size_t count,
                                              const real *values, real *logits, const volatile sig_atomic_t *stop,
                                              mla_batch_result *result, mla_error *error);

/* What an engine has come to need, bytes. */
typedef struct mla_engine_memory {
    size_t tape;                           /* activations, gradients and scratch of the largest shard: one a thread */
    size_t tapes, lane_gradients, loading; /* of all threads: tapes, gradients of lanes, images of a shard */
    size_t prepared;                       /* weights folded and packed for a step */
} mla_engine_memory;
mla_engine_memory mla_engine_memory_of(const mla_engine *engine);

/* Where the threads' time in mla_engine_gradient goes.  What is left to the threads' whole time, they waited. */
typedef enum mla_engine_part { MLA_PART_LOAD, MLA_PART_FORWARD, MLA_PART_BACKWARD, MLA_PART_SUM, MLA_PARTS } mla_engine_part;
typedef struct mla_engine_profile {
    mla_profile operations;
    uint64_t ns[MLA_PARTS];
} mla_engine_profile;
/* Starts or ends the taking of times, which costs a few readings of the clock an operation. */
void mla_engine_profile_set(mla_engine *engine, bool on);
/* Sums over the threads since the last call; times start from zero again. */
void mla_engine_profile_take(mla_engine *engine, mla_engine_profile *sum);

/* Allocations of the engine and its tapes since it was made; constant after the first step. */
size_t mla_engine_allocations(const mla_engine *engine);

#endif
