/* Takes the lines after a step out of a log; private to runlog.c. */
#ifndef MLA_TRAIN_RUNLOG_CUT_H
#define MLA_TRAIN_RUNLOG_CUT_H

#include <stdint.h>

#include "core/status.h"

/* Moves to the end of `dropped_path` the lines of the log at `path` whose "step" is after `step`, those that tell of an
 * epoch's end (events "epoch" and "timing") after epoch `epochs`, and a last line cut by a kill; the log is replaced
 * atomically, and only if there is something to move.  *last receives the step of the last line kept, 0 if none.  A log that
 * does not exist is empty.  A line that is no log line is MLA_INVALID with file and line, and nothing has been changed. */
MLA_MUST_CHECK mla_status mla_runlog_cut(uint64_t *last, const char *path, const char *dropped_path, uint64_t step,
                                         uint64_t epochs, mla_error *error);

#endif
