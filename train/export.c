/* Weights as safetensors: what torch, timm-like loaders and `mirrorla eval` need, without the training state. */
#include "train/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint_metadata.h"
#include "train/text.h"

_Static_assert(sizeof(real) == sizeof(float), "weights are exported as F32 from the buffer in place");

/* How far the run came, and the best test result if there was one.  It is the run's, not that of these weights in
 * particular: its epoch stands beside it.  An export that is exported again hands on what it says. */
static void add_results(mla_metadata *metadata, const mla_checkpoint *checkpoint) {
    static const char *const keys[] = {"step", "epoch", "best_test_accuracy", "best_test_epoch"};
    const mla_counters *counters = &checkpoint->counters;
    if (checkpoint->file && mla_safetensors_metadata(checkpoint->file, "weights")) {
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            const char *value = mla_safetensors_metadata(checkpoint->file, keys[i]);
            if (value) mla_metadata_add(metadata, keys[i], strdup(value));
        }
        return;
    }
    mla_metadata_add_count(metadata, "step", counters->step);
    mla_metadata_add_count(metadata, "epoch", counters->epoch);
    if (counters->best_epoch == 0 || counters->best_images == 0) return;
    char accuracy[MLA_NUMBER_BYTES];
    mla_number_text(accuracy, (double)counters->best_correct / (double)counters->best_images);
    mla_metadata_add(metadata, "best_test_accuracy", strdup(accuracy));
    mla_metadata_add_count(metadata, "best_test_epoch", counters->best_epoch);
}

/* What these tensors are, beside the config: where they came from and what was done to them. */
static void add_origin(mla_metadata *metadata, const mla_checkpoint *checkpoint, const mla_export_options *options) {
    const mla_folded *folded = options->folded;
    mla_metadata_add(metadata, "architecture", strdup(mla_family_name(checkpoint->config.model.family)));
    mla_metadata_add(metadata, "dtype", strdup(mla_dtype_name(options->dtype)));
    mla_metadata_add(metadata, "weights", strdup(options->average ? "average" : "raw"));
    if (folded && folded->blocks + folded->cross > 0)
        mla_metadata_add(metadata, "folded",
                         strdup(!folded->cross    ? "mirror.reflections"
                                : !folded->blocks ? "mirror.cross_head"
                                                  : "mirror.reflections,mirror.cross_head"));
    if (strcmp(checkpoint->weight_hash, MLA_NO_HASH) != 0)
        mla_metadata_add(metadata, "source_weight_hash", strdup(checkpoint->weight_hash));
}

mla_status mla_metadata_export(mla_metadata *metadata, const char *path, const mla_checkpoint *checkpoint,
                               const mla_export_options *options, uint64_t weight_hash, mla_error *error) {
    add_origin(metadata, checkpoint, options);
    const mla_status status =
        mla_metadata_describe(metadata, path, &checkpoint->config, &checkpoint->classes, weight_hash, error);
    if (status != MLA_OK) return status;
    add_results(metadata, checkpoint);
    return mla_metadata_status(metadata, path, error);
}

static mla_file_tensor describe(const mla_param *param, const real *value, mla_dtype dtype) {
    const bool narrow = dtype != MLA_F32;
    mla_file_tensor tensor = {.name = param->name,
                              .dtype = dtype,
                              .ndim = param->ndim,
                              .data = narrow ? NULL : value + param->offset,
                              .bytes = param->count * mla_dtype_bytes(dtype),
                              .floats = narrow ? value + param->offset : NULL};
    memcpy(tensor.shape, param->shape, sizeof param->shape);
    return tensor;
}

/* Goes on with the hash over the bytes as they will stand in the file, and finds what the type can't hold. */
static mla_status hash_tensor(uint64_t *hash, const mla_file_tensor *tensor, const char *path, mla_error *error) {
    enum { CHUNK = 16384 };
    uint16_t narrow[CHUNK];
    if (!tensor->floats) {
        *hash = mla_hash_bytes(*hash, tensor->data, tensor->bytes);
        return MLA_OK;
    }
    const size_t total = mla_tensor_elements(tensor);
    for (size_t first = 0; first < total; first += CHUNK) {
        const size_t count = total - first < CHUNK ? total - first : CHUNK;
        const size_t over = mla_floats_narrow(narrow, tensor->dtype, tensor->floats + first, count);
        if (over < count)
            return mla_fail(
                error, MLA_INVALID,
                "%s: tensor \"%s\" holds %.9g at element %zu, too large for %s (at most %s): nothing is written; "
                "%s",
                path, tensor->name, (double)tensor->floats[first + over], first + over, mla_dtype_name(tensor->dtype),
                tensor->dtype == MLA_F16 ? "65504" : "3.3895314e38",
                tensor->dtype == MLA_F16 ? "bf16 and f32 hold it" : "f32 holds it");
        *hash = mla_hash_bytes(*hash, narrow, count * sizeof *narrow);
    }
    return MLA_OK;
}

mla_status mla_export_safetensors(const char *path, const mla_params *params, const real *value,
                                  const mla_checkpoint *checkpoint, const mla_export_options *options, mla_error *error) {
    mla_metadata metadata = {0};
    uint64_t hash = MLA_HASH_START;
    size_t count = 0;
    mla_file_tensor *tensors = calloc((size_t)params->entries + 1, sizeof *tensors);
    if (!tensors) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = MLA_OK;
    for (int i = 0; i < params->entries && status == MLA_OK; i++) {
        if (options->folded && options->folded->gone[i]) continue;
        tensors[count] = describe(&params->entry[i], value, options->dtype);
        status = hash_tensor(&hash, &tensors[count++], path, error);
    }
    if (status == MLA_OK) status = mla_metadata_export(&metadata, path, checkpoint, options, hash, error);
    if (status == MLA_OK) status = mla_safetensors_write(path, tensors, count, metadata.pair, metadata.count, error);
    mla_metadata_free(&metadata);
    free(tensors);
    return status;
}
