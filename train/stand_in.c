#include "train/stand_in.h"

#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "train/augment.h"

mla_status mla_config_fill_from_data(mla_config *config, mla_error *error) {
    config->model.image = config->data.size;
    if (config->data.set == MLA_SET_TWINS || config->data.set == MLA_SET_CIFAR10) {
        config->model.classes = 10;
        return MLA_OK;
    }
    if (config->data.set == MLA_SET_CIFAR100) {
        config->model.classes = 100;
        return MLA_OK;
    }
    mla_dataset *dataset;
    const mla_status status = mla_dataset_open(&dataset, &config->data, MLA_SPLIT_TRAIN, config->train.seed, error);
    if (status != MLA_OK) return status;
    config->model.classes = mla_dataset_get_info(dataset)->classes;
    config->model.image = mla_dataset_get_info(dataset)->size;
    mla_dataset_close(dataset);
    return MLA_OK;
}

enum { PLACES = 4096 }; /* images start at so many places of the same random bytes */

static size_t image_bytes(const mla_stand_in *s) { return 3 * (size_t)s->size * (size_t)s->size; }

mla_status mla_stand_in_open(mla_stand_in *s, const mla_config *config, mla_error *error) {
    *s = (mla_stand_in){.size = config->model.image, .classes = config->model.classes, .augment = &config->augment};
    const size_t bytes = image_bytes(s) + PLACES;
    s->bytes = malloc(bytes);
    if (!s->bytes) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a random image of side %d", s->size);
    mla_rng rng = mla_rng_stream(config->train.seed, MLA_RNG_TEST, 0, 0);
    for (size_t i = 0; i < bytes; i++) s->bytes[i] = (uint8_t)mla_rng_u32(&rng);
    return MLA_OK;
}

void mla_stand_in_close(mla_stand_in *s) {
    free(s->bytes);
    s->bytes = NULL;
}

static mla_status load(void *context, size_t first, size_t count, mla_shard *shard, mla_error *error) {
    const mla_stand_in *s = context;
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    (void)error;
    for (size_t i = 0; i < count; i++) {
        const size_t sample = first + i;
        memcpy(shard->pixels, s->bytes + sample * 61 % PLACES, image_bytes(s));
        mla_image_augment(shard->images + i * image_bytes(s), shard->pixels, s->size, mean, deviation, s->augment, 0, 0,
                          sample);
        shard->labels[i] = (int)(sample % (size_t)s->classes);
        shard->samples[i] = sample;
    }
    return MLA_OK;
}

mla_image_source mla_stand_in_source(mla_stand_in *s) { return (mla_image_source){.load = load, .context = s}; }
