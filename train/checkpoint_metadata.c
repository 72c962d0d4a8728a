#include "train/checkpoint_metadata.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "train/text.h"

#ifndef MLA_VERSION
#define MLA_VERSION "development"
#endif

/* The pairs under the CRC of the metadata, in the order in which they are summed: other tools may write them back
 * in another one. */
static const char *const covered[] = {"mirrorla.version", "config", "counters", "classes", "mean", "std", "size",
                                      "weight_hash"};
enum { COVERED = sizeof covered / sizeof *covered };

/* The counters that are whole numbers. */
#define COUNTER_LIST(X)                                                                                                     \
    X(step) X(epoch) X(step_in_epoch) X(epoch_correct) X(epoch_images) X(best_correct) X(best_images) X(best_epoch)

/* ---- writing */

void mla_metadata_add(mla_metadata *metadata, const char *key, char *value) {
    MLA_REQUIRE(metadata->count < MLA_METADATA_MAX, "too many metadata pairs, %s has no room", key);
    if (!value) {
        metadata->out_of_memory = true;
        return;
    }
    metadata->value[metadata->count] = value;
    metadata->pair[metadata->count++] = (mla_file_pair){key, value};
}

void mla_metadata_add_count(mla_metadata *metadata, const char *key, uint64_t value) {
    char *text = NULL;
    mla_metadata_add(metadata, key, asprintf(&text, "%" PRIu64, value) < 0 ? NULL : text);
}

void mla_metadata_free(mla_metadata *metadata) {
    for (size_t i = 0; i < metadata->count; i++) free(metadata->value[i]);
    *metadata = (mla_metadata){0};
}

mla_status mla_metadata_status(const mla_metadata *metadata, const char *path, mla_error *error) {
    return metadata->out_of_memory ? mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its metadata", path) : MLA_OK;
}

static char *number_list(const double value[3]) {
    char text[3][MLA_NUMBER_BYTES], *list = NULL;
    for (int i = 0; i < 3; i++) mla_number_text(text[i], value[i]);
    return asprintf(&list, "[%s,%s,%s]", text[0], text[1], text[2]) < 0 ? NULL : list;
}

static mla_status add_classes(mla_metadata *metadata, const char *path, const mla_class_info *classes, mla_error *error) {
    json_t *list = json_array();
    for (int i = 0; i < classes->count; i++) {
        if (!mla_is_utf8(classes->names[i])) {
            char name[512];
            mla_text_escape(name, sizeof name, classes->names[i]);
            json_decref(list);
            return mla_fail(error, MLA_INVALID, "%s: the name of class %d, \"%s\", is not valid UTF-8", path, i, name);
        }
        /* of UTF-8, json_string is NULL only without memory; appending that fails too */
        if (json_array_append_new(list, json_string(classes->names[i])) != 0) metadata->out_of_memory = true;
    }
    mla_metadata_add(metadata, "classes", json_dumps(list, JSON_COMPACT));
    json_decref(list);
    return MLA_OK;
}

mla_status mla_metadata_describe(mla_metadata *metadata, const char *path, const mla_config *config,
                                 const mla_class_info *classes, uint64_t weight_hash, mla_error *error) {
    char *hash = NULL;
    if (asprintf(&hash, "%016" PRIx64, weight_hash) < 0) hash = NULL;
    mla_metadata_add(metadata, "mirrorla.version", strdup(MLA_VERSION));
    mla_metadata_add(metadata, "config", mla_config_text(config));
    mla_metadata_add(metadata, "mean", number_list(classes->mean));
    mla_metadata_add(metadata, "std", number_list(classes->std));
    mla_metadata_add_count(metadata, "size", (uint64_t)classes->size);
    mla_metadata_add(metadata, "weight_hash", hash);
    return add_classes(metadata, path, classes, error);
}

void mla_metadata_add_counters(mla_metadata *metadata, const mla_counters *counters) {
    char sum[MLA_NUMBER_BYTES];
    mla_number_hex(sum, counters->epoch_loss_sum);
    json_t *object = json_object();
#define COUNTER_SET(name)                                                                                                   \
    metadata->out_of_memory |= json_object_set_new(object, #name, json_integer((json_int_t)counters->name)) != 0;
    COUNTER_LIST(COUNTER_SET)
#undef COUNTER_SET
    metadata->out_of_memory |= json_object_set_new(object, "epoch_loss_sum", json_string(sum)) != 0;
    mla_metadata_add(metadata, "counters", json_dumps(object, JSON_COMPACT));
    json_decref(object);
}

/* CRC over values[COVERED], NULL for an absent one; the terminating zeros keep neighbours apart. */
static uint32_t covered_crc(const char *const *values) {
    uLong crc = crc32_z(0, NULL, 0);
    for (int i = 0; i < COVERED; i++)
        if (values[i]) crc = crc32_z(crc, (const Bytef *)values[i], strlen(values[i]) + 1);
    return (uint32_t)crc;
}

static bool set_crc(json_t *object, const char *name, uint32_t crc) {
    char text[9];
    snprintf(text, sizeof text, "%08" PRIx32, crc);
    return json_object_set_new(object, name, json_string(text)) == 0;
}

void mla_metadata_add_crc(mla_metadata *metadata, const mla_file_tensor *tensors, size_t count) {
    const char *values[COVERED] = {0};
    for (int i = 0; i < COVERED; i++)
        for (size_t j = 0; j < metadata->count; j++)
            if (strcmp(covered[i], metadata->pair[j].key) == 0) values[i] = metadata->pair[j].value;
    json_t *object = json_object();
    bool done = set_crc(object, "__metadata__", covered_crc(values));
    for (size_t i = 0; i < count && done; i++)
        done = set_crc(object, tensors[i].name, mla_tensor_crc(tensors[i].data, tensors[i].bytes));
    mla_metadata_add(metadata, "crc32", done ? json_dumps(object, JSON_COMPACT) : NULL);
    json_decref(object);
}

/* ---- reading */

/* The text of a key that must be there. */
static mla_status get_text(const char **text, const mla_checkpoint *checkpoint, const char *key, mla_error *error) {
    *text = mla_safetensors_metadata(checkpoint->file, key);
    return *text ? MLA_OK : mla_fail(error, MLA_INVALID, "%s: its metadata has no \"%s\"", checkpoint->path, key);
}

/* The same as JSON of a given type; the caller releases *value. */
static mla_status get_json(json_t **value, const mla_checkpoint *checkpoint, const char *key, json_type type,
                           mla_error *error) {
    const char *text;
    json_error_t why;
    *value = NULL;
    mla_status status = get_text(&text, checkpoint, key, error);
    if (status != MLA_OK) return status;
    *value = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (!*value)
        return mla_fail(error, MLA_INVALID, "%s: metadata \"%s\" is not valid JSON: %s", checkpoint->path, key, why.text);
    if (json_typeof(*value) != type) {
        json_decref(*value);
        *value = NULL;
        return mla_fail(error, MLA_INVALID, "%s: metadata \"%s\" must be a JSON %s", checkpoint->path, key,
                        type == JSON_ARRAY ? "array" : "object");
    }
    return MLA_OK;
}

/* Pixels are divided by a deviation: it must be positive. */
static mla_status read_three(double out[3], bool positive, const mla_checkpoint *checkpoint, const char *key,
                             mla_error *error) {
    json_t *list;
    mla_status status = get_json(&list, checkpoint, key, JSON_ARRAY, error);
    if (status != MLA_OK) return status;
    bool valid = json_array_size(list) == 3;
    for (size_t i = 0; i < 3 && valid; i++) {
        valid = json_is_number(json_array_get(list, i));
        out[i] = json_number_value(json_array_get(list, i));
        valid = valid && (!positive || out[i] > 0);
    }
    json_decref(list);
    return valid ? MLA_OK
                 : mla_fail(error, MLA_INVALID, "%s: metadata \"%s\" must be a list of 3 %snumbers", checkpoint->path, key,
                            positive ? "positive " : "");
}

static mla_status read_size(int *size, const mla_checkpoint *checkpoint, mla_error *error) {
    const char *text;
    char *end;
    mla_status status = get_text(&text, checkpoint, "size", error);
    if (status != MLA_OK) return status;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > 1 << 20)
        return mla_fail(error, MLA_INVALID, "%s: metadata \"size\" must be a number of pixels, found \"%.40s\"",
                        checkpoint->path, text);
    *size = (int)value;
    return MLA_OK;
}

/* Copies the list into one block: pointers, then their texts. */
static char **copy_names(const json_t *list) {
    size_t count = json_array_size(list), bytes = count * sizeof(char *);
    for (size_t i = 0; i < count; i++) bytes += json_string_length(json_array_get(list, i)) + 1;
    char **names = malloc(bytes);
    char *next = names ? (char *)(names + count) : NULL;
    for (size_t i = 0; i < count && names; i++) {
        names[i] = next;
        next = stpcpy(next, json_string_value(json_array_get(list, i))) + 1;
    }
    return names;
}

mla_status mla_metadata_read_classes(mla_checkpoint *checkpoint, mla_error *error) {
    mla_class_info *classes = &checkpoint->classes;
    json_t *list;
    mla_status status = get_json(&list, checkpoint, "classes", JSON_ARRAY, error);
    if (status != MLA_OK) return status;
    size_t count = json_array_size(list);
    bool valid = count > 0 && count <= 1 << 24;
    for (size_t i = 0; i < count && valid; i++) valid = json_is_string(json_array_get(list, i));
    if (!valid) {
        status = mla_fail(error, MLA_INVALID, "%s: metadata \"classes\" must be a list of names", checkpoint->path);
    } else {
        classes->names = (const char *const *)copy_names(list);
        classes->count = (int)count;
        if (!classes->names) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for class names", checkpoint->path);
    }
    json_decref(list);
    if (status == MLA_OK) status = read_three(classes->mean, false, checkpoint, "mean", error);
    if (status == MLA_OK) status = read_three(classes->std, true, checkpoint, "std", error);
    return status == MLA_OK ? read_size(&classes->size, checkpoint, error) : status;
}

static bool read_counter(uint64_t *value, const json_t *object, const char *name) {
    const json_t *number = json_object_get(object, name);
    if (!json_is_integer(number) || json_integer_value(number) < 0) return false;
    *value = (uint64_t)json_integer_value(number);
    return true;
}

mla_status mla_metadata_read_counters(mla_checkpoint *checkpoint, mla_error *error) {
    mla_counters *counters = &checkpoint->counters;
    json_t *object;
    mla_status status = get_json(&object, checkpoint, "counters", JSON_OBJECT, error);
    if (status != MLA_OK) return status;
    const char *wrong = NULL;
#define COUNTER_READ(name)                                                                                                  \
    if (!wrong && !read_counter(&counters->name, object, #name)) wrong = #name;
    COUNTER_LIST(COUNTER_READ)
#undef COUNTER_READ
    const char *sum = json_string_value(json_object_get(object, "epoch_loss_sum"));
    if (!wrong && (!sum || !mla_number_read(&counters->epoch_loss_sum, sum))) wrong = "epoch_loss_sum";
    json_decref(object);
    return wrong ? mla_fail(error, MLA_INVALID, "%s: metadata \"counters\": %s is missing or wrong", checkpoint->path, wrong)
                 : MLA_OK;
}

mla_status mla_metadata_read_hash(mla_checkpoint *checkpoint, mla_error *error) {
    const char *text;
    mla_status status = get_text(&text, checkpoint, "weight_hash", error);
    if (status != MLA_OK) return status;
    if (strcmp(text, MLA_NO_HASH) != 0 && (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16))
        return mla_fail(error, MLA_INVALID, "%s: metadata \"weight_hash\" must be 16 hex digits, found \"%.40s\"",
                        checkpoint->path, text);
    checkpoint->weight_hash = strdup(text);
    return checkpoint->weight_hash ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", checkpoint->path);
}

static bool same_crc(const json_t *object, const char *name, uint32_t crc) {
    char text[9];
    const char *stored = json_string_value(json_object_get(object, name));
    snprintf(text, sizeof text, "%08" PRIx32, crc);
    return stored && strcmp(stored, text) == 0;
}

mla_status mla_metadata_verify_crc(const mla_checkpoint *checkpoint, mla_error *error) {
    json_t *object;
    mla_status status = get_json(&object, checkpoint, "crc32", JSON_OBJECT, error);
    if (status != MLA_OK) return status;
    const char *values[COVERED];
    for (int i = 0; i < COVERED; i++) values[i] = mla_safetensors_metadata(checkpoint->file, covered[i]);
    if (!same_crc(object, "__metadata__", covered_crc(values)))
        status = mla_fail(error, MLA_INVALID,
                          "%s: the metadata does not have the CRC-32 stored with it: the file is "
                          "damaged",
                          checkpoint->path);
    for (size_t i = 0; i < mla_safetensors_count(checkpoint->file) && status == MLA_OK; i++) {
        const mla_file_tensor *tensor = mla_safetensors_at(checkpoint->file, i);
        if (checkpoint->weights_only && !strncmp(tensor->name, "optim.", strlen("optim."))) continue;
        if (same_crc(object, tensor->name, mla_tensor_crc(tensor->data, tensor->bytes)))
            mla_safetensors_release(checkpoint->file, tensor);
        else
            status = mla_fail(error, MLA_INVALID,
                              "%s: tensor \"%.200s\" does not have the CRC-32 stored with it: the "
                              "file is damaged",
                              checkpoint->path, tensor->name);
    }
    if (status == MLA_OK && json_object_size(object) != mla_safetensors_count(checkpoint->file) + 1)
        status = mla_fail(error, MLA_INVALID, "%s: has %zu tensors, but CRC-32 values of %zu: the file is damaged",
                          checkpoint->path, mla_safetensors_count(checkpoint->file), json_object_size(object) - 1);
    json_decref(object);
    return status;
}
