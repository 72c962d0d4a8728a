#include "train/pixels.h"

#include <math.h>
#include <string.h>

static size_t plane_of(const mla_pixels *p) { return (size_t)p->size * (size_t)p->size; }

static void swap(mla_pixels *p) {
    uint8_t *now = p->now;
    p->now = p->spare;
    p->spare = now;
}

static uint8_t to_byte(int v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }

/* ---- tables of the 256 values */

static void look_up(uint8_t *pixels, size_t count, const uint8_t table[256]) {
    for (size_t i = 0; i < count; i++) pixels[i] = table[pixels[i]];
}

static void count_values(unsigned counts[256], const uint8_t *pixels, size_t count) {
    memset(counts, 0, 256 * sizeof *counts);
    for (size_t i = 0; i < count; i++) counts[pixels[i]]++;
}

void mla_pixels_autocontrast(mla_pixels *p) {
    const size_t plane = plane_of(p);
    for (int c = 0; c < 3; c++) {
        uint8_t *pixels = p->now + (size_t)c * plane, table[256];
        int low = 255, high = 0;
        for (size_t i = 0; i < plane; i++) {
            low = pixels[i] < low ? pixels[i] : low;
            high = pixels[i] > high ? pixels[i] : high;
        }
        if (high <= low) continue;
        const double scale = 255.0 / (high - low), offset = -low * scale;
        for (int v = 0; v < 256; v++) table[v] = to_byte((int)(v * scale + offset));
        look_up(pixels, plane, table);
    }
}

void mla_pixels_equalize(mla_pixels *p) {
    const size_t plane = plane_of(p);
    for (int c = 0; c < 3; c++) {
        uint8_t *pixels = p->now + (size_t)c * plane, table[256];
        unsigned counts[256], values = 0, last = 0;
        count_values(counts, pixels, plane);
        for (int v = 0; v < 256; v++)
            if (counts[v]) values++, last = counts[v];
        const unsigned step = ((unsigned)plane - last) / 255;
        if (values <= 1 || step == 0) continue;
        for (unsigned v = 0, below = step / 2; v < 256; below += counts[v++]) table[v] = to_byte((int)(below / step));
        look_up(pixels, plane, table);
    }
}

/* The loops below hold what they need of *p: stores of bytes may change anything the compiler does not know. */
void mla_pixels_invert(mla_pixels *p) {
    const size_t count = 3 * plane_of(p);
    uint8_t *pixels = p->now;
    for (size_t i = 0; i < count; i++) pixels[i] = (uint8_t)(255 - pixels[i]);
}

void mla_pixels_posterize(mla_pixels *p, int bits) {
    const uint8_t mask = bits <= 0 ? 0 : bits >= 8 ? 255 : (uint8_t)(255u << (8 - bits));
    const size_t count = 3 * plane_of(p);
    uint8_t *pixels = p->now;
    for (size_t i = 0; i < count; i++) pixels[i] &= mask;
}

void mla_pixels_solarize(mla_pixels *p, int threshold) {
    const size_t count = 3 * plane_of(p);
    uint8_t *pixels = p->now;
    for (size_t i = 0; i < count; i++) pixels[i] = pixels[i] >= threshold ? (uint8_t)(255 - pixels[i]) : pixels[i];
}

void mla_pixels_solarize_add(mla_pixels *p, int add) {
    const size_t count = 3 * plane_of(p);
    uint8_t *pixels = p->now;
    for (size_t i = 0; i < count; i++) pixels[i] = pixels[i] < 128 ? to_byte(pixels[i] + add) : pixels[i];
}

/* ---- blends: base + factor (value - base) in single precision, cut to a whole number */

static uint8_t blend(int base, int value, float factor) {
    const float x = (float)base + factor * (float)(value - base);
    return (uint8_t)(x <= 0 ? 0 : x >= 255 ? 255 : x);
}

/* PIL's convert("L"): ITU-R 601 weights in 16 bits. */
static int grey(uint8_t r, uint8_t g, uint8_t b) { return (int)((r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16); }

void mla_pixels_color(mla_pixels *p, double factor) {
    const size_t plane = plane_of(p);
    uint8_t *restrict red = p->now, *restrict green = red + plane, *restrict blue = green + plane;
    for (size_t i = 0; i < plane; i++) {
        const int base = grey(red[i], green[i], blue[i]);
        red[i] = blend(base, red[i], (float)factor);
        green[i] = blend(base, green[i], (float)factor);
        blue[i] = blend(base, blue[i], (float)factor);
    }
}

static void blend_all(mla_pixels *p, int base, double factor) {
    const size_t count = 3 * plane_of(p);
    uint8_t *pixels = p->now;
    for (size_t i = 0; i < count; i++) pixels[i] = blend(base, pixels[i], (float)factor);
}

void mla_pixels_contrast(mla_pixels *p, double factor) {
    const size_t plane = plane_of(p);
    uint64_t sum = 0;
    const uint8_t *red = p->now, *green = red + plane, *blue = green + plane;
    for (size_t i = 0; i < plane; i++) sum += (uint64_t)grey(red[i], green[i], blue[i]);
    blend_all(p, (int)((double)sum / (double)plane + 0.5), factor);
}

void mla_pixels_brightness(mla_pixels *p, double factor) { blend_all(p, 0, factor); }

/* ImageFilter.SMOOTH: weight 5 in the middle and 1 around it, over 13, rounded; no tie can arise.  The border stays. */
static void smooth(uint8_t *restrict out, const uint8_t *restrict in, size_t size) {
    memcpy(out, in, size * size);
    for (size_t y = 1; y + 1 < size; y++) {
        const uint8_t *above = in + (y - 1) * size, *row = above + size, *below = row + size;
        for (size_t x = 1; x + 1 < size; x++) {
            const unsigned sum = (unsigned)above[x - 1] + above[x] + above[x + 1] + row[x - 1] + 5u * row[x] + row[x + 1] +
                                 below[x - 1] + below[x] + below[x + 1];
            out[y * size + x] = (uint8_t)((2 * sum + 13) / 26);
        }
    }
}

void mla_pixels_sharpness(mla_pixels *p, double factor) {
    const size_t plane = plane_of(p);
    for (size_t c = 0; c < 3; c++) {
        const uint8_t *restrict sharp = p->now + c * plane;
        uint8_t *restrict out = p->spare + c * plane;
        smooth(out, sharp, (size_t)p->size);
        for (size_t i = 0; i < plane; i++) out[i] = blend(out[i], sharp[i], (float)factor);
    }
    swap(p);
}

/* ---- hue: PIL's conversions between RGB and HSV, all three in 8 bits */

static void to_hsv(uint8_t hsv[3], int r, int g, int b) {
    const int least = r < g ? (r < b ? r : b) : (g < b ? g : b), most = r > g ? (r > b ? r : b) : (g > b ? g : b);
    hsv[0] = hsv[1] = 0;
    hsv[2] = (uint8_t)most;
    if (least == most) return;
    const float range = (float)(most - least), s = range / (float)most;
    const float rc = (float)(most - r) / range, gc = (float)(most - g) / range, bc = (float)(most - b) / range;
    float h;
    if (r == most)
        h = bc - gc;
    else if (g == most)
        h = (float)(2.0 + (double)rc - (double)bc);
    else
        h = (float)(4.0 + (double)gc - (double)rc);
    const double circles = (double)h / 6.0 + 1.0; /* 5/6 to 11/6 */
    h = (float)(circles >= 1 ? circles - 1 : circles);
    hsv[0] = to_byte((int)((double)h * 255.0));
    hsv[1] = to_byte((int)((double)s * 255.0));
}

/* Ties upwards; x >= 0. */
static uint8_t rounded(double x) { return to_byte((int)(x + 0.5)); }

static void to_rgb(uint8_t rgb[3], const uint8_t hsv[3]) {
    const uint8_t v = hsv[2];
    if (hsv[1] == 0) {
        rgb[0] = rgb[1] = rgb[2] = v;
        return;
    }
    const int sector = (int)((double)hsv[0] * 6.0 / 255.0);
    const float f = (float)((double)hsv[0] * 6.0 / 255.0 - (double)sector), s = (float)((double)hsv[1] / 255.0);
    const uint8_t low = rounded(v * (1.0 - (double)s));
    const uint8_t falls = rounded(v * (1.0 - (double)(s * f)));
    const uint8_t rises = rounded(v * (1.0 - (double)s * (1.0 - (double)f)));
    const uint8_t table[6][3] = {{v, rises, low}, {falls, v, low}, {low, v, rises},
                                 {low, falls, v}, {rises, low, v}, {v, low, falls}};
    memcpy(rgb, table[sector % 6], 3);
}

void mla_pixels_hue(mla_pixels *p, double share) {
    const size_t plane = plane_of(p);
    const int turn = (int)(share * 255);
    for (size_t i = 0; i < plane; i++) {
        uint8_t hsv[3], rgb[3];
        to_hsv(hsv, p->now[i], p->now[plane + i], p->now[2 * plane + i]);
        hsv[0] = (uint8_t)(hsv[0] + turn);
        to_rgb(rgb, hsv);
        for (size_t c = 0; c < 3; c++) p->now[c * plane + i] = rgb[c];
    }
}

/* ---- affine maps */

static int clip(int v, int size) { return v < 0 ? 0 : v >= size ? size - 1 : v; }

/* Where an output pixel comes from: the neighbours' columns and rows, and the place between the middle two. */
typedef struct place {
    int column[4], row[4];
    double dx, dy;
} place;

static void find_place(place *at, double x, double y, int size, int before, int neighbours) {
    const int column = (int)floor(x - 0.5), row = (int)floor(y - 0.5);
    at->dx = x - 0.5 - column;
    at->dy = y - 0.5 - row;
    for (int i = 0; i < neighbours; i++) {
        at->column[i] = clip(column - before + i, size);
        at->row[i] = clip(row - before + i, size) * size;
    }
}

static double linear(double a, double b, double d) { return a + (b - a) * d; }

static uint8_t bilinear(const uint8_t *in, const place *at) {
    const uint8_t *first = in + at->row[0], *second = in + at->row[1];
    const double above = linear(first[at->column[0]], first[at->column[1]], at->dx);
    if (at->dy == 0) return (uint8_t)above;
    return (uint8_t)linear(above, linear(second[at->column[0]], second[at->column[1]], at->dx), at->dy);
}

/* Keys' cubic with a = -1, as PIL's transform has it (its resize has a = -1/2). */
static double cubic(double a, double b, double c, double d, double t) {
    const double p2 = -a + c, p3 = 2 * (a - b) + c - d, p4 = -a + b - c + d;
    return b + t * (p2 + t * (p3 + t * p4));
}

static double cubic_row(const uint8_t *row, const place *at) {
    return cubic(row[at->column[0]], row[at->column[1]], row[at->column[2]], row[at->column[3]], at->dx);
}

static uint8_t bicubic(const uint8_t *in, const place *at) {
    double v = cubic_row(in + at->row[1], at);
    /* On a row the others have no weight: shears and translations along x. */
    if (at->dy != 0)
        v = cubic(cubic_row(in + at->row[0], at), v, cubic_row(in + at->row[2], at), cubic_row(in + at->row[3], at), at->dy);
    return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
}

void mla_pixels_affine(mla_pixels *p, const double a[6], mla_interpolation filter, const uint8_t fill[3]) {
    const int size = p->size;
    const size_t plane = plane_of(p);
    uint8_t *out = p->spare;
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++, out++) {
            const double xc = x + 0.5, yc = y + 0.5;
            const double u = a[0] * xc + a[1] * yc + a[2], v = a[3] * xc + a[4] * yc + a[5];
            if (!(u >= 0 && u < size && v >= 0 && v < size)) {
                for (size_t c = 0; c < 3; c++) out[c * plane] = fill[c];
                continue;
            }
            place at;
            if (filter == MLA_BICUBIC) {
                find_place(&at, u, v, size, 1, 4);
                for (size_t c = 0; c < 3; c++) out[c * plane] = bicubic(p->now + c * plane, &at);
            } else {
                find_place(&at, u, v, size, 0, 2);
                for (size_t c = 0; c < 3; c++) out[c * plane] = bilinear(p->now + c * plane, &at);
            }
        }
    swap(p);
}

/* To 15 decimals, as PIL rounds sines and cosines. */
static double round_15(double x) { return (double)rintl((long double)x * 1e15L) / 1e15; }

void mla_pixels_rotate(mla_pixels *p, double degrees, mla_interpolation filter, const uint8_t fill[3]) {
    double angle = fmod(degrees, 360.0);
    if (angle < 0) angle += 360.0;
    if (angle == 0) return;
    angle = -(angle * (3.14159265358979323846 / 180.0));
    const double middle = p->size / 2.0;
    double a[6] = {round_15(cos(angle)), round_15(sin(angle)), 0, round_15(-sin(angle)), round_15(cos(angle)), 0};
    a[2] = a[0] * -middle + a[1] * -middle + a[2] + middle;
    a[5] = a[3] * -middle + a[4] * -middle + a[5] + middle;
    mla_pixels_affine(p, a, filter, fill);
}
