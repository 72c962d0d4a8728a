/* Running a sweep: every cell as a training process of its own, then the table.
 *
 *     DIR/sweep.yaml      the sweep, resolved: without bases and overrides
 *     DIR/configs/        NAME.yaml, a cell's whole config
 *     DIR/cells/NAME/     run folders, see ablate_cell.h
 *     DIR/table.json, table.md, table.csv, table.tex
 *
 * A cell that fails, crashes or is killed is recorded with its reason, and the others go on; calling again goes on with
 * what is missing, and a finished cell is never run again.  One ablate at a time holds a folder.  When it is killed, its
 * training processes are told by the kernel (prctl) to stop; they hold a lock on DIR/cells until they have, for which the
 * next ablate waits, so that nothing is trained twice where the kernel can't tell them.
 */
#ifndef MLA_TRAIN_ABLATE_H
#define MLA_TRAIN_ABLATE_H

#include <sys/types.h>

#include "train/ablate_cell.h"

typedef struct mla_ablate_options {
    const char *path;
    const char *const *overrides;
    size_t override_count;
    const char *out;      /* NULL: runs/NAME-OF-THE-SWEEP */
    const char *finetune; /* a checkpoint, or the folder of a sweep with cells of the same names; NULL: cells start anew */
    int jobs, threads;    /* threads of all jobs together; 0 = one a core */
    bool dry_run;         /* check, and print what would be run */
    bool table_only;      /* print and write the table of what is there */
} mla_ablate_options;

typedef struct mla_ablate_summary {
    int cells, done;
} mla_ablate_summary;

/* Prints the table in Markdown (or the list of cells) to stdout; MLA_INTERRUPTED after a signal.  Nothing is created before
 * the sweep and the folder have been found in order.  Cells that failed are no error of this function. */
MLA_MUST_CHECK mla_status mla_ablate(const mla_ablate_options *options, mla_ablate_summary *summary, mla_error *error);

/* ---- between the files of ablate */

/* What inspect finds out about a row's model; zeros where the model could not be made (its data set is missing). */
typedef struct mla_ablate_plan {
    size_t parameters, bytes; /* bytes: predicted peak of a training process */
    double flops;             /* of one image, forward */
} mla_ablate_plan;

typedef struct mla_ablate_run {
    const mla_ablate_options *options;
    mla_sweep *sweep;
    char folder[MLA_PATH_BYTES];
    int jobs, threads;     /* threads of one job */
    mla_ablate_plan *plan; /* by row */
    mla_cell_state *state; /* by cell */
    char **cell_folder;    /* by cell */
    char **weights;        /* by cell: the checkpoint that it starts from; NULL: its seed */
    int lock_fd, cells_fd; /* -1: not held */
} mla_ablate_run;

/* Fills in `plan`; what can't be planned is told on stderr. */
MLA_MUST_CHECK mla_status mla_ablate_make_plans(mla_ablate_run *run, mla_error *error);
/* Lowers `jobs` until the most demanding cells fit into memory together, and shares the threads out; MLA_NO_MEMORY when one
 * alone does not fit into this machine. */
MLA_MUST_CHECK mla_status mla_ablate_share(mla_ablate_run *run, mla_error *error);

/* Fills in `weights`.  MLA_INVALID when a cell to be run has none to start from, or one that began had others. */
MLA_MUST_CHECK mla_status mla_ablate_find_weights(mla_ablate_run *run, mla_error *error);

/* Starts the training process of a cell; its output goes to the cell's output.txt. */
MLA_MUST_CHECK mla_status mla_ablate_start(const mla_ablate_run *run, int cell, pid_t *pid, mla_error *error);
/* What the end of a cell's process, as waitpid gives it, says about the cell. */
void mla_ablate_judge(const mla_ablate_run *run, int cell, int wait_status, mla_cell_state *state);

/* Runs what is not done. */
MLA_MUST_CHECK mla_status mla_ablate_loop(mla_ablate_run *run, mla_error *error);

/* Writes table.* into the folder (unless `files` is false); with `out` also prints the Markdown there. */
MLA_MUST_CHECK mla_status mla_ablate_write_tables(const mla_ablate_run *run, bool files, FILE *out, mla_error *error);

#endif
