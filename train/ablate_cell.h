/* A cell of a sweep on the disk: DIR/cells/NAME is an ordinary run folder (runlog.h) with two more files.
 *
 *     cell.json     {"status": "done", "reason": null, "attempts": 1, "seconds": 41.5}
 *     output.txt    what `mirrorla train` said, of all attempts
 */
#ifndef MLA_TRAIN_ABLATE_CELL_H
#define MLA_TRAIN_ABLATE_CELL_H

#include "train/sweep.h"

typedef enum mla_cell_status {
    MLA_CELL_MISSING, /* not begun, or begun and neither ended nor running */
    MLA_CELL_RUNNING,
    MLA_CELL_DONE,
    MLA_CELL_FAILED, /* ended with an error */
    MLA_CELL_KILLED, /* ended by a signal */
    MLA_CELL_STOPPED /* interrupted, with a checkpoint to go on from */
} mla_cell_status;

typedef struct mla_cell_state {
    mla_cell_status status;
    char reason[512]; /* why it is not done; empty if there is nothing to say */
    int attempts;
    double seconds; /* of all attempts that ended */
} mla_cell_state;

/* What a finished run's logs say. */
typedef struct mla_cell_result {
    bool tested;
    double accuracy; /* of the last epoch, %; the weight average's where one is kept */
    double *rates;   /* images/s, one an epoch; the caller frees */
    int rate_count;
    size_t peak_bytes; /* largest resident memory */
} mla_cell_result;

/* "done", "failed", "killed", "missing", "running": as they stand in table.json.  Stopped is "missing". */
const char *mla_cell_status_name(mla_cell_status status);

/* A missing or unreadable file is a cell that never ran.  Unless an ablate is `alive` that holds the sweep, a cell that is
 * said to run is missing: its ablate was killed. */
void mla_cell_state_read(mla_cell_state *state, const char *folder, bool alive);
MLA_MUST_CHECK mla_status mla_cell_state_write(const mla_cell_state *state, const char *folder, mla_error *error);

/* Reads log.jsonl and timing.jsonl; what is not there is left out. */
MLA_MUST_CHECK mla_status mla_cell_result_read(mla_cell_result *result, const char *folder, int epochs, mla_error *error);

/* Completed epochs; 0 when there is no log. */
int mla_cell_epochs(const char *folder);

/* Whether a run began here, which `train --resume` goes on with. */
bool mla_cell_began(const char *folder);

/* Whether it began from trained weights (finetune.h). */
bool mla_cell_finetuned(const char *folder);

/* MLA_INVALID, with the keys, when a run that is in the folder has another config than the cell. */
MLA_MUST_CHECK mla_status mla_cell_check_config(const mla_sweep_cell *cell, const char *folder, mla_error *error);

#endif
