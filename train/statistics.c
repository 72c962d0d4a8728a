/* Student's distribution is a regularised incomplete beta function:
 *
 *     P(|T| >= t) = I_x(df/2, 1/2),  x = df / (df + t^2)
 *     I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) * sum over n of (a + b)_n / (a + 1)_n x^n        [DLMF 8.17.8]
 *
 * Every term of the sum is positive, so nothing cancels and small probabilities keep their digits.  Past the distribution's
 * middle, where the other tail is the smaller one, that is summed: I_x(a, b) = 1 - I_{1-x}(b, a).  The sum converges like
 * x^n, in some ten times df terms at worst. */
#include "train/statistics.h"

#include <float.h>
#include <math.h>

/* I_x(a, b) for 0 < x < 1; y = 1 - x. */
static double beta_series(double a, double b, double x, double y) {
    double term = 1, sum = 1;
    for (int n = 0; term > DBL_EPSILON / 4 * sum; n++) {
        term *= (a + b + n) / (a + 1 + n) * x;
        sum += term;
    }
    return sum * exp(a * log(x) + b * log(y) + lgamma(a + b) - lgamma(a + 1) - lgamma(b));
}

double mla_student_p(double t, int df) {
    const double x = df / (df + t * t), y = t * t / (df + t * t); /* y apart: 1 - x would lose a small t */
    if (isnan(t)) return NAN;
    if (t == 0) return 1;
    if (x == 0 || isinf(t)) return 0;
    const double a = 0.5 * df, middle = (a + 1) / (a + 2.5);
    return x <= middle ? beta_series(a, 0.5, x, y) : 1 - beta_series(0.5, a, y, x);
}

/* Bisection: p falls from 1 to 0 as t grows. */
double mla_student_quantile(double p, int df) {
    double low = 0, high = 1;
    while (mla_student_p(high, df) > p && high < DBL_MAX / 4) high *= 2;
    for (int i = 0; i < 200; i++) {
        const double middle = 0.5 * (low + high);
        if (middle <= low || middle >= high) break;
        if (mla_student_p(middle, df) > p)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

mla_sample mla_sample_of(const double *value, int n) {
    mla_sample s = {.n = n, .mean = NAN, .sd = NAN};
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += value[i];
    if (n > 0) s.mean = sum / n;
    for (int i = 0; i < n; i++) squares += (value[i] - s.mean) * (value[i] - s.mean);
    if (n > 1) s.sd = sqrt(squares / (n - 1));
    return s;
}

mla_paired mla_paired_test(const double *difference, int n) {
    const mla_sample s = mla_sample_of(difference, n);
    mla_paired r = {.n = n, .mean = s.mean, .low = NAN, .high = NAN, .p = NAN};
    const double error = s.sd / sqrt(n);
    double largest = 0;
    for (int i = 0; i < n; i++) largest = fmax(largest, fabs(difference[i]));
    /* R's t.test calls data constant by the mean, which can be 0; the largest difference can't, unless all are */
    r.tested = n > 1 && error > 10 * DBL_EPSILON * largest;
    if (!r.tested) return r;
    const double reach = mla_student_quantile(0.05, n - 1) * error;
    r.low = s.mean - reach;
    r.high = s.mean + reach;
    r.p = mla_student_p(s.mean / error, n - 1);
    return r;
}

void mla_holm(double *p, int m) {
    double before = 0;
    for (int k = 0; k < m; k++) {
        int smallest = -1; /* of those not adjusted yet: the others have a minus sign, also in front of 0 */
        for (int i = 0; i < m; i++)
            if (!signbit(p[i]) && (smallest < 0 || p[i] < p[smallest])) smallest = i;
        before = fmax(before, fmin(1, (m - k) * p[smallest]));
        p[smallest] = -before;
    }
    for (int i = 0; i < m; i++) p[i] = fabs(p[i]);
}
