/* What a report's page is given: JSON in a script element; private to train/report*.c. */
#ifndef MLA_TRAIN_REPORT_DATA_H
#define MLA_TRAIN_REPORT_DATA_H

#include <stdio.h>

#include "train/config.h"
#include "train/report.h"
#include "train/report_curves.h"

typedef struct mla_report_run {
    char *folder; /* NULL: the log alone was given */
    char *name;   /* as the page calls it */
    char *log_path, *timing_path;
    mla_curves_file log, timing;
    mla_curves *curves;
    mla_config *config; /* NULL: it has none that can be read */
} mla_report_run;

/* A run folder, or a log file without one; nothing is read but its config.  A folder without log.jsonl is MLA_INVALID. */
MLA_MUST_CHECK mla_status mla_report_run_open(mla_report_run *run, const char *path, const char *name, mla_error *error);
/* Reads what its logs have got since the last call. */
MLA_MUST_CHECK mla_status mla_report_run_read(mla_report_run *run, mla_error *error);
void mla_report_run_close(mla_report_run *run);

/* `"keys": [...], "layer_numbers": [...], "runs": [...]` */
void mla_report_put_runs(FILE *out, const mla_report_run *runs, size_t count);

/* JSON texts in which no '<' stands, so that nothing in them ends the script element. */
void mla_report_put_text(FILE *out, const char *text);
void mla_report_put_json(FILE *out, const char *json);
void mla_report_put_number(FILE *out, double value);
/* A JSON string of base64. */
void mla_report_put_bytes(FILE *out, const uint8_t *data, size_t bytes);

/* `"maps": {...}` for up to options->maps runs of different configs, or `"maps": null` with the reason on stderr. */
MLA_MUST_CHECK mla_status mla_report_put_maps(FILE *out, const mla_report_run *runs, size_t count,
                                              const mla_report_options *options, mla_error *error);

/* The page before and behind its data; made at build time (train/report/meson.build), empty in a build without uPlot. */
extern const unsigned char mla_report_head[], mla_report_tail[];
extern const size_t mla_report_head_bytes, mla_report_tail_bytes;

#endif
