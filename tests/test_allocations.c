/* After the first step, a training step allocates nothing: reading, augmenting, forward, backward, summing, updating.
 *
 * The linker sends every allocation of the project's own code through the counters below (--wrap). */
#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "core/gemm.h"
#include "optim/optimizer.h"
#include "train/loader.h"

static atomic_ulong allocations;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, bytes);
}
void *__wrap_realloc(void *memory, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(alignment, bytes);
}

typedef struct trainer {
    mla_config config;
    mla_dataset *dataset;
    mla_model *model;
    mla_engine *engine;
    mla_optimizer *optimizer;
} trainer;

static void check_ok(mla_status status, const mla_error *error) { ck_assert_msg(status == MLA_OK, "%s", error->text); }

static void setup(trainer *t, mla_attention_kind kind) {
    mla_error error = {0};
    mla_config_defaults(&t->config);
    t->config.data.set = MLA_SET_TWINS;
    t->config.data.twins_train = 256;
    t->config.model.kinds[0] = kind;
    t->config.model.drop_path = 0.2;
    check_ok(mla_dataset_open(&t->dataset, &t->config.data, MLA_SPLIT_TRAIN, 0, &error), &error);
    t->config.model.image = 32;
    t->config.model.classes = 10;
    check_ok(mla_model_new(&t->model, &t->config.model, &error), &error);
    mla_params_init(mla_model_params(t->model), 0);
    check_ok(mla_engine_new(&t->engine, t->model, &(mla_engine_options){.threads = 2, .lanes = 4, .shard = 3}, &error),
             &error);
    const mla_optimizer_spec spec = {
        .kind = MLA_ADAMW, .weight_decay = 0.05, .betas = {0.9, 0.999}, .eps = 1e-8, .ema = 0.99, .threads = 2};
    check_ok(mla_optimizer_new(&t->optimizer, &spec, mla_model_params(t->model), &error), &error);
}

static void teardown(trainer *t) {
    mla_optimizer_free(t->optimizer);
    mla_engine_free(t->engine);
    mla_model_free(t->model);
    mla_dataset_close(t->dataset);
}

/* No assertion in here: Check allocates for each. */
static mla_status step(trainer *t, uint64_t n) {
    mla_loader loader = {.dataset = t->dataset, .augment = &t->config.augment, .std = {1, 1, 1}, .epoch = n, .batch = 32};
    const mla_image_source source = mla_loader_source(&loader);
    mla_batch_result result;
    const mla_status status = mla_engine_gradient(t->engine, &source, 32, 0.1, &result, NULL);
    if (status != MLA_OK) return status;
    const double norm = mla_gradient_norm(t->optimizer, result.gradient);
    mla_optimizer_step(t->optimizer, result.gradient, 1e-3, mla_clip_factor(norm, 1), n + 1);
    return MLA_OK;
}

static void expect_no_allocation(trainer t) {
    ck_assert_int_eq(step(&t, 0), MLA_OK);
    ck_assert_uint_gt(atomic_load(&allocations), 0);
    const size_t engine_before = mla_engine_allocations(t.engine);
    mla_status status = MLA_OK;
    const unsigned long start = atomic_load(&allocations);
    for (uint64_t n = 1; status == MLA_OK && n < 6; n++) status = step(&t, n);
    const unsigned long end = atomic_load(&allocations);
    ck_assert_int_eq(status, MLA_OK);
    ck_assert_uint_eq(end, start);
    ck_assert_uint_eq(mla_engine_allocations(t.engine), engine_before);
    teardown(&t);
}

START_TEST(no_allocation_after_the_first_step) {
    trainer t = {0};
    setup(&t, (mla_attention_kind)_i);
    expect_no_allocation(t);
}
END_TEST

START_TEST(no_allocation_with_recipes) {
    trainer t = {0};
    setup(&t, MLA_ATTENTION_MIRROR);
    mla_augment_config *a = &t.config.augment;
    a->randaug.n = 3, a->color_jitter = 0.4, a->force_color_jitter = true, a->erase = 1, a->mixup = 0.8, a->cutmix = 1;
    expect_no_allocation(t);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("allocations");
    TCase *cases = tcase_create("training step");
    tcase_add_loop_test(cases, no_allocation_after_the_first_step, MLA_ATTENTION_SOFTMAX, MLA_ATTENTION_KINDS);
    tcase_add_test(cases, no_allocation_with_recipes);
    suite_add_tcase(suite, cases);
    mla_gemm_setup();
    return run_suite(suite);
}
