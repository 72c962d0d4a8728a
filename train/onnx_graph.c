#include "train/onnx_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include <onnx.pb-c.h>
#include "train/text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw_data of ONNX is little-endian");

enum { MAX_INPUTS = 3, MAX_ATTRIBUTES = 4, NAME_BYTES = 192 };

struct mla_onnx_graph {
    mla_arena arena;
    Onnx__GraphProto message;
    char scope[NAME_BYTES];
    bool out_of_memory;
};

mla_onnx_graph *mla_onnx_graph_new(const char *name) {
    mla_onnx_graph *graph = calloc(1, sizeof *graph);
    if (!graph) return NULL;
    graph->message = (Onnx__GraphProto)ONNX__GRAPH_PROTO__INIT;
    graph->message.name = strdup(name);
    graph->out_of_memory = !graph->message.name;
    return graph;
}

void mla_onnx_graph_free(mla_onnx_graph *graph) {
    if (!graph) return;
    free(graph->message.name);
    free(graph->message.node);
    free(graph->message.initializer);
    free(graph->message.input);
    free(graph->message.output);
    free(graph->message.value_info);
    mla_arena_free(&graph->arena);
    free(graph);
}

const Onnx__GraphProto *mla_onnx_graph_message(const mla_onnx_graph *graph) {
    return graph->out_of_memory ? NULL : &graph->message;
}

void mla_onnx_scope(mla_onnx_graph *graph, const char *name) { snprintf(graph->scope, sizeof graph->scope, "%s", name); }

void *mla_onnx_alloc(mla_onnx_graph *graph, size_t bytes) {
    void *memory = graph->out_of_memory ? NULL : mla_arena_alloc(&graph->arena, bytes ? bytes : 1);
    if (!memory) graph->out_of_memory = true;
    return memory;
}

static void *copy(mla_onnx_graph *graph, const void *data, size_t bytes) {
    void *memory = mla_onnx_alloc(graph, bytes);
    if (memory && bytes) memcpy(memory, data, bytes); /* `data` may be NULL when there is nothing to copy */
    return memory;
}

static char *copy_text(mla_onnx_graph *graph, const char *text) { return copy(graph, text, strlen(text) + 1); }

/* A message of its INIT value in the graph's memory. */
#define NEW(graph, type, INIT) ((type *)copy(graph, &(type)INIT, sizeof(type)))

/* Appends to one of the message's lists of pointers; their room doubles at powers of two. */
static void append(mla_onnx_graph *graph, void *list_of, size_t *count, void *item) {
    void *list;
    memcpy(&list, list_of, sizeof list);
    if (graph->out_of_memory) return;
    if ((*count & (*count - 1)) == 0) {
        list = realloc(list, (*count ? 2 * *count : 1) * sizeof item);
        if (!list) {
            graph->out_of_memory = true;
            return;
        }
        memcpy(list_of, &list, sizeof list);
    }
    memcpy((char *)list + (*count)++ * sizeof item, &item, sizeof item);
}

/* ---- values */

static Onnx__TensorShapeProto__Dimension *dimension(mla_onnx_graph *graph, int64_t size) {
    Onnx__TensorShapeProto__Dimension *d =
        NEW(graph, Onnx__TensorShapeProto__Dimension, ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);
    if (!d) return NULL;
    if (size == MLA_ONNX_BATCH) {
        static char batch[] = "batch";
        d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        d->dim_param = batch;
    } else {
        d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        d->dim_value = size;
    }
    return d;
}

static Onnx__ValueInfoProto *describe(mla_onnx_graph *graph, const mla_onnx_value *x, const char *doc) {
    Onnx__ValueInfoProto *info = NEW(graph, Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
    Onnx__TypeProto *type = NEW(graph, Onnx__TypeProto, ONNX__TYPE_PROTO__INIT);
    Onnx__TypeProto__Tensor *tensor = NEW(graph, Onnx__TypeProto__Tensor, ONNX__TYPE_PROTO__TENSOR__INIT);
    Onnx__TensorShapeProto *shape = NEW(graph, Onnx__TensorShapeProto, ONNX__TENSOR_SHAPE_PROTO__INIT);
    Onnx__TensorShapeProto__Dimension **dims = mla_onnx_alloc(graph, (size_t)x->ndim * sizeof *dims);
    if (!dims) return NULL;
    for (int i = 0; i < x->ndim; i++) dims[i] = dimension(graph, x->shape[i]);
    shape->dim = dims;
    shape->n_dim = (size_t)x->ndim;
    tensor->shape = shape;
    tensor->has_elem_type = 1;
    tensor->elem_type = x->type;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    info->name = x->name;
    info->type = type;
    if (doc) info->doc_string = copy_text(graph, doc);
    return info;
}

static mla_onnx_value make(mla_onnx_graph *graph, const char *name, mla_onnx_type type, int ndim, const int64_t *shape) {
    MLA_REQUIRE(ndim <= MLA_ONNX_DIMS, "ONNX value %s has %d dimensions", name, ndim);
    mla_onnx_value x = {.name = copy_text(graph, name), .type = type, .ndim = ndim};
    for (int i = 0; i < ndim; i++) x.shape[i] = shape[i];
    return x;
}

mla_onnx_value mla_onnx_input(mla_onnx_graph *graph, const char *name, mla_onnx_type type, int ndim, const int64_t *shape,
                              const char *doc) {
    const mla_onnx_value x = make(graph, name, type, ndim, shape);
    append(graph, &graph->message.input, &graph->message.n_input, describe(graph, &x, doc));
    return x;
}

void mla_onnx_output(mla_onnx_graph *graph, const char *name, mla_onnx_value x, const char *doc) {
    Onnx__GraphProto *m = &graph->message;
    char *old = x.name;
    x.name = copy_text(graph, name);
    append(graph, &m->output, &m->n_output, describe(graph, &x, doc));
    if (graph->out_of_memory) return;
    for (size_t i = 0; i < m->n_node; i++)
        for (size_t j = 0; j < m->node[i]->n_output; j++)
            if (m->node[i]->output[j] == old) m->node[i]->output[j] = x.name;
    size_t kept = 0;
    for (size_t i = 0; i < m->n_value_info; i++)
        if (m->value_info[i]->name != old) m->value_info[kept++] = m->value_info[i];
    MLA_REQUIRE(kept + 1 == m->n_value_info, "ONNX output %s is no node's result", name);
    m->n_value_info = kept;
}

static mla_onnx_value constant(mla_onnx_graph *graph, const char *name, mla_onnx_type type, int ndim, const int64_t *shape,
                               const void *data, size_t bytes) {
    Onnx__GraphProto *m = &graph->message;
    mla_onnx_value x = make(graph, name, type, ndim, shape);
    if (!x.name) return x;
    for (size_t i = 0; i < m->n_initializer; i++)
        if (strcmp(m->initializer[i]->name, name) == 0) return x;
    Onnx__TensorProto *tensor = NEW(graph, Onnx__TensorProto, ONNX__TENSOR_PROTO__INIT);
    int64_t *dims = copy(graph, shape, (size_t)ndim * sizeof *dims);
    if (!dims) return x;
    tensor->name = x.name;
    tensor->n_dims = (size_t)ndim;
    tensor->dims = dims;
    tensor->has_data_type = 1;
    tensor->data_type = type;
    tensor->has_raw_data = 1;
    /* Packing reads the data and never writes it; the generated type has no const. */
    tensor->raw_data = (ProtobufCBinaryData){bytes, (uint8_t *)(uintptr_t)data};
    append(graph, &m->initializer, &m->n_initializer, tensor);
    return x;
}

mla_onnx_value mla_onnx_weight(mla_onnx_graph *graph, const char *name, int ndim, const int64_t *shape,
                               const float *values) {
    size_t count = 1;
    for (int i = 0; i < ndim; i++) count *= (size_t)shape[i];
    return constant(graph, name, MLA_ONNX_FLOAT, ndim, shape, values, count * sizeof *values);
}

/* Scalars and lists are named by what they hold, so equal ones are one constant. */
mla_onnx_value mla_onnx_scalar(mla_onnx_graph *graph, double value) {
    char name[MLA_NUMBER_BYTES];
    const float narrow = (float)value;
    mla_number_text(name, value);
    return constant(graph, name, MLA_ONNX_FLOAT, 0, NULL, copy(graph, &narrow, sizeof narrow), sizeof narrow);
}

static mla_onnx_value integers(mla_onnx_graph *graph, int count, const int64_t *values) {
    char name[NAME_BYTES] = "[";
    size_t length = 1;
    for (int i = 0; i < count; i++)
        length +=
            (size_t)snprintf(name + length, sizeof name - length, "%lld%s", (long long)values[i], i + 1 < count ? "," : "]");
    MLA_REQUIRE(length < sizeof name, "a list of %d integers is too long for its name", count);
    const size_t bytes = (size_t)count * sizeof *values;
    return constant(graph, name, MLA_ONNX_INT64, 1, (int64_t[]){count}, copy(graph, values, bytes), bytes);
}

/* ---- nodes */

typedef struct node {
    const char *op;
    const mla_onnx_value *input[MAX_INPUTS]; /* up to the first NULL */
    Onnx__AttributeProto *attribute[MAX_ATTRIBUTES];
} node;

static Onnx__AttributeProto *attribute(mla_onnx_graph *graph, const char *name, Onnx__AttributeProto__AttributeType type) {
    Onnx__AttributeProto *a = NEW(graph, Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);
    char *copied = copy_text(graph, name);
    if (!copied) return NULL;
    a->name = copied;
    a->has_type = 1;
    a->type = type;
    return a;
}

static Onnx__AttributeProto *integer(mla_onnx_graph *graph, const char *name, int64_t value) {
    Onnx__AttributeProto *a = attribute(graph, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    if (!a) return NULL;
    a->has_i = 1;
    a->i = value;
    return a;
}

static Onnx__AttributeProto *integer_list(mla_onnx_graph *graph, const char *name, int count, const int64_t *values) {
    Onnx__AttributeProto *a = attribute(graph, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    int64_t *copied = copy(graph, values, (size_t)count * sizeof *values);
    if (!copied) return NULL;
    a->n_ints = (size_t)count;
    a->ints = copied;
    return a;
}

static Onnx__AttributeProto *number(mla_onnx_graph *graph, const char *name, double value) {
    Onnx__AttributeProto *a = attribute(graph, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    if (!a) return NULL;
    a->has_f = 1;
    a->f = (float)value;
    return a;
}

/* Adds a node with `count` results, whose type and shape the caller has set and which get their names here. */
static void add(mla_onnx_graph *graph, const node *spec, mla_onnx_value *result, int count) {
    Onnx__GraphProto *m = &graph->message;
    char name[2 * NAME_BYTES];
    int inputs = 0, attributes = 0;
    while (inputs < MAX_INPUTS && spec->input[inputs]) inputs++;
    while (attributes < MAX_ATTRIBUTES && spec->attribute[attributes]) attributes++;
    const size_t length =
        (size_t)snprintf(name, sizeof name, "%s%s%s_%zu", graph->scope, *graph->scope ? "/" : "", spec->op, m->n_node);
    Onnx__NodeProto *proto = NEW(graph, Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
    char *node_name = copy_text(graph, name), *op = copy_text(graph, spec->op);
    char **in = mla_onnx_alloc(graph, (size_t)inputs * sizeof *in),
         **out = mla_onnx_alloc(graph, (size_t)count * sizeof *out);
    Onnx__AttributeProto **attribute_list = copy(graph, spec->attribute, (size_t)attributes * sizeof *attribute_list);
    for (int i = 0; i < count; i++) {
        if (count > 1) snprintf(name + length, sizeof name - length, ".%d", i);
        result[i].name = copy_text(graph, name);
        append(graph, &m->value_info, &m->n_value_info, describe(graph, &result[i], NULL));
    }
    if (graph->out_of_memory) return;
    for (int i = 0; i < inputs; i++) in[i] = spec->input[i]->name;
    for (int i = 0; i < count; i++) out[i] = result[i].name;
    proto->name = node_name;
    proto->op_type = op;
    proto->n_input = (size_t)inputs;
    proto->input = in;
    proto->n_output = (size_t)count;
    proto->output = out;
    proto->n_attribute = (size_t)attributes;
    proto->attribute = attribute_list;
    append(graph, &m->node, &m->n_node, proto);
}

static mla_onnx_value add_one(mla_onnx_graph *graph, const node *spec, mla_onnx_value result) {
    add(graph, spec, &result, 1);
    return result;
}

/* ---- operators */

mla_onnx_value mla_onnx_unary(mla_onnx_graph *graph, const char *op, mla_onnx_value x) {
    return add_one(graph, &(node){op, {&x}, {0}}, x);
}

mla_onnx_value mla_onnx_float(mla_onnx_graph *graph, mla_onnx_value x) {
    mla_onnx_value y = x;
    y.type = MLA_ONNX_FLOAT;
    return add_one(graph, &(node){"Cast", {&x}, {integer(graph, "to", MLA_ONNX_FLOAT)}}, y);
}

/* Aligns the shapes at their last dimension but `skip`; the longer one's rank, the larger of each two sizes. */
static mla_onnx_value broadcast(const char *op, const mla_onnx_value *a, const mla_onnx_value *b, int skip) {
    mla_onnx_value y = a->ndim >= b->ndim ? *a : *b;
    for (int i = skip + 1; i <= a->ndim && i <= b->ndim; i++) {
        const int64_t m = a->shape[a->ndim - i], n = b->shape[b->ndim - i];
        MLA_REQUIRE(m == n || m == 1 || n == 1, "ONNX %s: sizes %lld and %lld in dimension -%d", op, (long long)m,
                    (long long)n, i);
        y.shape[y.ndim - i] = m == 1 ? n : m;
    }
    return y;
}

mla_onnx_value mla_onnx_binary(mla_onnx_graph *graph, const char *op, mla_onnx_value a, mla_onnx_value b) {
    return add_one(graph, &(node){op, {&a, &b}, {0}}, broadcast(op, &a, &b, 0));
}

mla_onnx_value mla_onnx_matmul(mla_onnx_graph *graph, mla_onnx_value a, mla_onnx_value b) {
    MLA_REQUIRE(a.ndim >= 2 && b.ndim >= 2 && a.shape[a.ndim - 1] == b.shape[b.ndim - 2],
                "ONNX MatMul: %lld columns, %lld rows", (long long)a.shape[a.ndim - 1], (long long)b.shape[b.ndim - 2]);
    mla_onnx_value y = broadcast("MatMul", &a, &b, 2);
    y.shape[y.ndim - 2] = a.shape[a.ndim - 2];
    y.shape[y.ndim - 1] = b.shape[b.ndim - 1];
    return add_one(graph, &(node){"MatMul", {&a, &b}, {0}}, y);
}

mla_onnx_value mla_onnx_transpose(mla_onnx_graph *graph, mla_onnx_value x, const int64_t *order) {
    mla_onnx_value y = x;
    for (int i = 0; i < x.ndim; i++) y.shape[i] = x.shape[order[i]];
    return add_one(graph, &(node){"Transpose", {&x}, {integer_list(graph, "perm", x.ndim, order)}}, y);
}

mla_onnx_value mla_onnx_reshape(mla_onnx_graph *graph, mla_onnx_value x, int ndim, const int64_t *shape) {
    int64_t target[MLA_ONNX_DIMS], before = 1, after = 1;
    MLA_REQUIRE(ndim <= MLA_ONNX_DIMS, "ONNX Reshape to %d dimensions", ndim);
    for (int i = 0; i < x.ndim; i++) before *= x.shape[i];
    for (int i = 0; i < ndim; i++) after *= shape[i];
    MLA_REQUIRE(before == after && (before > 0 || (x.shape[0] == MLA_ONNX_BATCH && shape[0] == MLA_ONNX_BATCH)),
                "ONNX Reshape: %lld values to %lld", (long long)before, (long long)after);
    /* 0 copies the size from x: the batch stays symbolic. */
    for (int i = 0; i < ndim; i++) target[i] = shape[i] == MLA_ONNX_BATCH ? 0 : shape[i];
    mla_onnx_value y = {.type = x.type, .ndim = ndim}, to = integers(graph, ndim, target);
    memcpy(y.shape, shape, (size_t)ndim * sizeof *shape);
    return add_one(graph, &(node){"Reshape", {&x, &to}, {0}}, y);
}

static mla_onnx_value reduce(mla_onnx_graph *graph, const char *op, mla_onnx_value x, int count, const int64_t *axes,
                             bool keep) {
    mla_onnx_value y = {.type = x.type};
    for (int i = 0, next = 0; i < x.ndim; i++) {
        const bool reduced = next < count && axes[next] == i;
        if (reduced) next++;
        if (!reduced || keep) y.shape[y.ndim++] = reduced ? 1 : x.shape[i];
    }
    return add_one(graph, &(node){op, {&x}, {integer_list(graph, "axes", count, axes), integer(graph, "keepdims", keep)}},
                   y);
}

mla_onnx_value mla_onnx_mean(mla_onnx_graph *graph, mla_onnx_value x, int count, const int64_t *axes, bool keep) {
    return reduce(graph, "ReduceMean", x, count, axes, keep);
}

mla_onnx_value mla_onnx_max(mla_onnx_graph *graph, mla_onnx_value x, int count, const int64_t *axes) {
    return reduce(graph, "ReduceMax", x, count, axes, true);
}

mla_onnx_value mla_onnx_softmax(mla_onnx_graph *graph, mla_onnx_value x) {
    return add_one(graph, &(node){"Softmax", {&x}, {integer(graph, "axis", -1)}}, x);
}

mla_onnx_value mla_onnx_layer_norm(mla_onnx_graph *graph, mla_onnx_value x, mla_onnx_value gamma, mla_onnx_value beta,
                                   double eps) {
    return add_one(
        graph,
        &(node){"LayerNormalization", {&x, &gamma, &beta}, {integer(graph, "axis", -1), number(graph, "epsilon", eps)}}, x);
}

void mla_onnx_split(mla_onnx_graph *graph, mla_onnx_value *parts, int count, const int64_t *sizes, mla_onnx_value x,
                    int axis) {
    const mla_onnx_value lengths = integers(graph, count, sizes);
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        parts[i] = x;
        parts[i].shape[axis] = sizes[i];
        sum += sizes[i];
    }
    MLA_REQUIRE(sum == x.shape[axis], "ONNX Split: parts of %lld in all, not %lld", (long long)sum,
                (long long)x.shape[axis]);
    add(graph, &(node){"Split", {&x, &lengths}, {integer(graph, "axis", axis)}}, parts, count);
}

mla_onnx_value mla_onnx_concat(mla_onnx_graph *graph, mla_onnx_value a, mla_onnx_value b, int axis) {
    mla_onnx_value y = a;
    y.shape[axis] += b.shape[axis];
    return add_one(graph, &(node){"Concat", {&a, &b}, {integer(graph, "axis", axis)}}, y);
}

mla_onnx_value mla_onnx_conv(mla_onnx_graph *graph, mla_onnx_value x, mla_onnx_value weight, mla_onnx_value bias,
                             int64_t stride, int64_t padding, int64_t groups) {
    MLA_REQUIRE(x.ndim == 4 && weight.ndim == 4 && x.shape[1] == weight.shape[1] * groups, "ONNX Conv: %lld channels",
                (long long)x.shape[1]);
    mla_onnx_value y = x;
    y.shape[1] = weight.shape[0];
    for (int i = 2; i < 4; i++) y.shape[i] = (x.shape[i] + 2 * padding - weight.shape[i]) / stride + 1;
    return add_one(graph,
                   &(node){"Conv",
                           {&x, &weight, &bias},
                           {integer_list(graph, "strides", 2, (int64_t[]){stride, stride}),
                            integer_list(graph, "pads", 4, (int64_t[]){padding, padding, padding, padding}),
                            integer_list(graph, "kernel_shape", 2, weight.shape + 2), integer(graph, "group", groups)}},
                   y);
}
