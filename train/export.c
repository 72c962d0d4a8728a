/* Weights for other tools: what torch, timm-like loaders and `mirrorla eval` need, without the training state. */
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint_metadata.h"
#include "train/text.h"

_Static_assert(sizeof(real) == sizeof(float), "weights are exported as F32 from the buffer in place");

/* How far the run came, and the best test result if there was one.  It is the run's, not that of these weights in
 * particular: its epoch stands beside it. */
static void add_results(mla_metadata *metadata, const mla_counters *counters) {
    mla_metadata_add_count(metadata, "step", counters->step);
    mla_metadata_add_count(metadata, "epoch", counters->epoch);
    if (counters->best_epoch == 0 || counters->best_images == 0) return;
    char accuracy[MLA_NUMBER_BYTES];
    mla_number_text(accuracy, (double)counters->best_correct / (double)counters->best_images);
    mla_metadata_add(metadata, "best_test_accuracy", strdup(accuracy));
    mla_metadata_add_count(metadata, "best_test_epoch", counters->best_epoch);
}

mla_status mla_metadata_export(mla_metadata *metadata, const char *path, const mla_params *params, const real *value,
                               const mla_checkpoint *checkpoint, mla_error *error) {
    mla_metadata_add(metadata, "architecture", strdup(mla_family_name(checkpoint->config.model.family)));
    const mla_status status = mla_metadata_describe(metadata, path, &checkpoint->config, &checkpoint->classes,
                                                    mla_params_hash(params, value), error);
    if (status != MLA_OK) return status;
    add_results(metadata, &checkpoint->counters);
    return mla_metadata_status(metadata, path, error);
}

mla_status mla_export_safetensors(const char *path, const mla_params *params, const real *value,
                                  const mla_checkpoint *checkpoint, mla_error *error) {
    mla_metadata metadata = {0};
    mla_file_tensor *tensors = calloc((size_t)params->entries + 1, sizeof *tensors);
    if (!tensors) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    for (int i = 0; i < params->entries; i++) {
        const mla_param *param = &params->entry[i];
        tensors[i] = (mla_file_tensor){.name = param->name,
                                       .dtype = MLA_F32,
                                       .ndim = param->ndim,
                                       .data = value + param->offset,
                                       .bytes = param->count * sizeof *value};
        memcpy(tensors[i].shape, param->shape, sizeof param->shape);
    }
    mla_status status = mla_metadata_export(&metadata, path, params, value, checkpoint, error);
    if (status == MLA_OK)
        status = mla_safetensors_write(path, tensors, (size_t)params->entries, metadata.pair, metadata.count, error);
    mla_metadata_free(&metadata);
    free(tensors);
    return status;
}
