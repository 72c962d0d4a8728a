#include "train/figure.h"

#include <cairo.h>
#include <stdlib.h>
#include <string.h>

#include "train/file.h"
#include "train/text.h"

enum { TEXT_BYTES = 1024 };

struct mla_figure {
    cairo_surface_t *surface;
    cairo_t *cairo;
    int width;
};

void mla_figure_free(mla_figure *figure) {
    if (!figure) return;
    cairo_destroy(figure->cairo);
    cairo_surface_destroy(figure->surface);
    free(figure);
}

mla_status mla_figure_new(mla_figure **out, int width, int height, mla_error *error) {
    *out = NULL;
    MLA_REQUIRE(width > 0 && height > 0 && width <= MLA_FIGURE_MAX_SIDE && height <= MLA_FIGURE_MAX_SIDE,
                "a figure of %d x %d pixels", width, height);
    mla_figure *figure = calloc(1, sizeof *figure);
    if (!figure) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a figure");
    figure->width = width;
    figure->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    figure->cairo = cairo_create(figure->surface); /* of a failed surface a failed context: nothing is drawn */
    if (cairo_status(figure->cairo) != CAIRO_STATUS_SUCCESS) {
        mla_figure_free(figure);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for a figure of %d x %d pixels", width, height);
    }
    mla_figure_box(figure, 0, 0, width, height, 0xffffff);
    *out = figure;
    return MLA_OK;
}

static void set_colour(mla_figure *figure, uint32_t colour) {
    cairo_set_source_rgb(figure->cairo, (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0, (colour & 255) / 255.0);
}

static double text_width(mla_figure *figure, const char *text) {
    cairo_text_extents_t extents;
    cairo_text_extents(figure->cairo, text, &extents);
    return extents.x_advance;
}

/* Takes characters off the end until the rest and an ellipsis fit. */
static void cut(mla_figure *figure, char text[TEXT_BYTES], double width) {
    static const char ellipsis[] = "\xe2\x80\xa6";
    size_t length = strlen(text);
    if (length > TEXT_BYTES - sizeof ellipsis) length = TEXT_BYTES - sizeof ellipsis;
    while (length > 0) {
        do length--;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80);
        strcpy(text + length, ellipsis);
        if (text_width(figure, text) <= width) return;
    }
}

void mla_figure_text(mla_figure *figure, double x, double y, mla_text_style style, const char *text) {
    char shown[TEXT_BYTES];
    mla_text_escape(shown, sizeof shown, text);
    cairo_select_font_face(figure->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           style.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(figure->cairo, style.size);
    if (style.width > 0 && text_width(figure, shown) > style.width) cut(figure, shown, style.width);
    const double share = style.align == MLA_ALIGN_LEFT ? 0 : style.align == MLA_ALIGN_MIDDLE ? 0.5 : 1;
    set_colour(figure, style.colour);
    cairo_move_to(figure->cairo, x - share * text_width(figure, shown), y);
    cairo_show_text(figure->cairo, shown);
}

void mla_figure_box(mla_figure *figure, double x, double y, double width, double height, uint32_t colour) {
    set_colour(figure, colour);
    cairo_rectangle(figure->cairo, x, y, width, height);
    cairo_fill(figure->cairo);
}

void mla_figure_image(mla_figure *figure, int x, int y, const mla_image *image) {
    cairo_surface_flush(figure->surface);
    const int stride = cairo_image_surface_get_stride(figure->surface);
    unsigned char *data = cairo_image_surface_get_data(figure->surface);
    const uint8_t *rgb = image->rgb;
    for (int row = 0; row < image->height; row++)
        for (int column = 0; column < image->width; column++, rgb += 3) {
            const uint32_t pixel = (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2];
            memcpy(data + (size_t)(y + row) * (size_t)stride + 4 * (size_t)(x + column), &pixel, sizeof pixel);
        }
    cairo_surface_mark_dirty_rectangle(figure->surface, x, y, image->width, image->height);
}

void mla_figure_steps(mla_figure *figure, double x, double y, double width, double height, const double *value, int count,
                      bool filled, uint32_t colour) {
    const double step = width / count, base = y + height;
    set_colour(figure, colour);
    cairo_move_to(figure->cairo, x, base);
    for (int i = 0; i < count; i++) {
        cairo_line_to(figure->cairo, x + i * step, base - value[i] * height);
        cairo_line_to(figure->cairo, x + (i + 1) * step, base - value[i] * height);
    }
    cairo_line_to(figure->cairo, x + width, base);
    cairo_set_line_width(figure->cairo, 1.2);
    if (filled)
        cairo_fill(figure->cairo);
    else
        cairo_stroke(figure->cairo);
}

/* ---- the file */

typedef struct png_text {
    unsigned char *bytes; /* owned */
    size_t count, room;
} png_text;

static cairo_status_t take_bytes(void *closure, const unsigned char *data, unsigned int length) {
    png_text *png = closure;
    if (png->room - png->count < length) {
        const size_t room = 2 * png->room + length;
        unsigned char *larger = realloc(png->bytes, room);
        if (!larger) return CAIRO_STATUS_NO_MEMORY;
        png->bytes = larger;
        png->room = room;
    }
    memcpy(png->bytes + png->count, data, length);
    png->count += length;
    return CAIRO_STATUS_SUCCESS;
}

mla_status mla_figure_write(mla_figure *figure, int height, const char *path, mla_error *error) {
    png_text png = {0};
    cairo_surface_flush(figure->surface);
    cairo_surface_t *part =
        cairo_image_surface_create_for_data(cairo_image_surface_get_data(figure->surface), CAIRO_FORMAT_RGB24, figure->width,
                                            height, cairo_image_surface_get_stride(figure->surface));
    cairo_status_t done = cairo_status(figure->cairo);
    if (done == CAIRO_STATUS_SUCCESS) done = cairo_surface_write_to_png_stream(part, take_bytes, &png);
    cairo_surface_destroy(part);
    const mla_status status = done == CAIRO_STATUS_SUCCESS
                                  ? mla_file_write(path, png.bytes, png.count, error)
                                  : mla_fail(error, done == CAIRO_STATUS_NO_MEMORY ? MLA_NO_MEMORY : MLA_IO,
                                             "%s: the picture can't be made: %s", path, cairo_status_to_string(done));
    free(png.bytes);
    return status;
}
