/* Cells waiting, running and ended. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "train/ablate.h"
#include "train/interrupt.h"
#include "train/progress.h"

typedef struct job {
    pid_t pid; /* 0: free */
    int cell;
    double start_s;
} job;

typedef struct loop {
    mla_ablate_run *run;
    job *jobs;
    int active, next;               /* next: the first cell that has not been looked at */
    bool told;                      /* to stop */
    double start_s, shown_s, begun; /* begun: the work that lay behind when the clock started */
    mla_progress progress;
} loop;

/* ---- progress */

/* Work of a cell in arbitrary units: its FLOPs times the images it sees, up to the size of its data set. */
static double work(const mla_ablate_run *run, int cell) {
    const mla_sweep_cell *c = &run->sweep->cell[cell];
    const double flops = run->plan[c->row].flops;
    return (flops > 0 ? flops : 1) * c->config.train.epochs * c->config.data.subset;
}

static bool over(const mla_cell_state *state) {
    return state->status == MLA_CELL_DONE || state->status == MLA_CELL_FAILED || state->status == MLA_CELL_KILLED;
}

/* Share of a cell's epochs that are completed; all of it where nothing will be done any more. */
static double share(const mla_ablate_run *run, int cell, bool ended) {
    if (ended || run->state[cell].status == MLA_CELL_DONE) return 1;
    return (double)mla_cell_epochs(run->cell_folder[cell]) / run->sweep->cell[cell].config.train.epochs;
}

/* Work behind and in all.  Cells that failed in an earlier call are still to be run. */
static void count_work(const loop *l, double *behind, double *all) {
    *behind = *all = 0;
    for (int i = 0; i < l->run->sweep->cell_count; i++) {
        const double units = work(l->run, i);
        *all += units;
        *behind += units * share(l->run, i, i < l->next && over(&l->run->state[i]));
    }
}

static void remaining(const loop *l, char out[64]) {
    double behind, all;
    count_work(l, &behind, &all);
    const double done = behind - l->begun, seconds = mla_seconds() - l->start_s;
    char text[32];
    if (done <= 0) {
        snprintf(out, 64, "%s", "");
        return;
    }
    mla_progress_duration(text, seconds * (all - behind) / done);
    snprintf(out, 64, ", %s left", text);
}

static int count(const mla_ablate_run *run, mla_cell_status status) {
    int n = 0;
    for (int i = 0; i < run->sweep->cell_count; i++) n += run->state[i].status == status;
    return n;
}

/* A bar, on a terminal. */
static void show(loop *l) {
    const double now = mla_seconds();
    if (!l->progress.terminal || now - l->shown_s < 0.5) return;
    l->shown_s = now;
    char left[64], names[96] = "";
    double behind, all;
    for (int i = 0; i < l->run->jobs; i++) {
        const size_t used = strlen(names);
        if (l->jobs[i].pid)
            snprintf(names + used, sizeof names - used, "%s%.40s", used ? ", " : "",
                     l->run->sweep->cell[l->jobs[i].cell].name);
    }
    count_work(l, &behind, &all);
    remaining(l, left);
    char text[192];
    snprintf(text, sizeof text, "%d of %d cells done, %s%s", count(l->run, MLA_CELL_DONE), l->run->sweep->cell_count, names,
             left);
    mla_progress_bar(&l->progress, behind / all, text);
}

/* One line a cell. */
static void tell(loop *l, int cell, double seconds) {
    const mla_ablate_run *run = l->run;
    const mla_cell_state *state = &run->state[cell];
    char left[64], time_text[32], what[640];
    mla_cell_result result = {0};
    mla_progress_clear(&l->progress);
    remaining(l, left);
    mla_progress_duration(time_text, seconds);
    if (state->status == MLA_CELL_DONE &&
        mla_cell_result_read(&result, run->cell_folder[cell], run->sweep->cell[cell].config.train.epochs, NULL) == MLA_OK)
        snprintf(what, sizeof what, "%.2f %%", result.accuracy);
    else
        snprintf(what, sizeof what, "%s: %s",
                 state->status == MLA_CELL_STOPPED ? "stopped" : mla_cell_status_name(state->status), state->reason);
    free(result.rates);
    fprintf(stderr, "[%d/%d] %s: %s; %s%s\n", count(run, MLA_CELL_DONE), run->sweep->cell_count, run->sweep->cell[cell].name,
            what, time_text, left);
}

/* ---- jobs */

static mla_status start_one(loop *l, job *j, int cell, mla_error *error) {
    mla_cell_state *state = &l->run->state[cell];
    state->status = MLA_CELL_RUNNING;
    state->reason[0] = 0;
    state->attempts++;
    const mla_status status = mla_ablate_start(l->run, cell, &j->pid, error);
    if (status != MLA_OK) {
        j->pid = 0;
        state->status = MLA_CELL_MISSING;
        return status;
    }
    j->cell = cell;
    j->start_s = mla_seconds();
    l->active++;
    return MLA_OK;
}

static mla_status start_more(loop *l, mla_error *error) {
    mla_status status = MLA_OK;
    for (int i = 0; i < l->run->jobs && status == MLA_OK && !mla_interrupted; i++) {
        if (l->jobs[i].pid) continue;
        while (l->next < l->run->sweep->cell_count && l->run->state[l->next].status == MLA_CELL_DONE) l->next++;
        if (l->next == l->run->sweep->cell_count) break;
        status = start_one(l, &l->jobs[i], l->next++, error);
    }
    return status;
}

static mla_status end_one(loop *l, job *j, int wait_status, mla_error *error) {
    mla_cell_state *state = &l->run->state[j->cell];
    const double seconds = mla_seconds() - j->start_s;
    mla_ablate_judge(l->run, j->cell, wait_status, state);
    state->seconds += seconds;
    j->pid = 0;
    l->active--;
    tell(l, j->cell, seconds);
    const mla_status status = mla_cell_state_write(state, l->run->cell_folder[j->cell], error);
    return status == MLA_OK ? mla_ablate_write_tables(l->run, true, NULL, error) : status;
}

static mla_status end_some(loop *l, mla_error *error) {
    mla_status status = MLA_OK;
    for (int i = 0; i < l->run->jobs; i++) {
        int wait_status;
        if (!l->jobs[i].pid || waitpid(l->jobs[i].pid, &wait_status, WNOHANG) != l->jobs[i].pid) continue;
        const mla_status ended = end_one(l, &l->jobs[i], wait_status, status == MLA_OK ? error : NULL);
        if (status == MLA_OK) status = ended;
    }
    return status;
}

/* Once: a second signal would end a run without its checkpoint. */
static void stop_all(loop *l) {
    if (l->told) return;
    l->told = true;
    for (int i = 0; i < l->run->jobs; i++)
        if (l->jobs[i].pid) kill(l->jobs[i].pid, SIGTERM);
}

static mla_status turn(loop *l, mla_error *error) {
    mla_status status = MLA_OK;
    while (status == MLA_OK) {
        if (mla_interrupted)
            stop_all(l);
        else
            status = start_more(l, error);
        if (!l->active || status != MLA_OK) break;
        show(l);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        status = end_some(l, error);
    }
    /* the disk is full, say: what runs is stopped and waited for */
    if (l->active) stop_all(l);
    while (l->active) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        (void)end_some(l, NULL);
    }
    return status;
}

mla_status mla_ablate_loop(mla_ablate_run *run, mla_error *error) {
    loop l = {.run = run, .start_s = mla_seconds()};
    double all;
    l.jobs = calloc((size_t)run->jobs, sizeof *l.jobs);
    if (!l.jobs) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %d jobs", run->jobs);
    mla_progress_start(&l.progress, 0);
    count_work(&l, &l.begun, &all);
    const int before = count(run, MLA_CELL_DONE);
    fprintf(stderr, "ablate: %s: %d cells in %d rows, %d done before; %d at a time, %d thread%s each\n", run->folder,
            run->sweep->cell_count, run->sweep->row_count, before, run->jobs, run->threads, run->threads == 1 ? "" : "s");
    mla_status status = turn(&l, error);
    mla_progress_clear(&l.progress);
    free(l.jobs);
    const int done = count(run, MLA_CELL_DONE);
    if (status == MLA_OK && mla_interrupted && done < run->sweep->cell_count)
        status = mla_fail(error, MLA_INTERRUPTED, "interrupted: %d of %d cells are done; call it again to go on", done,
                          run->sweep->cell_count);
    return status;
}
