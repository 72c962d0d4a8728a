/* Images: decoding JPEG and PNG, resizing, cropping.
 *
 * Pixels come out as PIL's `Image.open(f).convert('RGB')` gives them: grey is repeated, alpha is dropped, palettes
 * are looked up, CMYK and YCCK are taken as inverted (as Adobe writes them), embedded profiles and EXIF orientation
 * are not applied.  One difference: of 16 bits a channel the upper 8 are taken, also for grey, where PIL clips
 * everything above 255 to white.
 * Resizing is PIL's too, to the last bit: a separable filter, widened when the image shrinks.
 *
 *     mla_image image;
 *     if (mla_image_load(&image, "cat.jpg", &error) != MLA_OK) ...
 *     status = mla_image_fit(pixels, &image, &config.data, &error);     // (3, size, size)
 *     mla_image_free(&image);
 */
#ifndef MLA_TRAIN_IMAGE_H
#define MLA_TRAIN_IMAGE_H

#include <stdint.h>

#include "core/status.h"
#include "train/config.h"

typedef struct mla_image {
    int width, height;
    uint8_t *rgb; /* (height, width, 3), owned */
} mla_image;

/* Decodes a file's bytes, by content and not by name; `name` is for messages.  *image is filled in on success
 * alone; the caller frees it.  A file that ends early is an error. */
MLA_MUST_CHECK mla_status mla_image_decode(mla_image *image, const uint8_t *bytes, size_t count, const char *name,
                                           mla_error *error);
/* The two decoders behind it (image_jpeg.c, image_png.c), for bytes that start as such a file does. */
MLA_MUST_CHECK mla_status mla_image_decode_jpeg(mla_image *image, const uint8_t *bytes, size_t count, const char *name,
                                                mla_error *error);
MLA_MUST_CHECK mla_status mla_image_decode_png(mla_image *image, const uint8_t *bytes, size_t count, const char *name,
                                               mla_error *error);

/* Reads and decodes the file. */
MLA_MUST_CHECK mla_status mla_image_load(mla_image *image, const char *path, mla_error *error);

/* Memory for width x height pixels; refuses sides under 1 and more than MLA_MAX_PIXELS. */
enum { MLA_MAX_PIXELS = 178956970 }; /* PIL's own limit for what it calls a decompression bomb */
MLA_MUST_CHECK mla_status mla_image_create(mla_image *image, int64_t width, int64_t height, const char *name,
                                           mla_error *error);
void mla_image_free(mla_image *image);

/* in -> out of the given sides (out is made, the caller frees it), as PIL's Image.resize. */
MLA_MUST_CHECK mla_status mla_image_resize(mla_image *out, const mla_image *in, int width, int height,
                                           mla_interpolation interpolation, mla_error *error);

/* The bicubic filter by itself: output i of `out` is the sum of weight[j] in[*first + j], j < *count, over a row of `in`
 * values.  `weight` has room for `in` of them. */
void mla_bicubic_window(double *weight, int *first, int *count, int i, int in, int out);

/* What the model sees: (3, size, size) planar.  Shorter side (or with `squash` both sides) to int(size / crop_pct),
 * then the centre crop to `size`, as torchvision's Resize and CenterCrop; an image of size x size is left as it is.
 * Uses config's size, crop_pct, resize and interpolation. */
MLA_MUST_CHECK mla_status mla_image_fit(uint8_t *pixels, const mla_image *image, const mla_data_config *config,
                                        mla_error *error);

/* Writes an RGB PNG under a temporary name and renames it. */
MLA_MUST_CHECK mla_status mla_image_write_png(const mla_image *image, const char *path, mla_error *error);

#endif
