#include "layers/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/ops/reflection.h"

/* LAPACK's, of OpenBLAS. */
extern void dgesdd_(const char *job, const int *m, const int *n, double *a, const int *lda, double *s, double *u,
                    const int *ldu, double *vt, const int *ldvt, double *work, const int *lwork, int *iwork, int *info);

/* ---- the implied attention */

size_t mla_measure_parts(const mla_attention *layer) { return layer->kind == MLA_ATTENTION_POLA ? 2 : 1; }

size_t mla_measure_rows(size_t tokens) { return tokens <= 1024 ? tokens : 256; }

/* Columns of A that are found together: w of each matrix an image, for a batch of images that differ in v alone. */
typedef struct columns_at_once {
    size_t first, images, width; /* tokens first .. first + images * width - 1, as far as there are */
} columns_at_once;

/* qkv (images, N, 3C): q and k stay, v is zero but for the unit vectors. */
static void put_units(real *qkv, const mla_attention *layer, size_t parts, size_t tokens, const columns_at_once *c,
                      real value) {
    const size_t channels = layer->channels, d = channels / layer->heads;
    for (size_t i = 0; i < c->images * c->width && c->first + i < tokens; i++) {
        real *v = qkv + ((i / c->width * tokens + c->first + i) * 3 + 2) * channels + i % c->width;
        for (size_t h = 0; h < layer->heads; h++)
            for (size_t p = 0; p < parts; p++) v[h * d + p * c->width] = value;
    }
}

static void take_columns(real *a, const mla_attention *layer, size_t parts, size_t tokens, size_t rows,
                         const columns_at_once *c, const real *y) {
    const size_t channels = layer->channels, d = channels / layer->heads;
    for (size_t i = 0; i < c->images * c->width && c->first + i < tokens; i++)
        for (size_t r = 0; r < rows; r++) {
            const real *from = y + (i / c->width * tokens + r * tokens / rows) * channels + i % c->width;
            for (size_t h = 0; h < layer->heads; h++)
                for (size_t p = 0; p < parts; p++)
                    a[((h * parts + p) * rows + r) * tokens + c->first + i] = from[h * d + p * c->width];
        }
}

mla_status mla_measure_attention(real *a, const mla_attention *layer, mla_tape *tape, const mla_params *params,
                                 const real *values, const real *qkv, size_t tokens, size_t rows, mla_error *error) {
    enum { MOST_REALS = 1 << 20 }; /* of q, k and v at a time */
    const size_t parts = mla_measure_parts(layer), size = tokens * 3 * layer->channels;
    columns_at_once c = {.width = layer->channels / layer->heads / parts};
    const size_t needed = (tokens + c.width - 1) / c.width, most = size < MOST_REALS ? MOST_REALS / size : 1;
    c.images = needed < most ? needed : most;
    real *batch = malloc(c.images * size * sizeof *batch);
    if (!batch) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the attention of %zu tokens", tokens);
    for (size_t row = 0; row < c.images * tokens; row++) {
        real *to = batch + row * 3 * layer->channels;
        memcpy(to, qkv + row % tokens * 3 * layer->channels, 2 * layer->channels * sizeof *to);
        memset(to + 2 * layer->channels, 0, layer->channels * sizeof *to);
    }
    mla_status status = MLA_OK;
    for (; status == MLA_OK && c.first < tokens; c.first += c.images * c.width) {
        put_units(batch, layer, parts, tokens, &c, 1);
        mla_tape_begin(tape, params, values, NULL);
        const mla_tensor in = mla_tensor_make(batch, 3, (size_t[]){c.images, tokens, 3 * layer->channels});
        const mla_var y = mla_attention_core(layer, tape, mla_tape_input(tape, in));
        status = mla_tape_status(tape, error);
        if (status == MLA_OK) take_columns(a, layer, parts, tokens, rows, &c, mla_value(tape, y).data);
        put_units(batch, layer, parts, tokens, &c, 0);
    }
    free(batch);
    return status;
}

/* ---- entropy and rank */

/* -sum p ln p of x / sum x. */
static double entropy(const double *x, size_t n) {
    double sum = 0, logs = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    for (size_t i = 0; i < n; i++)
        if (x[i] > 0) logs += x[i] * log(x[i]);
    return log(sum) - logs / sum;
}

double mla_measure_entropy(const real *a, size_t rows, size_t tokens) {
    double mean = 0;
    size_t used = 0;
    for (size_t r = 0; r < rows; r++, a += tokens) {
        double sum = 0, logs = 0;
        for (size_t m = 0; m < tokens; m++) {
            const double x = fabs((double)a[m]);
            sum += x;
            if (x > 0) logs += x * log(x);
        }
        if (sum == 0) continue;
        mean += log(sum) - logs / sum;
        used++;
    }
    return used ? mean / (double)used / log((double)tokens) : NAN;
}

/* The singular values of a (m, n, column by column), which is used up; false when LAPACK gives none.  lwork = -1: *work is
 * the room that it wants. */
static bool singular_values(double *s, double *a, int m, int n, double *work, int lwork, int *iwork) {
    int info = 0;
    const int one = 1;
    dgesdd_("N", &m, &n, a, &m, s, NULL, &one, NULL, &one, work, &lwork, iwork, &info);
    return info == 0;
}

mla_status mla_measure_rank(double *rank, const real *a, size_t rows, size_t columns, size_t stride, mla_error *error) {
    const double NEGLIGIBLE = 1e-6;
    const size_t smaller = rows < columns ? rows : columns;
    double room = 0;
    *rank = NAN;
    if (!singular_values(NULL, NULL, (int)columns, (int)rows, &room, -1, NULL)) return MLA_OK;
    double *copy = malloc((rows * columns + smaller + (size_t)room) * sizeof *copy);
    int *iwork = malloc(8 * smaller * sizeof *iwork);
    bool finite = true;
    if (!copy || !iwork) {
        free(copy);
        free(iwork);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the singular values of a %zu x %zu matrix", rows, columns);
    }
    double *s = copy + rows * columns;
    for (size_t i = 0; i < rows * columns; i++) {
        copy[i] = (double)a[i / columns * stride + i % columns]; /* row by row: to LAPACK it is the transpose */
        finite = finite && isfinite(copy[i]);
    }
    if (finite && singular_values(s, copy, (int)columns, (int)rows, s + smaller, (int)room, iwork) && s[0] > 0) {
        for (size_t i = 0; i < smaller; i++)
            if (s[i] < NEGLIGIBLE * s[0]) s[i] = 0;
        *rank = exp(entropy(s, smaller));
    }
    free(copy);
    free(iwork);
    return MLA_OK;
}

/* ---- reflections */

/* x (b) = row `row` of H(u_1) ... H(u_r); unit (r, b). */
static void product_row(double *x, size_t row, const real *unit, size_t r, size_t b) {
    memset(x, 0, b * sizeof *x);
    x[row] = 1;
    for (size_t i = 0; i < r; i++, unit += b) {
        double dot = 0;
        for (size_t j = 0; j < b; j++) dot += x[j] * (double)unit[j];
        for (size_t j = 0; j < b; j++) x[j] -= 2 * dot * (double)unit[j];
    }
}

mla_status mla_measure_moved(double *moved, const real *v, const real *start, size_t r, size_t b, mla_error *error) {
    const size_t turned = b < 2 * r ? b : 2 * r;
    real *unit = malloc(2 * r * b * sizeof *unit);
    double *x = malloc(2 * b * sizeof *x), squares = 0;
    if (!unit || !x) {
        free(unit);
        free(x);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu reflections of %zu channels", r, b);
    }
    for (size_t i = 0; i < r; i++) {
        mla_reflection_unit(unit + i * b, v + i * b, b);
        mla_reflection_unit(unit + (r + i) * b, start + i * b, b);
    }
    for (size_t row = 0; row < b; row++) {
        product_row(x, row, unit, r, b);
        product_row(x + b, row, unit + r * b, r, b);
        for (size_t j = 0; j < b; j++) squares += (x[j] - x[b + j]) * (x[j] - x[b + j]);
    }
    *moved = sqrt(squares) / (2 * sqrt((double)turned));
    free(unit);
    free(x);
    return MLA_OK;
}
