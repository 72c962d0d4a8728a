#include "train/json_out.h"

#include <stdio.h>

json_t *mla_json_shape(int ndim, const size_t *shape) {
    json_t *list = json_array();
    for (int i = 0; i < ndim; i++) json_array_append_new(list, json_integer((json_int_t)shape[i]));
    return list;
}

mla_status mla_json_put(json_t *json, mla_error *error) {
    if (!json) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the results");
    const bool printed = !json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) && putchar('\n') != EOF;
    json_decref(json);
    return printed ? MLA_OK : mla_fail(error, MLA_IO, "the results could not be written to the standard output");
}
