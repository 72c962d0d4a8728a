/* Runs a suite and gives the exit code of the test program: not 0 when a test failed, or when none ran. */
#ifndef MLA_TESTS_RUN_SUITE_H
#define MLA_TESTS_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int run = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed || run == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
