#include "train/onnx_layers.h"

#include <stdio.h>
#include <string.h>

mla_onnx_value mla_onnx_param(const mla_onnx_builder *builder, int index) {
    const mla_param *p = &builder->params->entry[index];
    int64_t shape[MLA_MAX_DIMS];
    for (int i = 0; i < p->ndim; i++) shape[i] = (int64_t)p->shape[i];
    return mla_onnx_weight(builder->graph, p->name, p->ndim, shape, builder->params->value + p->offset);
}

void mla_onnx_scope_of(const mla_onnx_builder *builder, int param, int parts) {
    char name[MLA_PARAM_NAME_BYTES];
    snprintf(name, sizeof name, "%s", builder->params->entry[param].name);
    for (char *dot; parts-- > 0 && (dot = strrchr(name, '.'));) *dot = 0;
    mla_onnx_scope(builder->graph, name);
}

/* The weight keeps PyTorch's shape and name in the file; runtimes transpose a constant once, when they load it. */
mla_onnx_value mla_onnx_project(mla_onnx_graph *graph, mla_onnx_value x, mla_onnx_value weight, mla_onnx_value bias) {
    const mla_onnx_value turned = mla_onnx_transpose(graph, weight, (int64_t[]){1, 0});
    const mla_onnx_value y = mla_onnx_matmul(graph, x, turned);
    return bias.name ? mla_onnx_binary(graph, "Add", y, bias) : y;
}

mla_onnx_value mla_onnx_linear(const mla_onnx_builder *builder, const mla_linear_layer *layer, mla_onnx_value x) {
    mla_onnx_scope_of(builder, layer->weight, 1);
    const mla_onnx_value none = {0};
    return mla_onnx_project(builder->graph, x, mla_onnx_param(builder, layer->weight),
                            layer->bias < 0 ? none : mla_onnx_param(builder, layer->bias));
}

mla_onnx_value mla_onnx_norm(const mla_onnx_builder *builder, const mla_norm_layer *layer, mla_onnx_value x) {
    mla_onnx_scope_of(builder, layer->weight, 1);
    return mla_onnx_layer_norm(builder->graph, x, mla_onnx_param(builder, layer->weight),
                               mla_onnx_param(builder, layer->bias), layer->eps);
}

mla_onnx_value mla_onnx_to_image(mla_onnx_graph *graph, mla_onnx_value tokens, size_t side) {
    const int64_t s = (int64_t)side, channels = tokens.shape[2];
    const mla_onnx_value x = mla_onnx_transpose(graph, tokens, (int64_t[]){0, 2, 1});
    return mla_onnx_reshape(graph, x, 4, (int64_t[]){MLA_ONNX_BATCH, channels, s, s});
}

mla_onnx_value mla_onnx_to_tokens(mla_onnx_graph *graph, mla_onnx_value image) {
    const int64_t channels = image.shape[1], tokens = image.shape[2] * image.shape[3];
    const mla_onnx_value x = mla_onnx_reshape(graph, image, 3, (int64_t[]){MLA_ONNX_BATCH, channels, tokens});
    return mla_onnx_transpose(graph, x, (int64_t[]){0, 2, 1});
}
