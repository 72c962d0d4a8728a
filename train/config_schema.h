/* The schema of a config, and the steps between its YAML and the struct; private to train/config*.c and train/sweep*.c.
 *
 *     config_schema.c   the table of keys, defaults' texts, look-up, names in messages
 *     config_value.c    one value, typed by its key, into the struct
 *     config_yaml.c     text to a small tree of nodes, with the limits on what is accepted
 *     config_check.c    relations between values
 *     config_print.c    resolved text and reference
 *     config.c          files, bases, overrides
 *     sweep.c           the `sweep` section of a file, for `mirrorla ablate`
 */
#ifndef MLA_TRAIN_CONFIG_SCHEMA_H
#define MLA_TRAIN_CONFIG_SCHEMA_H

#include "train/config.h"
#include "train/text.h"

enum {
    MLA_CONFIG_KEYS_MAX = 192,
    MLA_CONFIG_LIST_MAX = MLA_MAX_STAGES, /* entries of the longest list */
    MLA_CONFIG_NAME_BYTES = 96,           /* dotted name */
    MLA_CONFIG_SHOW_BYTES = 96,           /* excerpt of a value in a message */
    MLA_CONFIG_ALLOWED_BYTES = 192,
    MLA_CONFIG_FILE_BYTES = 1 << 20
};

typedef enum mla_key_type {
    MLA_KEY_BOOL,
    MLA_KEY_INT,
    MLA_KEY_U64,
    MLA_KEY_DOUBLE,
    MLA_KEY_ENUM,
    MLA_KEY_TEXT,   /* char[MLA_PATH_BYTES] */
    MLA_KEY_ENUMS,  /* one name for all stages, or a list of one a stage */
    MLA_KEY_INTS,   /* one int a stage */
    MLA_KEY_DOUBLES /* exactly `most` */
} mla_key_type;

typedef struct mla_config_key {
    const char *name;     /* dotted */
    const char *fallback; /* the default, as it would stand in a file */
    const char *meaning;
    mla_key_type type;
    size_t offset; /* into mla_config */
    double low, high;
    bool low_open, high_open; /* the bound itself is not allowed */
    bool automatic;           /* `auto` is allowed */
    bool null_is_zero;        /* null, None and ~ stand for 0 */
    size_t auto_offset;       /* lists with `auto`: the bool that says so */
    int most;                 /* entries of a list */
    const char *const *names; /* of enums, ended by NULL */
} mla_config_key;

typedef struct mla_config_section {
    const char *name, *meaning;
} mla_config_section;

/* In the order of printing: a section's own keys come before those of its subsections. */
extern const mla_config_key mla_config_keys[];
extern const size_t mla_config_key_count;
extern const mla_config_section mla_config_sections[];
extern const size_t mla_config_section_count;

/* NULL when there is none. */
const mla_config_key *mla_config_key_find(const char *name);
const mla_config_section *mla_config_section_find(const char *name);

/* Length of the section's part of a dotted name: 5 for "optim.lr", 0 at the top. */
size_t mla_config_section_length(const char *name);

/* Fills `error` for a name that is neither key nor section: says what it may have been meant to be. */
mla_status mla_config_unknown(const char *name, mla_error *error);

/* The entry of `names` nearest to `text`, NULL if none is near. */
const char *mla_config_nearest(const char *text, const char *const *names);

/* "a number from 0 to 1", "one of vit, pvt", ... */
void mla_config_allowed(const mla_config_key *key, char out[MLA_CONFIG_ALLOWED_BYTES]);

/* A key's value as it stands in the resolved text. */
void mla_config_put_value(FILE *out, const mla_config *config, const mla_config_key *key);

/* ---- values ---- */

typedef struct mla_config_item {
    const char *text; /* `length` bytes, not ended by NUL */
    size_t length;
    bool plain;  /* not quoted */
    bool scalar; /* else a list or mapping stands here */
} mla_config_item;

typedef struct mla_config_value {
    bool list, map;
    int count; /* entries written; only the first MLA_CONFIG_LIST_MAX are in `item` */
    mla_config_item item[MLA_CONFIG_LIST_MAX];
} mla_config_value;

/* Writes one value; *count receives the entries of a list.  The sentence of an error does not name the key. */
MLA_MUST_CHECK mla_status mla_config_set(mla_config *config, const mla_config_key *key, const mla_config_value *value,
                                         int *count, mla_error *error);

/* null, Null, NULL, None or ~, unquoted. */
bool mla_config_is_null(const mla_config_item *item);

/* Excerpt of a text for a message, cut between characters. */
void mla_config_show(const char *text, size_t length, char out[MLA_CONFIG_SHOW_BYTES]);

/* ---- YAML ---- */

typedef enum mla_yaml_kind { MLA_YAML_SCALAR, MLA_YAML_LIST, MLA_YAML_MAP } mla_yaml_kind;

typedef struct mla_yaml_node {
    mla_yaml_kind kind;
    int line;
    bool plain;
    char *text; /* scalars: ended by NUL, which `length` does not count */
    size_t length;
    struct mla_yaml_node *child; /* entries of a list; of a mapping key, value, key, value, ... */
    struct mla_yaml_node *next;
} mla_yaml_node;

/* Parses one document; *root is NULL for an empty one.  `origin` names the text in messages; with `lines` its
 * line and column follow. */
MLA_MUST_CHECK mla_status mla_yaml_parse(mla_yaml_node **root, const char *text, size_t length, const char *origin,
                                         bool lines, mla_error *error);
void mla_yaml_free(mla_yaml_node *node);

/* ---- cells of a sweep ---- */

typedef struct mla_config_assignment {
    const mla_config_key *key;
    const mla_yaml_node *node; /* its value */
} mla_config_assignment;

/* One value alone, in a config of defaults: type and range.  `origin` is the file that its line is of. */
MLA_MUST_CHECK mla_status mla_config_try(mla_config *config, const mla_config_assignment *value, const char *origin,
                                         mla_error *error);

typedef struct mla_config_cell {
    const char *path; /* a file that may have a `sweep` section, which is passed over */
    const char *const *overrides;
    size_t override_count;
    const mla_config_assignment *values; /* come last; an error names their lines in the file */
    size_t value_count;
} mla_config_cell;

/* Like mla_config_load; without `check` the relations between values may be broken. */
MLA_MUST_CHECK mla_status mla_config_load_cell(mla_config *config, const mla_config_cell *cell, bool check,
                                               mla_error *error);

/* ---- relations ---- */

/* `counts` holds the entries of each list by the key's place in the table.  On failure *key is the one to name. */
MLA_MUST_CHECK mla_status mla_config_check(const mla_config *config, const int counts[MLA_CONFIG_KEYS_MAX],
                                           const mla_config_key **key, mla_error *error);

/* All defaults, with the lengths of the lists. */
void mla_config_defaults_counted(mla_config *config, int counts[MLA_CONFIG_KEYS_MAX]);

#endif
