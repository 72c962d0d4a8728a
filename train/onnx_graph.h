/* Building an ONNX graph, one function a kind of node; private to the files train/onnx_*.c.
 *
 * Every function adds one node and returns its result with type and shape worked out here, so each value of the graph
 * gets its value_info.  The batch dimension is symbolic: MLA_ONNX_BATCH in a shape.  A shape that does not fit is a
 * mistake in the code and stops the program.  Running out of memory is remembered: later calls do nothing, and
 * mla_onnx_graph_write tells it.
 *
 *     mla_onnx_graph *graph = mla_onnx_graph_new("vit");
 *     mla_onnx_value x = mla_onnx_input(graph, "image", MLA_ONNX_FLOAT, 4, (int64_t[]){MLA_ONNX_BATCH, 3, 32, 32}, "RGB");
 *     mla_onnx_scope(graph, "head");                              // nodes are called head/Relu_0, head/...
 *     mla_onnx_output(graph, "logits", mla_onnx_unary(graph, "Relu", x), NULL);
 *     status = mla_onnx_graph_write(graph, path, pairs, count, &error);
 *     mla_onnx_graph_free(graph);
 *
 * Operators are those of opset 17: https://github.com/onnx/onnx, docs/Operators.md.
 */
#ifndef MLA_TRAIN_ONNX_GRAPH_H
#define MLA_TRAIN_ONNX_GRAPH_H

#include <stdint.h>

#include "train/safetensors.h"

enum { MLA_ONNX_IR_VERSION = 8, MLA_ONNX_OPSET = 17, MLA_ONNX_DIMS = 5, MLA_ONNX_BATCH = -1 };

/* TensorProto.DataType */
typedef enum mla_onnx_type { MLA_ONNX_FLOAT = 1, MLA_ONNX_UINT8 = 2, MLA_ONNX_INT64 = 7 } mla_onnx_type;

typedef struct mla_onnx_value {
    char *name; /* NULL: no value (an optional input that is absent, or out of memory) */
    mla_onnx_type type;
    int ndim;
    int64_t shape[MLA_ONNX_DIMS];
} mla_onnx_value;

typedef struct mla_onnx_graph mla_onnx_graph;

mla_onnx_graph *mla_onnx_graph_new(const char *name); /* NULL when out of memory */
void mla_onnx_graph_free(mla_onnx_graph *graph);      /* NULL is allowed */
/* Memory that lives as long as the graph; NULL when out of memory (which the graph remembers). */
void *mla_onnx_alloc(mla_onnx_graph *graph, size_t bytes);
/* What the names of the following nodes begin with; copied. */
void mla_onnx_scope(mla_onnx_graph *graph, const char *name);

/* An input of the model; `doc` for people. */
mla_onnx_value mla_onnx_input(mla_onnx_graph *graph, const char *name, mla_onnx_type type, int ndim, const int64_t *shape,
                              const char *doc);
/* Makes x an output of the model under `name`.  Nothing may use x yet, but for what is added later. */
void mla_onnx_output(mla_onnx_graph *graph, const char *name, mla_onnx_value x, const char *doc);

/* A float constant called `name`; the values stay the caller's and are read when the graph is written.  The same name
 * again is the same constant. */
mla_onnx_value mla_onnx_weight(mla_onnx_graph *graph, const char *name, int ndim, const int64_t *shape, const float *values);
mla_onnx_value mla_onnx_scalar(mla_onnx_graph *graph, double value);

/* Element by element: "Relu", "Erf", "Exp", "Log", "Tanh", "Sin", "Cos", "Sqrt", "Neg". */
mla_onnx_value mla_onnx_unary(mla_onnx_graph *graph, const char *op, mla_onnx_value x);
/* "Add", "Sub", "Mul", "Div", "Min", "Pow" with broadcasting. */
mla_onnx_value mla_onnx_binary(mla_onnx_graph *graph, const char *op, mla_onnx_value a, mla_onnx_value b);
mla_onnx_value mla_onnx_float(mla_onnx_graph *graph, mla_onnx_value x); /* Cast */
/* The last two dimensions are multiplied, those before are broadcast. */
mla_onnx_value mla_onnx_matmul(mla_onnx_graph *graph, mla_onnx_value a, mla_onnx_value b);
/* order: x.ndim entries, result dimension i is x's dimension order[i]. */
mla_onnx_value mla_onnx_transpose(mla_onnx_graph *graph, mla_onnx_value x, const int64_t *order);
/* A symbolic batch must stand first in both shapes. */
mla_onnx_value mla_onnx_reshape(mla_onnx_graph *graph, mla_onnx_value x, int ndim, const int64_t *shape);
/* Mean over `count` axes, ascending; `keep` leaves them as 1. */
mla_onnx_value mla_onnx_mean(mla_onnx_graph *graph, mla_onnx_value x, int count, const int64_t *axes, bool keep);
/* The largest over `count` axes, ascending, which stay as 1. */
mla_onnx_value mla_onnx_max(mla_onnx_graph *graph, mla_onnx_value x, int count, const int64_t *axes);
mla_onnx_value mla_onnx_softmax(mla_onnx_graph *graph, mla_onnx_value x); /* over the last dimension */
mla_onnx_value mla_onnx_layer_norm(mla_onnx_graph *graph, mla_onnx_value x, mla_onnx_value gamma, mla_onnx_value beta,
                                   double eps);
/* parts[i] gets sizes[i] entries of dimension `axis`. */
void mla_onnx_split(mla_onnx_graph *graph, mla_onnx_value *parts, int count, const int64_t *sizes, mla_onnx_value x,
                    int axis);
mla_onnx_value mla_onnx_concat(mla_onnx_graph *graph, mla_onnx_value a, mla_onnx_value b, int axis);
/* x (B, C, H, W), weight (C', C / groups, k, k), bias (C') -> (B, C', ...); zero padding on all sides. */
mla_onnx_value mla_onnx_conv(mla_onnx_graph *graph, mla_onnx_value x, mla_onnx_value weight, mla_onnx_value bias,
                             int64_t stride, int64_t padding, int64_t groups);

/* Writes the model atomically, constants straight from where they stand.  MLA_INVALID for more than the 2 GiB that a
 * protobuf message may have; on failure `path` is as it was. */
MLA_MUST_CHECK mla_status mla_onnx_graph_write(const mla_onnx_graph *graph, const char *path, const mla_file_pair *metadata,
                                               size_t pairs, mla_error *error);

/* ---- for onnx_write.c */
struct Onnx__GraphProto;
/* NULL when the graph ran out of memory. */
const struct Onnx__GraphProto *mla_onnx_graph_message(const mla_onnx_graph *graph);

#endif
