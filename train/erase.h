/* Random erasing (Zhong et al., arXiv 1708.04896) in timm's form: after normalisation. */
#ifndef MLA_TRAIN_ERASE_H
#define MLA_TRAIN_ERASE_H

#include <stdint.h>

#include "core/real.h"
#include "train/config.h"

/* With probability `erase`, 1 to erase_count rectangles of image (3, size, size), named (seed, epoch, sample).  A
 * rectangle has area size^2 U(erase_area) / count and height over width exp(U(log erase_aspect)); of ten tries the first
 * that is smaller than the image on both sides is taken.  It is filled with 0, a normal colour, or normal noise. */
void mla_erase(real *image, int size, const mla_augment_config *config, uint64_t seed, uint64_t epoch, uint64_t sample);

#endif
