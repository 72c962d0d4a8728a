/* YAML text to a tree of scalars, lists and mappings.
 *
 * A config needs no more of YAML than that.  Anchors, aliases, merge keys, tags and further documents are refused:
 * they make a value come from somewhere else than the line that names it, and aliases can make a small file huge. */
#include "train/config_schema.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "train/text.h"

enum { DEEPEST = 16 }; /* nested lists and mappings; the schema needs 4 */

typedef struct reader {
    yaml_parser_t parser;
    const char *text, *origin;
    size_t length;
    bool lines;
    mla_error *error;
} reader;

void mla_yaml_free(mla_yaml_node *node) {
    while (node) { /* recursion only downwards: at most DEEPEST */
        mla_yaml_node *next = node->next;
        mla_yaml_free(node->child);
        free(node->text);
        free(node);
        node = next;
    }
}

/* Puts "origin:line:column: " in front of the sentence; counted from 1, column 0 = none. */
static mla_status at(const reader *r, size_t line, size_t column, mla_status status) {
    if (r->lines && column)
        mla_fail_context(r->error, "%s:%zu:%zu: ", r->origin, line, column);
    else if (r->lines)
        mla_fail_context(r->error, "%s:%zu: ", r->origin, line);
    else
        mla_fail_context(r->error, "%s: ", r->origin);
    return status;
}

static mla_status at_mark(const reader *r, yaml_mark_t mark, mla_status status) {
    return at(r, mark.line + 1, mark.column + 1, status);
}

static size_t line_of(const reader *r, size_t offset) {
    size_t line = 1;
    for (size_t i = 0; i < offset && i < r->length; i++) line += r->text[i] == '\n';
    return line;
}

static mla_status check_bytes(const reader *r) {
    if (r->length > MLA_CONFIG_FILE_BYTES)
        return mla_fail(r->error, MLA_INVALID, "%s: larger than 1 MiB, which no config is", r->origin);
    for (size_t i = 0; i < r->length;) {
        unsigned byte = (unsigned char)r->text[i];
        size_t n = mla_utf8_length(r->text + i, r->length - i);
        if (byte == 0)
            mla_fail(r->error, MLA_INVALID, "a NUL byte; configs are UTF-8 text");
        else if (n == 0)
            mla_fail(r->error, MLA_INVALID, "byte 0x%02x is not UTF-8; configs are UTF-8 text", byte);
        if (byte == 0 || n == 0) return at(r, line_of(r, i), 0, MLA_INVALID);
        i += n;
    }
    return MLA_OK;
}

/* libyaml calls a tab "a character that cannot start any token"; look for it. */
static bool tab_indents(const reader *r, size_t line) {
    const char *p = r->text, *end = p + r->length;
    for (; line > 0 && p; line--) {
        p = memchr(p, '\n', (size_t)(end - p));
        p = p ? p + 1 : NULL;
    }
    while (p && p < end && *p == ' ') p++;
    return p && p < end && *p == '\t';
}

static mla_status syntax_error(const reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return mla_fail(r->error, MLA_NO_MEMORY, "%s: out of memory", r->origin);
    const char *problem = p->problem ? p->problem : "cannot be read";
    if (p->error == YAML_READER_ERROR) {
        mla_fail(r->error, MLA_INVALID, "not valid YAML: %s", problem);
        return at(r, line_of(r, p->problem_offset), 0, MLA_INVALID);
    }
    bool tab = tab_indents(r, p->problem_mark.line);
    mla_fail(r->error, MLA_INVALID, "not valid YAML: %s%s%s%s%s", problem, p->context ? " (" : "",
             p->context ? p->context : "", p->context ? ")" : "", tab ? "; indent with spaces, not tabs" : "");
    return at_mark(r, p->problem_mark, MLA_INVALID);
}

static mla_status next_event(reader *r, yaml_event_t *event) {
    return yaml_parser_parse(&r->parser, event) ? MLA_OK : syntax_error(r);
}

/* What a config does not use, with the word for it; NULL if the event is fine. */
static const char *unwanted(const yaml_event_t *event) {
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_ALIAS_EVENT) return "an alias (*name)";
    if (event->type == YAML_SCALAR_EVENT)
        anchor = event->data.scalar.anchor, tag = event->data.scalar.tag;
    else if (event->type == YAML_SEQUENCE_START_EVENT)
        anchor = event->data.sequence_start.anchor, tag = event->data.sequence_start.tag;
    else if (event->type == YAML_MAPPING_START_EVENT)
        anchor = event->data.mapping_start.anchor, tag = event->data.mapping_start.tag;
    return anchor ? "an anchor (&name)" : tag ? "a tag (!name)" : NULL;
}

static mla_status parse_node(reader *r, const yaml_event_t *event, int depth, mla_yaml_node **out);

/* Entries up to the end event; of a mapping, keys and values in turn. */
static mla_status parse_entries(reader *r, mla_yaml_node *parent, int depth) {
    mla_yaml_node **tail = &parent->child;
    for (bool key = true;; key = !key) {
        yaml_event_t event;
        mla_status status = next_event(r, &event);
        if (status != MLA_OK) return status;
        if (event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return MLA_OK;
        }
        yaml_mark_t mark = event.start_mark;
        status = parse_node(r, &event, depth, tail);
        yaml_event_delete(&event);
        if (status != MLA_OK) return status;
        if (parent->kind == MLA_YAML_MAP && key) {
            if ((*tail)->kind != MLA_YAML_SCALAR)
                mla_fail(r->error, MLA_INVALID, "a key must be a word, found a list or mapping");
            else if ((*tail)->length == 0)
                mla_fail(r->error, MLA_INVALID, "a key is missing in front of the colon");
            else if (strlen((*tail)->text) != (*tail)->length)
                mla_fail(r->error, MLA_INVALID, "a key contains a NUL character");
            else if (strcmp((*tail)->text, "<<") == 0)
                mla_fail(r->error, MLA_INVALID, "merge keys (<<) are not used in configs; use base: FILE");
            else
                goto next;
            return at_mark(r, mark, MLA_INVALID);
        }
    next:
        tail = &(*tail)->next;
    }
}

static mla_status parse_node(reader *r, const yaml_event_t *event, int depth, mla_yaml_node **out) {
    const char *what = unwanted(event);
    if (what) {
        mla_fail(r->error, MLA_INVALID, "%s is not used in configs; write the value itself, or use base: FILE", what);
        return at_mark(r, event->start_mark, MLA_INVALID);
    }
    mla_yaml_node *node = calloc(1, sizeof *node);
    if (!node) return mla_fail(r->error, MLA_NO_MEMORY, "%s: out of memory", r->origin);
    *out = node;
    node->line = (int)event->start_mark.line + 1;
    if (event->type == YAML_SCALAR_EVENT) {
        node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        node->length = event->data.scalar.length;
        node->text = malloc(node->length + 1);
        if (!node->text) return mla_fail(r->error, MLA_NO_MEMORY, "%s: out of memory", r->origin);
        memcpy(node->text, event->data.scalar.value, node->length);
        node->text[node->length] = '\0';
        return MLA_OK;
    }
    node->kind = event->type == YAML_MAPPING_START_EVENT ? MLA_YAML_MAP : MLA_YAML_LIST;
    if (depth == DEEPEST) {
        mla_fail(r->error, MLA_INVALID, "nested deeper than %d levels", DEEPEST);
        return at_mark(r, event->start_mark, MLA_INVALID);
    }
    return parse_entries(r, node, depth + 1);
}

static mla_status parse_stream(reader *r, mla_yaml_node **root) {
    for (bool done = false, seen = false; !done;) {
        yaml_event_t event;
        mla_status status = next_event(r, &event);
        if (status != MLA_OK) return status;
        switch (event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT: break;
        case YAML_STREAM_END_EVENT: done = true; break;
        case YAML_DOCUMENT_START_EVENT:
            if (seen) {
                mla_fail(r->error, MLA_INVALID, "a second document (---); a config is one");
                status = at_mark(r, event.start_mark, MLA_INVALID);
            }
            seen = true;
            break;
        default: status = parse_node(r, &event, 0, root);
        }
        yaml_event_delete(&event);
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}

mla_status mla_yaml_parse(mla_yaml_node **root, const char *text, size_t length, const char *origin, bool lines,
                          mla_error *error) {
    mla_error local = {0}; /* so that a prefix can be put in front also when the caller wants no sentence */
    reader r = {.text = text, .origin = origin, .length = length, .lines = lines, .error = error ? error : &local};
    *root = NULL;
    mla_status status = check_bytes(&r);
    if (status != MLA_OK) return status;
    if (!yaml_parser_initialize(&r.parser)) return mla_fail(r.error, MLA_NO_MEMORY, "%s: out of memory", origin);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    status = parse_stream(&r, root);
    yaml_parser_delete(&r.parser);
    if (status == MLA_OK && *root && (*root)->kind == MLA_YAML_SCALAR && (*root)->plain && (*root)->length == 0) {
        mla_yaml_free(*root); /* "---" alone is as empty as an empty file */
        *root = NULL;
    }
    if (status != MLA_OK) {
        mla_yaml_free(*root);
        *root = NULL;
    }
    return status;
}
