/* The table of a sweep as Markdown, CSV, LaTeX and JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "train/ablate_table.h"

static const char metric[] = "final test accuracy, %";

static const mla_sweep *sweep_of(const mla_table *t) { return t->run->sweep; }

static const mla_ablate_plan *plan_of(const mla_table *t, int row) { return &t->run->plan[row]; }

/* The value of an axis in a row; only for axes other than the seeds. */
static const char *value_text(const mla_table *t, int row, int axis) {
    return sweep_of(t)->axis[axis].value[sweep_of(t)->row[row].choice[axis]].text;
}

/* A number, or a dash where there is none. */
static const char *number(char out[40], const char *format, double value) {
    if (isnan(value))
        snprintf(out, 40, "–");
    else
        snprintf(out, 40, format, value); /* one of the literals below */
    return out;
}

static const char *probability(char out[40], double p) {
    if (isnan(p)) return number(out, "", p);
    snprintf(out, 40, p < 1e-4 ? "%.1e" : "%.4f", p);
    return out;
}

static const char *words_of(const mla_table *t, int cell) { return mla_cell_status_name(t->run->state[cell].status); }

/* ---- Markdown */

static void put_escaped(FILE *out, const char *text) {
    for (; *text; text++) fprintf(out, *text == '|' || *text == '\\' ? "\\%c" : "%c", *text);
}

static void markdown_seeds(FILE *out, const mla_table *t, const mla_table_row *row) {
    char seed[32];
    for (int i = 0; i < row->row->count; i++) {
        const int cell = row->row->first + i;
        fprintf(out, "%s%s: ", i ? ", " : "", mla_table_seed(seed, t, cell));
        if (isnan(t->value[cell]))
            fprintf(out, "**%s**", words_of(t, cell));
        else
            fprintf(out, "%.2f", t->value[cell]);
    }
}

static void markdown_difference(FILE *out, const mla_table_row *row) {
    const mla_paired *d = &row->difference;
    char p[40], holm[40];
    if (!row->compared)
        fputs("– | – | – | ", out);
    else if (!d->tested)
        fprintf(out, "%+.2f (n = %d) | – | – | ", d->mean, d->n);
    else
        fprintf(out, "%+.2f [%+.2f, %+.2f] (n = %d) | %s | %s | ", d->mean, d->low, d->high, d->n, probability(p, d->p),
                probability(holm, row->p_holm));
}

static void markdown_row(FILE *out, const mla_table *t, int i) {
    const mla_table_row *row = &t->row[i];
    const mla_ablate_plan *plan = plan_of(t, i);
    char a[40], b[40];
    fputs("| ", out);
    put_escaped(out, row->row->name);
    fprintf(out, "%s | ", row->row->base == i ? " (base)" : "");
    fprintf(out, row->sample.n < row->row->count ? "**%d of %d** | " : "%d | ", row->sample.n, row->row->count);
    fputs(number(a, "%.2f", row->sample.mean), out);
    if (row->sample.n > 1) fprintf(out, " ± %.2f", row->sample.sd);
    fputs(" | ", out);
    markdown_seeds(out, t, row);
    fputs(" | ", out);
    markdown_difference(out, row);
    if (plan->parameters)
        fprintf(out, "%zu | %.2f | ", plan->parameters, plan->flops / 1e6);
    else
        fputs("– | – | ", out);
    fprintf(out, "%s | %s |\n", number(a, "%.0f", row->images_per_second), number(b, "%.0f", row->memory_mib));
}

static void markdown_unfinished(FILE *out, const mla_table *t) {
    bool any = false;
    for (int i = 0; i < sweep_of(t)->cell_count; i++) {
        const mla_cell_state *state = &t->run->state[i];
        if (state->status == MLA_CELL_DONE) continue;
        fputs(any ? "" : "\nNot done:\n\n", out);
        any = true;
        fputs("- ", out);
        put_escaped(out, sweep_of(t)->cell[i].name);
        fprintf(out, ": %s", words_of(t, i));
        if (state->reason[0]) fputs(", ", out);
        put_escaped(out, state->reason);
        fputc('\n', out);
    }
}

void mla_table_markdown(FILE *out, const mla_table *t) {
    char test[MLA_TABLE_TEST_BYTES];
    if (sweep_of(t)->title) fprintf(out, "# %s\n\n", sweep_of(t)->title);
    fputs("| | n | test accuracy, % | by seed | difference to the base, points | p | p (Holm) | parameters | MFLOPs | "
          "images/s "
          "| peak MiB |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
          out);
    for (int i = 0; i < sweep_of(t)->row_count; i++) markdown_row(out, t, i);
    mla_table_test_text(test, t);
    fprintf(
        out,
        "\nTest accuracy after the last epoch%s%s: mean ± sample standard deviation over n seeds. Difference: %s. MFLOPs of "
        "one image forward, a multiply-add as two, the products of attention counted. Images/s of training: median over "
        "epochs and seeds. Peak: largest resident memory of a run.\n",
        t->average ? " (of the averaged weights where an average is kept)" : "",
        t->finetuned ? ", of runs begun from trained weights" : "", test);
    markdown_unfinished(out, t);
}

/* ---- CSV: RFC 4180, numbers in full, nothing where there is none */

static void csv_text(FILE *out, const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

static void csv_number(FILE *out, double value) {
    char text[MLA_NUMBER_BYTES];
    mla_number_shortest(text, value);
    fprintf(out, ",%s", isnan(value) ? "" : text);
}

/* All seeds that any row has, in the order in which they come; the caller frees. */
static uint64_t *all_seeds(const mla_table *t, int *count) {
    const mla_sweep *sweep = sweep_of(t);
    uint64_t *seeds = calloc((size_t)sweep->cell_count, sizeof *seeds);
    *count = 0;
    for (int i = 0; seeds && i < sweep->cell_count; i++) {
        int k = 0;
        while (k < *count && seeds[k] != sweep->cell[i].config.train.seed) k++;
        if (k == *count) seeds[(*count)++] = sweep->cell[i].config.train.seed;
    }
    return seeds;
}

static void csv_row(FILE *out, const mla_table *t, int i, const uint64_t *seeds, int seed_count) {
    const mla_table_row *row = &t->row[i];
    const mla_ablate_plan *plan = plan_of(t, i);
    const mla_paired *d = &row->difference;
    csv_text(out, row->row->name);
    for (int a = 0; a < sweep_of(t)->axis_count; a++) {
        if (a == sweep_of(t)->seed_axis) continue;
        fputc(',', out);
        csv_text(out, value_text(t, i, a));
    }
    fputc(',', out);
    csv_text(out, row->row->base >= 0 ? sweep_of(t)->row[row->row->base].name : "");
    fprintf(out, ",%d,%d", row->row->count, row->sample.n);
    csv_number(out, row->sample.mean);
    csv_number(out, row->sample.sd);
    fprintf(out, row->compared ? ",%d" : ",", d->n);
    const double figures[] = {d->mean, d->low, d->high, d->p, row->p_holm};
    for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++) csv_number(out, row->compared ? figures[k] : NAN);
    csv_number(out, plan->parameters ? (double)plan->parameters : NAN);
    csv_number(out, plan->parameters ? plan->flops : NAN);
    csv_number(out, row->images_per_second);
    csv_number(out, row->memory_mib);
    for (int k = 0; k < seed_count; k++) {
        fputc(',', out);
        for (int c = row->row->first; c < row->row->first + row->row->count; c++) {
            char text[MLA_NUMBER_BYTES];
            if (sweep_of(t)->cell[c].config.train.seed != seeds[k]) continue;
            mla_number_shortest(text, t->value[c]);
            fputs(isnan(t->value[c]) ? words_of(t, c) : text, out);
        }
    }
    fputs("\r\n", out);
}

void mla_table_csv(FILE *out, const mla_table *t) {
    int count = 0;
    uint64_t *seeds = all_seeds(t, &count);
    fputs("name", out);
    for (int a = 0; a < sweep_of(t)->axis_count; a++)
        if (a != sweep_of(t)->seed_axis) fprintf(out, ",%s", sweep_of(t)->axis[a].name);
    fputs(",base,seeds,n,mean,sd,difference_n,difference,difference_low,difference_high,p,p_holm,parameters,flops,"
          "images_per_second,memory_mib",
          out);
    for (int k = 0; k < count; k++) fprintf(out, ",seed_%" PRIu64, seeds[k]);
    fputs("\r\n", out);
    for (int i = 0; i < sweep_of(t)->row_count; i++) csv_row(out, t, i, seeds, count);
    free(seeds);
}

/* ---- LaTeX: a tabular for the package booktabs */

static void latex_text(FILE *out, const char *text) {
    for (; *text; text++) switch (*text) {
        case '\\': fputs("\\textbackslash{}", out); break;
        case '~': fputs("\\textasciitilde{}", out); break;
        case '^': fputs("\\textasciicircum{}", out); break;
        case '&':
        case '%':
        case '$':
        case '#':
        case '_':
        case '{':
        case '}': fprintf(out, "\\%c", *text); break;
        default: fputc(*text, out);
        }
}

static void latex_row(FILE *out, const mla_table *t, int i) {
    const mla_table_row *row = &t->row[i];
    const mla_ablate_plan *plan = plan_of(t, i);
    const mla_paired *d = &row->difference;
    latex_text(out, row->row->name);
    fprintf(out, row->sample.n < row->row->count ? " & %d of %d & " : " & %d & ", row->sample.n, row->row->count);
    if (row->sample.n) fprintf(out, row->sample.n > 1 ? "$%.2f \\pm %.2f$" : "$%.2f$", row->sample.mean, row->sample.sd);
    fputs(" & ", out);
    if (row->row->base == i) fputs("base", out);
    if (row->compared) fprintf(out, "$%+.2f$", d->mean);
    if (row->compared && d->tested) {
        fprintf(out, " $[%+.2f, %+.2f]$", d->low, d->high);
        fprintf(out, d->p < 1e-4 ? " & $%.1e$" : " & $%.4f$", d->p);
        fprintf(out, row->p_holm < 1e-4 ? " & $%.1e$" : " & $%.4f$", row->p_holm);
    } else {
        fputs(" & &", out);
    }
    if (plan->parameters)
        fprintf(out, " & %zu & %.2f", plan->parameters, plan->flops / 1e6);
    else
        fputs(" & &", out);
    fprintf(out, isnan(row->images_per_second) ? " &" : " & %.0f", row->images_per_second);
    fprintf(out, isnan(row->memory_mib) ? " &" : " & %.0f", row->memory_mib);
    fputs(" \\\\\n", out);
}

void mla_table_latex(FILE *out, const mla_table *t) {
    char test[MLA_TABLE_TEST_BYTES];
    mla_table_test_text(test, t);
    fputs("% \\usepackage{booktabs}\n% ", out);
    if (sweep_of(t)->title) fprintf(out, "%s: ", sweep_of(t)->title);
    fprintf(out, "test accuracy after the last epoch, mean and sample standard deviation over n seeds; %s\n", test);
    fputs("\\begin{tabular}{lrrrrrrrrr}\n\\toprule\n & $n$ & accuracy, \\% & difference [95\\,\\%] & $p$ & $p$ (Holm) & "
          "parameters & MFLOPs & images/s & peak MiB \\\\\n\\midrule\n",
          out);
    for (int i = 0; i < sweep_of(t)->row_count; i++) latex_row(out, t, i);
    fputs("\\bottomrule\n\\end{tabular}\n", out);
}

/* ---- JSON */

static json_t *json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *axes_json(const mla_sweep *sweep) {
    json_t *list = json_array();
    for (int a = 0; a < sweep->axis_count; a++) {
        json_t *values = json_array();
        for (int v = 0; v < sweep->axis[a].count; v++)
            json_array_append_new(values, json_string(sweep->axis[a].value[v].text));
        json_array_append_new(list, json_pack("{s:s, s:o}", "key", sweep->axis[a].name, "values", values));
    }
    return list;
}

static json_t *cells_json(const mla_table *t, const mla_sweep_row *row) {
    json_t *list = json_array();
    for (int i = row->first; i < row->first + row->count; i++) {
        const mla_sweep_cell *cell = &sweep_of(t)->cell[i];
        const char *reason = t->run->state[i].reason;
        char folder[MLA_SWEEP_NAME_BYTES + 8];
        snprintf(folder, sizeof folder, "cells/%s", cell->name);
        json_array_append_new(list, json_pack("{s:s, s:I, s:s, s:s, s:s?, s:o}", "name", cell->name, "seed",
                                              (json_int_t)cell->config.train.seed, "dir", folder, "status", words_of(t, i),
                                              "reason", *reason ? reason : NULL, "value", json_number(t->value[i])));
    }
    return list;
}

static json_t *difference_json(const mla_table_row *row) {
    const mla_paired *d = &row->difference;
    if (!row->compared) return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:i}", "mean", json_number(d->mean), "low", json_number(d->low), "high",
                     json_number(d->high), "p", json_number(d->p), "p_holm", json_number(row->p_holm), "n", d->n);
}

static json_t *row_json(const mla_table *t, int i) {
    const mla_table_row *row = &t->row[i];
    const mla_ablate_plan *plan = plan_of(t, i);
    json_t *values = json_object();
    for (int a = 0; a < sweep_of(t)->axis_count; a++)
        if (a != sweep_of(t)->seed_axis)
            json_object_set_new(values, sweep_of(t)->axis[a].name, json_string(value_text(t, i, a)));
    return json_pack("{s:s, s:o, s:s?, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", row->row->name, "values",
                     values, "base", row->row->base >= 0 ? sweep_of(t)->row[row->row->base].name : NULL, "cells",
                     cells_json(t, row->row), "n", row->sample.n, "mean", json_number(row->sample.mean), "sd",
                     json_number(row->sample.sd), "difference", difference_json(row), "parameters",
                     plan->parameters ? json_integer((json_int_t)plan->parameters) : json_null(), "flops",
                     plan->parameters ? json_real(plan->flops) : json_null(), "images_per_second",
                     json_number(row->images_per_second), "memory_mib", json_number(row->memory_mib));
}

char *mla_table_json(const mla_table *t) {
    char test[MLA_TABLE_TEST_BYTES];
    json_t *rows = json_array();
    for (int i = 0; i < sweep_of(t)->row_count; i++) json_array_append_new(rows, row_json(t, i));
    mla_table_test_text(test, t);
    json_t *json = json_pack("{s:s?, s:s, s:b, s:o, s:s?, s:s, s:o}", "title", sweep_of(t)->title, "metric", metric,
                             "finetuned", t->finetuned, "axes", axes_json(sweep_of(t)), "base",
                             t->base >= 0 ? sweep_of(t)->row[t->base].name : NULL, "test", test, "rows", rows);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    return text;
}
