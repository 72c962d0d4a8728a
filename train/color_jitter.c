#include "train/color_jitter.h"

#include <math.h>

#include "core/rng.h"

mla_jitter_draw mla_jitter_of(const mla_augment_config *config, uint64_t seed, uint64_t epoch, uint64_t sample) {
    mla_rng rng = mla_rng_stream(seed, MLA_RNG_JITTER, epoch, sample);
    mla_jitter_draw draw = {.applied = mla_rng_uniform(&rng) < config->color_jitter_prob};
    const double low = fmax(0, 1 - config->color_jitter), high = 1 + config->color_jitter, hue = config->color_jitter_hue;
    for (int i = 0; i < 4; i++) draw.order[i] = (mla_jitter_part)i;
    for (int left = 4; left > 1; left--) {
        const uint32_t other = mla_rng_below(&rng, (uint32_t)left);
        const mla_jitter_part last = draw.order[left - 1];
        draw.order[left - 1] = draw.order[other];
        draw.order[other] = last;
    }
    for (int i = 0; i < MLA_JITTER_HUE; i++) draw.amount[i] = low + (high - low) * mla_rng_uniform(&rng);
    draw.amount[MLA_JITTER_HUE] = hue * (2 * mla_rng_uniform(&rng) - 1);
    return draw;
}

void mla_jitter_apply(mla_pixels *p, const mla_jitter_draw *draw, const mla_augment_config *config) {
    for (int i = 0; draw->applied && i < 4; i++) {
        const mla_jitter_part part = draw->order[i];
        const double amount = draw->amount[part];
        if (part == MLA_JITTER_HUE ? config->color_jitter_hue == 0 : config->color_jitter == 0) continue;
        switch (part) {
        case MLA_JITTER_BRIGHTNESS: mla_pixels_brightness(p, amount); break;
        case MLA_JITTER_CONTRAST: mla_pixels_contrast(p, amount); break;
        case MLA_JITTER_SATURATION: mla_pixels_color(p, amount); break;
        case MLA_JITTER_HUE: mla_pixels_hue(p, amount); break;
        }
    }
}
