/* Reports: one HTML page for any number of runs, or for a sweep, that needs nothing but a browser.
 *
 * Curves, results and their table, configs, what the attention layers do, and, where checkpoints and the data set are at
 * hand, attention maps of a few test images.  The page, its script and uPlot stand in train/report/; they are put together
 * when mirrorla is built, and the data of the runs is put between.  No request ever leaves the page.
 */
#ifndef MLA_TRAIN_REPORT_H
#define MLA_TRAIN_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

enum { MLA_REPORT_RUNS_MAX = 1000, MLA_REPORT_MAPS = 12, MLA_REPORT_IMAGES = 4 };

/* Whether this build has the page: it needs uPlot.  Without it every call below is MLA_INVALID and says what to install. */
bool mla_report_built(void);

typedef struct mla_report_options {
    const char *const *paths; /* run folders and logs, or one sweep folder (with a table.json) */
    size_t count;
    const char *data; /* where the data set is, for the maps; NULL: as in training */
    int maps;         /* runs, of different configs, whose attention is drawn; 0: none */
    int images;       /* for them, spread over the test set */
} mla_report_options;

/* Writes the page to `out` atomically.  A run that can't be read is MLA_INVALID with its path. */
MLA_MUST_CHECK mla_status mla_report_write(const char *out, const mla_report_options *options, mla_error *error);

/* folder/report.html of a sweep, with the defaults. */
MLA_MUST_CHECK mla_status mla_report_sweep(const char *folder, mla_error *error);
bool mla_report_is_sweep(const char *path);

/* The report of a run in progress: reads what its logs have got since the last time, and writes folder/report.html.
 * Without maps, which have a price. */
typedef struct mla_report_live mla_report_live;
MLA_MUST_CHECK mla_status mla_report_live_open(mla_report_live **live, const char *folder, mla_error *error);
/* With `last` in any case; else only when writing has taken less than a hundredth of the time since the start. */
MLA_MUST_CHECK mla_status mla_report_live_update(mla_report_live *live, bool last, mla_error *error);
void mla_report_live_close(mla_report_live *live); /* NULL is allowed */

#endif
