/* What the engine's tests share: random numbers, closeness that says where it fails, memory freed after each test. */
#ifndef MLA_TESTS_SUPPORT_H
#define MLA_TESTS_SUPPORT_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/ops.h"

#define TEST_COUNT(array) (sizeof(array) / sizeof(array)[0])
#define SHAPE(...)                                                                                                          \
    (sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), (size_t[]) { __VA_ARGS__ }

/* n zeros on the heap, exactly as long as asked for so that a sanitizer sees a step too far; freed by test_release. */
real *test_reals(size_t n);
/* n normal numbers from the stream `seed`. */
real *test_normal(size_t n, uint64_t seed);
mla_tensor test_tensor(uint64_t seed, size_t ndim, const size_t *shape);
/* Moves values away from zero, where ReLU has no derivative: |x| >= distance. */
void test_keep_away(mla_tensor *t, double distance);
/* Every parameter gets normal numbers, so that no bias is zero and no factor one. */
void test_randomise(mla_params *params, uint64_t seed, double scale);

void test_release(void);       /* teardown of every test */
void test_adopt(void *memory); /* memory of malloc to be freed by test_release */
mla_tape *test_tape(void);     /* freed by test_release */

/* Largest |got - want| / max(|want|, 1). */
double test_error(const real *got, const real *want, size_t n);
/* Largest |got - want| over the largest |want|. */
double test_scaled_error(const real *got, const real *want, size_t n);
/* Fail with the place and both values; a value that is not finite fails. */
void test_close(const char *what, const real *got, const real *want, size_t n, double tolerance);
void test_scaled_close(const char *what, const real *got, const real *want, size_t n, double tolerance);
void test_finite(const char *what, const real *values, size_t n);

/* A program of one suite: number of failed tests as exit status. */
int test_main(const char *name, void (*const *cases)(TCase *), size_t count);

#endif
