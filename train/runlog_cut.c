#include "train/runlog_cut.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/file.h"

typedef struct reader {
    FILE *stream;
    const char *path;
    char *text; /* the line, its newline included */
    size_t capacity, length, number;
    uint64_t limit;   /* lines up to this step are kept */
    uint64_t epochs;  /* and those of an epoch's end up to this epoch */
    uint64_t step;    /* of the line */
    bool keep, whole; /* whole: the newline is there */
} reader;

static bool get_count(uint64_t *count, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *count = (uint64_t)json_integer_value(value);
    return true;
}

/* Fills in step and keep of a line; false, with the reason, when it is no line of a log. */
static bool judge(reader *in, char *why, size_t why_bytes) {
    json_error_t reason;
    json_t *object = json_loadb(in->text, in->length, JSON_REJECT_DUPLICATES, &reason);
    const char *event = json_string_value(json_object_get(object, "event"));
    uint64_t epoch = 0;
    bool ends_epoch = event && (strcmp(event, "epoch") == 0 || strcmp(event, "layers") == 0 || strcmp(event, "timing") == 0);
    bool has_step = get_count(&in->step, object, "step"), valid = has_step;
    if (valid && ends_epoch) valid = get_count(&epoch, object, "epoch");
    in->keep = valid && in->step <= in->limit && epoch <= in->epochs;
    if (!valid)
        snprintf(why, why_bytes, "%s",
                 !object    ? reason.text
                 : has_step ? "it has no whole number \"epoch\""
                            : "it has no whole number \"step\"");
    json_decref(object);
    return valid;
}

/* Reads and judges the next line; *more is false at the end. */
static mla_status next_line(bool *more, reader *in, mla_error *error) {
    char why[JSON_ERROR_TEXT_LENGTH] = "";
    errno = 0;
    ssize_t got = getline(&in->text, &in->capacity, in->stream);
    *more = got > 0;
    if (got <= 0)
        return ferror(in->stream) || errno ? mla_fail(error, MLA_IO, "%s: could not be read: %s", in->path, strerror(errno))
                                           : MLA_OK;
    in->length = (size_t)got;
    in->number++;
    in->whole = in->text[got - 1] == '\n';
    bool valid = judge(in, why, sizeof why);
    /* only a line without its newline can come from a kill; it may be complete but for that */
    if (!valid && in->whole)
        return mla_fail(error, MLA_INVALID, "%s:%zu: is not a line of a log: %s", in->path, in->number, why);
    return MLA_OK;
}

/* Pass 1: is every line valid, is anything to be done, where does the kept part end. */
static mla_status survey(reader *in, bool *change, uint64_t *last, mla_error *error) {
    bool more = true;
    *change = false;
    *last = 0;
    for (;;) {
        mla_status status = next_line(&more, in, error);
        if (status != MLA_OK || !more) return status;
        *change |= !in->keep || !in->whole;
        if (in->keep) *last = in->step;
    }
}

/* Pass 2: sends each line to one of the two files. */
static mla_status divide(reader *in, mla_atomic_file *kept, int dropped, const char *dropped_path, mla_error *error) {
    bool more = true;
    for (;;) {
        mla_status status = next_line(&more, in, error);
        if (status != MLA_OK || !more) return status;
        size_t newline = in->whole ? 0 : 1;
        if (in->keep) {
            status = mla_atomic_write(kept, in->text, in->length, error);
            if (status == MLA_OK) status = mla_atomic_write(kept, "\n", newline, error);
        } else if (!mla_write_all(dropped, in->text, in->length) || !mla_write_all(dropped, "\n", newline)) {
            status = mla_fail_write(error, dropped_path, in->length, errno);
        }
        if (status != MLA_OK) return status;
    }
}

/* The dropped lines are durable before the log loses them: a kill between leaves them in both files. */
static mla_status rewrite(reader *in, const char *dropped_path, mla_error *error) {
    struct stat info;
    mla_atomic_file kept;
    rewind(in->stream);
    in->number = 0;
    if (fstat(fileno(in->stream), &info) != 0)
        return mla_fail(error, MLA_IO, "%s: could not be read: %s", in->path, strerror(errno));
    int dropped = open(dropped_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (dropped < 0) return mla_fail_write(error, dropped_path, 0, errno);
    mla_status status = mla_atomic_open(&kept, in->path, (uint64_t)info.st_size, error);
    if (status == MLA_OK) {
        status = divide(in, &kept, dropped, dropped_path, error);
        if (status == MLA_OK && fsync(dropped) != 0) status = mla_fail_write(error, dropped_path, 0, errno);
        if (status == MLA_OK) status = mla_atomic_commit(&kept, error);
        mla_atomic_discard(&kept);
    }
    if (fstat(dropped, &info) == 0 && info.st_size == 0) unlink(dropped_path); /* only a newline was missing */
    close(dropped);
    return status;
}

static mla_status open_and_survey(reader *in, bool *change, mla_log_cut *cut, mla_error *error) {
    *change = false;
    cut->last = 0;
    in->path = cut->path;
    in->stream = fopen(cut->path, "re");
    if (in->stream) return survey(in, change, &cut->last, error);
    return errno == ENOENT ? MLA_OK : mla_fail(error, MLA_IO, "%s: could not be opened: %s", cut->path, strerror(errno));
}

mla_status mla_runlog_cut(mla_log_cut *cuts, size_t count, uint64_t step, uint64_t epochs, mla_error *error) {
    reader in[MLA_LOG_CUTS_MAX] = {0};
    bool change[MLA_LOG_CUTS_MAX];
    mla_status status = MLA_OK;
    MLA_REQUIRE(count <= MLA_LOG_CUTS_MAX, "%zu logs are cut at once", count);
    for (size_t i = 0; i < count && status == MLA_OK; i++) {
        in[i].limit = step;
        in[i].epochs = epochs;
        status = open_and_survey(&in[i], &change[i], &cuts[i], error);
    }
    for (size_t i = 0; i < count && status == MLA_OK; i++)
        if (change[i]) status = rewrite(&in[i], cuts[i].dropped_path, error);
    for (size_t i = 0; i < count; i++) {
        if (in[i].stream) fclose(in[i].stream);
        free(in[i].text);
    }
    return status;
}
