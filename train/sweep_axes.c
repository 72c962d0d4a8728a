/* The axes of a sweep: keys with values, and lists of variants. */
#include "train/sweep.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {"title", "exclude", "base", NULL};

enum { PART_SHOWN = 40 }; /* characters of a value in a name */

/* ---- parts of names */

static uint32_t text_hash(const char *text) { /* FNV-1a */
    uint32_t hash = 2166136261u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

/* What a file name can't hold becomes _, and brackets and blanks of a list go; a name that lost something else by that, or
 * its end, gets a hash of the text, so that names stay different whatever values are added later. */
static void make_part(char out[MLA_SWEEP_PART_BYTES], const char *prefix, const char *text) {
    char safe[PART_SHOWN + 1];
    size_t used = 0;
    bool lost = false;
    const char *p = text;
    for (; *p && used < PART_SHOWN; p++) {
        if (*p == '[' || *p == ']' || *p == ' ') continue;
        const bool fine = isalnum((unsigned char)*p) || strchr("._+-", *p);
        lost |= !fine && *p != ',';
        safe[used++] = fine ? *p : '_';
    }
    safe[used] = 0;
    lost |= *p != 0 && strcmp(p, "]") != 0;
    snprintf(out, MLA_SWEEP_PART_BYTES, "%.16s%s", prefix, safe);
    const size_t length = strlen(out);
    if (lost) snprintf(out + length, MLA_SWEEP_PART_BYTES - length, "-%06x", text_hash(text) & 0xffffffu);
    if (out[0] == '.' || out[0] == '-') out[0] = '_';
}

/* Names that tell themselves stand alone (mirror, cosine); numbers and switches follow the last word of their key. */
static void name_value(mla_sweep_value *value, const mla_config_key *key) {
    char prefix[MLA_CONFIG_NAME_BYTES];
    const char *leaf = key ? strrchr(key->name, '.') + 1 : "";
    if (!key || key->names)
        prefix[0] = 0;
    else if (strcmp(key->name, "train.seed") == 0)
        snprintf(prefix, sizeof prefix, "s");
    else
        snprintf(prefix, sizeof prefix, "%s%s", leaf, key->type == MLA_KEY_BOOL || key->type == MLA_KEY_TEXT ? "_" : "");
    make_part(value->part, prefix, value->text);
}

/* ---- one axis */

static mla_status no_memory(const mla_sweep *sweep, mla_error *error) {
    return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", sweep->path);
}

static mla_status new_axis(mla_sweep *sweep, const mla_yaml_node *name, const mla_config_key *key, mla_sweep_axis **out,
                           mla_error *error) {
    if (sweep->axis_count == MLA_SWEEP_AXES_MAX)
        return mla_sweep_fail(sweep, name->line, name->text, error, "more than %d axes", MLA_SWEEP_AXES_MAX);
    int count = 0;
    for (const mla_yaml_node *n = name->next->child; n; n = name->next->kind == MLA_YAML_MAP ? n->next->next : n->next)
        count++;
    mla_sweep_axis *axis = &sweep->axis[sweep->axis_count];
    *axis = (mla_sweep_axis){.name = name->text, .key = key, .line = name->line};
    axis->value = calloc((size_t)count, sizeof *axis->value);
    if (!axis->value) return no_memory(sweep, error);
    sweep->axis_count++;
    *out = axis;
    return MLA_OK;
}

/* Adds a value to the axis; its set has room for `set_most` assignments. */
static mla_status add_value(const mla_sweep *sweep, mla_sweep_axis *axis, const mla_yaml_node *node, size_t set_most,
                            mla_sweep_value **out, mla_error *error) {
    mla_sweep_value *value = &axis->value[axis->count];
    mla_status status = mla_sweep_value_text(&value->text, sweep, axis->key, node, error);
    if (status != MLA_OK) return status;
    axis->count++;
    value->line = node->line;
    for (int v = 0; v + 1 < axis->count; v++)
        if (strcmp(axis->value[v].text, value->text) == 0)
            return mla_sweep_fail(sweep, node->line, axis->name, error, "the value %s is there twice", value->text);
    value->set = calloc(set_most + 1, sizeof *value->set);
    if (!value->set) return no_memory(sweep, error);
    name_value(value, axis->key);
    *out = value;
    return MLA_OK;
}

static mla_status read_key_axis(mla_sweep *sweep, const mla_yaml_node *name, const mla_config_key *key, mla_error *error) {
    const mla_yaml_node *list = name->next;
    if (list->kind != MLA_YAML_LIST)
        return mla_sweep_fail(sweep, name->line, name->text, error,
                              "expected a list of the values that it takes, for example %s: [%s]", name->text,
                              list->kind == MLA_YAML_SCALAR && list->length ? list->text : key->fallback);
    if (!list->child)
        return mla_sweep_fail(sweep, name->line, name->text, error, "the axis is empty, expected at least one value");
    mla_sweep_axis *axis = NULL;
    mla_status status = new_axis(sweep, name, key, &axis, error);
    if (status == MLA_OK && strcmp(key->name, "train.seed") == 0) sweep->seed_axis = sweep->axis_count - 1;
    for (const mla_yaml_node *node = list->child; node && status == MLA_OK; node = node->next) {
        mla_sweep_value *value = NULL;
        status = add_value(sweep, axis, node, 1, &value, error);
        if (status != MLA_OK) break;
        value->set[value->set_count++] = (mla_config_assignment){key, node};
    }
    return status;
}

/* ---- variants */

static mla_status unknown_key(const mla_sweep *sweep, int line, const char *name, mla_error *error) {
    mla_error why = {0};
    if (strlen(name) >= MLA_CONFIG_NAME_BYTES)
        mla_fail(&why, MLA_INVALID, "unknown key, longer than any known one");
    else
        mla_config_unknown(name, &why);
    return mla_sweep_fail(sweep, line, name, error, "%s", why.text);
}

static mla_status read_variant_key(const mla_sweep *sweep, const mla_yaml_node *name, mla_sweep_value *value,
                                   mla_error *error) {
    const mla_config_key *key = mla_config_key_find(name->text);
    if (!key && mla_config_section_find(name->text))
        return mla_sweep_fail(sweep, name->line, name->text, error,
                              "this is a section; a variant names keys with dots, for example %s.KEY", name->text);
    if (!key) return unknown_key(sweep, name->line, name->text, error);
    if (strcmp(key->name, "train.seed") == 0)
        return mla_sweep_fail(sweep, name->line, name->text, error, "seeds are an axis of their own: train.seed: [0, 1, 2]");
    for (size_t i = 0; i < value->set_count; i++)
        if (value->set[i].key == key)
            return mla_sweep_fail(sweep, name->line, name->text, error, "given twice in variant %s", value->text);
    char *text = NULL;
    const mla_status status = mla_sweep_value_text(&text, sweep, key, name->next, error);
    free(text);
    if (status == MLA_OK) value->set[value->set_count++] = (mla_config_assignment){key, name->next};
    return status;
}

/* Named sets of keys: what tells a list axis from a misspelled word or key. */
static bool is_variants(const mla_yaml_node *name) {
    const mla_yaml_node *map = name->next;
    if (map->kind != MLA_YAML_MAP || !map->child || strchr(name->text, '.')) return false;
    for (const mla_yaml_node *variant = map->child; variant; variant = variant->next->next)
        if (variant->next->kind == MLA_YAML_MAP) return true;
    return false;
}

static mla_status read_variants(mla_sweep *sweep, const mla_yaml_node *name, mla_error *error) {
    const mla_yaml_node *map = name->next;
    mla_sweep_axis *axis = NULL;
    mla_status status = new_axis(sweep, name, NULL, &axis, error);
    for (const mla_yaml_node *variant = map->child; variant && status == MLA_OK; variant = variant->next->next) {
        const mla_yaml_node *keys = variant->next;
        mla_sweep_value *value = NULL;
        status = add_value(sweep, axis, variant, MLA_SWEEP_SET_MAX, &value, error);
        if (status == MLA_OK && keys->kind != MLA_YAML_MAP)
            status = mla_sweep_fail(sweep, variant->line, variant->text, error,
                                    "expected the keys that this variant sets, for example {optim.lr: 1e-3}, or {}");
        for (const mla_yaml_node *key = keys->child; key && status == MLA_OK; key = key->next->next)
            status = read_variant_key(sweep, key, value, error);
    }
    return status;
}

/* ---- the section */

static mla_status read_title(mla_sweep *sweep, const mla_yaml_node *name, mla_error *error) {
    const mla_yaml_node *text = name->next;
    if (text->kind != MLA_YAML_SCALAR || text->length == 0 || strlen(text->text) != text->length)
        return mla_sweep_fail(sweep, name->line, name->text, error, "expected a text");
    sweep->title = strdup(text->text);
    return sweep->title ? MLA_OK : no_memory(sweep, error);
}

static mla_status read_entry(mla_sweep *sweep, const mla_yaml_node *name, const mla_yaml_node **exclude,
                             const mla_yaml_node **base, mla_error *error) {
    if (strcmp(name->text, "exclude") == 0) return *exclude = name, MLA_OK;
    if (strcmp(name->text, "base") == 0) return *base = name, MLA_OK;
    if (strcmp(name->text, "title") == 0) return read_title(sweep, name, error);
    const mla_config_key *key = mla_config_key_find(name->text);
    if (key) return read_key_axis(sweep, name, key, error);
    if (mla_config_section_find(name->text))
        return mla_sweep_fail(sweep, name->line, name->text, error,
                              "this is a section; an axis names its key with dots, for example %s.KEY: [...]", name->text);
    if (is_variants(name)) return read_variants(sweep, name, error);
    const char *near = mla_config_nearest(name->text, words);
    if (near) return mla_sweep_fail(sweep, name->line, name->text, error, "unknown; did you mean %s?", near);
    return unknown_key(sweep, name->line, name->text, error);
}

/* The seed axis turns fastest. */
static void move_seeds_last(mla_sweep *sweep) {
    if (sweep->seed_axis < 0) return;
    const mla_sweep_axis seeds = sweep->axis[sweep->seed_axis];
    const int after = sweep->axis_count - 1 - sweep->seed_axis;
    memmove(&sweep->axis[sweep->seed_axis], &sweep->axis[sweep->seed_axis + 1], (size_t)after * sizeof seeds);
    sweep->seed_axis = sweep->axis_count - 1;
    sweep->axis[sweep->seed_axis] = seeds;
}

/* The axis other than `own` that gives the key values too; NULL if there is none. */
static const mla_sweep_axis *other_source(const mla_sweep *sweep, int own, const mla_config_key *key) {
    for (int a = 0; a < sweep->axis_count; a++)
        for (int v = 0; a != own && v < sweep->axis[a].count; v++)
            for (size_t i = 0; i < sweep->axis[a].value[v].set_count; i++)
                if (sweep->axis[a].value[v].set[i].key == key) return &sweep->axis[a];
    return NULL;
}

static const char *override_of(const mla_sweep *sweep, const mla_config_key *key) {
    const size_t length = strlen(key->name);
    for (size_t i = 0; i < sweep->override_count; i++)
        if (strncmp(sweep->overrides[i], key->name, length) == 0 && sweep->overrides[i][length] == '=')
            return sweep->overrides[i];
    return NULL;
}

static mla_status check_source(const mla_sweep *sweep, int axis, const mla_config_assignment *set, mla_error *error) {
    const mla_sweep_axis *other = other_source(sweep, axis, set->key);
    const char *name = set->key->name, *override = override_of(sweep, set->key);
    if (other)
        return mla_sweep_fail(sweep, set->node->line, name, error, "two axes give it values, %s and %s",
                              sweep->axis[axis].name, other->name);
    if (override)
        return mla_sweep_fail(sweep, set->node->line, name, error,
                              "the sweep gives this key its values, --set %s would have no effect", override);
    return MLA_OK;
}

/* A key gets its value from one place. */
static mla_status check_sources(const mla_sweep *sweep, mla_error *error) {
    mla_status status = MLA_OK;
    for (int a = 0; a < sweep->axis_count; a++)
        for (int v = 0; v < sweep->axis[a].count; v++)
            for (size_t i = 0; i < sweep->axis[a].value[v].set_count && status == MLA_OK; i++)
                status = check_source(sweep, a, &sweep->axis[a].value[v].set[i], error);
    return status;
}

mla_status mla_sweep_read_axes(mla_sweep *sweep, const mla_yaml_node **exclude, const mla_yaml_node **base,
                               mla_error *error) {
    for (const mla_yaml_node *name = sweep->section->child; name; name = name->next->next) {
        for (const mla_yaml_node *earlier = sweep->section->child; earlier != name; earlier = earlier->next->next)
            if (strcmp(earlier->text, name->text) == 0)
                return mla_sweep_fail(sweep, name->line, name->text, error, "given twice, in line %d and in line %d",
                                      earlier->line, name->line);
        const mla_status status = read_entry(sweep, name, exclude, base, error);
        if (status != MLA_OK) return status;
    }
    if (!sweep->axis_count)
        return mla_sweep_fail(sweep, sweep->section->line, "", error,
                              "no axis: expected a key with a list of values, for example train.seed: [0, 1, 2]");
    move_seeds_last(sweep);
    return check_sources(sweep, error);
}
