#include "core/panel.h"

#include <string.h>

enum { LANES = MLA_LANES_PER_VECTOR, LINE = MLA_ALIGN_BYTES / sizeof(real), TILES_AHEAD = 4 };

size_t mla_panel_reals(size_t k, size_t n) { return (n + MLA_PANEL - 1) / MLA_PANEL * MLA_PANEL * k; }

void mla_panel_pack(real *packed, size_t k, size_t n, const real *b, size_t row, size_t column) {
    for (size_t first = 0; first < n; first += MLA_PANEL, packed += k * MLA_PANEL) {
        const size_t width = n - first < MLA_PANEL ? n - first : MLA_PANEL;
        const real *in = b + first * column;
        if (width < MLA_PANEL) memset(packed, 0, k * MLA_PANEL * sizeof(real));
        if (column == 1)
            for (size_t p = 0; p < k; p++) memcpy(packed + p * MLA_PANEL, in + p * row, width * sizeof(real));
        else /* reads in order, one column of B after the other; the panel stays in the cache */
            for (size_t j = 0; j < width; j++)
                for (size_t p = 0; p < k; p++) packed[p * MLA_PANEL + j] = in[p * row + j * column];
    }
}

/* One tile of C: `rows` x `vectors` registers.  Always inlined with constants, so that the tile stays in registers. */
static inline __attribute__((always_inline)) void tile(const int rows, const int vectors, size_t k, mla_panel_left a,
                                                       const real *b, size_t depth, mla_panel_start start, real *c,
                                                       size_t c_row) {
    mla_vector sum[MLA_TILE_ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            sum[i][v] = start.bias ? mla_vector_load(start.bias + v * LANES) : (mla_vector){0};
            if (start.add) sum[i][v] += mla_vector_load(start.add + (size_t)i * start.add_row + v * LANES);
        }
        /* The tile's place is asked for before the sum: it may be far away. */
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) __builtin_prefetch(c + (size_t)i * c_row, 1);
    for (size_t p = 0; p < k; p++, a.data += a.depth, b += depth) {
        mla_vector row[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) row[v] = mla_vector_load(b + v * LANES);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[i][v] += a.data[(size_t)i * a.row] * row[v];
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) mla_vector_store(c + (size_t)i * c_row + v * LANES, sum[i][v]);
}

#define TILE(ROWS, VECTORS)                                                                                                 \
    case ROWS: tile(ROWS, VECTORS, k, a, b, depth, start, c, c_row); break

/* One case for each number of rows up to MLA_TILE_ROWS. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define MORE_TILES(VECTORS)                                                                                                 \
    TILE(7, VECTORS);                                                                                                       \
    TILE(8, VECTORS);                                                                                                       \
    TILE(9, VECTORS);                                                                                                       \
    TILE(10, VECTORS);                                                                                                      \
    TILE(11, VECTORS);                                                                                                      \
    TILE(12, VECTORS)
#else
#define MORE_TILES(VECTORS) break
#endif
#define TILES(VECTORS)                                                                                                      \
    TILE(1, VECTORS);                                                                                                       \
    TILE(2, VECTORS);                                                                                                       \
    TILE(3, VECTORS);                                                                                                       \
    TILE(4, VECTORS);                                                                                                       \
    TILE(5, VECTORS);                                                                                                       \
    TILE(6, VECTORS);                                                                                                       \
    MORE_TILES(VECTORS)

static void full_tile(size_t rows, size_t k, mla_panel_left a, const real *b, size_t depth, mla_panel_start start, real *c,
                      size_t c_row) {
    switch (rows) { TILES(2); }
}

static void half_tile(size_t rows, size_t k, mla_panel_left a, const real *b, size_t depth, mla_panel_start start, real *c,
                      size_t c_row) {
    switch (rows) { TILES(1); }
}

/* The tile at the right edge, where C and the start, and B unless it is padded, end within a vector: worked on in copies. */
static void edge_tile(size_t rows, size_t width, size_t k, mla_panel_left a, const real *b, size_t depth, bool padded,
                      mla_panel_start start, real *c, size_t c_row) {
    enum { DEPTH = 64 };
    real sum[MLA_TILE_ROWS * LANES] = {0};
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < width; j++)
            sum[i * LANES + j] = (start.bias ? start.bias[j] : 0) + (start.add ? start.add[i * start.add_row + j] : 0);
    const mla_panel_start on = {.add = sum, .add_row = LANES};
    if (padded) half_tile(rows, k, a, b, depth, on, sum, LANES);
    for (size_t p = 0; !padded && p < k; p += DEPTH) {
        const size_t some = k - p < DEPTH ? k - p : DEPTH;
        real part[DEPTH * LANES] = {0};
        for (size_t q = 0; q < some; q++) memcpy(part + q * LANES, b + (p + q) * depth, width * sizeof(real));
        half_tile(rows, some, (mla_panel_left){a.data + p * a.depth, a.row, a.depth, false}, part, LANES, on, sum, LANES);
    }
    for (size_t i = 0; i < rows; i++) memcpy(c + i * c_row, sum + i * LANES, width * sizeof(real));
}

/* The last columns, fewer than a panel: a vector of them if there are as many, and what is left. */
static void narrow_tile(size_t rows, size_t width, size_t k, mla_panel_left a, const real *b, const mla_panels *panels,
                        mla_panel_start start, real *c, size_t c_row) {
    if (width >= LANES) {
        half_tile(rows, k, a, b, panels->depth, start, c, c_row);
        width -= LANES;
        b += LANES;
        c += LANES;
        if (start.bias) start.bias += LANES;
        if (start.add) start.add += LANES;
    }
    if (width) edge_tile(rows, width, k, a, b, panels->depth, panels->padded, start, c, c_row);
}

/* Rows first_row .. + rows (a tile's) of the columns of one panel. */
static void panel_tile(size_t first_row, size_t rows, size_t first_column, size_t n, size_t k, mla_panel_left a,
                       const mla_panels *b, mla_panel_start start, real *c, size_t c_row) {
    const mla_panel_left left = {a.data + first_row * a.row, a.row, a.depth, false};
    const real *panel = b->data + first_column / MLA_PANEL * b->panel;
    const mla_panel_start from = {start.bias ? start.bias + first_column : NULL,
                                  start.add ? start.add + first_row * start.add_row + first_column : NULL, start.add_row};
    real *out = c + first_row * c_row + first_column;
    if (n - first_column >= MLA_PANEL)
        full_tile(rows, k, left, panel, b->depth, from, out, c_row);
    else
        narrow_tile(rows, n - first_column, k, left, panel, b, from, out, c_row);
}

/* Rows of A that a later tile reads, on their way to the L2 cache. */
typedef struct ahead {
    const real *row;
    size_t column, rows; /* where to go on; rows left */
} ahead;

static void ask(ahead *next, mla_panel_left a, size_t k, size_t lines) {
    for (; lines && next->rows; lines--) {
        __builtin_prefetch(next->row + next->column, 0, 2);
        next->column += LINE;
        if (next->column < k) continue;
        next->column = 0;
        next->row += a.row;
        next->rows--;
    }
}

void mla_panel_product(size_t m, size_t n, size_t k, mla_panel_left a, mla_panels b, mla_panel_start start, real *c,
                       size_t c_row) {
    const size_t panels = (n + MLA_PANEL - 1) / MLA_PANEL;
    const size_t lines = MLA_TILE_ROWS * ((k + LINE - 1) / LINE), share = (lines + panels - 1) / panels;
    for (size_t i = 0; i < m; i += MLA_TILE_ROWS) {
        const size_t rows = m - i < MLA_TILE_ROWS ? m - i : MLA_TILE_ROWS;
        ahead next = {a.data + (i + TILES_AHEAD * MLA_TILE_ROWS) * a.row, 0, a.far ? MLA_TILE_ROWS : 0};
        for (size_t j = 0; j < n; j += MLA_PANEL) {
            ask(&next, a, k, share);
            panel_tile(i, rows, j, n, k, a, &b, start, c, c_row);
        }
    }
}
