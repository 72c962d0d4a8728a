/* Optimisers beyond single values: decay mask, clipping, weight average, chunks, threads. */

#include "optim/optimizer.h"
#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 1e-6 : 1e-13;

/* Three parameters; the first is longer than a chunk of the optimiser's loop, the second has an odd length. */
static mla_params params;
static const size_t counts[] = {40001, 7, 16};

static void setup(void) {
    static const char *const names[] = {"long.weight", "short.bias", "square.weight"};
    mla_error error = {0};
    params = (mla_params){0};
    for (int i = 0; i < 3; i++) mla_params_add(&params, names[i], 1, &counts[i], (mla_init){MLA_INIT_NORMAL, 1}, i != 1);
    ck_assert(mla_params_allocate(&params, &error) == MLA_OK);
    mla_params_init(&params, 4);
}

static void teardown(void) {
    mla_params_free(&params);
    test_release();
}

static mla_optimizer *optimizer_of(mla_optimizer_spec spec) {
    mla_optimizer *optimizer;
    mla_error error = {0};
    ck_assert_msg(mla_optimizer_new(&optimizer, &spec, &params, &error) == MLA_OK, "%s", error.text);
    return optimizer;
}

static const mla_optimizer_spec adamw = {.kind = MLA_ADAMW, .weight_decay = 0.1, .betas = {0.9, 0.99}, .eps = 1e-8};
static const mla_optimizer_spec nesterov = {.kind = MLA_SGD, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true};

/* Random where parameters are, zero in the gaps between them. */
static real *gradient_of(uint64_t seed) {
    real *gradient = mla_params_buffer(&params);
    test_adopt(gradient);
    for (int i = 0; i < 3; i++) {
        const real *values = test_normal(counts[i], seed + (uint64_t)i);
        memcpy(gradient + params.entry[i].offset, values, counts[i] * sizeof(real));
    }
    return gradient;
}

static real *copy_of(const real *values) {
    real *copy = test_reals(params.size);
    memcpy(copy, values, params.size * sizeof(real));
    return copy;
}

/* One value through n steps, by the formulas in the header. */
static double one_value(const mla_optimizer_spec *s, double w, double g, double lr, double decay, int steps) {
    double m = 0, v = 0;
    for (int n = 1; n <= steps; n++) {
        if (s->kind == MLA_SGD) {
            const double total = g + decay * w;
            m = s->momentum * m + total;
            w -= lr * (s->nesterov ? total + s->momentum * m : m);
            continue;
        }
        w -= lr * decay * w;
        m = s->betas[0] * m + (1 - s->betas[0]) * g;
        v = s->betas[1] * v + (1 - s->betas[1]) * g * g;
        w -= lr * (m / (1 - pow(s->betas[0], n))) / (sqrt(v / (1 - pow(s->betas[1], n))) + s->eps);
    }
    return w;
}

/* Every value of every parameter, decayed or not, with a clipping factor; gaps stay zero. */
START_TEST(every_value_is_updated_once) {
    const mla_optimizer_spec spec = _i ? adamw : nesterov;
    mla_optimizer *optimizer = optimizer_of(spec);
    real *gradient = gradient_of(10), *want = copy_of(params.value);
    for (int i = 0; i < 3; i++)
        for (size_t j = 0; j < counts[i]; j++) {
            const size_t at = params.entry[i].offset + j;
            want[at] = (real)one_value(&spec, (double)want[at], 0.5 * (double)gradient[at], 0.01, i == 1 ? 0 : 0.1, 4);
        }
    for (uint64_t n = 1; n <= 4; n++) mla_optimizer_step(optimizer, gradient, 0.01, 0.5, n);
    test_close("weights", params.value, want, params.size, 2 * CLOSE);
    mla_optimizer_free(optimizer);
}
END_TEST

START_TEST(state_of_a_kind) {
    mla_optimizer *plain = optimizer_of((mla_optimizer_spec){.kind = MLA_SGD}), *momentum = optimizer_of(nesterov);
    mla_optimizer *adam = optimizer_of(adamw);
    ck_assert(!mla_optimizer_moment1(plain) && !mla_optimizer_moment2(plain) && !mla_optimizer_average(plain));
    ck_assert(mla_optimizer_moment1(momentum) && !mla_optimizer_moment2(momentum));
    ck_assert(mla_optimizer_moment1(adam) && mla_optimizer_moment2(adam) && !mla_optimizer_average(adam));
    mla_optimizer_free(plain);
    mla_optimizer_free(momentum);
    mla_optimizer_free(adam);
    mla_optimizer_free(NULL);
}
END_TEST

START_TEST(norm_and_clipping) {
    mla_optimizer *optimizer = optimizer_of(adamw);
    real *gradient = gradient_of(20);
    double squares = 0;
    for (size_t i = 0; i < params.size; i++) squares += (double)gradient[i] * (double)gradient[i];
    const double norm = mla_gradient_norm(optimizer, gradient);
    ck_assert_double_eq_tol(norm / sqrt(squares), 1, 1e-13);
    ck_assert_double_eq(mla_clip_factor(norm, 0), 1);
    ck_assert_double_eq(mla_clip_factor(2, 4), 1);
    ck_assert_double_eq_tol(mla_clip_factor(4, 2), 0.5, 1e-6);
    ck_assert_double_eq_tol(mla_clip_factor(4, 2) * (4 + 1e-6), 2, 1e-15);
    ck_assert_double_eq(mla_clip_factor(0, 1), 1);
    gradient[params.entry[2].offset + 3] = NAN;
    ck_assert(isnan(mla_gradient_norm(optimizer, gradient)));
    mla_optimizer_free(optimizer);
}
END_TEST

/* d = min(ema, (1 + n) / (10 + n)) with warm-up: 2/11, 3/12, ... */
START_TEST(weight_average) {
    mla_optimizer_spec spec = adamw;
    spec.ema = 0.3;
    spec.ema_warmup = _i;
    mla_optimizer *optimizer = optimizer_of(spec);
    real *average = mla_optimizer_average(optimizer), *want = copy_of(params.value), *gradient = gradient_of(30);
    test_close("start", average, params.value, params.size, 0);
    for (uint64_t n = 1; n <= 5; n++) {
        const double warm = (1 + (double)n) / (10 + (double)n), d = _i && warm < 0.3 ? warm : 0.3;
        mla_optimizer_step(optimizer, gradient, 0.05, 1, n);
        for (size_t i = 0; i < params.size; i++) want[i] = (real)(d * (double)want[i] + (1 - d) * (double)params.value[i]);
        test_close("average", average, want, params.size, 2 * CLOSE);
    }
    ck_assert_double_gt(test_error(average, params.value, params.size), 1e-3);
    mla_optimizer_free(optimizer);
}
END_TEST

/* Weights, moments and norm have the same bits on one thread and on three. */
START_TEST(threads_do_not_change_a_bit) {
    real *start = copy_of(params.value), *gradient = gradient_of(40), *weights[2], *moments[2];
    double norm[2];
    for (int run = 0; run < 2; run++) {
        memcpy(params.value, start, params.size * sizeof(real));
        mla_optimizer_spec spec = adamw;
        spec.threads = run ? 3 : 1;
        mla_optimizer *optimizer = optimizer_of(spec);
        norm[run] = mla_gradient_norm(optimizer, gradient);
        for (uint64_t n = 1; n <= 3; n++) mla_optimizer_step(optimizer, gradient, 0.01, mla_clip_factor(norm[run], 1), n);
        weights[run] = copy_of(params.value);
        moments[run] = copy_of(mla_optimizer_moment2(optimizer));
        mla_optimizer_free(optimizer);
    }
    ck_assert(norm[0] == norm[1]);
    ck_assert_mem_eq(weights[0], weights[1], params.size * sizeof(real));
    ck_assert_mem_eq(moments[0], moments[1], params.size * sizeof(real));
}
END_TEST

/* Moments put back by hand continue as if nothing had happened, which is what resuming relies on. */
START_TEST(continuing_from_kept_state) {
    real *gradient = gradient_of(50);
    mla_optimizer *optimizer = optimizer_of(adamw);
    for (uint64_t n = 1; n <= 2; n++) mla_optimizer_step(optimizer, gradient, 0.01, 1, n);
    real *weights = copy_of(params.value), *first = copy_of(mla_optimizer_moment1(optimizer));
    real *second = copy_of(mla_optimizer_moment2(optimizer));
    mla_optimizer_step(optimizer, gradient, 0.01, 1, 3);
    real *want = copy_of(params.value);
    mla_optimizer_free(optimizer);
    memcpy(params.value, weights, params.size * sizeof(real));
    optimizer = optimizer_of(adamw);
    memcpy(mla_optimizer_moment1(optimizer), first, params.size * sizeof(real));
    memcpy(mla_optimizer_moment2(optimizer), second, params.size * sizeof(real));
    mla_optimizer_step(optimizer, gradient, 0.01, 1, 3);
    test_close("weights", params.value, want, params.size, 0);
    mla_optimizer_free(optimizer);
}
END_TEST

/* A fixed tensor is in no norm, and neither it nor its average moves, whatever stands in its gradient. */
START_TEST(what_is_fixed_stays) {
    mla_params_fix(&params, 0);
    mla_optimizer_spec spec = _i ? nesterov : adamw;
    spec.ema = 0.9;
    mla_optimizer *optimizer = optimizer_of(spec);
    const real *before = copy_of(params.value), *average = mla_optimizer_average(optimizer);
    real *gradient = gradient_of(1);
    const double norm = mla_gradient_norm(optimizer, gradient);
    memset(gradient, 0, counts[0] * sizeof(real));
    ck_assert_double_eq(norm, mla_gradient_norm(optimizer, gradient));
    for (size_t i = 0; i < counts[0]; i++) gradient[i] = 1;
    for (uint64_t n = 1; n <= 3; n++) mla_optimizer_step(optimizer, gradient, 0.1, 1, n);
    ck_assert_int_eq(memcmp(params.value, before, counts[0] * sizeof(real)), 0);
    ck_assert_int_eq(memcmp(average, before, counts[0] * sizeof(real)), 0);
    ck_assert(params.value[params.entry[1].offset] != before[params.entry[1].offset]);
    mla_optimizer_free(optimizer);
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, every_value_is_updated_once, 0, 2);
    tcase_add_test(tcase, state_of_a_kind);
    tcase_add_test(tcase, norm_and_clipping);
    tcase_add_loop_test(tcase, weight_average, 0, 2);
    tcase_add_loop_test(tcase, what_is_fixed_stays, 0, 2);
    tcase_add_test(tcase, threads_do_not_change_a_bit);
    tcase_add_test(tcase, continuing_from_kept_state);
}

int main(void) { return test_main("optimizer", (void (*const[])(TCase *)){all}, 1); }
