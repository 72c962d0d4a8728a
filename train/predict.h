/* Class scores of image files, in order and in bounded memory.
 *
 * Files are read, resized and normalised as in evaluation, a few shards of them at a time, by the threads that run the
 * shards (train/lanes.h); each round's results are then handed over in order.  Logits are those of `mirrorla eval` on the
 * same images in the same order, bit for bit; in another company of images they may differ by rounding, as matrix products
 * of another height do.
 */
#ifndef MLA_TRAIN_PREDICT_H
#define MLA_TRAIN_PREDICT_H

#include <signal.h>

#include "train/image_list.h"
#include "train/image.h"
#include "train/loaded.h"

typedef struct mla_prediction {
    const char *path;
    const char *failure; /* why there is no result, one sentence that begins with the path; NULL: there is one */
    const real *logits;  /* (classes) */
    size_t classes;
    double *probability; /* (classes), softmax of the logits */
    int *order;          /* (classes), classes from the most probable on; of equals the first comes first */
} mla_prediction;

/* Called for each image in turn; what it points to is valid during the call. */
typedef mla_status mla_prediction_sink(void *context, const mla_prediction *prediction, mla_error *error);

/* Ends early when the sink fails, with MLA_INTERRUPTED when *stop becomes non-zero, or out of memory; an image that can't
 * be read is a prediction with a failure. */
MLA_MUST_CHECK mla_status mla_predict(const mla_loaded *loaded, const mla_image_list *list, int threads,
                                      const volatile sig_atomic_t *stop, mla_prediction_sink *sink, void *context,
                                      mla_error *error);

/* What the model sees of an image: pixels (3, S, S), resized and cropped as in evaluation, S the checkpoint's size. */
MLA_MUST_CHECK mla_status mla_predict_fit(uint8_t *pixels, const mla_image *image, const mla_checkpoint *checkpoint,
                                          mla_error *error);

#endif
