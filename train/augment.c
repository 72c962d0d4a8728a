#include "train/augment.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/rng.h"
#include "train/color_jitter.h"
#include "train/erase.h"
#include "train/mix.h"
#include "train/randaug.h"
#include "train/resized_crop.h"

/* One channel: a table of the 256 possible values, exact whatever the machine contracts to fused multiplies. */
static void fill_table(real table[256], double mean, double std) {
    for (int v = 0; v < 256; v++) table[v] = (real)((v / 255.0 - mean) / std);
}

/* What the random numbers decided: out(y, x) = in(y + top, x + left), mirrored afterwards. */
typedef struct placement {
    int top, left;
    bool flip;
} placement;

static void prepare_row(real *restrict out, const uint8_t *restrict in, int size, int left, bool flip,
                        const real *restrict table) {
    int begin = left < 0 ? -left : 0, end = left > 0 ? size - left : size; /* columns that lie inside the image */
    for (int x = 0; x < begin; x++) out[x] = table[0];
    for (int x = begin; x < end; x++) out[x] = table[in[x + left]];
    for (int x = end; x < size; x++) out[x] = table[0];
    if (!flip) return;
    for (int x = 0, other = size - 1; x < other; x++, other--) {
        real value = out[x];
        out[x] = out[other];
        out[other] = value;
    }
}

static void prepare_channel(real *out, const uint8_t *pixels, int size, placement place, const real *table) {
    for (int y = 0; y < size; y++, out += size) {
        int from = y + place.top;
        if (from < 0 || from >= size)
            for (int x = 0; x < size; x++) out[x] = table[0];
        else
            prepare_row(out, pixels + (size_t)from * (size_t)size, size, place.left, place.flip, table);
    }
}

/* All three are always drawn, so that switching one off leaves the others as they were. */
static placement draw_placement(const mla_augment_config *augment, int size, uint64_t seed, uint64_t epoch,
                                uint64_t sample) {
    MLA_REQUIRE(augment->crop_padding >= 0 && augment->crop_padding <= size, "crop padding of %d pixels for an image of %d",
                augment->crop_padding, size);
    /* A resized crop was cut out of the image already. */
    const int padding = mla_resized_crop_on(augment) ? 0 : augment->crop_padding;
    placement place;
    mla_rng rng = mla_rng_stream(seed, MLA_RNG_AUGMENT, epoch, sample);
    uint32_t places = 2u * (uint32_t)padding + 1u;
    place.top = (int)mla_rng_below(&rng, places) - padding;
    place.left = (int)mla_rng_below(&rng, places) - padding;
    place.flip = mla_rng_uniform(&rng) < augment->flip;
    return place;
}

void mla_image_prepare(real *out, const uint8_t *pixels, int size, const double mean[3], const double std[3],
                       const mla_augment_config *augment, uint64_t seed, uint64_t epoch, uint64_t sample) {
    placement place = {0};
    if (augment) place = draw_placement(augment, size, seed, epoch, sample);
    size_t plane = (size_t)size * (size_t)size;
    for (int c = 0; c < 3; c++) {
        real table[256];
        fill_table(table, mean[c], std[c]);
        prepare_channel(out + (size_t)c * plane, pixels + (size_t)c * plane, size, place, table);
    }
}

/* ---- on bytes */

/* Crop and flip as prepare_row does them, without normalising. */
static void place_bytes(uint8_t *restrict out, const uint8_t *restrict in, int size, placement place) {
    for (int row = 0; row < 3 * size; row++, out += size) {
        const int y = row % size, from = y + place.top;
        memset(out, 0, (size_t)size);
        if (from < 0 || from >= size) continue;
        const uint8_t *line = in + (size_t)(row - y + from) * (size_t)size;
        const int begin = place.left < 0 ? -place.left : 0, end = place.left > 0 ? size - place.left : size;
        if (!place.flip && end > begin) memcpy(out + begin, line + begin + place.left, (size_t)(end - begin));
        for (int x = begin; place.flip && x < end; x++) out[size - 1 - x] = line[x + place.left];
    }
}

static bool jitters(const mla_augment_config *a) {
    const bool wanted = a->color_jitter > 0 || a->color_jitter_hue > 0;
    return wanted && (a->randaug.n == 0 || a->force_color_jitter);
}

void mla_image_augment(real *out, uint8_t *pixels, int size, const double mean[3], const double std[3],
                       const mla_augment_config *augment, uint64_t seed, uint64_t epoch, uint64_t sample) {
    const size_t image = 3 * (size_t)size * (size_t)size;
    if (augment->randaug.n == 0 && !jitters(augment)) {
        mla_image_prepare(out, pixels, size, mean, std, augment, seed, epoch, sample);
    } else {
        mla_pixels p = {pixels + image, pixels + 2 * image, size};
        uint8_t fill[3];
        for (int c = 0; c < 3; c++) fill[c] = (uint8_t)fmin(255, rint(255 * mean[c]));
        place_bytes(p.now, pixels, size, draw_placement(augment, size, seed, epoch, sample));
        mla_randaug(&p, &augment->randaug, augment->interpolation, fill, seed, epoch, sample);
        if (jitters(augment)) {
            const mla_jitter_draw draw = mla_jitter_of(augment, seed, epoch, sample);
            mla_jitter_apply(&p, &draw, augment);
        }
        mla_image_prepare(out, p.now, size, mean, std, NULL, 0, 0, 0);
    }
    if (augment->erase > 0) mla_erase(out, size, augment, seed, epoch, sample);
}

/* ---- in words */

typedef struct words {
    char *out;
    size_t bytes, used;
} words;

__attribute__((format(printf, 2, 3))) static void say(words *w, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(w->out + w->used, w->bytes - w->used, format, arguments);
    MLA_REQUIRE(n >= 0 && w->used + (size_t)n < w->bytes, "no room for what the augmentation is");
    w->used += (size_t)n;
    va_end(arguments);
}

static void say_mixing(words *w, const mla_augment_config *a) {
    if (a->mixup > 0) say(w, ", mixup %g", a->mixup);
    if (a->cutmix_minmax[1] > 0)
        say(w, ", cutmix with sides of %g to %g", a->cutmix_minmax[0], a->cutmix_minmax[1]);
    else if (a->cutmix > 0)
        say(w, ", cutmix %g", a->cutmix);
    if (a->mixup_off_epoch) say(w, " for %d epochs", a->mixup_off_epoch);
}

void mla_augment_describe(const mla_augment_config *a, char out[MLA_AUGMENT_TEXT_BYTES]) {
    static const char *const erase[] = {[MLA_ERASE_CONST] = "const", [MLA_ERASE_RAND] = "rand", [MLA_ERASE_PIXEL] = "pixel"};
    char text[MLA_AUGMENT_TEXT_BYTES] = ", none";
    words w = {text, sizeof text, 0};
    if (mla_resized_crop_on(a))
        say(&w, ", resized crop of %g to %g, ratio %g to %g", a->scale[0], a->scale[1], a->ratio[0], a->ratio[1]);
    else if (a->crop_padding)
        say(&w, ", crop padding %d", a->crop_padding);
    if (a->flip > 0) say(&w, ", flip %g", a->flip);
    if (a->randaug.n)
        say(&w, ", randaug n %d m %g mstd %g inc %d", a->randaug.n, a->randaug.m, a->randaug.mstd, a->randaug.inc);
    if (jitters(a)) say(&w, ", colour jitter %g hue %g", a->color_jitter, a->color_jitter_hue);
    if (a->erase > 0) say(&w, ", erase %g %s", a->erase, erase[a->erase_mode]);
    if (mla_mix_on(a, 0)) say_mixing(&w, a);
    if (a->aug_repeats > 1) say(&w, ", each image %d times", a->aug_repeats);
    strcpy(out, text + strlen(", "));
}
