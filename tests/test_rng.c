/* Philox against its published known answers, and what streams promise. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/run_suite.h"
#include "core/rng.h"

enum { DRAWS = 200000 };

/* kat_vectors of Random123: philox4x32, 10 rounds. */
START_TEST(known_answers) {
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        mla_philox(out, cases[i].counter, cases[i].key);
        ck_assert_mem_eq(out, cases[i].out, sizeof out);
    }
}
END_TEST

/* A stream starts with the block of its name and goes on with the next one. */
START_TEST(stream_is_its_blocks) {
    mla_rng rng = mla_rng_stream(0x1122334455667788, MLA_RNG_AUGMENT, 7, 0xabcdef0123456);
    uint32_t key[2] = {0x55667788, 0x11223344}, out[4];
    for (uint32_t block = 0; block < 3; block++) {
        uint32_t counter[4] = {block, 0xf0123456, 0x000abcde | (uint32_t)MLA_RNG_AUGMENT << 24, 7};
        mla_philox(out, counter, key);
        for (int i = 0; i < 4; i++) ck_assert_uint_eq(mla_rng_u32(&rng), out[i]);
    }
}
END_TEST

static void assert_streams_differ(mla_rng a, mla_rng b) {
    int same = 0;
    for (int i = 0; i < 64; i++) same += mla_rng_u32(&a) == mla_rng_u32(&b);
    ck_assert_int_eq(same, 0);
}

START_TEST(each_part_of_the_name_counts) {
    mla_rng base = mla_rng_stream(1, MLA_RNG_AUGMENT, 2, 3), again = mla_rng_stream(1, MLA_RNG_AUGMENT, 2, 3);
    ck_assert_mem_eq(&base, &again, sizeof base);
    assert_streams_differ(base, mla_rng_stream(2, MLA_RNG_AUGMENT, 2, 3));
    assert_streams_differ(base, mla_rng_stream(1 + (1ull << 32), MLA_RNG_AUGMENT, 2, 3));
    assert_streams_differ(base, mla_rng_stream(1, MLA_RNG_SHUFFLE, 2, 3));
    assert_streams_differ(base, mla_rng_stream(1, MLA_RNG_AUGMENT, 3, 3));
    assert_streams_differ(base, mla_rng_stream(1, MLA_RNG_AUGMENT, 2, 4));
    assert_streams_differ(base, mla_rng_stream(1, MLA_RNG_AUGMENT, 2, 3 + (1ull << 55)));
    assert_streams_differ(mla_rng_stream(0, MLA_RNG_INIT, 0, 1), mla_rng_stream(0, MLA_RNG_SHUFFLE, 0, 0));
}
END_TEST

/* Pearson's statistic of `cells` counts; its mean is cells - 1 and its deviation sqrt(2 (cells - 1)). */
static double chi_square(const int *counts, int cells) {
    double expected = (double)DRAWS / cells, sum = 0.0;
    for (int i = 0; i < cells; i++) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return (sum - (cells - 1)) / sqrt(2.0 * (cells - 1));
}

START_TEST(below_is_even) {
    static const uint32_t bounds[] = {2, 3, 9, 10, 97};
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        int counts[97] = {0};
        mla_rng rng = mla_rng_stream(5, MLA_RNG_TEST, 0, b);
        for (int i = 0; i < DRAWS; i++) {
            uint32_t value = mla_rng_below(&rng, bounds[b]);
            if (value >= bounds[b]) /* an assertion a draw would take minutes */
                ck_abort_msg("%u is not below %u", value, bounds[b]);
            counts[value]++;
        }
        double score = chi_square(counts, (int)bounds[b]);
        ck_assert_msg(fabs(score) < 5.0, "bound %u: %g deviations from even", bounds[b], score);
    }
    mla_rng rng = mla_rng_stream(5, MLA_RNG_TEST, 1, 0);
    for (int i = 0; i < 100; i++) ck_assert_uint_eq(mla_rng_below(&rng, 1), 0);
}
END_TEST

/* A bound of 3 * 2^30: plain scaling of 32 bits would hit every third value twice as often. */
START_TEST(below_is_even_for_large_bounds) {
    int counts[3] = {0};
    mla_rng rng = mla_rng_stream(6, MLA_RNG_TEST, 0, 0);
    for (int i = 0; i < DRAWS; i++) counts[mla_rng_below(&rng, 3u << 30) % 3]++;
    ck_assert(fabs(chi_square(counts, 3)) < 5.0);
}
END_TEST

START_TEST(uniform_fills_the_interval) {
    mla_rng rng = mla_rng_stream(8, MLA_RNG_TEST, 0, 0);
    double sum = 0.0, square = 0.0, least = 1.0, most = 0.0;
    for (int i = 0; i < DRAWS; i++) {
        double value = mla_rng_uniform(&rng);
        sum += value;
        square += value * value;
        least = fmin(least, value);
        most = fmax(most, value);
    }
    ck_assert_double_eq_tol(sum / DRAWS, 0.5, 5.0 * sqrt(1.0 / 12 / DRAWS));
    ck_assert_double_eq_tol(square / DRAWS, 1.0 / 3.0, 5.0 * sqrt(4.0 / 45 / DRAWS));
    ck_assert(least >= 0.0 && least < 1e-4 && most > 1.0 - 1e-4 && most < 1.0);
}
END_TEST

START_TEST(normal_has_its_moments) {
    mla_rng rng = mla_rng_stream(9, MLA_RNG_TEST, 0, 0);
    double moments[5] = {0};
    for (int i = 0; i < DRAWS; i++) {
        double value = mla_rng_normal(&rng), power = 1.0;
        for (int k = 1; k < 5; k++) moments[k] += (power *= value);
    }
    static const double expected[5] = {1, 0, 1, 0, 3}, variance[5] = {0, 1, 2, 15, 96};
    for (int k = 1; k < 5; k++) ck_assert_double_eq_tol(moments[k] / DRAWS, expected[k], 5.0 * sqrt(variance[k] / DRAWS));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rng");
    TCase *group = tcase_create("philox");
    tcase_add_test(group, known_answers);
    tcase_add_test(group, stream_is_its_blocks);
    tcase_add_test(group, each_part_of_the_name_counts);
    tcase_add_test(group, below_is_even);
    tcase_add_test(group, below_is_even_for_large_bounds);
    tcase_add_test(group, uniform_fills_the_interval);
    tcase_add_test(group, normal_has_its_moments);
    suite_add_tcase(suite, group);
    return run_suite(suite);
}
