/* How ablate shares the machine: cells that would not fit into memory together are not run together. */
#include <check.h>
#include <string.h>

#include "tests/run_suite.h"
#include "tests/scratch.h"
#include "train/ablate.h"
#include "train/machine.h"

static const char text[] = "model: {depths: [1], dims: [16], heads: [2]}\ndata: {set: twins}\n"
                           "sweep: {optim.lr: [1e-3, 2e-3, 3e-3, 4e-3], train.seed: [0, 1]}\n";

static mla_ablate_plan plans[4];
static mla_cell_state states[8];

static mla_sweep *open_sweep(void) {
    mla_sweep *sweep;
    mla_error error = {0};
    put_file(in_scratch("sweep.yaml"), text, strlen(text));
    expect_ok(mla_sweep_open(&sweep, in_scratch("sweep.yaml"), NULL, 0, &error), error);
    ck_assert(sweep->row_count == 4 && sweep->cell_count == 8);
    return sweep;
}

/* The run's jobs when each cell needs `share` of the free memory; 0 when it is refused. */
static int jobs_of(int jobs, int threads, double share, int *threads_each) {
    const mla_ablate_options options = {.jobs = jobs, .threads = threads};
    mla_ablate_run run = {.options = &options, .sweep = open_sweep(), .plan = plans, .state = states};
    mla_error error = {0};
    const double free_bytes = (double)mla_machine_memory_free();
    ck_assert(free_bytes > 0 && mla_machine_memory_size() >= mla_machine_memory_free());
    for (int i = 0; i < 4; i++) plans[i].bytes = (size_t)(share * free_bytes);
    const mla_status status = mla_ablate_share(&run, &error);
    mla_sweep_close(run.sweep);
    if (status != MLA_OK) {
        ck_assert(status == MLA_NO_MEMORY);
        ck_assert_msg(strstr(error.text, "lr0.001-s0 needs about") != NULL, "%s", error.text);
        return 0;
    }
    if (threads_each) *threads_each = run.threads;
    return run.jobs;
}

START_TEST(threads_are_shared) {
    int each;
    memset(states, 0, sizeof states);
    ck_assert(jobs_of(1, 8, 0.001, &each) == 1 && each == 8);
    ck_assert(jobs_of(3, 8, 0.001, &each) == 3 && each == 2);
    ck_assert(jobs_of(4, 2, 0.001, &each) == 2 && each == 1);
}
END_TEST

START_TEST(memory_bounds_jobs) {
    int each;
    memset(states, 0, sizeof states);
    /* others use the machine meanwhile, so the shares stay away from whole numbers */
    ck_assert(jobs_of(4, 8, 0.4, &each) == 2 && each == 4);
    ck_assert(jobs_of(4, 8, 0.7, &each) == 1 && each == 8);
    /* what is free now may be more when it is its turn; only the machine's size refuses */
    ck_assert(jobs_of(4, 8, 1.2 * (double)mla_machine_memory_size() / (double)mla_machine_memory_free(), NULL) == 0);
    /* cells that are done need nothing */
    for (int i = 0; i < 8; i++) states[i].status = MLA_CELL_DONE;
    ck_assert(jobs_of(4, 8, 1e3, NULL) == 4);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ablate");
    TCase *tests = tcase_create("share");
    tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
    tcase_add_test(tests, threads_are_shared);
    tcase_add_test(tests, memory_bounds_jobs);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
