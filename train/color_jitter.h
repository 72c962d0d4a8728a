/* Colour jitter as torchvision's ColorJitter does it with PIL images. */
#ifndef MLA_TRAIN_COLOR_JITTER_H
#define MLA_TRAIN_COLOR_JITTER_H

#include "train/pixels.h"

/* What is done, in this order. */
typedef enum mla_jitter_part {
    MLA_JITTER_BRIGHTNESS,
    MLA_JITTER_CONTRAST,
    MLA_JITTER_SATURATION,
    MLA_JITTER_HUE
} mla_jitter_part;
typedef struct mla_jitter_draw {
    bool applied;
    mla_jitter_part order[4];
    double amount[4]; /* by part: factors, and the turn of the hue */
} mla_jitter_draw;

/* Factors from max(0, 1 - j) .. 1 + j, a turn of -h .. h, and the order, for an image named (seed, epoch, sample). */
mla_jitter_draw mla_jitter_of(const mla_augment_config *config, uint64_t seed, uint64_t epoch, uint64_t sample);
/* Parts that the config has off are left out. */
void mla_jitter_apply(mla_pixels *p, const mla_jitter_draw *draw, const mla_augment_config *config);

#endif
