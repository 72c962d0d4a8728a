/* Reading safetensors: nothing of the file is believed before it is checked.
 *
 * The file is mapped; the header is parsed into a JSON tree (jansson bounds the depth); every entry becomes an
 * mla_file_tensor whose bytes were checked against shape, type and file; at last the tensors, sorted by
 * offset, must cover the data without hole and overlap.  Memory grows with what the file holds, never with a
 * number that stands in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and used in place");

enum { LENGTH_BYTES = 8, HEADER_LIMIT_BYTES = 100000000 };

struct mla_safetensors {
    char *path;
    void *map; /* NULL when the bytes are the caller's */
    size_t map_bytes;
    json_t *header;   /* owns the names and metadata strings */
    json_t *metadata; /* inside header, NULL if absent */
    const unsigned char *data;
    size_t data_bytes, count;
    mla_file_tensor *tensor;
    const mla_file_tensor **by_name;
};

/* A string from the file made fit for a message: cut, without control characters. */
typedef struct shown {
    char text[104];
} shown;

static shown show(const char *text) {
    shown result = {{0}};
    size_t length = strlen(text), room = sizeof result.text - sizeof "…";
    size_t cut = length < room ? length : room;
    while (cut < length && cut > 0 && ((unsigned char)text[cut] & 0xC0) == 0x80) cut--; /* not inside a UTF-8 character */
    for (size_t i = 0; i < cut; i++) result.text[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i];
    if (cut < length) strcpy(result.text + cut, "…");
    return result;
}

/* No control characters at the start, and ASCII where a header length would stand. */
static bool is_text(const unsigned char *data, size_t bytes) {
    size_t end = bytes < 64 ? bytes : 64;
    for (size_t i = 0; i < end; i++) {
        bool space = data[i] == '\t' || data[i] == '\r' || data[i] == '\n';
        if ((data[i] < 0x20 && !space) || data[i] == 0x7F || (i < LENGTH_BYTES && data[i] >= 0x80)) return false;
    }
    return true;
}

/* What a file that is not safetensors looks like, or NULL. */
static const char *other_format(const unsigned char *data, size_t bytes) {
    static const struct {
        const char *start, *meaning;
    } known[] = {
        {"PK\3\4", "a zip archive (PyTorch's .pt and .pth files are zip archives)"},
        {"PK\5\6", "an empty zip archive"},
        {"version https://git-lfs", "a git-lfs pointer: the file itself was not fetched (git lfs pull)"},
        {"\x1f\x8b", "gzip-compressed data"},
        {"\x89HDF", "an HDF5 file"},
        {"\x93NUMPY", "a NumPy array"},
        {"GGUF", "a GGUF model"},
        {"<!DOCTYPE", "a web page: the download went wrong"},
        {"<html", "a web page: the download went wrong"},
        {"{", "JSON text without the 8 bytes of header length before it"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i].start);
        if (bytes >= length && memcmp(data, known[i].start, length) == 0) return known[i].meaning;
    }
    /* the third byte keeps a header length of 640 (80 02 00 ...) from being taken for a pickle */
    if (bytes > 2 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5 && data[2] != 0)
        return "a Python pickle (an old PyTorch checkpoint?)";
    static const size_t tar_mark = 257;
    if (bytes > tar_mark + 5 && memcmp(data + tar_mark, "ustar", 5) == 0) return "a tar archive";
    return is_text(data, bytes) ? "a text file" : NULL;
}

/* Checks the length of the header and that it starts as one. */
static mla_status check_length(size_t *header_bytes, const unsigned char *bytes, size_t count, const char *path,
                               mla_error *error) {
    if (count == 0) return mla_fail(error, MLA_INVALID, "%s: the file is empty", path);
    if (count < LENGTH_BYTES)
        return mla_fail(error, MLA_INVALID,
                        "%s: the file has %zu bytes, too short for the 8 bytes of a safetensors "
                        "header length",
                        path, count);
    uint64_t length;
    memcpy(&length, bytes, sizeof length);
    size_t rest = count - LENGTH_BYTES;
    bool object = length > 0 && length <= rest && bytes[LENGTH_BYTES] == '{';
    const char *looks = object ? NULL : other_format(bytes, count);
    if (looks) return mla_fail(error, MLA_INVALID, "%s: not a safetensors file, it looks like %s", path, looks);
    if (length > INT64_MAX)
        return mla_fail(error, MLA_INVALID,
                        "%s: not a safetensors file, or its first bytes are damaged: they claim a "
                        "header of %" PRIu64 " bytes",
                        path, length);
    if (length > rest)
        return mla_fail(error, MLA_INVALID,
                        "%s: claims a header of %" PRIu64 " bytes, but only %zu follow: cut short, "
                        "or not a safetensors file",
                        path, length, rest);
    if (length > HEADER_LIMIT_BYTES)
        return mla_fail(error, MLA_INVALID,
                        "%s: the header of %" PRIu64 " bytes is over the format's limit of "
                        "100000000",
                        path, length);
    if (length == 0) return mla_fail(error, MLA_INVALID, "%s: the header has 0 bytes, the smallest possible is {}", path);
    if (!object)
        return mla_fail(error, MLA_INVALID, "%s: the header must start with '{', found byte 0x%02x", path,
                        bytes[LENGTH_BYTES]);
    *header_bytes = (size_t)length;
    return MLA_OK;
}

/* jansson tells where the second use of a key ends; the key itself is cut out of the text. */
static mla_status fail_duplicate(const char *text, size_t end, const char *path, mla_error *error) {
    size_t start = end > 0 ? end - 1 : 0;
    while (start > 0 && (text[start - 1] != '"' || (start > 1 && text[start - 2] == '\\'))) start--;
    char *name = strndup(text + start, end > start ? end - start - 1 : 0);
    mla_status status = mla_fail(error, MLA_INVALID, "%s: the name \"%s\" stands twice in the header (byte %zu)", path,
                                 name ? show(name).text : "?", end);
    free(name);
    return status;
}

static mla_status parse_header(json_t **header, const char *text, size_t bytes, const char *path, mla_error *error) {
    json_error_t why;
    *header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (*header) return MLA_OK;
    switch (json_error_code(&why)) {
    case json_error_out_of_memory: return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for the header", path);
    case json_error_duplicate_key: return fail_duplicate(text, (size_t)why.position, path, error);
    case json_error_invalid_utf8:
        return mla_fail(error, MLA_INVALID, "%s: the header is not valid UTF-8 (byte %d): %s", path, why.position,
                        show(why.text).text);
    case json_error_numeric_overflow:
        return mla_fail(error, MLA_INVALID, "%s: a number in the header is too large (byte %d): %s", path, why.position,
                        show(why.text).text);
    default:
        return mla_fail(error, MLA_INVALID, "%s: the header is not valid JSON (byte %d): %s", path, why.position,
                        show(why.text).text);
    }
}

static const char *json_type_name(const json_t *value) {
    static const char *const name[] = {"an object",  "an array", "a string", "a whole number",
                                       "a fraction", "true",     "false",    "null"};
    return name[json_typeof(value)];
}

static mla_status check_metadata(mla_safetensors *file, json_t *metadata, mla_error *error) {
    if (json_is_null(metadata)) return MLA_OK;
    if (!json_is_object(metadata))
        return mla_fail(error, MLA_INVALID, "%s: __metadata__ is %s, expected an object of strings", file->path,
                        json_type_name(metadata));
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return mla_fail(
        error, MLA_INVALID, "%s: __metadata__ \"%s\" is %s, expected a string", file->path, show(key).text,
        json_type_name(value));
    file->metadata = metadata;
    return MLA_OK;
}

static mla_status parse_number(uint64_t *number, const json_t *list, size_t i, const char *name, const char *what,
                               const char *path, mla_error *error) {
    const json_t *value = json_array_get(list, i);
    if (!json_is_integer(value))
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\": %s[%zu] is %s, expected a whole number", path,
                        show(name).text, what, i, json_type_name(value));
    json_int_t integer = json_integer_value(value);
    if (integer < 0)
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\": %s[%zu] is negative (%" JSON_INTEGER_FORMAT ")", path,
                        show(name).text, what, i, integer);
    *number = (uint64_t)integer;
    return MLA_OK;
}

static mla_status parse_dtype(mla_file_tensor *tensor, const json_t *value, const char *path, mla_error *error) {
    if (!json_is_string(value))
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\": dtype is %s, expected a string", path,
                        show(tensor->name).text, json_type_name(value));
    for (int i = 0; i <= MLA_BOOL; i++) {
        if (strcmp(json_string_value(value), mla_dtype_name((mla_dtype)i)) == 0) {
            tensor->dtype = (mla_dtype)i;
            return MLA_OK;
        }
    }
    return mla_fail(error, MLA_INVALID,
                    "%s: tensor \"%s\": dtype \"%s\" is not supported (F64 F32 F16 BF16 I64 I32 I16 "
                    "I8 U64 U32 U16 U8 BOOL are)",
                    path, show(tensor->name).text, show(json_string_value(value)).text);
}

/* Shape, and the bytes that shape and type ask for. */
static mla_status parse_shape(mla_file_tensor *tensor, const json_t *shape, const char *path, mla_error *error) {
    if (!json_is_array(shape))
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\": shape is %s, expected an array", path,
                        show(tensor->name).text, json_type_name(shape));
    if (json_array_size(shape) > MLA_TENSOR_MAX_DIMS)
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\" has %zu dimensions, at most %d are supported", path,
                        show(tensor->name).text, json_array_size(shape), (int)MLA_TENSOR_MAX_DIMS);
    tensor->ndim = (int)json_array_size(shape);
    tensor->bytes = mla_dtype_bytes(tensor->dtype);
    for (int i = 0; i < tensor->ndim; i++) {
        uint64_t side = 0;
        mla_status status = parse_number(&side, shape, (size_t)i, tensor->name, "shape", path, error);
        if (status != MLA_OK) return status;
        tensor->shape[i] = (size_t)side;
        if (__builtin_mul_overflow(tensor->bytes, side, &tensor->bytes))
            return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\": its shape has more elements than can be counted", path,
                            show(tensor->name).text);
    }
    return MLA_OK;
}

static mla_status parse_offsets(mla_safetensors *file, mla_file_tensor *tensor, const json_t *offsets, mla_error *error) {
    uint64_t begin = 0, end = 0;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\": data_offsets must be an array [begin, end]", file->path,
                        show(tensor->name).text);
    mla_status status = parse_number(&begin, offsets, 0, tensor->name, "data_offsets", file->path, error);
    if (status == MLA_OK) status = parse_number(&end, offsets, 1, tensor->name, "data_offsets", file->path, error);
    if (status != MLA_OK) return status;
    if (begin > end)
        return mla_fail(error, MLA_INVALID,
                        "%s: tensor \"%s\": data_offsets begin at %" PRIu64 " behind their end at %" PRIu64, file->path,
                        show(tensor->name).text, begin, end);
    if (end > file->data_bytes)
        return mla_fail(error, MLA_INVALID,
                        "%s: tensor \"%s\" ends at byte %" PRIu64 " of the data, but the file has "
                        "only %zu: cut short?",
                        file->path, show(tensor->name).text, end, file->data_bytes);
    if (end - begin != tensor->bytes)
        return mla_fail(error, MLA_INVALID,
                        "%s: tensor \"%s\": shape and dtype %s need %zu bytes, but data_offsets [%" PRIu64 ", %" PRIu64
                        "] give %" PRIu64,
                        file->path, show(tensor->name).text, mla_dtype_name(tensor->dtype), tensor->bytes, begin, end,
                        end - begin);
    tensor->data = file->data + begin;
    return MLA_OK;
}

static mla_status parse_entry(mla_safetensors *file, mla_file_tensor *tensor, json_t *entry, mla_error *error) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    if (!json_is_object(entry))
        return mla_fail(error, MLA_INVALID, "%s: the entry of tensor \"%s\" is %s, expected an object", file->path,
                        show(tensor->name).text, json_type_name(entry));
    for (size_t i = 0; i < 3; i++)
        if (!json_object_get(entry, keys[i]))
            return mla_fail(error, MLA_INVALID, "%s: tensor \"%s\" has no %s", file->path, show(tensor->name).text, keys[i]);
    const char *key;
    json_t *value;
    json_object_foreach(
        entry, key, value) if (strcmp(key, keys[0]) != 0 && strcmp(key, keys[1]) != 0 &&
                               strcmp(key, keys[2]) !=
                                   0) return mla_fail(error, MLA_INVALID,
                                                      "%s: tensor \"%s\" has the unknown key \"%s\" (known: dtype, shape, "
                                                      "data_offsets)",
                                                      file->path, show(tensor->name).text, show(key).text);
    mla_status status = parse_dtype(tensor, json_object_get(entry, keys[0]), file->path, error);
    if (status == MLA_OK) status = parse_shape(tensor, json_object_get(entry, keys[1]), file->path, error);
    if (status == MLA_OK) status = parse_offsets(file, tensor, json_object_get(entry, keys[2]), error);
    return status;
}

static int by_offset(const void *left, const void *right) {
    const mla_file_tensor *a = left, *b = right;
    uintptr_t begin_a = (uintptr_t)a->data, begin_b = (uintptr_t)b->data;
    if (begin_a != begin_b) return begin_a < begin_b ? -1 : 1;
    if (a->bytes != b->bytes) /* empty ones first, so that they lie between their neighbours */
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *left, const void *right) {
    const mla_file_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* Sorted by offset, each tensor must begin where the one before it ended. */
static mla_status check_layout(const mla_safetensors *file, mla_error *error) {
    size_t position = 0;
    for (size_t i = 0; i < file->count; i++) {
        const mla_file_tensor *tensor = &file->tensor[i];
        size_t begin = (size_t)((const unsigned char *)tensor->data - file->data);
        if (begin < position)
            return mla_fail(error, MLA_INVALID, "%s: tensors \"%s\" and \"%s\" overlap at byte %zu of the data", file->path,
                            show(file->tensor[i - 1].name).text, show(tensor->name).text, begin);
        if (begin > position)
            return mla_fail(error, MLA_INVALID,
                            "%s: bytes %zu to %zu of the data, before tensor \"%s\", belong to no "
                            "tensor",
                            file->path, position, begin, show(tensor->name).text);
        position = begin + tensor->bytes;
    }
    if (position != file->data_bytes)
        return mla_fail(error, MLA_INVALID, "%s: %zu bytes follow the last tensor", file->path, file->data_bytes - position);
    return MLA_OK;
}

static mla_status parse_tensors(mla_safetensors *file, mla_error *error) {
    size_t entries = json_object_size(file->header);
    file->tensor = calloc(entries + 1, sizeof *file->tensor);
    file->by_name = calloc(entries + 1, sizeof *file->by_name);
    if (!file->tensor || !file->by_name)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for %zu tensors", file->path, entries);
    const char *name;
    json_t *entry;
    json_object_foreach(file->header, name, entry) {
        mla_status status;
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(file, entry, error);
        } else {
            mla_file_tensor *tensor = &file->tensor[file->count++];
            tensor->name = name;
            status = parse_entry(file, tensor, entry, error);
        }
        if (status != MLA_OK) return status;
    }
    qsort(file->tensor, file->count, sizeof *file->tensor, by_offset);
    for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->tensor[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, by_name);
    return check_layout(file, error);
}

static mla_status parse_file(mla_safetensors *file, const unsigned char *bytes, size_t count, mla_error *error) {
    size_t header_bytes = 0;
    mla_status status = check_length(&header_bytes, bytes, count, file->path, error);
    if (status != MLA_OK) return status;
    file->data = bytes + LENGTH_BYTES + header_bytes;
    file->data_bytes = count - LENGTH_BYTES - header_bytes;
    status = parse_header(&file->header, (const char *)bytes + LENGTH_BYTES, header_bytes, file->path, error);
    return status == MLA_OK ? parse_tensors(file, error) : status;
}

static mla_safetensors *new_file(const char *path) {
    mla_safetensors *file = calloc(1, sizeof *file);
    if (file && !(file->path = strdup(path))) {
        free(file);
        file = NULL;
    }
    return file;
}

mla_status mla_safetensors_open_memory(mla_safetensors **file, const void *data, size_t bytes, const char *origin,
                                       mla_error *error) {
    *file = NULL;
    mla_safetensors *opened = new_file(origin);
    if (!opened) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", origin);
    mla_status status = parse_file(opened, data, bytes, error);
    if (status == MLA_OK)
        *file = opened;
    else
        mla_safetensors_close(opened);
    return status;
}

/* Maps the file; an empty one can't be mapped and leaves map NULL. */
static mla_status map_file(mla_safetensors *file, mla_error *error) {
    struct stat info;
    /* not blocking: a named pipe must not hang the program */
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        mla_status status = mla_fail(error, MLA_IO, "%s: could not be opened: %s", file->path, strerror(errno));
        if (fd >= 0) close(fd);
        return status;
    }
    mla_status status = MLA_OK;
    if (!S_ISREG(info.st_mode)) {
        status = mla_fail(error, MLA_INVALID, "%s: is %s, expected a safetensors file", file->path,
                          S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    } else if (info.st_size > 0) {
        file->map_bytes = (size_t)info.st_size;
        file->map = mmap(NULL, file->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (file->map == MAP_FAILED) {
            file->map = NULL;
            status = mla_fail(error, MLA_IO, "%s: could not be mapped: %s", file->path, strerror(errno));
        }
    }
    close(fd);
    return status;
}

mla_status mla_safetensors_open(mla_safetensors **file, const char *path, mla_error *error) {
    *file = NULL;
    mla_safetensors *opened = new_file(path);
    if (!opened) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = map_file(opened, error);
    if (status == MLA_OK) status = parse_file(opened, opened->map, opened->map_bytes, error);
    if (status == MLA_OK)
        *file = opened;
    else
        mla_safetensors_close(opened);
    return status;
}

void mla_safetensors_close(mla_safetensors *file) {
    if (!file) return;
    json_decref(file->header);
    if (file->map) munmap(file->map, file->map_bytes);
    free(file->by_name);
    free(file->tensor);
    free(file->path);
    free(file);
}

size_t mla_safetensors_count(const mla_safetensors *file) { return file->count; }

const mla_file_tensor *mla_safetensors_at(const mla_safetensors *file, size_t i) {
    MLA_REQUIRE(i < file->count, "tensor %zu of %zu is asked for", i, file->count);
    return &file->tensor[i];
}

const mla_file_tensor *mla_safetensors_find(const mla_safetensors *file, const char *name) {
    const mla_file_tensor key = {.name = name}, *wanted = &key;
    const mla_file_tensor *const *found = bsearch(&wanted, file->by_name, file->count, sizeof *file->by_name, by_name);
    return found ? *found : NULL;
}

const char *mla_safetensors_metadata(const mla_safetensors *file, const char *key) {
    return file->metadata ? json_string_value(json_object_get(file->metadata, key)) : NULL;
}

void mla_safetensors_release(const mla_safetensors *file, const mla_file_tensor *tensor) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)tensor->data / page * page;
    /* Only advice: pages shared with a neighbour are read again when they are needed. */
    if (file->map && tensor->bytes)
        (void)madvise((void *)begin, (uintptr_t)tensor->data + tensor->bytes - begin, MADV_DONTNEED);
}

const char *mla_safetensors_path(const mla_safetensors *file) { return file->path; }
