/* A whole model as an ONNX graph. */
#include "train/onnx.h"

#include <stdio.h>
#include <string.h>

#include "train/checkpoint_metadata.h"
#include "train/onnx_layers.h"

_Static_assert(sizeof(real) == sizeof(float), "weights are exported as float32 from the buffer in place");

typedef mla_onnx_value value;

/* uint8 (B, S, S, 3) -> (x / 255 - mean) / std, (B, 3, S, S) */
static value normalise(mla_onnx_graph *g, value pixels, const mla_class_info *classes) {
    float *mean = mla_onnx_alloc(g, 3 * sizeof *mean), *std = mla_onnx_alloc(g, 3 * sizeof *std);
    if (!mean || !std) return pixels;
    for (int i = 0; i < 3; i++) {
        mean[i] = (float)classes->mean[i];
        std[i] = (float)classes->std[i];
    }
    const int64_t shape[] = {3, 1, 1};
    value x = mla_onnx_transpose(g, mla_onnx_float(g, pixels), (int64_t[]){0, 3, 1, 2});
    x = mla_onnx_binary(g, "Div", x, mla_onnx_scalar(g, 255));
    x = mla_onnx_binary(g, "Sub", x, mla_onnx_weight(g, "preprocess.mean", 3, shape, mean));
    return mla_onnx_binary(g, "Div", x, mla_onnx_weight(g, "preprocess.std", 3, shape, std));
}

static value image_input(mla_onnx_graph *g, const mla_class_info *classes, bool pixels) {
    const int64_t side = classes->size;
    if (!pixels)
        return mla_onnx_input(g, "image", MLA_ONNX_FLOAT, 4, (int64_t[]){MLA_ONNX_BATCH, 3, side, side},
                              "RGB planes, (value / 255 - mean) / std with the mean and std of the metadata");
    mla_onnx_scope(g, "preprocess");
    return normalise(
        g,
        mla_onnx_input(g, "image", MLA_ONNX_UINT8, 4, (int64_t[]){MLA_ONNX_BATCH, side, side, 3}, "RGB bytes, row by row"),
        classes);
}

/* x Phi(x) = 0.5 x (1 + erf(x / sqrt 2)); the operator Gelu exists from opset 20 on. */
static value gelu(mla_onnx_graph *g, value x) {
    const value erf = mla_onnx_unary(g, "Erf", mla_onnx_binary(g, "Div", x, mla_onnx_scalar(g, 1.4142135623730951)));
    const value twice = mla_onnx_binary(g, "Mul", x, mla_onnx_binary(g, "Add", erf, mla_onnx_scalar(g, 1)));
    return mla_onnx_binary(g, "Mul", twice, mla_onnx_scalar(g, 0.5));
}

static value add_block(const mla_onnx_builder *b, const mla_block *block, value x, value *received) {
    value y = mla_onnx_attention(b, &block->attention, mla_onnx_norm(b, &block->norm1, x), received);
    x = mla_onnx_binary(b->graph, "Add", x, y);
    y = mla_onnx_linear(b, &block->fc1, mla_onnx_norm(b, &block->norm2, x));
    y = mla_onnx_linear(b, &block->fc2, gelu(b->graph, y));
    return mla_onnx_binary(b->graph, "Add", x, y);
}

/* `received` may be NULL, else it is that of the stage's last block. */
static value add_stage(const mla_onnx_builder *b, const mla_stage *stage, value x, value *received) {
    mla_onnx_scope_of(b, stage->embed.weight, 1);
    if (!stage->first) x = mla_onnx_to_image(b->graph, x, stage->side_in);
    x = mla_onnx_conv(b->graph, x, mla_onnx_param(b, stage->embed.weight), mla_onnx_param(b, stage->embed.bias),
                      (int64_t)stage->patch, 0, 1);
    x = mla_onnx_to_tokens(b->graph, x);
    if (stage->has_norm) x = mla_onnx_norm(b, &stage->norm, x);
    x = mla_onnx_binary(b->graph, "Add", x, mla_onnx_param(b, stage->position));
    for (int i = 0; i < stage->depth; i++) x = add_block(b, &stage->blocks[i], x, i + 1 == stage->depth ? received : NULL);
    return x;
}

static void add_model(const mla_onnx_builder *b, const mla_model *model, value x, bool attention) {
    const mla_model_parts parts = mla_model_get_parts(model);
    value received = {0};
    for (int i = 0; i < parts.stages; i++)
        x = add_stage(b, &parts.stage[i], x, attention && i + 1 == parts.stages ? &received : NULL);
    x = mla_onnx_mean(b->graph, x, 1, (int64_t[]){1}, false);
    x = mla_onnx_linear(b, &parts.head, mla_onnx_norm(b, &parts.norm, x));
    mla_onnx_output(b->graph, "logits", x, "one a class, in the order of the metadata's classes");
    if (attention)
        mla_onnx_output(b->graph, "attention", received,
                        "attention that each token of the last block's grid receives, row by row; sums to 1");
}

static mla_status write(const mla_onnx_builder *b, const char *path, const mla_checkpoint *checkpoint,
                        const mla_onnx_options *options, mla_error *error) {
    mla_metadata metadata = {0};
    const mla_export_options origin = {.dtype = MLA_F32, .average = options->average};
    mla_status status = mla_tape_status(b->tape, error);
    if (status == MLA_OK)
        status =
            mla_metadata_export(&metadata, path, checkpoint, &origin, mla_params_hash(b->params, b->params->value), error);
    if (status == MLA_OK) {
        mla_metadata_add(&metadata, "preprocess", strdup(options->pixels ? "graph" : "metadata"));
        status = mla_metadata_status(&metadata, path, error);
    }
    if (status == MLA_OK) status = mla_onnx_graph_write(b->graph, path, metadata.pair, metadata.count, error);
    mla_metadata_free(&metadata);
    return status;
}

mla_status mla_export_onnx(const char *path, mla_model *model, const mla_checkpoint *checkpoint,
                           const mla_onnx_options *options, mla_error *error) {
    const mla_model_spec *spec = mla_model_get_spec(model);
    for (int i = 0; i < spec->stages; i++)
        if (!mla_onnx_attention_known(spec->kinds[i]))
            return mla_fail(error, MLA_INVALID, "%s: attention kind %s cannot be exported to ONNX", path,
                            mla_attention_kind_name(spec->kinds[i]));
    const mla_params *params = mla_model_params(model);
    const mla_onnx_builder b = {mla_onnx_graph_new(mla_family_name(spec->family)), params, mla_tape_new()};
    mla_status status = MLA_NO_MEMORY;
    if (b.graph && b.tape) {
        mla_tape_begin(b.tape, params, params->value, NULL);
        add_model(&b, model, image_input(b.graph, &checkpoint->classes, options->pixels), options->attention);
        status = write(&b, path, checkpoint, options, error);
    } else {
        status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    }
    mla_onnx_graph_free(b.graph);
    mla_tape_free(b.tape);
    return status;
}
