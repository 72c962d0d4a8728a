/* What reading and writing share, and conversion to float. */
#include "train/safetensors.h"

#include <string.h>
#include <zlib.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define MLA_DTYPE_ROW(name, bytes) {#name, bytes},
    MLA_DTYPE_LIST(MLA_DTYPE_ROW)
#undef MLA_DTYPE_ROW
};

const char *mla_dtype_name(mla_dtype dtype) { return dtypes[dtype].name; }

size_t mla_dtype_bytes(mla_dtype dtype) { return dtypes[dtype].bytes; }

uint32_t mla_tensor_crc(const void *data, size_t bytes) { return (uint32_t)crc32_z(crc32_z(0, NULL, 0), data, bytes); }

static float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* IEEE 754 half precision: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static float float_from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    if (exponent == 0x1F) return float_from_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent == 0) { /* subnormal: fraction times 2^-24, exact in float */
        float magnitude = (float)fraction * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Data in a file is not aligned: elements are copied out, never pointed at. */
static void convert(float *out, size_t count, mla_dtype dtype, const unsigned char *data) {
    for (size_t i = 0; i < count; i++) {
        double wide;
        uint16_t narrow;
        if (dtype == MLA_F64) {
            memcpy(&wide, data + i * sizeof wide, sizeof wide);
            out[i] = (float)wide;
        } else {
            memcpy(&narrow, data + i * sizeof narrow, sizeof narrow);
            out[i] = dtype == MLA_F16 ? float_from_half(narrow) : float_from_bits((uint32_t)narrow << 16);
        }
    }
}

mla_status mla_safetensors_floats(float *out, size_t count, const mla_safetensors *file, const char *name,
                                  mla_error *error) {
    const char *path = mla_safetensors_path(file);
    const mla_file_tensor *tensor = mla_safetensors_find(file, name);
    if (!tensor) return mla_fail(error, MLA_INVALID, "%s: has no tensor \"%s\"", path, name);
    mla_dtype dtype = tensor->dtype;
    if (dtype != MLA_F32 && dtype != MLA_F64 && dtype != MLA_F16 && dtype != MLA_BF16)
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\" is of type %s, expected F32, F64, F16 or BF16", path, name,
                        mla_dtype_name(dtype));
    size_t found = tensor->bytes / mla_dtype_bytes(dtype);
    if (found != count)
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\" has %zu elements, expected %zu", path, name, found, count);
    if (dtype == MLA_F32 && count > 0)
        memcpy(out, tensor->data, tensor->bytes);
    else
        convert(out, count, dtype, tensor->data);
    return MLA_OK;
}
