#include "autograd/tape.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/profile.h"
#include "core/arena.h"
#include "core/vmath.h"

#define MLA_OP(ID, name) extern const mla_op mla_op_##name;
#include "autograd/ops.def"
#undef MLA_OP

static const mla_op *const op_table[MLA_OP_COUNT] = {
#define MLA_OP(ID, name) &mla_op_##name,
#include "autograd/ops.def"
#undef MLA_OP
};

const mla_op *mla_op_get(mla_op_id id) {
    MLA_REQUIRE(id < MLA_OP_COUNT, "operation %d of %d", (int)id, (int)MLA_OP_COUNT);
    return op_table[id];
}

/* A value.  A view has a base: its values and gradient are a part of the base's, `offset` reals in. */
typedef struct slot {
    mla_tensor value;
    real *gradient; /* NULL until somebody adds to it */
    bool needs_gradient;
    int32_t base;
    size_t offset;
    int param; /* index in the store + 1; 0: no parameter */
    bool loss; /* mla_tape_mark_loss */
} slot;

typedef struct node {
    const mla_op *op;
    void *attr;
    mla_var in[MLA_MAX_INPUTS], out;
    real *saved;
    size_t saved_count, scratch_count;
    double flops;
} node;

/* Memory of a gradient that has been used up, for the next one of the same size: it is still in the cache. */
typedef struct spare {
    real *memory;
    size_t bytes;
} spare;
enum { MAX_SPARES = 32 };

struct mla_tape {
    mla_arena arena;
    spare spares[MAX_SPARES];
    int spare_count;
    slot *slots;
    node *nodes;
    int slot_count, slot_capacity, node_count, node_capacity;
    size_t array_allocations;
    const mla_params *params;
    const real *values;
    real *gradient;
    const mla_param_form *forms;
    mla_profile *profile; /* NULL: no times are taken */
    bool out_of_memory;
};

mla_tape *mla_tape_new(void) { return calloc(1, sizeof(mla_tape)); }

void mla_tape_free(mla_tape *tape) {
    if (!tape) return;
    mla_arena_free(&tape->arena);
    free(tape->slots);
    free(tape->nodes);
    free(tape);
}

void mla_tape_begin(mla_tape *tape, const mla_params *params, const real *values, real *gradient) {
    mla_arena_reset(&tape->arena);
    tape->slot_count = tape->node_count = tape->spare_count = 0;
    tape->params = params;
    tape->values = values;
    tape->gradient = gradient;
    tape->forms = NULL;
    tape->out_of_memory = false;
}

void mla_tape_begin_like(mla_tape *tape, const mla_tape *like) {
    mla_tape_begin(tape, like->params, like->values, NULL);
    tape->forms = like->forms;
}

void mla_tape_use_forms(mla_tape *tape, const mla_param_form *forms) { tape->forms = forms; }

const mla_param_form *mla_tape_form(const mla_tape *tape, int index) { return tape->forms ? &tape->forms[index] : NULL; }

void mla_tape_profile(mla_tape *tape, mla_profile *profile) { tape->profile = profile; }

void *mla_tape_alloc(mla_tape *tape, size_t bytes) {
    void *memory = tape->out_of_memory ? NULL : mla_arena_alloc(&tape->arena, bytes);
    if (!memory) tape->out_of_memory = true;
    return memory;
}

/* Room for `count` entries of an array that lives as long as the tape. */
static bool grow(mla_tape *tape, void **array, int *capacity, int count, size_t entry_bytes) {
    if (count <= *capacity) return true;
    int larger = *capacity ? 2 * *capacity : 64;
    if (larger < count) larger = count;
    void *memory = realloc(*array, (size_t)larger * entry_bytes);
    if (!memory) {
        tape->out_of_memory = true;
        return false;
    }
    tape->array_allocations++;
    *array = memory;
    *capacity = larger;
    return true;
}

static mla_var add_slot(mla_tape *tape, slot s) {
    void *array = tape->slots;
    if (tape->out_of_memory || !grow(tape, &array, &tape->slot_capacity, tape->slot_count + 1, sizeof(slot)))
        return MLA_NO_VAR;
    tape->slots = array;
    tape->slots[tape->slot_count] = s;
    return (mla_var){tape->slot_count++};
}

mla_var mla_tape_input(mla_tape *tape, mla_tensor values) { return add_slot(tape, (slot){.value = values, .base = -1}); }

mla_var mla_tape_leaf(mla_tape *tape, mla_tensor values, real *gradient) {
    return add_slot(tape, (slot){.value = values, .gradient = gradient, .needs_gradient = gradient != NULL, .base = -1});
}

mla_var mla_tape_param(mla_tape *tape, int index) {
    MLA_REQUIRE(tape->params && index >= 0 && index < tape->params->entries, "parameter %d is not in the store", index);
    const mla_param *p = &tape->params->entry[index];
    const real *values = tape->forms && tape->forms[index].value ? tape->forms[index].value : tape->values + p->offset;
    /* Values are never written through the tape; the tensor type has no const twin. */
    real *data = (real *)(uintptr_t)values;
    real *gradient = tape->gradient && !p->fixed ? tape->gradient + p->offset : NULL;
    const mla_var x = mla_tape_leaf(tape, mla_tensor_make(data, p->ndim, p->shape), gradient);
    if (x.id >= 0) tape->slots[x.id].param = index + 1;
    return x;
}

static slot *get(const mla_tape *tape, mla_var x) {
    MLA_REQUIRE(x.id >= 0 && x.id < tape->slot_count, "value %d is not on this tape of %d", (int)x.id, tape->slot_count);
    return &tape->slots[x.id];
}

static mla_var add_view(mla_tape *tape, mla_var x, mla_tensor value) {
    const slot *s = get(tape, x);
    return add_slot(tape, (slot){.value = value,
                                 .needs_gradient = s->needs_gradient,
                                 .base = x.id,
                                 .offset = (size_t)(value.data - s->value.data)});
}

mla_var mla_columns(mla_tape *tape, mla_var x, size_t first, size_t count) {
    if (tape->out_of_memory) return MLA_NO_VAR;
    mla_tensor t = get(tape, x)->value;
    MLA_REQUIRE(count > 0 && first + count <= mla_tensor_columns(&t), "columns %zu + %zu of %s", first, count,
                mla_shape_text(&t));
    t.data += first;
    t.shape[t.ndim - 1] = count;
    return add_view(tape, x, t);
}

mla_var mla_reshape(mla_tape *tape, mla_var x, int ndim, const size_t *shape) {
    if (tape->out_of_memory) return MLA_NO_VAR;
    const mla_tensor t = get(tape, x)->value, result = mla_tensor_make(t.data, ndim, shape);
    MLA_REQUIRE(mla_tensor_contiguous(&t) && mla_tensor_count(&t) == mla_tensor_count(&result), "reshape of %s to %s",
                mla_shape_text(&t), mla_shape_text(&result));
    return add_view(tape, x, result);
}

/* Of the second input: by convention the weight. */
static const mla_param_form *weight_form(const mla_tape *tape, const mla_var *inputs) {
    const int param = inputs[1].id < 0 ? 0 : get(tape, inputs[1])->param;
    return param ? mla_tape_form(tape, param - 1) : NULL;
}

mla_var mla_record(mla_tape *tape, mla_op_id id, const mla_var *inputs, const void *attr, size_t attr_bytes) {
    return mla_record_op(tape, mla_op_get(id), inputs, attr, attr_bytes);
}

mla_var mla_record_op(mla_tape *tape, const mla_op *op, const mla_var *inputs, const void *attr, size_t attr_bytes) {
    if (tape->out_of_memory) return MLA_NO_VAR;
    const uint64_t start = tape->profile ? mla_profile_now() : 0;
    node n = {.op = op};
    mla_op_args args = {.attr = attr};
    bool needs_gradient = false;
    for (int i = 0; i < MLA_MAX_INPUTS; i++) {
        n.in[i] = inputs[i];
        if (inputs[i].id < 0) continue;
        args.in[i] = get(tape, inputs[i])->value;
        needs_gradient |= get(tape, inputs[i])->needs_gradient;
    }
    args.form = weight_form(tape, n.in);
    mla_op_plan plan = {0};
    n.op->plan(&args, &plan);
    size_t count = 1;
    for (int i = 0; i < plan.ndim; i++) count *= plan.shape[i];
    n.attr = mla_tape_alloc(tape, attr_bytes);
    real *out = mla_tape_alloc(tape, count * sizeof(real));
    n.saved = plan.saved ? mla_tape_alloc(tape, plan.saved * sizeof(real)) : NULL;
    n.saved_count = plan.saved;
    n.scratch_count = plan.scratch;
    n.flops = plan.flops;
    const mla_arena_mark mark = mla_arena_save(&tape->arena);
    args.scratch = mla_tape_alloc(tape, plan.scratch * sizeof(real));
    void *array = tape->nodes;
    if (tape->out_of_memory || !grow(tape, &array, &tape->node_capacity, tape->node_count + 1, sizeof(node)))
        return MLA_NO_VAR;
    tape->nodes = array;
    if (attr_bytes) memcpy(n.attr, attr, attr_bytes);
    args.attr = n.attr;
    args.out = mla_tensor_make(out, plan.ndim, plan.shape);
    args.saved = n.saved;
    n.op->forward(&args);
    if (tape->profile) mla_profile_add(tape->profile->forward, op, start, n.flops, &args, n.saved_count);
    mla_arena_restore(&tape->arena, mark);
    n.out = add_slot(tape, (slot){.value = args.out, .needs_gradient = needs_gradient, .base = -1});
    if (n.out.id >= 0) tape->nodes[tape->node_count++] = n;
    return n.out;
}

void mla_tape_mark_loss(mla_tape *tape, mla_var x) {
    if (!tape->out_of_memory) get(tape, x)->loss = true;
}

mla_var mla_tape_next_loss(const mla_tape *tape, mla_var after) {
    for (int32_t id = after.id + 1; id < tape->slot_count; id++)
        if (tape->slots[id].loss) return (mla_var){id};
    return MLA_NO_VAR;
}

mla_tensor mla_value(const mla_tape *tape, mla_var x) { return tape->out_of_memory ? (mla_tensor){0} : get(tape, x)->value; }

mla_status mla_tape_status(const mla_tape *tape, mla_error *error) {
    if (!tape->out_of_memory) return MLA_OK;
    return mla_fail(error, MLA_NO_MEMORY,
                    "out of memory: the shard's activations need more than the %.1f MiB in use; "
                    "a smaller train.shard needs less",
                    (double)tape->arena.used_bytes / 1048576.0);
}

static size_t gradient_bytes(const slot *s) { return mla_tensor_rows(&s->value) * s->value.stride * sizeof(real); }

/* Spare memory of just this size, the latest first, or NULL. */
static real *take_spare(mla_tape *tape, size_t bytes) {
    for (int i = tape->spare_count - 1; i >= 0; i--) {
        if (tape->spares[i].bytes != bytes) continue;
        real *memory = tape->spares[i].memory;
        tape->spares[i] = tape->spares[--tape->spare_count];
        return memory;
    }
    return NULL;
}

/* Memory for the gradient of a slot that has none yet, uninitialised. */
static void take_gradient(mla_tape *tape, slot *s) {
    const size_t bytes = gradient_bytes(s);
    s->gradient = take_spare(tape, bytes);
    if (!s->gradient) s->gradient = mla_tape_alloc(tape, bytes);
}

/* Where x's gradient is added up, zeroed at its first use; NULL when out of memory. */
static real *gradient_of(mla_tape *tape, mla_var x) {
    slot *s = get(tape, x);
    if (s->base >= 0) {
        real *base = gradient_of(tape, (mla_var){s->base});
        return base ? base + s->offset : NULL;
    }
    if (!s->gradient) {
        take_gradient(tape, s);
        if (s->gradient) memset(s->gradient, 0, gradient_bytes(s));
    }
    return s->gradient;
}

/* The value that x is, or is a view of. */
static int32_t root_of(const mla_tape *tape, mla_var x) {
    const slot *s = get(tape, x);
    return s->base >= 0 ? root_of(tape, (mla_var){s->base}) : x.id;
}

/* Does another input of the node, whose gradient the operation adds to, share input i's? */
static bool shared_gradient(const mla_tape *tape, const node *n, int i) {
    for (int j = 0; j < MLA_MAX_INPUTS; j++)
        if (j != i && n->in[j].id >= 0 && n->op->passes != j + 1 && root_of(tape, n->in[j]) == root_of(tape, n->in[i]))
            return true;
    return false;
}

/* The gradient of input i: fresh memory if nobody has added to it yet and the operation can write it. */
static void provide_gradient(mla_tape *tape, const node *n, int i, mla_op_args *args) {
    slot *s = get(tape, n->in[i]);
    if (!s->needs_gradient || n->op->passes == i + 1) return;
    args->fresh[i] = n->op->rewrite >> i & 1 && s->base < 0 && !s->gradient && !shared_gradient(tape, n, i);
    if (args->fresh[i]) take_gradient(tape, s);
    args->din[i].data = gradient_of(tape, n->in[i]);
}

/* dout is added to the gradient of the input that takes it unchanged, or becomes that gradient. */
static void pass_gradient(mla_tape *tape, const node *n, const mla_tensor *dout) {
    const mla_var input = n->in[n->op->passes - 1];
    if (input.id < 0 || !get(tape, input)->needs_gradient) return;
    slot *s = get(tape, input), *out = get(tape, n->out);
    if (s->base < 0 && !s->gradient && gradient_bytes(s) == gradient_bytes(out)) {
        s->gradient = out->gradient;
        out->gradient = NULL;
        return;
    }
    real *sum = gradient_of(tape, input);
    const size_t rows = mla_tensor_rows(dout), columns = mla_tensor_columns(dout);
    for (size_t r = 0; sum && r < rows; r++) mla_vec_add(columns, sum + r * s->value.stride, 1, dout->data + r * columns);
}

/* The gradient of a node's output is dead once the node's backward pass has run: whatever uses it comes later on the tape.
 */
static void give_up_gradient(mla_tape *tape, mla_var out) {
    slot *s = get(tape, out);
    if (s->gradient && tape->spare_count < MAX_SPARES)
        tape->spares[tape->spare_count++] = (spare){s->gradient, gradient_bytes(s)};
    s->gradient = NULL;
}

static void run_backward(mla_tape *tape, const node *n) {
    const uint64_t start = tape->profile ? mla_profile_now() : 0;
    mla_op_args args = {.attr = n->attr, .saved = n->saved, .out = get(tape, n->out)->value};
    args.dout = args.out;
    args.dout.data = get(tape, n->out)->gradient;
    for (int i = 0; i < MLA_MAX_INPUTS; i++) {
        if (n->in[i].id < 0) continue;
        args.in[i] = args.din[i] = get(tape, n->in[i])->value;
        args.din[i].data = NULL;
        provide_gradient(tape, n, i, &args);
    }
    args.form = weight_form(tape, n->in);
    const mla_arena_mark mark = mla_arena_save(&tape->arena);
    args.scratch = mla_tape_alloc(tape, n->scratch_count * sizeof(real));
    if (!tape->out_of_memory) n->op->backward(&args);
    if (tape->profile) mla_profile_add(tape->profile->backward, n->op, start, 2 * n->flops, &args, n->saved_count);
    mla_arena_restore(&tape->arena, mark);
    if (n->op->passes) pass_gradient(tape, n, &args.dout);
}

mla_status mla_tape_backward(mla_tape *tape, mla_var out, const real *seed, mla_error *error) {
    if (tape->out_of_memory) return mla_tape_status(tape, error);
    const mla_tensor value = get(tape, out)->value;
    MLA_REQUIRE(get(tape, out)->needs_gradient, "backward from %s, which depends on no parameter", mla_shape_text(&value));
    MLA_REQUIRE(mla_tensor_contiguous(&value), "backward from a view of columns %s", mla_shape_text(&value));
    real *gradient = gradient_of(tape, out);
    if (gradient)
        for (size_t i = 0; i < mla_tensor_count(&value); i++) gradient[i] += seed[i];
    for (int i = tape->node_count - 1; i >= 0 && !tape->out_of_memory; i--) {
        /* No gradient has arrived: the result does not depend on this node. */
        if (!get(tape, tape->nodes[i].out)->gradient) continue;
        run_backward(tape, &tape->nodes[i]);
        give_up_gradient(tape, tape->nodes[i].out);
    }
    return mla_tape_status(tape, error);
}

double mla_tape_flops(const mla_tape *tape) {
    double flops = 0;
    for (int i = 0; i < tape->node_count; i++) flops += tape->nodes[i].flops;
    return flops;
}

size_t mla_tape_peak_bytes(const mla_tape *tape) { return tape->arena.peak_bytes; }

void mla_tape_match(mla_tape *tape, const mla_tape *like) {
    void *slots = tape->slots, *nodes = tape->nodes;
    mla_tape_begin(tape, NULL, NULL, NULL);
    if (grow(tape, &slots, &tape->slot_capacity, like->slot_capacity, sizeof(slot))) tape->slots = slots;
    if (grow(tape, &nodes, &tape->node_capacity, like->node_capacity, sizeof(node))) tape->nodes = nodes;
    mla_arena_reserve(&tape->arena, like->arena.peak_bytes);
}

size_t mla_tape_allocations(const mla_tape *tape) { return tape->arena.allocations + tape->array_allocations; }

static bool finite_tensor(const mla_tensor *t) {
    for (size_t r = 0; r < mla_tensor_rows(t); r++)
        for (size_t c = 0; c < mla_tensor_columns(t); c++)
            if (!isfinite(t->data[r * t->stride + c])) return false;
    return true;
}

int mla_tape_not_finite(const mla_tape *tape) {
    for (int i = 0; i < tape->node_count; i++)
        if (!finite_tensor(&tape->slots[tape->nodes[i].out.id].value)) return i;
    return -1;
}

/* Follows a node's inputs, then the nodes before it, to a parameter. */
static int node_param(const mla_tape *tape, int node_index) {
    for (; node_index >= 0; node_index--)
        for (int i = 0; i < MLA_MAX_INPUTS; i++) {
            const int id = tape->nodes[node_index].in[i].id;
            if (id >= 0 && tape->slots[id].param) return tape->slots[id].param - 1;
        }
    return -1;
}

bool mla_tape_node(const mla_tape *tape, int i, mla_node_info *info) {
    if (i < 0 || i >= tape->node_count) return false;
    const node *n = &tape->nodes[i];
    const mla_tensor out = tape->slots[n->out.id].value;
    *info = (mla_node_info){.op = n->op->name,
                            .out = out,
                            .flops = n->flops,
                            .bytes = (mla_tensor_count(&out) + n->saved_count) * sizeof(real),
                            .param = node_param(tape, i)};
    for (int k = 0; k < MLA_MAX_INPUTS; k++) info->reads[k] = n->in[k].id < 0 ? -1 : tape->slots[n->in[k].id].param - 1;
    return true;
}
