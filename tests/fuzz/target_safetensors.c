/* Any bytes as a safetensors file: header, layout, conversion to floats. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "train/safetensors.h"

/* Each byte of the data belongs to exactly one tensor, inside the file. */
static void check_tensor(const mla_safetensors *file, const mla_file_tensor *tensor, const uint8_t *data, size_t bytes) {
    const uint8_t *begin = tensor->data;
    size_t due = mla_dtype_bytes(tensor->dtype);
    MLA_REQUIRE(begin >= data && tensor->bytes <= (size_t)(data + bytes - begin), "a tensor outside the file");
    for (int i = 0; i < tensor->ndim; i++) due *= tensor->shape[i];
    MLA_REQUIRE(due == tensor->bytes, "a shape that does not give the bytes");
    MLA_REQUIRE(mla_safetensors_find(file, tensor->name) == tensor, "a tensor that is not found by its name");
    (void)mla_tensor_crc(tensor->data, tensor->bytes);
    const size_t count = tensor->bytes / mla_dtype_bytes(tensor->dtype);
    float *out = malloc(count * sizeof *out + 1);
    mla_error error = {0};
    MLA_REQUIRE(out, "out of memory");
    fuzz_check(mla_safetensors_floats(out, count, file, tensor->name, &error), &error);
    const mla_status status = mla_safetensors_floats(out, count + 1, file, tensor->name, &error);
    MLA_REQUIRE(status != MLA_OK, "a wrong count is taken");
    fuzz_check(status, &error);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mla_safetensors *file;
    mla_error error = {0};
    const mla_status status = mla_safetensors_open_memory(&file, data, bytes, "input", &error);
    fuzz_check(status, &error);
    if (status != MLA_OK) {
        MLA_REQUIRE(!file, "a file that was refused");
        return 0;
    }
    for (size_t i = 0; i < mla_safetensors_count(file); i++) check_tensor(file, mla_safetensors_at(file, i), data, bytes);
    MLA_REQUIRE(!mla_safetensors_find(file, "no such tensor \1"), "found what is not there");
    (void)mla_safetensors_metadata(file, "config");
    mla_safetensors_close(file);
    return 0;
}
