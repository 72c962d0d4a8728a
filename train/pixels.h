/* Changes of 8-bit images, to the last bit those of PIL 9.4 (ImageOps, ImageEnhance, Image.transform with AFFINE).
 *
 * An image is (3, size, size) planar RGB in `now`; operations that can't work in place write to `spare`, of the same
 * size, and swap the two.  Nothing is allocated.  The file is compiled without contraction to fused multiplies, as its
 * results are cut to whole numbers: so pixels are the same on any machine.
 */
#ifndef MLA_TRAIN_PIXELS_H
#define MLA_TRAIN_PIXELS_H

#include <stdint.h>

#include "train/config.h"

typedef struct mla_pixels {
    uint8_t *now, *spare; /* the caller's */
    int size;
} mla_pixels;

/* ImageOps: each channel stretched to 0 .. 255; each channel's histogram made flat; 255 - v. */
void mla_pixels_autocontrast(mla_pixels *p);
void mla_pixels_equalize(mla_pixels *p);
void mla_pixels_invert(mla_pixels *p);
/* ImageOps: the upper `bits` are kept (up to 0: black, from 8 on: all); values from `threshold` on are inverted. */
void mla_pixels_posterize(mla_pixels *p, int bits);
void mla_pixels_solarize(mla_pixels *p, int threshold);
/* timm: `add` >= 0 is added to values below 128, up to 255. */
void mla_pixels_solarize_add(mla_pixels *p, int add);

/* ImageEnhance, factor 1 = as it was: away from grey, from the mean grey, from black, from the image smoothed 3 x 3. */
void mla_pixels_color(mla_pixels *p, double factor);
void mla_pixels_contrast(mla_pixels *p, double factor);
void mla_pixels_brightness(mla_pixels *p, double factor);
void mla_pixels_sharpness(mla_pixels *p, double factor);

/* torchvision's adjust_hue: the hue of PIL's HSV turns by `share` of the circle, -0.5 .. 0.5. */
void mla_pixels_hue(mla_pixels *p, double share);

/* Image.transform(AFFINE): out(x, y) = in(a0 x + a1 y + a2, a3 x + a4 y + a5) at pixel centres; `fill` (R, G, B) outside. */
void mla_pixels_affine(mla_pixels *p, const double a[6], mla_interpolation filter, const uint8_t fill[3]);
/* Image.rotate: counter-clockwise about the centre. */
void mla_pixels_rotate(mla_pixels *p, double degrees, mla_interpolation filter, const uint8_t fill[3]);

#endif
