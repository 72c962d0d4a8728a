#include "core/tensor.h"

#include <stdio.h>

mla_tensor mla_tensor_make(real *data, int ndim, const size_t *shape) {
    mla_tensor t = {.data = data, .ndim = ndim};
    for (int i = 0; i < ndim; i++) t.shape[i] = shape[i];
    t.stride = shape[ndim - 1];
    return t;
}

bool mla_tensor_contiguous(const mla_tensor *t) { return t->stride == mla_tensor_columns(t) || mla_tensor_rows(t) == 1; }

bool mla_tensor_same_shape(const mla_tensor *a, const mla_tensor *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

const char *mla_shape_text(const mla_tensor *t) {
    static _Thread_local char text[4][96];
    static _Thread_local unsigned turn;
    char *out = text[turn++ % 4];
    int n = snprintf(out, sizeof text[0], "(");
    for (int i = 0; i < t->ndim; i++) n += snprintf(out + n, sizeof text[0] - (size_t)n, i ? ", %zu" : "%zu", t->shape[i]);
    snprintf(out + n, sizeof text[0] - (size_t)n, ")");
    return out;
}
