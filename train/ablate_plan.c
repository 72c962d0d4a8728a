/* What the cells will need, and how the machine is shared among them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/ablate.h"
#include "train/inspect.h"
#include "train/machine.h"
#include "train/stand_in.h"

enum { MIB = 1 << 20 };

/* The program with its libraries (measured: 9 MiB), rounded up, and the images of a data set that is kept in memory. */
static size_t process_bytes(const mla_config *config) {
    const bool cifar = config->data.set == MLA_SET_CIFAR10 || config->data.set == MLA_SET_CIFAR100;
    return (size_t)(cifar ? 24 + 184 : 24) * MIB;
}

static mla_status plan_row(mla_ablate_plan *plan, mla_config *config, int threads, mla_error *error) {
    mla_inspection x = {.config = config};
    mla_status status = mla_config_fill_from_data(config, error);
    if (status == MLA_OK) status = mla_model_new(&x.model, &config->model, error);
    if (status == MLA_OK) {
        const int lanes = config->train.lanes;
        status = mla_inspect_open(&x, threads < lanes ? threads : lanes, error);
        if (status == MLA_OK)
            *plan = (mla_ablate_plan){.parameters = mla_model_params(x.model)->count,
                                      .bytes = mla_inspect_total_bytes(&x) + process_bytes(config),
                                      .flops = x.flops};
        mla_inspect_close(&x);
    }
    mla_model_free(x.model);
    return status;
}

static int threads_of_a_job(const mla_ablate_run *run) {
    const int all = run->options->threads ? run->options->threads : mla_machine_cores();
    return all / run->jobs > 1 ? all / run->jobs : 1;
}

mla_status mla_ablate_make_plans(mla_ablate_run *run, mla_error *error) {
    mla_config *config = malloc(sizeof *config);
    if (!config) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a config");
    run->jobs = run->options->jobs;
    for (int i = 0; i < run->sweep->row_count; i++) {
        mla_error why = {0};
        const mla_sweep_row *row = &run->sweep->row[i];
        *config = run->sweep->cell[row->first].config;
        if (plan_row(&run->plan[i], config, threads_of_a_job(run), &why) != MLA_OK)
            fprintf(stderr, "mirrorla: %s: nothing known of its size: %s\n", row->name, why.text);
    }
    free(config);
    return MLA_OK;
}

static int larger_first(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Predicted bytes of the cells still to be run, the largest first; *count of them. */
static size_t *demands(const mla_ablate_run *run, int *count, const char **largest) {
    size_t *bytes = calloc((size_t)run->sweep->cell_count, sizeof *bytes), most = 0;
    *count = 0;
    for (int i = 0; bytes && i < run->sweep->cell_count; i++) {
        const mla_sweep_cell *cell = &run->sweep->cell[i];
        const size_t needed = run->plan[cell->row].bytes;
        if (run->state[i].status == MLA_CELL_DONE) continue;
        if (needed > most) most = needed, *largest = cell->name;
        bytes[(*count)++] = needed;
    }
    if (bytes) qsort(bytes, (size_t)*count, sizeof *bytes, larger_first);
    return bytes;
}

mla_status mla_ablate_share(mla_ablate_run *run, mla_error *error) {
    const int all = run->options->threads ? run->options->threads : mla_machine_cores();
    const size_t free_bytes = mla_machine_memory_free(), whole = mla_machine_memory_size();
    const char *largest = "";
    int count = 0, fit = 0;
    size_t *bytes = demands(run, &count, &largest), sum = 0;
    if (!bytes) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %d cells", run->sweep->cell_count);
    run->jobs = run->options->jobs < all ? run->options->jobs : all;
    if (run->jobs < run->options->jobs)
        fprintf(stderr, "mirrorla: --jobs %d for %d thread%s: %d at a time\n", run->options->jobs, all, all == 1 ? "" : "s",
                run->jobs);
    while (fit < count && fit < run->jobs && (fit == 0 || !free_bytes || sum + bytes[fit] <= free_bytes))
        sum += bytes[fit++];
    const size_t first = count ? bytes[0] : 0;
    free(bytes);
    if (whole && first > whole)
        return mla_fail(error, MLA_NO_MEMORY, "cell %s needs about %zu MiB, this machine has %zu MiB", largest, first / MIB,
                        whole / MIB);
    if (fit && fit < run->jobs && fit < count) {
        fprintf(stderr, "mirrorla: --jobs %d: %d of the largest cells need about %zu MiB, %zu MiB are free: %d at a time\n",
                run->jobs, fit + 1, (sum + first) / MIB, free_bytes / MIB, fit);
        run->jobs = fit;
    }
    run->threads = threads_of_a_job(run);
    return MLA_OK;
}
