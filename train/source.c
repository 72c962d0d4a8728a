/* Where weights come from. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/adapt.h"
#include "train/config_compare.h"

/* A checkpoint or export: its own model is built, so that names, shapes and hash are verified before anything is taken. */
static mla_status open_own(mla_source *source, mla_weights weights, mla_error *error) {
    mla_status status = mla_loaded_open(&source->loaded, source->path, weights, NULL, 0, error);
    if (status != MLA_OK) return status;
    const mla_params *params = mla_model_params(source->loaded.model);
    source->tensor = calloc((size_t)params->entries + 1, sizeof *source->tensor);
    if (!source->tensor) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", source->path);
    for (int i = 0; i < params->entries; i++) {
        const mla_param *p = &params->entry[i];
        mla_file_tensor *tensor = &source->tensor[source->count++];
        *tensor = (mla_file_tensor){.name = p->name,
                                    .dtype = MLA_F32,
                                    .ndim = p->ndim,
                                    .data = params->value + p->offset,
                                    .bytes = p->count * sizeof(real)};
        memcpy(tensor->shape, p->shape, sizeof p->shape);
    }
    return MLA_OK;
}

static mla_status open_other(mla_source *source, mla_weights weights, mla_error *error) {
    if (weights != MLA_WEIGHTS_AUTO)
        return mla_fail(error, MLA_INVALID,
                        "%s: --weights chooses between those of a checkpoint of mirrorla, which this file is not",
                        source->path);
    source->tensor = calloc(mla_safetensors_count(source->file) + 1, sizeof *source->tensor);
    if (!source->tensor) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", source->path);
    source->count = mla_safetensors_count(source->file);
    for (size_t i = 0; i < source->count; i++) source->tensor[i] = *mla_safetensors_at(source->file, i);
    return MLA_OK;
}

mla_status mla_source_open(mla_source *source, const char *path, mla_weights weights, mla_error *error) {
    *source = (mla_source){.path = path};
    mla_status status = mla_safetensors_open(&source->file, path, error);
    if (status != MLA_OK) return status;
    if (mla_checkpoint_is_own(source->file)) {
        mla_safetensors_close(source->file);
        source->file = NULL;
        status = open_own(source, weights, error);
    } else {
        status = open_other(source, weights, error);
    }
    if (status != MLA_OK) mla_source_close(source);
    return status;
}

void mla_source_close(mla_source *source) {
    free(source->tensor);
    mla_loaded_close(&source->loaded);
    mla_safetensors_close(source->file);
    *source = (mla_source){0};
}

static void tell_key(void *context, const char *key, const char *stored, const char *given) {
    const mla_source *source = context;
    if (strncmp(key, "model.", 6) != 0 || !strcmp(key, "model.drop_path")) return;
    fprintf(stderr, "note: %s is %s in %s and %s here\n", key, stored, source->path, given);
}

void mla_source_tell_config(const mla_source *source, const mla_config *config) {
    mla_source copy = *source;
    if (source->loaded.model) mla_config_compare(&source->loaded.checkpoint.config, config, tell_key, &copy);
}
