#include "train/ablate_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/file.h"

static const mla_sweep *sweep_of(const mla_table *t) { return t->run->sweep; }

const char *mla_table_seed(char out[32], const mla_table *t, int cell) {
    snprintf(out, 32, "%" PRIu64, sweep_of(t)->cell[cell].config.train.seed);
    return out;
}

/* ---- figures of a row */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static double median(double *value, int n) {
    if (!n) return NAN;
    qsort(value, (size_t)n, sizeof *value, by_size);
    return n % 2 ? value[n / 2] : 0.5 * (value[n / 2 - 1] + value[n / 2]);
}

/* Adds what a cell's logs say to its row; *rates grows. */
static mla_status read_cell(mla_table *t, mla_table_row *row, int cell, double **rates, int *rate_count, mla_error *error) {
    mla_cell_result result;
    const mla_config *config = &sweep_of(t)->cell[cell].config;
    mla_status status = mla_cell_result_read(&result, t->run->cell_folder[cell], config->train.epochs, error);
    const bool done = t->run->state[cell].status == MLA_CELL_DONE;
    t->value[cell] = status == MLA_OK && done && result.tested ? result.accuracy : NAN;
    t->average |= done && config->optim.ema > 0;
    t->finetuned |= done && mla_cell_finetuned(t->run->cell_folder[cell]);
    if (status == MLA_OK && done) {
        const double mib = (double)result.peak_bytes / (1 << 20);
        if (result.peak_bytes && !(row->memory_mib >= mib)) row->memory_mib = mib;
        double *larger = realloc(*rates, ((size_t)*rate_count + (size_t)result.rate_count + 1) * sizeof *larger);
        if (larger) {
            *rates = larger;
            if (result.rate_count) memcpy(larger + *rate_count, result.rates, (size_t)result.rate_count * sizeof *larger);
            *rate_count += result.rate_count;
        } else {
            status = mla_fail(error, MLA_NO_MEMORY, "out of memory for the table");
        }
    }
    free(result.rates);
    return status;
}

static mla_status fill_row(mla_table *t, mla_table_row *row, double *values, mla_error *error) {
    double *rates = NULL;
    int rate_count = 0, n = 0;
    mla_status status = MLA_OK;
    row->memory_mib = row->p_holm = NAN;
    for (int i = 0; i < row->row->count && status == MLA_OK; i++) {
        const int cell = row->row->first + i;
        status = read_cell(t, row, cell, &rates, &rate_count, error);
        if (status == MLA_OK && !isnan(t->value[cell])) values[n++] = t->value[cell];
    }
    row->sample = mla_sample_of(values, n);
    row->images_per_second = median(rates, rate_count);
    free(rates);
    return status;
}

/* ---- comparisons */

/* Both have a value for the seed. */
static void compare(const mla_table *t, mla_table_row *row, double *differences) {
    const mla_sweep *sweep = sweep_of(t);
    const mla_sweep_row *own = row->row, *base = own->base >= 0 ? &sweep->row[own->base] : NULL;
    int n = 0;
    if (!base || base == own) return;
    for (int i = own->first; i < own->first + own->count; i++)
        for (int j = base->first; j < base->first + base->count; j++)
            if (sweep->cell[i].config.train.seed == sweep->cell[j].config.train.seed && !isnan(t->value[i]) &&
                !isnan(t->value[j]))
                differences[n++] = t->value[i] - t->value[j];
    row->compared = n > 0;
    row->difference = mla_paired_test(differences, n);
}

static void adjust(mla_table *t, double *p) {
    int m = 0;
    for (int i = 0; i < sweep_of(t)->row_count; i++)
        if (t->row[i].compared && t->row[i].difference.tested) p[m++] = t->row[i].difference.p;
    t->comparisons = m;
    mla_holm(p, m);
    m = 0;
    for (int i = 0; i < sweep_of(t)->row_count; i++)
        if (t->row[i].compared && t->row[i].difference.tested) t->row[i].p_holm = p[m++];
}

static int single_base(const mla_sweep *sweep) {
    int base = -1;
    for (int i = 0; i < sweep->row_count; i++) {
        if (sweep->row[i].base < 0) continue;
        if (base >= 0 && base != sweep->row[i].base) return -1;
        base = sweep->row[i].base;
    }
    return base;
}

mla_status mla_table_make(mla_table *t, const mla_ablate_run *run, mla_error *error) {
    const mla_sweep *sweep = run->sweep;
    const size_t rows = (size_t)sweep->row_count, cells = (size_t)sweep->cell_count;
    *t = (mla_table){.run = run, .base = single_base(sweep)};
    t->row = calloc(rows, sizeof *t->row);
    t->value = calloc(cells, sizeof *t->value);
    double *scratch = calloc(cells + rows, sizeof *scratch);
    mla_status status =
        t->row && t->value && scratch ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for the table");
    for (size_t i = 0; i < rows && status == MLA_OK; i++) {
        t->row[i].row = &sweep->row[i];
        status = fill_row(t, &t->row[i], scratch, error);
    }
    for (size_t i = 0; i < rows && status == MLA_OK; i++) compare(t, &t->row[i], scratch);
    if (status == MLA_OK) adjust(t, scratch);
    free(scratch);
    if (status != MLA_OK) mla_table_free(t);
    return status;
}

void mla_table_free(mla_table *t) {
    free(t->row);
    free(t->value);
    t->row = NULL;
    t->value = NULL;
}

void mla_table_test_text(char out[MLA_TABLE_TEST_BYTES], const mla_table *t) {
    bool any = false;
    for (int i = 0; i < sweep_of(t)->row_count; i++) any |= sweep_of(t)->row[i].base >= 0;
    if (!any) {
        snprintf(out, MLA_TABLE_TEST_BYTES, "no base was named, so nothing is compared");
        return;
    }
    int used =
        snprintf(out, MLA_TABLE_TEST_BYTES,
                 "two-sided paired t-test of the differences to the base over common seeds; interval of the mean "
                 "difference at 95 %% confidence, Student's t with n - 1 degrees of freedom; no test for a single pair "
                 "or when all differences are equal");
    if (t->comparisons > 1)
        snprintf(out + used, MLA_TABLE_TEST_BYTES - (size_t)used,
                 "; p (Holm) is adjusted for the %d comparisons of the table", t->comparisons);
}

/* ---- files */

static mla_status write_file(const mla_table *t, const char *name, const char *text, mla_error *error) {
    char *path = mla_path_join(t->run->folder, name);
    const mla_status status = path && text ? mla_file_write(path, text, strlen(text), error)
                                           : mla_fail(error, MLA_NO_MEMORY, "out of memory for %s", name);
    free(path);
    return status;
}

static mla_status write_printed(const mla_table *t, const char *name, void (*print)(FILE *, const mla_table *),
                                mla_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out) print(out, t);
    const bool failed = !out || ferror(out) != 0, whole = out && fclose(out) == 0 && !failed;
    const mla_status status = write_file(t, name, whole ? text : NULL, error);
    free(text);
    return status;
}

mla_status mla_ablate_write_tables(const mla_ablate_run *run, bool files, FILE *out, mla_error *error) {
    mla_table t;
    mla_status status = mla_table_make(&t, run, error);
    if (status != MLA_OK) return status;
    if (files) {
        char *json = mla_table_json(&t);
        status = write_file(&t, "table.json", json, error);
        free(json);
        if (status == MLA_OK) status = write_printed(&t, "table.md", mla_table_markdown, error);
        if (status == MLA_OK) status = write_printed(&t, "table.csv", mla_table_csv, error);
        if (status == MLA_OK) status = write_printed(&t, "table.tex", mla_table_latex, error);
    }
    if (status == MLA_OK && out) mla_table_markdown(out, &t);
    mla_table_free(&t);
    return status;
}
