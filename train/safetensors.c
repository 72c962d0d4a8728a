/* What reading and writing share, and conversion between float types. */
#include "train/safetensors.h"

#include <math.h>
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

static uint32_t bits_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint16_t half_from_float(float value) {
    uint32_t bits = bits_from_float(value), magnitude = bits & 0x7FFFFFFF, sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7F800000) return (uint16_t)(sign | 0x7E00);  /* NaN */
    if (magnitude >= 0x477FF000) return (uint16_t)(sign | 0x7C00); /* from 65520 on: nearer to 2^16 than to 65504 */
    if (magnitude < 0x38800000) { /* subnormal: beside 0.5 a float's last place is 2^-24, so the sum rounds as it should */
        return (uint16_t)(sign | (bits_from_float(float_from_bits(magnitude) + 0.5f) - bits_from_float(0.5f)));
    }
    magnitude += 0xFFF + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (magnitude - (112u << 23)) >> 13);
}

static uint16_t bfloat_from_float(float value) {
    uint32_t bits = bits_from_float(value);
    if ((bits & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN, kept quiet */
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

size_t mla_floats_narrow(uint16_t *out, mla_dtype dtype, const float *in, size_t count) {
    MLA_REQUIRE(dtype == MLA_F16 || dtype == MLA_BF16, "floats are narrowed to %s", mla_dtype_name(dtype));
    const uint16_t infinite = dtype == MLA_F16 ? 0x7C00 : 0x7F80;
    size_t first = count;
    for (size_t i = 0; i < count; i++) {
        out[i] = dtype == MLA_F16 ? half_from_float(in[i]) : bfloat_from_float(in[i]);
        if (first == count && (out[i] & 0x7FFF) == infinite && isfinite(in[i])) first = i;
    }
    return first;
}

bool mla_dtype_is_float(mla_dtype dtype) {
    return dtype == MLA_F64 || dtype == MLA_F32 || dtype == MLA_F16 || dtype == MLA_BF16;
}

size_t mla_tensor_elements(const mla_file_tensor *tensor) { return tensor->bytes / mla_dtype_bytes(tensor->dtype); }

/* Data in a file is not aligned: elements are copied out, never pointed at. */
void mla_tensor_widen(float *out, const mla_file_tensor *tensor, size_t first, size_t count) {
    const mla_dtype dtype = tensor->dtype;
    const unsigned char *data = tensor->data;
    if (count == 0) return;
    data += first * mla_dtype_bytes(dtype);
    if (dtype == MLA_F32) memcpy(out, data, count * sizeof *out);
    for (size_t i = 0; dtype != MLA_F32 && i < count; i++) {
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

size_t mla_tensor_not_finite(const mla_file_tensor *tensor) {
    enum { CHUNK = 4096 };
    float value[CHUNK];
    const size_t total = mla_tensor_elements(tensor);
    for (size_t first = 0; first < total; first += CHUNK) {
        const size_t count = total - first < CHUNK ? total - first : CHUNK;
        mla_tensor_widen(value, tensor, first, count);
        for (size_t i = 0; i < count; i++)
            if (!isfinite(value[i])) return first + i;
    }
    return total;
}

mla_status mla_tensor_check_finite(const char *path, const mla_file_tensor *tensor, mla_error *error) {
    const size_t at = mla_tensor_not_finite(tensor);
    float value;
    if (at == mla_tensor_elements(tensor)) return MLA_OK;
    mla_tensor_widen(&value, tensor, at, 1);
    return mla_fail(error, MLA_INVALID, "%s: tensor \"%.200s\" holds %s at element %zu: weights must be finite numbers",
                    path, tensor->name,
                    isnan(value) ? "NaN"
                    : value > 0  ? "infinity"
                                 : "-infinity",
                    at);
}

mla_status mla_safetensors_floats(float *out, size_t count, const mla_safetensors *file, const char *name,
                                  mla_error *error) {
    const char *path = mla_safetensors_path(file);
    const mla_file_tensor *tensor = mla_safetensors_find(file, name);
    if (!tensor) return mla_fail(error, MLA_INVALID, "%s: has no tensor \"%s\"", path, name);
    if (!mla_dtype_is_float(tensor->dtype))
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\" is of type %s, expected F32, F64, F16 or BF16", path, name,
                        mla_dtype_name(tensor->dtype));
    size_t found = mla_tensor_elements(tensor);
    if (found != count)
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\" has %zu elements, expected %zu", path, name, found, count);
    mla_tensor_widen(out, tensor, 0, count);
    return MLA_OK;
}
