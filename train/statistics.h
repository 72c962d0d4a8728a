/* What a table of ablations says about numbers: mean, spread, the paired t-test, Holm's correction. */
#ifndef MLA_TRAIN_STATISTICS_H
#define MLA_TRAIN_STATISTICS_H

#include <stdbool.h>

typedef struct mla_sample {
    int n;
    double mean, sd; /* sd: sample standard deviation (n - 1); NaN for n < 2, both NaN for n = 0 */
} mla_sample;

mla_sample mla_sample_of(const double *value, int n);

/* Two-sided probability P(|T| >= |t|) of Student's t distribution with `df` >= 1 degrees of freedom. */
double mla_student_p(double t, int df);

/* The t >= 0 with mla_student_p(t, df) = p, 0 < p <= 1: the quantile of 1 - p/2. */
double mla_student_quantile(double p, int df);

typedef struct mla_paired {
    int n;
    double mean;         /* of the differences; NaN for n = 0 */
    bool tested;         /* else the three below are NaN: n < 2, or all differences are equal */
    double low, high, p; /* 95 % confidence interval of the mean; two-sided p */
} mla_paired;

/* The paired t-test (Student 1908) of n differences.  Differences that are equal up to rounding say nothing about spread:
 * there is no test then, as in R. */
mla_paired mla_paired_test(const double *difference, int n);

/* Holm's step-down adjustment (1979) of m probabilities, in place. */
void mla_holm(double *p, int m);

#endif
