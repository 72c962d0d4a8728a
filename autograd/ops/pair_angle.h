/* The variance-aware angle of one image: what the operations pair_angle and mirror_attention share (formulas in
 * pair_angle.c). */
#ifndef MLA_AUTOGRAD_OPS_PAIR_ANGLE_H
#define MLA_AUTOGRAD_OPS_PAIR_ANGLE_H

#include "autograd/ops/modulation.h"

/* What turns by the same angles: q and k of one image side by side (parts = 2), or one of them (parts = 1).  Rows of
 * parts * C reals, `stride` apart; pairs = C / 2. */
typedef struct mla_angle_image {
    size_t tokens, pairs, parts, stride;
    const real *x;
    /* Saved; (parts * C), (C), (C).  A row turns by y = x same + swap(x) other, where swap exchanges the channels of each
     * pair: same = (cos, cos), other = (-sin, sin). */
    real *mu, *same, *other;
    mla_modulation modulation; /* saved too */
} mla_angle_image;

size_t mla_angle_saved(size_t channels, size_t parts); /* reals of the saved values */
mla_angle_image mla_angle_image_at(size_t tokens, size_t channels, size_t parts, const real *x, size_t stride, real *saved);

/* Fills in all saved values from x, the gains a and offsets c (C / 2 each); scratch: (2 parts C). */
void mla_angle_measure(const mla_angle_image *m, const real *a, const real *c, double angle_max, real *scratch);

/* Turns one row of C reals by the angles, or back; y may be x. */
void mla_angle_turn(const mla_angle_image *m, real *y, const real *x);
void mla_angle_turn_back(const mla_angle_image *m, real *y, const real *x);

/* dx += the variance's part for one row of C reals with its means, ds (x - mu) / (parts N); ds (C / 2). */
void mla_angle_add_variance_part(const mla_angle_image *m, real *dx, const real *x, const real *mu, const real *ds);

#endif
