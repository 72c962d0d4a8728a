#include "autograd/ops/linear_core.h"

#include <string.h>

#include "core/panel.h"
#include "core/vmath.h"

enum { TILE_REALS = 6144, MOST_TOKENS = 96, FEWEST_TOKENS = 12 };

size_t mla_linear_tile(size_t columns) {
    const size_t tokens = TILE_REALS / columns / FEWEST_TOKENS * FEWEST_TOKENS;
    return tokens < FEWEST_TOKENS ? FEWEST_TOKENS : tokens > MOST_TOKENS ? MOST_TOKENS : tokens;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t mla_linear_saved(size_t heads, size_t width, size_t d) { return heads * (width * d + width); }

/* st holds the packed transposes of all heads. */
static size_t packed_reals(size_t heads, size_t width, size_t d) { return heads * mla_panel_reals(d, width); }

size_t mla_linear_scratch(size_t heads, size_t width, size_t d) {
    return mla_linear_saved(heads, width, d) + packed_reals(heads, width, d) + larger(width * d, heads * width) +
           mla_linear_tile(heads * larger(width, d)) * heads * d;
}

mla_linear_image mla_linear_image_at(size_t tokens, size_t heads, size_t width, size_t d, double eps, real *saved,
                                     real *scratch) {
    mla_linear_image m = {.tokens = tokens,
                          .heads = heads,
                          .width = width,
                          .d = d,
                          .floor = (real)(eps * (double)tokens),
                          .s = saved,
                          .ds = scratch};
    m.z = m.s + heads * width * d;
    m.dz = m.ds + heads * width * d;
    m.st = m.dz + heads * width;
    m.part = m.st + packed_reals(heads, width, d);
    m.dnum = m.part + larger(width * d, heads * width);
    return m;
}

/* sum (D, d) = a^T b of the first tile, += of the others: by way of `part`, so that rounding grows with the number of tiles
 * and not of tokens. */
static void add_outer(const mla_linear_image *m, real *sum, size_t first, const real *a, const real *b, size_t b_stride,
                      size_t tokens) {
    const size_t width = m->width, d = m->d;
    mla_panel_product(width, d, tokens, mla_columns_of(a, m->heads * width), mla_panels_direct(b, b_stride),
                      (mla_panel_start){0}, first ? m->part : sum, d);
    if (first) mla_vec_add(width * d, sum, 1, m->part);
}

void mla_linear_add_tile(const mla_linear_image *m, size_t first, size_t tokens, const real *fk, const real *v,
                         size_t v_stride) {
    const size_t width = m->width, d = m->d, columns = m->heads * width;
    if (first == 0) memset(m->z, 0, columns * sizeof(real));
    mla_vec_add_rows(tokens, columns, m->z, fk, columns, m->part);
    for (size_t h = 0; h < m->heads; h++)
        add_outer(m, m->s + h * width * d, first, fk + h * width, v + h * d, v_stride, tokens);
}

/* fq . z + N eps of one token and head. */
static real denominator(const mla_linear_image *m, const real *restrict fq, const real *restrict z) {
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < m->width; i++) sum += fq[i] * z[i];
    return sum + m->floor;
}

void mla_linear_read_tile(const mla_linear_image *m, size_t tokens, real *y, size_t stride, const real *fq) {
    const size_t width = m->width, d = m->d, columns = m->heads * width;
    for (size_t h = 0; h < m->heads; h++) {
        mla_panel_product(tokens, d, width, mla_rows(fq + h * width, columns), mla_panels_direct(m->s + h * width * d, d),
                          (mla_panel_start){0}, y + h * d, stride);
        for (size_t n = 0; n < tokens; n++) {
            const real factor = 1 / denominator(m, fq + n * columns + h * width, m->z + h * width);
            real *restrict row = y + n * stride + h * d;
            for (size_t i = 0; i < d; i++) row[i] *= factor;
        }
    }
}

/* st = the transposes of (heads, D, d), packed. */
static void pack_transposed(const mla_linear_image *m, const real *matrices) {
    const size_t width = m->width, d = m->d, reals = mla_panel_reals(d, width);
    for (size_t h = 0; h < m->heads; h++) mla_panel_pack(m->st + h * reals, d, width, matrices + h * width * d, 1, d);
}

void mla_linear_begin_gradient(const mla_linear_image *m) { pack_transposed(m, m->s); }

/* One token and head: dnum = dy / den; the start of dfq = dden z, dden = -(dy . y) / den; dz += dden fq. */
static void quotient_gradient(const mla_linear_image *m, real *restrict dnum, real *restrict dfq, real *restrict dz,
                              const real *restrict fq, const real *restrict dy, const real *restrict y,
                              const real *restrict z) {
    const real factor = 1 / denominator(m, fq, z);
    real dot = 0;
#pragma omp simd reduction(+ : dot)
    for (size_t i = 0; i < m->d; i++) dot += dy[i] * y[i];
    const real dden = -dot * factor;
#pragma omp simd
    for (size_t i = 0; i < m->d; i++) dnum[i] = dy[i] * factor;
#pragma omp simd
    for (size_t i = 0; i < m->width; i++) {
        dfq[i] = dden * z[i];
        dz[i] += dden * fq[i];
    }
}

void mla_linear_query_tile(const mla_linear_image *m, size_t first, size_t tokens, real *dfq, const real *fq, const real *dy,
                           const real *y, size_t stride) {
    const size_t width = m->width, d = m->d, columns = m->heads * width, channels = m->heads * d,
                 reals = mla_panel_reals(d, width);
    memset(m->part, 0, columns * sizeof(real)); /* dz of the tile */
    for (size_t n = 0; n < tokens; n++)
        for (size_t h = 0; h < m->heads; h++) {
            const size_t at = n * columns + h * width, out = n * stride + h * d;
            quotient_gradient(m, m->dnum + n * channels + h * d, dfq + at, m->part + h * width, fq + at, dy + out, y + out,
                              m->z + h * width);
        }
    if (first == 0) memset(m->dz, 0, columns * sizeof(real));
    mla_vec_add(columns, m->dz, 1, m->part);
    for (size_t h = 0; h < m->heads; h++) {
        mla_panel_product(tokens, width, d, mla_rows(m->dnum + h * d, channels), mla_panels_packed(m->st + h * reals, d),
                          (mla_panel_start){.add = dfq + h * width, .add_row = columns}, dfq + h * width, columns);
        add_outer(m, m->ds + h * width * d, first, fq + h * width, m->dnum + h * d, channels, tokens);
    }
}

void mla_linear_turn_gradient(const mla_linear_image *m) { pack_transposed(m, m->ds); }

void mla_linear_key_tile(const mla_linear_image *m, size_t tokens, real *dfk, real *dv, size_t dv_stride, const real *fk,
                         const real *v, size_t v_stride) {
    const size_t width = m->width, d = m->d, columns = m->heads * width, reals = mla_panel_reals(d, width);
    for (size_t h = 0; h < m->heads; h++) {
        if (dfk)
            mla_panel_product(tokens, width, d, mla_rows(v + h * d, v_stride), mla_panels_packed(m->st + h * reals, d),
                              (mla_panel_start){.bias = m->dz + h * width}, dfk + h * width, columns);
        if (dv)
            mla_panel_product(tokens, d, width, mla_rows(fk + h * width, columns),
                              mla_panels_direct(m->ds + h * width * d, d),
                              (mla_panel_start){.add = dv + h * d, .add_row = dv_stride}, dv + h * d, dv_stride);
    }
}
