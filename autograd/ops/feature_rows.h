/* The feature maps of linear attention, row by row: used inside linear_attention and by themselves (feature_map). */
#ifndef MLA_AUTOGRAD_OPS_FEATURE_ROWS_H
#define MLA_AUTOGRAD_OPS_FEATURE_ROWS_H

#include <string.h>

#include "autograd/ops.h"
#include "core/vmath.h"

/* f (rows, columns) = map of x, whose rows are `stride` apart. */
static inline void mla_feature_rows(mla_feature_map map, real *f, const real *x, size_t stride, size_t rows,
                                    size_t columns) {
    for (size_t n = 0; n < rows; n++, x += stride, f += columns) {
        real *restrict out = f;
        if (map == MLA_FEATURE_ELU1)
            mla_vec_elu1(columns, out, x);
        else if (map == MLA_FEATURE_GIVEN)
            memcpy(out, x, columns * sizeof(real));
        else
            for (size_t i = 0; i < columns; i++) out[i] = x[i] < 0 ? 0 : x[i]; /* a NaN stays one */
    }
}

/* dx += df times the slope of the map, which is read off its value f; f and df (rows, columns). */
static inline void mla_feature_rows_gradient(mla_feature_map map, real *dx, size_t stride, const real *f, const real *df,
                                             size_t rows, size_t columns) {
    for (size_t n = 0; n < rows; n++, dx += stride, f += columns, df += columns) {
        const real *restrict value = f, *restrict slope = df;
        if (map == MLA_FEATURE_ELU1)
            for (size_t i = 0; i < columns; i++) dx[i] += slope[i] * (value[i] < 1 ? value[i] : 1);
        else if (map == MLA_FEATURE_GIVEN)
            for (size_t i = 0; i < columns; i++) dx[i] += slope[i];
        else
            for (size_t i = 0; i < columns; i++) dx[i] += value[i] > 0 ? slope[i] : 0;
    }
}

#endif
