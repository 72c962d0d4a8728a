#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "core/params.h"
#include "core/rng.h"

/* Under the address sanitizer, too, an allocation that can't be had is NULL, not the end of the program. */
const char *__asan_default_options(void);

const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

static mla_params params;

static void build(void) {
    params = (mla_params){0};
    ck_assert_int_eq(mla_params_add(&params, "head.weight", 2, (size_t[]){10, 7}, (mla_init){MLA_INIT_NORMAL, 0.5}, true),
                     0);
    ck_assert_int_eq(mla_params_add(&params, "head.bias", 1, (size_t[]){10}, (mla_init){MLA_INIT_CONSTANT, 3}, false), 1);
    ck_assert_int_eq(mla_params_add(&params, "attn.block_v", 4, (size_t[]){2, 3, 5, 8},
                                    (mla_init){MLA_INIT_REFLECTION_PAIRS, 0.1}, false),
                     2);
    ck_assert_int_eq(mla_params_add(&params, "scale", 0, NULL, (mla_init){MLA_INIT_CONSTANT, 1}, false), 3);
    ck_assert(mla_params_allocate(&params, NULL) == MLA_OK);
}

static void clear(void) { mla_params_free(&params); }

START_TEST(slices_are_aligned_and_do_not_overlap) {
    size_t end = 0, count = 0;
    for (int i = 0; i < params.entries; i++) {
        ck_assert_uint_eq(params.entry[i].offset % MLA_ALIGN_REALS, 0);
        ck_assert_uint_ge(params.entry[i].offset, end);
        end = params.entry[i].offset + params.entry[i].count;
        count += params.entry[i].count;
    }
    ck_assert_uint_le(end, params.size);
    ck_assert_uint_eq(count, 70 + 10 + 240 + 1);
    ck_assert_uint_eq(params.count, count);
    ck_assert_uint_eq((uintptr_t)params.value % MLA_ALIGN_BYTES, 0);
    ck_assert_int_eq(mla_params_find(&params, "attn.block_v"), 2);
    ck_assert_int_eq(mla_params_find(&params, "attn.block"), -1);
}
END_TEST

START_TEST(gaps_stay_zero) {
    mla_params_init(&params, 1);
    size_t position = 0;
    for (int i = 0; i <= params.entries; i++) {
        size_t begin = i < params.entries ? params.entry[i].offset : params.size;
        for (; position < begin; position++) ck_assert(params.value[position] == 0);
        if (i < params.entries) position = begin + params.entry[i].count;
    }
    real *buffer = mla_params_buffer(&params);
    ck_assert_ptr_nonnull(buffer);
    ck_assert_uint_eq((uintptr_t)buffer % MLA_ALIGN_BYTES, 0);
    for (size_t i = 0; i < params.size; i++) ck_assert(buffer[i] == 0);
    free(buffer);
}
END_TEST

START_TEST(constants_and_normals) {
    mla_params_init(&params, 5);
    const real *weight = params.value + params.entry[0].offset, *bias = params.value + params.entry[1].offset;
    double sum = 0, square = 0;
    for (int i = 0; i < 70; i++) {
        sum += weight[i];
        square += (double)weight[i] * weight[i];
    }
    ck_assert_double_lt(fabs(sum / 70), 4 * 0.5 / sqrt(70));
    ck_assert_double_lt(fabs(square / 70 - 0.25), 4 * 0.25 * sqrt(2.0 / 70));
    for (int i = 0; i < 10; i++) ck_assert(bias[i] == 3);
    mla_rng rng = mla_rng_stream(5, MLA_RNG_INIT, 0, 0);
    for (int i = 0; i < 70; i++) ck_assert(weight[i] == (real)(0.5 * mla_rng_normal(&rng)));
}
END_TEST

static double dot(const real *a, const real *b) {
    double sum = 0;
    for (int i = 0; i < 8; i++) sum += (double)a[i] * b[i];
    return sum;
}

START_TEST(reflections_are_unit_vectors_in_near_equal_pairs) {
    mla_params_init(&params, 2);
    const real *v = params.value + params.entry[2].offset;
    double largest_between = 0;
    for (int group = 0; group < 6; group++, v += 5 * 8) {
        for (int i = 0; i < 5; i++) ck_assert_double_lt(fabs(dot(v + 8 * i, v + 8 * i) - 1), 1e-6);
        for (int i = 0; i < 4; i += 2) {
            /* both carry noise of length about 0.1: the angle is near 0.14, and not zero */
            double angle = acos(fmin(1, dot(v + 8 * i, v + 8 * (i + 1))));
            ck_assert_double_gt(angle, 0.03);
            ck_assert_double_lt(angle, 0.35);
        }
        largest_between = fmax(largest_between, fabs(dot(v, v + 16)));
        ck_assert_double_lt(fabs(dot(v, v + 16)), 0.99);
        ck_assert_double_lt(fabs(dot(v + 16, v + 32)), 0.99);
    }
    ck_assert_double_gt(largest_between, 0.05);
}
END_TEST

/* 20 rows, 8 wide: two orthogonal bases and half of a third; squared lengths of 8 on average. */
START_TEST(orthogonal_rows) {
    enum { ROWS = 20, WIDTH = 8 };
    mla_params own = {0};
    const int w = mla_params_add(&own, "w", 2, (size_t[]){ROWS, WIDTH}, (mla_init){MLA_INIT_ORTHOGONAL_ROWS, 1}, false);
    mla_params_add(&own, "b", 1, (size_t[]){3}, (mla_init){MLA_INIT_CONSTANT, 0}, false);
    mla_params_fix(&own, w);
    mla_params_fix(&own, w);
    ck_assert_uint_eq(own.count, 3); /* what is fixed is not counted, once */
    ck_assert_int_eq(mla_params_decay_totals(&own).tensors[0], 1);
    ck_assert(mla_params_allocate(&own, NULL) == MLA_OK);
    mla_params_init(&own, 1);
    const real *v = own.value + own.entry[w].offset;
    double squares = 0;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = i / WIDTH * WIDTH; k <= i; k++) {
            double dot = 0;
            for (size_t j = 0; j < WIDTH; j++) dot += (double)v[i * WIDTH + j] * (double)v[k * WIDTH + j];
            if (k < i) ck_assert_double_lt(fabs(dot), 2e-6 * WIDTH);
            if (k == i) squares += dot / ROWS;
        }
    ck_assert(squares > 5 && squares < 11);
    mla_params_free(&own);
}
END_TEST

START_TEST(streams_depend_on_seed_and_place) {
    mla_params_init(&params, 7);
    uint64_t first = mla_params_hash(&params, params.value);
    mla_params_init(&params, 8);
    ck_assert(mla_params_hash(&params, params.value) != first);
    mla_params_init(&params, 7);
    ck_assert(mla_params_hash(&params, params.value) == first);
}
END_TEST

START_TEST(hash_is_fnv1a_without_gaps) {
    ck_assert(mla_hash_bytes(MLA_HASH_START, "", 0) == UINT64_C(0xcbf29ce484222325));
    ck_assert(mla_hash_bytes(MLA_HASH_START, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    ck_assert(mla_hash_bytes(MLA_HASH_START, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    uint64_t before = mla_params_hash(&params, params.value);
    params.value[70] = 1; /* in the gap behind head.weight */
    ck_assert(mla_params_hash(&params, params.value) == before);
    params.value[69] = 1;
    ck_assert(mla_params_hash(&params, params.value) != before);
}
END_TEST

START_TEST(not_finite_names_the_parameter) {
    ck_assert_ptr_null(mla_params_not_finite(&params, params.value));
    params.value[71] = (real)NAN; /* gap */
    ck_assert_ptr_null(mla_params_not_finite(&params, params.value));
    params.value[params.entry[1].offset + 9] = (real)INFINITY;
    ck_assert_str_eq(mla_params_not_finite(&params, params.value), "head.bias");
    params.value[params.entry[0].offset] = (real)NAN;
    ck_assert_str_eq(mla_params_not_finite(&params, params.value), "head.weight");
}
END_TEST

START_TEST(too_large_is_an_error) {
    mla_params huge = {0};
    mla_error error = {0};
    ck_assert_int_eq(mla_params_add(&huge, "w", 2, (size_t[]){SIZE_MAX / 2, 3}, (mla_init){MLA_INIT_CONSTANT, 0}, true), -1);
    ck_assert(mla_params_allocate(&huge, &error) == MLA_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(error.text, "memory"));
    mla_params_free(&huge);
    ck_assert_int_eq(
        mla_params_add(&huge, "w", 2, (size_t[]){(size_t)1 << 40, 1 << 10}, (mla_init){MLA_INIT_CONSTANT, 0}, true), 0);
    ck_assert(mla_params_allocate(&huge, &error) == MLA_NO_MEMORY);
    ck_assert_ptr_nonnull(strstr(error.text, "MiB"));
    mla_params_free(&huge);
}
END_TEST

START_TEST(many_parameters) {
    mla_params many = {0};
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "p%d", i);
        ck_assert_int_eq(mla_params_add(&many, name, 1, (size_t[]){1}, (mla_init){MLA_INIT_CONSTANT, i}, true), i);
    }
    ck_assert(mla_params_allocate(&many, NULL) == MLA_OK);
    mla_params_init(&many, 0);
    ck_assert(many.value[many.entry[999].offset] == 999);
    mla_params_free(&many);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("params");
    TCase *tests = tcase_create("params");
    tcase_add_checked_fixture(tests, build, clear);
    tcase_add_test(tests, slices_are_aligned_and_do_not_overlap);
    tcase_add_test(tests, gaps_stay_zero);
    tcase_add_test(tests, constants_and_normals);
    tcase_add_test(tests, reflections_are_unit_vectors_in_near_equal_pairs);
    tcase_add_test(tests, orthogonal_rows);
    tcase_add_test(tests, streams_depend_on_seed_and_place);
    tcase_add_test(tests, hash_is_fnv1a_without_gaps);
    tcase_add_test(tests, not_finite_names_the_parameter);
    tcase_add_test(tests, too_large_is_an_error);
    tcase_add_test(tests, many_parameters);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
