/* Export to ONNX in a build without protobuf-c. */
#include <check.h>

#include "run_suite.h"
#include "scratch.h"
#include "train/onnx.h"

START_TEST(says_what_is_missing) {
    mla_error error = {0};
    const char *path = in_scratch("model.onnx");
    ck_assert_int_eq(mla_export_onnx(path, NULL, NULL, NULL, &error), MLA_INVALID);
    for (int i = 0; i < 3; i++)
        expect_text(error.text, ((const char *[]){"protobuf-c-compiler", "libprotobuf-c-dev", "libonnx-dev"})[i]);
    ck_assert(!exists(path));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("onnx_missing");
    TCase *tests = tcase_create("onnx_missing");
    tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
    tcase_add_test(tests, says_what_is_missing);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
