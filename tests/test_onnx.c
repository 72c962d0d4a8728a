/* The writer of ONNX files where no whole model gets it: limits and failures. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>

#include "run_suite.h"
#include "scratch.h"
#include "train/file.h"
#include "train/onnx_graph.h"

/* y = x + weight, x (batch, count) */
static mla_onnx_graph *make_graph(int64_t count, const float *weight) {
    mla_onnx_graph *graph = mla_onnx_graph_new("sum");
    ck_assert_ptr_nonnull(graph);
    const mla_onnx_value x = mla_onnx_input(graph, "x", MLA_ONNX_FLOAT, 2, (int64_t[]){MLA_ONNX_BATCH, count}, NULL);
    const mla_onnx_value w = mla_onnx_weight(graph, "weight", 1, &count, weight);
    mla_onnx_output(graph, "y", mla_onnx_binary(graph, "Add", x, w), NULL);
    return graph;
}

START_TEST(more_than_two_gib_are_refused) {
    mla_error error = {0};
    const char *path = in_scratch("model.onnx");
    const float weight = 0; /* never read */
    mla_onnx_graph *graph = make_graph((INT64_C(1) << 29) + 1, &weight);
    ck_assert_int_eq(mla_onnx_graph_write(graph, path, NULL, 0, &error), MLA_INVALID);
    ck_assert_ptr_nonnull(strstr(error.text, "at most 2 GiB"));
    ck_assert_ptr_nonnull(strstr(error.text, path));
    ck_assert_int_ne(access(path, F_OK), 0);
    mla_onnx_graph_free(graph);
}
END_TEST

/* The file stops growing in the middle of the weights: the old file stays. */
START_TEST(failed_write_leaves_the_old_file) {
    enum { COUNT = 1 << 20 };
    mla_error error = {0};
    const char *path = in_scratch("model.onnx");
    float *weight = calloc(COUNT, sizeof *weight);
    ck_assert_ptr_nonnull(weight);
    ck_assert_int_eq(mla_file_write(path, "old", 3, &error), MLA_OK);
    mla_onnx_graph *graph = make_graph(COUNT, weight);
    struct rlimit before, limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){1 << 20, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(mla_onnx_graph_write(graph, path, NULL, 0, &error), MLA_IO);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    char *content;
    size_t bytes;
    ck_assert_int_eq(mla_file_read(&content, &bytes, path, 100, &error), MLA_OK);
    ck_assert_str_eq(content, "old");
    free(content);
    ck_assert_int_eq(mla_onnx_graph_write(graph, path, NULL, 0, &error), MLA_OK);
    ck_assert_int_eq(mla_file_read(&content, &bytes, path, 100 << 20, &error), MLA_OK);
    ck_assert_uint_gt(bytes, COUNT * sizeof *weight);
    free(content);
    mla_onnx_graph_free(graph);
    free(weight);
}
END_TEST

/* Constants that hold the same are one, and a split of the batch's rank keeps it symbolic. */
START_TEST(shapes_and_names) {
    mla_onnx_graph *graph = mla_onnx_graph_new("shapes");
    const mla_onnx_value x = mla_onnx_input(graph, "x", MLA_ONNX_FLOAT, 3, (int64_t[]){MLA_ONNX_BATCH, 4, 6}, NULL);
    ck_assert_str_eq(mla_onnx_scalar(graph, 0.5).name, "0.5");
    ck_assert_str_eq(mla_onnx_scalar(graph, 1).name, "1.0");
    mla_onnx_value part[2];
    mla_onnx_scope(graph, "here");
    mla_onnx_split(graph, part, 2, (int64_t[]){2, 4}, x, 2);
    ck_assert_str_eq(part[1].name, "here/Split_0.1");
    const mla_onnx_value y = mla_onnx_reshape(graph, part[1], 2, (int64_t[]){MLA_ONNX_BATCH, 16});
    ck_assert_int_eq(y.shape[0], MLA_ONNX_BATCH);
    const mla_onnx_value mean = mla_onnx_mean(graph, x, 2, (int64_t[]){1, 2}, false);
    ck_assert_int_eq(mean.ndim, 1);
    ck_assert_int_eq(mean.shape[0], MLA_ONNX_BATCH);
    mla_onnx_graph_free(graph);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("onnx");
    TCase *cases = tcase_create("writer");
    tcase_add_checked_fixture(cases, scratch_make, scratch_remove);
    tcase_add_test(cases, more_than_two_gib_are_refused);
    tcase_add_test(cases, failed_write_leaves_the_old_file);
    tcase_add_test(cases, shapes_and_names);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
