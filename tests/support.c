#include "tests/support.h"
#include "tests/run_suite.h"

#include <stdio.h>

#include "core/gemm.h"
#include "core/rng.h"

enum { KEPT = 4096 };
static void *kept[KEPT];
static mla_tape *tapes[KEPT];
static size_t kept_count, tape_count;

void test_adopt(void *memory) {
    ck_assert_ptr_nonnull(memory);
    ck_assert_uint_lt(kept_count, KEPT);
    kept[kept_count++] = memory;
}

mla_tape *test_tape(void) {
    ck_assert_uint_lt(tape_count, KEPT);
    mla_tape *tape = mla_tape_new();
    ck_assert_ptr_nonnull(tape);
    return tapes[tape_count++] = tape;
}

void test_release(void) {
    while (kept_count) free(kept[--kept_count]);
    while (tape_count) mla_tape_free(tapes[--tape_count]);
}

real *test_reals(size_t n) {
    real *values = calloc(n ? n : 1, sizeof(real));
    test_adopt(values);
    return values;
}

static void fill(real *values, size_t n, uint64_t seed, double scale) {
    mla_rng rng = mla_rng_stream(3, MLA_RNG_TEST, 1, seed);
    for (size_t i = 0; i < n; i++) values[i] = (real)(scale * mla_rng_normal(&rng));
}

real *test_normal(size_t n, uint64_t seed) {
    real *values = test_reals(n);
    fill(values, n, seed, 1);
    return values;
}

mla_tensor test_tensor(uint64_t seed, size_t ndim, const size_t *shape) {
    size_t n = 1;
    for (size_t i = 0; i < ndim; i++) n *= shape[i];
    return mla_tensor_make(test_normal(n, seed), (int)ndim, shape);
}

void test_keep_away(mla_tensor *t, double distance) {
    for (size_t i = 0; i < mla_tensor_count(t); i++)
        if (fabs((double)t->data[i]) < distance) t->data[i] += (real)(t->data[i] < 0 ? -distance : distance);
}

void test_randomise(mla_params *params, uint64_t seed, double scale) {
    for (int i = 0; i < params->entries; i++)
        fill(params->value + params->entry[i].offset, params->entry[i].count, seed + (uint64_t)i, scale);
}

static double worst_place(const real *got, const real *want, size_t n, double floor, size_t *place) {
    double worst = 0;
    *place = 0;
    for (size_t i = 0; i < n; i++) {
        const double size = floor > 0 ? floor : fmax(fabs((double)want[i]), 1);
        double error = fabs((double)got[i] - (double)want[i]) / size;
        if (!isfinite(error)) error = INFINITY; /* a NaN would compare as small */
        if (error > worst) {
            worst = error;
            *place = i;
        }
    }
    return worst;
}

static double largest(const real *values, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double size = fabs((double)values[i]); /* fmax here is a loop that gcc 12 cannot compile for arm64 */
        if (size > most) most = size;
    }
    return most > 0 ? most : 1;
}

double test_error(const real *got, const real *want, size_t n) {
    size_t place;
    return worst_place(got, want, n, 0, &place);
}

double test_scaled_error(const real *got, const real *want, size_t n) {
    size_t place;
    return worst_place(got, want, n, largest(want, n), &place);
}

static void demand(const char *what, const real *got, const real *want, size_t n, double floor, double tolerance) {
    size_t i;
    const double worst = worst_place(got, want, n, floor, &i);
    ck_assert_msg(n > 0, "%s: nothing to compare", what);
    ck_assert_msg(worst <= tolerance, "%s, element %zu of %zu: %.9g, expected %.9g, off by %.3g, allowed %.3g", what, i, n,
                  (double)got[i], (double)want[i], worst, tolerance);
}

void test_close(const char *what, const real *got, const real *want, size_t n, double tolerance) {
    demand(what, got, want, n, 0, tolerance);
}

void test_scaled_close(const char *what, const real *got, const real *want, size_t n, double tolerance) {
    demand(what, got, want, n, largest(want, n), tolerance);
}

void test_finite(const char *what, const real *values, size_t n) {
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(isfinite(values[i]), "%s, element %zu of %zu: %g", what, i, n, (double)values[i]);
}

int test_main(const char *name, void (*const *cases)(TCase *), size_t count) {
    mla_gemm_setup();
    Suite *suite = suite_create(name);
    for (size_t i = 0; i < count; i++) {
        TCase *tcase = tcase_create(name);
        tcase_add_checked_fixture(tcase, NULL, test_release);
        cases[i](tcase);
        suite_add_tcase(suite, tcase);
    }
    return run_suite(suite);
}
