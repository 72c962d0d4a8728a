#include "train/runlog.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/checkpoint.h"
#include "train/file.h"
#include "train/runlog_cut.h"
#include "train/tensorboard.h"
#include "train/text.h"

struct mla_runlog {
    char *folder, *log_path, *timing_path, *checkpoints;
    int folder_fd; /* holds the lock */
    int log_fd, timing_fd;
    mla_tensorboard *tensorboard; /* or NULL */
};

static mla_runlog *new_log(const char *folder) {
    mla_runlog *log = calloc(1, sizeof *log);
    if (!log) return NULL;
    log->folder_fd = log->log_fd = log->timing_fd = -1;
    log->folder = strdup(folder);
    log->log_path = mla_path_join(folder, "log.jsonl");
    log->timing_path = mla_path_join(folder, "timing.jsonl");
    log->checkpoints = mla_path_join(folder, "checkpoints");
    if (log->folder && log->log_path && log->timing_path && log->checkpoints) return log;
    mla_runlog_close(log);
    return NULL;
}

void mla_runlog_close(mla_runlog *log) {
    if (!log) return;
    if (log->log_fd >= 0) close(log->log_fd);
    if (log->timing_fd >= 0) close(log->timing_fd);
    if (log->folder_fd >= 0) close(log->folder_fd);
    mla_tensorboard_close(log->tensorboard);
    free(log->folder);
    free(log->log_path);
    free(log->timing_path);
    free(log->checkpoints);
    free(log);
}

/* ---- opening */

/* Two processes in one run folder would mix their logs and remove each other's checkpoints. */
static mla_status lock_folder(mla_runlog *log, mla_error *error) {
    log->folder_fd = open(log->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (log->folder_fd < 0)
        return mla_fail(error, MLA_IO, "%s: the run folder could not be opened: %s", log->folder, strerror(errno));
    /* file systems that can't lock folders are used without */
    if (flock(log->folder_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return mla_fail(error, MLA_INVALID, "%s: another process is running in this folder", log->folder);
    return MLA_OK;
}

static mla_status open_for_append(int *fd, const char *path, mla_error *error) {
    *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    return *fd >= 0 ? MLA_OK : mla_fail(error, MLA_IO, "%s: could not be opened for writing: %s", path, strerror(errno));
}

static mla_status open_logs(mla_runlog *log, mla_error *error) {
    mla_status status = open_for_append(&log->log_fd, log->log_path, error);
    return status == MLA_OK ? open_for_append(&log->timing_fd, log->timing_path, error) : status;
}

static bool has_entries(const char *folder) {
    DIR *entries = opendir(folder);
    bool found = false;
    for (struct dirent *entry; entries && !found && (entry = readdir(entries));)
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && !mla_is_temporary_name(entry->d_name);
    if (entries) closedir(entries);
    return found;
}

static bool has_config(const mla_runlog *log) {
    char *path = mla_path_join(log->folder, "config.yaml");
    bool found = path && access(path, F_OK) == 0;
    free(path);
    return found;
}

/* An empty log without checkpoints is a run that never made a step: nothing is lost by starting over.  A config.yaml
 * without a log beside it is somebody else's. */
static mla_status check_unused(const mla_runlog *log, mla_error *error) {
    struct stat info;
    const char *found = NULL;
    if (stat(log->folder, &info) == 0 && !S_ISDIR(info.st_mode))
        return mla_fail(error, MLA_INVALID, "%s: exists and is not a folder", log->folder);
    if (stat(log->log_path, &info) == 0 && info.st_size > 0)
        found = "log.jsonl";
    else if (has_entries(log->checkpoints))
        found = "checkpoints";
    if (!found && access(log->log_path, F_OK) != 0 && has_config(log))
        return mla_fail(error, MLA_INVALID,
                        "%s: holds a config.yaml that is no run's, and it would be overwritten: give "
                        "another folder by --out",
                        log->folder);
    return found ? mla_fail(error, MLA_INVALID,
                            "%s: already holds a run (%s): go on with it by --resume, or give "
                            "another folder by --out",
                            log->folder, found)
                 : MLA_OK;
}

static void remove_if_empty(const char *path) {
    struct stat info;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) unlink(path);
}

/* Comes before the log: a run that has one must never be taken for a run from its seed.  One that an earlier start of
 * another run left behind is removed. */
static mla_status put_finetune(const mla_runlog *log, const char *text, mla_error *error) {
    char *path = mla_path_join(log->folder, "finetune.json");
    if (!path) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", log->folder);
    const mla_status status = text ? mla_file_write(path, text, strlen(text), error) : MLA_OK;
    if (!text || status != MLA_OK) unlink(path);
    free(path);
    return status;
}

/* Everything that needs the folder; config.yaml comes last, since it is what may stand there already. */
static mla_status fill_folder(mla_runlog *log, const char *config_text, const char *finetune_text, mla_error *error) {
    int made = 0;
    mla_status status = lock_folder(log, error);
    if (status != MLA_OK) return status;
    status = mla_folders_make(log->checkpoints, &made, error);
    if (status == MLA_OK) status = put_finetune(log, finetune_text, error);
    if (status == MLA_OK) status = open_logs(log, error);
    char *path = mla_path_join(log->folder, "config.yaml");
    if (status == MLA_OK)
        status = path ? mla_file_write(path, config_text, strlen(config_text), error)
                      : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", log->folder);
    free(path);
    if (status != MLA_OK) {
        (void)put_finetune(log, NULL, NULL);
        remove_if_empty(log->log_path);
        remove_if_empty(log->timing_path);
        mla_folders_unmake(log->checkpoints, made);
    }
    return status;
}

mla_status mla_runlog_create(mla_runlog **log, const char *folder, const char *config_text, const char *finetune_text,
                             mla_error *error) {
    int made = 0;
    *log = NULL;
    mla_runlog *created = new_log(folder);
    if (!created) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    mla_status status = check_unused(created, error);
    if (status == MLA_OK) status = mla_folders_make(folder, &made, error);
    if (status == MLA_OK) {
        status = fill_folder(created, config_text, finetune_text, error);
        if (status != MLA_OK) mla_folders_unmake(folder, made);
    }
    if (status == MLA_OK)
        *log = created;
    else
        mla_runlog_close(created);
    return status;
}

/* What a killed process was writing; others may be writing into the folder now (an export into it). */
static void remove_temporaries(const char *folder) {
    DIR *entries = folder ? opendir(folder) : NULL;
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (mla_is_abandoned_name(entry->d_name)) (void)unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries) closedir(entries);
}

/* Checkpoints after the resumed step belong to what is given up: they keep their content under another name, so that
 * neither a later --resume nor pruning takes them for this run's newest. */
static mla_status set_aside_one(const mla_runlog *log, const char *from, mla_error *error) {
    char *to = NULL;
    if (asprintf(&to, "%s/dropped-%s", log->checkpoints, strrchr(from, '/') + 1) < 0)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", log->folder);
    mla_status status = MLA_OK;
    if (rename(from, to) != 0)
        status = mla_fail(error, MLA_IO, "%s: could not be renamed to %s: %s", from, to, strerror(errno));
    free(to);
    return status;
}

/* The best checkpoint's name does not tell its step.  One that can't be read is left for people to look at. */
static mla_status set_aside_best(const mla_runlog *log, uint64_t step, mla_error *error) {
    mla_checkpoint best;
    mla_error why = {0};
    mla_status status = MLA_OK;
    char *path = mla_path_join(log->checkpoints, "best.safetensors");
    if (!path) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", log->folder);
    if (access(path, F_OK) == 0) {
        if (mla_checkpoint_open(&best, path, NULL, 0, &why) == MLA_OK) {
            bool later = best.counters.step > step;
            mla_checkpoint_close(&best);
            if (later) status = set_aside_one(log, path, error);
        } else {
            fprintf(stderr, "mirrorla: passed over: %s\n", why.text);
        }
    }
    free(path);
    return status;
}

static mla_status set_aside(const mla_runlog *log, uint64_t step, mla_error *error) {
    uint64_t *steps;
    size_t count;
    mla_status status = mla_checkpoint_list(&steps, &count, log->folder, error);
    for (size_t i = 0; i < count && steps[i] > step && status == MLA_OK; i++) {
        char *path = mla_checkpoint_path(log->folder, steps[i]);
        status = path ? set_aside_one(log, path, error) : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", log->folder);
        free(path);
    }
    free(steps);
    return status == MLA_OK ? set_aside_best(log, step, error) : status;
}

static mla_status cut_logs(const mla_runlog *log, uint64_t step, uint64_t epochs, mla_error *error) {
    char *dropped = mla_path_join(log->folder, "log.dropped.jsonl");
    char *timing_dropped = mla_path_join(log->folder, "timing.dropped.jsonl");
    mla_log_cut cuts[] = {{log->log_path, dropped, 0}, {log->timing_path, timing_dropped, 0}};
    mla_status status =
        dropped && timing_dropped ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", log->folder);
    if (status == MLA_OK) status = mla_runlog_cut(cuts, 2, step, epochs, error);
    if (status == MLA_OK && cuts[0].last < step)
        fprintf(stderr,
                "mirrorla: %s ends at step %" PRIu64 ", the run goes on after step %" PRIu64
                ": the lines between are missing\n",
                log->log_path, cuts[0].last, step);
    free(dropped);
    free(timing_dropped);
    return status;
}

mla_status mla_runlog_resume(mla_runlog **log, const char *folder, uint64_t step, uint64_t epochs, mla_error *error) {
    *log = NULL;
    mla_runlog *opened = new_log(folder);
    if (!opened) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    mla_status status = lock_folder(opened, error);
    if (status == MLA_OK) status = cut_logs(opened, step, epochs, error);
    if (status == MLA_OK) status = mla_folders_make(opened->checkpoints, NULL, error);
    if (status == MLA_OK) status = set_aside(opened, step, error);
    if (status == MLA_OK) status = open_logs(opened, error);
    if (status == MLA_OK) {
        remove_temporaries(opened->folder);
        remove_temporaries(opened->checkpoints);
    }
    if (status == MLA_OK)
        *log = opened;
    else
        mla_runlog_close(opened);
    return status;
}

/* ---- writing */

typedef struct line {
    char text[1024];
    size_t length;
} line;

static void put(line *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(line *out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(out->text + out->length, sizeof out->text - out->length, format, arguments);
    va_end(arguments);
    MLA_REQUIRE(wrote >= 0 && (size_t)wrote < sizeof out->text - out->length, "a line of the log is too long");
    out->length += (size_t)wrote;
}

static void put_number(line *out, const char *key, double value) {
    char text[MLA_NUMBER_BYTES];
    mla_number_text(text, value);
    put(out, ",\"%s\":%s", key, text);
}

static void put_count(line *out, const char *key, uint64_t value) { put(out, ",\"%s\":%" PRIu64, key, value); }

static line start_line(const char *event, uint64_t step, uint64_t epoch) {
    line out = {.length = 0};
    put(&out, "{\"event\":\"%s\"", event);
    put_count(&out, "step", step);
    put_count(&out, "epoch", epoch);
    return out;
}

/* Ends the line and appends it. */
static mla_status append(int fd, const char *path, line *out, mla_error *error) {
    put(out, "}\n");
    return mla_append(fd, path, out->text, out->length, error);
}

mla_status mla_runlog_step(mla_runlog *log, const mla_step_record *record, mla_error *error) {
    line out = start_line("step", record->step, record->epoch);
    put_number(&out, "loss", record->loss);
    if (record->has_retention) put_number(&out, "retention_loss", record->retention_loss);
    put_number(&out, "lr", record->lr);
    put_number(&out, "grad_norm", record->grad_norm);
    put_count(&out, "images", record->images);
    put_count(&out, "correct", record->correct);
    const mla_status status = append(log->log_fd, log->log_path, &out, error);
    return status == MLA_OK ? mla_tensorboard_step(log->tensorboard, record, error) : status;
}

mla_status mla_runlog_epoch(mla_runlog *log, const mla_epoch_record *record, mla_error *error) {
    line out = start_line("epoch", record->step, record->epoch);
    put_number(&out, "train_loss", record->train_loss);
    put_count(&out, "train_correct", record->train_correct);
    put_count(&out, "train_images", record->train_images);
    if (record->test_images) {
        put_number(&out, "test_loss", record->test_loss);
        put_count(&out, "test_correct", record->test_correct);
        put_count(&out, "test_images", record->test_images);
        if (record->has_ema) {
            put_number(&out, "ema_test_loss", record->ema_test_loss);
            put_count(&out, "ema_test_correct", record->ema_test_correct);
        }
    }
    if (record->weight_hash) put(&out, ",\"weight_hash\":\"%s\"", record->weight_hash);
    const mla_status status = append(log->log_fd, log->log_path, &out, error);
    return status == MLA_OK ? mla_tensorboard_epoch(log->tensorboard, record, error) : status;
}

/* One line for all layers, of any length. */
static char *layers_text(size_t *bytes, const mla_layers_record *record) {
    char *text = NULL, number[MLA_NUMBER_BYTES];
    FILE *out = open_memstream(&text, bytes);
    if (!out) return NULL;
    line start = start_line("layers", record->step, record->epoch);
    put_count(&start, "images", record->images);
    fprintf(out, "%s,\"layers\":[", start.text);
    for (int i = 0; i < record->layers; i++) {
        const mla_layer_record *layer = &record->layer[i];
        fprintf(out, "%s{\"kind\":\"%s\",\"tokens\":%zu,\"heads\":%zu", i ? "," : "", layer->kind, layer->tokens,
                layer->heads);
        for (int n = 0; n < MLA_LAYER_NUMBERS; n++) {
            mla_number_text(number, layer->number[n]);
            fprintf(out, ",\"%s\":%s", mla_layer_number_names[n], number);
        }
        fputc('}', out);
    }
    fputs("]}\n", out);
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed) return text;
    free(text);
    return NULL;
}

mla_status mla_runlog_layers(mla_runlog *log, const mla_layers_record *record, mla_error *error) {
    size_t bytes = 0;
    char *text = layers_text(&bytes, record);
    if (!text) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", log->log_path);
    const mla_status status = mla_append(log->log_fd, log->log_path, text, bytes, error);
    free(text);
    return status == MLA_OK ? mla_tensorboard_layers(log->tensorboard, record, error) : status;
}

mla_status mla_runlog_timing(mla_runlog *log, const mla_timing_record *record, mla_error *error) {
    line out = start_line("timing", record->step, record->epoch);
    put_number(&out, "seconds", record->seconds);
    put_number(&out, "images_per_second", record->images_per_second);
    put_number(&out, "evaluation_seconds", record->evaluation_seconds);
    put_number(&out, "diagnostics_seconds", record->diagnostics_seconds);
    put_count(&out, "peak_memory_bytes", record->peak_memory_bytes);
    const mla_status status = append(log->timing_fd, log->timing_path, &out, error);
    return status == MLA_OK ? mla_tensorboard_timing(log->tensorboard, record, error) : status;
}

mla_status mla_runlog_tensorboard(mla_runlog *log, uint64_t next_step, mla_error *error) {
    return mla_tensorboard_open(&log->tensorboard, log->folder, next_step, error);
}

mla_status mla_runlog_sync(mla_runlog *log, mla_error *error) {
    if (fdatasync(log->log_fd) != 0) return mla_fail_write(error, log->log_path, 0, errno);
    return fdatasync(log->timing_fd) == 0 ? MLA_OK : mla_fail_write(error, log->timing_path, 0, errno);
}

/* ---- cleaning up */

void mla_runlog_prune(const char *folder, int keep) {
    uint64_t *steps;
    size_t count, kept = keep > 1 ? (size_t)keep : 1;
    char *checkpoints = mla_path_join(folder, "checkpoints");
    remove_temporaries(folder);
    remove_temporaries(checkpoints);
    free(checkpoints);
    if (mla_checkpoint_list(&steps, &count, folder, NULL) != MLA_OK) return;
    for (size_t i = kept; i < count; i++) {
        char *path = mla_checkpoint_path(folder, steps[i]);
        if (path) unlink(path);
        free(path);
    }
    free(steps);
}
