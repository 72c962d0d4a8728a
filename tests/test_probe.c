/* What a probe computes, against the operations' own results and against dense sums. */
#include "layers/measure.h"
#include "layers/model.h"
#include "layers/probe.h"
#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 2e-5 : 1e-11;
enum { IMAGES = 2, SIDE = 20, TOKENS = 100 };

/* A pass of two images through a small model of a kind. */
typedef struct pass {
    mla_model *model;
    mla_tape *tape;
    mla_probe probe;
    mla_var logits;
} pass;

static const mla_mirror_spec usual = {
    .block = 2, .reflections = 3, .variance_angle = true, .angle_max = 1.5, .angle_gain = 1, .cross_head = 3};

static void run_spec(pass *p, const mla_model_spec *spec) {
    mla_error error = {0};
    ck_assert_msg(mla_model_new(&p->model, spec, &error) == MLA_OK, "%s", error.text);
    mla_params *params = mla_model_params(p->model);
    test_randomise(params, 5, 0.3);
    p->tape = test_tape();
    p->probe = (mla_probe){0};
    mla_tape_begin(p->tape, params, params->value, NULL);
    const mla_var images = mla_tape_input(p->tape, test_tensor(6, SHAPE(IMAGES, 3, SIDE, SIDE)));
    p->logits = mla_model_forward(p->model, p->tape, images, &(mla_forward){.probe = &p->probe});
}

static void run_kind(pass *p, mla_attention_kind kind, const mla_mirror_spec *mirror) {
    const mla_model_spec spec = {
        .family = MLA_FAMILY_PVT,
        .image = SIDE,
        .channels = 3,
        .classes = 5,
        .patch = 2,
        .stages = 2,
        .dims = {24, 32},
        .depths = {1, 2},
        .heads = {2, 4},
        .mlp_ratio = 2,
        .norm_eps = 1e-6,
        .kinds = {kind, kind},
        .attention = {.focused_factor = 3, .dwconv = 3, .qkv_bias = true, .eps = 1e-6, .agent = {3}, .mirror = *mirror}};
    run_spec(p, &spec);
}

static void end_pass(pass *p) {
    mla_probe_free(&p->probe);
    mla_model_free(p->model);
}

static mla_view view_of(pass *p, int layer, size_t image) {
    mla_view view;
    mla_error error = {0};
    ck_assert_msg(mla_view_open(&view, &p->probe, layer, image, p->tape, &error) == MLA_OK, "%s", error.text);
    return view;
}

static mla_var param(pass *p, int index) { return mla_tape_param(p->tape, index); }

/* A stage of one image against an operation's result for all images. */
static void same_stage(const char *what, pass *p, const mla_view *view, mla_mirror_stage stage, mla_var whole,
                       size_t image) {
    const mla_tensor t = mla_value(p->tape, whole);
    const size_t width = 2 * view->channels;
    for (size_t n = 0; n < view->tokens; n++)
        test_scaled_close(what, view->qk[stage] + n * width, t.data + (image * view->tokens + n) * t.stride, width, CLOSE);
}

START_TEST(stages_are_those_of_the_operations) {
    pass p;
    run_kind(&p, MLA_ATTENTION_MIRROR, &usual);
    ck_assert_int_eq(p.probe.layers, 3);
    for (int i = 0; i < p.probe.layers; i++) {
        const mla_attention *a = p.probe.layer[i].attention;
        const mla_var x = p.probe.layer[i].x, v = param(&p, a->block_v), w = param(&p, a->qkv.weight);
        const mla_var bias = param(&p, a->qkv.bias);
        const mla_var plain = mla_linear(p.tape, x, w, bias, MLA_NO_VAR, MLA_IDENTITY);
        const mla_var folded = mla_linear(p.tape, x, mla_block_reflect(p.tape, w, v), mla_block_reflect(p.tape, bias, v),
                                          MLA_NO_VAR, MLA_IDENTITY);
        const mla_var qk = mla_columns(p.tape, folded, 0, 2 * a->channels);
        const mla_var turned = mla_pair_angle(p.tape, qk, param(&p, a->angle_a), param(&p, a->angle_c), 1.5, false);
        const mla_var crossed = mla_cross_reflect(p.tape, turned, param(&p, a->cross_v));
        for (size_t image = 0; image < IMAGES; image++) {
            mla_view view = view_of(&p, i, image);
            same_stage("projection", &p, &view, MLA_BEFORE, mla_columns(p.tape, plain, 0, 2 * a->channels), image);
            same_stage("block", &p, &view, MLA_AFTER_BLOCK, qk, image);
            same_stage("angle", &p, &view, MLA_AFTER_ANGLE, turned, image);
            same_stage("cross", &p, &view, MLA_AFTER_CROSS, crossed, image);
            mla_view_close(&view);
        }
    }
    end_pass(&p);
}
END_TEST

/* q, k and v of the view as the core takes them: it turns q and k itself, all but the block isometry. */
static real *core_input(const mla_view *view) {
    const size_t c = view->channels;
    real *qkv = test_reals(3 * view->tokens * c);
    for (size_t n = 0; n < view->tokens; n++) {
        memcpy(qkv + n * 3 * c, view->qk[MLA_AFTER_BLOCK] + n * 2 * c, 2 * c * sizeof(real));
        memcpy(qkv + n * 3 * c + 2 * c, view->v + n * c, c * sizeof(real));
    }
    return qkv;
}

/* One layer of one image: y = A v, and what a token receives is the mean of A's column. */
static void check_attention(pass *p, int layer) {
    mla_view view = view_of(p, layer, 1);
    const mla_params *params = mla_model_params(p->model);
    const size_t n = view.tokens, parts = mla_measure_parts(view.attention), width = view.d / parts;
    real *qkv = core_input(&view), *a = test_reals(view.heads * parts * n * n), *received = test_reals(view.heads * n);
    mla_error error = {0};
    ck_assert(mla_measure_attention(a, view.attention, test_tape(), params, params->value, qkv, n, n, &error) == MLA_OK);
    ck_assert(mla_view_received(received, &view, false, &error) == MLA_OK);
    const mla_var in = mla_tape_input(p->tape, mla_tensor_make(qkv, 3, (size_t[]){1, n, 3 * view.channels}));
    const real *y = mla_value(p->tape, mla_attention_core(view.attention, p->tape, in)).data;
    real *row = test_reals(view.d), *mean = test_reals(n);
    for (size_t head = 0; head < view.heads; head++) {
        memset(mean, 0, n * sizeof *mean);
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            memset(row, 0, view.d * sizeof *row);
            for (size_t m = 0; m < n; m++)
                for (size_t c = 0; c < view.d; c++) {
                    const real share = a[((head * parts + c / width) * n + i) * n + m];
                    mean[m] += share / (real)view.d;
                    row[c] += share * view.v[m * view.channels + head * view.d + c];
                }
            test_scaled_close("y = A v", row, y + i * view.channels + head * view.d, view.d, 50 * CLOSE);
        }
        test_scaled_close("received", received + head * n, mean, n, 5 * CLOSE);
        for (size_t m = 0; m < n; m++) sum += (double)received[head * n + m] / (double)n;
        /* a query may be dead, or all but dead */
        const mla_attention_kind kind = view.attention->kind;
        ck_assert_double_gt(sum, kind == MLA_ATTENTION_SOFTMAX || kind == MLA_ATTENTION_ELU1 ? 0.9999 : 0.1);
        ck_assert_double_lt(sum, 1.0001);
    }
    real *heads = test_reals(n);
    for (size_t i = 0; i < view.heads * n; i++) heads[i % n] += received[i] / (real)view.heads;
    ck_assert(mla_view_received(received, &view, true, &error) == MLA_OK);
    test_scaled_close("mean of the heads", received, heads, n, CLOSE);
    mla_view_close(&view);
}

START_TEST(attention_of_every_kind) {
    pass p;
    run_kind(&p, (mla_attention_kind)_i, &usual);
    for (int i = 0; i < p.probe.layers; i++) check_attention(&p, i);
    ck_assert(mla_tape_status(p.tape, NULL) == MLA_OK);
    end_pass(&p);
}
END_TEST

START_TEST(attention_of_every_feature) {
    mla_mirror_spec mirror = usual;
    mirror.qk_norm = MLA_QK_NORM_RMS;
    mirror.angle_planes = MLA_PLANES_LEARNED;
    mirror.angle_source = MLA_ANGLE_OWN;
    mirror.fold = 2;
    mirror.feature = (mla_feature_kept)_i;
    pass p;
    run_kind(&p, MLA_ATTENTION_MIRROR, &mirror);
    for (int i = 0; i < p.probe.layers; i++) check_attention(&p, i);
    for (int side = MLA_SIDE_Q; side <= MLA_SIDE_K; side++) {
        mla_view view = view_of(&p, 1, 1);
        const double before = mla_view_kept(&view, MLA_AFTER_ANGLE, (mla_side)side, 1),
                     kept = mla_view_kept(&view, MLA_AFTER_CROSS, (mla_side)side, 1),
                     all = mla_view_kept(&view, MLA_AFTER_CROSS, (mla_side)side, MLA_ALL_HEADS);
        ck_assert(before > 0 && before < 1);
        if (_i == MLA_KEPT_SPLIT) { /* nothing is lost */
            ck_assert_double_eq_tol(kept, 1, CLOSE);
            ck_assert_double_eq_tol(all, 1, CLOSE);
        } else { /* as much as each of one or two maps of the same energy lets through */
            ck_assert(kept > 0 && kept < (_i == MLA_KEPT_TWIN ? 2 : 1));
            ck_assert(all > 0 && all < (_i == MLA_KEPT_TWIN ? 2 : 1));
        }
        mla_view_close(&view);
    }
    end_pass(&p);
}
END_TEST

START_TEST(parts_that_are_off_change_nothing) {
    const mla_model_spec spec = {.family = MLA_FAMILY_VIT,
                                 .image = SIDE,
                                 .channels = 3,
                                 .classes = 3,
                                 .patch = 2,
                                 .stages = 1,
                                 .dims = {8},
                                 .depths = {1},
                                 .heads = {2},
                                 .mlp_ratio = 1,
                                 .norm_eps = 1e-6,
                                 .kinds = {MLA_ATTENTION_MIRROR},
                                 .attention = {.eps = 1e-6, .mirror = {.reflections = 0}}};
    pass p;
    run_spec(&p, &spec);
    mla_view view = view_of(&p, 0, 0);
    for (int stage = MLA_AFTER_BLOCK; stage < MLA_MIRROR_STAGES; stage++)
        ck_assert_int_eq(memcmp(view.qk[stage], view.qk[MLA_BEFORE], 2 * TOKENS * 8 * sizeof(real)), 0);
    check_attention(&p, 0);
    mla_view_close(&view);
    end_pass(&p);
}
END_TEST

START_TEST(energy_that_relu_keeps) {
    /* two tokens, two heads of two channels: q = (3 -4 | 0 1), (0 0 | 2 -1), k = -q */
    real qk[] = {3, -4, 0, 1, -3, 4, 0, -1, 0, 0, 2, -1, 0, 0, -2, 1};
    mla_attention layer = {.kind = MLA_ATTENTION_MIRROR};
    const mla_view view = {.attention = &layer, .tokens = 2, .channels = 4, .heads = 2, .d = 2, .qk = {qk, qk, qk, qk}};
    ck_assert_double_eq_tol(mla_view_kept(&view, MLA_BEFORE, MLA_SIDE_Q, 0), 9.0 / 25, 1e-12);
    ck_assert_double_eq_tol(mla_view_kept(&view, MLA_BEFORE, MLA_SIDE_K, 0), 16.0 / 25, 1e-12);
    ck_assert_double_eq_tol(mla_view_kept(&view, MLA_BEFORE, MLA_SIDE_Q, 1), 5.0 / 6, 1e-12);
    ck_assert_double_eq_tol(mla_view_kept(&view, MLA_AFTER_CROSS, MLA_SIDE_Q, MLA_ALL_HEADS), 14.0 / 31, 1e-12);
    ck_assert(mla_view_is_relu(&view));
    layer.kind = MLA_ATTENTION_SOFTMAX;
    ck_assert(!mla_view_is_relu(&view));
}
END_TEST

START_TEST(evidence_adds_up_to_the_logit) {
    pass p;
    run_kind(&p, MLA_ATTENTION_RELU, &usual);
    const mla_tensor logits = mla_value(p.tape, p.logits), tokens = mla_value(p.tape, p.probe.tokens);
    const size_t n = tokens.shape[1], classes = logits.shape[1];
    real *evidence = test_reals(n);
    for (size_t image = 0; image < IMAGES; image++)
        for (size_t k = 0; k < classes; k++) {
            mla_error error = {0};
            double offset = 0, sum = 0, mean = 0;
            ck_assert(mla_probe_evidence(evidence, &offset, &p.probe, k, image, p.tape, &error) == MLA_OK);
            for (size_t i = 0; i < n; i++) sum += (double)evidence[i] / (double)n;
            for (size_t i = 0; i < classes; i++) mean += (double)logits.data[image * classes + i] / (double)classes;
            ck_assert_double_eq_tol(offset + sum, (double)logits.data[image * classes + k] - mean, CLOSE);
        }
    end_pass(&p);
}
END_TEST

static void add_cases(TCase *cases) {
    tcase_add_test(cases, stages_are_those_of_the_operations);
    tcase_add_loop_test(cases, attention_of_every_kind, MLA_ATTENTION_SOFTMAX, MLA_ATTENTION_KINDS);
    tcase_add_loop_test(cases, attention_of_every_feature, MLA_KEPT_RELU, MLA_KEPT_TWIN + 1);
    tcase_add_test(cases, parts_that_are_off_change_nothing);
    tcase_add_test(cases, energy_that_relu_keeps);
    tcase_add_test(cases, evidence_adds_up_to_the_logit);
}

int main(void) { return test_main("probe", (void (*const[])(TCase *)){add_cases}, 1); }
