#include "autograd/ops/reflection.h"

#include <math.h>

static const double SHORTEST = 1e-30;

real mla_reflection_unit(real *unit, const real *v, size_t n) {
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)v[i] * (double)v[i];
    /* A little room: the float nearest to 1e-30 may lie just below it. */
    const double inverse = squares > 0.99 * SHORTEST * SHORTEST ? 1 / sqrt(squares) : 0;
    for (size_t i = 0; i < n; i++) unit[i] = (real)((double)v[i] * inverse);
    return (real)inverse;
}
