/* Writing safetensors: the header is built in memory, the data goes from the caller's buffers to the file. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/file.h"
#include "train/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and written as it is");

enum { DATA_ALIGN_BYTES = 64, HEADER_LIMIT_BYTES = 100000000 };

/* Adds key: value (taken over, NULL allowed) to an object; `what` and `path` are for the message. */
static mla_status add(json_t *object, const char *key, json_t *value, const char *what, const char *path, mla_error *error) {
    if (json_object_get(object, key)) {
        json_decref(value);
        return mla_fail(error, MLA_INVALID, "%s: %s \"%s\" is given twice", path, what, key);
    }
    /* jansson does not tell a wrong key from missing memory: a key it would take as a string is fine */
    json_t *valid = json_string(key);
    json_decref(valid);
    if (!valid) {
        json_decref(value);
        return mla_fail(error, MLA_INVALID, "%s: %s \"%s\" is not valid UTF-8", path, what, key);
    }
    if (json_object_set_new(object, key, value) != 0)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for the header", path);
    return MLA_OK;
}

static mla_status add_metadata(json_t *header, const mla_file_pair *metadata, size_t pairs, const char *path,
                               mla_error *error) {
    json_t *object = json_object();
    if (!object || json_object_set_new(header, "__metadata__", object) != 0)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for the header", path);
    mla_status status = add(object, "format", json_string("pt"), "metadata", path, error);
    for (size_t i = 0; i < pairs && status == MLA_OK; i++) {
        json_t *value = json_string(metadata[i].value);
        status = value ? add(object, metadata[i].key, value, "metadata", path, error)
                       : mla_fail(error, MLA_INVALID, "%s: the value of metadata \"%s\" is not valid UTF-8", path,
                                  metadata[i].key);
    }
    return status;
}

/* {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, NULL when out of memory. */
static json_t *tensor_entry(const mla_file_tensor *tensor, uint64_t begin) {
    json_t *shape = json_array();
    for (int i = 0; shape && i < tensor->ndim; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", mla_dtype_name(tensor->dtype), "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + tensor->bytes));
}

static mla_status check_tensor(const mla_file_tensor *tensor, const char *path, mla_error *error) {
    if (strcmp(tensor->name, "__metadata__") == 0)
        return mla_fail(error, MLA_INVALID, "%s: a tensor can't be named __metadata__", path);
    size_t bytes = mla_dtype_bytes(tensor->dtype);
    bool fits = tensor->ndim >= 0 && tensor->ndim <= MLA_TENSOR_MAX_DIMS;
    for (int i = 0; fits && i < tensor->ndim; i++) fits = !__builtin_mul_overflow(bytes, tensor->shape[i], &bytes);
    if (!fits || bytes != tensor->bytes || bytes > INT64_MAX)
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\": its shape and dtype %s do not give its %zu bytes", path,
                        tensor->name, mla_dtype_name(tensor->dtype), tensor->bytes);
    return MLA_OK;
}

static mla_status build_header(json_t *header, uint64_t *data_bytes, const char *path, const mla_file_tensor *tensors,
                               size_t count, mla_error *error) {
    *data_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        mla_status status = check_tensor(&tensors[i], path, error);
        uint64_t end;
        if (status != MLA_OK) return status;
        if (__builtin_add_overflow(*data_bytes, tensors[i].bytes, &end) || end > INT64_MAX)
            return mla_fail(error, MLA_INVALID, "%s: the tensors have more bytes than a file can", path);
        status = add(header, tensors[i].name, tensor_entry(&tensors[i], *data_bytes), "tensor", path, error);
        if (status != MLA_OK) return status;
        *data_bytes = end;
    }
    return MLA_OK;
}

/* Length, JSON and the spaces that bring the data to its alignment. */
static mla_status write_header(mla_atomic_file *file, const char *text, size_t length, size_t padded, mla_error *error) {
    char spaces[DATA_ALIGN_BYTES];
    uint64_t header_bytes = padded;
    memset(spaces, ' ', sizeof spaces);
    mla_status status = mla_atomic_write(file, &header_bytes, sizeof header_bytes, error);
    if (status == MLA_OK) status = mla_atomic_write(file, text, length, error);
    if (status == MLA_OK) status = mla_atomic_write(file, spaces, padded - length, error);
    return status;
}

static mla_status write_tensor(mla_atomic_file *file, const mla_file_tensor *tensor, mla_error *error) {
    enum { CHUNK = 16384 };
    uint16_t narrow[CHUNK];
    if (!tensor->floats) return mla_atomic_write(file, tensor->data, tensor->bytes, error);
    const size_t total = mla_tensor_elements(tensor);
    mla_status status = MLA_OK;
    for (size_t first = 0; first < total && status == MLA_OK; first += CHUNK) {
        const size_t count = total - first < CHUNK ? total - first : CHUNK;
        (void)mla_floats_narrow(narrow, tensor->dtype, tensor->floats + first, count);
        status = mla_atomic_write(file, narrow, count * sizeof *narrow, error);
    }
    return status;
}

static mla_status write_file(const char *path, const char *text, const mla_file_tensor *tensors, size_t count,
                             uint64_t data_bytes, mla_error *error) {
    size_t length = strlen(text);
    size_t start = (8 + length + DATA_ALIGN_BYTES - 1) / DATA_ALIGN_BYTES * DATA_ALIGN_BYTES;
    if (start - 8 > HEADER_LIMIT_BYTES)
        return mla_fail(error, MLA_INVALID, "%s: the header would have %zu bytes, over the format's limit of 100000000",
                        path, start - 8);
    mla_atomic_file file;
    mla_status status = mla_atomic_open(&file, path, start + data_bytes, error);
    if (status == MLA_OK) status = write_header(&file, text, length, start - 8, error);
    for (size_t i = 0; i < count && status == MLA_OK; i++) status = write_tensor(&file, &tensors[i], error);
    if (status == MLA_OK) status = mla_atomic_commit(&file, error);
    return status;
}

mla_status mla_safetensors_write(const char *path, const mla_file_tensor *tensors, size_t count,
                                 const mla_file_pair *metadata, size_t pairs, mla_error *error) {
    uint64_t data_bytes = 0;
    json_t *header = json_object();
    if (!header) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for the header", path);
    mla_status status = add_metadata(header, metadata, pairs, path, error);
    if (status == MLA_OK) status = build_header(header, &data_bytes, path, tensors, count, error);
    if (status == MLA_OK) {
        char *text = json_dumps(header, JSON_COMPACT);
        status = text ? write_file(path, text, tensors, count, data_bytes, error)
                      : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for the header", path);
        free(text);
    }
    json_decref(header);
    return status;
}
