#include <check.h>
#include <dirent.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/run_suite.h"
#include "tests/scratch.h"
#include "train/checkpoint.h"
#include "train/file.h"
#include "train/runlog.h"

static const char config_text[] = "model:\n  family: vit\n";

static const char *run_file(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/my run/%s", scratch, name);
    return path;
}

static mla_runlog *create(void) {
    mla_runlog *log;
    mla_error error = {0};
    expect_ok(mla_runlog_create(&log, in_scratch("my run"), config_text, NULL, &error), error);
    return log;
}

static mla_runlog *resume_in_epoch(uint64_t step, uint64_t epochs) {
    mla_runlog *log;
    mla_error error = {0};
    expect_ok(mla_runlog_resume(&log, in_scratch("my run"), step, epochs, &error), error);
    return log;
}

/* Epochs have four steps; after the fourth the epoch is completed. */
static mla_runlog *resume(uint64_t step) { return resume_in_epoch(step, step / 4); }

/* Logging without a word to Check: it is told of every assertion through a file that parent and child share, and a child
 * that is killed while it writes there would leave half a message. */
static mla_status log_epoch(mla_runlog *log, uint64_t step, mla_error *error) {
    const mla_epoch_record epoch = {.step = step,
                                    .epoch = step / 4,
                                    .train_loss = 2,
                                    .train_correct = 10,
                                    .train_images = 512,
                                    .weight_hash = "0123456789abcdef"};
    const mla_timing_record timing = {step, step / 4, 1.5, 341.25, 0.25, 0.125, 1 << 20};
    const mla_status status = mla_runlog_epoch(log, &epoch, error);
    return status == MLA_OK ? mla_runlog_timing(log, &timing, error) : status;
}

static mla_status log_step(mla_runlog *log, uint64_t step, mla_error *error) {
    const mla_step_record record = {step, (step + 3) / 4, 2.3 / (double)step, 1e-3, 0.5, 128, step, 0, false};
    const mla_status status = mla_runlog_step(log, &record, error);
    return status == MLA_OK && step % 4 == 0 ? log_epoch(log, step, error) : status;
}

static void write_epoch(mla_runlog *log, uint64_t step) {
    mla_error error = {0};
    expect_ok(log_epoch(log, step, &error), error);
}

static void write_step(mla_runlog *log, uint64_t step) {
    mla_error error = {0};
    expect_ok(log_step(log, step, &error), error);
}

static void write_steps(mla_runlog *log, uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; step++) write_step(log, step);
}

static void expect_content(const char *name, const char *expected) {
    char *content = get_file(run_file(name), NULL);
    ck_assert_str_eq(content, expected);
    free(content);
}

/* The log of a run that made `steps` steps without a stop; the caller frees it. */
static char *straight_log(const char *name, uint64_t steps) {
    mla_runlog *log;
    mla_error error = {0};
    char folder[64], path[1100];
    static int runs;
    snprintf(folder, sizeof folder, "straight-%d", runs++);
    expect_ok(mla_runlog_create(&log, in_scratch(folder), config_text, NULL, &error), error);
    write_steps(log, 1, steps);
    mla_runlog_close(log);
    snprintf(path, sizeof path, "%s/%s/%s", scratch, folder, name);
    return get_file(path, NULL);
}

START_TEST(lines_are_as_documented) {
    mla_error error = {0};
    mla_runlog *log = create();
    mla_step_record step = {12, 1, 2.3, 1e-3, 1.7, 128, 14, 0, false};
    expect_ok(mla_runlog_step(log, &step, &error), error);
    step = (mla_step_record){13, 1, (double)NAN, 5e-324, (double)INFINITY, UINT64_C(9007199254740993), 0, 0.25, true};
    expect_ok(mla_runlog_step(log, &step, &error), error);
    mla_epoch_record epoch = {13, 1, 2.125, 9100, 50000, 1.0 / 3, 3100, 10000, 2, 2900, 1, "00ff00ff00ff00ff"};
    expect_ok(mla_runlog_epoch(log, &epoch, &error), error);
    epoch.has_ema = 0;
    expect_ok(mla_runlog_epoch(log, &epoch, &error), error);
    epoch.test_images = 0;
    epoch.weight_hash = NULL;
    expect_ok(mla_runlog_epoch(log, &epoch, &error), error);
    mla_timing_record timing = {13, 1, 30.5, 1639.25, 2, 0.5, 91234304};
    expect_ok(mla_runlog_timing(log, &timing, &error), error);
    expect_ok(mla_runlog_sync(log, &error), error);
    mla_runlog_close(log);
    expect_content(
        "log.jsonl",
        "{\"event\":\"step\",\"step\":12,\"epoch\":1,\"loss\":2.3,\"lr\":0.001,\"grad_norm\":1.7,\"images\":128,"
        "\"correct\":14}\n"
        "{\"event\":\"step\",\"step\":13,\"epoch\":1,\"loss\":null,\"retention_loss\":0.25,\"lr\":5e-324,\"grad_norm\":null,"
        "\"images\":9007199254740993,\"correct\":0}\n"
        "{\"event\":\"epoch\",\"step\":13,\"epoch\":1,\"train_loss\":2.125,\"train_correct\":9100,"
        "\"train_images\":50000,\"test_loss\":0.3333333333333333,\"test_correct\":3100,\"test_images\":10000,"
        "\"ema_test_loss\":2.0,\"ema_test_correct\":2900,\"weight_hash\":\"00ff00ff00ff00ff\"}\n"
        "{\"event\":\"epoch\",\"step\":13,\"epoch\":1,\"train_loss\":2.125,\"train_correct\":9100,"
        "\"train_images\":50000,\"test_loss\":0.3333333333333333,\"test_correct\":3100,\"test_images\":10000,"
        "\"weight_hash\":\"00ff00ff00ff00ff\"}\n"
        "{\"event\":\"epoch\",\"step\":13,\"epoch\":1,\"train_loss\":2.125,\"train_correct\":9100,"
        "\"train_images\":50000}\n");
    expect_content("timing.jsonl",
                   "{\"event\":\"timing\",\"step\":13,\"epoch\":1,\"seconds\":30.5,\"images_per_second\":1639.25,"
                   "\"evaluation_seconds\":2.0,\"diagnostics_seconds\":0.5,\"peak_memory_bytes\":91234304}\n");
    expect_content("config.yaml", config_text);
}
END_TEST

START_TEST(lines_do_not_follow_the_locale) {
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "de_DE.utf8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        return; /* none of them is installed */
    mla_runlog *log = create();
    write_step(log, 2);
    mla_runlog_close(log);
    expect_content("log.jsonl", "{\"event\":\"step\",\"step\":2,\"epoch\":1,\"loss\":1.15,\"lr\":0.001,\"grad_norm\":0.5,"
                                "\"images\":128,\"correct\":2}\n");
}
END_TEST

/* ---- creating */

START_TEST(a_run_is_not_overwritten) {
    mla_runlog *log = create(), *second;
    mla_error error = {0};
    ck_assert(mla_runlog_create(&second, in_scratch("my run"), "other", NULL, &error) == MLA_INVALID);
    expect_text(error.text, "another process is running in this folder");
    ck_assert(mla_runlog_resume(&second, in_scratch("my run"), 0, 0, &error) == MLA_INVALID);
    expect_text(error.text, "another process is running in this folder");
    mla_runlog_close(log);
    /* a run that was stopped before its first step may be started again */
    log = create();
    write_step(log, 1);
    mla_runlog_close(log);
    ck_assert(mla_runlog_create(&second, in_scratch("my run"), "other", NULL, &error) == MLA_INVALID);
    expect_text(error.text, "my run: already holds a run (log.jsonl)");
    expect_text(error.text, "--resume");
    expect_text(error.text, "--out");
    ck_assert_ptr_null(second);
    /* what stands in the folder before a run is not the run's to overwrite */
    ck_assert_int_eq(unlink(run_file("log.jsonl")), 0);
    ck_assert(mla_runlog_create(&second, in_scratch("my run"), "other", NULL, &error) == MLA_INVALID);
    expect_text(error.text, "holds a config.yaml that is no run's");
    put_file(run_file("checkpoints/step-00000001.safetensors"), "x", 1);
    ck_assert(mla_runlog_create(&second, in_scratch("my run"), "other", NULL, &error) == MLA_INVALID);
    expect_text(error.text, "already holds a run (checkpoints)");
    expect_content("config.yaml", config_text);
}
END_TEST

START_TEST(parents_are_made) {
    mla_runlog *log;
    mla_error error = {0};
    expect_ok(mla_runlog_create(&log, in_scratch("a/ä b//c/"), config_text, NULL, &error), error);
    mla_runlog_close(log);
    ck_assert(exists(in_scratch("a/ä b/c/config.yaml")));
    ck_assert(exists(in_scratch("a/ä b/c/checkpoints")));
}
END_TEST

START_TEST(places_that_can_not_be_written) {
    mla_runlog *log;
    mla_error error = {0};
    put_file(in_scratch("file"), "x", 1);
    ck_assert(mla_runlog_create(&log, in_scratch("file"), config_text, NULL, &error) == MLA_INVALID);
    expect_text(error.text, "file: exists and is not a folder");
    ck_assert(mla_runlog_create(&log, in_scratch("file/run"), config_text, NULL, &error) != MLA_OK);
    expect_text(error.text, "file: exists and is not a folder");
    ck_assert(mla_runlog_create(&log, "/proc/run", config_text, NULL, &error) == MLA_IO);
    expect_text(error.text, "/proc/run: the folder could not be made");
    ck_assert(mla_runlog_create(&log, "", config_text, NULL, &error) == MLA_INVALID);
    ck_assert_ptr_null(log);
    if (geteuid() == 0) return; /* root may write everywhere */
    ck_assert_int_eq(mkdir(in_scratch("locked"), 0500), 0);
    ck_assert(mla_runlog_create(&log, in_scratch("locked"), config_text, NULL, &error) == MLA_IO);
    expect_text(error.text, "Permission denied");
    ck_assert(mla_runlog_create(&log, in_scratch("locked/a/b"), config_text, NULL, &error) == MLA_IO);
    expect_text(error.text, "Permission denied");
}
END_TEST

START_TEST(a_failed_start_leaves_nothing) {
    mla_runlog *log;
    mla_error error = {0};
    ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    ck_assert_int_eq(mkdir(in_scratch("there"), 0700), 0);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){4, 4}), 0);
    ck_assert(mla_runlog_create(&log, in_scratch("x/y/z"), config_text, NULL, &error) == MLA_IO);
    expect_text(error.text, "x/y/z/config.yaml: File too large");
    ck_assert(!exists(in_scratch("x")));
    ck_assert(mla_runlog_create(&log, in_scratch("there"), config_text, NULL, &error) == MLA_IO);
    ck_assert_int_eq(rmdir(in_scratch("there")), 0);
}
END_TEST

/* A line for which there is no room is taken back, so that the log stays readable. */
START_TEST(no_half_lines) {
    mla_error error = {0};
    mla_runlog *log = create();
    write_step(log, 1);
    char *before = get_file(run_file("log.jsonl"), NULL);
    ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    rlim_t limit = strlen(before) + 20;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, limit}), 0);
    mla_step_record record = {.step = 2, .epoch = 1};
    ck_assert(mla_runlog_step(log, &record, &error) == MLA_IO);
    expect_text(error.text, "log.jsonl: File too large");
    mla_runlog_close(log);
    expect_content("log.jsonl", before);
    free(before);
}
END_TEST

/* ---- resuming */

START_TEST(resume_goes_on_without_gap_or_repeat) {
    char *expected = straight_log("log.jsonl", 12), *timing = straight_log("timing.jsonl", 12);
    for (uint64_t stop = 0; stop <= 8; stop++) {
        mla_runlog *log = create();
        write_steps(log, 1, 8);
        mla_runlog_close(log);
        log = resume(stop);
        write_steps(log, stop + 1, 12);
        mla_runlog_close(log);
        expect_content("log.jsonl", expected);
        expect_content("timing.jsonl", timing);
        ck_assert_int_eq(exists(run_file("log.dropped.jsonl")), stop < 8);
        if (stop == 6) {
            char *dropped = get_file(run_file("log.dropped.jsonl"), NULL);
            ck_assert_ptr_eq(strstr(dropped, "{\"event\":\"step\",\"step\":7,"), dropped);
            expect_text(dropped, "{\"event\":\"epoch\",\"step\":8,");
            free(dropped);
            dropped = get_file(run_file("timing.dropped.jsonl"), NULL);
            expect_text(dropped, "\"step\":8,");
            free(dropped);
        }
        scratch_remove();
        scratch_make();
    }
    free(expected);
    free(timing);
}
END_TEST

START_TEST(epoch_line_of_the_resumed_step_stays) {
    mla_runlog *log = create();
    write_steps(log, 1, 6);
    mla_runlog_close(log);
    log = resume(4);
    mla_runlog_close(log);
    char *content = get_file(run_file("log.jsonl"), NULL), *expected = straight_log("log.jsonl", 4);
    ck_assert_str_eq(content, expected);
    expect_text(content, "\"event\":\"epoch\",\"step\":4,");
    free(content);
    free(expected);
}
END_TEST

/* A checkpoint of an interrupted evaluation stands after the last step of an epoch that is not completed: the epoch's
 * lines come after it, however often it is resumed and killed again. */
START_TEST(epoch_line_of_an_open_epoch_is_dropped) {
    char *expected = straight_log("log.jsonl", 8), *timing = straight_log("timing.jsonl", 8);
    mla_runlog *log = create();
    write_steps(log, 1, 8);
    mla_runlog_close(log);
    for (int kill = 0; kill < 3; kill++) {
        log = resume_in_epoch(8, 1);
        char *content = get_file(run_file("log.jsonl"), NULL);
        ck_assert_ptr_null(strstr(content, "\"event\":\"epoch\",\"step\":8,"));
        expect_text(content, "\"event\":\"epoch\",\"step\":4,");
        expect_text(content, "\"event\":\"step\",\"step\":8,");
        free(content);
        content = get_file(run_file("timing.jsonl"), NULL);
        ck_assert_ptr_null(strstr(content, "\"step\":8,"));
        free(content);
        write_epoch(log, 8);
        mla_runlog_close(log);
        expect_content("log.jsonl", expected);
        expect_content("timing.jsonl", timing);
    }
    free(expected);
    free(timing);
}
END_TEST

/* Cuts the log at every byte of its last two lines, as a kill would. */
START_TEST(cut_last_line_is_dropped) {
    char *expected = straight_log("log.jsonl", 3), *kept = straight_log("log.jsonl", 2);
    mla_runlog *log = create();
    mla_runlog_close(log);
    for (size_t cut = strlen(kept); cut < strlen(expected); cut++) {
        unlink(run_file("log.dropped.jsonl"));
        put_file(run_file("log.jsonl"), expected, cut);
        log = resume(2);
        write_step(log, 3);
        mla_runlog_close(log);
        expect_content("log.jsonl", expected);
        if (cut > strlen(kept)) {
            char *dropped = get_file(run_file("log.dropped.jsonl"), NULL);
            ck_assert_uint_eq(strlen(dropped), cut - strlen(kept) + 1);
            ck_assert_int_eq(strncmp(dropped, expected + strlen(kept), cut - strlen(kept)), 0);
            free(dropped);
        }
    }
    /* only the newline is missing: the line is whole and belongs to the run */
    unlink(run_file("log.dropped.jsonl"));
    put_file(run_file("log.jsonl"), expected, strlen(expected) - 1);
    log = resume(3);
    mla_runlog_close(log);
    expect_content("log.jsonl", expected);
    ck_assert(!exists(run_file("log.dropped.jsonl")));
    free(expected);
    free(kept);
}
END_TEST

START_TEST(damaged_middle_is_an_error) {
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"{\"step\":1}\n{\"step\":2,\n{\"step\":3}\n", "log.jsonl:2: is not a line of a log: "},
        {"{\"step\":1}\n\n{\"step\":3}\n", "log.jsonl:2: "},
        {"{\"step\":1}\n[2]\n{\"step\":3}\n", "log.jsonl:2: is not a line of a log: it has no whole number \"step\""},
        {"{\"step\":1.5}\n", "log.jsonl:1: is not a line of a log: it has no whole number"},
        {"{\"step\":1}\n{\"step\":2}{\"step\":3}\n", "log.jsonl:2: "},
    };
    mla_runlog *log = create();
    mla_runlog_close(log);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mla_error error = {0};
        put_file(run_file("log.jsonl"), cases[i].text, strlen(cases[i].text));
        ck_assert(mla_runlog_resume(&log, in_scratch("my run"), 1, 0, &error) == MLA_INVALID);
        ck_assert_ptr_null(log);
        expect_text(error.text, cases[i].expected);
        expect_content("log.jsonl", cases[i].text);
        ck_assert(!exists(run_file("log.dropped.jsonl")));
    }
    mla_error error = {0};
    ck_assert(mla_runlog_resume(&log, in_scratch("absent"), 1, 0, &error) == MLA_IO);
    expect_text(error.text, "absent: the run folder could not be opened");
}
END_TEST

/* Names and contents of the run folder's files, as one text; the caller frees it. */
static char *snapshot(void) {
    char *text = NULL;
    size_t bytes = 0;
    struct dirent **entries;
    FILE *out = open_memstream(&text, &bytes);
    int count = scandir(in_scratch("my run"), &entries, NULL, alphasort);
    ck_assert(out && count > 0);
    for (int i = 0; i < count; i++) {
        fprintf(out, "%s\n", entries[i]->d_name);
        if (strchr("lt", entries[i]->d_name[0])) { /* log*, timing* */
            char *content = get_file(run_file(entries[i]->d_name), NULL);
            fputs(content, out);
            free(content);
        }
        free(entries[i]);
    }
    free(entries);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

/* Neither log is cut when the other one can't be. */
START_TEST(damage_in_either_log_moves_nothing) {
    static const char *const names[] = {"log.jsonl", "timing.jsonl"};
    for (int i = 0; i < 2; i++) {
        mla_error error = {0};
        mla_runlog *log = create();
        write_steps(log, 1, 12);
        mla_runlog_close(log);
        char *content = get_file(run_file(names[i]), NULL);
        memset(content, '#', 5);
        put_file(run_file(names[i]), content, strlen(content));
        free(content);
        char *before = snapshot();
        ck_assert(mla_runlog_resume(&log, in_scratch("my run"), 4, 1, &error) == MLA_INVALID);
        expect_text(error.text, names[i]);
        expect_text(error.text, ":1: is not a line of a log: ");
        char *after = snapshot();
        ck_assert_msg(strcmp(before, after) == 0, "the run folder was changed though %s is damaged", names[i]);
        free(before);
        free(after);
        scratch_remove();
        scratch_make();
    }
}
END_TEST

START_TEST(zeros_at_the_end_are_dropped) {
    char content[64] = "{\"step\":1}\n"; /* what some file systems leave after a loss of power */
    mla_runlog *log = create();
    mla_runlog_close(log);
    put_file(run_file("log.jsonl"), content, sizeof content);
    log = resume(1);
    mla_runlog_close(log);
    expect_content("log.jsonl", "{\"step\":1}\n");
}
END_TEST

START_TEST(later_checkpoints_are_set_aside) {
    mla_runlog *log = create();
    write_steps(log, 1, 9);
    mla_runlog_close(log);
    put_file(run_file("checkpoints/step-00000004.safetensors"), "4", 1);
    put_file(run_file("checkpoints/step-00000008.safetensors"), "8", 1);
    log = resume(4);
    mla_runlog_close(log);
    ck_assert(exists(run_file("checkpoints/step-00000004.safetensors")));
    ck_assert(!exists(run_file("checkpoints/step-00000008.safetensors")));
    ck_assert(exists(run_file("checkpoints/dropped-step-00000008.safetensors")));
}
END_TEST

static void save_best(uint64_t step) {
    static const char *const names[] = {"a", "b"};
    static const mla_class_info classes = {names, 2, {0, 0, 0}, {1, 1, 1}, 32};
    mla_params params = {0};
    mla_error error = {0};
    mla_counters counters = {.step = step, .epoch = 1};
    static mla_config config;
    mla_config_defaults(&config);
    (void)mla_params_add(&params, "head.weight", 2, (size_t[]){2, 3}, (mla_init){MLA_INIT_NORMAL, 1}, true);
    expect_ok(mla_params_allocate(&params, &error), error);
    mla_params_init(&params, 3);
    mla_run_buffers buffers = {.value = params.value};
    const char *path = run_file("checkpoints/best.safetensors");
    expect_ok(mla_checkpoint_save(path, &params, &buffers, &counters, &config, &classes, &error), error);
    mla_params_free(&params);
}

START_TEST(a_later_best_is_set_aside) {
    mla_runlog *log = create();
    write_steps(log, 1, 9);
    mla_runlog_close(log);
    save_best(8);
    log = resume(8);
    mla_runlog_close(log);
    ck_assert(exists(run_file("checkpoints/best.safetensors")));
    log = resume(4);
    mla_runlog_close(log);
    ck_assert(!exists(run_file("checkpoints/best.safetensors")));
    ck_assert(exists(run_file("checkpoints/dropped-best.safetensors")));
    put_file(run_file("checkpoints/best.safetensors"), "damaged", 7);
    log = resume(4);
    mla_runlog_close(log);
    expect_content("checkpoints/best.safetensors", "damaged");
}
END_TEST

static _Noreturn void log_forever(mla_runlog *log) {
    for (uint64_t step = 21;; step++)
        if (log_step(log, step, NULL) != MLA_OK) _exit(1);
}

/* A child logs and is killed; whatever stands in the log can be gone on with. */
START_TEST(a_kill_at_any_moment_leaves_a_log) {
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* it tells of missing lines each time */
    for (int kills = 0; kills < 50; kills++) {
        mla_error error = {0};
        mla_runlog *log = kills ? resume(20) : create();
        if (kills == 0) write_steps(log, 1, 20);
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) log_forever(log);
        mla_runlog_close(log);
        usleep((useconds_t)(200 + 97 * kills));
        kill(child, SIGKILL);
        int how;
        ck_assert_int_eq(waitpid(child, &how, 0), child);
        ck_assert(WIFSIGNALED(how)); /* it had not failed before */
        /* all complete lines are taken up: nothing but a cut last one is dropped */
        expect_ok(mla_runlog_resume(&log, in_scratch("my run"), 1 << 30, 1 << 28, &error), error);
        mla_runlog_close(log);
    }
    mla_runlog *log = resume(20);
    mla_runlog_close(log);
    char *expected = straight_log("log.jsonl", 20);
    expect_content("log.jsonl", expected);
    free(expected);
}
END_TEST

/* ---- pruning */

START_TEST(prune_keeps_the_newest) {
    mla_runlog *log = create();
    mla_runlog_close(log);
    static const char *const names[] = {"step-00000010", "step-00000009",         "step-100000000",    "step-99999999",
                                        "best",          "dropped-step-00000001", "mine-step-00000001"};
    char name[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "checkpoints/%s.safetensors", names[i]);
        put_file(run_file(name), "x", 1);
    }
    char ended[64], ended_below[64], own[64], live[64];
    pid_t child = fork();
    if (child == 0) _exit(0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    snprintf(ended, sizeof ended, ".mirrorla-%ld-4.tmp", (long)child);
    snprintf(ended_below, sizeof ended_below, "checkpoints/.mirrorla-%ld-3.tmp", (long)child);
    snprintf(own, sizeof own, "checkpoints/.mirrorla-%ld-999.tmp", (long)getpid());
    snprintf(live, sizeof live, "checkpoints/.mirrorla-%ld-3.tmp", (long)getppid());
    put_file(run_file(ended), "x", 1);
    put_file(run_file(ended_below), "x", 1);
    put_file(run_file(own), "x", 1);
    put_file(run_file(live), "x", 1);
    put_file(run_file(".mirrorla-1-4.tmp"), "x", 1); /* process 1 is always there, and mostly not ours to signal */
    put_file(run_file("checkpoints/.other.tmp"), "x", 1);
    mla_runlog_prune(in_scratch("my run"), 2);
    static const bool stays[] = {false, false, true, true, true, true, true};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "checkpoints/%s.safetensors", names[i]);
        ck_assert_msg(exists(run_file(name)) == stays[i], "%s", name);
    }
    ck_assert(!exists(run_file(ended)));
    ck_assert(!exists(run_file(ended_below)));
    ck_assert(!exists(run_file(own)));
    ck_assert(exists(run_file(live)));
    ck_assert(exists(run_file(".mirrorla-1-4.tmp")));
    ck_assert(exists(run_file("checkpoints/.other.tmp")));
    mla_runlog_prune(in_scratch("my run"), 0); /* at least one stays */
    ck_assert(exists(run_file("checkpoints/step-100000000.safetensors")));
    ck_assert(!exists(run_file("checkpoints/step-99999999.safetensors")));
    mla_runlog_prune(in_scratch("absent"), 1);
}
END_TEST

/* What a run will need is compared with what the file system has, before the run's folder exists. */
START_TEST(free_space_is_told) {
    mla_error error = {0};
    expect_ok(mla_file_space(in_scratch("not/yet/there"), 1, &error), error);
    ck_assert(mla_file_space(in_scratch("not/yet/there"), UINT64_MAX / 2, &error) == MLA_IO);
    ck_assert_ptr_nonnull(strstr(error.text, "not/yet/there"));
    ck_assert_ptr_nonnull(strstr(error.text, "needed"));
    ck_assert_ptr_nonnull(strstr(error.text, "free"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("runlog");
    TCase *tests = tcase_create("runlog");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
    tcase_add_test(tests, lines_are_as_documented);
    tcase_add_test(tests, free_space_is_told);
    tcase_add_test(tests, lines_do_not_follow_the_locale);
    tcase_add_test(tests, a_run_is_not_overwritten);
    tcase_add_test(tests, parents_are_made);
    tcase_add_test(tests, places_that_can_not_be_written);
    tcase_add_test(tests, a_failed_start_leaves_nothing);
    tcase_add_test(tests, no_half_lines);
    tcase_add_test(tests, resume_goes_on_without_gap_or_repeat);
    tcase_add_test(tests, epoch_line_of_the_resumed_step_stays);
    tcase_add_test(tests, epoch_line_of_an_open_epoch_is_dropped);
    tcase_add_test(tests, cut_last_line_is_dropped);
    tcase_add_test(tests, damaged_middle_is_an_error);
    tcase_add_test(tests, zeros_at_the_end_are_dropped);
    tcase_add_test(tests, damage_in_either_log_moves_nothing);
    tcase_add_test(tests, later_checkpoints_are_set_aside);
    tcase_add_test(tests, a_later_best_is_set_aside);
    tcase_add_test(tests, a_kill_at_any_moment_leaves_a_log);
    tcase_add_test(tests, prune_keeps_the_newest);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
