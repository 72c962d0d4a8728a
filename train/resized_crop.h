/* Random resized crop (Szegedy et al., arXiv 1409.4842) as torchvision and timm have it.
 *
 * Up to ten times an area of the image times U(scale) and a ratio exp(U(log ratio)) of width over height are drawn, with
 * sides rounded to pixels; the first that fits lies anywhere in the image.  If none does, the largest centred part whose
 * ratio is allowed is taken.  The part is resized as PIL does it, to the last bit.  Memory is taken for each image.
 */
#ifndef MLA_TRAIN_RESIZED_CROP_H
#define MLA_TRAIN_RESIZED_CROP_H

#include "train/image.h"

/* The stream (seed, MLA_RNG_CROP, epoch, sample) and what is drawn from it. */
typedef struct mla_crop_name {
    const mla_augment_config *augment;
    uint64_t seed, epoch, sample;
} mla_crop_name;

typedef struct mla_crop_draw {
    int left, top, width, height;
    mla_interpolation filter;
} mla_crop_draw;

bool mla_resized_crop_on(const mla_augment_config *augment);

/* The filter that a config's choice and a uniform number give. */
mla_interpolation mla_augment_filter_of(mla_augment_filter choice, double uniform);

/* From an image of these sides. */
mla_crop_draw mla_resized_crop_draw(const mla_crop_name *name, int width, int height);

/* -> pixels (3, size, size). */
MLA_MUST_CHECK mla_status mla_resized_crop(uint8_t *pixels, int size, const mla_image *image, const mla_crop_name *name,
                                           mla_error *error);
/* The same in place. */
MLA_MUST_CHECK mla_status mla_resized_crop_planes(uint8_t *pixels, int size, const mla_crop_name *name, mla_error *error);

#endif
