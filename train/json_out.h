/* JSON on the standard output. */
#ifndef MLA_TRAIN_JSON_OUT_H
#define MLA_TRAIN_JSON_OUT_H

#include <jansson.h>

#include "core/status.h"

/* A list of `ndim` sizes. */
json_t *mla_json_shape(int ndim, const size_t *shape);

/* Prints *json and gives it up; NULL, which jansson makes of running out of memory, is MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_json_put(json_t *json, mla_error *error);

#endif
