/* The tape's promises, layers and models: accumulation, repeated use, no allocation, views, threads, refusals. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>

#include "layers/model.h"
#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 2e-5 : 1e-12;

enum { BATCH = 4, KINDS = MLA_ATTENTION_KINDS, MODELS = 2 * KINDS };

/* ---- small models of every family and kind */

static mla_model_spec spec_of(int index) {
    const bool pyramid = index >= KINDS;
    return (mla_model_spec){
        .family = pyramid ? MLA_FAMILY_PVT : MLA_FAMILY_VIT,
        .image = 8,
        .channels = 3,
        .classes = 5,
        .patch = 2,
        .stages = pyramid ? 2 : 1,
        .dims = {8, 16},
        .depths = {2, 1},
        .heads = {2, 2},
        .mlp_ratio = 2,
        .drop_path = 0.4,
        .norm_eps = 1e-6,
        .kinds = {(mla_attention_kind)(index % KINDS), (mla_attention_kind)(index % KINDS)},
        .attention = {
            .focused_factor = 3,
            .dwconv = 3,
            .qkv_bias = true,
            .eps = 1e-6,
            .agent = {2},
            .mirror = {
                .block = 2, .reflections = 2, .variance_angle = true, .angle_max = 1.5, .angle_gain = 1, .cross_head = 2}}};
}

typedef struct pass {
    mla_model *model;
    mla_params *params;
    mla_tape *tape;
    real *gradient;
    const uint64_t *samples; /* NULL: evaluation */
} pass;

static const uint64_t samples[BATCH] = {3, 14, 15, 92};

static pass pass_new(int index) {
    const mla_model_spec spec = spec_of(index);
    pass p = {.tape = test_tape(), .samples = samples};
    mla_error error = {0};
    ck_assert_msg(mla_model_new(&p.model, &spec, &error) == MLA_OK, "%s", error.text);
    p.params = mla_model_params(p.model);
    test_randomise(p.params, 50, 0.4);
    p.gradient = mla_params_buffer(p.params);
    test_adopt(p.gradient);
    return p;
}

static mla_tensor images_of(uint64_t seed, size_t count) { return test_tensor(seed, SHAPE(count, 3, 8, 8)); }

static mla_var forward(const pass *p, mla_tensor images) {
    const mla_forward f = {.training = p->samples != NULL, .seed = 6, .epoch = 2, .samples = p->samples};
    mla_tape_begin(p->tape, p->params, p->params->value, p->gradient);
    return mla_model_forward(p->model, p->tape, mla_tape_input(p->tape, images), &f);
}

/* Forward and backward; the gradient is added to p->gradient. */
static mla_status step(const pass *p, mla_tensor images) {
    static const int labels[] = {1, 0, 4, 2};
    static const real seed[] = {1, -2, REAL(0.5), 3};
    mla_error error = {0};
    return mla_tape_backward(p->tape, mla_cross_entropy(p->tape, forward(p, images), labels, NULL, 0.1), seed, &error);
}

START_TEST(gradients_are_added_to_what_is_there) {
    const pass p = pass_new(_i);
    const mla_tensor images = images_of(1, BATCH);
    ck_assert(step(&p, images) == MLA_OK);
    real *once = test_reals(p.params->size), *content = test_normal(p.params->size, 9);
    memcpy(once, p.gradient, p.params->size * sizeof(real));
    for (int i = 0; i < p.params->entries; i++) {
        const mla_param *e = &p.params->entry[i];
        for (size_t j = 0; j < e->count; j++) {
            p.gradient[e->offset + j] = content[e->offset + j];
            once[e->offset + j] += content[e->offset + j];
        }
    }
    ck_assert(step(&p, images) == MLA_OK);
    test_close("content plus gradient", p.gradient, once, p.params->size, CLOSE);
    mla_model_free(p.model);
}
END_TEST

START_TEST(no_allocation_after_the_first_rounds) {
    const pass p = pass_new(_i);
    const mla_tensor images = images_of(1, BATCH), fewer = images_of(2, BATCH - 1);
    ck_assert(step(&p, images) == MLA_OK);
    ck_assert(step(&p, images) == MLA_OK);
    const size_t allocations = mla_tape_allocations(p.tape), peak = mla_tape_peak_bytes(p.tape);
    ck_assert_uint_gt(allocations, 0);
    for (int round = 0; round < 3; round++) {
        ck_assert(step(&p, fewer) == MLA_OK);
        ck_assert(step(&p, images) == MLA_OK);
    }
    ck_assert_uint_eq(mla_tape_allocations(p.tape), allocations);
    ck_assert_uint_eq(mla_tape_peak_bytes(p.tape), peak);
    mla_model_free(p.model);
}
END_TEST

/* The same with far more memory than the first chunk has. */
START_TEST(no_allocation_when_memory_had_to_grow) {
    pass p = pass_new(7);
    mla_tensor images = images_of(1, BATCH);
    images = mla_tensor_make(test_normal(160 * 192, 1), SHAPE(160, 3, 8, 8));
    p.samples = NULL;
    size_t after[4];
    for (int round = 0; round < 4; round++) {
        mla_error error = {0};
        const mla_var logits = forward(&p, images);
        ck_assert(mla_tape_backward(p.tape, logits, test_normal(160 * 5, 2), &error) == MLA_OK);
        after[round] = mla_tape_allocations(p.tape);
    }
    ck_assert_uint_gt(mla_tape_peak_bytes(p.tape), 3 << 20);
    ck_assert_uint_eq(after[3], after[1]);
    mla_model_free(p.model);
}
END_TEST

START_TEST(an_image_does_not_depend_on_its_batch) {
    const pass p = pass_new(_i);
    const mla_tensor images = images_of(1, BATCH);
    real *together = test_reals(BATCH * 5);
    memcpy(together, mla_value(p.tape, forward(&p, images)).data, BATCH * 5 * sizeof(real));
    for (size_t b = 0; b < BATCH; b++) {
        pass alone = p;
        alone.samples = samples + b; /* drop path follows the sample, not the place in the batch */
        const mla_tensor image = mla_tensor_make(images.data + b * 192, SHAPE(1, 3, 8, 8));
        test_close("logits", mla_value(p.tape, forward(&alone, image)).data, together + 5 * b, 5, CLOSE);
    }
    mla_model_free(p.model);
}
END_TEST

START_TEST(drop_path_is_for_training_only) {
    pass p = pass_new(_i);
    const mla_tensor images = images_of(1, BATCH);
    real *training = test_reals(BATCH * 5), *evaluation = test_reals(BATCH * 5);
    memcpy(training, mla_value(p.tape, forward(&p, images)).data, BATCH * 5 * sizeof(real));
    test_close("again", mla_value(p.tape, forward(&p, images)).data, training, BATCH * 5, 0);
    p.samples = NULL;
    memcpy(evaluation, mla_value(p.tape, forward(&p, images)).data, BATCH * 5 * sizeof(real));
    ck_assert_double_gt(test_error(training, evaluation, BATCH * 5), 1e-3);
    /* Forward only: the same values from less memory. */
    pass only = p;
    only.tape = test_tape();
    only.gradient = NULL;
    test_close("forward only", mla_value(only.tape, forward(&only, images)).data, evaluation, BATCH * 5, 0);
    mla_model_free(p.model);
}
END_TEST

/* One block, each of its two branches dropped for half of the samples, independently: four results of one image. */
START_TEST(branches_are_dropped_independently) {
    enum { MANY = 64 };
    mla_model_spec spec = spec_of(0);
    spec.depths[0] = 1;
    spec.drop_path = 0.5;
    mla_model *model;
    mla_error error = {0};
    ck_assert(mla_model_new(&model, &spec, &error) == MLA_OK);
    test_randomise(mla_model_params(model), 50, 0.4);
    const mla_tensor image = images_of(1, 1), images = mla_tensor_make(test_reals(MANY * 192), SHAPE(MANY, 3, 8, 8));
    uint64_t all_samples[MANY];
    for (size_t b = 0; b < MANY; b++) {
        all_samples[b] = b;
        memcpy(images.data + b * 192, image.data, 192 * sizeof(real));
    }
    const pass p = {.model = model, .params = mla_model_params(model), .tape = test_tape(), .samples = all_samples};
    const real *logits = mla_value(p.tape, forward(&p, images)).data;
    int seen[4] = {0}, kinds = 0, kind;
    size_t first[4];
    for (size_t b = 0; b < MANY; b++) {
        for (kind = 0; kind < kinds && test_error(logits + 5 * b, logits + 5 * first[kind], 5) > CLOSE; kind++) {
        }
        ck_assert_int_lt(kind, 4);
        if (kind == kinds) first[kinds++] = b;
        seen[kind]++;
    }
    ck_assert_int_eq(kinds, 4);
    for (kind = 0; kind < 4; kind++) ck_assert(seen[kind] > 5 && seen[kind] < 30); /* 16 expected, deviation 3.5 */
    mla_model_free(model);
}
END_TEST

/* From 0 at the first block to the whole rate at the last, over all stages. */
START_TEST(drop_path_grows_with_depth) {
    mla_model_spec spec = spec_of(KINDS);
    mla_params params = {0};
    mla_block blocks[3];
    spec.drop_path = 0.3;
    mla_stage_declare(&params, "a.", &spec, 0, 8, 3, true, blocks, 0);
    mla_stage_declare(&params, "b.", &spec, 1, 4, 8, true, blocks + 2, 2);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_double_eq_tol(blocks[i].drop_path, 0.15 * i, 1e-15);
        ck_assert_uint_eq(blocks[i].index, i);
    }
    mla_params_free(&params);
    spec.stages = spec.depths[0] = 1;
    mla_stage_declare(&params, "c.", &spec, 0, 8, 3, true, blocks, 0);
    ck_assert_double_eq(blocks[0].drop_path, 0.3);
    mla_params_free(&params);
}
END_TEST

/* Two tapes on two threads share a model; the gradients are those of one after the other. */
START_TEST(tapes_on_two_threads) {
    pass p[2] = {pass_new(_i), pass_new(_i)};
    const mla_tensor images[2] = {images_of(1, BATCH), images_of(2, BATCH)};
    real *want[2];
    for (int i = 0; i < 2; i++) {
        ck_assert(step(&p[i], images[i]) == MLA_OK);
        want[i] = test_reals(p[i].params->size);
        memcpy(want[i], p[i].gradient, p[i].params->size * sizeof(real));
        memset(p[i].gradient, 0, p[i].params->size * sizeof(real));
    }
    pass shared = p[1];
    shared.model = p[0].model;
    shared.params = p[0].params;
    mla_status status[2];
#pragma omp parallel for num_threads(2)
    for (int i = 0; i < 2; i++) status[i] = step(i ? &shared : &p[0], images[i]);
    for (int i = 0; i < 2; i++) {
        ck_assert(status[i] == MLA_OK);
        test_close("gradient", p[i].gradient, want[i], p[i].params->size, 0);
        mla_model_free(p[i].model);
    }
}
END_TEST

/* ---- the tape itself */

/* A layer applied twice gets the sum of what two copies of it get. */
START_TEST(a_layer_used_twice) {
    const mla_tensor x = test_tensor(1, SHAPE(3, 4)), w = test_tensor(2, SHAPE(4, 4)), b = test_tensor(3, SHAPE(4));
    real *dw[3] = {test_reals(16), test_reals(16), test_reals(16)}, *db[3] = {test_reals(4), test_reals(4), test_reals(4)};
    const real *dy = test_normal(12, 4);
    mla_tape *tape = test_tape();
    mla_error error = {0};
    for (int copies = 0; copies < 2; copies++) {
        mla_tape_begin(tape, NULL, NULL, NULL);
        mla_var y = mla_tape_input(tape, x);
        mla_var weight = mla_tape_leaf(tape, w, dw[copies]), bias = mla_tape_leaf(tape, b, db[copies]);
        y = mla_linear(tape, y, weight, bias, MLA_NO_VAR, MLA_GELU);
        if (copies) {
            weight = mla_tape_leaf(tape, w, dw[2]);
            bias = mla_tape_leaf(tape, b, db[2]);
        }
        y = mla_linear(tape, y, weight, bias, MLA_NO_VAR, MLA_GELU);
        ck_assert(mla_tape_backward(tape, y, dy, &error) == MLA_OK);
    }
    for (size_t i = 0; i < 16; i++) dw[1][i] += dw[2][i];
    for (size_t i = 0; i < 4; i++) db[1][i] += db[2][i];
    test_close("weight", dw[0], dw[1], 16, CLOSE);
    test_close("bias", db[0], db[1], 4, CLOSE);
}
END_TEST

/* A view of a view of a reshaped sum: the gradient lands in the columns that were taken, and nowhere else. */
START_TEST(views_of_views) {
    const mla_tensor x = test_tensor(1, SHAPE(2, 3, 8));
    real *dx = test_reals(48), *want = test_reals(48);
    mla_tape *tape = test_tape();
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var sum = mla_residual(tape, mla_tape_leaf(tape, x, dx), mla_tape_leaf(tape, x, dx), NULL);
    const mla_var flat = mla_reshape(tape, sum, 2, (size_t[]){6, 8});
    const mla_var part = mla_columns(tape, mla_columns(tape, flat, 2, 5), 1, 3); /* columns 3 .. 5 */
    real identity[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    const mla_var y = mla_linear(tape, part, mla_tape_input(tape, mla_tensor_make(identity, SHAPE(3, 3))), MLA_NO_VAR,
                                 MLA_NO_VAR, MLA_IDENTITY);
    const real *dy = test_normal(18, 2);
    ck_assert(mla_tape_backward(tape, y, dy, &error) == MLA_OK);
    for (size_t i = 0; i < 48; i++) {
        const bool taken = i % 8 >= 3 && i % 8 < 6;
        want[i] = taken ? 2 * dy[i / 8 * 3 + i % 8 - 3] : 0;
        if (taken) ck_assert(mla_value(tape, y).data[i / 8 * 3 + i % 8 - 3] == 2 * x.data[i]);
    }
    test_close("gradient of the columns", dx, want, 48, CLOSE);
    ck_assert_uint_eq(mla_value(tape, part).stride, 8);
}
END_TEST

/* Branches that the result does not need are not walked, and do not disturb the rest. */
START_TEST(values_that_do_not_matter) {
    const mla_tensor x = test_tensor(1, SHAPE(2, 3));
    real *dx = test_reals(6);
    mla_tape *tape = test_tape();
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var leaf = mla_tape_leaf(tape, x, dx);
    const mla_var y = mla_residual(tape, leaf, mla_gelu(tape, mla_tape_input(tape, x)), NULL);
    mla_gelu(tape, y);
    ck_assert(mla_tape_backward(tape, y, (real[]){1, 2, 3, 4, 5, 6}, &error) == MLA_OK);
    test_close("gradient", dx, (real[]){1, 2, 3, 4, 5, 6}, 6, 0);
}
END_TEST

/* Peak of `count` operations in a row, less their outputs and saved values. */
static size_t lent_bytes(int count) {
    enum { N = 256, C = 4 };
    mla_tape *tape = test_tape();
    mla_node_info info;
    mla_error error = {0};
    size_t kept = 0;
    mla_tape_begin(tape, NULL, NULL, NULL);
    mla_var y = mla_tape_leaf(tape, test_tensor(1, SHAPE(1, N, C)), test_reals(N * C));
    for (int i = 0; i < count; i++) y = mla_softmax_attention(tape, y, y, y, 1);
    ck_assert(mla_tape_backward(tape, y, test_normal(N * C, 2), &error) == MLA_OK);
    for (int i = 0; mla_tape_node(tape, i, &info); i++) kept += info.bytes;
    ck_assert_uint_gt(mla_tape_peak_bytes(tape), kept);
    return mla_tape_peak_bytes(tape) - kept;
}

/* Scratch memory is lent for one operation at a time, and a gradient that is used up makes room for the next: ten operations
 * in a row need no more of them than two, up to the few bytes of each one's attributes. */
START_TEST(scratch_and_gradients_are_given_back) { ck_assert_uint_lt(lent_bytes(10), lent_bytes(2) + 8 * 256); }
END_TEST

START_TEST(out_of_memory_is_remembered) {
    const mla_tensor x = test_tensor(1, SHAPE(2, 3));
    real *dx = test_reals(6), *scale;
    mla_tape *tape = test_tape();
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var y = mla_gelu(tape, mla_tape_leaf(tape, x, dx));
    ck_assert(mla_tape_status(tape, &error) == MLA_OK);
    ck_assert_ptr_null(mla_tape_alloc(tape, SIZE_MAX / 2));
    ck_assert_int_lt(mla_gelu(tape, y).id, 0);
    ck_assert_int_lt(mla_columns(tape, y, 0, 1).id, 0);
    ck_assert_int_lt(mla_reshape(tape, y, 1, (size_t[]){6}).id, 0);
    ck_assert_int_lt(mla_drop_path(tape, y, y, 0.5, (double[]){0, 0}).id, 0);
    ck_assert_ptr_null(mla_value(tape, y).data);
    ck_assert_ptr_null((scale = mla_tape_alloc(tape, 4)));
    ck_assert(mla_tape_status(tape, &error) == MLA_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(error.text, "memory"));
    ck_assert(mla_tape_backward(tape, y, dx, &error) == MLA_NO_MEMORY);
    mla_tape_begin(tape, NULL, NULL, NULL);
    ck_assert_int_ge(mla_gelu(tape, mla_tape_leaf(tape, x, dx)).id, 0);
    ck_assert(mla_tape_status(tape, &error) == MLA_OK);
}
END_TEST

/* Out of memory at the start of a model's pass: every layer passes it through. */
START_TEST(models_pass_out_of_memory_through) {
    const pass p = pass_new(_i);
    const mla_forward f = {.training = true, .samples = samples};
    mla_error error = {0};
    mla_tape_begin(p.tape, p.params, p.params->value, p.gradient);
    const mla_var images = mla_tape_input(p.tape, images_of(1, BATCH));
    ck_assert_ptr_null(mla_tape_alloc(p.tape, SIZE_MAX / 2));
    ck_assert_int_lt(mla_model_forward(p.model, p.tape, images, &f).id, 0);
    ck_assert(mla_tape_status(p.tape, &error) == MLA_NO_MEMORY);
    ck_assert(step(&p, images_of(1, BATCH)) == MLA_OK);
    mla_model_free(p.model);
}
END_TEST

START_TEST(nodes_can_be_inspected) {
    const pass p = pass_new(0);
    forward(&p, images_of(1, BATCH));
    mla_node_info info;
    double flops = 0;
    int count = 0;
    for (; mla_tape_node(p.tape, count, &info); count++) {
        flops += info.flops;
        ck_assert_uint_ge(info.bytes, mla_tensor_count(&info.out) * sizeof(real));
        if (count == 0) ck_assert(strcmp(info.op, "patches") == 0 && info.param == -1);
        if (count == 1) {
            ck_assert_str_eq(info.op, "linear");
            ck_assert_str_eq(p.params->entry[info.param].name, "patch_embed.proj.weight");
            ck_assert_double_eq(info.flops, 2.0 * BATCH * 16 * 12 * 8);
        }
    }
    ck_assert_int_gt(count, 10);
    ck_assert(!mla_tape_node(p.tape, -1, &info));
    ck_assert_double_eq(flops, mla_tape_flops(p.tape));
    ck_assert_int_eq(mla_tape_not_finite(p.tape), -1);
    mla_model_free(p.model);
}
END_TEST

/* A weight that is not finite shows at the first value that it spoils, and that node names the parameter. */
START_TEST(the_first_value_that_is_not_finite) {
    const pass p = pass_new(_i);
    const int spoiled = mla_params_find(p.params, _i < KINDS ? "blocks.1.norm1.weight" : "stages.0.blocks.1.norm1.weight");
    p.params->value[p.params->entry[spoiled].offset + 2] = NAN;
    forward(&p, images_of(1, BATCH));
    mla_node_info info;
    ck_assert(mla_tape_node(p.tape, mla_tape_not_finite(p.tape), &info));
    ck_assert_str_eq(info.op, "layer_norm");
    ck_assert_int_eq(info.param, spoiled);
    mla_model_free(p.model);
}
END_TEST

/* ---- mistakes in the code stop the program */

static void misuse(int which) {
    static const int label = 5;
    mla_tape *tape = test_tape();
    const mla_tensor t = test_tensor(1, SHAPE(2, 3));
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var x = mla_tape_leaf(tape, t, test_reals(6)), image = mla_reshape(tape, x, 3, (size_t[]){1, 2, 3});
    const mla_var none = MLA_NO_VAR, view = mla_columns(tape, x, 1, 2), row = mla_reshape(tape, x, 2, (size_t[]){1, 6});
    switch (which) {
    case 0: mla_linear(tape, x, mla_tape_input(tape, test_tensor(2, SHAPE(4, 4))), none, none, MLA_IDENTITY); break;
    case 1: mla_columns(tape, x, 2, 2); break;
    case 2: mla_reshape(tape, view, 1, (size_t[]){4}); break;
    case 3: mla_reshape(tape, x, 1, (size_t[]){7}); break;
    case 4: mla_gelu(tape, view); break;
    case 5: mla_residual(tape, x, image, NULL); break;
    case 6: mla_softmax_attention(tape, image, image, image, 2); break;
    case 7: mla_cross_entropy(tape, row, &label, (const real[]){0}, 0); break;
    case 8: mla_cross_entropy(tape, mla_reshape(tape, x, 2, (size_t[]){2, 3}), (const int[]){0, 3}, NULL, 0); break;
    case 9: mla_tape_param(tape, 0); break;
    case 10: mla_value(tape, (mla_var){1000}); break;
    case 11: (void)!mla_tape_backward(tape, mla_tape_input(tape, t), t.data, &error); break;
    case 12: (void)!mla_tape_backward(tape, view, t.data, &error); break;
    case 13: mla_depthwise_conv(tape, image, mla_tape_input(tape, test_tensor(2, SHAPE(3, 1, 2, 2))), x, none, 1, 2); break;
    case 14: mla_op_get(MLA_OP_COUNT); break;
    default: break;
    }
}

START_TEST(misuse_stops_the_program) {
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
    misuse(_i);
}
END_TEST

START_TEST(use_does_not) { misuse(-1); }
END_TEST

/* ---- specs and starts */

static double deviation(const mla_params *params, const char *name) {
    const mla_param *e = &params->entry[mla_params_find(params, name)];
    double squares = 0;
    for (size_t i = 0; i < e->count; i++) squares += pow((double)params->value[e->offset + i], 2);
    return sqrt(squares / (double)e->count);
}

START_TEST(weights_at_the_start) {
    static const struct {
        const char *name;
        double deviation;
    } starts[] = {{"patch_embed.proj.weight", 0.288675},
                  {"patch_embed.proj.bias", 0},
                  {"pos_embed", 0.02},
                  {"blocks.0.norm1.weight", 1},
                  {"blocks.0.norm1.bias", 0},
                  {"blocks.0.attn.qkv.weight", 0.25},
                  {"blocks.0.attn.qkv.bias", 0},
                  {"blocks.0.attn.proj.weight", 0.25},
                  {"blocks.0.attn.dwconv.weight", 1.0 / 3},
                  {"blocks.0.attn.dwconv.bias", 0},
                  {"blocks.0.attn.block_v", 0.5},
                  {"blocks.0.attn.cross_v", 0.25},
                  {"blocks.0.attn.angle_a", 1},
                  {"blocks.0.attn.angle_c", 0},
                  {"blocks.0.mlp.fc1.weight", 0.25},
                  {"blocks.0.mlp.fc2.weight", 0.176777},
                  {"fc_norm.weight", 1},
                  {"head.weight", 0.02},
                  {"head.bias", 0}};
    mla_model_spec spec = spec_of(MLA_ATTENTION_MIRROR);
    spec.dims[0] = 16;
    spec.attention.mirror.block = 4;
    mla_model *model;
    mla_error error = {0};
    ck_assert(mla_model_new(&model, &spec, &error) == MLA_OK);
    mla_params_init(mla_model_params(model), 1);
    for (size_t i = 0; i < TEST_COUNT(starts); i++) {
        const double got = deviation(mla_model_params(model), starts[i].name), want = starts[i].deviation;
        ck_assert_msg(fabs(got - want) <= 0.2 * want, "%s: %g, expected %g", starts[i].name, got, want);
    }
    mla_model_free(model);
}
END_TEST

START_TEST(specs_that_make_no_model) {
    static const char *const part[] = {"stages", "classes", "dwconv", "heads", "patch", "block", "odd", "width", "grid"};
    mla_model_spec spec = spec_of(MLA_ATTENTION_MIRROR);
    switch (_i) {
    case 0: spec.stages = 2; break;
    case 1: spec.classes = 1; break;
    case 2: spec.attention.dwconv = 4; break;
    case 3: spec.heads[0] = 3; break;
    case 4: spec.patch = 3; break;
    case 5: spec.attention.mirror.block = 3; break;
    case 6:
        spec.heads[0] = 8;
        spec.attention.mirror.block = 0;
        break;
    case 7: spec.mlp_ratio = 0.1; break;
    default:
        spec = spec_of(KINDS + MLA_ATTENTION_MIRROR);
        spec.patch = 8;
        break;
    }
    mla_model *model;
    mla_error error = {0};
    ck_assert(mla_model_new(&model, &spec, &error) == MLA_INVALID);
    ck_assert_ptr_null(model);
    ck_assert_msg(strstr(error.text, part[_i]) != NULL, "expected \"%s\" in: %s", part[_i], error.text);
}
END_TEST

START_TEST(shard_of_a_model) {
    mla_model_spec spec = {.image = 32, .patch = 4, .dims = {64}};
    ck_assert_int_eq(mla_model_auto_shard(&spec), 16); /* 64 tokens of 64 channels */
    spec.dims[0] = 192;
    ck_assert_int_eq(mla_model_auto_shard(&spec), 4);
    spec.image = 64;
    ck_assert_int_eq(mla_model_auto_shard(&spec), 1);
    spec.image = 16384;
    ck_assert_int_eq(mla_model_auto_shard(&spec), 1);
}
END_TEST

static void models(TCase *tcase) {
    tcase_add_loop_test(tcase, gradients_are_added_to_what_is_there, 0, MODELS);
    tcase_add_loop_test(tcase, no_allocation_after_the_first_rounds, 0, MODELS);
    tcase_add_test(tcase, no_allocation_when_memory_had_to_grow);
    tcase_add_loop_test(tcase, an_image_does_not_depend_on_its_batch, 0, MODELS);
    tcase_add_loop_test(tcase, drop_path_is_for_training_only, 0, MODELS);
    tcase_add_test(tcase, branches_are_dropped_independently);
    tcase_add_test(tcase, drop_path_grows_with_depth);
    tcase_add_test(tcase, weights_at_the_start);
    tcase_add_loop_test(tcase, tapes_on_two_threads, 0, MODELS);
    tcase_add_loop_test(tcase, models_pass_out_of_memory_through, 0, MODELS);
    tcase_add_loop_test(tcase, the_first_value_that_is_not_finite, 0, MODELS);
    tcase_add_loop_test(tcase, specs_that_make_no_model, 0, 9);
    tcase_add_test(tcase, shard_of_a_model);
}

static void tape(TCase *tcase) {
    tcase_add_test(tcase, a_layer_used_twice);
    tcase_add_test(tcase, views_of_views);
    tcase_add_test(tcase, values_that_do_not_matter);
    tcase_add_test(tcase, scratch_and_gradients_are_given_back);
    tcase_add_test(tcase, out_of_memory_is_remembered);
    tcase_add_test(tcase, nodes_can_be_inspected);
    tcase_add_loop_test_raise_signal(tcase, misuse_stops_the_program, SIGABRT, 0, 15);
    tcase_add_test(tcase, use_does_not);
}

int main(void) { return test_main("tape", (void (*const[])(TCase *)){models, tape}, 2); }
