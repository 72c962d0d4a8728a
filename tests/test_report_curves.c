/* Curves of a run from the lines of its logs. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "tests/run_suite.h"
#include "tests/scratch.h"
#include "train/report_curves.h"

static mla_curves *curves;

static void make(void) {
    curves = mla_curves_new();
    ck_assert_ptr_nonnull(curves);
}

static void release(void) { mla_curves_free(curves); }

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void add(const char *format, ...) {
    char line[1024];
    mla_error error = {0};
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    expect_ok(mla_curves_add(curves, line, (size_t)bytes, &error), error);
}

static void add_step(uint64_t step, double loss) {
    add("{\"event\":\"step\",\"step\":%" PRIu64 ",\"epoch\":1,\"loss\":%.17g,\"lr\":0.5,\"grad_norm\":null,\"images\":8}",
        step, loss);
}

START_TEST(buckets_have_mean_and_extremes) {
    /* Three times doubled: buckets of eight. */
    const uint64_t steps = 8 * MLA_CURVE_BUCKETS - 3;
    for (uint64_t s = 1; s <= steps; s++) add_step(s, (double)s);
    ck_assert_uint_eq(curves->bucket_steps, 8);
    ck_assert_uint_eq(curves->buckets, MLA_CURVE_BUCKETS);
    for (size_t i = 0; i < curves->buckets; i++) {
        const mla_curve_bucket *b = &curves->bucket[i];
        const uint64_t first = 8 * i + 1, end = 8 * i + 8 < steps ? 8 * i + 8 : steps;
        ck_assert_uint_eq(b->last_step, end);
        ck_assert_uint_eq(b->count[MLA_STEP_LOSS], end - first + 1);
        ck_assert_double_eq(b->low[MLA_STEP_LOSS], (double)first);
        ck_assert_double_eq(b->high[MLA_STEP_LOSS], (double)end);
        ck_assert_double_eq(b->sum[MLA_STEP_LOSS], (double)((end - first + 1) * (first + end)) / 2);
        ck_assert_uint_eq(b->count[MLA_STEP_GRAD_NORM], 0);
    }
}
END_TEST

START_TEST(a_gap_stays_a_gap) {
    add_step(1, 5);
    add_step(1000000, 3);
    add_step(1000001, 4);
    ck_assert_uint_eq(curves->buckets, 3);
    for (uint64_t s = 2; s <= 300; s++) add_step(1000000 + s, 4);
    ck_assert_uint_eq(curves->bucket_steps, 2);
    ck_assert_uint_eq(curves->bucket[0].last_step, 1);
    ck_assert_uint_eq(curves->bucket[0].count[MLA_STEP_LOSS], 1);
    ck_assert_double_eq(curves->bucket[1].low[MLA_STEP_LOSS], 3);
}
END_TEST

static void add_epoch(int epoch, int correct) {
    add("{\"event\":\"epoch\",\"step\":%d,\"epoch\":%d,\"train_loss\":2,\"train_correct\":1,\"train_images\":4,\"test_"
        "loss\":1.5,"
        "\"test_correct\":%d,\"test_images\":1000}",
        7 * epoch, epoch, correct);
    add("{\"event\":\"layers\",\"step\":%d,\"epoch\":%d,\"images\":4,\"layers\":[{\"kind\":\"relu\",\"tokens\":16,\"heads\":"
        "2,"
        "\"energy_q\":0.5,\"energy_k\":%d,\"rank\":null}]}",
        7 * epoch, epoch, epoch);
    add("{\"event\":\"timing\",\"step\":%d,\"epoch\":%d,\"images_per_second\":%d,\"peak_memory_bytes\":1048576}", 7 * epoch,
        epoch, epoch);
}

START_TEST(epochs_are_thinned_and_end_with_the_last) {
    const int epochs = 3 * MLA_CURVE_EPOCHS + 5;
    for (int e = 1; e <= epochs; e++) add_epoch(e, e == 402 ? 999 : e % 900);
    ck_assert_uint_le(curves->epochs, MLA_CURVE_EPOCHS + 1);
    ck_assert_uint_gt(curves->epochs, MLA_CURVE_EPOCHS / 2);
    const mla_curve_epoch *end = &curves->epoch[curves->epochs - 1];
    ck_assert_uint_eq(end->epoch, (uint64_t)epochs);
    ck_assert_double_eq(end->number[MLA_EPOCH_RATE], epochs);
    ck_assert_double_eq(end->number[MLA_EPOCH_MEMORY], 1);
    ck_assert_double_eq(end->number[MLA_EPOCH_TRAIN_ACCURACY], 25);
    ck_assert(isnan(end->number[MLA_EPOCH_AVERAGE_ACCURACY]));
    for (size_t i = 1; i < curves->epochs; i++) ck_assert_uint_lt(curves->epoch[i - 1].epoch, curves->epoch[i].epoch);
    ck_assert_uint_eq(curves->best.epoch, 402); /* though it is not among those kept */
    ck_assert_double_eq(curves->steps_per_epoch, 7);
    ck_assert_uint_le(curves->samples, MLA_CURVE_LAYERS + 1);
    ck_assert_double_eq(curves->sample[curves->samples - 1].number[MLA_LAYER_ENERGY_K], epochs);
    ck_assert(isnan(curves->sample[0].number[MLA_LAYER_RANK]));
}
END_TEST

static void refused(const char *line, const char *word) {
    mla_error error = {0};
    ck_assert_int_eq(mla_curves_add(curves, line, strlen(line), &error), MLA_INVALID);
    expect_text(error.text, word);
}

START_TEST(what_is_no_line) {
    refused("", "");
    refused("[]", "event");
    refused("{\"event\":\"step\",\"epoch\":1}", "step");
    refused("{\"event\":\"step\",\"step\":0,\"epoch\":1}", "step");
    refused("{\"event\":\"step\",\"step\":1.5,\"epoch\":1}", "step");
    refused("{\"event\":\"epoch\",\"step\":1}", "epoch");
    refused("{\"event\":\"layers\",\"step\":1,\"epoch\":1}", "layers");
    add_epoch(1, 1);
    refused("{\"event\":\"layers\",\"step\":1,\"epoch\":1,\"layers\":[1,2]}", "2 layers");
    add("{\"event\":\"something of a later version\",\"step\":1,\"epoch\":1}");
}
END_TEST

START_TEST(a_file_is_read_where_it_was_left) {
    scratch_make();
    char path[1024];
    mla_error error = {0};
    snprintf(path, sizeof path, "%s", in_scratch("log.jsonl"));
    mla_curves_file file = {.path = path};
    expect_ok(mla_curves_read(curves, &file, &error), error); /* not there yet */
    const char text[] = "{\"event\":\"step\",\"step\":1,\"epoch\":1,\"loss\":3}\n{\"event\":\"step\",\"step\":2,\"ep";
    put_file(path, text, strlen(text));
    expect_ok(mla_curves_read(curves, &file, &error), error);
    ck_assert_uint_eq(curves->buckets, 1);
    FILE *more = fopen(path, "a");
    fputs("och\":1,\"loss\":2}\n", more);
    fclose(more);
    expect_ok(mla_curves_read(curves, &file, &error), error);
    expect_ok(mla_curves_read(curves, &file, &error), error);
    ck_assert_uint_eq(curves->buckets, 2);
    ck_assert_uint_eq(file.lines, 2);
    more = fopen(path, "a");
    fputs("no line\n", more);
    fclose(more);
    ck_assert_int_eq(mla_curves_read(curves, &file, &error), MLA_INVALID);
    expect_text(error.text, "log.jsonl:3: ");
    scratch_remove();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("report_curves");
    TCase *group = tcase_create("curves");
    tcase_add_checked_fixture(group, make, release);
    tcase_add_test(group, buckets_have_mean_and_extremes);
    tcase_add_test(group, a_gap_stays_a_gap);
    tcase_add_test(group, epochs_are_thinned_and_end_with_the_last);
    tcase_add_test(group, what_is_no_line);
    tcase_add_test(group, a_file_is_read_where_it_was_left);
    suite_add_tcase(suite, group);
    return run_suite(suite);
}
