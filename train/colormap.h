/* Colours for numbers. */
#ifndef MLA_TRAIN_COLORMAP_H
#define MLA_TRAIN_COLORMAP_H

#include <stdint.h>

typedef enum mla_colours {
    MLA_COLOURS_VIRIDIS,  /* for amounts: perceptually uniform, dark to light; matplotlib's table by S. van der Walt and
                             N. Smith, public domain (CC0) */
    MLA_COLOURS_COOL_WARM /* for signed numbers: blue, light grey at the middle, red; computed by the formula of K.
                             Moreland, "Diverging Color Maps for Scientific Visualization", ISVC 2009 */
} mla_colours;

/* 0xRRGGBB of level 0 (lowest) to 255. */
uint32_t mla_colour(mla_colours colours, int level);

#endif
