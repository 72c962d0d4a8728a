/* PNG through libpng, everything turned into 8-bit RGB.  Its errors come by longjmp; everything that outlives one is
 * in `reader`. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "train/image.h"

typedef struct png_reader {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t left;
    char reason[256];
    mla_image image;
    mla_status status;
} png_reader;

static void on_error(png_structp png, png_const_charp message) {
    png_reader *reader = png_get_error_ptr(png);
    snprintf(reader->reason, sizeof reader->reason, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void take_bytes(png_structp png, png_bytep out, size_t count) {
    png_reader *reader = png_get_io_ptr(png);
    if (count > reader->left) png_error(png, "the file ends early (truncated)");
    memcpy(out, reader->bytes, count);
    reader->bytes += count;
    reader->left -= count;
}

static void decode(png_reader *reader, const char *name, mla_error *error) {
    png_structp png = reader->png;
    if (setjmp(png_jmpbuf(png))) {
        reader->status = mla_fail(error, MLA_INVALID, "%s: damaged PNG: %s", name, reader->reason);
        return;
    }
    png_set_read_fn(png, reader, take_bytes);
    /* Colour profiles, texts and the like are not used: they are passed over, whatever length they claim. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(png, reader->info);
    png_set_strip_16(png);
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    size_t width = png_get_image_width(png, reader->info), height = png_get_image_height(png, reader->info);
    reader->status = mla_image_create(&reader->image, (int64_t)width, (int64_t)height, name, error);
    if (reader->status != MLA_OK) return;
    if (png_get_rowbytes(png, reader->info) != 3 * width) png_error(png, "rows of an unknown form");
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < height; y++) png_read_row(png, reader->image.rgb + 3 * y * width, NULL);
}

mla_status mla_image_decode_png(mla_image *image, const uint8_t *bytes, size_t count, const char *name, mla_error *error) {
    png_reader reader = {.bytes = bytes, .left = count};
    reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, on_error, on_warning);
    reader.info = reader.png ? png_create_info_struct(reader.png) : NULL;
    if (reader.info)
        decode(&reader, name, error);
    else
        reader.status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", name);
    png_destroy_read_struct(&reader.png, &reader.info, NULL);
    if (reader.status == MLA_OK)
        *image = reader.image;
    else
        mla_image_free(&reader.image);
    return reader.status;
}
