#include "train/erase.h"

#include <math.h>

#include "core/rng.h"

enum { TRIES = 10 };

static double between(mla_rng *rng, double low, double high) { return low + (high - low) * mla_rng_uniform(rng); }

/* Normal numbers in pairs (Box-Muller): twice as many from a pair of uniform ones as mla_rng_normal gives. */
static void fill_with_noise(real *row, size_t count, mla_rng *rng) {
    for (size_t x = 0; x < count; x += 2) {
        const double radius = sqrt(-2 * log1p(-mla_rng_uniform(rng))),
                     angle = 6.283185307179586476925 * mla_rng_uniform(rng);
        row[x] = (real)(radius * cos(angle));
        if (x + 1 < count) row[x + 1] = (real)(radius * sin(angle));
    }
}

static void fill(real *image, size_t size, size_t top, size_t left, size_t height, size_t width, mla_erase_mode mode,
                 mla_rng *rng) {
    for (size_t c = 0; c < 3; c++) {
        const real colour = mode == MLA_ERASE_RAND ? (real)mla_rng_normal(rng) : 0;
        for (size_t y = top; y < top + height; y++) {
            real *row = image + (c * size + y) * size + left;
            for (size_t x = 0; x < width; x++) row[x] = colour;
            if (mode == MLA_ERASE_PIXEL) fill_with_noise(row, width, rng);
        }
    }
}

static void erase_one(real *image, int size, int count, const mla_augment_config *config, mla_rng *rng) {
    const double area = (double)size * size, *aspect = config->erase_aspect;
    for (int i = 0; i < TRIES; i++) {
        const double target = between(rng, config->erase_area[0], config->erase_area[1]) * area / count;
        const double ratio = exp(between(rng, log(aspect[0]), log(aspect[1])));
        const int height = (int)rint(sqrt(target * ratio)), width = (int)rint(sqrt(target / ratio));
        if (width >= size || height >= size) continue;
        const size_t top = mla_rng_below(rng, (uint32_t)(size - height + 1));
        const size_t left = mla_rng_below(rng, (uint32_t)(size - width + 1));
        fill(image, (size_t)size, top, left, (size_t)height, (size_t)width, config->erase_mode, rng);
        return;
    }
}

void mla_erase(real *image, int size, const mla_augment_config *config, uint64_t seed, uint64_t epoch, uint64_t sample) {
    mla_rng rng = mla_rng_stream(seed, MLA_RNG_ERASE, epoch, sample);
    if (!(mla_rng_uniform(&rng) < config->erase)) return;
    const int count = 1 + (int)mla_rng_below(&rng, (uint32_t)config->erase_count);
    for (int i = 0; i < count; i++) erase_one(image, size, count, config, &rng);
}
