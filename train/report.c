#include "train/report.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "train/file.h"
#include "train/progress.h"
#include "train/report_data.h"

enum { TABLE_BYTES_MAX = 64 << 20 };

bool mla_report_built(void) { return mla_report_head_bytes > 0; }

static mla_status check_built(mla_error *error) {
    if (mla_report_built()) return MLA_OK;
    return mla_fail(error, MLA_INVALID,
                    "this mirrorla was built without uPlot, which draws the charts of reports: with npm, run "
                    "'npm ci --prefix train/report' in its sources and build anew ('meson setup --reconfigure build')");
}

bool mla_report_is_sweep(const char *path) {
    char *table = mla_path_join(path, "table.json");
    const bool found = table && access(table, F_OK) == 0;
    free(table);
    return found;
}

/* ---- the page */

typedef struct report {
    mla_report_run *runs;
    size_t count;
    char *title;
    char *table; /* JSON, or NULL */
    bool live;
} report;

static void close_report(report *r) {
    for (size_t i = 0; i < r->count; i++) mla_report_run_close(&r->runs[i]);
    free(r->runs);
    free(r->title);
    free(r->table);
}

static mla_status put_data(FILE *out, const report *r, const mla_report_options *options, mla_error *error) {
    const time_t now = time(NULL);
    struct tm broken;
    char stamp[64] = "";
    if (localtime_r(&now, &broken)) strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M", &broken);
    fprintf(out, "{\"version\":\"" MLA_VERSION "\",\"made\":\"%s\",\"live\":%s,\"title\":", stamp,
            r->live ? "true" : "false");
    mla_report_put_text(out, r->title);
    fputs(",\"table\":", out);
    mla_report_put_json(out, r->table ? r->table : "null");
    fputs(",\n", out);
    mla_report_put_runs(out, r->runs, r->count);
    fputs(",\n", out);
    if (options) return mla_report_put_maps(out, r->runs, r->count, options, error);
    fputs("\"maps\":null", out);
    return MLA_OK;
}

static mla_status write_page(const char *path, const char *data, size_t bytes, mla_error *error) {
    mla_atomic_file file;
    mla_status status = mla_atomic_open(&file, path, mla_report_head_bytes + bytes + mla_report_tail_bytes, error);
    if (status != MLA_OK) return status;
    status = mla_atomic_write(&file, mla_report_head, mla_report_head_bytes, error);
    if (status == MLA_OK) status = mla_atomic_write(&file, data, bytes, error);
    if (status == MLA_OK) status = mla_atomic_write(&file, mla_report_tail, mla_report_tail_bytes, error);
    if (status == MLA_OK) status = mla_atomic_commit(&file, error);
    mla_atomic_discard(&file);
    return status;
}

/* `options` for the maps; NULL: without them. */
static mla_status write_report(const report *r, const char *path, const mla_report_options *options, mla_error *error) {
    char *data = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&data, &bytes);
    if (!out) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = put_data(out, r, options, error);
    fputs("}\n", out);
    const bool failed = ferror(out) != 0;
    if ((fclose(out) != 0 || failed) && status == MLA_OK) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    if (status == MLA_OK) status = write_page(path, data, bytes, error);
    free(data);
    return status;
}

/* ---- which runs */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* The path without what all paths begin with, in whole folders, and without slashes at its end. */
static char *short_name(const char *path, size_t common) {
    char *name = strdup(path + common);
    for (size_t n = name ? strlen(name) : 0; n > 1 && name[n - 1] == '/'; n--) name[n - 1] = 0;
    return name;
}

/* Length of the folders that all paths begin with; of a single path all but its last part. */
static size_t common_folders(const char *const *paths, size_t count) {
    size_t common = 0;
    for (size_t i = 0; paths[0][i]; i++) {
        for (size_t j = 1; j < count; j++)
            if (paths[j][i] != paths[0][i]) return common;
        if (paths[0][i] == '/' && paths[0][i + 1]) common = i + 1;
    }
    return common;
}

static mla_status add_run(report *r, const char *path, const char *name, mla_error *error) {
    mla_status status = mla_report_run_open(&r->runs[r->count], path, name, error);
    if (status != MLA_OK) return status;
    return mla_report_run_read(&r->runs[r->count++], error);
}

static mla_status open_runs(report *r, const mla_report_options *options, mla_error *error) {
    const size_t common = common_folders(options->paths, options->count);
    r->runs = calloc(options->count, sizeof *r->runs);
    if (!r->runs) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu runs", options->count);
    mla_status status = MLA_OK;
    for (size_t i = 0; status == MLA_OK && i < options->count; i++) {
        char *name = short_name(options->paths[i], common);
        status = name ? add_run(r, options->paths[i], name, error)
                      : mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu runs", options->count);
        free(name);
    }
    if (status != MLA_OK) return status;
    if (options->count == 1 ? !(r->title = strdup(r->runs[0].name)) : asprintf(&r->title, "%zu runs", r->count) < 0)
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu runs", options->count);
    return MLA_OK;
}

/* A cell that has a log; others stand in the table alone. */
static mla_status add_cell(report *r, const char *folder, const json_t *cell, mla_error *error) {
    const char *dir = json_string_value(json_object_get(cell, "dir"));
    const char *name = json_string_value(json_object_get(cell, "name"));
    if (!dir || !name) return mla_fail(error, MLA_INVALID, "a cell has no \"name\" or no \"dir\"");
    char *path = *dir == '/' ? strdup(dir) : mla_path_join(folder, dir);
    char *log = path ? mla_path_join(path, "log.jsonl") : NULL;
    mla_status status = MLA_OK;
    if (!log)
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory for the cells");
    else if (access(log, F_OK) == 0)
        status = add_run(r, path, name, error);
    free(log);
    free(path);
    return status;
}

static mla_status add_rows(report *r, const char *folder, const json_t *table, mla_error *error) {
    size_t cells = 0, i, j;
    json_t *row, *cell;
    const json_t *rows = json_object_get(table, "rows");
    if (!json_is_array(rows)) return mla_fail(error, MLA_INVALID, "it has no list \"rows\"");
    json_array_foreach(rows, i, row) cells += json_array_size(json_object_get(row, "cells"));
    if (cells > MLA_REPORT_RUNS_MAX) return mla_fail(error, MLA_INVALID, "%zu runs are too many for a report", cells);
    r->runs = calloc(cells + 1, sizeof *r->runs);
    if (!r->runs) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu runs", cells);
    mla_status status = MLA_OK;
    json_array_foreach(rows, i, row) json_array_foreach(json_object_get(row, "cells"), j, cell) {
        if (status == MLA_OK) status = add_cell(r, folder, cell, error);
    }
    return status;
}

static mla_status open_sweep(report *r, const char *folder, mla_error *error) {
    char *path = mla_path_join(folder, "table.json"), *text = NULL;
    size_t bytes;
    json_error_t why;
    if (!path) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    mla_status status = mla_file_read(&text, &bytes, path, TABLE_BYTES_MAX, error);
    json_t *table = status == MLA_OK ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (status == MLA_OK && !table) status = mla_fail(error, MLA_INVALID, "%s:%d: is no JSON: %s", path, why.line, why.text);
    if (status == MLA_OK && add_rows(r, folder, table, error) != MLA_OK) status = mla_fail_context(error, "%s: ", path);
    const char *title = json_string_value(json_object_get(table, "title"));
    if (status == MLA_OK) {
        r->title = strdup(title ? title : base_name(folder));
        r->table = json_dumps(table, JSON_COMPACT | JSON_REAL_PRECISION(8));
        if (!r->title || !r->table) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    }
    json_decref(table);
    free(text);
    free(path);
    return status;
}

mla_status mla_report_write(const char *out, const mla_report_options *options, mla_error *error) {
    report r = {0};
    mla_status status = check_built(error);
    if (status != MLA_OK) return status;
    status = options->count == 1 && mla_report_is_sweep(options->paths[0]) ? open_sweep(&r, options->paths[0], error)
                                                                           : open_runs(&r, options, error);
    if (status == MLA_OK) status = write_report(&r, out, options, error);
    close_report(&r);
    return status;
}

mla_status mla_report_sweep(const char *folder, mla_error *error) {
    char *out = mla_path_join(folder, "report.html");
    if (!out) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    const mla_report_options options = {.paths = &folder, .count = 1, .maps = MLA_REPORT_MAPS, .images = MLA_REPORT_IMAGES};
    const mla_status status = mla_report_write(out, &options, error);
    free(out);
    return status;
}

/* ---- a run in progress */

struct mla_report_live {
    report report;
    char *out;
    double start_s, spent_s;
};

mla_status mla_report_live_open(mla_report_live **live, const char *folder, mla_error *error) {
    *live = NULL;
    mla_status status = check_built(error);
    if (status != MLA_OK) return status;
    mla_report_live *l = calloc(1, sizeof *l);
    if (!l) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    l->start_s = mla_seconds();
    l->out = mla_path_join(folder, "report.html");
    const mla_report_options one = {.paths = &folder, .count = 1};
    status = l->out ? open_runs(&l->report, &one, error) : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    if (status == MLA_OK)
        *live = l;
    else
        mla_report_live_close(l);
    return status;
}

mla_status mla_report_live_update(mla_report_live *l, bool last, mla_error *error) {
    const double start = mla_seconds();
    if (!last && l->spent_s > 0.01 * (start - l->start_s)) return MLA_OK;
    l->report.live = !last;
    mla_status status = mla_report_run_read(&l->report.runs[0], error);
    if (status == MLA_OK) status = write_report(&l->report, l->out, NULL, error);
    l->spent_s += mla_seconds() - start;
    return status;
}

void mla_report_live_close(mla_report_live *l) {
    if (!l) return;
    close_report(&l->report);
    free(l->out);
    free(l);
}
