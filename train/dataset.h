/* Data sets: images as bytes, by index.
 *
 * An open data set is read-only and may be read by any number of threads at once.  Images come as planar
 * RGB bytes of the data set's own size or, for folders of files of any size, resized and centre-cropped to
 * `size` as PIL would (mla_dataset_open says which).  Reading is part of a shard's work, so nothing is queued.
 *
 *     mla_dataset *train;
 *     if (mla_dataset_open(&train, &config.data, MLA_SPLIT_TRAIN, config.train.seed, &error) != MLA_OK) ...
 *     uint8_t pixels[3 * 32 * 32];
 *     int label;
 *     mla_dataset_read(train, index, epoch, pixels, &label, &error);
 *     mla_dataset_close(train);
 */
#ifndef MLA_TRAIN_DATASET_H
#define MLA_TRAIN_DATASET_H

#include <stdint.h>

#include "core/real.h"
#include "core/status.h"
#include "train/config.h"

typedef enum mla_split { MLA_SPLIT_TRAIN, MLA_SPLIT_TEST } mla_split;
typedef struct mla_dataset mla_dataset;

typedef struct mla_dataset_info {
    size_t count; /* images of the split (of the subset, for the training split) */
    int classes;
    int size;                 /* side of the images that mla_dataset_read gives, pixels */
    double mean[3], std[3];   /* the constants used for normalisation (the set's own, or the config's) */
    const char *const *names; /* class names, `classes` of them, UTF-8 */
    const char *source;       /* where the data came from: a path, or "generated" */
    const char *note;         /* what was left out while opening, one sentence for people; NULL = nothing */
} mla_dataset_info;

/* Opens one split.  `seed` matters for generated sets and for the subset.  On success the caller owns *dataset
 * and closes it; on failure *dataset is NULL. */
MLA_MUST_CHECK mla_status mla_dataset_open(mla_dataset **dataset, const mla_data_config *config, mla_split split,
                                           uint64_t seed, mla_error *error);
void mla_dataset_close(mla_dataset *dataset); /* NULL is allowed */

const mla_dataset_info *mla_dataset_get_info(const mla_dataset *dataset);

/* Image `index` of the split: pixels (3, size, size) planar RGB, label in 0 .. classes - 1.  `epoch` matters
 * for generated training sets alone.  With on_error: skip, *label is -1 for an unreadable image and the pixels
 * are zero; with substitute the next readable image stands in; the count of such images is kept (below). */
MLA_MUST_CHECK mla_status mla_dataset_read(const mla_dataset *dataset, size_t index, uint64_t epoch, uint8_t *pixels,
                                           int *label, mla_error *error);

/* The same for a random part of the image as it is stored, resized to the set's size (resized_crop.h).  `name` names the
 * random stream together with (seed, epoch). */
MLA_MUST_CHECK mla_status mla_dataset_read_part(const mla_dataset *dataset, size_t index, uint64_t epoch,
                                                const mla_augment_config *augment, uint64_t seed, uint64_t name,
                                                uint8_t *pixels, int *label, mla_error *error);

/* Images that could not be read since the set was opened (on_error: skip or substitute). */
size_t mla_dataset_unreadable(const mla_dataset *dataset);

/* Sends class names stored elsewhere (a checkpoint's) through the data set: labels are given in the order of
 * `names`, by name, never by a fresh sort.  MLA_INVALID when a class of the data set is not among them. */
MLA_MUST_CHECK mla_status mla_dataset_map_classes(mla_dataset *dataset, const char *const *names, int count,
                                                  mla_error *error);

/* Order of a training epoch: a permutation of 0 .. count - 1 that depends on (seed, epoch) alone. */
void mla_shuffle(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch);

/* Training: random crop of the zero-padded image and flip, drawn from (seed, epoch, sample), then normalise;
 * evaluation (augment NULL): normalise alone.  pixels (3, size, size) -> out (3, size, size),
 * (x / 255 - mean) / std. */
void mla_image_prepare(real *out, const uint8_t *pixels, int size, const double mean[3], const double std[3],
                       const mla_augment_config *augment, uint64_t seed, uint64_t epoch, uint64_t sample);

#endif
