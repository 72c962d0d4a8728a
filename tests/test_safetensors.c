#include <check.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "tests/run_suite.h"
#include "core/rng.h"
#include "tests/scratch.h"
#include "train/file.h"
#include "train/safetensors.h"

/* ---- malformed files */

/* length, header and `data_bytes` zeros in memory of just that size, so that a sanitizer sees any byte too many */
static unsigned char *make_file(size_t *bytes, const char *header, size_t data_bytes) {
    uint64_t length = strlen(header);
    *bytes = 8 + length + data_bytes;
    unsigned char *file = calloc(1, *bytes);
    ck_assert_ptr_nonnull(file);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    return file;
}

static mla_error refuse(const void *data, size_t bytes) {
    mla_safetensors *file;
    mla_error error = {0};
    unsigned char *copy = malloc(bytes ? bytes : 1);
    memcpy(copy, data, bytes);
    ck_assert_msg(mla_safetensors_open_memory(&file, copy, bytes, "model.safetensors", &error) == MLA_INVALID,
                  "accepted, or another status: %s", error.text);
    ck_assert_ptr_null(file);
    free(copy);
    expect_text(error.text, "model.safetensors: ");
    return error;
}

#define ENTRY(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{\"w\":" ENTRY(dtype, shape, offsets) "}"
#define TWO(a, b) "{\"first\":" ENTRY("U8", "[4]", a) ",\"second\":" ENTRY("U8", "[4]", b) "}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *expected;
} bad_headers[] = {
    {"[1]", 0, "must start with '{', found byte 0x5b"},
    {" {}", 0, "must start with '{', found byte 0x20"},
    {"{", 0, "not valid JSON"},
    {"{\"w\":", 0, "not valid JSON (byte 5)"},
    {"{} x", 0, "end of file expected near 'x'"},
    {"{'w': 1}", 0, "string or '}' expected"},
    {"{\"w\":01}", 0, "invalid token near '0'"},
    {"{\"w\":\"\xff\"}", 0, "not valid UTF-8"},
    {"{\"\xc3(\":1}", 0, "not valid UTF-8 (byte "},
    {"{\"w\\u0000x\":{}}", 0, "\\u0000"},
    {"{\"w\":1}", 0, "\"w\" is a whole number, expected an object"},
    {"{\"w\":null}", 0, "\"w\" is null, expected an object"},
    {"{\"w\":[]}", 0, "\"w\" is an array, expected an object"},
    {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "tensor \"w\" has no dtype"},
    {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor \"w\" has no shape"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor \"w\" has no data_offsets"},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"strides\":[1]}}", 4,
     "tensor \"w\" has the unknown key \"strides\""},
    {"{\"w\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"w\": dtype is a whole number"},
    {ONE("F33", "[1]", "[0,4]"), 4, "\"w\": dtype \"F33\" is not supported"},
    {ONE("f32", "[1]", "[0,4]"), 4, "\"w\": dtype \"f32\" is not supported"},
    {ONE("F8_E4M3", "[4]", "[0,4]"), 4, "\"w\": dtype \"F8_E4M3\" is not supported"},
    {ONE("F32", "4", "[0,4]"), 4, "\"w\": shape is a whole number, expected an array"},
    {ONE("F32", "[\"1\"]", "[0,4]"), 4, "\"w\": shape[0] is a string"},
    {ONE("F32", "[1,[1]]", "[0,4]"), 4, "\"w\": shape[1] is an array"},
    {ONE("F32", "[-1]", "[0,4]"), 4, "\"w\": shape[0] is negative (-1)"},
    {ONE("F32", "[1.0]", "[0,4]"), 4, "\"w\": shape[0] is a fraction"},
    {ONE("F32", "[1e0]", "[0,4]"), 4, "\"w\": shape[0] is a fraction"},
    {ONE("F32", "[true]", "[0,4]"), 4, "\"w\": shape[0] is true"},
    {ONE("F32", "[18446744073709551616]", "[0,4]"), 4, "number in the header is too large"},
    {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "\"w\" has 9 dimensions, at most 8"},
    {ONE("F32", "[4611686018427387904]", "[0,0]"), 0, "\"w\": its shape has more elements than can be counted"},
    {ONE("U8", "[4294967296,4294967296]", "[0,0]"), 0, "\"w\": its shape has more elements"},
    {ONE("F32", "[1000,1000]", "[0,4]"), 4, "\"w\": shape and dtype F32 need 4000000 bytes, but data_offsets [0, 4] give 4"},
    {ONE("F16", "[2]", "[0,8]"), 8, "\"w\": shape and dtype F16 need 4 bytes, but data_offsets [0, 8] give 8"},
    {ONE("F32", "[]", "[0,0]"), 0, "\"w\": shape and dtype F32 need 4 bytes"},
    {ONE("F32", "[1]", "4"), 4, "\"w\": data_offsets must be an array [begin, end]"},
    {ONE("F32", "[1]", "[0]"), 4, "\"w\": data_offsets must be an array"},
    {ONE("F32", "[1]", "[0,4,8]"), 4, "\"w\": data_offsets must be an array"},
    {ONE("F32", "[1]", "{\"begin\":0}"), 4, "\"w\": data_offsets must be an array"},
    {ONE("F32", "[1]", "[0,\"4\"]"), 4, "\"w\": data_offsets[1] is a string"},
    {ONE("F32", "[1]", "[-4,0]"), 4, "\"w\": data_offsets[0] is negative (-4)"},
    {ONE("F32", "[1]", "[0,4.5]"), 4, "\"w\": data_offsets[1] is a fraction"},
    {ONE("F32", "[1]", "[4,0]"), 4, "\"w\": data_offsets begin at 4 behind their end at 0"},
    {ONE("F32", "[2]", "[0,8]"), 4, "\"w\" ends at byte 8 of the data, but the file has only 4"},
    {ONE("F32", "[1]", "[9223372036854775803,9223372036854775807]"), 4, "\"w\" ends at byte 9223372036854775807"},
    {TWO("[0,4]", "[2,6]"), 6, "tensors \"first\" and \"second\" overlap at byte 2"},
    {TWO("[0,4]", "[0,4]"), 4, "tensors \"first\" and \"second\" overlap at byte 0"},
    {TWO("[0,4]", "[5,9]"), 9, "bytes 4 to 5 of the data, before tensor \"second\", belong to no tensor"},
    {ONE("F32", "[1]", "[4,8]"), 8, "bytes 0 to 4 of the data, before tensor \"w\""},
    {ONE("F32", "[1]", "[0,4]"), 7, "3 bytes follow the last tensor"},
    {"{}", 1, "1 bytes follow the last tensor"},
    {"{\"big\":" ENTRY("U8", "[4]", "[0,4]") ",\"empty\":" ENTRY("U8", "[0]", "[2,2]") "}", 4,
     "tensors \"big\" and \"empty\" overlap"},
    {"{\"blocks.0.attn.qkv.weight\":{},\"blocks.0.attn.qkv.weight\":{}}", 0,
     "the name \"blocks.0.attn.qkv.weight\" stands twice in the header (byte 57)"},
    {"{\"\":{},\"\":{}}", 0, "the name \"\" stands twice"},
    {"{\"a\\\"b\":{},\"a\\\"b\":{}}", 0, "the name \"a\\\"b\" stands twice"},
    {"{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0, "the name \"dtype\" stands twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "the name \"__metadata__\" stands twice"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is an array"},
    {"{\"__metadata__\":\"pt\"}", 0, "__metadata__ is a string"},
    {"{\"__metadata__\":{\"epoch\":3}}", 0, "__metadata__ \"epoch\" is a whole number, expected a string"},
    {"{\"__metadata__\":{\"deep\":{\"a\":\"b\"}}}", 0, "__metadata__ \"deep\" is an object"},
    {"{\"\\u001b[31mred\":1}", 0, "\"?[31mred\""},
};

START_TEST(malformed_header) {
    size_t bytes;
    unsigned char *file = make_file(&bytes, bad_headers[_i].header, bad_headers[_i].data_bytes);
    mla_error error = refuse(file, bytes);
    expect_text(error.text, bad_headers[_i].expected);
    free(file);
}
END_TEST

#define BYTES(text) text, sizeof text - 1

static const struct {
    const char *data;
    size_t bytes;
    const char *expected;
} bad_starts[] = {
    {BYTES(""), "the file is empty"},
    {BYTES("\x02\0\0"), "the file has 3 bytes, too short"},
    {BYTES("\x02\0\0\0\0\0\0"), "the file has 7 bytes, too short"},
    {BYTES("\0\0\0\0\0\0\0\0"), "the header has 0 bytes"},
    {BYTES("\0\0\0\0\0\0\0\x80{}"), "claim a header of 9223372036854775808 bytes"},
    {BYTES("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "claim a header of 18446744073709551615 bytes"},
    {BYTES("\x03\0\0\0\0\0\0\0{}"), "claims a header of 3 bytes, but only 2 follow"},
    {BYTES("\0\xc2\xeb\x0b\0\0\0\0{}"), "claims a header of 200000000 bytes, but only 2 follow"},
    {BYTES("PK\3\4\x14\0\0\0\0\0\0\0archive/data.pkl"), "looks like a zip archive"},
    {BYTES("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "looks like an empty zip archive"},
    {BYTES("\x80\x02}q\0(X\5\0\0\0model"), "looks like a Python pickle"},
    {BYTES("\x80\x04\x95\x1f\0\0\0\0\0\0\0}"), "looks like a Python pickle"},
    {BYTES("\x1f\x8b\x08\0\0\0\0\0\0\3abc"), "looks like gzip-compressed data"},
    {BYTES("\x89HDF\r\n\x1a\n\0\0\0\0"), "looks like an HDF5 file"},
    {BYTES("\x93NUMPY\x01\0v\0{'descr'"), "looks like a NumPy array"},
    {BYTES("GGUF\3\0\0\0\0\0\0\0"), "looks like a GGUF model"},
    {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:00"), "looks like a git-lfs pointer"},
    {BYTES("<!DOCTYPE html><html>"), "looks like a web page"},
    {BYTES("{\"w\":{\"dtype\":\"F32\"}}"), "looks like JSON text without the 8 bytes"},
    {BYTES("epoch,loss\n1,2.30\n"), "looks like a text file"},
};

START_TEST(malformed_start) {
    mla_error error = refuse(bad_starts[_i].data, bad_starts[_i].bytes);
    expect_text(error.text, bad_starts[_i].expected);
}
END_TEST

START_TEST(header_over_the_limit) {
    size_t bytes = 8 + 120000000;
    unsigned char *data = malloc(bytes);
    mla_safetensors *file;
    mla_error error = {0};
    ck_assert_ptr_nonnull(data);
    memset(data, ' ', bytes);
    memcpy(data, &(uint64_t){bytes - 8}, 8);
    memcpy(data + 8, "{}", 2);
    ck_assert(mla_safetensors_open_memory(&file, data, bytes, "big", &error) == MLA_INVALID);
    expect_text(error.text, "the header of 120000000 bytes is over the format's limit of 100000000");
    free(data);
}
END_TEST

START_TEST(deeply_nested_header) {
    size_t depth = 100000, bytes;
    char *header = malloc(2 * depth + 8);
    strcpy(header, "{\"w\":");
    memset(header + 5, '[', depth);
    header[5 + depth] = 0;
    unsigned char *file = make_file(&bytes, header, 0);
    mla_error error = refuse(file, bytes);
    expect_text(error.text, "maximum parsing depth reached");
    free(file);
    free(header);
}
END_TEST

START_TEST(long_names_are_cut_in_messages) {
    char header[4096] = "{\"";
    size_t bytes;
    for (int i = 0; i < 600; i++) strcat(header, "ä");
    strcat(header, "\":1}");
    unsigned char *file = make_file(&bytes, header, 0);
    mla_error error = refuse(file, bytes);
    expect_text(error.text, "ää…\" is a whole number");
    ck_assert_uint_lt(strlen(error.text), 300);
    free(file);
}
END_TEST

START_TEST(files_that_are_no_files) {
    mla_safetensors *file;
    mla_error error = {0};
    ck_assert(mla_safetensors_open(&file, in_scratch("absent"), &error) == MLA_IO);
    expect_text(error.text, "absent: could not be opened: No such file");
    ck_assert(mla_safetensors_open(&file, scratch, &error) == MLA_INVALID);
    expect_text(error.text, "is a folder");
    ck_assert_int_eq(mkfifo(in_scratch("pipe"), 0600), 0);
    ck_assert(mla_safetensors_open(&file, in_scratch("pipe"), &error) == MLA_INVALID);
    expect_text(error.text, "is a device or pipe");
    put_file(in_scratch("empty"), "", 0);
    ck_assert(mla_safetensors_open(&file, in_scratch("empty"), &error) == MLA_INVALID);
    expect_text(error.text, "empty: the file is empty");
    ck_assert_ptr_null(file);
    mla_safetensors_close(NULL);
}
END_TEST

/* ---- valid files */

START_TEST(valid_corner_cases) {
    const char *header = "{\"__metadata__\":null,\"last\":" ENTRY("F32", "[1,2]", "[4,12]") ",\"empty\":" ENTRY(
        "F64", "[0,5]",
        "[4,4]") ",\"scalar\":" ENTRY("I32", "[]",
                                      "[0,4]") ",\"\":" ENTRY("BOOL", "[0]",
                                                              "[12,12]") ",\"eight\":" ENTRY("U8", "[1,1,1,1,1,1,1,1]",
                                                                                             "[12,13]") "}   ";
    size_t bytes;
    unsigned char *data = make_file(&bytes, header, 13);
    mla_safetensors *file;
    mla_error error = {0};
    expect_ok(mla_safetensors_open_memory(&file, data, bytes, "valid", &error), error);
    ck_assert_uint_eq(mla_safetensors_count(file), 5);
    ck_assert_str_eq(mla_safetensors_at(file, 0)->name, "scalar");
    ck_assert_str_eq(mla_safetensors_at(file, 1)->name, "empty");
    ck_assert_str_eq(mla_safetensors_at(file, 2)->name, "last");
    ck_assert_int_eq(mla_safetensors_find(file, "scalar")->ndim, 0);
    ck_assert_int_eq(mla_safetensors_find(file, "eight")->ndim, 8);
    ck_assert_uint_eq(mla_safetensors_find(file, "empty")->shape[1], 5);
    ck_assert_ptr_nonnull(mla_safetensors_find(file, ""));
    ck_assert_ptr_null(mla_safetensors_find(file, "las"));
    ck_assert_ptr_null(mla_safetensors_find(file, "__metadata__"));
    ck_assert_ptr_null(mla_safetensors_metadata(file, "format"));
    float none;
    expect_ok(mla_safetensors_floats(&none, 0, file, "empty", &error), error);
    mla_safetensors_close(file);
    free(data);
    data = make_file(&bytes, "{}", 0);
    expect_ok(mla_safetensors_open_memory(&file, data, bytes, "valid", &error), error);
    ck_assert_uint_eq(mla_safetensors_count(file), 0);
    ck_assert_ptr_null(mla_safetensors_find(file, "w"));
    mla_safetensors_close(file);
    free(data);
}
END_TEST

START_TEST(floats_of_every_width) {
    /* one odd byte first, so that nothing is aligned */
    const char *header =
        "{\"odd\":" ENTRY("U8", "[1]", "[0,1]") ",\"half\":" ENTRY("F16", "[7]", "[1,15]") ",\"brain\":" ENTRY(
            "BF16", "[2]", "[15,19]") ",\"wide\":" ENTRY("F64", "[1]", "[19,27]") ",\"single\":" ENTRY("F32", "[1]",
                                                                                                       "[27,31]") "}";
    const uint16_t half[7] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x83FF, 0x7C00, 0x7E00}, brain[2] = {0x3F80, 0xC049};
    size_t bytes;
    unsigned char *data = make_file(&bytes, header, 31), *start = data + bytes - 31;
    memcpy(start + 1, half, 14);
    memcpy(start + 15, brain, 4);
    memcpy(start + 19, &(double){1.1}, 8);
    memcpy(start + 27, &(float){-2.5f}, 4);
    mla_safetensors *file;
    mla_error error = {0};
    float out[7];
    expect_ok(mla_safetensors_open_memory(&file, data, bytes, "widths", &error), error);
    expect_ok(mla_safetensors_floats(out, 7, file, "half", &error), error);
    ck_assert(out[0] == 1 && out[1] == -2 && out[2] == 65504 && out[3] == 0x1p-24f && out[4] == -1023 * 0x1p-24f);
    ck_assert(isinf(out[5]) && isnan(out[6]));
    expect_ok(mla_safetensors_floats(out, 2, file, "brain", &error), error);
    ck_assert(out[0] == 1 && out[1] == -3.140625f);
    expect_ok(mla_safetensors_floats(out, 1, file, "wide", &error), error);
    ck_assert(out[0] == 1.1f);
    expect_ok(mla_safetensors_floats(out, 1, file, "single", &error), error);
    ck_assert(out[0] == -2.5f);
    ck_assert(mla_safetensors_floats(out, 1, file, "odd", &error) == MLA_INVALID);
    expect_text(error.text, "widths: tensor \"odd\" is of type U8");
    ck_assert(mla_safetensors_floats(out, 3, file, "brain", &error) == MLA_INVALID);
    expect_text(error.text, "tensor \"brain\" has 2 elements, expected 3");
    ck_assert(mla_safetensors_floats(out, 3, file, "none", &error) == MLA_INVALID);
    expect_text(error.text, "has no tensor \"none\"");
    mla_safetensors_close(file);
    free(data);
}
END_TEST

/* ---- writing */

static float weight[6] = {1, -2, 3.5f, 0, 1e-40f, 7};
static const unsigned char flags[3] = {1, 0, 1};
static const mla_file_pair pairs[] = {{"name", "größe \"x\"\n"}, {"empty", ""}};

static void list_tensors(mla_file_tensor tensors[3]) {
    tensors[0] = (mla_file_tensor){"blocks.0.weight", MLA_F32, 2, {2, 3}, weight, sizeof weight, NULL};
    tensors[1] = (mla_file_tensor){"flags", MLA_BOOL, 1, {3}, flags, sizeof flags, NULL};
    tensors[2] = (mla_file_tensor){"größe", MLA_F32, 0, {0}, &weight[2], sizeof *weight, NULL};
}

START_TEST(round_trip) {
    mla_file_tensor tensors[3];
    mla_safetensors *file;
    mla_error error = {0};
    list_tensors(tensors);
    expect_ok(mla_safetensors_write(in_scratch("a b"), tensors, 3, pairs, 2, &error), error);
    expect_ok(mla_safetensors_open(&file, in_scratch("a b"), &error), error);
    ck_assert_uint_eq(mla_safetensors_count(file), 3);
    ck_assert_str_eq(mla_safetensors_metadata(file, "format"), "pt");
    ck_assert_str_eq(mla_safetensors_metadata(file, "name"), pairs[0].value);
    ck_assert_str_eq(mla_safetensors_metadata(file, "empty"), "");
    for (size_t i = 0; i < 3; i++) {
        const mla_file_tensor *found = mla_safetensors_at(file, i);
        ck_assert_str_eq(found->name, tensors[i].name);
        ck_assert_int_eq(found->dtype, tensors[i].dtype);
        ck_assert_int_eq(found->ndim, tensors[i].ndim);
        ck_assert_mem_eq(found->shape, tensors[i].shape, (size_t)found->ndim * sizeof *found->shape);
        ck_assert_uint_eq(found->bytes, tensors[i].bytes);
        ck_assert_mem_eq(found->data, tensors[i].data, found->bytes);
    }
    ck_assert_uint_eq((uintptr_t)mla_safetensors_at(file, 0)->data % 64, 0);
    mla_safetensors_close(file);
}
END_TEST

START_TEST(same_input_same_bytes) {
    mla_file_tensor tensors[3];
    mla_error error = {0};
    size_t first_bytes, second_bytes;
    list_tensors(tensors);
    expect_ok(mla_safetensors_write(in_scratch("first"), tensors, 3, pairs, 2, &error), error);
    expect_ok(mla_safetensors_write(in_scratch("second"), tensors, 3, pairs, 2, &error), error);
    char *first = get_file(in_scratch("first"), &first_bytes), *second = get_file(in_scratch("second"), &second_bytes);
    ck_assert_uint_eq(first_bytes, second_bytes);
    ck_assert_mem_eq(first, second, first_bytes);
    free(first);
    free(second);
}
END_TEST

START_TEST(writer_refuses) {
    mla_file_tensor tensors[3];
    mla_error error = {0};
    const char *path = in_scratch("refused");
    list_tensors(tensors);
    tensors[2].name = tensors[0].name;
    ck_assert(mla_safetensors_write(path, tensors, 3, NULL, 0, &error) == MLA_INVALID);
    expect_text(error.text, "tensor \"blocks.0.weight\" is given twice");
    tensors[2].name = "\xff";
    ck_assert(mla_safetensors_write(path, tensors, 3, NULL, 0, &error) == MLA_INVALID);
    expect_text(error.text, "is not valid UTF-8");
    tensors[2].name = "__metadata__";
    ck_assert(mla_safetensors_write(path, tensors, 3, NULL, 0, &error) == MLA_INVALID);
    tensors[2].name = "size";
    tensors[2].bytes++;
    ck_assert(mla_safetensors_write(path, tensors, 3, NULL, 0, &error) == MLA_INVALID);
    expect_text(error.text, "\"size\": its shape and dtype F32 do not give its 5 bytes");
    ck_assert(mla_safetensors_write(path, tensors, 2, (mla_file_pair[]){{"format", "np"}}, 1, &error) == MLA_INVALID);
    expect_text(error.text, "metadata \"format\" is given twice");
    ck_assert(mla_safetensors_write(path, tensors, 2, (mla_file_pair[]){{"k", "\xc3"}}, 1, &error) == MLA_INVALID);
    expect_text(error.text, "metadata \"k\" is not valid UTF-8");
    ck_assert(!exists(path));
    ck_assert(mla_safetensors_write(in_scratch("no/such/file"), tensors, 2, NULL, 0, &error) == MLA_IO);
    expect_text(error.text, "no/such does not exist");
    ck_assert(mla_safetensors_write(scratch, tensors, 2, NULL, 0, &error) == MLA_INVALID);
    expect_text(error.text, "is a folder, not a file");
    ck_assert(mla_safetensors_write("/dev/null", tensors, 2, NULL, 0, &error) == MLA_INVALID);
    expect_text(error.text, "is a device or pipe");
}
END_TEST

START_TEST(symbolic_link_stays) {
    mla_file_tensor tensors[3];
    mla_error error = {0};
    struct stat info;
    list_tensors(tensors);
    put_file(in_scratch("target"), "old", 3);
    ck_assert_int_eq(symlink("target", in_scratch("link")), 0);
    expect_ok(mla_safetensors_write(in_scratch("link"), tensors, 3, NULL, 0, &error), error);
    ck_assert_int_eq(lstat(in_scratch("link"), &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    mla_safetensors *file;
    expect_ok(mla_safetensors_open(&file, in_scratch("target"), &error), error);
    mla_safetensors_close(file);
}
END_TEST

static int entries_of(const char *folder) {
    char command[1200];
    int count = -1;
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

/* Writes 8 MiB over an existing file `path`, which must fail and leave the folder as it was. */
static void write_too_much(const char *folder, const char *path, mla_error *error) {
    static char large[8 << 20];
    mla_file_tensor tensor = {"large", MLA_U8, 1, {sizeof large}, large, sizeof large, NULL};
    put_file(path, "precious", 8);
    int before = entries_of(folder);
    ck_assert(mla_safetensors_write(path, &tensor, 1, NULL, 0, error) == MLA_IO);
    ck_assert_int_eq(entries_of(folder), before);
    char *content = get_file(path, NULL);
    ck_assert_str_eq(content, "precious");
    free(content);
}

START_TEST(size_limit_keeps_the_old_file) {
    mla_error error = {0};
    ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20}), 0);
    write_too_much(scratch, in_scratch("file"), &error);
    expect_text(error.text, "file: File too large: 838");
    expect_text(error.text, " MiB) free");
}
END_TEST

/* A file system of 2 MiB, seen by this process alone; needs the right to mount, so the test may pass unmade. */
START_TEST(full_disk_keeps_the_old_file) {
    mla_error error = {0};
    const char *folder = in_scratch("disk"), *path = in_scratch("disk/file");
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=2m") != 0)
        return;
    write_too_much(folder, path, &error);
    expect_text(error.text, "not enough space: 8388");
    expect_text(error.text, " MiB) free");
    /* a disk that fills while writing: nothing was announced */
    mla_atomic_file file;
    static char block[1 << 20];
    expect_ok(mla_atomic_open(&file, path, 0, &error), error);
    mla_status status = MLA_OK;
    for (int i = 0; i < 4 && status == MLA_OK; i++) status = mla_atomic_write(&file, block, sizeof block, &error);
    ck_assert(status == MLA_IO);
    expect_text(error.text, "file: No space left on device");
    ck_assert_int_eq(entries_of(folder), 1);
    ck_assert_int_eq(umount(folder), 0);
}
END_TEST

/* ---- mutations */

static size_t mutate(unsigned char *data, size_t bytes, size_t room, mla_rng *rng) {
    static const char favourites[] = "{}[]\",:0123456789-+.eE\\ \t\nftn\x80\xff";
    uint32_t at = mla_rng_below(rng, (uint32_t)bytes), length;
    switch (mla_rng_below(rng, 7)) {
    case 0: /* a bit */ data[at] ^= (unsigned char)(1u << mla_rng_below(rng, 8)); return bytes;
    case 1:
    case 2: /* a character that means something */
        data[at] = (unsigned char)favourites[mla_rng_below(rng, sizeof favourites)];
        return bytes;
    case 3: /* one of the eight length bytes */ data[mla_rng_below(rng, 8)] = (unsigned char)mla_rng_u32(rng); return bytes;
    case 4: /* the end */ return 1 + at;
    case 5: /* a range taken out */
        length = mla_rng_below(rng, 8);
        if (at + length >= bytes) return bytes;
        memmove(data + at, data + at + length, bytes - at - length);
        return bytes - length;
    default: /* a range doubled */
        length = mla_rng_below(rng, 16);
        if (at + length > bytes || bytes + length > room) return bytes;
        memmove(data + at + length, data + at, bytes - at);
        return bytes + length;
    }
}

START_TEST(mutations_are_refused_or_valid) {
    enum { ROUNDS = 20000, ROOM = 4096 };
    mla_file_tensor tensors[3];
    mla_error error = {0};
    size_t bytes, accepted = 0;
    list_tensors(tensors);
    expect_ok(mla_safetensors_write(in_scratch("seed"), tensors, 3, pairs, 2, &error), error);
    char *original = get_file(in_scratch("seed"), &bytes);
    ck_assert_uint_lt(bytes, ROOM / 2);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        unsigned char data[ROOM];
        mla_safetensors *file;
        mla_rng rng = mla_rng_stream(1, MLA_RNG_TEST, 0, round);
        size_t now = bytes;
        uint64_t length;
        memcpy(data, original, bytes);
        for (uint32_t n = 1 + mla_rng_below(&rng, 4); n > 0; n--) now = mutate(data, now, ROOM, &rng);
        /* half of the time the length is made to fit again, so that the header is reached */
        memcpy(&length, original, 8);
        if (round % 2 && now > bytes / 2) {
            length += now - bytes;
            memcpy(data, &length, 8);
        }
        unsigned char *exact = malloc(now);
        memcpy(exact, data, now);
        error.text[0] = 0;
        if (mla_safetensors_open_memory(&file, exact, now, "mutant", &error) == MLA_OK) {
            size_t total = 0;
            for (size_t i = 0; i < mla_safetensors_count(file); i++) {
                const mla_file_tensor *tensor = mla_safetensors_at(file, i);
                (void)mla_tensor_crc(tensor->data, tensor->bytes);
                ck_assert_ptr_eq(mla_safetensors_find(file, tensor->name), tensor);
                total += tensor->bytes;
            }
            ck_assert_uint_le(total, now);
            accepted++;
        } else {
            expect_text(error.text, "mutant: ");
        }
        mla_safetensors_close(file);
        free(exact);
    }
    /* changes of data, spaces and names are valid, so both outcomes were seen */
    ck_assert_uint_gt(accepted, ROUNDS / 100);
    ck_assert_uint_lt(accepted, ROUNDS * 9 / 10);
    free(original);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors");
    TCase *tests = tcase_create("safetensors");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
    tcase_add_loop_test(tests, malformed_header, 0, sizeof bad_headers / sizeof *bad_headers);
    tcase_add_loop_test(tests, malformed_start, 0, sizeof bad_starts / sizeof *bad_starts);
    tcase_add_test(tests, header_over_the_limit);
    tcase_add_test(tests, deeply_nested_header);
    tcase_add_test(tests, long_names_are_cut_in_messages);
    tcase_add_test(tests, files_that_are_no_files);
    tcase_add_test(tests, valid_corner_cases);
    tcase_add_test(tests, floats_of_every_width);
    tcase_add_test(tests, round_trip);
    tcase_add_test(tests, same_input_same_bytes);
    tcase_add_test(tests, writer_refuses);
    tcase_add_test(tests, symbolic_link_stays);
    tcase_add_test(tests, size_limit_keeps_the_old_file);
    tcase_add_test(tests, full_disk_keeps_the_old_file);
    tcase_add_test(tests, mutations_are_refused_or_valid);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
