/* Mixup (Zhang et al., arXiv 1710.09412) and CutMix (Yun et al., arXiv 1905.04899) in timm's form.
 *
 * Image i of a batch of B is mixed with image B - 1 - i, both normalised; of an odd batch the middle one stays as it is:
 *
 *     Mixup    share x_i + (1 - share) x_j                     share ~ Beta(mixup, mixup)
 *     CutMix   x_i with a box of x_j in it                     box of area 1 - u, u ~ Beta(cutmix, cutmix), about a place
 *                                                              anywhere in the image and cut at its edges;
 *                                                              share = 1 - area that is left of the box
 *     labels   share y_i + (1 - share) y_j, smoothed afterwards (mla_cross_entropy_mixed)
 *
 * With cutmix_minmax each side of the box is drawn evenly between the two bounds, and the box lies inside the image.
 * The draw is named by its place in the epoch: the batch's, the pair's or the image's first, as mixup_mode says.
 */
#ifndef MLA_TRAIN_MIX_H
#define MLA_TRAIN_MIX_H

#include <stdint.h>

#include "core/real.h"
#include "train/config.h"

typedef struct mla_mix {
    double share; /* of the image itself; 1: it stays as it is */
    bool cut;     /* CutMix: rows top .. bottom - 1, columns left .. right - 1 are the other's */
    int top, bottom, left, right;
} mla_mix;

/* Whether the config mixes in this epoch, counted from 0. */
bool mla_mix_on(const mla_augment_config *config, uint64_t epoch);

/* How image `place` of a batch of `batch`, which starts at place `first` of the epoch, is mixed. */
mla_mix mla_mix_of(const mla_augment_config *config, int size, uint64_t seed, uint64_t epoch, uint64_t first, uint64_t place,
                   uint64_t batch);

/* image, other (3, size, size). */
void mla_mix_apply(real *image, const real *other, int size, const mla_mix *mix);

#endif
