/* From a data set's bytes to what the model sees in training.
 *
 *     resized crop               resized_crop.h, of the image as stored, by the loader
 *     or padded crop; flip       mla_image_prepare's, from the stream MLA_RNG_AUGMENT
 *     RandAugment                randaug.h, on bytes; outside the image lies the data set's mean colour
 *     colour jitter              color_jitter.h, on bytes; with RandAugment only if forced, as in timm
 *     normalise                  (x / 255 - mean) / std
 *     random erasing             erase.h
 *     Mixup, CutMix              mix.h, with the batch's other images (loader.h)
 *
 * Each has a random stream of its own, so that switching one off leaves the others' draws as they were.
 */
#ifndef MLA_TRAIN_AUGMENT_H
#define MLA_TRAIN_AUGMENT_H

#include "train/dataset.h"

/* All of it up to erasing, for one image.  `pixels` holds three images of (3, size, size): the data set's in the first,
 * room to work in the others -> out (3, size, size). */
enum { MLA_AUGMENT_BUFFERS = 3 };
void mla_image_augment(real *out, uint8_t *pixels, int size, const double mean[3], const double std[3],
                       const mla_augment_config *augment, uint64_t seed, uint64_t epoch, uint64_t sample);

/* One line for people, such as "crop padding 4, flip 0.5, mixup 0.8", or "none". */
enum { MLA_AUGMENT_TEXT_BYTES = 512 };
void mla_augment_describe(const mla_augment_config *augment, char out[MLA_AUGMENT_TEXT_BYTES]);

#endif
