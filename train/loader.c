#include "train/loader.h"

#include <string.h>

static mla_status load(void *context, size_t first, size_t count, real *images, int *labels, uint64_t *samples,
                       uint8_t *pixels, mla_error *error) {
    const mla_loader *loader = context;
    const int side = mla_dataset_get_info(loader->dataset)->size;
    const size_t values = 3 * (size_t)side * (size_t)side;
    for (size_t i = 0; i < count; i++) {
        const uint64_t sample = loader->order ? loader->order[first + i] : first + i;
        const mla_status status = mla_dataset_read(loader->dataset, sample, loader->epoch, pixels, &labels[i], error);
        if (status != MLA_OK) return status;
        samples[i] = sample;
        mla_image_prepare(images + i * values, pixels, side, loader->mean, loader->std, loader->augment, loader->seed,
                          loader->epoch, sample);
    }
    return MLA_OK;
}

mla_image_source mla_loader_source(mla_loader *loader) {
    return (mla_image_source){load, loader, loader->seed, loader->epoch};
}
