/* Changes a PNG chunk by chunk: its content (of the image data, what was compressed), its kind or its place; then the
 * lengths and CRC-32 values are mended. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/fuzz/fuzz.h"

enum { SIGNATURE_BYTES = 8, KIND_BYTES = 4, AROUND_BYTES = 12, CHUNKS_MOST = 64, ROWS_MOST_BYTES = 1 << 16 };

typedef struct chunk {
    uint8_t kind[KIND_BYTES];
    uint8_t *data; /* in a copy of the file, or fresh */
    size_t bytes;
} chunk;

static size_t big_endian(const uint8_t *at) {
    return (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
}

static void put_big_endian(uint8_t *at, size_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Chunks of a file, image data in one piece; a chunk that is cut off is cut there. */
static size_t list_chunks(chunk *chunks, uint8_t *data, size_t bytes) {
    size_t count = 0;
    for (size_t at = SIGNATURE_BYTES; at + AROUND_BYTES <= bytes && count < CHUNKS_MOST;) {
        const size_t room = bytes - at - AROUND_BYTES, stated = big_endian(data + at),
                     length = stated < room ? stated : room;
        chunk *last = count ? &chunks[count - 1] : NULL;
        if (last && memcmp(data + at + 4, "IDAT", 4) == 0 && memcmp(last->kind, "IDAT", 4) == 0) {
            memmove(last->data + last->bytes, data + at + 8, length);
            last->bytes += length;
        } else {
            chunk *fresh = &chunks[count++];
            memcpy(fresh->kind, data + at + 4, KIND_BYTES);
            fresh->data = data + at + 8;
            fresh->bytes = length;
        }
        at += AROUND_BYTES + length;
    }
    return count;
}

/* The rows, filter bytes included, changed and compressed again. */
static void change_rows(chunk *c) {
    static uint8_t rows[ROWS_MOST_BYTES], packed[2 * ROWS_MOST_BYTES];
    uLongf length = sizeof rows, packed_length = sizeof packed;
    if (uncompress(rows, &length, c->data, c->bytes) != Z_OK) return;
    length = LLVMFuzzerMutate(rows, length, sizeof rows);
    if (compress2(packed, &packed_length, rows, length, 1) != Z_OK) return;
    c->data = packed;
    c->bytes = packed_length;
}

static void change_content(chunk *c) {
    static uint8_t content[ROWS_MOST_BYTES];
    if (c->bytes > sizeof content / 2) return;
    memcpy(content, c->data, c->bytes);
    c->bytes = LLVMFuzzerMutate(content, c->bytes, sizeof content);
    c->data = content;
}

static size_t change(chunk *chunks, size_t count, fuzz_random *random) {
    static const char kinds[] = "IHDRPLTEIDATIENDtRNSgAMAcHRMsRGBiCCPtEXtzTXtiTXtbKGDpHYssBITsPLThISTtIMEeXIfoFFspCALsCAL";
    const size_t at = fuzz_below(random, count), other = fuzz_below(random, count);
    const chunk kept = chunks[at];
    switch (fuzz_below(random, 12)) {
    case 0: memmove(chunks + at, chunks + at + 1, (count - at - 1) * sizeof *chunks); return count - 1;
    case 1:
        if (count == CHUNKS_MOST) return count;
        memmove(chunks + at + 1, chunks + at, (count - at) * sizeof *chunks);
        return count + 1;
    case 2:
        chunks[at] = chunks[other];
        chunks[other] = kept;
        return count;
    case 3: memcpy(chunks[at].kind, kinds + 4 * fuzz_below(random, sizeof kinds / 4), KIND_BYTES); return count;
    default:
        if (memcmp(chunks[at].kind, "IDAT", 4) == 0 && fuzz_below(random, 4))
            change_rows(&chunks[at]);
        else
            change_content(&chunks[at]);
        return count;
    }
}

/* The upper halves of the sides: a large image takes long, and most changes of a header would make one. */
static void keep_small(const chunk *chunks, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(chunks[i].kind, "IHDR", 4) == 0 && chunks[i].bytes >= 8)
            chunks[i].data[0] = chunks[i].data[1] = chunks[i].data[4] = chunks[i].data[5] = 0;
}

static size_t put_together(uint8_t *data, size_t most, const chunk *chunks, size_t count) {
    size_t at = SIGNATURE_BYTES;
    for (size_t i = 0; i < count; i++) {
        const chunk *c = &chunks[i];
        if (c->bytes > most - at || most - at - c->bytes < AROUND_BYTES) break;
        put_big_endian(data + at, c->bytes);
        memcpy(data + at + 4, c->kind, KIND_BYTES);
        memcpy(data + at + 8, c->data, c->bytes);
        put_big_endian(data + at + 8 + c->bytes, crc32(0, data + at + 4, (uInt)(KIND_BYTES + c->bytes)));
        at += AROUND_BYTES + c->bytes;
    }
    return at;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    chunk chunks[CHUNKS_MOST];
    fuzz_random random = fuzz_seed(seed);
    uint8_t *copy = fuzz_below(&random, 8) && bytes > SIGNATURE_BYTES ? malloc(bytes) : NULL;
    if (!copy) return LLVMFuzzerMutate(data, bytes, most);
    memcpy(copy, data, bytes);
    size_t count = list_chunks(chunks, copy, bytes);
    if (count) {
        count = change(chunks, count, &random);
        if (fuzz_below(&random, 256)) keep_small(chunks, count);
        bytes = put_together(data, most, chunks, count);
    }
    free(copy);
    return bytes;
}
