#include "train/resized_crop.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"

enum { TRIES = 10 };

bool mla_resized_crop_on(const mla_augment_config *augment) { return augment->scale[1] > 0; }

mla_interpolation mla_augment_filter_of(mla_augment_filter choice, double uniform) {
    if (choice == MLA_AUG_RANDOM) return uniform < 0.5 ? MLA_BILINEAR : MLA_BICUBIC;
    return choice == MLA_AUG_BICUBIC ? MLA_BICUBIC : MLA_BILINEAR;
}

static double between(mla_rng *rng, const double range[2]) {
    return range[0] + (range[1] - range[0]) * mla_rng_uniform(rng);
}

static void take_middle(mla_crop_draw *draw, int width, int height, const double ratio[2]) {
    const double own = (double)width / height;
    draw->width = own > ratio[1] ? (int)rint(height * ratio[1]) : width;
    draw->height = own < ratio[0] ? (int)rint(width / ratio[0]) : height;
    draw->left = (width - draw->width) / 2;
    draw->top = (height - draw->height) / 2;
}

mla_crop_draw mla_resized_crop_draw(const mla_crop_name *name, int width, int height) {
    const mla_augment_config *a = name->augment;
    const double logs[2] = {log(a->ratio[0]), log(a->ratio[1])};
    mla_rng rng = mla_rng_stream(name->seed, MLA_RNG_CROP, name->epoch, name->sample);
    mla_crop_draw draw = {.filter = mla_augment_filter_of(a->interpolation, mla_rng_uniform(&rng))};
    for (int i = 0; i < TRIES; i++) {
        const double area = (double)width * height * between(&rng, a->scale), ratio = exp(between(&rng, logs));
        const double w = rint(sqrt(area * ratio)), h = rint(sqrt(area / ratio));
        if (!(w >= 1 && w <= width && h >= 1 && h <= height)) continue;
        draw.width = (int)w;
        draw.height = (int)h;
        draw.top = (int)mla_rng_below(&rng, (uint32_t)(height - draw.height + 1));
        draw.left = (int)mla_rng_below(&rng, (uint32_t)(width - draw.width + 1));
        return draw;
    }
    take_middle(&draw, width, height, a->ratio);
    return draw;
}

static mla_status cut_out(mla_image *part, const mla_image *image, const mla_crop_draw *draw, mla_error *error) {
    const mla_status status = mla_image_create(part, draw->width, draw->height, "part of an image", error);
    if (status != MLA_OK) return status;
    const size_t row = 3 * (size_t)draw->width;
    for (int y = 0; y < draw->height; y++) {
        const size_t from = 3 * ((size_t)(draw->top + y) * (size_t)image->width + (size_t)draw->left);
        memcpy(part->rgb + (size_t)y * row, image->rgb + from, row);
    }
    return MLA_OK;
}

mla_status mla_resized_crop(uint8_t *pixels, int size, const mla_image *image, const mla_crop_name *name, mla_error *error) {
    const mla_crop_draw draw = mla_resized_crop_draw(name, image->width, image->height);
    const size_t plane = (size_t)size * (size_t)size;
    mla_image part = {0}, resized = {0};
    mla_status status = cut_out(&part, image, &draw, error);
    if (status == MLA_OK) status = mla_image_resize(&resized, &part, size, size, draw.filter, error);
    for (size_t i = 0; status == MLA_OK && i < 3 * plane; i++) pixels[i] = resized.rgb[3 * (i % plane) + i / plane];
    mla_image_free(&part);
    mla_image_free(&resized);
    return status;
}

mla_status mla_resized_crop_planes(uint8_t *pixels, int size, const mla_crop_name *name, mla_error *error) {
    const size_t plane = (size_t)size * (size_t)size;
    mla_image image;
    mla_status status = mla_image_create(&image, size, size, "image", error);
    if (status != MLA_OK) return status;
    for (size_t i = 0; i < 3 * plane; i++) image.rgb[3 * (i % plane) + i / plane] = pixels[i];
    status = mla_resized_crop(pixels, size, &image, name, error);
    mla_image_free(&image);
    return status;
}
