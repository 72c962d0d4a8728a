/* Arena, matrix products, vector functions, tensors. */
#include <stdint.h>
#include <stdio.h>

#include "core/arena.h"
#include "core/gemm.h"
#include "core/isa.h"
#include "core/rng.h"
#include "core/utf8.h"
#include "core/vmath.h"
#include "tests/support.h"

/* ---- arena */

START_TEST(arena_aligns_and_keeps_apart) {
    mla_arena arena = {0};
    unsigned char *block[200];
    for (size_t i = 0; i < TEST_COUNT(block); i++) {
        block[i] = mla_arena_alloc(&arena, i);
        ck_assert_ptr_nonnull(block[i]);
        ck_assert_uint_eq((uintptr_t)block[i] % MLA_ALIGN_BYTES, 0);
        memset(block[i], (int)i, i);
    }
    for (size_t i = 0; i < TEST_COUNT(block); i++)
        for (size_t j = 0; j < i; j++) ck_assert_uint_eq(block[i][j], i);
    mla_arena_free(&arena);
}
END_TEST

/* Sizes that overflow the first chunk several times. */
static void arena_round(mla_arena *arena) {
    for (size_t i = 0; i < 40; i++) {
        const size_t bytes = (i % 7 + 1) * 100003;
        unsigned char *block = mla_arena_alloc(arena, bytes);
        ck_assert_ptr_nonnull(block);
        block[0] = block[bytes - 1] = 1;
    }
}

START_TEST(arena_merges_and_allocates_no_more) {
    mla_arena arena = {0};
    arena_round(&arena);
    const size_t first = arena.allocations, used = arena.used_bytes;
    ck_assert_uint_gt(first, 1);
    ck_assert_uint_eq(arena.peak_bytes, used);
    mla_arena_reset(&arena);
    ck_assert_uint_eq(arena.used_bytes, 0);
    ck_assert_uint_eq(arena.allocations, first + 1);
    for (int round = 0; round < 3; round++) {
        arena_round(&arena);
        ck_assert_uint_eq(arena.used_bytes, used);
        mla_arena_reset(&arena);
    }
    ck_assert_uint_eq(arena.allocations, first + 1);
    ck_assert_uint_eq(arena.peak_bytes, used);
    mla_arena_free(&arena);
}
END_TEST

START_TEST(arena_goes_back_to_a_mark) {
    mla_arena arena = {0};
    unsigned char *kept = mla_arena_alloc(&arena, 1000);
    memset(kept, 7, 1000);
    const mla_arena_mark mark = mla_arena_save(&arena);
    void *first = mla_arena_alloc(&arena, 5000);
    mla_arena_restore(&arena, mark);
    ck_assert_ptr_eq(mla_arena_alloc(&arena, 5000), first);
    mla_arena_restore(&arena, mark);
    ck_assert_uint_eq(arena.used_bytes, mark.used_bytes);
    /* Past the end of the first chunk and back: what was kept stays, and the new chunk is used again. */
    for (int round = 0; round < 5; round++) {
        const mla_arena_mark before = mla_arena_save(&arena);
        memset(mla_arena_alloc(&arena, 3 << 20), round, 3 << 20);
        mla_arena_restore(&arena, before);
    }
    ck_assert_uint_eq(arena.allocations, 2);
    ck_assert_uint_eq(arena.used_bytes, mark.used_bytes);
    for (size_t i = 0; i < 1000; i++) ck_assert_uint_eq(kept[i], 7);
    mla_arena_free(&arena);
}
END_TEST

START_TEST(arena_mark_of_an_empty_arena) {
    mla_arena arena = {0};
    const mla_arena_mark mark = mla_arena_save(&arena);
    void *block = mla_arena_alloc(&arena, 10);
    mla_arena_restore(&arena, mark);
    ck_assert_ptr_eq(mla_arena_alloc(&arena, 10), block);
    mla_arena_reset(&arena);
    mla_arena_free(&arena);
    mla_arena_reset(&arena); /* of a freed arena: nothing to do */
    ck_assert_ptr_nonnull(mla_arena_alloc(&arena, 10));
    mla_arena_free(&arena);
}
END_TEST

START_TEST(arena_refuses_what_cannot_be) {
    mla_arena arena = {0};
    ck_assert_ptr_null(mla_arena_alloc(&arena, SIZE_MAX));
    ck_assert_ptr_null(mla_arena_alloc(&arena, SIZE_MAX / 2));
    ck_assert_ptr_nonnull(mla_arena_alloc(&arena, 1));
    mla_arena_free(&arena);
}
END_TEST

/* ---- matrix products */

enum { GAP = 3 }; /* columns between rows, which no product may touch */

static void check_gemm(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, real beta) {
    const size_t a_rows = ta == MLA_N ? m : k, b_rows = tb == MLA_N ? k : n;
    const size_t lda = (ta == MLA_N ? k : m) + GAP, ldb = (tb == MLA_N ? n : k) + GAP, ldc = n + GAP;
    real *a = test_normal(a_rows * lda, 1), *b = test_normal(b_rows * ldb, 2), *got = test_normal(m * ldc, 3);
    real *want = test_reals(m * ldc);
    char what[128];
    snprintf(what, sizeof what, "gemm %c%c, %zu x %zu x %zu, beta %g", ta == MLA_N ? 'N' : 'T', tb == MLA_N ? 'N' : 'T', m,
             n, k, (double)beta);
    memcpy(want, got, m * ldc * sizeof(real));
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t p = 0; p < k; p++)
                sum +=
                    (double)a[ta == MLA_N ? i * lda + p : p * lda + i] * (double)b[tb == MLA_N ? p * ldb + j : j * ldb + p];
            const double old = beta == 0 ? 0 : (double)beta * (double)got[i * ldc + j];
            if (beta == 0) got[i * ldc + j] = NAN; /* must not be read */
            want[i * ldc + j] = (real)((double)alpha * sum + old);
        }
    real *plain = test_reals(m * ldc);
    memcpy(plain, got, m * ldc * sizeof(real));
    mla_gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, got, ldc);
    mla_gemm_plain(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, plain, ldc);
    const double tolerance = (sizeof(real) == sizeof(float) ? 1e-6 : 1e-14) * (2 + (double)k);
    test_close(what, got, want, m * ldc, tolerance);
    test_close(what, plain, want, m * ldc, tolerance);
}

START_TEST(gemm_is_right) {
    static const size_t sizes[][3] = {{1, 1, 1},   {2, 3, 5},  {17, 9, 33}, {8, 16, 64},
                                      {65, 31, 7}, {1, 40, 3}, {40, 1, 3},  {3, 5, 0}};
    const mla_transpose ta = _i & 1 ? MLA_T : MLA_N, tb = _i & 2 ? MLA_T : MLA_N;
    for (size_t s = 0; s < TEST_COUNT(sizes); s++) {
        check_gemm(ta, tb, sizes[s][0], sizes[s][1], sizes[s][2], 1, 0);
        check_gemm(ta, tb, sizes[s][0], sizes[s][1], sizes[s][2], REAL(-0.5), 1);
        check_gemm(ta, tb, sizes[s][0], sizes[s][1], sizes[s][2], 2, REAL(0.25));
    }
}
END_TEST

START_TEST(gemm_of_nothing) {
    real c[4] = {1, 2, 3, 4}, nan[4] = {NAN, NAN, NAN, NAN};
    const real a[4] = {0};
    mla_gemm(MLA_N, MLA_N, 0, 2, 2, 1, a, 2, a, 2, 0, c, 2);
    mla_gemm(MLA_N, MLA_N, 2, 0, 2, 1, a, 2, a, 1, 0, c, 1);
    mla_gemm(MLA_N, MLA_T, 2, 2, 0, 1, a, 0, a, 0, 1, c, 2); /* rows without columns */
    test_close("untouched", c, (real[]){1, 2, 3, 4}, 4, 0);
    mla_gemm(MLA_N, MLA_T, 2, 2, 0, 1, a, 0, a, 0, 0, nan, 2);
    test_close("cleared", nan, (real[]){0, 0, 0, 0}, 4, 0);
}
END_TEST

/* Products that are wrong in the ways that libraries have been. */
#define WRONG(name)                                                                                                         \
    static void name(mla_transpose ta, mla_transpose tb, size_t m, size_t n, size_t k, real alpha, const real *a,           \
                     size_t lda, const real *b, size_t ldb, real beta, real *c, size_t ldc)
WRONG(gives_zeros) {
    (void)ta, (void)tb, (void)k, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta;
    for (size_t i = 0; i < m; i++) memset(c + i * ldc, 0, n * sizeof(real));
}
WRONG(gives_nan) {
    mla_gemm_plain(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (m > 2 && n > 2) c[ldc + 2] = NAN;
}
WRONG(forgets_the_last_product) { mla_gemm_plain(ta, tb, m, n, k > 64 ? k - 1 : k, alpha, a, lda, b, ldb, beta, c, ldc); }
WRONG(ignores_beta) {
    (void)beta;
    mla_gemm_plain(ta, tb, m, n, k, alpha, a, lda, b, ldb, 0, c, ldc);
}
WRONG(reads_c) {
    for (size_t i = 0; i < m * n; i++) c[i / n * ldc + i % n] *= beta;
    mla_gemm_plain(ta, tb, m, n, k, alpha, a, lda, b, ldb, 1, c, ldc);
}
WRONG(swaps_transposes) { mla_gemm_plain(tb, ta, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc); }
WRONG(writes_too_far) {
    mla_gemm_plain(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (n < ldc && m > 1) c[n] += 1;
}

START_TEST(wrong_gemms_are_caught) {
    static mla_gemm_function *const wrong[] = {
        gives_zeros, gives_nan, forgets_the_last_product, ignores_beta, reads_c, swaps_transposes, writes_too_far};
    for (size_t i = 0; i < TEST_COUNT(wrong); i++)
        ck_assert_msg(mla_gemm_error(wrong[i]) > 1e-3, "wrong product %zu passes", i);
    ck_assert_double_lt(mla_gemm_error(mla_gemm_plain), 1e-6);
    ck_assert_double_lt(mla_gemm_error(mla_gemm), 1e-5);
    ck_assert(mla_gemm_setup());
    ck_assert_uint_gt(strlen(mla_gemm_backend()), 10);
}
END_TEST

/* ---- vector functions */

static const double EPSILON = sizeof(real) == sizeof(float) ? 1.2e-7 : 2.3e-16;

/* |got - want| in units in the last place of `size`. */
static double ulps(double got, double want, double size) {
    if (got == want || (isnan(got) && isnan(want))) return 0;
    const double error = fabs(got - want) / (EPSILON * fmax(size, 1e-35));
    return isnan(error) ? INFINITY : error;
}

/* Values from tiny to large of both signs, and the special ones. */
static size_t wide_values(real *x, size_t most) {
    static const real special[] = {0,          REAL(-0.0),  1,          -1,        REAL(1e-38), REAL(-1e-38),
                                   REAL(1e30), REAL(-1e30), REAL(87.9), REAL(-87), REAL(-104),  REAL(13),
                                   REAL(-13),  REAL(0.5),   REAL(-5.5)};
    mla_rng rng = mla_rng_stream(2, MLA_RNG_TEST, 0, 0);
    for (size_t i = 0; i < most; i++)
        x[i] = i < TEST_COUNT(special) ? special[i] : (real)(mla_rng_normal(&rng) * pow(10, 8 * mla_rng_uniform(&rng) - 6));
    return most;
}

enum { WIDE = 20011 };

static const double LARGEST = sizeof(real) == sizeof(float) ? 2.3e38 : INFINITY;
static const double MIN_NORMAL = sizeof(real) == sizeof(float) ? 1.17549435e-38 : 2.2250738585072014e-308;

START_TEST(exp_is_close) {
    real *x = test_reals(WIDE), *y = test_reals(WIDE);
    const size_t n = wide_values(x, WIDE);
    for (int shifted = 0; shifted < 2; shifted++) {
        const real shift = shifted ? REAL(3.25) : 0;
        mla_vec_exp(n, y, x, 1, shift);
        for (size_t i = 0; i < n; i++) {
            const double want = (double)(real)exp((double)(x[i] - shift));
            if ((want < MIN_NORMAL && y[i] == 0) || (want > LARGEST && isinf(y[i]))) continue;
            ck_assert_msg(ulps((double)y[i], want, fabs(want)) <= 4, "exp(%.9g) = %.9g, not %.9g", (double)(x[i] - shift),
                          (double)y[i], want);
        }
    }
    real special[] = {INFINITY, -INFINITY, NAN};
    mla_vec_exp(3, special, special, 1, 0);
    ck_assert(isinf(special[0]) && special[1] == 0 && isnan(special[2]));
}
END_TEST

START_TEST(gelu_is_close) {
    real *x = test_reals(WIDE), *y = test_reals(WIDE), *slope = test_reals(WIDE);
    const size_t n = wide_values(x, WIDE);
    mla_vec_gelu(n, y, slope, x);
    for (size_t i = 0; i < n; i++) {
        const double a = (double)x[i], phi = 0.5 * erfc(-a * M_SQRT1_2), density = exp(-0.5 * a * a) / sqrt(2 * M_PI);
        /* The left tail is a difference of ones: its error is that of one, times x. */
        ck_assert_msg(ulps((double)y[i], a * phi, fmin(fabs(a), 16)) <= 4, "gelu(%.9g) = %.9g, not %.9g", a, (double)y[i],
                      a * phi);
        ck_assert_msg(ulps((double)slope[i], phi + a * density, 1) <= 4, "gelu'(%.9g) = %.9g, not %.9g", a, (double)slope[i],
                      phi + a * density);
    }
    real nothing[] = {NAN}, its_slope[] = {0};
    mla_vec_gelu(1, nothing, its_slope, nothing);
    ck_assert(isnan(nothing[0]) && isnan(its_slope[0]));
    real *place = test_reals(n);
    memcpy(place, x, n * sizeof(real));
    mla_vec_gelu(n, place, slope, place);
    test_close("gelu in place", place, y, n, 0);
}
END_TEST

START_TEST(elu1_is_close) {
    real *x = test_reals(WIDE), *y = test_reals(WIDE);
    const size_t n = wide_values(x, WIDE);
    mla_vec_elu1(n, y, x);
    for (size_t i = 0; i < n; i++) {
        const double want = x[i] > 0 ? (double)(x[i] + 1) : (double)(real)exp((double)x[i]);
        ck_assert_msg(ulps((double)y[i], want, fabs(want)) <= 4, "elu1(%.9g) = %.9g, not %.9g", (double)x[i], (double)y[i],
                      want);
    }
    real special[] = {INFINITY, -INFINITY, NAN};
    mla_vec_elu1(3, special, special);
    ck_assert(isinf(special[0]) && special[1] == 0 && isnan(special[2]));
}
END_TEST

/* Every length up to two registers gives what the same values give one by one, and nothing past the end is written. */
START_TEST(tails_are_right) {
    real x[17], one[17], slope_one[17];
    for (size_t i = 0; i < 17; i++) x[i] = REAL(0.37) * (real)i - 3;
    for (size_t n = 1; n <= 17; n++)
        for (int which = 0; which < 3; which++) {
            real y[20] = {0}, slope[20] = {0};
            if (which == 0) mla_vec_exp(n, y, x, 1, 1);
            if (which == 1) mla_vec_gelu(n, y, slope, x);
            if (which == 2) mla_vec_elu1(n, y, x);
            for (size_t i = 0; i < n; i++) {
                if (which == 0) mla_vec_exp(1, one + i, x + i, 1, 1);
                if (which == 1) mla_vec_gelu(1, one + i, slope_one + i, x + i);
                if (which == 2) mla_vec_elu1(1, one + i, x + i);
            }
            test_close("tail", y, one, n, 8 * EPSILON);
            if (which == 1) test_close("tail of the slope", slope, slope_one, n, 8 * EPSILON);
            for (size_t i = n; i < 20; i++) ck_assert(y[i] == 0 && slope[i] == 0);
        }
}
END_TEST

START_TEST(instructions_are_named) {
    ck_assert(mla_isa_missing(&mla_isa_engine) == NULL);
    ck_assert_uint_gt(strlen(mla_isa_engine.name), 2);
}
END_TEST

#if defined(__x86_64__)
/* What the system says the processor has, for instructions that it calls by the same name. */
START_TEST(missing_instructions_are_found) {
    static const struct {
        mla_isa_bit bit;
        const char *flag;
    } cases[] = {{MLA_ISA_BIT_SSSE3, "ssse3"},       {MLA_ISA_BIT_AVX, "avx"},          {MLA_ISA_BIT_FMA, "fma"},
                 {MLA_ISA_BIT_AVX2, "avx2"},         {MLA_ISA_BIT_BMI2, "bmi2"},        {MLA_ISA_BIT_AVX512F, "avx512f"},
                 {MLA_ISA_BIT_AVX512BW, "avx512bw"}, {MLA_ISA_BIT_AVX512VL, "avx512vl"}};
    char flags[8192] = " ";
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    while (fgets(flags + 1, sizeof flags - 1, file) && strncmp(flags + 1, "flags", 5)) continue;
    fclose(file);
    flags[strcspn(flags, "\n")] = ' ';
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", cases[i].flag);
        const char *missing = mla_isa_missing(&(mla_isa){.needs = 1u << cases[i].bit});
        ck_assert_msg((missing == NULL) == (strstr(flags, word) != NULL), "%s", cases[i].flag);
        if (missing) ck_assert_str_eq(missing, cases[i].flag);
    }
}
END_TEST
#endif

/* ---- tensors */

START_TEST(tensor_shapes) {
    real data[24];
    const mla_tensor t = mla_tensor_make(data, 3, (size_t[]){2, 3, 4}), flat = mla_tensor_make(data, 1, (size_t[]){24});
    ck_assert_uint_eq(mla_tensor_count(&t), 24);
    ck_assert_uint_eq(mla_tensor_rows(&t), 6);
    ck_assert_uint_eq(mla_tensor_columns(&t), 4);
    ck_assert_uint_eq(mla_tensor_rows(&flat), 1);
    ck_assert(mla_tensor_contiguous(&t) && mla_tensor_contiguous(&flat));
    mla_tensor part = t;
    part.shape[2] = 2;
    ck_assert(!mla_tensor_contiguous(&part));
    part.shape[0] = part.shape[1] = 1;
    ck_assert(mla_tensor_contiguous(&part)); /* a single row */
    mla_tensor same = t;
    same.stride = 100;
    ck_assert(mla_tensor_same_shape(&t, &same) && !mla_tensor_same_shape(&t, &part) && !mla_tensor_same_shape(&t, &flat));
}
END_TEST

START_TEST(shape_texts) {
    real data[1];
    const mla_tensor a = mla_tensor_make(data, 3, (size_t[]){8, 64, 192}), b = mla_tensor_make(data, 1, (size_t[]){10});
    const char *text[] = {mla_shape_text(&a), mla_shape_text(&b), mla_shape_text(&a), mla_shape_text(&b)};
    for (int i = 0; i < 4; i++) ck_assert_str_eq(text[i], i % 2 ? "(10)" : "(8, 64, 192)");
    const mla_tensor wide = mla_tensor_make(data, 4, (size_t[]){SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX});
    ck_assert_uint_lt(strlen(mla_shape_text(&wide)), 96);
}
END_TEST

/* ---- errors */

/* A sentence may quote a file: whatever stands there, it stays one line of UTF-8. */
START_TEST(errors_are_one_line_of_utf8) {
    static const struct {
        const char *given, *told;
    } cases[] = {
        {"Fähre 鳥", "Fähre 鳥"},
        {"a\nb\tc\x7f", "a b c "},
        {"caf\xe9 au", "caf? au"},
        {"\xff\xfe end", "?? end"},
        {"cut \xe9\xb3", "cut "},
        {"\xed\xa0\x80 surrogate", "??? surrogate"},
        {"\xc3", ""},
        {"\xb3\xb3 end", "?? end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mla_error error = {0};
        ck_assert(mla_fail(&error, MLA_INVALID, "%s", cases[i].given) == MLA_INVALID);
        ck_assert_str_eq(error.text, cases[i].told);
    }
    char text[2 * MLA_ERROR_BYTES];
    for (size_t i = 0; i < MLA_ERROR_BYTES; i++) memcpy(text + 2 * i, "ä", 2);
    text[sizeof text - 1] = 0;
    mla_error error = {0};
    ck_assert(mla_fail(&error, MLA_IO, "%s", text) == MLA_IO);
    ck_assert_uint_eq(strlen(error.text), MLA_ERROR_BYTES - 2);
    ck_assert(mla_fail_context(&error, "%s: ", "\xe4") == MLA_IO);
    ck_assert(mla_is_utf8(error.text) && strncmp(error.text, "?: ", 3) == 0);
}
END_TEST

static void arena(TCase *tcase) {
    tcase_add_test(tcase, arena_aligns_and_keeps_apart);
    tcase_add_test(tcase, arena_merges_and_allocates_no_more);
    tcase_add_test(tcase, arena_goes_back_to_a_mark);
    tcase_add_test(tcase, arena_mark_of_an_empty_arena);
    tcase_add_test(tcase, arena_refuses_what_cannot_be);
}

static void gemm(TCase *tcase) {
    tcase_add_loop_test(tcase, gemm_is_right, 0, 4);
    tcase_add_test(tcase, gemm_of_nothing);
    tcase_add_test(tcase, wrong_gemms_are_caught);
}

static void vectors(TCase *tcase) {
    tcase_add_test(tcase, exp_is_close);
    tcase_add_test(tcase, gelu_is_close);
    tcase_add_test(tcase, elu1_is_close);
    tcase_add_test(tcase, tails_are_right);
    tcase_add_test(tcase, instructions_are_named);
#if defined(__x86_64__)
    tcase_add_test(tcase, missing_instructions_are_found);
#endif
    tcase_add_test(tcase, tensor_shapes);
    tcase_add_test(tcase, shape_texts);
    tcase_add_test(tcase, errors_are_one_line_of_utf8);
}

int main(void) { return test_main("core", (void (*const[])(TCase *)){arena, gemm, vectors}, 3); }
