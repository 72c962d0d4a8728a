/* The export to ONNX in a build without protobuf-c or the schema. */
#include "train/onnx.h"

mla_status mla_export_onnx(const char *path, mla_model *model, const mla_checkpoint *checkpoint,
                           const mla_onnx_options *options, mla_error *error) {
    (void)model, (void)checkpoint, (void)options;
    return mla_fail(
        error, MLA_INVALID,
        "%s: this mirrorla was built without ONNX: install protobuf-c-compiler, libprotobuf-c-dev and libonnx-dev "
        "and build anew in a fresh folder",
        path);
}
