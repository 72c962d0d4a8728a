/* The linear and norm layers. */
#include <math.h>
#include <stdio.h>

#include "layers/layers.h"

static int declare(mla_params *params, const char *prefix, const char *name, int ndim, const size_t *shape, mla_init init,
                   bool decay) {
    char full[MLA_PARAM_NAME_BYTES];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    return mla_params_add(params, full, ndim, shape, init, decay);
}

mla_linear_layer mla_linear_declare(mla_params *params, const char *prefix, size_t in, size_t out, bool bias, double scale) {
    if (scale <= 0) scale = 1 / sqrt((double)in);
    mla_linear_layer layer = {.bias = -1};
    layer.weight = declare(params, prefix, "weight", 2, (size_t[]){out, in}, (mla_init){MLA_INIT_NORMAL, scale}, true);
    mla_params_mark_matrix(params, layer.weight);
    if (bias) layer.bias = declare(params, prefix, "bias", 1, &out, (mla_init){MLA_INIT_CONSTANT, 0}, false);
    return layer;
}

mla_var mla_linear_forward(const mla_linear_layer *layer, mla_tape *tape, mla_var x, mla_var residual,
                           mla_activation activation) {
    const mla_var bias = layer->bias < 0 ? MLA_NO_VAR : mla_tape_param(tape, layer->bias);
    return mla_linear(tape, x, mla_tape_param(tape, layer->weight), bias, residual, activation);
}

mla_norm_layer mla_norm_declare(mla_params *params, const char *prefix, size_t channels, double eps) {
    mla_norm_layer layer = {.eps = eps};
    layer.weight = declare(params, prefix, "weight", 1, &channels, (mla_init){MLA_INIT_CONSTANT, 1}, false);
    layer.bias = declare(params, prefix, "bias", 1, &channels, (mla_init){MLA_INIT_CONSTANT, 0}, false);
    return layer;
}

mla_var mla_norm_forward(const mla_norm_layer *layer, mla_tape *tape, mla_var x) {
    return mla_layer_norm(tape, x, mla_tape_param(tape, layer->weight), mla_tape_param(tape, layer->bias), layer->eps);
}
