/* Householder reflections, shared by block_reflect and cross_reflect.
 *
 *   H(v) = I - 2 u u^T with u = v / |v|: symmetric, orthogonal, its own inverse, the same for every scale of v.
 *
 * The length is taken in double, so that every vector a float can hold, from 1e-30 to 1e20, gives an orthogonal H.
 * Shorter vectors are taken as zero: H is the identity then, with zero gradient.  Because H does not depend on |v|,
 * dv = du_total / |v|, where du_total is the gradient orthogonal to u that the two operations compute.
 */
#ifndef MLA_AUTOGRAD_OPS_REFLECTION_H
#define MLA_AUTOGRAD_OPS_REFLECTION_H

#include <stddef.h>

#include "core/real.h"

/* unit (n) = v / |v|, or zeros; returns 1 / |v|, or 0. */
real mla_reflection_unit(real *unit, const real *v, size_t n);

#endif
