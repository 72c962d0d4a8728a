/* A sweep: a config with a `sweep` section that says what is to be varied, turned into cells, each a whole config.
 *
 *     base: study.yaml
 *     sweep:
 *       title: Feature maps                              # of the table
 *       model.attention.kind: [relu, mirror]             # an axis: any key, with the values that it takes
 *       size:                                            # a list axis, of any name: named sets of keys that change together
 *         small: {}
 *         wide: {model.dims: [96], model.heads: [6]}
 *       train.seed: [0, 1, 2]                            # the seed axis: cells that differ in nothing else are one row
 *       exclude:                                         # cells left out: those that match every entry of a rule
 *         - {model.attention.kind: relu, size: wide}
 *       base: {model.attention.kind: relu}               # whom the others are compared with
 *
 * The cells are the grid of all axes.  A rule of `exclude` names some axes, each with a value or a list of values.  `base`
 * names values of some axes; a row is compared with the row that has them and is otherwise like it, so a base that leaves
 * an axis out compares within each value of that axis.  With a single axis besides the seeds `base: relu` is enough.
 *
 * Everything is checked on opening: names, types and ranges of all values, double and empty axes, rules that match
 * nothing, a base that does not exist, every cell's config as a whole, cells with the same config.  Errors (MLA_INVALID)
 * name file, line and key.
 */
#ifndef MLA_TRAIN_SWEEP_H
#define MLA_TRAIN_SWEEP_H

#include "train/config_schema.h"

enum {
    MLA_SWEEP_AXES_MAX = 16,
    MLA_SWEEP_CELLS_MAX = 4096,
    MLA_SWEEP_PART_BYTES = 64,  /* an axis' part of a cell's name */
    MLA_SWEEP_NAME_BYTES = 128, /* a row's or cell's name */
    MLA_SWEEP_SET_MAX = MLA_CONFIG_KEYS_MAX
};

typedef struct mla_sweep_value {
    char *text;                      /* for people: "mirror", "[64, 128]", "0.001", a variant's name */
    char part[MLA_SWEEP_PART_BYTES]; /* of the names: "mirror", "dims64_128", "lr0.001" */
    int line;
    mla_config_assignment *set; /* what it changes */
    size_t set_count;
} mla_sweep_value;

typedef struct mla_sweep_axis {
    const char *name;          /* the dotted key, or that of a list axis */
    const mla_config_key *key; /* NULL: a list axis */
    int line;
    mla_sweep_value *value;
    int count;
} mla_sweep_axis;

typedef struct mla_sweep_row {
    char name[MLA_SWEEP_NAME_BYTES];
    int choice[MLA_SWEEP_AXES_MAX]; /* index of the value, by axis; that of the seed axis means nothing */
    int first, count;               /* its cells stand side by side */
    int base;                       /* the row it is compared with; -1 = none, its own index for a base */
} mla_sweep_row;

typedef struct mla_sweep_cell {
    char name[MLA_SWEEP_NAME_BYTES];
    int choice[MLA_SWEEP_AXES_MAX];
    int row;
    mla_config config;
} mla_sweep_cell;

typedef struct mla_sweep {
    const char *path; /* the caller's */
    const char *const *overrides;
    size_t override_count;
    char *title;                             /* NULL: none */
    mla_yaml_node *root;                     /* of the file: axes point into it */
    const mla_yaml_node *section;            /* its mapping `sweep` */
    mla_sweep_axis axis[MLA_SWEEP_AXES_MAX]; /* in the order of the file, but the seed axis last */
    int axis_count;
    int seed_axis; /* -1: none */
    mla_sweep_row *row;
    int row_count;
    mla_sweep_cell *cell;
    int cell_count;
} mla_sweep;

/* Reads and checks the file; overrides ("key=value") apply to all cells and must not touch an axis.  `path` and `overrides`
 * stay the caller's and are used until mla_sweep_close.  On failure nothing needs to be closed. */
MLA_MUST_CHECK mla_status mla_sweep_open(mla_sweep **sweep, const char *path, const char *const *overrides,
                                         size_t override_count, mla_error *error);
void mla_sweep_close(mla_sweep *sweep); /* NULL is allowed */

/* The same sweep as one file without bases and overrides; the caller frees it, NULL when out of memory. */
char *mla_sweep_text(const mla_sweep *sweep);

/* ---- between the files of the sweep ---- */

/* Checks type and range of a key's value (key NULL: a variant's name) and gives it as text: numbers and switches in their
 * one form, lists in brackets.  The caller frees. */
MLA_MUST_CHECK mla_status mla_sweep_value_text(char **out, const mla_sweep *sweep, const mla_config_key *key,
                                               const mla_yaml_node *node, mla_error *error);

/* Fills error: "FILE:LINE: sweep: NAME: sentence". */
mla_status mla_sweep_fail(const mla_sweep *sweep, int line, const char *name, mla_error *error, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Reads the axes of the section; leaves the nodes of `exclude` and `base` in *exclude and *base (NULL: not there). */
MLA_MUST_CHECK mla_status mla_sweep_read_axes(mla_sweep *sweep, const mla_yaml_node **exclude, const mla_yaml_node **base,
                                              mla_error *error);
/* The grid without what `exclude` leaves out, names, configs. */
MLA_MUST_CHECK mla_status mla_sweep_make_cells(mla_sweep *sweep, const mla_yaml_node *exclude, mla_error *error);
/* Sets the rows' bases. */
MLA_MUST_CHECK mla_status mla_sweep_apply_base(mla_sweep *sweep, const mla_yaml_node *base, mla_error *error);

/* Finds an axis by the name in a rule and the index of the value that is written there. */
MLA_MUST_CHECK mla_status mla_sweep_find_axis(const mla_sweep *sweep, const mla_yaml_node *name, const char *rule, int *axis,
                                              mla_error *error);
MLA_MUST_CHECK mla_status mla_sweep_find_value(const mla_sweep *sweep, int axis, const mla_yaml_node *node, const char *rule,
                                               int *value, mla_error *error);

#endif
