#include "train/ablate_cell.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "train/config_compare.h"
#include "train/file.h"

enum { STATE_BYTES = 1 << 16, LOG_BYTES = 1 << 30 };

/* As they stand in cell.json. */
static const char *const names[] = {
    [MLA_CELL_MISSING] = "missing", [MLA_CELL_RUNNING] = "running", [MLA_CELL_DONE] = "done",
    [MLA_CELL_FAILED] = "failed",   [MLA_CELL_KILLED] = "killed",   [MLA_CELL_STOPPED] = "stopped"};

const char *mla_cell_status_name(mla_cell_status status) {
    return names[status == MLA_CELL_STOPPED ? MLA_CELL_MISSING : status];
}

static bool exists(const char *folder, const char *name) {
    char *path = mla_path_join(folder, name);
    const bool found = path && access(path, F_OK) == 0;
    free(path);
    return found;
}

bool mla_cell_began(const char *folder) { return exists(folder, "log.jsonl"); }

bool mla_cell_finetuned(const char *folder) { return exists(folder, "finetune.json"); }

/* ---- state */

static void take_state(mla_cell_state *state, const json_t *json) {
    const char *status = json_string_value(json_object_get(json, "status"));
    const char *reason = json_string_value(json_object_get(json, "reason"));
    for (int i = 0; status && i < (int)(sizeof names / sizeof names[0]); i++)
        if (strcmp(names[i], status) == 0) state->status = (mla_cell_status)i;
    if (reason) snprintf(state->reason, sizeof state->reason, "%s", reason);
    state->attempts = (int)json_integer_value(json_object_get(json, "attempts"));
    state->seconds = json_number_value(json_object_get(json, "seconds"));
}

void mla_cell_state_read(mla_cell_state *state, const char *folder, bool alive) {
    char *path = mla_path_join(folder, "cell.json"), *text = NULL;
    size_t bytes = 0;
    *state = (mla_cell_state){0};
    if (path && mla_file_read(&text, &bytes, path, STATE_BYTES, NULL) == MLA_OK) {
        json_t *json = json_loads(text, 0, NULL);
        take_state(state, json);
        json_decref(json);
    }
    free(text);
    free(path);
    if (state->status == MLA_CELL_RUNNING && !alive) {
        state->status = MLA_CELL_MISSING;
        snprintf(state->reason, sizeof state->reason, "ablate was killed while it ran");
    }
}

mla_status mla_cell_state_write(const mla_cell_state *state, const char *folder, mla_error *error) {
    char *path = mla_path_join(folder, "cell.json");
    json_t *json =
        json_pack("{s:s, s:s?, s:i, s:f}", "status", names[state->status], "reason", state->reason[0] ? state->reason : NULL,
                  "attempts", state->attempts, "seconds", state->seconds);
    char *text = json ? json_dumps(json, JSON_REAL_PRECISION(6)) : NULL;
    const mla_status status = path && text ? mla_file_write(path, text, strlen(text), error)
                                           : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    json_decref(json);
    free(text);
    free(path);
    return status;
}

/* ---- results */

typedef void (*line_reader)(void *context, const json_t *line);

/* Calls `each` for the lines of a log that are of kind `event`; a log that is not there has none, and a last line that was
 * cut by a kill is passed over. */
static mla_status read_events(const char *folder, const char *name, const char *event, line_reader each, void *context,
                              mla_error *error) {
    char *path = mla_path_join(folder, name), *text = NULL, mark[64];
    size_t bytes = 0;
    mla_status status = path ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    const bool found = status == MLA_OK && access(path, F_OK) == 0;
    if (found) status = mla_file_read(&text, &bytes, path, LOG_BYTES, error);
    snprintf(mark, sizeof mark, "{\"event\":\"%s\"", event);
    char *rest = text;
    for (char *line; status == MLA_OK && rest && (line = strsep(&rest, "\n"));) {
        if (strncmp(line, mark, strlen(mark)) != 0) continue; /* steps are many: only wanted lines are parsed */
        json_t *json = json_loads(line, 0, NULL);
        if (json) each(context, json);
        json_decref(json);
    }
    free(text);
    free(path);
    return status;
}

typedef struct epochs_seen {
    mla_cell_result *result;
    int epochs; /* whose line counts */
    int last;
} epochs_seen;

static void take_epoch(void *context, const json_t *line) {
    epochs_seen *seen = context;
    const json_t *average = json_object_get(line, "ema_test_correct");
    const json_t *correct = average ? average : json_object_get(line, "test_correct");
    const double images = json_number_value(json_object_get(line, "test_images"));
    seen->last = (int)json_integer_value(json_object_get(line, "epoch"));
    if (!seen->result || seen->last != seen->epochs || images <= 0) return;
    seen->result->tested = true;
    seen->result->accuracy = 100 * json_number_value(correct) / images;
}

static void take_timing(void *context, const json_t *line) {
    mla_cell_result *result = context;
    const double rate = json_number_value(json_object_get(line, "images_per_second"));
    const size_t peak = (size_t)json_integer_value(json_object_get(line, "peak_memory_bytes"));
    if (peak > result->peak_bytes) result->peak_bytes = peak;
    double *larger = realloc(result->rates, ((size_t)result->rate_count + 1) * sizeof *larger);
    if (!larger || rate <= 0) {
        result->rates = larger ? larger : result->rates;
        return;
    }
    result->rates = larger;
    result->rates[result->rate_count++] = rate;
}

mla_status mla_cell_result_read(mla_cell_result *result, const char *folder, int epochs, mla_error *error) {
    epochs_seen seen = {result, epochs, 0};
    *result = (mla_cell_result){0};
    const mla_status status = read_events(folder, "log.jsonl", "epoch", take_epoch, &seen, error);
    return status == MLA_OK ? read_events(folder, "timing.jsonl", "timing", take_timing, result, error) : status;
}

int mla_cell_epochs(const char *folder) {
    epochs_seen seen = {NULL, 0, 0};
    return read_events(folder, "log.jsonl", "epoch", take_epoch, &seen, NULL) == MLA_OK ? seen.last : 0;
}

/* ---- the same config as before */

typedef struct difference {
    char text[1024];
} difference;

/* Where the data stands, which files are written and when is tested and measured: a run's end does not depend on it. */
static bool may_differ(const char *key) {
    static const char *const starts[] = {"data.path", "checkpoint.", "eval.every_epochs", "diagnostics.", "log."};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(key, starts[i], strlen(starts[i])) == 0) return true;
    return false;
}

static void note(void *context, const char *key, const char *stored, const char *wanted) {
    difference *d = context;
    if (may_differ(key)) return;
    const size_t used = strlen(d->text);
    snprintf(d->text + used, sizeof d->text - used, "%s%s is %s there and %s in the sweep", used ? "; " : "", key, stored,
             wanted);
}

mla_status mla_cell_check_config(const mla_sweep_cell *cell, const char *folder, mla_error *error) {
    mla_config *stored = malloc(sizeof *stored);
    char *path = mla_path_join(folder, "config.yaml");
    difference d = {""};
    mla_status status = stored && path ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    if (status == MLA_OK && access(path, F_OK) == 0) {
        status = mla_config_load(stored, path, NULL, 0, error);
        if (status == MLA_OK) mla_config_compare(stored, &cell->config, note, &d);
    }
    if (d.text[0])
        status = mla_fail(error, MLA_INVALID,
                          "%s was run with another config: %s: the sweep has changed; give it another folder by --out, or "
                          "remove this one",
                          folder, d.text);
    free(stored);
    free(path);
    return status;
}
