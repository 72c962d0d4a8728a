/* Angles that follow variances: what pair_angle, plane_angle and mirror_attention share, and the variance over tokens that
 * scale_modulation takes too.  For one image, or one side of it, with M planes:
 *
 *   s_j: variance of plane j over the tokens,   l_j = log(s_j + 1e-6),   e_j = l_j - mean_j l_j
 *   t_j = T tanh(a_j e_j + c_j)
 *
 * Taking the deviation from the mean makes the angle independent of a common scale of q and k.  With one plane, or one
 * token, e = 0: harmless.
 */
#ifndef MLA_AUTOGRAD_OPS_MODULATION_H
#define MLA_AUTOGRAD_OPS_MODULATION_H

#include <stddef.h>

#include "core/real.h"

typedef struct mla_modulation {
    size_t planes;                        /* M */
    real *tangent, *deviation, *variance; /* (M) each: tanh, e, s; saved */
} mla_modulation;

/* Of 3 M reals. */
mla_modulation mla_modulation_at(size_t planes, real *saved);

/* From the variances, which are filled in: deviations and tangents.  a, c (M). */
void mla_modulation_measure(const mla_modulation *m, const real *a, const real *c);

/* dt (M): gradient of the angles on entry, of the variances on return; adds to da and dc (NULL: not wanted). */
void mla_modulation_gradient(const mla_modulation *m, real *dt, real *da, real *dc, const real *a, double angle_max);

/* mean (width) of the columns over the tokens, squares (width) = sum over tokens (x - mean)^2; rows of x `stride` apart;
 * part: (width) scratch.  Two passes: E[x^2] - mean^2 cancels in single precision. */
void mla_token_squares(size_t tokens, size_t width, real *mean, real *squares, const real *x, size_t stride, real *part);

#endif
