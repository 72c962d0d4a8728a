#include "train/loader.h"

#include "train/augment.h"
#include "train/mix.h"
#include "train/resized_crop.h"

enum { REPEAT_BIT = 40 }; /* samples are numbered below 2^32; the first of an image's repeats keeps the sample's name */

static uint64_t repeats_of(const mla_loader *l) {
    return l->augment && l->augment->aug_repeats > 1 ? (uint64_t)l->augment->aug_repeats : 1;
}

uint64_t mla_loader_sample(const mla_loader *l, uint64_t place) {
    const uint64_t at = (l->first + place) / repeats_of(l);
    return l->order ? l->order[at] : at;
}

/* Image `place` of the batch or set, before mixing. */
static mla_status read_one(const mla_loader *l, uint64_t place, real *out, int *label, uint64_t *name, uint8_t *pixels,
                           mla_error *error) {
    const uint64_t sample = mla_loader_sample(l, place), repeat = (l->first + place) % repeats_of(l);
    const int side = mla_dataset_get_info(l->dataset)->size;
    *name = sample | repeat << REPEAT_BIT;
    const mla_status status =
        l->augment && mla_resized_crop_on(l->augment)
            ? mla_dataset_read_part(l->dataset, sample, l->epoch, l->augment, l->seed, *name, pixels, label, error)
            : mla_dataset_read(l->dataset, sample, l->epoch, pixels, label, error);
    if (status != MLA_OK) return status;
    if (l->augment)
        mla_image_augment(out, pixels, side, l->mean, l->std, l->augment, l->seed, l->epoch, *name);
    else
        mla_image_prepare(out, pixels, side, l->mean, l->std, NULL, 0, 0, 0);
    return MLA_OK;
}

/* Mixes image i of the shard, `place` of the batch, with its partner, which is read a second time for it: whoever trains
 * a shard depends on no other.  An image whose partner can't be read stays as it is. */
static mla_status mix_one(const mla_loader *l, uint64_t place, mla_shard *shard, size_t i, mla_error *error) {
    const int side = mla_dataset_get_info(l->dataset)->size;
    const mla_mix mix = mla_mix_of(l->augment, side, l->seed, l->epoch, l->first, place, l->batch);
    uint64_t name;
    if (mix.share == 1) return MLA_OK;
    const mla_status status =
        read_one(l, l->batch - 1 - place, shard->partner, &shard->others[i], &name, shard->pixels, error);
    if (status != MLA_OK || shard->others[i] < 0) return status;
    mla_mix_apply(shard->images + i * 3 * (size_t)side * (size_t)side, shard->partner, side, &mix);
    shard->shares[i] = (real)mix.share;
    return MLA_OK;
}

static mla_status load(void *context, size_t first, size_t count, mla_shard *shard, mla_error *error) {
    const mla_loader *l = context;
    const size_t side = (size_t)mla_dataset_get_info(l->dataset)->size, values = 3 * side * side;
    const bool mixing = l->augment && mla_mix_on(l->augment, l->epoch);
    MLA_REQUIRE(!mixing || first + count <= l->batch, "images %zu to %zu of a batch of %zu are mixed", first, first + count,
                l->batch);
    for (size_t i = 0; i < count; i++) {
        mla_status status =
            read_one(l, first + i, shard->images + i * values, &shard->labels[i], &shard->samples[i], shard->pixels, error);
        if (status == MLA_OK && mixing && shard->labels[i] >= 0) status = mix_one(l, first + i, shard, i, error);
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}

mla_image_source mla_loader_source(mla_loader *loader) {
    return (mla_image_source){load, loader, loader->seed, loader->epoch};
}
