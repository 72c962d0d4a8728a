/* Changes a safetensors file in one place of its structure and mends the rest: header length, offsets, CRC-32 values and the
 * hash of the weights, without which no change would get further than to the first check. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/params.h"
#include "tests/fuzz/fuzz.h"
#include "train/checkpoint_metadata.h"

enum { LENGTH_BYTES = 8, TEXT_MOST_BYTES = 1 << 14 };

typedef struct parts {
    json_t *header;
    uint8_t *data; /* inside the caller's buffer */
    size_t data_bytes;
} parts;

static bool take_apart(parts *file, uint8_t *data, size_t bytes) {
    uint64_t length;
    if (bytes < LENGTH_BYTES) return false;
    memcpy(&length, data, sizeof length);
    if (length > bytes - LENGTH_BYTES) return false;
    file->header = json_loadb((const char *)data + LENGTH_BYTES, (size_t)length, 0, NULL);
    file->data = data + LENGTH_BYTES + length;
    file->data_bytes = bytes - LENGTH_BYTES - (size_t)length;
    return json_is_object(file->header);
}

/* ---- changes ---- */

static const char *any_key(const json_t *object, fuzz_random *random) {
    json_t *all = (json_t *)(uintptr_t)object; /* jansson's iterators want it so */
    void *at = json_object_iter(all);
    for (size_t steps = fuzz_below(random, json_object_size(object)); at && steps; steps--)
        at = json_object_iter_next(all, at);
    return at ? json_object_iter_key(at) : NULL;
}

static json_t *any_number(fuzz_random *random) {
    static const json_int_t numbers[] = {0,       1,         2,         3,         4,          5,         7,
                                         8,       12,        16,        64,        -1,         1 << 16,   1 << 30,
                                         1 << 24, INT32_MAX, INT64_MAX, INT64_MIN, 0x40000000, UINT32_MAX};
    return json_integer(numbers[fuzz_below(random, sizeof numbers / sizeof *numbers)]);
}

/* Another text for a string; what is not UTF-8 stays as it was. */
static void change_text(json_t *object, const char *key) {
    static uint8_t text[TEXT_MOST_BYTES];
    const json_t *value = json_object_get(object, key);
    size_t length = json_string_length(value);
    if (!json_is_string(value) || length > sizeof text / 2) return;
    memcpy(text, json_string_value(value), length);
    length = LLVMFuzzerMutate(text, length, sizeof text);
    (void)json_object_set_new(object, key, json_stringn((const char *)text, length));
}

static void change_list(json_t *list, fuzz_random *random) {
    const size_t count = json_array_size(list), at = fuzz_below(random, count);
    switch (fuzz_below(random, 4)) {
    case 0: (void)json_array_remove(list, at); break;
    case 1: (void)json_array_insert_new(list, at, any_number(random)); break;
    default: (void)json_array_set_new(list, at, any_number(random));
    }
}

static void change_entry(json_t *header, const char *name, fuzz_random *random) {
    json_t *entry = json_object_get(header, name);
    switch (fuzz_below(random, 6)) {
    case 0:
        (void)json_object_set_new(entry, "dtype",
                                  json_string(mla_dtype_name((mla_dtype)fuzz_below(random, (size_t)MLA_BOOL + 1))));
        break;
    case 1: change_list(json_object_get(entry, "shape"), random); break;
    case 2: change_list(json_object_get(entry, "data_offsets"), random); break;
    case 3: (void)json_object_del(header, name); break;
    case 4: (void)json_object_set_new(header, "another", json_deep_copy(entry)); break;
    default: change_text(entry, any_key(entry, random));
    }
}

static void change(parts *file, fuzz_random *random) {
    json_t *metadata = json_object_get(file->header, "__metadata__");
    const char *name = any_key(file->header, random);
    switch (fuzz_below(random, 4)) {
    case 0: (void)LLVMFuzzerMutate(file->data, file->data_bytes, file->data_bytes); break;
    case 1:
        if (name && json_is_object(json_object_get(file->header, name))) change_entry(file->header, name, random);
        break;
    default:
        name = any_key(metadata, random);
        if (name && fuzz_below(random, 8) == 0)
            (void)json_object_del(metadata, name);
        else if (name)
            change_text(metadata, name);
    }
}

/* ---- mending ---- */

/* Puts tensors one behind the other by shape and type, as far as there is data, and cuts what is left over. */
static void mend_offsets(parts *file) {
    const char *name;
    json_t *entry;
    size_t begin = 0;
    json_object_foreach(file->header, name, entry) {
        json_int_t dims[MLA_TENSOR_MAX_DIMS] = {0};
        const json_t *shape = json_object_get(entry, "shape");
        const char *type = json_string_value(json_object_get(entry, "dtype"));
        size_t bytes = 0;
        for (int i = 0; type && i <= MLA_BOOL; i++)
            if (!strcmp(type, mla_dtype_name((mla_dtype)i))) bytes = mla_dtype_bytes((mla_dtype)i);
        for (size_t i = 0; i < json_array_size(shape) && i < MLA_TENSOR_MAX_DIMS; i++) {
            dims[i] = json_integer_value(json_array_get(shape, i));
            if (dims[i] < 0 || __builtin_mul_overflow(bytes, (size_t)dims[i], &bytes)) return;
        }
        if (!shape || bytes > file->data_bytes - begin) continue;
        (void)json_object_set_new(entry, "data_offsets",
                                  json_pack("[I, I]", (json_int_t)begin, (json_int_t)(begin + bytes)));
        begin += bytes;
    }
    file->data_bytes = begin;
}

/* The tensors whose bytes lie inside the data, as far as CRC and hash need them. */
static size_t list_tensors(mla_file_tensor *tensors, size_t most, const parts *file) {
    const char *name;
    json_t *entry;
    size_t count = 0;
    json_object_foreach(file->header, name, entry) {
        const json_t *offsets = json_object_get(entry, "data_offsets");
        const json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
                         end = json_integer_value(json_array_get(offsets, 1));
        if (!offsets || begin < 0 || end < begin || (size_t)end > file->data_bytes || count == most) continue;
        tensors[count++] = (mla_file_tensor){.name = name, .data = file->data + begin, .bytes = (size_t)(end - begin)};
    }
    return count;
}

static bool is_weight(const char *name) { return strncmp(name, "optim.", 6) != 0 && strncmp(name, "ema.", 4) != 0; }

/* Of the weights in their order in the header, which is that of the model where nobody changed it. */
static void mend_hash(json_t *metadata, const mla_file_tensor *tensors, size_t count) {
    uint64_t hash = MLA_HASH_START;
    char text[17];
    for (size_t i = 0; i < count; i++)
        if (is_weight(tensors[i].name)) hash = mla_hash_bytes(hash, tensors[i].data, tensors[i].bytes);
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (json_object_get(metadata, "weight_hash")) (void)json_object_set_new(metadata, "weight_hash", json_string(text));
}

static void mend_crc(json_t *metadata, const mla_file_tensor *tensors, size_t count) {
    mla_metadata sum = {0};
    const char *key;
    json_t *value;
    if (!json_object_get(metadata, "crc32")) return;
    json_object_foreach(metadata, key, value) {
        const char *text = json_string_value(value);
        if (text && strcmp(key, "crc32") != 0 && sum.count + 1 < MLA_METADATA_MAX) mla_metadata_add(&sum, key, strdup(text));
    }
    mla_metadata_add_crc(&sum, tensors, count);
    (void)json_object_set_new(metadata, "crc32", json_string(sum.pair[sum.count - 1].value));
    mla_metadata_free(&sum);
}

/* Writes header and data back; 0 when they do not fit. */
static size_t put_together(const parts *file, uint8_t *data, size_t most) {
    char *text = json_dumps(file->header, JSON_COMPACT);
    const uint64_t length = text ? strlen(text) : 0;
    const size_t bytes = LENGTH_BYTES + (size_t)length + file->data_bytes;
    if (text && bytes <= most) {
        memmove(data + LENGTH_BYTES + length, file->data, file->data_bytes);
        memcpy(data, &length, sizeof length);
        memcpy(data + LENGTH_BYTES, text, (size_t)length);
    }
    free(text);
    return text && bytes <= most ? bytes : 0;
}

/* The header's JSON as plain text, with its length mended. */
static size_t change_header_text(uint8_t *data, size_t bytes, size_t most) {
    uint64_t length;
    if (bytes < LENGTH_BYTES) return LLVMFuzzerMutate(data, bytes, most);
    memcpy(&length, data, sizeof length);
    if (length > bytes - LENGTH_BYTES) length = bytes - LENGTH_BYTES;
    uint8_t *text = malloc(most);
    if (!text) return bytes;
    memcpy(text, data + LENGTH_BYTES, (size_t)length);
    const size_t data_bytes = bytes - LENGTH_BYTES - (size_t)length, room = most - LENGTH_BYTES - data_bytes;
    const uint64_t fresh = LLVMFuzzerMutate(text, (size_t)length, room);
    memmove(data + LENGTH_BYTES + fresh, data + LENGTH_BYTES + length, data_bytes);
    memcpy(data + LENGTH_BYTES, text, (size_t)fresh);
    memcpy(data, &fresh, sizeof fresh);
    free(text);
    return LENGTH_BYTES + (size_t)fresh + data_bytes;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    enum { TENSORS_MOST = 256 };
    static mla_file_tensor tensors[TENSORS_MOST];
    fuzz_random random = fuzz_seed(seed);
    parts file = {0};
    const size_t way = fuzz_below(&random, 8);
    if (way == 0) return LLVMFuzzerMutate(data, bytes, most);
    if (way == 1) return change_header_text(data, bytes, most);
    size_t result = 0;
    if (take_apart(&file, data, bytes)) {
        change(&file, &random);
        if (fuzz_below(&random, 2)) mend_offsets(&file);
        const size_t count = list_tensors(tensors, TENSORS_MOST, &file);
        json_t *metadata = json_object_get(file.header, "__metadata__");
        if (fuzz_below(&random, 8)) mend_hash(metadata, tensors, count);
        if (fuzz_below(&random, 8)) mend_crc(metadata, tensors, count);
        result = put_together(&file, data, most);
    }
    json_decref(file.header);
    return result ? result : change_header_text(data, bytes, most);
}
