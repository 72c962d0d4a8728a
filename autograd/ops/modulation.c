#include "autograd/ops/modulation.h"

#include <math.h>
#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

mla_modulation mla_modulation_at(size_t planes, real *saved) {
    return (mla_modulation){planes, saved, saved + planes, saved + 2 * planes};
}

void mla_modulation_measure(const mla_modulation *m, const real *a, const real *c) {
    double mean = 0;
    for (size_t i = 0; i < m->planes; i++) {
        const double l = log((double)m->variance[i] + MLA_VARIANCE_FLOOR);
        m->deviation[i] = (real)l;
        mean += l;
    }
    mean /= (double)m->planes;
    for (size_t i = 0; i < m->planes; i++) {
        m->deviation[i] = (real)((double)m->deviation[i] - mean);
        m->tangent[i] = (real)tanh((double)(a[i] * m->deviation[i] + c[i]));
    }
}

void mla_modulation_gradient(const mla_modulation *m, real *dt, real *da, real *dc, const real *a, double angle_max) {
    double mean = 0;
    for (size_t i = 0; i < m->planes; i++) {
        const real dz = dt[i] * (real)angle_max * (1 - m->tangent[i] * m->tangent[i]);
        if (da) da[i] += dz * m->deviation[i];
        if (dc) dc[i] += dz;
        dt[i] = a[i] * dz;
        mean += (double)dt[i];
    }
    mean /= (double)m->planes;
    for (size_t i = 0; i < m->planes; i++)
        dt[i] = (real)(((double)dt[i] - mean) / ((double)m->variance[i] + MLA_VARIANCE_FLOOR));
}

void mla_token_squares(size_t tokens, size_t width, real *restrict mean, real *restrict squares, const real *restrict x,
                       size_t stride, real *restrict part) {
    enum { BLOCK = 64 }; /* tokens, as in mla_vec_add_rows */
    const real share = 1 / (real)tokens;
    memset(mean, 0, width * sizeof(real));
    memset(squares, 0, width * sizeof(real));
    mla_vec_add_rows(tokens, width, mean, x, stride, part);
    for (size_t i = 0; i < width; i++) mean[i] *= share;
    for (size_t first = 0; first < tokens; first += BLOCK) {
        memset(part, 0, width * sizeof(real));
        for (size_t n = first; n < tokens && n < first + BLOCK; n++) {
            const real *restrict row = x + n * stride;
#pragma omp simd
            for (size_t i = 0; i < width; i++) part[i] += (row[i] - mean[i]) * (row[i] - mean[i]);
        }
        mla_vec_add(width, squares, 1, part);
    }
}
