#include "train/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "train/file.h"

enum { FILE_LIMIT_BYTES = 1 << 30 };

mla_status mla_image_create(mla_image *image, int64_t width, int64_t height, const char *name, mla_error *error) {
    if (width < 1 || height < 1 || width > MLA_MAX_PIXELS / height)
        return mla_fail(error, MLA_INVALID, "%s: %lld x %lld pixels, expected 1 to %d in all", name, (long long)width,
                        (long long)height, MLA_MAX_PIXELS);
    uint8_t *rgb = malloc(3 * (size_t)width * (size_t)height);
    if (!rgb)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for %lld x %lld pixels", name, (long long)width,
                        (long long)height);
    *image = (mla_image){(int)width, (int)height, rgb};
    return MLA_OK;
}

void mla_image_free(mla_image *image) {
    free(image->rgb);
    *image = (mla_image){0};
}

/* ---- what is it ---- */

typedef struct signature {
    const char *title;
    size_t offset, count;
    const char *bytes;
} signature;

/* Types that turn up under a wrong name; JPEG and PNG come first in decode. */
static const signature others[] = {
    {"a GIF", 0, 4, "GIF8"},           {"a BMP", 0, 2, "BM"},           {"a WebP", 8, 4, "WEBP"},
    {"a TIFF", 0, 4, "II*\0"},         {"a TIFF", 0, 4, "MM\0*"},       {"a JPEG 2000", 4, 4, "jP  "},
    {"an AVIF or HEIC", 4, 4, "ftyp"}, {"a JPEG XL", 0, 2, "\xff\x0a"}, {"a PDF", 0, 4, "%PDF"},
    {"a PostScript", 0, 4, "%!PS"},    {"an HTML", 0, 5, "<html"},      {"an HTML", 0, 5, "<!DOC"},
    {"a gzip", 0, 2, "\x1f\x8b"},      {"a zip", 0, 4, "PK\3\4"},
};

static const char *other_type(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (count >= others[i].offset + others[i].count &&
            memcmp(bytes + others[i].offset, others[i].bytes, others[i].count) == 0)
            return others[i].title;
    return NULL;
}

mla_status mla_image_decode(mla_image *image, const uint8_t *bytes, size_t count, const char *name, mla_error *error) {
    static const uint8_t jpeg[3] = {0xff, 0xd8, 0xff}, png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (count == 0) return mla_fail(error, MLA_INVALID, "%s: the file is empty", name);
    if (count >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0)
        return mla_image_decode_jpeg(image, bytes, count, name, error);
    if (count >= sizeof png && memcmp(bytes, png, sizeof png) == 0)
        return mla_image_decode_png(image, bytes, count, name, error);
    const char *type = other_type(bytes, count);
    if (type) return mla_fail(error, MLA_INVALID, "%s: %s file whatever its name says; JPEG and PNG are read", name, type);
    return mla_fail(error, MLA_INVALID, "%s: neither a JPEG nor a PNG file (it starts with bytes %02x %02x)", name, bytes[0],
                    count > 1 ? bytes[1] : 0);
}

mla_status mla_image_load(mla_image *image, const char *path, mla_error *error) {
    char *bytes = NULL;
    size_t count = 0;
    mla_status status = mla_file_read(&bytes, &count, path, FILE_LIMIT_BYTES, error);
    if (status == MLA_OK) status = mla_image_decode(image, (const uint8_t *)bytes, count, path, error);
    free(bytes);
    return status;
}

/* ---- to the model's size ---- */

/* Python's int(round(x / 2)): halves go to the even side. */
static int centre(int outer, int inner) { return (int)rint((outer - inner) / 2.0); }

static void crop(uint8_t *pixels, const mla_image *image, int size) {
    int left = centre(image->width, size), top = centre(image->height, size);
    size_t plane = (size_t)size * (size_t)size;
    for (int y = 0; y < size; y++) {
        const uint8_t *from = image->rgb + 3 * ((size_t)(top + y) * (size_t)image->width + (size_t)left);
        uint8_t *to = pixels + (size_t)y * (size_t)size;
        for (int x = 0; x < size; x++)
            for (size_t c = 0; c < 3; c++) to[c * plane + (size_t)x] = from[3 * x + (int)c];
    }
}

mla_status mla_image_fit(uint8_t *pixels, const mla_image *image, const mla_data_config *config, mla_error *error) {
    int size = config->size, width = image->width, height = image->height;
    if (width != size || height != size) {
        int side = (int)(size / config->crop_pct);
        width = height = side;
        if (config->resize == MLA_RESIZE_SHORTER && image->width <= image->height)
            height = (int)fmin(side * (double)image->height / image->width, MLA_MAX_PIXELS);
        else if (config->resize == MLA_RESIZE_SHORTER)
            width = (int)fmin(side * (double)image->width / image->height, MLA_MAX_PIXELS);
    }
    if (width == image->width && height == image->height) {
        crop(pixels, image, size);
        return MLA_OK;
    }
    mla_image resized;
    mla_status status = mla_image_resize(&resized, image, width, height, config->interpolation, error);
    if (status == MLA_OK) {
        crop(pixels, &resized, size);
        mla_image_free(&resized);
    }
    return status;
}

/* ---- writing ---- */

mla_status mla_image_write_png(const mla_image *image, const char *path, mla_error *error) {
    png_image header = {.version = PNG_IMAGE_VERSION,
                        .width = (png_uint_32)image->width,
                        .height = (png_uint_32)image->height,
                        .format = PNG_FORMAT_RGB};
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(header);
    void *memory = malloc(bytes);
    if (!memory)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for a picture of %d x %d", path, image->width,
                        image->height);
    mla_status status = MLA_OK;
    if (png_image_write_to_memory(&header, memory, &bytes, 0, image->rgb, 0, NULL))
        status = mla_file_write(path, memory, bytes, error);
    else
        status = mla_fail(error, MLA_IO, "%s: the picture can't be encoded: %s", path, header.message);
    free(memory);
    return status;
}
