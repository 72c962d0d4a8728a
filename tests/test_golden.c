/* The engine against PyTorch: models, operations and optimisers, from the files of tests/golden/make_golden.py, whose
 * head says what each tensor is. */
#include <jansson.h>
#include <stdio.h>

#include "layers/model.h"
#include "optim/optimizer.h"
#include "tests/support.h"
#include "train/config_schema.h"
#include "train/safetensors.h"

/* ---- files */

static mla_safetensors *file;
static unsigned used_count; /* tensors of the file that a test has asked for */

static void open_file(const char *name) {
    const char *source = getenv("MLA_SOURCE_DIR");
    char path[1024];
    mla_error error = {0};
    snprintf(path, sizeof path, "%s/tests/golden/%s.safetensors", source ? source : ".", name);
    ck_assert_msg(mla_safetensors_open(&file, path, &error) == MLA_OK, "%s", error.text);
    used_count = 0;
}

static void close_file(void) {
    mla_safetensors_close(file);
    file = NULL;
    test_release();
}

static mla_tensor stored(const char *format, const char *name) {
    char full[256];
    mla_error error = {0};
    snprintf(full, sizeof full, format, name);
    const mla_file_tensor *entry = mla_safetensors_find(file, full);
    ck_assert_msg(entry != NULL, "%s has no tensor %s", mla_safetensors_path(file), full);
    ck_assert_int_le(entry->ndim, MLA_MAX_DIMS);
    mla_tensor t = mla_tensor_make(NULL, entry->ndim, entry->shape);
    t.data = test_reals(mla_tensor_count(&t));
    ck_assert_msg(mla_safetensors_floats(t.data, mla_tensor_count(&t), file, full, &error) == MLA_OK, "%s", error.text);
    used_count++;
    return t;
}

static int *stored_classes(const char *name, size_t count) {
    const mla_tensor t = stored("%s", name);
    int *labels = malloc(count * sizeof *labels);
    test_adopt(labels);
    ck_assert_uint_eq(mla_tensor_count(&t), count);
    for (size_t i = 0; i < count; i++) labels[i] = (int)t.data[i];
    return labels;
}

/* ---- models: one golden file for every family and attention kind that a config can name */

static const char *const *names_of(const char *key) { return mla_config_key_find(key)->names; }

static int name_count(const char *key) {
    int count = 0;
    while (names_of(key)[count]) count++;
    return count;
}

/* And models with options of the mirror. */
static const char *const option_files[] = {"mirror_split",        "mirror_split_alone",   "mirror_twin",
                                           "mirror_planes",       "mirror_learned_power", "mirror_fixed_power",
                                           "mirror_focused_power"};

static int model_count(void) {
    return name_count("model.family") * name_count("model.attention.kind") + (int)TEST_COUNT(option_files);
}

static int position(const char *const *names, const char *name) {
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0) return i;
    ck_abort_msg("%s is no name in configs", name);
    return -1;
}

static void read_list(int *out, json_t *list, int stages) {
    ck_assert_int_eq((int)json_array_size(list), stages);
    for (int i = 0; i < stages; i++) out[i] = (int)json_integer_value(json_array_get(list, (size_t)i));
}

#define MIRROR "model.attention.mirror."

static mla_model_spec read_spec(void) {
    const char *text = mla_safetensors_metadata(file, "spec"), *family, *kind;
    ck_assert_ptr_nonnull(text);
    json_t *root = json_loads(text, 0, NULL), *dims, *depths, *heads;
    ck_assert_ptr_nonnull(root);
    mla_model_spec spec = {.channels = 3, .norm_eps = 1e-6, .attention = {.focused_factor = 3}};
    mla_attention_spec *a = &spec.attention;
    mla_mirror_spec *m = &a->mirror;
    int bias, angle, gate = 0, scale = 0;
    const char *planes = "pairs", *source = "shared", *norm = "none", *feature = "relu", *power = "none";
    json_error_t wrong;
    ck_assert_msg(
        json_unpack_ex(
            root, &wrong, JSON_STRICT,
            "{s:s, s:i, s:i, s:i, s:F, s:o, s:o, s:o, s:{s:s, s:i, s:F, s:b, "
            "s?b, s?{s:i}, s?{s:F}, s?{s:i}, s:{s:i, s:i, s:b, s:F, s:F, s:i, s?s, s?s, s?s, s?b, s?i, s?s, s?i, s?s, s?F, "
            "s?F}}}",
            "family", &family, "image", &spec.image, "classes", &spec.classes, "patch", &spec.patch, "mlp_ratio",
            &spec.mlp_ratio, "dims", &dims, "depths", &depths, "heads", &heads, "attention", "kind", &kind, "dwconv",
            &a->dwconv, "eps", &a->eps, "qkv_bias", &bias, "gate", &gate, "performer", "features", &a->performer_features,
            "focused", "factor", &a->focused_factor, "agent", "side", &a->agent.side, "mirror", "block", &a->mirror.block,
            "reflections", &a->mirror.reflections, "variance_angle", &angle, "angle_max", &a->mirror.angle_max, "angle_gain",
            &a->mirror.angle_gain, "cross_head", &a->mirror.cross_head, "angle_planes", &planes, "angle_source", &source,
            "qk_norm", &norm, "scale_modulation", &scale, "fold", &m->fold, "feature", &feature, "twin_reflections",
            &m->twin_reflections, "power", &power, "exponent", &m->exponent, "retention_loss", &m->retention_loss) == 0,
        "spec of %s: %s", mla_safetensors_path(file), wrong.text);
    spec.family = (mla_family)position(names_of("model.family"), family);
    a->qkv_bias = bias;
    a->gate = gate;
    a->mirror.variance_angle = angle;
    m->scale_modulation = scale;
    m->angle_planes = (mla_angle_planes)position(names_of(MIRROR "angle_planes"), planes);
    m->angle_source = (mla_angle_source)position(names_of(MIRROR "angle_source"), source);
    m->qk_norm = (mla_qk_norm)position(names_of(MIRROR "qk_norm"), norm);
    m->feature = (mla_feature_kept)position(names_of(MIRROR "feature"), feature);
    m->power = (mla_power)position(names_of(MIRROR "power"), power);
    spec.stages = (int)json_array_size(dims);
    for (int i = 0; i < spec.stages; i++)
        spec.kinds[i] = (mla_attention_kind)position(names_of("model.attention.kind"), kind);
    read_list(spec.dims, dims, spec.stages);
    read_list(spec.depths, depths, spec.stages);
    read_list(spec.heads, heads, spec.stages);
    json_decref(root);
    return spec;
}

/* A model with the file's weights, its batch, and what one pass gives. */
typedef struct golden {
    mla_model *model;
    mla_params *params;
    mla_tape *tape;
    mla_tensor images;
    int *labels;
    real *gradient, *seed;
    size_t batch;
} golden;

/* Every name of the model is in the file, with the same shape, and the other way round. */
static void load_weights(const golden *g) {
    size_t weights = 0;
    for (size_t i = 0; i < mla_safetensors_count(file); i++) {
        const char *name = mla_safetensors_at(file, i)->name;
        if (strncmp(name, "weight.", 7) != 0) continue;
        weights++;
        ck_assert_msg(mla_params_find(g->params, name + 7) >= 0, "the model has no parameter %s", name + 7);
    }
    ck_assert_int_eq((int)weights, g->params->entries);
    for (int i = 0; i < g->params->entries; i++) {
        const mla_param *p = &g->params->entry[i];
        const mla_tensor t = stored("weight.%s", p->name), mine = mla_tensor_make(NULL, p->ndim, p->shape);
        ck_assert_msg(mla_tensor_same_shape(&t, &mine), "%s: %s in the file, %s in the model", p->name, mla_shape_text(&t),
                      mla_shape_text(&mine));
        memcpy(g->params->value + p->offset, t.data, p->count * sizeof(real));
    }
}

static mla_model_spec open_model(int index) {
    const int kinds = name_count("model.attention.kind"), plain = model_count() - (int)TEST_COUNT(option_files);
    char name[64];
    if (index >= plain) {
        open_file(option_files[index - plain]);
        return read_spec();
    }
    const char *family = names_of("model.family")[index / kinds], *kind = names_of("model.attention.kind")[index % kinds];
    snprintf(name, sizeof name, "%s_%s", family, kind);
    open_file(name);
    const mla_model_spec spec = read_spec();
    ck_assert_int_eq((int)spec.family, index / kinds);
    ck_assert_int_eq((int)spec.kinds[0], index % kinds);
    return spec;
}

static golden load(int index) {
    const mla_model_spec spec = open_model(index);
    golden g = {.tape = test_tape()};
    mla_error error = {0};
    ck_assert_msg(mla_model_new(&g.model, &spec, &error) == MLA_OK, "%s", error.text);
    g.params = mla_model_params(g.model);
    load_weights(&g);
    g.images = stored("%s", "input");
    g.batch = g.images.shape[0];
    g.labels = stored_classes("target", g.batch);
    g.gradient = mla_params_buffer(g.params);
    test_adopt(g.gradient);
    g.seed = test_reals(g.batch);
    for (size_t i = 0; i < g.batch; i++) g.seed[i] = 1 / (real)g.batch;
    return g;
}

static mla_var logits_of(const golden *g) {
    mla_tape_begin(g->tape, g->params, g->params->value, g->gradient);
    return mla_model_forward(g->model, g->tape, mla_tape_input(g->tape, g->images), &(mla_forward){0});
}

static real mean_loss(const golden *g, mla_var losses) {
    const mla_tensor t = mla_value(g->tape, losses);
    double sum = 0;
    for (size_t i = 0; i < g->batch; i++) sum += (double)t.data[i];
    return (real)(sum / (double)g->batch);
}

/* Smoothed loss of the batch; its gradient replaces the one before. */
static real training_pass(const golden *g) {
    mla_error error = {0};
    const mla_var losses = mla_model_loss(g->model, g->tape, mla_cross_entropy(g->tape, logits_of(g), g->labels, NULL, 0.1));
    memset(g->gradient, 0, g->params->size * sizeof(real));
    ck_assert_msg(mla_tape_backward(g->tape, losses, g->seed, &error) == MLA_OK, "%s", error.text);
    return mean_loss(g, losses);
}

START_TEST(logits_and_losses) {
    const golden g = load(_i);
    const mla_var logits = logits_of(&g);
    const mla_tensor soft = stored("%s", "target_soft"), want = stored("%s", "logits"), got = mla_value(g.tape, logits);
    ck_assert(mla_tensor_same_shape(&got, &want));
    test_close("logits", got.data, want.data, mla_tensor_count(&want), 1e-5);
    real loss = mean_loss(&g, mla_model_loss(g.model, g.tape, mla_cross_entropy(g.tape, logits, g.labels, NULL, 0.1)));
    test_close("loss", &loss, stored("%s", "loss").data, 1, 2e-6);
    loss = mean_loss(&g, mla_cross_entropy(g.tape, logits, NULL, soft.data, 0));
    test_close("loss_soft", &loss, stored("%s", "loss_soft").data, 1, 2e-6);
    mla_model_free(g.model);
}
END_TEST

START_TEST(every_gradient) {
    const golden g = load(_i);
    training_pass(&g);
    for (int i = 0; i < g.params->entries; i++) {
        const mla_param *p = &g.params->entry[i];
        if (!p->fixed) test_scaled_close(p->name, g.gradient + p->offset, stored("grad.%s", p->name).data, p->count, 2e-5);
    }
    mla_model_free(g.model);
}
END_TEST

static void compare_final(const golden *g, const mla_param *p) {
    const real *got = g->params->value + p->offset, *want = stored("adamw_final.%s", p->name).data;
    const size_t length = strlen(p->name), third = p->count / 3;
    const mla_attention_kind kind = mla_model_get_spec(g->model)->kinds[0];
    const bool blind = kind == MLA_ATTENTION_SOFTMAX || kind == MLA_ATTENTION_EFFICIENT || kind == MLA_ATTENTION_INLINE ||
                       kind == MLA_ATTENTION_AGENT;
    if (!blind || length < 8 || strcmp(p->name + length - 8, "qkv.bias") != 0) {
        test_close(p->name, got, want, p->count, 1e-5);
        return;
    }
    /* These kinds compare the keys of an image: nothing changes when k's bias does.  That gradient is rounding alone, which
     * Adam blows up to whole steps. */
    test_close(p->name, got, want, third, 1e-5);
    test_close(p->name, got + third, want + third, third, 1e-2);
    test_close(p->name, got + 2 * third, want + 2 * third, third, 1e-5);
}

START_TEST(ten_steps_of_adamw) {
    const golden g = load(_i);
    const mla_optimizer_spec spec = {.kind = MLA_ADAMW, .weight_decay = 0.05, .betas = {0.9, 0.999}, .eps = 1e-8};
    const mla_tensor want = stored("%s", "adamw_loss");
    mla_optimizer *optimizer;
    mla_error error = {0};
    ck_assert_msg(mla_optimizer_new(&optimizer, &spec, g.params, &error) == MLA_OK, "%s", error.text);
    for (size_t step = 0; step < mla_tensor_count(&want); step++) {
        char what[64];
        snprintf(what, sizeof what, "loss of step %zu", step);
        const real loss = training_pass(&g);
        test_close(what, &loss, want.data + step, 1, 5e-6);
        const double factor = mla_clip_factor(mla_gradient_norm(optimizer, g.gradient), 1.0);
        mla_optimizer_step(optimizer, g.gradient, 1e-3, factor, step + 1);
    }
    for (int i = 0; i < g.params->entries; i++) compare_final(&g, &g.params->entry[i]);
    mla_optimizer_free(optimizer);
    mla_model_free(g.model);
}
END_TEST

/* ---- operations: all tensors of ops.safetensors are used */

enum { MOST_INPUTS = 5 };

typedef struct operation {
    const char *name;
    mla_var (*build)(mla_tape *tape, const mla_var *in);
    const char *input[MOST_INPUTS];
    const char *constant; /* a further one, without a gradient */
} operation;

static mla_var layer_norm(mla_tape *tape, const mla_var *in) { return mla_layer_norm(tape, in[0], in[1], in[2], 1e-6); }
static mla_var gelu(mla_tape *tape, const mla_var *in) { return mla_gelu(tape, in[0]); }
static mla_var dwconv(mla_tape *tape, const mla_var *in) {
    return mla_depthwise_conv(tape, in[0], in[1], in[2], MLA_NO_VAR, 4, 5);
}
static mla_var softmax(mla_tape *tape, const mla_var *in) { return mla_softmax_attention(tape, in[0], in[1], in[2], 2); }
static mla_var relu(mla_tape *tape, const mla_var *in) {
    return mla_linear_attention(tape, in[0], in[1], in[2], 2, MLA_FEATURE_RELU, 1e-6);
}
static mla_var elu1(mla_tape *tape, const mla_var *in) {
    return mla_linear_attention(tape, in[0], in[1], in[2], 2, MLA_FEATURE_ELU1, 1e-6);
}
static mla_var efficient(mla_tape *tape, const mla_var *in) {
    return mla_state_attention(tape, mla_channel_softmax(tape, in[0], 2), mla_token_softmax(tape, in[1]), in[2], 2, 1,
                               false);
}
static mla_var injective(mla_tape *tape, const mla_var *in) { /* 20 tokens, d = 4 */
    return mla_state_attention(tape, in[0], in[1], in[2], 2, 1 / (20 * sqrt(4.0)), true);
}
static mla_var agents(mla_tape *tape, const mla_var *in, size_t side) {
    const mla_var a = mla_grid_pool(tape, in[0], 5, side);
    return mla_softmax_attention(tape, in[0], a, mla_softmax_attention(tape, a, in[1], in[2], 2), 2);
}
static mla_var agents2(mla_tape *tape, const mla_var *in) { return agents(tape, in, 2); }
static mla_var agents3(mla_tape *tape, const mla_var *in) { return agents(tape, in, 3); }
static mla_var pool2(mla_tape *tape, const mla_var *in) { return mla_grid_pool(tape, in[0], 5, 2); }
static mla_var pool3(mla_tape *tape, const mla_var *in) { return mla_grid_pool(tape, in[0], 5, 3); }
static mla_var patch_embed(mla_tape *tape, const mla_var *in) {
    return mla_linear(tape, mla_patches(tape, in[0], 2), in[1], in[2], MLA_NO_VAR, MLA_IDENTITY);
}

static const operation operations[] = {
    {"layer_norm", layer_norm, {"x", "weight", "bias"}, NULL}, {"gelu", gelu, {"x"}, NULL},
    {"dwconv3", dwconv, {"x", "weight", "bias"}, NULL},        {"dwconv5", dwconv, {"x", "weight", "bias"}, NULL},
    {"softmax_attention", softmax, {"q", "k", "v"}, NULL},     {"relu_attention", relu, {"q", "k", "v"}, NULL},
    {"elu1_attention", elu1, {"q", "k", "v"}, NULL},           {"patch_embed", patch_embed, {"x", "weight", "bias"}, NULL},
};

/* Of kinds.safetensors. */
static mla_var soft_scale(mla_tape *tape, const mla_var *in) { return mla_soft_scale(tape, in[0], in[1]); }
static mla_var focused(mla_tape *tape, const mla_var *in) { return mla_focused_features(tape, in[0], 2, 3); }
static mla_var focused_half(mla_tape *tape, const mla_var *in) { return mla_focused_features(tape, in[0], 2, 2.5); }
static mla_var polar(mla_tape *tape, const mla_var *in) { return mla_polar_features(tape, in[0], in[1], 2, false); }
static mla_var polar_crossed(mla_tape *tape, const mla_var *in) { return mla_polar_features(tape, in[0], in[1], 2, true); }
static mla_var cosine(mla_tape *tape, const mla_var *in) { return mla_cosine_features(tape, in[0], 2); }
static mla_var positive_q(mla_tape *tape, const mla_var *in) {
    return mla_positive_features(tape, in[0], in[MOST_INPUTS - 1], 2, true);
}
static mla_var positive_k(mla_tape *tape, const mla_var *in) {
    return mla_positive_features(tape, in[0], in[MOST_INPUTS - 1], 2, false);
}
static mla_var given(mla_tape *tape, const mla_var *in) {
    return mla_linear_attention(tape, in[0], in[1], in[2], 2, MLA_FEATURE_GIVEN, 1e-6);
}

static const operation operations_of_kinds[] = {
    {"soft_scale", soft_scale, {"x", "s"}, NULL},
    {"focused_features", focused, {"x"}, NULL},
    {"focused_features_half", focused_half, {"x"}, NULL},
    {"polar_features", polar, {"x", "s"}, NULL},
    {"polar_features_crossed", polar_crossed, {"x", "s"}, NULL},
    {"cosine_features", cosine, {"x"}, NULL},
    {"positive_features_q", positive_q, {"x"}, "w"},
    {"positive_features_k", positive_k, {"x"}, "w"},
    {"given_attention", given, {"q", "k", "v"}, NULL},
};

static const operation other_operations[] = {
    {"efficient", efficient, {"q", "k", "v"}, NULL},
    {"inline", injective, {"q", "k", "v"}, NULL},
    {"few_keys", softmax, {"q", "k", "v"}, NULL},
    {"agent2", agents2, {"q", "k", "v"}, NULL},
    {"agent3", agents3, {"q", "k", "v"}, NULL},
    {"grid_pool2", pool2, {"x"}, NULL},
    {"grid_pool3", pool3, {"x"}, NULL},
};
#include "tests/golden_mirror.h"

/* Tensor `key` of operation `name`; `d` in front of the key asks for its gradient. */
static mla_tensor of(const char *name, const char *gradient, const char *key) {
    char full[128];
    snprintf(full, sizeof full, "%s.%s%s", name, gradient, key);
    return stored("op.%s", full);
}

static void check_like(const char *name, const char *gradient, const char *key, const real *got) {
    char what[128];
    snprintf(what, sizeof what, "%s.%s%s", name, gradient, key);
    const mla_tensor want = of(name, gradient, key);
    test_scaled_close(what, got, want.data, mla_tensor_count(&want), 2e-6);
}

static void backward(mla_tape *tape, mla_var y, const real *seed) {
    mla_error error = {0};
    ck_assert_msg(mla_tape_backward(tape, y, seed, &error) == MLA_OK, "%s", error.text);
}

static void run_operation(const operation *o) {
    mla_tape *tape = test_tape();
    mla_var in[MOST_INPUTS];
    real *gradient[MOST_INPUTS];
    mla_tape_begin(tape, NULL, NULL, NULL);
    for (int i = 0; i < MOST_INPUTS && o->input[i]; i++) {
        const mla_tensor t = of(o->name, "", o->input[i]);
        gradient[i] = test_reals(mla_tensor_count(&t));
        in[i] = mla_tape_leaf(tape, t, gradient[i]);
    }
    if (o->constant) in[MOST_INPUTS - 1] = mla_tape_input(tape, of(o->name, "", o->constant));
    const mla_var y = o->build(tape, in);
    check_like(o->name, "", "y", mla_value(tape, y).data);
    backward(tape, y, of(o->name, "d", "y").data);
    for (int i = 0; i < MOST_INPUTS && o->input[i]; i++) check_like(o->name, "d", o->input[i], gradient[i]);
}

/* q and k (rows, C) side by side, as the engine has them; and one half of that again. */
static real *join(const mla_tensor *q, const mla_tensor *k) {
    const size_t rows = mla_tensor_rows(q), c = mla_tensor_columns(q);
    real *qk = test_reals(rows * 2 * c);
    for (size_t i = 0; i < rows * 2 * c; i++)
        qk[i] = i / c % 2 ? k->data[i / c / 2 * c + i % c] : q->data[i / c / 2 * c + i % c];
    return qk;
}

static real *half(const real *qk, size_t rows, size_t c, size_t which) {
    real *out = test_reals(rows * c);
    for (size_t i = 0; i < rows * c; i++) out[i] = qk[(i / c * 2 + which) * c + i % c];
    return out;
}

static void run_variance_angle(void) {
    const char *name = "variance_angle";
    const mla_tensor q = of(name, "", "q"), k = of(name, "", "k"), a = of(name, "", "a"), c = of(name, "", "c");
    const mla_tensor dq = of(name, "d", "y_q"), dk = of(name, "d", "y_k");
    const size_t rows = mla_tensor_rows(&q), width = q.shape[2];
    const mla_tensor qk = mla_tensor_make(join(&q, &k), 3, (size_t[]){q.shape[0], q.shape[1], 2 * width});
    real *dqk = test_reals(rows * 2 * width), *da = test_reals(a.shape[0]), *dc = test_reals(c.shape[0]);
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var y = mla_pair_angle(tape, mla_tape_leaf(tape, qk, dqk), mla_tape_leaf(tape, a, da),
                                     mla_tape_leaf(tape, c, dc), 1.57079632679489662, false);
    check_like(name, "", "y_q", half(mla_value(tape, y).data, rows, width, 0));
    check_like(name, "", "y_k", half(mla_value(tape, y).data, rows, width, 1));
    backward(tape, y, join(&dq, &dk));
    check_like(name, "d", "q", half(dqk, rows, width, 0));
    check_like(name, "d", "k", half(dqk, rows, width, 1));
    check_like(name, "d", "a", da);
    check_like(name, "d", "c", dc);
}

/* The file's x stands in the half of k; q is zero and gets no gradient from above. */
static void run_cross_head(void) {
    const char *name = "cross_head";
    const mla_tensor x = of(name, "", "x"), v = of(name, "", "v"), dy = of(name, "d", "y");
    const size_t rows = mla_tensor_rows(&x), width = x.shape[2];
    mla_tensor zero = x;
    zero.data = test_reals(rows * width);
    const mla_tensor qk = mla_tensor_make(join(&zero, &x), 3, (size_t[]){x.shape[0], x.shape[1], 2 * width});
    real *dqk = test_reals(rows * 2 * width), *dv = test_reals(mla_tensor_count(&v));
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var y = mla_cross_reflect(tape, mla_tape_leaf(tape, qk, dqk), mla_tape_leaf(tape, v, dv));
    check_like(name, "", "y", half(mla_value(tape, y).data, rows, width, 1));
    backward(tape, y, join(&zero, &dy));
    check_like(name, "d", "x", half(dqk, rows, width, 1));
    check_like(name, "d", "v", dv);
}

/* Weight and bias are two results, so two passes, which add into one gradient of v. */
static void run_block_fold(void) {
    const char *name = "block_fold", *key[] = {"weight", "bias"}, *result[] = {"y_weight", "y_bias"};
    const mla_tensor v = of(name, "", "v");
    real *dv = test_reals(mla_tensor_count(&v));
    mla_tape *tape = test_tape();
    for (int i = 0; i < 2; i++) {
        const mla_tensor w = of(name, "", key[i]);
        real *dw = test_reals(mla_tensor_count(&w));
        mla_tape_begin(tape, NULL, NULL, NULL);
        const mla_var y = mla_block_reflect(tape, mla_tape_leaf(tape, w, dw), mla_tape_leaf(tape, v, dv));
        check_like(name, "", result[i], mla_value(tape, y).data);
        backward(tape, y, of(name, "d", result[i]).data);
        check_like(name, "d", key[i], dw);
    }
    check_like(name, "d", "v", dv);
}

static void run_cross_entropy(const char *name, bool soft) {
    const mla_tensor logits = of(name, "", "logits"), target = of(name, "", soft ? "target_soft" : "target");
    const size_t batch = logits.shape[0];
    int labels[16];
    for (size_t b = 0; b < batch; b++) labels[b] = (int)target.data[b];
    real *gradient = test_reals(mla_tensor_count(&logits)), *seed = test_reals(batch), mean = 0;
    const real dy = of(name, "d", "y").data[0];
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var y = mla_cross_entropy(tape, mla_tape_leaf(tape, logits, gradient), soft ? NULL : labels,
                                        soft ? target.data : NULL, soft ? 0 : 0.1);
    for (size_t b = 0; b < batch; b++) {
        mean += mla_value(tape, y).data[b] / (real)batch;
        seed[b] = dy / (real)batch;
    }
    check_like(name, "", "y", &mean);
    backward(tape, y, seed);
    check_like(name, "d", "logits", gradient);
}

static void check_all_used(void) {
    ck_assert_msg(used_count == mla_safetensors_count(file), "%u of the file's %zu tensors are used", used_count,
                  mla_safetensors_count(file));
}

/* Files of operations that need nothing of their own. */
static const struct {
    const char *file;
    const operation *operations;
    size_t count;
} operation_files[] = {{"kinds", operations_of_kinds, TEST_COUNT(operations_of_kinds)},
                       {"ops_other", other_operations, TEST_COUNT(other_operations)},
                       {"mirror_ops", mirror_operations, TEST_COUNT(mirror_operations)}};

START_TEST(every_operation_of_a_file) {
    open_file(operation_files[_i].file);
    for (size_t i = 0; i < operation_files[_i].count; i++) run_operation(&operation_files[_i].operations[i]);
    check_all_used();
}
END_TEST

START_TEST(every_operation) {
    open_file("ops");
    for (size_t i = 0; i < TEST_COUNT(operations); i++) run_operation(&operations[i]);
    run_variance_angle();
    run_cross_head();
    run_block_fold();
    run_cross_entropy("cross_entropy", false);
    run_cross_entropy("cross_entropy_soft", true);
    check_all_used();
}
END_TEST

/* ---- optimisers: every value after every step */

typedef struct rule {
    const char *name;
    double lr;
    mla_optimizer_spec spec;
} rule;

static const rule rules[] = {
    {"sgd", 0.1, {.kind = MLA_SGD}},
    {"sgd_momentum", 0.1, {.kind = MLA_SGD, .momentum = 0.9}},
    {"sgd_nesterov", 0.1, {.kind = MLA_SGD, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-2}},
    {"adamw", 1e-2, {.kind = MLA_ADAMW, .betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 0.05}},
};

/* The table above says the same as the file. */
static void check_options(const rule *r) {
    json_t *options = json_loads(mla_safetensors_metadata(file, r->name), 0, NULL),
           *betas = json_object_get(options, "betas");
    ck_assert_ptr_nonnull(options);
    ck_assert_double_eq(json_number_value(json_object_get(options, "lr")), r->lr);
    ck_assert_double_eq(json_number_value(json_object_get(options, "momentum")), r->spec.momentum);
    ck_assert_double_eq(json_number_value(json_object_get(options, "weight_decay")), r->spec.weight_decay);
    ck_assert_double_eq(json_number_value(json_object_get(options, "eps")), r->spec.eps);
    ck_assert_int_eq(json_is_true(json_object_get(options, "nesterov")), r->spec.nesterov);
    for (size_t i = 0; i < 2; i++) ck_assert_double_eq(json_number_value(json_array_get(betas, i)), r->spec.betas[i]);
    json_decref(options);
}

START_TEST(every_optimiser) {
    const rule *r = &rules[_i];
    open_file("optim");
    check_options(r);
    const mla_tensor initial = stored("%s", "initial"), grads = stored("%s", "grads"), want = stored("%s", r->name);
    const size_t n = initial.shape[0];
    mla_params params = {0};
    mla_error error = {0};
    mla_optimizer *optimizer;
    mla_params_add(&params, "value", 1, &n, (mla_init){MLA_INIT_CONSTANT, 0}, true);
    ck_assert_msg(mla_params_allocate(&params, &error) == MLA_OK, "%s", error.text);
    memcpy(params.value, initial.data, n * sizeof(real));
    ck_assert_msg(mla_optimizer_new(&optimizer, &r->spec, &params, &error) == MLA_OK, "%s", error.text);
    for (size_t step = 0; step < grads.shape[0]; step++) {
        mla_optimizer_step(optimizer, grads.data + step * n, r->lr, 1, step + 1);
        test_close(r->name, params.value, want.data + step * n, n, 5e-7);
    }
    mla_optimizer_free(optimizer);
    mla_params_free(&params);
}
END_TEST

static void models(TCase *tcase) {
    tcase_add_checked_fixture(tcase, NULL, close_file);
    tcase_add_loop_test(tcase, logits_and_losses, 0, model_count());
    tcase_add_loop_test(tcase, every_gradient, 0, model_count());
    tcase_add_loop_test(tcase, ten_steps_of_adamw, 0, model_count());
}

static void parts(TCase *tcase) {
    tcase_add_checked_fixture(tcase, NULL, close_file);
    tcase_add_test(tcase, every_operation);
    tcase_add_loop_test(tcase, every_operation_of_a_file, 0, (int)TEST_COUNT(operation_files));
    tcase_add_loop_test(tcase, every_optimiser, 0, (int)TEST_COUNT(rules));
}

int main(void) { return test_main("golden", (void (*const[])(TCase *)){models, parts}, 2); }
