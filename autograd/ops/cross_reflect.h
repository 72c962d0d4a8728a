/* The product of reflections in compact form: what the operations cross_reflect and mirror_attention share (formulas in
 * cross_reflect.c). */
#ifndef MLA_AUTOGRAD_OPS_CROSS_REFLECT_H
#define MLA_AUTOGRAD_OPS_CROSS_REFLECT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/real.h"

enum { MLA_MAX_REFLECTIONS = 64 };

typedef struct mla_cross {
    size_t r, channels;
    real *unit, *t, *inverse; /* (r, C), (r, r), (r): unit vectors, the factor T, 1 / length; saved */
} mla_cross;

size_t mla_cross_saved(size_t r, size_t channels);
mla_cross mla_cross_at(size_t r, size_t channels, real *saved);
void mla_cross_prepare(const mla_cross *c, const real *v); /* fills in the saved values; v (r, C) */

/* out (r) = s T, or s T^T. */
void mla_cross_times_factor(const mla_cross *c, real *out, const real *s, bool transpose);

/* dv += the vectors' gradient, from sums over all rows: du (r, C) = -(s T)^T dy, used up; kx (r, C) = k^T x; sk (r, r) =
 * s^T k. */
void mla_cross_gradient(const mla_cross *c, real *dv, real *du, const real *kx, const real *sk);

#endif
