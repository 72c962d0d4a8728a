/* Changes what is inside a .tar.gz: unpacked, a header or the content changed, checksums mended, packed again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/fuzz/fuzz.h"

enum { BLOCK_BYTES = 512, TAR_MOST_BYTES = 1 << 16, GZIP_WINDOW = 15 + 16, CHECKSUM_AT = 148, SIZE_AT = 124 };

/* Bytes that came out; 0 when nothing did. */
static size_t unpack(uint8_t *out, size_t most, uint8_t *data, size_t bytes) {
    z_stream stream = {.next_in = data, .avail_in = (uInt)bytes, .next_out = out, .avail_out = (uInt)most};
    if (inflateInit2(&stream, GZIP_WINDOW) != Z_OK) return 0;
    (void)inflate(&stream, Z_FINISH);
    inflateEnd(&stream);
    return stream.total_out;
}

/* 0 when it does not fit. */
static size_t pack(uint8_t *out, size_t most, uint8_t *data, size_t bytes, int level) {
    z_stream stream = {.next_in = data, .avail_in = (uInt)bytes, .next_out = out, .avail_out = (uInt)most};
    if (deflateInit2(&stream, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    const bool done = deflate(&stream, Z_FINISH) == Z_STREAM_END;
    deflateEnd(&stream);
    return done ? stream.total_out : 0;
}

/* The header after the one at `at`, by the size that stands there. */
static size_t next_header(const uint8_t *tar, size_t bytes, size_t at) {
    char field[13] = "";
    memcpy(field, tar + at + SIZE_AT, 12);
    const size_t size = strtoul(field, NULL, 8), blocks = 1 + size / BLOCK_BYTES + (size % BLOCK_BYTES != 0);
    return blocks > bytes / BLOCK_BYTES ? bytes : at + blocks * BLOCK_BYTES;
}

static void mend_checksums(uint8_t *tar, size_t bytes) {
    for (size_t at = 0; at + BLOCK_BYTES <= bytes && tar[at]; at = next_header(tar, bytes, at)) {
        unsigned sum = 0;
        char text[8];
        for (size_t i = 0; i < BLOCK_BYTES; i++) sum += i >= CHECKSUM_AT && i < CHECKSUM_AT + 8 ? ' ' : tar[at + i];
        snprintf(text, sizeof text, "%06o", sum);
        memcpy(tar + at + CHECKSUM_AT, text, 7);
        tar[at + CHECKSUM_AT + 7] = ' ';
    }
}

static size_t change_field(uint8_t *tar, size_t bytes, fuzz_random *random) {
    static const struct {
        size_t at, bytes;
    } fields[] = {{0, 100}, {SIZE_AT, 12}, {CHECKSUM_AT, 8}, {156, 1}, {257, 8}, {345, 155}};
    static const char types[] = "0LxgK125";
    size_t headers[64], count = 0;
    for (size_t at = 0; at + BLOCK_BYTES <= bytes && count < 64; at = next_header(tar, bytes, at)) headers[count++] = at;
    if (count == 0) return bytes;
    uint8_t *header = tar + headers[fuzz_below(random, count)];
    const size_t field = fuzz_below(random, sizeof fields / sizeof *fields);
    if (fields[field].bytes == 1)
        header[156] = (uint8_t)types[fuzz_below(random, sizeof types)];
    else
        (void)LLVMFuzzerMutate(header + fields[field].at, fields[field].bytes, fields[field].bytes);
    return bytes;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    static uint8_t tar[TAR_MOST_BYTES];
    fuzz_random random = fuzz_seed(seed);
    const bool zipped = bytes > 2 && data[0] == 0x1f && data[1] == 0x8b;
    if (fuzz_below(&random, 8) == 0) return LLVMFuzzerMutate(data, bytes, most);
    size_t length = bytes < sizeof tar ? bytes : sizeof tar;
    if (zipped)
        length = unpack(tar, sizeof tar, data, bytes);
    else
        memcpy(tar, data, length);
    if (length == 0) return LLVMFuzzerMutate(data, bytes, most);
    length = fuzz_below(&random, 4) ? change_field(tar, length, &random) : LLVMFuzzerMutate(tar, length, sizeof tar);
    if (fuzz_below(&random, 8)) mend_checksums(tar, length);
    const size_t packed = pack(data, most, tar, length, fuzz_below(&random, 8) ? 1 : 0);
    return packed ? packed : bytes;
}
