/* The grid of a sweep: cells, their rows, names and configs. */
#include "train/sweep.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- finding what a rule names */

mla_status mla_sweep_find_axis(const mla_sweep *sweep, const mla_yaml_node *name, const char *rule, int *axis,
                               mla_error *error) {
    const char *names[MLA_SWEEP_AXES_MAX + 1] = {0};
    char list[512] = "";
    for (int a = 0; a < sweep->axis_count; a++) {
        names[a] = sweep->axis[a].name;
        if (strcmp(names[a], name->text) == 0) {
            *axis = a;
            return MLA_OK;
        }
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", a ? ", " : "", names[a]);
    }
    const char *near = mla_config_nearest(name->text, names);
    char shown[MLA_CONFIG_SHOW_BYTES];
    mla_config_show(name->text, name->length, shown);
    if (near)
        return mla_sweep_fail(sweep, name->line, rule, error, "%s is no axis of this sweep; did you mean %s?", shown, near);
    return mla_sweep_fail(sweep, name->line, rule, error, "%s is no axis of this sweep, which has: %s", shown, list);
}

mla_status mla_sweep_find_value(const mla_sweep *sweep, int axis, const mla_yaml_node *node, const char *rule, int *value,
                                mla_error *error) {
    const mla_sweep_axis *a = &sweep->axis[axis];
    char *text = NULL;
    const mla_status status = mla_sweep_value_text(&text, sweep, a->key, node, error);
    if (status != MLA_OK) return status;
    for (*value = 0; *value < a->count; ++*value)
        if (strcmp(a->value[*value].text, text) == 0) break;
    char list[512] = "", shown[MLA_CONFIG_SHOW_BYTES];
    for (int v = 0; v < a->count; v++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", v ? ", " : "", a->value[v].text);
    }
    mla_config_show(text, strlen(text), shown);
    free(text);
    if (*value < a->count) return MLA_OK;
    return mla_sweep_fail(sweep, node->line, rule, error, "%s has no value %s; it has: %s", a->name, shown, list);
}

/* ---- exclude */

typedef struct rule {
    bool *wanted[MLA_SWEEP_AXES_MAX]; /* by value; NULL: the axis does not matter */
} rule;

static void free_rule(rule *r) {
    for (int a = 0; a < MLA_SWEEP_AXES_MAX; a++) free(r->wanted[a]);
}

/* One entry of a rule: a value, or a list of which any will do. */
static mla_status read_condition(const mla_sweep *sweep, const mla_yaml_node *name, rule *r, mla_error *error) {
    int a = 0, v = 0;
    const mla_yaml_node *node = name->next;
    mla_status status = mla_sweep_find_axis(sweep, name, "exclude", &a, error);
    if (status != MLA_OK) return status;
    if (r->wanted[a]) return mla_sweep_fail(sweep, name->line, "exclude", error, "%s is there twice", name->text);
    r->wanted[a] = calloc((size_t)sweep->axis[a].count, sizeof(bool));
    if (!r->wanted[a]) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", sweep->path);
    const mla_yaml_node *entry = node->kind == MLA_YAML_LIST ? node->child : node;
    if (!entry) return mla_sweep_fail(sweep, name->line, "exclude", error, "%s: the list is empty", name->text);
    /* a list may itself be the value, of a key that takes one */
    if (node->kind == MLA_YAML_LIST && mla_sweep_find_value(sweep, a, node, "exclude", &v, NULL) == MLA_OK) {
        r->wanted[a][v] = true;
        return MLA_OK;
    }
    for (; entry && status == MLA_OK; entry = node->kind == MLA_YAML_LIST ? entry->next : NULL) {
        status = mla_sweep_find_value(sweep, a, entry, "exclude", &v, error);
        if (status == MLA_OK) r->wanted[a][v] = true;
    }
    return status;
}

static bool matches(const rule *r, const int *choice, int axes) {
    for (int a = 0; a < axes; a++)
        if (r->wanted[a] && !r->wanted[a][choice[a]]) return false;
    return true;
}

static void take_choice(const mla_sweep *sweep, size_t index, int *choice) {
    for (int a = sweep->axis_count - 1; a >= 0; a--) {
        choice[a] = (int)(index % (size_t)sweep->axis[a].count);
        index /= (size_t)sweep->axis[a].count;
    }
}

static mla_status apply_rule(const mla_sweep *sweep, const mla_yaml_node *map, bool *out, size_t count, mla_error *error) {
    rule r = {0};
    int choice[MLA_SWEEP_AXES_MAX];
    size_t matched = 0;
    mla_status status = MLA_OK;
    if (map->kind != MLA_YAML_MAP || !map->child)
        return mla_sweep_fail(sweep, map->line, "exclude", error,
                              "expected axes with values, for example {model.attention.kind: softmax}");
    for (const mla_yaml_node *name = map->child; name && status == MLA_OK; name = name->next->next)
        status = read_condition(sweep, name, &r, error);
    for (size_t i = 0; i < count && status == MLA_OK; i++) {
        take_choice(sweep, i, choice);
        if (out[i] || !matches(&r, choice, sweep->axis_count)) continue;
        out[i] = true;
        matched++;
    }
    if (status == MLA_OK && !matched)
        status = mla_sweep_fail(sweep, map->line, "exclude", error, "this rule matches nothing that the others leave");
    free_rule(&r);
    return status;
}

static mla_status apply_exclude(const mla_sweep *sweep, const mla_yaml_node *exclude, bool *out, size_t count,
                                mla_error *error) {
    if (!exclude) return MLA_OK;
    const mla_yaml_node *rules = exclude->next;
    if (rules->kind == MLA_YAML_MAP) return apply_rule(sweep, rules, out, count, error);
    if (rules->kind != MLA_YAML_LIST || !rules->child)
        return mla_sweep_fail(sweep, exclude->line, "exclude", error,
                              "expected a list of rules, for example [{model.attention.kind: softmax}]");
    mla_status status = MLA_OK;
    for (const mla_yaml_node *map = rules->child; map && status == MLA_OK; map = map->next)
        status = apply_rule(sweep, map, out, count, error);
    return status;
}

/* ---- names */

static void append_part(char *name, const char *part) {
    const size_t used = strlen(name);
    snprintf(name + used, MLA_SWEEP_NAME_BYTES - used, "%s%s", used ? "-" : "", part);
}

static bool make_name(char name[MLA_SWEEP_NAME_BYTES], const mla_sweep *sweep, const int *choice, bool with_seed) {
    name[0] = 0;
    size_t length = 0;
    for (int a = 0; a < sweep->axis_count; a++) {
        if (a == sweep->seed_axis && !with_seed) continue;
        const char *part = sweep->axis[a].value[choice[a]].part;
        length += strlen(part) + 1;
        append_part(name, part);
    }
    if (!name[0]) strcpy(name, "all"); /* only seeds differ */
    return length <= MLA_SWEEP_NAME_BYTES;
}

/* ---- cells */

static bool same_row(const mla_sweep *sweep, const int *a, const int *b) {
    for (int i = 0; i < sweep->axis_count; i++)
        if (i != sweep->seed_axis && a[i] != b[i]) return false;
    return true;
}

static mla_status load_config(const mla_sweep *sweep, mla_sweep_cell *cell, mla_error *error) {
    mla_config_assignment values[MLA_SWEEP_AXES_MAX + MLA_SWEEP_SET_MAX];
    mla_config_cell whole = {sweep->path, sweep->overrides, sweep->override_count, values, 0};
    mla_error why = {0};
    for (int a = 0; a < sweep->axis_count; a++) {
        const mla_sweep_value *value = &sweep->axis[a].value[cell->choice[a]];
        for (size_t i = 0; i < value->set_count; i++) values[whole.value_count++] = value->set[i];
    }
    const mla_status status = mla_config_load_cell(&cell->config, &whole, true, &why);
    if (status != MLA_OK) return mla_fail(error, status, "%s (in cell %s)", why.text, cell->name);
    if (cell->config.train.max_steps)
        return mla_fail(
            error, MLA_INVALID,
            "%s: train.max_steps is %d: a run that it ends has no test accuracy to compare; make runs short with "
            "train.epochs and data.subset",
            sweep->path, cell->config.train.max_steps);
    return MLA_OK;
}

static mla_status add_cell(mla_sweep *sweep, const int *choice, mla_error *error) {
    mla_sweep_cell *cell = &sweep->cell[sweep->cell_count];
    memcpy(cell->choice, choice, sizeof cell->choice);
    if (!make_name(cell->name, sweep, choice, true))
        return mla_fail(error, MLA_INVALID, "%s: the name of a cell, %s..., is too long: use variants, which have names",
                        sweep->path, cell->name);
    const bool fresh = !sweep->row_count || !same_row(sweep, sweep->row[sweep->row_count - 1].choice, choice);
    mla_sweep_row *row = &sweep->row[sweep->row_count - !fresh];
    if (fresh) {
        *row = (mla_sweep_row){.first = sweep->cell_count, .base = -1};
        memcpy(row->choice, choice, sizeof row->choice);
        (void)make_name(row->name, sweep, choice, false);
        sweep->row_count++;
    }
    row->count++;
    cell->row = sweep->row_count - 1;
    sweep->cell_count++;
    return load_config(sweep, cell, error);
}

/* Equal configs are equal bytes (config.c).  Names that differ in case alone are one folder on some systems. */
static mla_status check_different(const mla_sweep *sweep, mla_error *error) {
    for (int i = 0; i < sweep->cell_count; i++)
        for (int j = 0; j < i; j++) {
            const mla_sweep_cell *a = &sweep->cell[j], *b = &sweep->cell[i];
            if (strcasecmp(a->name, b->name) == 0)
                return mla_fail(error, MLA_INVALID, "%s: two cells would have the folder %s: give variants other names",
                                sweep->path, b->name);
            if (memcmp(&a->config, &b->config, sizeof a->config) == 0)
                return mla_fail(error, MLA_INVALID,
                                "%s: the cells %s and %s have the same config and would be the same run: leave one out",
                                sweep->path, a->name, b->name);
        }
    return MLA_OK;
}

static mla_status count_grid(const mla_sweep *sweep, size_t *count, mla_error *error) {
    *count = 1;
    for (int a = 0; a < sweep->axis_count; a++) {
        *count *= (size_t)sweep->axis[a].count;
        if (*count > MLA_SWEEP_CELLS_MAX)
            return mla_sweep_fail(sweep, sweep->axis[a].line, sweep->axis[a].name, error, "more than %d cells",
                                  MLA_SWEEP_CELLS_MAX);
    }
    return MLA_OK;
}

mla_status mla_sweep_make_cells(mla_sweep *sweep, const mla_yaml_node *exclude, mla_error *error) {
    size_t grid = 0;
    mla_status status = count_grid(sweep, &grid, error);
    if (status != MLA_OK) return status;
    bool *out = calloc(grid, sizeof *out);
    sweep->cell = calloc(grid, sizeof *sweep->cell);
    sweep->row = calloc(grid, sizeof *sweep->row);
    if (!out || !sweep->cell || !sweep->row)
        status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for %zu cells", sweep->path, grid);
    if (status == MLA_OK) status = apply_exclude(sweep, exclude, out, grid, error);
    for (size_t i = 0; i < grid && status == MLA_OK; i++) {
        int choice[MLA_SWEEP_AXES_MAX] = {0};
        take_choice(sweep, i, choice);
        if (!out[i]) status = add_cell(sweep, choice, error);
    }
    free(out);
    if (status == MLA_OK && !sweep->cell_count)
        status = mla_sweep_fail(sweep, exclude->line, "exclude", error, "the rules leave no cell");
    return status == MLA_OK ? check_different(sweep, error) : status;
}

/* ---- base */

static int find_row(const mla_sweep *sweep, const int *choice) {
    for (int i = 0; i < sweep->row_count; i++)
        if (same_row(sweep, sweep->row[i].choice, choice)) return i;
    return -1;
}

/* The only axis besides the seeds; -1 if there are none or several. */
static int single_axis(const mla_sweep *sweep) {
    const int axes = sweep->axis_count - (sweep->seed_axis >= 0);
    return axes == 1 ? 0 : -1;
}

static mla_status read_base(const mla_sweep *sweep, const mla_yaml_node *base, int *wanted, mla_error *error) {
    const mla_yaml_node *node = base->next;
    const int single = single_axis(sweep);
    if (node->kind != MLA_YAML_MAP && single >= 0)
        return mla_sweep_find_value(sweep, single, node, "base", &wanted[single], error);
    if (node->kind != MLA_YAML_MAP || !node->child)
        return mla_sweep_fail(sweep, base->line, "base", error,
                              "expected axes with a value each, for example {model.attention.kind: relu}");
    for (const mla_yaml_node *name = node->child; name; name = name->next->next) {
        int a = 0;
        mla_status status = mla_sweep_find_axis(sweep, name, "base", &a, error);
        if (status == MLA_OK && a == sweep->seed_axis)
            status = mla_sweep_fail(sweep, name->line, "base", error,
                                    "seeds are compared pair by pair, so train.seed has no place here");
        if (status == MLA_OK && wanted[a] >= 0)
            status = mla_sweep_fail(sweep, name->line, "base", error, "%s is there twice", name->text);
        if (status == MLA_OK) status = mla_sweep_find_value(sweep, a, name->next, "base", &wanted[a], error);
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}

mla_status mla_sweep_apply_base(mla_sweep *sweep, const mla_yaml_node *base, mla_error *error) {
    int wanted[MLA_SWEEP_AXES_MAX], found = 0;
    for (int a = 0; a < MLA_SWEEP_AXES_MAX; a++) wanted[a] = -1;
    if (!base) return MLA_OK;
    mla_status status = read_base(sweep, base, wanted, error);
    for (int i = 0; i < sweep->row_count && status == MLA_OK; i++) {
        int choice[MLA_SWEEP_AXES_MAX];
        memcpy(choice, sweep->row[i].choice, sizeof choice);
        for (int a = 0; a < sweep->axis_count; a++)
            if (wanted[a] >= 0) choice[a] = wanted[a];
        sweep->row[i].base = find_row(sweep, choice);
        found += sweep->row[i].base >= 0;
    }
    if (status == MLA_OK && !found)
        status = mla_sweep_fail(sweep, base->line, "base", error, "no cell is left that has these values");
    return status;
}
