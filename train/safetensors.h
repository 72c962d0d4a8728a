/* The safetensors format: 8 bytes little-endian header length, a JSON header, the data.
 *
 * Reading maps the file and checks everything before a tensor can be touched: header length, JSON, duplicate
 * names, dtype, shape x type against offsets, overlaps, holes, end of data.  Writing goes to a temporary name in
 * the same folder, is synced, renamed, and the folder synced: a reader sees the old file or the new one.
 * Format: https://github.com/huggingface/safetensors, README, "Format".
 */
#ifndef MLA_TRAIN_SAFETENSORS_H
#define MLA_TRAIN_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

enum { MLA_TENSOR_MAX_DIMS = 8 };

/* X(name, bytes of an element) */
#define MLA_DTYPE_LIST(X)                                                                                                   \
    X(F64, 8)                                                                                                               \
    X(F32, 4) X(F16, 2) X(BF16, 2) X(I64, 8) X(I32, 4) X(I16, 2) X(I8, 1) X(U64, 8) X(U32, 4) X(U16, 2) X(U8, 1) X(BOOL, 1)

typedef enum mla_dtype {
#define MLA_DTYPE_ENUM(name, bytes) MLA_##name,
    MLA_DTYPE_LIST(MLA_DTYPE_ENUM)
#undef MLA_DTYPE_ENUM
} mla_dtype;

const char *mla_dtype_name(mla_dtype dtype);
size_t mla_dtype_bytes(mla_dtype dtype);

typedef struct mla_file_tensor {
    const char *name;
    mla_dtype dtype;
    int ndim;
    size_t shape[MLA_TENSOR_MAX_DIMS];
    const void *data; /* reading: inside the mapped file, not necessarily aligned; writing: the caller's */
    size_t bytes;
    const float *floats; /* writing F16 or BF16 with data NULL: narrowed while being written, without a copy */
} mla_file_tensor;

typedef struct mla_file_pair {
    const char *key, *value;
} mla_file_pair; /* of __metadata__ */

/* ---- reading */
typedef struct mla_safetensors mla_safetensors;
/* The file must not be cut short by another process while it is open (it is mapped, not read). */
MLA_MUST_CHECK mla_status mla_safetensors_open(mla_safetensors **file, const char *path, mla_error *error);
/* The same for a file's bytes in memory, which stay the caller's; `origin` stands for the path in messages. */
MLA_MUST_CHECK mla_status mla_safetensors_open_memory(mla_safetensors **file, const void *data, size_t bytes,
                                                      const char *origin, mla_error *error);
void mla_safetensors_close(mla_safetensors *file);             /* NULL is allowed */
const char *mla_safetensors_path(const mla_safetensors *file); /* as given to open */
size_t mla_safetensors_count(const mla_safetensors *file);
const mla_file_tensor *mla_safetensors_at(const mla_safetensors *file, size_t i);           /* order of the data */
const mla_file_tensor *mla_safetensors_find(const mla_safetensors *file, const char *name); /* NULL if absent */
const char *mla_safetensors_metadata(const mla_safetensors *file, const char *key);         /* NULL if absent */
/* Copies an F32 tensor (or F64, F16, BF16, converted) to out[count]; MLA_INVALID names the tensor when the dtype
 * is none of these or the element count differs. */
MLA_MUST_CHECK mla_status mla_safetensors_floats(float *out, size_t count, const mla_safetensors *file, const char *name,
                                                 mla_error *error);
/* Tells the system that a tensor's bytes are not needed for now, so that a large file does not stay in memory after it was
 * read through once.  They can be read again at any time. */
void mla_safetensors_release(const mla_safetensors *file, const mla_file_tensor *tensor);

/* ---- elements of the float types */
bool mla_dtype_is_float(mla_dtype dtype);                  /* F64, F32, F16 or BF16 */
size_t mla_tensor_elements(const mla_file_tensor *tensor); /* 1 for a scalar, 0 for an empty tensor */
/* Elements first .. first + count of a tensor of a float type, as floats. */
void mla_tensor_widen(float *out, const mla_file_tensor *tensor, size_t first, size_t count);
/* Index of the first element that is not finite as a float, or the number of elements. */
size_t mla_tensor_not_finite(const mla_file_tensor *tensor);
/* MLA_INVALID with `path`, name and place when a tensor of a float type has a value that is not finite. */
MLA_MUST_CHECK mla_status mla_tensor_check_finite(const char *path, const mla_file_tensor *tensor, mla_error *error);
/* To F16 or BF16: to nearest, ties to even.  Gives the index of the first finite value that is too large for the type (it
 * became infinite), or `count`. */
size_t mla_floats_narrow(uint16_t *out, mla_dtype dtype, const float *in, size_t count);

/* ---- writing: all at once, tensors in the given order, data from a multiple of 64 bytes on; the same input gives
 * the same bytes.  Metadata `format: pt` is always written.  On failure the file that stood at `path` is untouched
 * and the temporary file is gone; a full disk says path, bytes needed and bytes free. */
MLA_MUST_CHECK mla_status mla_safetensors_write(const char *path, const mla_file_tensor *tensors, size_t count,
                                                const mla_file_pair *metadata, size_t pairs, mla_error *error);

/* CRC-32 (zlib's) of a tensor's bytes, as checkpoints store it. */
uint32_t mla_tensor_crc(const void *data, size_t bytes);

#endif
