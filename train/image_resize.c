/* Resizing as PIL does it: first along rows, then along columns, each output pixel a weighted sum of the input
 * pixels under a filter that is widened by the factor of shrinking (antialiasing).  With in / out = s, f = max(s, 1):
 *
 *     centre(i) = (i + 1/2) s        w(i, j) = filter((j + 1/2 - centre(i)) / f), normalised to sum 1
 *
 * Weights are rounded to 22 fractional bits and the rows to 8 bits in between, as there, so that pixels are equal. */
#include <math.h>
#include <stdlib.h>

#include "train/image.h"

enum { FRACTION_BITS = 32 - 8 - 2 };

typedef struct filter {
    double (*weight)(double);
    double support; /* the weight is zero from here on */
} filter;

static double bilinear(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Keys' cubic with a = -1/2. */
static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

/* For each output position: the first input pixel, how many, and their weights (at most `width` of them). */
typedef struct weights {
    int width;
    int *first, *count; /* (out) */
    int32_t *weight;    /* (out, width) */
} weights;

static void weights_free(weights *w) {
    free(w->first);
    free(w->count);
    free(w->weight);
    *w = (weights){0};
}

/* The exact weights of output pixel i: *count of them from input pixel *first on, summing to 1. */
static void window(double *exact, int *first, int *count, int i, int in, int out, filter f) {
    double scale = (double)in / out, factor = scale < 1.0 ? 1.0 : scale, support = f.support * factor;
    double centre = (i + 0.5) * scale, sum = 0.0;
    int begin = (int)(centre - support + 0.5), end = (int)(centre + support + 0.5);
    begin = begin < 0 ? 0 : begin;
    end = end > in ? in : end;
    for (int j = begin; j < end; j++) {
        exact[j - begin] = f.weight((j - centre + 0.5) * (1.0 / factor));
        sum += exact[j - begin];
    }
    for (int j = 0; sum != 0.0 && j < end - begin; j++) exact[j] /= sum;
    *first = begin;
    *count = end - begin;
}

void mla_bicubic_window(double *weight, int *first, int *count, int i, int in, int out) {
    window(weight, first, count, i, in, out, (filter){bicubic, 2.0});
}

static mla_status weights_make(weights *w, int in, int out, filter f, mla_error *error) {
    double scale = (double)in / out, factor = scale < 1.0 ? 1.0 : scale, support = f.support * factor;
    *w = (weights){.width = (int)ceil(support) * 2 + 1};
    w->first = malloc((size_t)out * sizeof(int));
    w->count = malloc((size_t)out * sizeof(int));
    w->weight = malloc((size_t)out * (size_t)w->width * sizeof(int32_t));
    double *exact = malloc((size_t)w->width * sizeof(double));
    if (!w->first || !w->count || !w->weight || !exact) {
        weights_free(w);
        free(exact);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory while resizing an image from %d to %d pixels", in, out);
    }
    for (int i = 0; i < out; i++) {
        window(exact, &w->first[i], &w->count[i], i, in, out, f);
        for (int j = 0; j < w->count[i]; j++) {
            double value = exact[j] * (1 << FRACTION_BITS);
            w->weight[(size_t)i * (size_t)w->width + (size_t)j] = (int32_t)(value < 0 ? value - 0.5 : value + 0.5);
        }
    }
    free(exact);
    return MLA_OK;
}

static uint8_t to_byte(int32_t sum) {
    sum >>= FRACTION_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

static void along_rows(mla_image *out, const mla_image *in, const weights *w) {
    for (int y = 0; y < in->height; y++) {
        const uint8_t *from = in->rgb + 3 * (size_t)y * (size_t)in->width;
        uint8_t *to = out->rgb + 3 * (size_t)y * (size_t)out->width;
        for (int x = 0; x < out->width; x++, to += 3) {
            const int32_t *weight = w->weight + (size_t)x * (size_t)w->width;
            const uint8_t *pixel = from + 3 * (size_t)w->first[x];
            int32_t r = 1 << (FRACTION_BITS - 1), g = r, b = r;
            for (int j = 0; j < w->count[x]; j++, pixel += 3) {
                r += pixel[0] * weight[j];
                g += pixel[1] * weight[j];
                b += pixel[2] * weight[j];
            }
            to[0] = to_byte(r);
            to[1] = to_byte(g);
            to[2] = to_byte(b);
        }
    }
}

/* `sums` (3 width): a row at a time, so that memory is walked along and the loops are vectors. */
static void along_columns(mla_image *out, const mla_image *in, const weights *w, int32_t *restrict sums) {
    size_t row = 3 * (size_t)in->width;
    for (int y = 0; y < out->height; y++) {
        for (size_t x = 0; x < row; x++) sums[x] = 1 << (FRACTION_BITS - 1);
        for (int j = 0; j < w->count[y]; j++) {
            const uint8_t *restrict from = in->rgb + row * (size_t)(w->first[y] + j);
            int32_t weight = w->weight[(size_t)y * (size_t)w->width + (size_t)j];
            for (size_t x = 0; x < row; x++) sums[x] += from[x] * weight;
        }
        uint8_t *restrict to = out->rgb + row * (size_t)y;
        for (size_t x = 0; x < row; x++) to[x] = to_byte(sums[x]);
    }
}

static mla_status resize_rows(mla_image *out, const mla_image *in, int width, filter f, mla_error *error) {
    weights w;
    mla_status status = mla_image_create(out, width, in->height, "resized image", error);
    if (status != MLA_OK) return status;
    status = weights_make(&w, in->width, width, f, error);
    if (status != MLA_OK) {
        mla_image_free(out);
        return status;
    }
    along_rows(out, in, &w);
    weights_free(&w);
    return MLA_OK;
}

static mla_status resize_columns(mla_image *out, const mla_image *in, int height, filter f, mla_error *error) {
    weights w = {0};
    mla_status status = mla_image_create(out, in->width, height, "resized image", error);
    if (status != MLA_OK) return status;
    status = weights_make(&w, in->height, height, f, error);
    int32_t *sums = status == MLA_OK ? malloc(3 * (size_t)in->width * sizeof *sums) : NULL;
    if (sums)
        along_columns(out, in, &w, sums);
    else if (status == MLA_OK)
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory while resizing an image to %d rows", height);
    if (status != MLA_OK) mla_image_free(out);
    weights_free(&w);
    free(sums);
    return status;
}

mla_status mla_image_resize(mla_image *out, const mla_image *in, int width, int height, mla_interpolation interpolation,
                            mla_error *error) {
    filter f = interpolation == MLA_BICUBIC ? (filter){bicubic, 2.0} : (filter){bilinear, 1.0};
    mla_image rows = {0};
    /* Before any work: the rows alone may fit where the whole does not. */
    if (width > MLA_MAX_PIXELS / height)
        return mla_fail(error, MLA_INVALID, "resized image: %d x %d pixels, expected 1 to %d in all", width, height,
                        MLA_MAX_PIXELS);
    /* A side that stays is not filtered. */
    if (height == in->height) return resize_rows(out, in, width, f, error);
    if (width == in->width) return resize_columns(out, in, height, f, error);
    mla_status status = resize_rows(&rows, in, width, f, error);
    if (status == MLA_OK) status = resize_columns(out, &rows, height, f, error);
    mla_image_free(&rows);
    return status;
}
