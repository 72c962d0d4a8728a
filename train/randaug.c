#include "train/randaug.h"

#include <math.h>

#include "train/resized_crop.h"

static const double UNIFORM_FROM = 100; /* timm: a deviation above it draws magnitudes evenly from 0 .. m */

mla_randaug_draw mla_randaug_next(mla_rng *rng, const mla_randaug_config *config, mla_augment_filter filter) {
    mla_randaug_draw draw = {.operation = (mla_randaug_operation)mla_rng_below(rng, MLA_AUG_COUNT)};
    draw.applied = mla_rng_uniform(rng) < config->p;
    const double normal = mla_rng_normal(rng), even = mla_rng_uniform(rng);
    const double magnitude = config->mstd > UNIFORM_FROM ? config->m * even : config->m + config->mstd * normal;
    draw.magnitude = fmax(0, fmin(magnitude, config->mmax));
    draw.negative = mla_rng_uniform(rng) >= 0.5;
    draw.filter = mla_augment_filter_of(filter, mla_rng_uniform(rng));
    return draw;
}

/* How far a picture is enhanced: 1 leaves it as it is. */
static double enhancement(double level, bool negative, bool increasing) {
    if (!increasing) return level * 1.8 + 0.1;
    return fmax(0.1, 1.0 + (negative ? -(level * 0.9) : level * 0.9));
}

static void shear_or_translate(mla_pixels *p, const mla_randaug_draw *draw, double level, const uint8_t fill[3]) {
    double a[6] = {1, 0, 0, 0, 1, 0};
    switch (draw->operation) {
    case MLA_AUG_SHEAR_X: a[1] = level * 0.3; break;
    case MLA_AUG_SHEAR_Y: a[3] = level * 0.3; break;
    case MLA_AUG_TRANSLATE_X: a[2] = level * 0.45 * p->size; break;
    default: a[5] = level * 0.45 * p->size; break;
    }
    mla_pixels_affine(p, a, draw->filter, fill);
}

void mla_randaug_apply(mla_pixels *p, const mla_randaug_draw *draw, bool increasing, const uint8_t fill[3]) {
    const double level = draw->magnitude / 10.0, sided = draw->negative ? -level : level;
    const double factor = enhancement(level, draw->negative, increasing);
    switch (draw->operation) {
    case MLA_AUG_AUTOCONTRAST: mla_pixels_autocontrast(p); return;
    case MLA_AUG_EQUALIZE: mla_pixels_equalize(p); return;
    case MLA_AUG_INVERT: mla_pixels_invert(p); return;
    case MLA_AUG_ROTATE: mla_pixels_rotate(p, sided * 30.0, draw->filter, fill); return;
    case MLA_AUG_POSTERIZE: mla_pixels_posterize(p, increasing ? 4 - (int)(level * 4) : (int)(level * 4)); return;
    case MLA_AUG_SOLARIZE: mla_pixels_solarize(p, increasing ? 256 - (int)(level * 256) : (int)(level * 256)); return;
    case MLA_AUG_SOLARIZE_ADD: mla_pixels_solarize_add(p, (int)(level * 110)); return;
    case MLA_AUG_COLOR: mla_pixels_color(p, factor); return;
    case MLA_AUG_CONTRAST: mla_pixels_contrast(p, factor); return;
    case MLA_AUG_BRIGHTNESS: mla_pixels_brightness(p, factor); return;
    case MLA_AUG_SHARPNESS: mla_pixels_sharpness(p, factor); return;
    case MLA_AUG_SHEAR_X:
    case MLA_AUG_SHEAR_Y:
    case MLA_AUG_TRANSLATE_X:
    case MLA_AUG_TRANSLATE_Y: shear_or_translate(p, draw, sided, fill); return;
    case MLA_AUG_COUNT: break;
    }
    MLA_REQUIRE(false, "RandAugment has no operation %d", (int)draw->operation);
}

void mla_randaug(mla_pixels *p, const mla_randaug_config *config, mla_augment_filter filter, const uint8_t fill[3],
                 uint64_t seed, uint64_t epoch, uint64_t sample) {
    mla_rng rng = mla_rng_stream(seed, MLA_RNG_RANDAUG, epoch, sample);
    for (int i = 0; i < config->n; i++) {
        const mla_randaug_draw draw = mla_randaug_next(&rng, config, filter);
        if (draw.applied) mla_randaug_apply(p, &draw, config->inc, fill);
    }
}
