/* Signals: the first asks the work to end, a second one of either kind ends the program. */
#include <check.h>
#include <stdlib.h>

#include "tests/run_suite.h"
#include "train/interrupt.h"

static void (*handler_of(int number))(int) {
    struct sigaction action;
    ck_assert_int_eq(sigaction(number, NULL, &action), 0);
    return action.sa_handler;
}

START_TEST(the_first_asks_and_the_second_ends) {
    const int first = _i ? SIGTERM : SIGINT;
    ck_assert_int_eq(mla_interrupted, 0);
    mla_interrupt_setup();
    ck_assert_int_eq(raise(first), 0);
    ck_assert_int_eq(mla_interrupted, 1);
    ck_assert(handler_of(SIGINT) == SIG_DFL);
    ck_assert(handler_of(SIGTERM) == SIG_DFL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("interrupt");
    TCase *cases = tcase_create("signals");
    tcase_add_loop_test(cases, the_first_asks_and_the_second_ends, 0, 2);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
