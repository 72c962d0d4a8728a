#include "train/loaded.h"

#include <string.h>

bool mla_weights_parse(mla_weights *weights, const char *text) {
    static const char *const names[] = {"auto", "raw", "average"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            *weights = (mla_weights)i;
            return true;
        }
    return false;
}

size_t mla_checkpoint_stem(const char *path) {
    const size_t length = strlen(path), ending = strlen(".safetensors");
    return length > ending && !strcmp(path + length - ending, ".safetensors") ? length - ending : 0;
}

static mla_status load(mla_loaded *loaded, const char *path, mla_weights weights, mla_error *error) {
    mla_checkpoint *c = &loaded->checkpoint;
    /* An export holds one set, and says which. */
    const char *exported = mla_safetensors_metadata(c->file, "weights");
    const bool averaged = exported && !strcmp(exported, "average");
    if (weights == MLA_WEIGHTS_AVERAGE && !c->has_ema && !averaged)
        return mla_fail(error, MLA_INVALID, "%s holds no weight average (optim.ema was 0)", path);
    if (weights == MLA_WEIGHTS_RAW && averaged)
        return mla_fail(error, MLA_INVALID, "%s holds the average alone, not the raw weights", path);
    const bool from_average = weights != MLA_WEIGHTS_RAW && c->has_ema;
    mla_model_spec spec = c->config.model;
    spec.image = c->classes.size;
    spec.classes = c->classes.count;
    c->config.model = spec;
    mla_status status = mla_model_declare(&loaded->model, &spec, error);
    if (status != MLA_OK) return mla_fail_context(error, "%s: ", path);
    loaded->average = from_average || averaged;
    mla_params *params = mla_model_params(loaded->model);
    status = mla_checkpoint_fits(c, params, from_average, error);
    if (status != MLA_OK) return status;
    if (mla_params_allocate(params, error) != MLA_OK) return mla_fail_context(error, "%s: ", path);
    const mla_run_buffers buffers = {.value = from_average ? NULL : params->value,
                                     .ema = from_average ? params->value : NULL};
    return mla_checkpoint_load(c, params, &buffers, error);
}

static mla_status load_or_close(mla_loaded *loaded, const char *path, mla_weights weights, mla_error *error) {
    const mla_status status = load(loaded, path, weights, error);
    if (status != MLA_OK) mla_loaded_close(loaded);
    return status;
}

mla_status mla_loaded_open(mla_loaded *loaded, const char *path, mla_weights weights, const char *const *overrides,
                           size_t override_count, mla_error *error) {
    *loaded = (mla_loaded){0};
    const mla_status status = mla_checkpoint_open(&loaded->checkpoint, path, overrides, override_count, error);
    if (status != MLA_OK) return status;
    return load_or_close(loaded, path, weights, error);
}

mla_status mla_loaded_open_weights(mla_loaded *loaded, const char *path, mla_weights weights, mla_error *error) {
    *loaded = (mla_loaded){0};
    const mla_status status = mla_checkpoint_open_weights(&loaded->checkpoint, path, error);
    return status == MLA_OK ? load_or_close(loaded, path, weights, error) : status;
}

void mla_loaded_close(mla_loaded *loaded) {
    mla_model_free(loaded->model);
    mla_checkpoint_close(&loaded->checkpoint);
    loaded->model = NULL;
}
