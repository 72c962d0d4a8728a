/* Event files: the checksum's published values, names that sort, and a disk that is full. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/run_suite.h"
#include "tests/scratch.h"
#include "train/runlog.h"
#include "train/tensorboard.h"

START_TEST(crc_of_published_strings) {
    uint8_t bytes[32] = {0};
    ck_assert_uint_eq(mla_crc32c("123456789", 9), 0xe3069283);
    ck_assert_uint_eq(mla_crc32c("", 0), 0);
    ck_assert_uint_eq(mla_crc32c(bytes, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    memset(bytes, 0xff, 32);
    ck_assert_uint_eq(mla_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)i;
    ck_assert_uint_eq(mla_crc32c(bytes, 32), 0x46dd794e);
}
END_TEST

/* The only event file of the folder, or the later of two. */
static const char *newest(int *count) {
    static char name[512];
    DIR *entries = opendir(scratch);
    *name = 0;
    *count = 0;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) != 0) continue;
        if (strcmp(entry->d_name, name) > 0) snprintf(name, sizeof name, "%s", entry->d_name);
        ++*count;
    }
    closedir(entries);
    return name;
}

static mla_tensorboard *open_board(void) {
    mla_tensorboard *board;
    mla_error error = {0};
    expect_ok(mla_tensorboard_open(&board, scratch, 1, &error), error);
    return board;
}

START_TEST(files_of_a_folder_sort_by_time) {
    int count;
    char first[512];
    scratch_make();
    put_file(in_scratch("events.out.tfevents.4000000000.elsewhere"), "", 0);
    mla_tensorboard_close(open_board());
    snprintf(first, sizeof first, "%s", newest(&count));
    ck_assert_int_eq(count, 2);
    ck_assert_int_eq(strncmp(first, "events.out.tfevents.4000000001.", 31), 0);
    mla_tensorboard_close(open_board());
    ck_assert_int_eq(strncmp(newest(&count), "events.out.tfevents.4000000002.", 31), 0);
    scratch_remove();
}
END_TEST

/* In a child, whose limit is on all that it writes. */
START_TEST(what_does_not_fit_is_taken_back) {
    int count, state;
    scratch_make();
    mla_tensorboard *board = open_board();
    size_t start;
    free(get_file(in_scratch(newest(&count)), &start));
    const pid_t child = fork();
    if (child == 0) {
        mla_error error = {0};
        const mla_step_record record = {
            .step = 1, .epoch = 1, .loss = 2.5, .lr = 1e-3, .grad_norm = 0.5, .images = 8, .correct = 1};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){start + 60, start + 60});
        _exit(mla_tensorboard_step(board, &record, &error) == MLA_IO && strstr(error.text, "events.out.tfevents") ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    size_t end;
    free(get_file(in_scratch(newest(&count)), &end));
    ck_assert_uint_eq(end, start);
    mla_tensorboard_close(board);
    scratch_remove();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tensorboard");
    TCase *group = tcase_create("event files");
    tcase_add_test(group, crc_of_published_strings);
    tcase_add_test(group, files_of_a_folder_sort_by_time);
    tcase_add_test(group, what_does_not_fit_is_taken_back);
    suite_add_tcase(suite, group);
    return run_suite(suite);
}
