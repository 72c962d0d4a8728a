/* The statistics of the ablation table against values from elsewhere: Student's own data, SciPy 1.10, R's p.adjust. */
#include <check.h>
#include <math.h>

#include "tests/run_suite.h"
#include "train/statistics.h"

static void expect_close(double found, double expected, double relative) {
    ck_assert_msg(fabs(found - expected) <= relative * fabs(expected), "found %.17g, expected %.17g", found, expected);
}

/* scipy.stats: 2 * t.sf(t, df) */
START_TEST(probabilities) {
    static const struct {
        double t;
        int df;
        double p;
    } known[] = {
        {4.062127683, 9, 0.0028328901990077341}, {0.1, 1, 0.93654896513889285},   {1.0, 1, 0.5},
        {12.706204736, 1, 0.05000000000068465},  {1e-09, 3, 0.9999999992648948},  {0.5, 2, 0.66666666666666674},
        {3.0, 2, 0.095465966266709112},          {2.5, 4, 0.066766544811988127},  {40, 4, 2.3340163226012694e-06},
        {1e6, 3, 2.2053155816792323e-18},        {2.0, 30, 0.054625044962983101}, {0.7, 100, 0.4855526064543737},
        {6, 1000, 2.7553691733774674e-09},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        expect_close(mla_student_p(known[i].t, known[i].df), known[i].p, 1e-12);
        expect_close(mla_student_p(-known[i].t, known[i].df), known[i].p, 1e-12);
    }
    /* Cauchy's distribution, in closed form */
    for (double t = 1e-6; t < 1e7; t *= 3) expect_close(mla_student_p(t, 1), 2 / acos(-1) * atan(1 / t), 1e-12);
    ck_assert(mla_student_p(0, 5) == 1);
    ck_assert(mla_student_p(INFINITY, 5) == 0);
    ck_assert(isnan(mla_student_p(NAN, 5)));
}
END_TEST

/* The roots of 2 * scipy.stats.t.sf(t, df) = p by optimize.brentq; t.isf itself is up to 2e-9 off. */
START_TEST(quantiles) {
    static const struct {
        double p;
        int df;
        double t;
    } known[] = {
        {0.05, 1, 12.7062047361747}, {0.05, 2, 4.30265272974946},    {0.05, 4, 2.77644510519779},
        {0.05, 9, 2.26215716279821}, {0.01, 3, 5.84090930973336},    {0.5, 7, 0.711141778081786},
        {1e-9, 5, 113.655051076413}, {0.05, 1000, 1.96233908082641},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        expect_close(mla_student_quantile(known[i].p, known[i].df), known[i].t, 1e-13);
}
END_TEST

/* Student (1908), Biometrika 6: additional hours of sleep by two drugs, ten patients. */
START_TEST(sleep) {
    static const double first[] = {0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
    static const double second[] = {1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};
    double difference[10];
    for (int i = 0; i < 10; i++) difference[i] = first[i] - second[i];
    const mla_paired r = mla_paired_test(difference, 10);
    const mla_sample s = mla_sample_of(difference, 10);
    ck_assert(r.tested && r.n == 10);
    expect_close(s.mean / (s.sd / sqrt(10)), -4.062127683382037, 1e-12);
    expect_close(r.p, 0.00283289019738427, 1e-10);
    expect_close(r.mean, -1.58, 1e-12);
    expect_close(r.low, -2.4598857632547286, 1e-10);
    expect_close(r.high, -0.7001142367452713, 1e-10);
}
END_TEST

START_TEST(few_and_equal) {
    static const double equal[] = {0.3, 0.1 + 0.2, 0.3}, zero[] = {0, 0, 0}, two[] = {1, 3};
    const mla_paired none = mla_paired_test(equal, 0), one = mla_paired_test(equal, 1), same = mla_paired_test(equal, 3),
                     nothing = mla_paired_test(zero, 3), pair = mla_paired_test(two, 2);
    ck_assert(!none.tested && isnan(none.mean) && isnan(none.p));
    ck_assert(!one.tested && one.mean == 0.3 && isnan(one.low) && isnan(one.p));
    ck_assert(!same.tested && isnan(same.p));
    ck_assert(!nothing.tested && nothing.mean == 0);
    /* df = 1: t = 2, p = 2/pi atan(1/2) */
    ck_assert(pair.tested);
    expect_close(pair.p, 2 / acos(-1) * atan(0.5), 1e-12);
    expect_close(pair.high, 2 + 12.706204736174705, 1e-10);
    ck_assert(isnan(mla_sample_of(two, 1).sd) && isnan(mla_sample_of(two, 0).mean));
    expect_close(mla_sample_of(two, 2).sd, sqrt(2), 1e-15);
}
END_TEST

/* R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") */
START_TEST(holm) {
    double p[] = {0.01, 0.04, 0.03, 0.005}, many[] = {0.5, 0, 0.9}, single[] = {0.02};
    mla_holm(p, 4);
    expect_close(p[0], 0.03, 1e-14);
    expect_close(p[1], 0.06, 1e-14);
    expect_close(p[2], 0.06, 1e-14);
    expect_close(p[3], 0.02, 1e-14);
    mla_holm(many, 3);
    ck_assert(many[0] == 1 && many[1] == 0 && !signbit(many[1]) && many[2] == 1);
    mla_holm(single, 1);
    ck_assert(single[0] == 0.02);
    mla_holm(single, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("statistics");
    TCase *tests = tcase_create("statistics");
    tcase_add_test(tests, probabilities);
    tcase_add_test(tests, quantiles);
    tcase_add_test(tests, sleep);
    tcase_add_test(tests, few_and_equal);
    tcase_add_test(tests, holm);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
