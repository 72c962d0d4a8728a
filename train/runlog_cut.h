/* Takes the lines after a step out of a log; private to runlog.c. */
#ifndef MLA_TRAIN_RUNLOG_CUT_H
#define MLA_TRAIN_RUNLOG_CUT_H

#include <stdint.h>

#include "core/status.h"

/* A log, where its cut lines go, and (out) the step of the last line kept, 0 if none. */
typedef struct mla_log_cut {
    const char *path, *dropped_path;
    uint64_t last;
} mla_log_cut;

enum { MLA_LOG_CUTS_MAX = 2 };

/* Moves to the end of dropped_path the lines of each log whose "step" is after `step`, those that tell of an epoch's end
 * (events "epoch", "layers" and "timing") after epoch `epochs`, and a last line cut by a kill; a log is replaced atomically,
 * and only if there is something to move.  A log that does not exist is empty.  A line that is no log line, in any of the
 * logs, is MLA_INVALID with file and line, and none of them has been changed. */
MLA_MUST_CHECK mla_status mla_runlog_cut(mla_log_cut *cuts, size_t count, uint64_t step, uint64_t epochs, mla_error *error);

#endif
