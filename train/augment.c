#include <string.h>

#include "core/rng.h"
#include "train/dataset.h"

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

void mla_image_prepare(real *out, const uint8_t *pixels, int size, const double mean[3], const double std[3],
                       const mla_augment_config *augment, uint64_t seed, uint64_t epoch, uint64_t sample) {
    placement place = {0};
    if (augment) {
        MLA_REQUIRE(augment->crop_padding >= 0 && augment->crop_padding <= size,
                    "crop padding of %d pixels for an image of %d", augment->crop_padding, size);
        /* All three are always drawn, so that switching one off leaves the others as they were. */
        mla_rng rng = mla_rng_stream(seed, MLA_RNG_AUGMENT, epoch, sample);
        uint32_t places = 2u * (uint32_t)augment->crop_padding + 1u;
        place.top = (int)mla_rng_below(&rng, places) - augment->crop_padding;
        place.left = (int)mla_rng_below(&rng, places) - augment->crop_padding;
        place.flip = mla_rng_uniform(&rng) < augment->flip;
    }
    size_t plane = (size_t)size * (size_t)size;
    for (int c = 0; c < 3; c++) {
        real table[256];
        fill_table(table, mean[c], std[c]);
        prepare_channel(out + (size_t)c * plane, pixels + (size_t)c * plane, size, place, table);
    }
}
