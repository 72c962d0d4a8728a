/* Any change, but mostly of small images: a side of 60,000 pixels is one byte away from one of 19, and takes a second. */
#include "tests/fuzz/fuzz.h"

/* Start of a frame: FF C0 to FF CF without the three that are something else; then length, depth, height and width. */
static bool is_frame(const uint8_t *at) {
    return at[0] == 0xff && at[1] >= 0xc0 && at[1] <= 0xcf && at[1] != 0xc4 && at[1] != 0xc8 && at[1] != 0xcc;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed) {
    enum { HEIGHT_AT = 5, WIDTH_AT = 7, FRAME_BYTES = 9 };
    fuzz_random random = fuzz_seed(seed);
    bytes = LLVMFuzzerMutate(data, bytes, most);
    if (fuzz_below(&random, 256) == 0) return bytes;
    for (size_t at = 0; at + FRAME_BYTES <= bytes; at++)
        if (is_frame(data + at)) data[at + HEIGHT_AT] = data[at + WIDTH_AT] = 0; /* the upper bytes */
    return bytes;
}
