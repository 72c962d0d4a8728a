/* The resolved config as YAML, and the reference of keys. */
#include "train/config_schema.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Always quoted, so that a folder called `null` or `a: b` stays a folder; what libyaml would not read back as
 * itself is escaped. */
static void put_text(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        unsigned code = 0;
        if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) /* U+0080 to U+009F */
            code = p[1], p += 1;
        else if (p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9)) /* line, paragraph separator */
            code = 0x2000u | (p[2] & 0x3fu), p += 2;
        else if (p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf) /* byte order mark */
            code = 0xfeff, p += 2;
        else if (p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe) /* U+FFFE, U+FFFF */
            code = 0xffc0u | (p[2] & 0x3fu), p += 2;
        else if (*p < 0x20 || *p == 0x7f)
            code = *p;
        if (code)
            fprintf(out, "\\u%04X", code);
        else
            fprintf(out, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    }
    fputc('"', out);
}

static void put_double(FILE *out, double value) {
    char text[MLA_NUMBER_BYTES];
    mla_number_shortest(text, value);
    fputs(text, out);
}

/* One name where all stages have the same. */
static void put_enums(FILE *out, const mla_config *config, const mla_config_key *key) {
    const int *value = (const int *)(const void *)((const char *)config + key->offset), stages = config->model.stages;
    bool same = true;
    for (int i = 1; i < stages; i++) same = same && value[i] == value[0];
    if (!same) fputc('[', out);
    for (int i = 0; i < (same ? 1 : stages); i++) fprintf(out, "%s%s", i ? ", " : "", key->names[value[i]]);
    if (!same) fputc(']', out);
}

static void put_list(FILE *out, const mla_config *config, const mla_config_key *key) {
    const char *field = (const char *)config + key->offset;
    if (key->automatic && *((const bool *)config + key->auto_offset)) {
        fputs("auto", out);
        return;
    }
    int count = key->type == MLA_KEY_INTS ? config->model.stages : key->most;
    for (int i = 0; i < count; i++) {
        fputs(i ? ", " : "[", out);
        if (key->type == MLA_KEY_INTS)
            fprintf(out, "%d", ((const int *)(const void *)field)[i]);
        else
            put_double(out, ((const double *)(const void *)field)[i]);
    }
    fputc(']', out);
}

void mla_config_put_value(FILE *out, const mla_config *config, const mla_config_key *key) {
    const void *field = (const char *)config + key->offset;
    switch (key->type) {
    case MLA_KEY_BOOL: fputs(*(const bool *)field ? "true" : "false", out); break;
    case MLA_KEY_INT:
        if (key->automatic && *(const int *)field == 0)
            fputs("auto", out);
        else
            fprintf(out, "%d", *(const int *)field);
        break;
    case MLA_KEY_U64: fprintf(out, "%" PRIu64, *(const uint64_t *)field); break;
    case MLA_KEY_DOUBLE: put_double(out, *(const double *)field); break;
    case MLA_KEY_ENUM: fputs(key->names[*(const int *)field], out); break;
    case MLA_KEY_ENUMS: put_enums(out, config, key); break;
    case MLA_KEY_TEXT:
        if (key->automatic && strcmp(field, "auto") == 0)
            fputs("auto", out);
        else
            put_text(out, field);
        break;
    case MLA_KEY_INTS:
    case MLA_KEY_DOUBLES: put_list(out, config, key); break;
    }
}

/* Prints the lines of the sections that `name` is in and `before` is not; returns the depth of `name`. */
static int put_sections(FILE *out, const char *before, const char *name) {
    int depth = 0;
    bool same = true;
    for (const char *part = name, *dot; (dot = strchr(part, '.')); part = dot + 1, depth++) {
        same = same && strncmp(before, name, (size_t)(dot + 1 - name)) == 0;
        if (!same) fprintf(out, "%*s%.*s:\n", 2 * depth, "", (int)(dot - part), part);
    }
    return depth;
}

char *mla_config_text(const mla_config *config) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return NULL;
    const char *before = "";
    for (size_t i = 0; i < mla_config_key_count; i++) {
        const mla_config_key *key = &mla_config_keys[i];
        int depth = put_sections(out, before, key->name);
        fprintf(out, "%*s%s: ", 2 * depth, "", strrchr(key->name, '.') + 1);
        mla_config_put_value(out, config, key);
        fputc('\n', out);
        before = key->name;
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* Is `name` the section itself or inside it? */
static bool inside(const char *name, const char *section) {
    size_t length = strlen(section);
    return strncmp(name, section, length) == 0 && (name[length] == '.' || name[length] == '\0');
}

static void print_section(FILE *out, const mla_config_section *section) {
    fprintf(out, "%s: %s\n", section->name, section->meaning);
    for (size_t i = 0; i < mla_config_key_count; i++) {
        const mla_config_key *key = &mla_config_keys[i];
        size_t length = mla_config_section_length(key->name);
        if (length != strlen(section->name) || memcmp(key->name, section->name, length) != 0) continue;
        char allowed[MLA_CONFIG_ALLOWED_BYTES];
        mla_config_allowed(key, allowed);
        fprintf(out, "  %-38s  %-19s %s\n  %-38s  %-19s (%s)\n", key->name, key->fallback, key->meaning, "", "", allowed);
    }
}

mla_status mla_config_reference(FILE *out, const char *key, mla_error *error) {
    const mla_config_key *single = key ? mla_config_key_find(key) : NULL;
    if (single) {
        char allowed[MLA_CONFIG_ALLOWED_BYTES];
        mla_config_allowed(single, allowed);
        fprintf(out, "%s: %s\n  allowed: %s\n  default: %s\n", single->name, single->meaning, allowed, single->fallback);
    } else if (key && !mla_config_section_find(key)) {
        mla_status status = mla_config_unknown(key, error);
        mla_fail_context(error, "%s: ", key);
        return status;
    } else {
        bool first = true;
        if (!key)
            fprintf(out, "base: FILE or [FILE, ...]\n  Files, relative to this one, whose values this one starts from; "
                         "later ones win.\n");
        for (size_t i = 0; i < mla_config_section_count; i++) {
            if (key && !inside(mla_config_sections[i].name, key)) continue;
            if (!first || !key) fputc('\n', out);
            print_section(out, &mla_config_sections[i]);
            first = false;
        }
    }
    if (ferror(out)) return mla_fail(error, MLA_IO, "the reference could not be written");
    return MLA_OK;
}
