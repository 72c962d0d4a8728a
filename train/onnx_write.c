/* Packing the message straight into the file: small pieces are gathered, constants go from where they stand. */
#include <stdlib.h>
#include <string.h>

#include <onnx.pb-c.h>
#include "train/file.h"
#include "train/onnx_graph.h"

enum { GATHER_BYTES = 1 << 16 };

typedef struct sink {
    ProtobufCBuffer base;
    mla_atomic_file *file;
    mla_error *error;
    mla_status status; /* the first failure; nothing is written after it */
    size_t used;
    uint8_t gathered[GATHER_BYTES];
} sink;

static void flush(sink *s) {
    if (s->status == MLA_OK && s->used) s->status = mla_atomic_write(s->file, s->gathered, s->used, s->error);
    s->used = 0;
}

static void take(ProtobufCBuffer *base, size_t count, const uint8_t *data) {
    sink *s = (sink *)base;
    if (count > GATHER_BYTES - s->used) flush(s);
    if (count > GATHER_BYTES) {
        if (s->status == MLA_OK) s->status = mla_atomic_write(s->file, data, count, s->error);
        return;
    }
    if (count) memcpy(s->gathered + s->used, data, count);
    s->used += count;
}

static mla_status write_message(const char *path, const Onnx__ModelProto *model, mla_error *error) {
    const size_t bytes = protobuf_c_message_get_packed_size(&model->base);
    if (bytes > INT32_MAX)
        return mla_fail(error, MLA_INVALID,
                        "%s: an ONNX file holds at most 2 GiB and this model needs %.2f GiB; --to safetensors has no limit",
                        path, (double)bytes / (1 << 30));
    sink *s = malloc(sizeof *s);
    if (!s) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_atomic_file file;
    mla_status status = mla_atomic_open(&file, path, bytes, error);
    if (status == MLA_OK) {
        s->base.append = take;
        s->file = &file;
        s->error = error;
        s->status = MLA_OK;
        s->used = 0;
        protobuf_c_message_pack_to_buffer(&model->base, &s->base);
        flush(s);
        status = s->status == MLA_OK ? mla_atomic_commit(&file, error) : s->status;
    }
    free(s);
    return status;
}

mla_status mla_onnx_graph_write(const mla_onnx_graph *graph, const char *path, const mla_file_pair *metadata, size_t pairs,
                                mla_error *error) {
    const Onnx__GraphProto *message = mla_onnx_graph_message(graph);
    Onnx__StringStringEntryProto *entry = calloc(pairs + 1, sizeof *entry), **entries = calloc(pairs + 1, sizeof *entries);
    mla_status status = MLA_NO_MEMORY;
    if (message && entry && entries) {
        static char producer[] = "mirrorla", version[] = MLA_VERSION;
        Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets = &opset; /* no domain: ONNX's own */
        Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
        opset.has_version = 1;
        opset.version = MLA_ONNX_OPSET;
        model.has_ir_version = 1;
        model.ir_version = MLA_ONNX_IR_VERSION;
        model.n_opset_import = 1;
        model.opset_import = &opsets;
        model.producer_name = producer;
        model.producer_version = version;
        /* Packing writes to neither; the generated types have no const. */
        model.graph = (Onnx__GraphProto *)(uintptr_t)message;
        for (size_t i = 0; i < pairs; i++) {
            entry[i] = (Onnx__StringStringEntryProto)ONNX__STRING_STRING_ENTRY_PROTO__INIT;
            entry[i].key = (char *)(uintptr_t)metadata[i].key;
            entry[i].value = (char *)(uintptr_t)metadata[i].value;
            entries[i] = &entry[i];
        }
        model.n_metadata_props = pairs;
        model.metadata_props = entries;
        status = write_message(path, &model, error);
    } else {
        status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its graph", path);
    }
    free(entry);
    free(entries);
    return status;
}
