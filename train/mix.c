#include "train/mix.h"

#include <math.h>
#include <string.h>

#include "core/rng.h"

static bool has_bounds(const mla_augment_config *c) { return c->cutmix_minmax[1] > 0; }

bool mla_mix_on(const mla_augment_config *c, uint64_t epoch) {
    const bool wanted = c->mixup > 0 || c->cutmix > 0 || has_bounds(c);
    return wanted && c->mixup_prob > 0 && (c->mixup_off_epoch == 0 || epoch < (uint64_t)c->mixup_off_epoch);
}

/* log of a Gamma(a, 1) number: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables" (2000); below 1 a
 * number of a + 1 times U^(1/a), in logarithms as small a would underflow. */
static double log_gamma_number(mla_rng *rng, double a) {
    double small = 0;
    if (a < 1) {
        small = log1p(-mla_rng_uniform(rng)) / a;
        a += 1;
    }
    const double d = a - 1.0 / 3.0, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = mla_rng_normal(rng), t = 1 + c * x, v = t * t * t, u = 1 - mla_rng_uniform(rng);
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v)) return log(d * v) + small;
    }
}

/* Beta(a, a): g / (g + h) of two gamma numbers. */
static double beta_number(mla_rng *rng, double a) {
    const double g = log_gamma_number(rng, a), h = log_gamma_number(rng, a);
    return 1 / (1 + exp(h - g));
}

static int below(mla_rng *rng, int bound) { return bound > 0 ? (int)mla_rng_below(rng, (uint32_t)bound) : 0; }

/* A side, and where it begins. */
static void draw_side(int *begin, int *end, int size, const double bounds[2], mla_rng *rng) {
    const int low = (int)(size * bounds[0]), side = low + below(rng, (int)(size * bounds[1]) - low);
    *begin = below(rng, size - side);
    *end = *begin + side;
}

static void draw_box(mla_mix *mix, int size, double share, mla_rng *rng) {
    const int half = (int)(size * sqrt(1 - share)) / 2, y = below(rng, size), x = below(rng, size);
    mix->top = y - half < 0 ? 0 : y - half;
    mix->bottom = y + half > size ? size : y + half;
    mix->left = x - half < 0 ? 0 : x - half;
    mix->right = x + half > size ? size : x + half;
}

mla_mix mla_mix_of(const mla_augment_config *c, int size, uint64_t seed, uint64_t epoch, uint64_t first, uint64_t place,
                   uint64_t batch) {
    const uint64_t other = batch - 1 - place, pair = place < other ? place : other;
    const uint64_t index = first + (c->mixup_mode == MLA_MIX_BATCH ? 0 : c->mixup_mode == MLA_MIX_PAIR ? pair : place);
    mla_mix mix = {.share = 1};
    if (other == place) return mix;
    mla_rng rng = mla_rng_stream(seed, MLA_RNG_MIX, epoch, index);
    if (!(mla_rng_uniform(&rng) < c->mixup_prob)) return mix;
    const bool cuts = c->cutmix > 0 || has_bounds(c), chosen = mla_rng_uniform(&rng) < c->mixup_switch_prob;
    mix.cut = cuts && (c->mixup == 0 || chosen);
    if (!mix.cut) {
        mix.share = beta_number(&rng, c->mixup);
        return mix;
    }
    if (has_bounds(c)) {
        draw_side(&mix.top, &mix.bottom, size, c->cutmix_minmax, &rng);
        draw_side(&mix.left, &mix.right, size, c->cutmix_minmax, &rng);
    } else {
        draw_box(&mix, size, beta_number(&rng, c->cutmix), &rng);
    }
    mix.share = 1 - (double)((mix.bottom - mix.top) * (mix.right - mix.left)) / ((double)size * size);
    return mix;
}

static void copy_box(real *image, const real *other, size_t size, const mla_mix *mix) {
    const size_t bytes = (size_t)(mix->right - mix->left) * sizeof *image;
    for (size_t c = 0; c < 3; c++)
        for (int y = mix->top; y < mix->bottom; y++) {
            const size_t at = (c * size + (size_t)y) * size + (size_t)mix->left;
            memcpy(image + at, other + at, bytes);
        }
}

void mla_mix_apply(real *restrict image, const real *restrict other, int size, const mla_mix *mix) {
    const real share = (real)mix->share, rest = (real)(1 - mix->share);
    if (mix->cut) {
        copy_box(image, other, (size_t)size, mix);
        return;
    }
    for (size_t i = 0; i < 3 * (size_t)size * (size_t)size; i++) image[i] = image[i] * share + other[i] * rest;
}
