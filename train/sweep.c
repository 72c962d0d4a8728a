/* A file with a `sweep` section: reading it, and the whole of it as text. */
#include "train/sweep.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "train/file.h"

mla_status mla_sweep_fail(const mla_sweep *sweep, int line, const char *name, mla_error *error, const char *format, ...) {
    char text[MLA_ERROR_BYTES], shown[MLA_CONFIG_SHOW_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mla_config_show(name, strlen(name), shown);
    return mla_fail(error, MLA_INVALID, "%s:%d: sweep: %s%s%s", sweep->path, line, shown, *shown ? ": " : "", text);
}

/* ---- values as text */

static void put_value(FILE *out, const mla_yaml_node *node) {
    if (node->kind != MLA_YAML_LIST) {
        fputs(node->kind == MLA_YAML_SCALAR ? node->text : "{}", out);
        return;
    }
    fputc('[', out);
    for (const mla_yaml_node *entry = node->child; entry; entry = entry->next) {
        put_value(out, entry);
        if (entry->next) fputs(", ", out);
    }
    fputc(']', out);
}

/* What was written to a memory stream; NULL when it did not fit into memory. */
static char *end_text(FILE *out, char **text) {
    const bool failed = ferror(out) != 0;
    if (fclose(out) == 0 && !failed) return *text;
    free(*text);
    return NULL;
}

static bool is_number_or_switch(const mla_config_key *key) {
    return key && (key->type == MLA_KEY_BOOL || key->type == MLA_KEY_INT || key->type == MLA_KEY_U64 ||
                   key->type == MLA_KEY_DOUBLE);
}

mla_status mla_sweep_value_text(char **out, const mla_sweep *sweep, const mla_config_key *key, const mla_yaml_node *node,
                                mla_error *error) {
    const mla_config_assignment one = {key, node};
    mla_config *config = malloc(sizeof *config);
    size_t length = 0;
    *out = NULL;
    mla_status status = config ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", sweep->path);
    if (status == MLA_OK && key) status = mla_config_try(config, &one, sweep->path, error);
    if (status == MLA_OK) {
        FILE *text = open_memstream(out, &length);
        if (text && is_number_or_switch(key))
            mla_config_put_value(text, config, key);
        else if (text)
            put_value(text, node);
        *out = text ? end_text(text, out) : NULL;
        if (!*out) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", sweep->path);
    }
    free(config);
    return status;
}

/* ---- the section as YAML: blocks only, where every plain word may stand */

static void put_quoted(FILE *out, const mla_yaml_node *node) {
    json_t *string = json_stringn(node->text, node->length);
    if (string) json_dumpf(string, out, JSON_ENCODE_ANY);
    json_decref(string);
}

static void put_word(FILE *out, const mla_yaml_node *node) {
    if (node->plain)
        fputs(node->text, out);
    else
        put_quoted(out, node);
}

static void put_node(FILE *out, const mla_yaml_node *node, int indent) {
    if (node->kind == MLA_YAML_SCALAR) {
        fputc(' ', out);
        put_word(out, node);
        fputc('\n', out);
        return;
    }
    const bool map = node->kind == MLA_YAML_MAP;
    fputs(node->child ? "\n" : map ? " {}\n" : " []\n", out);
    for (const mla_yaml_node *entry = node->child; entry; entry = entry->next) {
        fprintf(out, "%*s", indent, "");
        if (map) {
            put_word(out, entry);
            fputc(':', out);
            entry = entry->next;
        } else {
            fputc('-', out);
        }
        put_node(out, entry, indent + 2);
    }
}

char *mla_sweep_text(const mla_sweep *sweep) {
    mla_config *config = malloc(sizeof *config);
    const mla_config_cell all = {sweep->path, sweep->overrides, sweep->override_count, NULL, 0};
    char *text = NULL, *resolved = NULL;
    size_t length = 0;
    if (config && mla_config_load_cell(config, &all, false, NULL) == MLA_OK) resolved = mla_config_text(config);
    free(config);
    FILE *out = resolved ? open_memstream(&text, &length) : NULL;
    if (out) {
        fputs(resolved, out);
        fputs("sweep:", out);
        put_node(out, sweep->section, 2);
        text = end_text(out, &text);
    }
    free(resolved);
    return text;
}

/* ---- opening */

static mla_status read_section(mla_sweep *sweep, mla_error *error) {
    char *text = NULL;
    size_t bytes = 0;
    mla_status status = mla_file_read(&text, &bytes, sweep->path, MLA_CONFIG_FILE_BYTES, error);
    if (status == MLA_OK) status = mla_yaml_parse(&sweep->root, text, bytes, sweep->path, true, error);
    free(text);
    if (status != MLA_OK) return status;
    const mla_yaml_node *key = sweep->root ? sweep->root->child : NULL;
    while (key && strcmp(key->text, "sweep") != 0) key = key->next->next;
    if (!key)
        return mla_fail(error, MLA_INVALID,
                        "%s: there is no section `sweep`, which says what is varied; a single configuration is run by "
                        "'mirrorla train'",
                        sweep->path);
    sweep->section = key->next;
    if (sweep->section->kind != MLA_YAML_MAP || !sweep->section->child)
        return mla_sweep_fail(sweep, key->line, "", error,
                              "expected axes, each a key with a list of values, for example train.seed: [0, 1, 2]");
    return MLA_OK;
}

/* Everything outside of the section, before any axis is looked at. */
static mla_status check_rest(const mla_sweep *sweep, mla_error *error) {
    mla_config *config = malloc(sizeof *config);
    if (!config) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", sweep->path);
    const mla_config_cell all = {sweep->path, sweep->overrides, sweep->override_count, NULL, 0};
    const mla_status status = mla_config_load_cell(config, &all, false, error);
    free(config);
    return status;
}

static mla_status fill(mla_sweep *sweep, mla_error *error) {
    const mla_yaml_node *exclude = NULL, *base = NULL;
    mla_status status = check_rest(sweep, error);
    if (status == MLA_OK) status = read_section(sweep, error);
    if (status == MLA_OK) status = mla_sweep_read_axes(sweep, &exclude, &base, error);
    if (status == MLA_OK) status = mla_sweep_make_cells(sweep, exclude, error);
    return status == MLA_OK ? mla_sweep_apply_base(sweep, base, error) : status;
}

mla_status mla_sweep_open(mla_sweep **sweep, const char *path, const char *const *overrides, size_t override_count,
                          mla_error *error) {
    *sweep = NULL;
    mla_sweep *opened = calloc(1, sizeof *opened);
    if (!opened) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    opened->path = path;
    opened->overrides = overrides;
    opened->override_count = override_count;
    opened->seed_axis = -1;
    const mla_status status = fill(opened, error);
    if (status == MLA_OK)
        *sweep = opened;
    else
        mla_sweep_close(opened);
    return status;
}

void mla_sweep_close(mla_sweep *sweep) {
    if (!sweep) return;
    for (int a = 0; a < sweep->axis_count; a++) {
        for (int v = 0; v < sweep->axis[a].count; v++) {
            free(sweep->axis[a].value[v].text);
            free(sweep->axis[a].value[v].set);
        }
        free(sweep->axis[a].value);
    }
    free(sweep->title);
    free(sweep->row);
    free(sweep->cell);
    mla_yaml_free(sweep->root);
    free(sweep);
}
