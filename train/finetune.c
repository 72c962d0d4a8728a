#include "train/finetune.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/adapt.h"
#include "train/file.h"

static mla_status fill_record(mla_finetune *record, const mla_params *params, const mla_source *source, mla_error *error) {
    char *path = realpath(source->path, NULL);
    if (!path || strlen(path) >= sizeof record->checkpoint) {
        free(path);
        return mla_fail(error, MLA_IO, "%s: its full path could not be found", source->path);
    }
    *record = (mla_finetune){.weights = source->loaded.average ? MLA_WEIGHTS_AVERAGE : MLA_WEIGHTS_RAW};
    strcpy(record->checkpoint, path);
    snprintf(record->weight_hash, sizeof record->weight_hash, "%016" PRIx64, mla_params_hash(params, params->value));
    free(path);
    return MLA_OK;
}

mla_status mla_finetune_start(mla_finetune *record, mla_params *params, const mla_config *config,
                              const mla_class_info *classes, const char *path, mla_weights weights, mla_error *error) {
    mla_source source;
    mla_adapted adapted;
    mla_status status = mla_source_open(&source, path, weights, error);
    if (status != MLA_OK) return status;
    if (!source.loaded.model) {
        status =
            mla_fail(error, MLA_INVALID, "%s: is no file of mirrorla; `mirrorla import` makes a checkpoint of it", path);
    } else {
        mla_source_tell_config(&source, config);
        status = mla_adapt(&adapted, params, classes, &source, NULL, error);
    }
    if (status == MLA_OK) status = fill_record(record, params, &source, error);
    if (status == MLA_OK)
        fprintf(stderr, "finetune: from %s, %s weights: %zu tensors taken, %zu initialised\n", path,
                source.loaded.average ? "averaged" : "raw", adapted.taken, adapted.fresh);
    mla_source_close(&source);
    return status;
}

char *mla_finetune_text(const mla_finetune *record) {
    json_t *object =
        json_pack("{s:s, s:s, s:s}", "checkpoint", record->checkpoint, "weights",
                  record->weights == MLA_WEIGHTS_AVERAGE ? "average" : "raw", "weight_hash", record->weight_hash);
    char *json = object ? json_dumps(object, JSON_INDENT(2)) : NULL, *text = NULL;
    json_decref(object);
    if (!json || asprintf(&text, "%s\n", json) < 0) text = NULL;
    free(json);
    return text;
}

mla_status mla_finetune_read(mla_finetune *record, bool *found, const char *folder, mla_error *error) {
    char *text = NULL, *path = mla_path_join(folder, "finetune.json");
    size_t bytes = 0;
    const char *checkpoint, *weights, *hash;
    *found = false;
    if (!path) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    mla_status status = MLA_OK;
    if (access(path, F_OK) == 0) {
        status = mla_file_read(&text, &bytes, path, 1 << 16, error);
        json_t *object = status == MLA_OK ? json_loadb(text, bytes, 0, NULL) : NULL;
        *record = (mla_finetune){0};
        if (object &&
            json_unpack(object, "{s:s, s:s, s:s}", "checkpoint", &checkpoint, "weights", &weights, "weight_hash", &hash) ==
                0 &&
            mla_weights_parse(&record->weights, weights) && strlen(checkpoint) < sizeof record->checkpoint &&
            strlen(hash) < sizeof record->weight_hash) {
            strcpy(record->checkpoint, checkpoint);
            strcpy(record->weight_hash, hash);
            *found = true;
        } else if (status == MLA_OK) {
            status = mla_fail(error, MLA_INVALID, "%s: is damaged: expected checkpoint, weights and weight_hash", path);
        }
        json_decref(object);
    }
    free(text);
    free(path);
    return status;
}
