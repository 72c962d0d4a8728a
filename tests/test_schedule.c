/* Learning rates, value by value. */
#include "optim/schedule.h"
#include "tests/support.h"

/* 10 epochs of 4 steps: 40 steps, the first 8 of them warm-up. */
static const mla_schedule base = {.lr = 1.0,
                                  .min_lr = 0.1,
                                  .warmup_epochs = 2,
                                  .warmup_lr = 0.2,
                                  .step_epochs = 3,
                                  .step_factor = 0.5,
                                  .warmup_prefix = true,
                                  .epochs = 10,
                                  .steps_per_epoch = 4};
enum { STEPS = 40, WARM = 8 };

static mla_schedule schedule_of(mla_schedule_kind kind) {
    mla_schedule s = base;
    s.kind = kind;
    return s;
}

static void expect_lr(const mla_schedule *s, uint64_t step, double want) {
    const double got = mla_schedule_lr(s, step);
    ck_assert_msg(fabs(got - want) < 1e-14, "kind %d, step %llu: %.17g, expected %.17g", (int)s->kind,
                  (unsigned long long)step, got, want);
}

/* The rate after `done` of `rest` steps of the schedule proper. */
static double proper(mla_schedule_kind kind, double done, double rest) {
    const double x = done / rest < 1 ? done / rest : 1;
    switch (kind) {
    case MLA_SCHEDULE_CONSTANT: return 1;
    case MLA_SCHEDULE_STEP: return pow(0.5, floor(done / 12));
    case MLA_SCHEDULE_LINEAR: return 1 - 0.9 * x;
    case MLA_SCHEDULE_COSINE: return 0.1 + 0.45 * (1 + cos(M_PI * x));
    }
    return NAN;
}

START_TEST(every_step) {
    const mla_schedule s = schedule_of((mla_schedule_kind)_i);
    for (uint64_t t = 0; t < STEPS + 20; t++)
        expect_lr(&s, t, t < WARM ? 0.2 + 0.1 * (double)(t + 1) : proper(s.kind, (double)(t - WARM), STEPS - WARM));
}
END_TEST

/* The known values themselves, so that a common mistake of formula and test shows. */
START_TEST(known_values) {
    const mla_schedule constant = schedule_of(MLA_SCHEDULE_CONSTANT), step = schedule_of(MLA_SCHEDULE_STEP);
    const mla_schedule linear = schedule_of(MLA_SCHEDULE_LINEAR), cosine = schedule_of(MLA_SCHEDULE_COSINE);
    expect_lr(&constant, 0, 0.3);
    expect_lr(&constant, 39, 1);
    expect_lr(&step, 19, 1);
    expect_lr(&step, 20, 0.5);
    expect_lr(&step, 32, 0.25);
    expect_lr(&linear, 24, 0.55);
    expect_lr(&linear, 39, 0.1 + 0.9 / 32);
    expect_lr(&cosine, 24, 0.55);
    expect_lr(&cosine, 16, 0.1 + 0.45 * (1 + 1 / sqrt(2)));
    expect_lr(&cosine, 39, 0.1 + 0.45 * (1 - cos(M_PI / 32)));
}
END_TEST

/* The warm-up ends at the rate where the schedule starts, and no step after it rises or jumps. */
START_TEST(warmup_joins_without_a_jump) {
    for (int kind = MLA_SCHEDULE_CONSTANT; kind <= MLA_SCHEDULE_COSINE; kind++) {
        const mla_schedule s = schedule_of((mla_schedule_kind)kind);
        expect_lr(&s, WARM - 1, 1);
        expect_lr(&s, WARM, 1);
        for (uint64_t t = WARM; t < STEPS; t++) ck_assert_double_le(mla_schedule_lr(&s, t + 1), mla_schedule_lr(&s, t));
        ck_assert_double_lt(mla_schedule_lr(&s, WARM) - mla_schedule_lr(&s, WARM + 1), 0.03);
    }
}
END_TEST

/* Without the prefix the clock has run during the warm-up: the curve then starts part of the way down. */
START_TEST(clock_that_runs_during_the_warmup) {
    for (int kind = MLA_SCHEDULE_CONSTANT; kind <= MLA_SCHEDULE_COSINE; kind++) {
        mla_schedule s = schedule_of((mla_schedule_kind)kind);
        s.warmup_prefix = false;
        for (uint64_t t = 0; t < STEPS + 5; t++)
            expect_lr(&s, t, t < WARM ? 0.2 + 0.1 * (double)(t + 1) : proper(s.kind, (double)t, STEPS));
    }
    mla_schedule cosine = schedule_of(MLA_SCHEDULE_COSINE);
    cosine.warmup_prefix = false;
    expect_lr(&cosine, WARM, 0.1 + 0.45 * (1 + cos(M_PI / 5)));
    expect_lr(&cosine, 20, 0.55);
}
END_TEST

START_TEST(no_warmup) {
    for (int kind = MLA_SCHEDULE_CONSTANT; kind <= MLA_SCHEDULE_COSINE; kind++) {
        mla_schedule s = schedule_of((mla_schedule_kind)kind);
        s.warmup_epochs = 0;
        for (int prefix = 0; prefix < 2; prefix++) {
            s.warmup_prefix = prefix;
            for (uint64_t t = 0; t < STEPS; t++) expect_lr(&s, t, proper(s.kind, (double)t, STEPS));
        }
    }
}
END_TEST

/* Half a step is rounded to whole steps; a warm-up of one step is at lr at once. */
START_TEST(warmup_of_part_of_an_epoch) {
    mla_schedule s = schedule_of(MLA_SCHEDULE_LINEAR);
    s.warmup_epochs = 0.6; /* 2.4 steps: 2 */
    expect_lr(&s, 0, 0.6);
    expect_lr(&s, 1, 1);
    expect_lr(&s, 2, 1);
    expect_lr(&s, 21, 0.55);
    s.warmup_epochs = 0.25;
    expect_lr(&s, 0, 1);
    expect_lr(&s, 1, 1);
}
END_TEST

/* Warm-up throughout: nothing is left for the schedule proper, and nothing divides by zero. */
START_TEST(warmup_to_the_end) {
    for (int kind = MLA_SCHEDULE_CONSTANT; kind <= MLA_SCHEDULE_COSINE; kind++) {
        mla_schedule s = schedule_of((mla_schedule_kind)kind);
        s.warmup_epochs = 10;
        expect_lr(&s, STEPS - 1, 1);
        for (uint64_t t = 0; t < STEPS + 5; t++) ck_assert(isfinite(mla_schedule_lr(&s, t)));
    }
}
END_TEST

START_TEST(far_beyond_the_end) {
    const mla_schedule linear = schedule_of(MLA_SCHEDULE_LINEAR), cosine = schedule_of(MLA_SCHEDULE_COSINE);
    const uint64_t late[] = {STEPS, STEPS + 1, 1000000, UINT64_C(1) << 62};
    for (size_t i = 0; i < TEST_COUNT(late); i++) {
        expect_lr(&linear, late[i], 0.1);
        expect_lr(&cosine, late[i], 0.1);
    }
}
END_TEST

/* A pure function: asked in any order, and of a copy, it gives the same bits. */
START_TEST(order_does_not_matter) {
    const mla_schedule s = schedule_of(MLA_SCHEDULE_COSINE), copy = s;
    double forward[STEPS];
    for (uint64_t t = 0; t < STEPS; t++) forward[t] = mla_schedule_lr(&s, t);
    for (uint64_t t = STEPS; t-- > 0;) ck_assert(mla_schedule_lr(&copy, t) == forward[t]);
    ck_assert(memcmp(&s, &copy, sizeof s) == 0);
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_loop_test(tcase, every_step, MLA_SCHEDULE_CONSTANT, MLA_SCHEDULE_COSINE + 1);
    tcase_add_test(tcase, known_values);
    tcase_add_test(tcase, warmup_joins_without_a_jump);
    tcase_add_test(tcase, clock_that_runs_during_the_warmup);
    tcase_add_test(tcase, no_warmup);
    tcase_add_test(tcase, warmup_of_part_of_an_epoch);
    tcase_add_test(tcase, warmup_to_the_end);
    tcase_add_test(tcase, far_beyond_the_end);
    tcase_add_test(tcase, order_does_not_matter);
}

int main(void) { return test_main("schedule", (void (*const[])(TCase *)){all}, 1); }
