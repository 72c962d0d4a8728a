/* A tensor is a view: where its values stand, its shape, and how far apart its rows are.
 *
 * The last dimension is contiguous; all other dimensions together form rows, `stride` reals apart.  So a column
 * range of (B, N, 3C), such as the values of q or of one head, is a tensor without a copy, and what BLAS calls the
 * leading dimension is `stride`.
 */
#ifndef MLA_CORE_TENSOR_H
#define MLA_CORE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

#include "core/params.h"
#include "core/real.h"

typedef struct mla_tensor {
    real *data; /* NULL: no tensor (an optional input that is absent) */
    int ndim;   /* 1 .. MLA_MAX_DIMS */
    size_t shape[MLA_MAX_DIMS];
    size_t stride; /* reals from one row to the next; >= shape[ndim - 1] */
} mla_tensor;

/* A contiguous tensor over `data`. */
mla_tensor mla_tensor_make(real *data, int ndim, const size_t *shape);

/* Inline, because they stand in the conditions of loops over elements. */
static inline size_t mla_tensor_columns(const mla_tensor *t) { return t->shape[t->ndim - 1]; } /* the last dimension */
static inline size_t mla_tensor_rows(const mla_tensor *t) {                                    /* all others */
    size_t rows = 1;
    for (int i = 0; i + 1 < t->ndim; i++) rows *= t->shape[i];
    return rows;
}
static inline size_t mla_tensor_count(const mla_tensor *t) {
    return mla_tensor_rows(t) * mla_tensor_columns(t);
} /* all elements */
bool mla_tensor_contiguous(const mla_tensor *t);
bool mla_tensor_same_shape(const mla_tensor *a, const mla_tensor *b);

/* "(8, 64, 192)" in a static buffer of the calling thread; four may be in use at once. */
const char *mla_shape_text(const mla_tensor *t);

#endif
