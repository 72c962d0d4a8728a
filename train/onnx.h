/* Export to ONNX: opset 17, IR version 8, one file that says all about itself.
 *
 * Input `image`, with a symbolic batch dimension: float32 (batch, 3, S, S), normalised by the caller with the mean and
 * deviation in the metadata, or, with `pixels`, uint8 RGB (batch, S, S, 3), normalised in the graph.  Output `logits`
 * (batch, classes) and, when asked for, `attention` (batch, N): how much each token of the last block's grid contributes
 * to the mean of its outputs (onnx_layers.h has the formula).
 *
 * metadata_props: what the safetensors export has (docs/formats.md) but `format`, and `preprocess`, "graph" or "metadata".
 *
 * Needs protobuf-c and the schema of libonnx-dev when it is built (meson option `onnx`); without them the function says
 * what is missing.
 */
#ifndef MLA_TRAIN_ONNX_H
#define MLA_TRAIN_ONNX_H

#include "layers/model.h"
#include "train/checkpoint.h"

typedef struct mla_onnx_options {
    bool pixels;    /* bytes in, normalised in the graph */
    bool attention; /* the second output */
    bool average;   /* which weights the model holds, for the metadata */
} mla_onnx_options;

/* Writes the model with the weights that it holds, atomically; `checkpoint` gives config, classes and results.
 * MLA_INVALID: more than 2 GiB, an attention kind without an ONNX form, or a build without ONNX. */
MLA_MUST_CHECK mla_status mla_export_onnx(const char *path, mla_model *model, const mla_checkpoint *checkpoint,
                                          const mla_onnx_options *options, mla_error *error);

#endif
