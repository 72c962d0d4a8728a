/* The table of a sweep: a row for every setting, over its seeds. */
#ifndef MLA_TRAIN_ABLATE_TABLE_H
#define MLA_TRAIN_ABLATE_TABLE_H

#include "train/ablate.h"
#include "train/statistics.h"

typedef struct mla_table_row {
    const mla_sweep_row *row;
    mla_sample sample;        /* of the final test accuracies, % */
    bool compared;            /* has a base, is none itself, and shares a seed with it */
    mla_paired difference;    /* to the base, points */
    double p_holm;            /* NaN where there is no test */
    double images_per_second; /* median over the epochs of all cells; NaN when nothing was measured */
    double memory_mib;        /* largest peak of a cell; NaN likewise */
} mla_table_row;

typedef struct mla_table {
    const mla_ablate_run *run;
    mla_table_row *row; /* run->sweep->row_count */
    double *value;      /* by cell: final test accuracy, %; NaN unless done */
    int comparisons;    /* tests that Holm's correction counts */
    int base;           /* the one base row; -1: none or several */
    bool finetuned;     /* cells began from trained weights, some at least */
    bool average;       /* accuracies are of averaged weights, in some cell at least */
} mla_table;

MLA_MUST_CHECK mla_status mla_table_make(mla_table *table, const mla_ablate_run *run, mla_error *error);
void mla_table_free(mla_table *table);

/* What the comparison is, one or two sentences; `out` is NUL-ended. */
enum { MLA_TABLE_TEST_BYTES = 512 };
void mla_table_test_text(char out[MLA_TABLE_TEST_BYTES], const mla_table *table);

/* Prints the table. */
void mla_table_markdown(FILE *out, const mla_table *table);
void mla_table_csv(FILE *out, const mla_table *table);
void mla_table_latex(FILE *out, const mla_table *table);
/* NULL when out of memory; the caller frees. */
char *mla_table_json(const mla_table *table);

/* The text of the seed of a cell: the axis' value, or the config's. */
const char *mla_table_seed(char out[32], const mla_table *table, int cell);

#endif
