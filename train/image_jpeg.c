/* JPEG through libjpeg-turbo's own interface: it reads every colour model and sampling, and tells a file that ends
 * early from harmless oddities.  Its errors come by longjmp; everything that outlives one is in `reader`. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "train/image.h"

typedef struct jpeg_reader {
    struct jpeg_decompress_struct decoder;
    struct jpeg_error_mgr manager;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    char reason[JMSG_LENGTH_MAX];
    mla_image image;
    uint8_t *inks; /* one row of CMYK */
    mla_status status;
} jpeg_reader;

static void on_error(j_common_ptr decoder) {
    jpeg_reader *reader = decoder->client_data;
    decoder->err->format_message(decoder, reader->reason);
    longjmp(reader->escape, 1);
}

/* The library would go on with grey where a file ends early; other complaints are let pass, as PIL does. */
static void on_message(j_common_ptr decoder, int level) {
    if (level < 0 && decoder->err->msg_code == JWRN_JPEG_EOF) {
        jpeg_reader *reader = decoder->client_data;
        snprintf(reader->reason, sizeof reader->reason, "the file ends early (truncated)");
        longjmp(reader->escape, 1);
    }
}

/* Each scan goes over the whole image, however few bytes it has: without a limit a file of 1 MB could take half an hour.
 * Encoders write about ten. */
static void on_progress(j_common_ptr decoder) {
    enum { SCANS_MOST = 100 };
    jpeg_reader *reader = decoder->client_data;
    if (reader->decoder.input_scan_number <= SCANS_MOST) return;
    snprintf(reader->reason, sizeof reader->reason, "more than %d scans", SCANS_MOST);
    longjmp(reader->escape, 1);
}

/* a b / 255, rounded. */
static int multiply(int a, int b) {
    int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

/* Adobe writes inks inverted, and PIL takes all four-colour JPEGs so: 255 is no ink. */
static void inks_to_rgb(uint8_t *rgb, const uint8_t *inks, int width) {
    for (int x = 0; x < width; x++, rgb += 3, inks += 4) {
        int light = inks[3];
        for (int c = 0; c < 3; c++) {
            int value = light - multiply(255 - inks[c], light);
            rgb[c] = (uint8_t)(value < 0 ? 0 : value);
        }
    }
}

static void read_rows(jpeg_reader *reader) {
    struct jpeg_decompress_struct *decoder = &reader->decoder;
    mla_image *image = &reader->image;
    while (decoder->output_scanline < decoder->output_height) {
        uint8_t *rgb = image->rgb + 3 * (size_t)decoder->output_scanline * (size_t)image->width;
        JSAMPROW row = reader->inks ? reader->inks : rgb;
        jpeg_read_scanlines(decoder, &row, 1);
        if (reader->inks) inks_to_rgb(rgb, reader->inks, image->width);
    }
}

static void decode(jpeg_reader *reader, const uint8_t *bytes, size_t count, const char *name, mla_error *error) {
    struct jpeg_decompress_struct *decoder = &reader->decoder;
    if (setjmp(reader->escape)) {
        if (reader->status == MLA_OK)
            reader->status = mla_fail(error, MLA_INVALID, "%s: damaged JPEG: %s", name, reader->reason);
        return;
    }
    jpeg_create_decompress(decoder);
    reader->progress.progress_monitor = on_progress;
    decoder->progress = &reader->progress;
    jpeg_mem_src(decoder, bytes, (unsigned long)count);
    jpeg_read_header(decoder, TRUE);
    bool four = decoder->jpeg_color_space == JCS_CMYK || decoder->jpeg_color_space == JCS_YCCK;
    decoder->out_color_space = four ? JCS_CMYK : JCS_RGB;
    reader->status = mla_image_create(&reader->image, decoder->image_width, decoder->image_height, name, error);
    if (reader->status == MLA_OK && four && !(reader->inks = malloc(4 * (size_t)decoder->image_width)))
        reader->status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", name);
    if (reader->status != MLA_OK) return;
    jpeg_start_decompress(decoder);
    read_rows(reader);
}

mla_status mla_image_decode_jpeg(mla_image *image, const uint8_t *bytes, size_t count, const char *name, mla_error *error) {
    jpeg_reader reader;
    memset(&reader, 0, sizeof reader);
    reader.decoder.err = jpeg_std_error(&reader.manager);
    reader.decoder.client_data = &reader;
    reader.manager.error_exit = on_error;
    reader.manager.emit_message = on_message;
    decode(&reader, bytes, count, name, error);
    jpeg_destroy_decompress(&reader.decoder);
    free(reader.inks);
    if (reader.status == MLA_OK)
        *image = reader.image;
    else
        mla_image_free(&reader.image);
    return reader.status;
}
