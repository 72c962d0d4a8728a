/* The profiler of a tape, and the FLOPs that it and `inspect` count. */
#include "autograd/profile.h"
#include "layers/model.h"
#include "tests/support.h"
#include "train/lanes.h"
#include "train/stand_in.h"

/* ---- FLOPs: multiply-adds times two of matrix products and convolutions of one image */

/* Counted by hand, layer by layer, from the formulas of docs/math.md. */
typedef struct counted {
    const char *model;
    double flops[MLA_ATTENTION_KINDS];
    mla_model_spec spec;
} counted;

static const counted models[] = {
    {"pvt_nano",
     {[MLA_ATTENTION_SOFTMAX] = 252580864,
      [MLA_ATTENTION_RELU] = 223384576,
      [MLA_ATTENTION_ELU1] = 223384576,
      [MLA_ATTENTION_PERFORMER] = 279187456,
      [MLA_ATTENTION_COSFORMER] = 232969216,
      [MLA_ATTENTION_FOCUSED] = 223384576,
      [MLA_ATTENTION_POLA] = 250041344,
      [MLA_ATTENTION_EFFICIENT] = 223237120,
      [MLA_ATTENTION_INLINE] = 223237120,
      [MLA_ATTENTION_AGENT] = 219108352,
      [MLA_ATTENTION_MIRROR] = 225154048},
     {.family = MLA_FAMILY_PVT,
      .image = 32,
      .patch = 2,
      .stages = 3,
      .dims = {64, 128, 256},
      .depths = {2, 4, 2},
      .heads = {2, 4, 8}}},
    {"vit_tiny",
     {[MLA_ATTENTION_SOFTMAX] = 539102976,
      [MLA_ATTENTION_RELU] = 530697984,
      [MLA_ATTENTION_ELU1] = 530697984,
      [MLA_ATTENTION_PERFORMER] = 614402304,
      [MLA_ATTENTION_COSFORMER] = 545074944,
      [MLA_ATTENTION_FOCUSED] = 530697984,
      [MLA_ATTENTION_POLA] = 587984640,
      [MLA_ATTENTION_EFFICIENT] = 530476800,
      [MLA_ATTENTION_INLINE] = 530476800,
      [MLA_ATTENTION_AGENT] = 524283648,
      [MLA_ATTENTION_MIRROR] = 533352192},
     {.family = MLA_FAMILY_VIT, .image = 32, .patch = 4, .stages = 1, .dims = {192}, .depths = {9}, .heads = {6}}},
    {"vit_long",
     {[MLA_ATTENTION_SOFTMAX] = 3761244672,
      [MLA_ATTENTION_RELU] = 1708132864,
      [MLA_ATTENTION_ELU1] = 1708132864,
      [MLA_ATTENTION_PERFORMER] = 2104953344,
      [MLA_ATTENTION_COSFORMER] = 1776290304,
      [MLA_ATTENTION_FOCUSED] = 1708132864,
      [MLA_ATTENTION_POLA] = 1912605184,
      [MLA_ATTENTION_EFFICIENT] = 1707084288,
      [MLA_ATTENTION_INLINE] = 1707084288,
      [MLA_ATTENTION_AGENT] = 1677724160,
      [MLA_ATTENTION_MIRROR] = 1720715776},
     {.family = MLA_FAMILY_VIT, .image = 64, .patch = 2, .stages = 1, .dims = {128}, .depths = {4}, .heads = {4}}},
};
enum { MODELS = sizeof models / sizeof models[0], KINDS = MLA_ATTENTION_KINDS };

static mla_model *model_of(const counted *m, mla_attention_kind kind) {
    mla_config config;
    mla_model_spec spec = m->spec;
    mla_model *model;
    mla_error error = {0};
    mla_config_defaults(&config);
    spec.channels = 3;
    spec.classes = 10;
    spec.mlp_ratio = 4;
    spec.norm_eps = config.model.norm_eps;
    spec.attention = config.model.attention;
    for (int i = 0; i < spec.stages; i++) spec.kinds[i] = kind;
    spec.attention.dwconv = 5;
    spec.attention.agent.side = 3;
    ck_assert_msg(mla_model_new(&model, &spec, &error) == MLA_OK, "%s", error.text);
    mla_params_init(mla_model_params(model), 0);
    return model;
}

START_TEST(flops_are_those_counted_by_hand) {
    const counted *m = &models[_i / KINDS];
    const mla_attention_kind kind = (mla_attention_kind)(_i % KINDS);
    mla_model *model = model_of(m, kind);
    const mla_params *params = mla_model_params(model);
    const size_t side = (size_t)m->spec.image;
    mla_tape *tape = test_tape();
    const mla_tensor image = test_tensor(1, SHAPE(1, 3, side, side));
    mla_tape_begin(tape, params, params->value, NULL);
    mla_model_forward(model, tape, mla_tape_input(tape, image), &(mla_forward){0});
    ck_assert_msg(mla_tape_flops(tape) == m->flops[kind], "%s, kind %d: %.0f FLOPs, counted by hand %.0f", m->model, kind,
                  mla_tape_flops(tape), m->flops[kind]);
    mla_model_free(model);
}
END_TEST

/* ---- the profile */

enum { ROWS = 6, IN = 4, OUT = 5 };

static void two_linear_layers(mla_tape *tape, real *gradient) {
    mla_tensor x = test_tensor(1, SHAPE(ROWS, IN)), w = test_tensor(2, SHAPE(OUT, IN)), u = test_tensor(3, SHAPE(OUT, OUT));
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var first =
        mla_linear(tape, mla_tape_input(tape, x), mla_tape_leaf(tape, w, gradient), MLA_NO_VAR, MLA_NO_VAR, MLA_IDENTITY);
    const mla_var second = mla_linear(tape, first, mla_tape_input(tape, u), MLA_NO_VAR, MLA_NO_VAR, MLA_IDENTITY);
    ck_assert(mla_tape_backward(tape, mla_gelu(tape, second), test_normal(ROWS * OUT, 4), &error) == MLA_OK);
}

START_TEST(calls_flops_and_bytes_are_counted) {
    mla_profile profile = {0};
    real *gradient = test_reals(OUT * IN);
    mla_tape *tape = test_tape();
    two_linear_layers(tape, gradient);
    mla_tape_profile(tape, &profile);
    for (int round = 0; round < 3; round++) two_linear_layers(tape, gradient);
    mla_tape_profile(tape, NULL);
    two_linear_layers(tape, gradient);
    const mla_profile_row *forward = &profile.forward[MLA_OP_LINEAR], *backward = &profile.backward[MLA_OP_LINEAR];
    ck_assert_uint_eq(forward->calls, 6);
    ck_assert_uint_eq(backward->calls, 6);
    ck_assert_uint_gt(forward->ns, 0);
    ck_assert_uint_gt(backward->ns, 0);
    const double flops = 3 * 2.0 * ROWS * (IN * OUT + OUT * OUT);
    ck_assert(forward->flops == flops && backward->flops == 2 * flops);
    const size_t read = ROWS * IN + OUT * IN + ROWS * OUT + OUT * OUT, written = 2 * ROWS * OUT;
    ck_assert_uint_eq(forward->bytes, 3 * (read + written) * sizeof(real));
    /* Gradients of both outputs, of the first weight and of the second input. */
    const size_t gradients = 2 * ROWS * OUT + OUT * IN + ROWS * OUT;
    ck_assert_uint_eq(backward->bytes, 3 * (read + written + gradients) * sizeof(real));
    ck_assert_uint_eq(profile.forward[MLA_OP_GELU].calls, 3);
    ck_assert(profile.forward[MLA_OP_GELU].flops == 0);
    ck_assert_uint_eq(profile.forward[MLA_OP_LAYER_NORM].calls, 0);
    mla_profile sum = profile;
    mla_profile_sum(&sum, &profile);
    ck_assert_uint_eq(sum.forward[MLA_OP_LINEAR].calls, 12);
    ck_assert_uint_eq(sum.backward[MLA_OP_LINEAR].ns, 2 * backward->ns);
}
END_TEST

START_TEST(own_operations_have_the_last_row) {
    mla_profile profile = {0};
    mla_tape *tape = test_tape();
    mla_op own = *mla_op_get(MLA_OP_GELU);
    mla_tape_profile(tape, &profile);
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var x = mla_tape_input(tape, test_tensor(1, SHAPE(2, 3)));
    mla_record_op(tape, &own, (mla_var[MLA_MAX_INPUTS]){x, MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR}, NULL, 0);
    ck_assert_uint_eq(profile.forward[MLA_OP_COUNT].calls, 1);
    ck_assert_uint_eq(profile.forward[MLA_OP_GELU].calls, 0);
    ck_assert_str_eq(mla_profile_name(MLA_OP_COUNT), "(own)");
    ck_assert_str_eq(mla_profile_name(MLA_OP_GELU), "gelu");
}
END_TEST

/* ---- the engine's */

/* A step of 20 images on any number of threads: the operations of all shards, three times forward's FLOPs. */
START_TEST(an_engine_adds_up_its_threads) {
    const int threads = _i;
    mla_config config;
    mla_error error = {0};
    mla_config_defaults(&config);
    config.data.set = MLA_SET_TWINS;
    ck_assert(mla_config_fill_from_data(&config, &error) == MLA_OK);
    config.model.dims[0] = 16, config.model.depths[0] = 2, config.model.heads[0] = 2;
    mla_model *model;
    mla_engine *engine;
    mla_stand_in images;
    ck_assert_msg(mla_model_new(&model, &config.model, &error) == MLA_OK, "%s", error.text);
    mla_params_init(mla_model_params(model), 0);
    ck_assert(mla_engine_new(&engine, model, &(mla_engine_options){threads, 4, 3}, &error) == MLA_OK);
    ck_assert(mla_stand_in_open(&images, &config, &error) == MLA_OK);
    const mla_image_source source = mla_stand_in_source(&images);
    mla_batch_result result;
    mla_engine_profile profile;
    ck_assert(mla_engine_gradient(engine, &source, 20, 0.1, &result, &error) == MLA_OK);
    mla_engine_profile_take(engine, &profile);
    ck_assert_uint_eq(profile.operations.forward[MLA_OP_LINEAR].calls, 0);
    mla_engine_profile_set(engine, true);
    ck_assert(mla_engine_gradient(engine, &source, 20, 0.1, &result, &error) == MLA_OK);
    mla_engine_profile_take(engine, &profile);
    const uint64_t shards = 7, linear = 2 * 4 + 2; /* of each block, and the embedding and the head */
    ck_assert_uint_eq(profile.operations.forward[MLA_OP_LINEAR].calls, shards * linear);
    ck_assert_uint_eq(profile.operations.backward[MLA_OP_LINEAR].calls, shards * linear);
    uint64_t forward_ns = 0, backward_ns = 0;
    for (int i = 0; i <= MLA_OP_COUNT; i++) {
        const mla_profile_row *f = &profile.operations.forward[i], *b = &profile.operations.backward[i];
        ck_assert_msg(b->flops == 2 * f->flops, "%s", mla_profile_name(i));
        forward_ns += f->ns;
        backward_ns += b->ns;
    }
    ck_assert_uint_ge(profile.ns[MLA_PART_FORWARD], forward_ns);
    ck_assert_uint_ge(profile.ns[MLA_PART_BACKWARD], backward_ns);
    ck_assert_uint_gt(profile.ns[MLA_PART_LOAD], 0);
    ck_assert_uint_gt(profile.ns[MLA_PART_SUM], 0);
    mla_engine_profile_take(engine, &profile);
    ck_assert_uint_eq(profile.ns[MLA_PART_FORWARD], 0);
    const mla_engine_memory memory = mla_engine_memory_of(engine);
    ck_assert_uint_eq(memory.loading, (size_t)threads * 3 * 3 * 32 * 32 * sizeof(real));
    ck_assert(memory.tape > 0 && memory.tapes >= memory.tape && memory.tapes <= (size_t)threads * memory.tape);
    mla_stand_in_close(&images);
    mla_engine_free(engine);
    mla_model_free(model);
}
END_TEST

static void flops_cases(TCase *c) { tcase_add_loop_test(c, flops_are_those_counted_by_hand, 0, MODELS * KINDS); }
static void profile_cases(TCase *c) {
    tcase_add_test(c, calls_flops_and_bytes_are_counted);
    tcase_add_test(c, own_operations_have_the_last_row);
    tcase_add_loop_test(c, an_engine_adds_up_its_threads, 1, 4);
}

int main(void) {
    void (*const cases[])(TCase *) = {flops_cases, profile_cases};
    return test_main("profile", cases, TEST_COUNT(cases));
}
