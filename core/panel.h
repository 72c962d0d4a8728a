/* Matrix products whose right-hand side stands in panels: the engine's own GEMM for the shapes of a shard.
 *
 * A panel is MLA_PANEL neighbouring columns of B with its rows one after the other, so that the inner loop reads B in
 * order and keeps a tile of C in registers (the scheme of Goto & van de Geijn, ACM TOMS 34, 2008).  A library packs both
 * operands at every call; here weights are packed once a step for all shards, the left-hand side is read where it
 * stands, and bias, residual and the sum's start are loaded into the tile instead of being passes over memory.
 *
 *     real *packed = ...;                                   // mla_panel_reals(k, n)
 *     mla_panel_pack(packed, k, n, weight, 1, k);           // B = W^T, W (n, k)
 *     mla_panel_product(m, n, k, mla_rows(x, k), mla_panels_packed(packed, k), (mla_panel_start){.bias = b}, y, n);
 */
#ifndef MLA_CORE_PANEL_H
#define MLA_CORE_PANEL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/vector.h"

enum {
    MLA_PANEL = 2 * MLA_LANES_PER_VECTOR, /* columns of a panel: two vectors */
#if defined(__AVX512F__) || defined(__aarch64__)
    MLA_TILE_ROWS = 12 /* rows of C held in registers: 24 of 32 */
#else
    MLA_TILE_ROWS = 6 /* 12 of 16 */
#endif
};

/* Left-hand side: element (i, p) stands at data[i * row + p * depth]; depth = 1 for a matrix, row = 1 for a transposed. */
typedef struct mla_panel_left {
    const real *data;
    size_t row, depth;
    bool far; /* rows of a matrix that lies in memory rather than in a cache: they are asked for ahead of their use, which
                 the processor does not do for the rows of a tile.  Where they are near, asking costs 2 % of a product. */
} mla_panel_left;

/* Right-hand side: element (p, j) stands at data[j / MLA_PANEL * panel + p * depth + j % MLA_PANEL]. */
typedef struct mla_panels {
    const real *data;
    size_t panel, depth;
    bool padded; /* the last panel may be read to its full width */
} mla_panels;

/* What the sum starts from: bias (n) in every row, plus add (m, n) with rows `add_row` reals apart; NULL: zero. */
typedef struct mla_panel_start {
    const real *bias, *add;
    size_t add_row;
} mla_panel_start;

static inline mla_panel_left mla_rows(const real *data, size_t stride) { return (mla_panel_left){data, stride, 1, false}; }
static inline mla_panel_left mla_columns_of(const real *data, size_t stride) {
    return (mla_panel_left){data, 1, stride, false};
}
static inline mla_panels mla_panels_packed(const real *data, size_t k) {
    return (mla_panels){data, k * MLA_PANEL, MLA_PANEL, true};
}
/* A row-major matrix as it stands, rows `stride` apart: for operands used too few times to be worth packing. */
static inline mla_panels mla_panels_direct(const real *data, size_t stride) {
    return (mla_panels){data, MLA_PANEL, stride, false};
}

/* Reals of a packed (k, n) matrix: n rounded up to whole panels. */
size_t mla_panel_reals(size_t k, size_t n);

/* Packs B (k, n), element (p, j) at b[p * row + j * column]; the last panel is filled up with zeros. */
void mla_panel_pack(real *packed, size_t k, size_t n, const real *b, size_t row, size_t column);

/* C (m, n) = start + A B, rows of C `c_row` reals apart.  start.add may be C itself: then it is added to. */
void mla_panel_product(size_t m, size_t n, size_t k, mla_panel_left a, mla_panels b, mla_panel_start start, real *c,
                       size_t c_row);

#endif
