/* RandAugment (Cubuk et al., arXiv 1909.13719) in timm's form, `rand-m9-n2-mstd0.5-inc1`.
 *
 * n operations are drawn, with replacement, out of fifteen; each is applied with probability p, at a magnitude drawn from
 * a normal distribution (m, mstd) and clipped to 0 .. mmax.  With L = magnitude / 10 the argument is, ± with equal chance:
 *
 *     AutoContrast, Equalize, Invert      none
 *     Rotate ±30 L degrees      ShearX, ShearY ±0.3 L      TranslateX, TranslateY ±0.45 L of the side
 *     SolarizeAdd int(110 L)    with `inc`: more magnitude, more change    without: the older levels
 *     Posterize                 4 - int(4 L) bits                           int(4 L) bits
 *     Solarize                  256 - int(256 L)                            int(256 L)
 *     Color, Contrast, Brightness, Sharpness   max(0.1, 1 ± 0.9 L)          0.1 + 1.8 L
 */
#ifndef MLA_TRAIN_RANDAUG_H
#define MLA_TRAIN_RANDAUG_H

#include "core/rng.h"
#include "train/pixels.h"

typedef enum mla_randaug_operation {
    MLA_AUG_AUTOCONTRAST,
    MLA_AUG_EQUALIZE,
    MLA_AUG_INVERT,
    MLA_AUG_ROTATE,
    MLA_AUG_POSTERIZE,
    MLA_AUG_SOLARIZE,
    MLA_AUG_SOLARIZE_ADD,
    MLA_AUG_COLOR,
    MLA_AUG_CONTRAST,
    MLA_AUG_BRIGHTNESS,
    MLA_AUG_SHARPNESS,
    MLA_AUG_SHEAR_X,
    MLA_AUG_SHEAR_Y,
    MLA_AUG_TRANSLATE_X,
    MLA_AUG_TRANSLATE_Y,
    MLA_AUG_COUNT
} mla_randaug_operation;

typedef struct mla_randaug_draw {
    mla_randaug_operation operation;
    bool applied, negative;
    double magnitude; /* 0 .. mmax */
    mla_interpolation filter;
} mla_randaug_draw;

/* The next operation of a stream.  Everything is drawn for each, so that one does not depend on those before it. */
mla_randaug_draw mla_randaug_next(mla_rng *rng, const mla_randaug_config *config, mla_augment_filter filter);

/* Applies one operation; `fill` is the colour of what lies outside the image. */
void mla_randaug_apply(mla_pixels *p, const mla_randaug_draw *draw, bool increasing, const uint8_t fill[3]);

/* All of it, for an image named (seed, epoch, sample). */
void mla_randaug(mla_pixels *p, const mla_randaug_config *config, mla_augment_filter filter, const uint8_t fill[3],
                 uint64_t seed, uint64_t epoch, uint64_t sample);

#endif
