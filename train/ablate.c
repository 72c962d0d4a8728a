/* The folder of a sweep, and the order of things. */
#include "train/ablate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "train/file.h"
#include "train/interrupt.h"
#include "train/report.h"

enum { WAIT_TENTHS = 1200 }; /* for training processes of a killed ablate: they finish their step and write a checkpoint */

static mla_status choose_folder(mla_ablate_run *run, mla_error *error) {
    const mla_ablate_options *o = run->options;
    char copy[MLA_PATH_BYTES];
    if (strlen(o->out ? o->out : o->path) >= MLA_PATH_BYTES - 16)
        return mla_fail(error, MLA_INVALID, "the path is too long");
    if (o->out) {
        snprintf(run->folder, sizeof run->folder, "%s", o->out);
        return MLA_OK;
    }
    snprintf(copy, sizeof copy, "%s", o->path);
    char *name = basename(copy), *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    snprintf(run->folder, sizeof run->folder, "runs/%.200s", name);
    return MLA_OK;
}

static mla_status allocate(mla_ablate_run *run, mla_error *error) {
    const size_t rows = (size_t)run->sweep->row_count, cells = (size_t)run->sweep->cell_count;
    run->plan = calloc(rows, sizeof *run->plan);
    run->state = calloc(cells, sizeof *run->state);
    run->cell_folder = calloc(cells, sizeof *run->cell_folder);
    run->weights = calloc(cells, sizeof *run->weights);
    bool enough = run->plan && run->state && run->cell_folder && run->weights;
    for (size_t i = 0; i < cells && enough; i++) {
        if (asprintf(&run->cell_folder[i], "%s/cells/%s", run->folder, run->sweep->cell[i].name) < 0)
            run->cell_folder[i] = NULL;
        enough = run->cell_folder[i] != NULL;
    }
    return enough ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu cells", cells);
}

/* A folder with something in it that is no sweep belongs to somebody else. */
static mla_status check_folder(const mla_ablate_run *run, mla_error *error) {
    char *marker = mla_path_join(run->folder, "sweep.yaml");
    const bool own = marker && access(marker, F_OK) == 0;
    free(marker);
    if (own) return MLA_OK;
    DIR *entries = opendir(run->folder);
    if (!entries)
        return errno == ENOTDIR ? mla_fail(error, MLA_INVALID, "%s: exists and is not a folder", run->folder) : MLA_OK;
    mla_status status = MLA_OK;
    for (struct dirent *entry; status == MLA_OK && (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && !mla_is_temporary_name(entry->d_name) &&
            strcmp(entry->d_name, "cells") && strcmp(entry->d_name, "configs"))
            status = mla_fail(error, MLA_INVALID, "%s: holds %s and is no folder of a sweep: give another one by --out",
                              run->folder, entry->d_name);
    closedir(entries);
    return status;
}

/* *busy: another process holds it.  File systems that can't lock folders are used without. */
static int lock(const char *folder, bool for_children, bool *busy) {
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | (for_children ? 0 : O_CLOEXEC));
    *busy = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!*busy) return fd;
    close(fd);
    return -1;
}

/* Training processes inherit this lock, and keep it until they end. */
static mla_status lock_cells(mla_ablate_run *run, mla_error *error) {
    char *cells = mla_path_join(run->folder, "cells");
    bool busy = cells != NULL;
    for (int i = 0; busy && i < WAIT_TENTHS && !mla_interrupted; i++) {
        run->cells_fd = lock(cells, true, &busy);
        if (busy && i == 0)
            fprintf(stderr, "ablate: %s: waiting for runs of an ablate that was killed to end\n", run->folder);
        if (busy) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    const bool memory = cells != NULL;
    free(cells);
    if (mla_interrupted) return mla_fail(error, MLA_INTERRUPTED, "interrupted");
    if (!memory) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", run->folder);
    return busy ? mla_fail(error, MLA_INVALID, "%s: runs of an ablate that was killed are still training in it", run->folder)
                : MLA_OK;
}

static mla_status open_folder(mla_ablate_run *run, mla_error *error) {
    char *cells = mla_path_join(run->folder, "cells"), *configs = mla_path_join(run->folder, "configs");
    bool busy = false;
    int made = 0;
    mla_status status = cells && configs ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", run->folder);
    if (status == MLA_OK) status = mla_folders_make(cells, &made, error);
    if (status == MLA_OK) {
        run->lock_fd = lock(run->folder, false, &busy);
        if (busy) status = mla_fail(error, MLA_INVALID, "%s: another ablate is running in this folder", run->folder);
    }
    if (status == MLA_OK) status = lock_cells(run, error);
    if (status == MLA_OK) status = mla_folders_make(configs, NULL, error);
    free(cells);
    free(configs);
    return status;
}

static mla_status write_sweep(const mla_ablate_run *run, mla_error *error) {
    char *text = mla_sweep_text(run->sweep), *path = mla_path_join(run->folder, "sweep.yaml");
    const mla_status status = text && path ? mla_file_write(path, text, strlen(text), error)
                                           : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", run->folder);
    free(text);
    free(path);
    return status;
}

/* What earlier calls did; `alive`: another ablate may be running them now. */
static mla_status look_at_cells(mla_ablate_run *run, bool alive, mla_error *error) {
    mla_status status = MLA_OK;
    for (int i = 0; i < run->sweep->cell_count && status == MLA_OK; i++) {
        mla_cell_state *state = &run->state[i];
        mla_cell_state_read(state, run->cell_folder[i], alive);
        status = mla_cell_check_config(&run->sweep->cell[i], run->cell_folder[i], error);
        if (status != MLA_OK || state->status != MLA_CELL_DONE) continue;
        mla_cell_result result;
        status = mla_cell_result_read(&result, run->cell_folder[i], run->sweep->cell[i].config.train.epochs, error);
        if (status == MLA_OK && !result.tested) { /* somebody removed its log */
            state->status = MLA_CELL_MISSING;
            snprintf(state->reason, sizeof state->reason, "its log has no test of the last epoch");
        }
        free(result.rates);
    }
    return status;
}

/* Cells of an earlier form of the sweep are left alone, but not in silence. */
static void tell_strangers(const mla_ablate_run *run) {
    char *path = mla_path_join(run->folder, "cells"), names[1024] = "";
    DIR *entries = path ? opendir(path) : NULL;
    int count = 0;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        bool known = entry->d_name[0] == '.';
        for (int i = 0; i < run->sweep->cell_count && !known; i++)
            known = strcmp(entry->d_name, run->sweep->cell[i].name) == 0;
        if (known) continue;
        const size_t used = strlen(names);
        if (used < sizeof names - 300)
            snprintf(names + used, sizeof names - used, "%s%.255s", used ? ", " : "", entry->d_name);
        count++;
    }
    if (entries) closedir(entries);
    free(path);
    if (count)
        fprintf(stderr, "ablate: %s: %d cell%s of an earlier form of the sweep left alone: %s\n", run->folder, count,
                count == 1 ? "" : "s", names);
}

static void print_cells(const mla_ablate_run *run) {
    const mla_sweep *sweep = run->sweep;
    for (int i = 0; i < sweep->cell_count; i++) {
        const mla_ablate_plan *plan = &run->plan[sweep->cell[i].row];
        const char *what = run->state[i].status == MLA_CELL_DONE      ? "done"
                           : run->state[i].status == MLA_CELL_RUNNING ? "running"
                           : mla_cell_began(run->cell_folder[i])      ? "to be resumed"
                                                                      : "to be run";
        printf("%-40s %-14s", sweep->cell[i].name, what);
        if (plan->parameters)
            printf(" %9zu parameters, %.2f MFLOPs, about %zu MiB", plan->parameters, plan->flops / 1e6, plan->bytes >> 20);
        putchar('\n');
    }
    printf("%d cells in %d rows\n", sweep->cell_count, sweep->row_count);
}

static void summarise(const mla_ablate_run *run, mla_ablate_summary *summary) {
    summary->cells = run->sweep->cell_count;
    for (int i = 0; i < run->sweep->cell_count; i++) summary->done += run->state[i].status == MLA_CELL_DONE;
}

/* What only looks: the list of cells, or the table of what is there. */
static mla_status look(mla_ablate_run *run, mla_error *error) {
    bool busy = false;
    run->lock_fd = lock(run->folder, false, &busy);
    mla_status status = look_at_cells(run, busy, error);
    if (status == MLA_OK && run->options->table_only)
        return mla_ablate_write_tables(run, !busy && run->lock_fd >= 0, stdout, error);
    if (status == MLA_OK) status = mla_ablate_find_weights(run, error);
    if (status == MLA_OK) status = mla_ablate_share(run, error);
    if (status != MLA_OK) return status;
    print_cells(run);
    return MLA_OK;
}

/* The page about the sweep.  It is made of what is there already, so a sweep without it is no failure. */
static void write_report(const mla_ablate_run *run) {
    mla_error error = {0};
    if (mla_report_built() && mla_report_sweep(run->folder, &error) != MLA_OK)
        fprintf(stderr, "ablate: no report: %s\n", error.text);
}

static mla_status carry_out(mla_ablate_run *run, mla_error *error) {
    mla_status status = look_at_cells(run, true, error); /* before anything is created */
    if (status == MLA_OK) status = mla_ablate_find_weights(run, error);
    if (status == MLA_OK) status = mla_ablate_share(run, error);
    if (status == MLA_OK) status = open_folder(run, error);
    if (status == MLA_OK) status = look_at_cells(run, false, error); /* another ablate may have ended meanwhile */
    if (status == MLA_OK) status = write_sweep(run, error);
    if (status == MLA_OK) tell_strangers(run);
    if (status == MLA_OK) status = mla_ablate_write_tables(run, true, NULL, error);
    if (status == MLA_OK) status = mla_ablate_loop(run, error);
    if (status == MLA_OK) status = mla_ablate_write_tables(run, true, stdout, error);
    if (status == MLA_OK) write_report(run);
    return status;
}

static void close_run(mla_ablate_run *run) {
    for (int i = 0; run->cell_folder && i < run->sweep->cell_count; i++) free(run->cell_folder[i]);
    for (int i = 0; run->weights && i < run->sweep->cell_count; i++) free(run->weights[i]);
    free(run->cell_folder);
    free(run->weights);
    free(run->plan);
    free(run->state);
    if (run->lock_fd >= 0) close(run->lock_fd);
    if (run->cells_fd >= 0) close(run->cells_fd);
    mla_sweep_close(run->sweep);
}

mla_status mla_ablate(const mla_ablate_options *options, mla_ablate_summary *summary, mla_error *error) {
    mla_ablate_run run = {.options = options, .lock_fd = -1, .cells_fd = -1};
    *summary = (mla_ablate_summary){0};
    mla_status status = mla_sweep_open(&run.sweep, options->path, options->overrides, options->override_count, error);
    if (status != MLA_OK) return status;
    status = choose_folder(&run, error);
    if (status == MLA_OK) status = allocate(&run, error);
    if (status == MLA_OK) status = check_folder(&run, error);
    if (status == MLA_OK) status = mla_ablate_make_plans(&run, error);
    if (status == MLA_OK) status = (options->dry_run || options->table_only ? look : carry_out)(&run, error);
    if (status == MLA_OK || status == MLA_INTERRUPTED) summarise(&run, summary);
    close_run(&run);
    return status;
}
