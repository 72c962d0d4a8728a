/* mirrorla ablate */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/ablate.h"
#include "train/cli.h"
#include "train/interrupt.h"

static const char help[] =
    "Usage: mirrorla ablate SWEEP [OPTIONS]\n\n"
    "Trains every cell of SWEEP, a config with a section `sweep`, and prints the table of their final test accuracies; in\n"
    "DIR it stands as table.md, table.csv, table.tex and table.json.  Cells that failed or were killed are recorded with "
    "the\n"
    "reason, and the others go on.  Calling again goes on with what is missing; what is done is never run again.\n\n"
    "  sweep:\n"
    "    model.attention.kind: [relu, mirror]      an axis: a key with the values that it takes\n"
    "    size: {small: {}, wide: {model.dims: [96]}}      a list of variants: named sets of keys that change together\n"
    "    train.seed: [0, 1, 2]                     seeds: cells that differ in nothing else are one row\n"
    "    exclude: [{size: wide, model.attention.kind: relu}]      cells to leave out\n"
    "    base: {model.attention.kind: relu}        what the others are compared with\n"
    "    title: Kinds of attention\n\n"
    "  --out DIR         folder of the sweep (default: runs/NAME of the file)\n"
    "  --finetune FROM   start cells from trained weights: FROM is a checkpoint, or the folder of a sweep with a finished\n"
    "                    cell of the same name for each; what must fit is as for `mirrorla train --finetune`\n"
    "  --jobs N          cells that are trained at a time (default 1); fewer if their memory would not suffice\n"
    "  --threads N       threads of all jobs together (default: one a core)\n"
    "  --set KEY=VALUE   override a key of all cells; may be given again\n"
    "  --dry-run         check everything and list the cells; nothing is created\n"
    "  --table-only      the table of what is there; nothing is trained\n"
    "  --help            this text\n\n"
    "Exit status: 0 all cells are done, 1 some are not, 2 wrong usage or input, 130 interrupted.\n";

static int parse(int argc, char **argv, mla_ablate_options *options, mla_cli_list *overrides, bool *done) {
    enum { SET = 1, OUT, FINETUNE, JOBS, THREADS, DRY_RUN, TABLE_ONLY, HELP };
    static const struct option table[] = {{"set", required_argument, NULL, SET},
                                          {"out", required_argument, NULL, OUT},
                                          {"finetune", required_argument, NULL, FINETUNE},
                                          {"jobs", required_argument, NULL, JOBS},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"dry-run", no_argument, NULL, DRY_RUN},
                                          {"table-only", no_argument, NULL, TABLE_ONLY},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    long jobs = 1, threads = 0;
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case SET:
            if (!mla_cli_list_add(overrides, optarg)) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
            break;
        case OUT: options->out = optarg; break;
        case FINETUNE: options->finetune = optarg; break;
        case JOBS:
            if (!mla_cli_number(&jobs, optarg, 1, 1024, argv[0], "--jobs")) return 2;
            break;
        case THREADS:
            if (!mla_cli_number(&threads, optarg, 1, 1024, argv[0], "--threads")) return 2;
            break;
        case DRY_RUN: options->dry_run = true; break;
        case TABLE_ONLY: options->table_only = true; break;
        case HELP:
            fputs(help, stdout);
            *done = true;
            return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one SWEEP, found %d arguments", argc - optind);
    if (options->dry_run && options->table_only)
        return mla_cli_usage(argv[0], "--dry-run lists the cells and --table-only prints the table: give one of them");
    options->path = argv[optind];
    options->overrides = overrides->item;
    options->override_count = overrides->count;
    options->jobs = (int)jobs;
    options->threads = (int)threads;
    return 0;
}

int mla_cmd_ablate(int argc, char **argv) {
    mla_ablate_options options = {0};
    mla_cli_list overrides = {0};
    mla_error error = {0};
    bool done = false;
    int code = parse(argc, argv, &options, &overrides, &done);
    if (code == 0 && !done) {
        mla_ablate_summary summary;
        mla_interrupt_setup();
        code = mla_ablate(&options, &summary, &error) == MLA_OK ? 0 : mla_cli_failed(&error);
        if (code == 0 && summary.done < summary.cells && !options.dry_run && !options.table_only) {
            fprintf(stderr, "mirrorla: %d of %d cells are not done; calling it again goes on with them\n",
                    summary.cells - summary.done, summary.cells);
            code = 1;
        }
    }
    free(overrides.item);
    return code;
}
