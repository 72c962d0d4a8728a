/* Any bytes as a JPEG or PNG file: decoding, and fitting to a model's size.  Size, filter and mode follow from the length
 * of the input, so that the files of the corpus are plain images. */
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "train/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static mla_data_config config;
    mla_image image = {0};
    mla_error error = {0};
    mla_status status = mla_image_decode(&image, data, bytes, "input", &error);
    fuzz_check(status, &error);
    MLA_REQUIRE((status == MLA_OK) == (image.rgb != NULL), "an image without success, or the other way round");
    if (status != MLA_OK) return 0;
    config = (mla_data_config){.size = bytes & 1 ? 8 : 33,
                               .crop_pct = bytes & 2 ? 0.875 : 1,
                               .interpolation = bytes & 4 ? MLA_BICUBIC : MLA_BILINEAR,
                               .resize = bytes & 8 ? MLA_RESIZE_SQUASH : MLA_RESIZE_SHORTER};
    uint8_t *pixels = malloc(3 * (size_t)config.size * (size_t)config.size);
    MLA_REQUIRE(pixels, "out of memory");
    status = mla_image_fit(pixels, &image, &config, &error);
    fuzz_check(status, &error);
    free(pixels);
    mla_image_free(&image);
    return 0;
}
