/* Layers as ONNX nodes; private to the files train/onnx_*.c.  Shapes as in layers/layers.h. */
#ifndef MLA_TRAIN_ONNX_LAYERS_H
#define MLA_TRAIN_ONNX_LAYERS_H

#include "layers/layers.h"
#include "train/onnx_graph.h"

typedef struct mla_onnx_builder {
    mla_onnx_graph *graph;
    const mla_params *params; /* their values are the weights to be written */
    mla_tape *tape;           /* begun on them: for weights that are worked out first; it keeps those until the end */
} mla_onnx_builder;

/* Parameter `index` under its own name and in its own shape. */
mla_onnx_value mla_onnx_param(const mla_onnx_builder *builder, int index);
/* Names the following nodes by a parameter without the last `parts` of its name: blocks.0.attn for
 * blocks.0.attn.qkv.weight and 2. */
void mla_onnx_scope_of(const mla_onnx_builder *builder, int param, int parts);

/* x (B, ..., in), weight (out, in), bias (out) or absent -> (B, ..., out) */
mla_onnx_value mla_onnx_project(mla_onnx_graph *graph, mla_onnx_value x, mla_onnx_value weight, mla_onnx_value bias);
mla_onnx_value mla_onnx_linear(const mla_onnx_builder *builder, const mla_linear_layer *layer, mla_onnx_value x);
mla_onnx_value mla_onnx_norm(const mla_onnx_builder *builder, const mla_norm_layer *layer, mla_onnx_value x);
/* (B, N, C) on a grid <-> (B, C, side, side) */
mla_onnx_value mla_onnx_to_image(mla_onnx_graph *graph, mla_onnx_value tokens, size_t side);
mla_onnx_value mla_onnx_to_tokens(mla_onnx_graph *graph, mla_onnx_value image);

/* Feature maps (onnx_features.c): qk (B, N, 2C) -> features of q and of k, (B, N, h D) each. */
void mla_onnx_performer(const mla_onnx_builder *builder, const mla_attention *layer, mla_onnx_value qk,
                        mla_onnx_value features[2]);
void mla_onnx_cosformer(const mla_onnx_builder *builder, const mla_attention *layer, mla_onnx_value qk,
                        mla_onnx_value features[2]);
void mla_onnx_focused(const mla_onnx_builder *builder, const mla_attention *layer, mla_onnx_value qk,
                      mla_onnx_value features[2]);
void mla_onnx_pola(const mla_onnx_builder *builder, const mla_attention *layer, mla_onnx_value qk,
                   mla_onnx_value features[2]);
/* (onnx_mirror.c) */
void mla_onnx_mirror(const mla_onnx_builder *builder, const mla_attention *layer, mla_onnx_value qk,
                     mla_onnx_value features[2]);

/* Has this kind an ONNX form? */
bool mla_onnx_attention_known(mla_attention_kind kind);
/* x (B, N, C) -> (B, N, C).  `received` (may be NULL) gets the attention that every token receives (docs/math.md), its
 * mean over the heads, (B, N). */
mla_onnx_value mla_onnx_attention(const mla_onnx_builder *builder, const mla_attention *layer, mla_onnx_value x,
                                  mla_onnx_value *received);

#endif
