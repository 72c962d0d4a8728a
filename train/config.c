/* Files, bases and overrides to a checked config.
 *
 * Bases are applied first, then the file, then the overrides: each value is written straight into the struct, and
 * the loader remembers who wrote it, so that a relation between two values can be blamed on a line. */
#include "train/config_schema.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILES_MAX = 64, /* read in all; bases that name two bases each would double at every step */
    BASES_DEEPEST = 16
};

typedef struct writer {
    const char *origin; /* file name, or the override's text */
    int line;           /* 0: an override */
} writer;

typedef struct loader {
    mla_config config;
    int counts[MLA_CONFIG_KEYS_MAX];
    writer writers[MLA_CONFIG_KEYS_MAX];
    const char *name; /* of the file or text as a whole, for defaults */
    bool follow;      /* bases */
    bool sweep;       /* the outermost file may have a `sweep` section, which sweep.c reads */
    char *files[FILES_MAX];
    int file_count;
    struct {
        const char *path;
        dev_t device;
        ino_t inode;
    } open[BASES_DEEPEST]; /* files being read, the outermost first */
    int depth;
    mla_error *error;
} loader;

/* Puts "FILE:LINE: NAME: " or "--set KEY=VALUE: " in front of the sentence. */
static mla_status context(const loader *l, writer from, const char *name, mla_status status) {
    char shown[MLA_CONFIG_SHOW_BYTES];
    mla_config_show(name, strlen(name), shown);
    if (from.line)
        mla_fail_context(l->error, "%s:%d: %s: ", from.origin, from.line, shown);
    else if (from.origin) {
        mla_config_show(from.origin, strlen(from.origin), shown);
        mla_fail_context(l->error, "--set %s: ", shown);
    } else
        mla_fail_context(l->error, "%s: %s: ", l->name, shown);
    return status;
}

static mla_config_item item_of(const mla_yaml_node *node) {
    return (mla_config_item){node->text, node->length, node->plain, node->kind == MLA_YAML_SCALAR};
}

static mla_config_value value_of(const mla_yaml_node *node) {
    mla_config_value value = {.list = node->kind == MLA_YAML_LIST, .map = node->kind == MLA_YAML_MAP, .count = 1};
    if (!value.list) {
        value.item[0] = item_of(node);
        return value;
    }
    value.count = 0;
    for (const mla_yaml_node *entry = node->child; entry; entry = entry->next) {
        if (value.count < MLA_CONFIG_LIST_MAX) value.item[value.count] = item_of(entry);
        value.count++;
    }
    return value;
}

static mla_status set_key(loader *l, const mla_config_key *key, const mla_yaml_node *node, writer from) {
    size_t index = (size_t)(key - mla_config_keys);
    mla_config_value value = value_of(node);
    mla_status status = mla_config_set(&l->config, key, &value, &l->counts[index], l->error);
    if (status != MLA_OK) return context(l, from, key->name, status);
    l->writers[index] = from;
    return MLA_OK;
}

static mla_status unknown(const loader *l, const char *name, writer from) {
    if (strlen(name) >= MLA_CONFIG_NAME_BYTES)
        mla_fail(l->error, MLA_INVALID, "unknown key, longer than any known one");
    else if (mla_config_key_find(name)) /* known, but written with dots */
        mla_fail(l->error, MLA_INVALID, "dotted keys are for --set; in a file the key stands inside its section");
    else
        mla_config_unknown(name, l->error);
    return context(l, from, name, MLA_INVALID);
}

static mla_status apply_section(loader *l, const mla_yaml_node *map, const char *section, const char *origin);

static mla_status apply_entry(loader *l, const mla_yaml_node *key, const char *section, const char *origin) {
    const mla_yaml_node *node = key->next;
    writer from = {origin, key->line};
    char name[MLA_CONFIG_NAME_BYTES];
    int n = snprintf(name, sizeof name, "%s%s%s", section, *section ? "." : "", key->text);
    if (n < 0 || (size_t)n >= sizeof name) return unknown(l, key->text, from);
    if (strcmp(name, "base") == 0) return MLA_OK; /* has been applied */
    if (strcmp(name, "sweep") == 0 && l->sweep && l->depth == 1) return MLA_OK;
    bool dotted = strchr(key->text, '.') != NULL;
    const mla_config_key *known = dotted ? NULL : mla_config_key_find(name);
    if (known) return set_key(l, known, node, from);
    if (dotted || !mla_config_section_find(name)) return unknown(l, name, from);
    if (node->kind == MLA_YAML_MAP) return apply_section(l, node, name, origin);
    if (node->kind == MLA_YAML_SCALAR && node->plain && node->length == 0)
        return MLA_OK; /* all its keys are commented out */
    char shown[MLA_CONFIG_SHOW_BYTES] = "a list";
    if (node->kind == MLA_YAML_SCALAR) mla_config_show(node->text, node->length, shown);
    mla_fail(l->error, MLA_INVALID, "this is a section, expected keys inside it, found %s", shown);
    return context(l, from, name, MLA_INVALID);
}

/* Every earlier key of the map is a known one when a key is looked at, so the search for doubles stays short. */
static mla_status apply_section(loader *l, const mla_yaml_node *map, const char *section, const char *origin) {
    for (const mla_yaml_node *key = map->child; key; key = key->next->next) {
        for (const mla_yaml_node *earlier = map->child; earlier != key; earlier = earlier->next->next)
            if (strcmp(earlier->text, key->text) == 0) {
                mla_fail(l->error, MLA_INVALID, "given twice, in line %d and in line %d", earlier->line, key->line);
                char name[MLA_CONFIG_NAME_BYTES];
                snprintf(name, sizeof name, "%s%s%s", section, *section ? "." : "", key->text);
                return context(l, (writer){origin, key->line}, name, MLA_INVALID);
            }
        mla_status status = apply_entry(l, key, section, origin);
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}

static mla_status apply_file(loader *l, const char *path, writer includer);

/* `target` as seen from the folder of the file `from`; the loader owns it. */
static const char *relative(loader *l, const char *from, const char *target) {
    const char *slash = strrchr(from, '/');
    int folder = slash && target[0] != '/' ? (int)(slash + 1 - from) : 0;
    size_t bytes = (size_t)folder + strlen(target) + 1;
    char *path = malloc(bytes);
    if (!path) return NULL;
    snprintf(path, bytes, "%.*s%s", folder, from, target);
    l->files[l->file_count++] = path;
    return path;
}

static mla_status apply_base(loader *l, const mla_yaml_node *node, writer from) {
    if (node->kind != MLA_YAML_SCALAR || node->length == 0 || strlen(node->text) != node->length) {
        mla_fail(l->error, MLA_INVALID, "expected a file name or a list of file names");
        return context(l, from, "base", MLA_INVALID);
    }
    if (l->file_count == FILES_MAX) {
        mla_fail(l->error, MLA_INVALID, "more than %d files in all", FILES_MAX);
        return context(l, from, "base", MLA_INVALID);
    }
    const char *path = relative(l, from.origin, node->text);
    if (!path) return mla_fail(l->error, MLA_NO_MEMORY, "%s: out of memory", l->name);
    return apply_file(l, path, from);
}

static mla_status apply_bases(loader *l, const mla_yaml_node *root, const char *origin) {
    for (const mla_yaml_node *key = root->child; key; key = key->next->next) {
        if (strcmp(key->text, "base") != 0) continue;
        const mla_yaml_node *value = key->next;
        writer from = {origin, key->line};
        mla_config_item item = item_of(value);
        if (!l->follow)
            mla_fail(l->error, MLA_INVALID, "a base is followed in files only; this text must be complete");
        else if (mla_config_is_null(&item) || value->kind == MLA_YAML_MAP || (value->kind == MLA_YAML_LIST && !value->child))
            mla_fail(l->error, MLA_INVALID, "expected a file name or a list of file names");
        else {
            mla_status status = MLA_OK;
            const mla_yaml_node *entry = value->kind == MLA_YAML_LIST ? value->child : value;
            for (; entry && status == MLA_OK; entry = value->kind == MLA_YAML_LIST ? entry->next : NULL)
                status = apply_base(l, entry, from);
            return status; /* a second `base` is met as a double key */
        }
        return context(l, from, "base", MLA_INVALID);
    }
    return MLA_OK;
}

static mla_status apply_text(loader *l, const char *text, size_t length, const char *origin) {
    mla_yaml_node *root;
    mla_status status = mla_yaml_parse(&root, text, length, origin, true, l->error);
    if (status != MLA_OK) return status;
    if (root && root->kind != MLA_YAML_MAP) {
        status = mla_fail(l->error, MLA_INVALID, "%s:%d: expected sections such as `optim:` with keys inside, found %s",
                          origin, root->line, root->kind == MLA_YAML_LIST ? "a list" : "a single value");
    } else if (root) {
        status = apply_bases(l, root, origin);
        if (status == MLA_OK) status = apply_section(l, root, "", origin);
    }
    mla_yaml_free(root);
    return status;
}

/* The wrong name in a config or on the command line is the user's input; other failures are the system's. */
static mla_status unreadable(loader *l, const char *path, writer includer, int number) {
    bool wrong_name = number == ENOENT || number == ENOTDIR || number == EISDIR || number == ENAMETOOLONG;
    mla_status status = wrong_name ? MLA_INVALID : MLA_IO;
    mla_fail(l->error, status, "cannot read %s: %s", path, strerror(number));
    return includer.origin ? context(l, includer, "base", status) : status;
}

/* The file's bytes, at most one more than a config may have; the caller frees. */
static mla_status read_all(loader *l, int file, const char *path, writer includer, char **text, size_t *length) {
    size_t room = MLA_CONFIG_FILE_BYTES + 1;
    *length = 0;
    *text = malloc(room);
    if (!*text) return mla_fail(l->error, MLA_NO_MEMORY, "%s: out of memory", path);
    while (*length < room) {
        ssize_t n = read(file, *text + *length, room - *length);
        if (n == 0) break;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return unreadable(l, path, includer, errno);
        *length += (size_t)n;
    }
    return MLA_OK;
}

/* Refuses a file that is being read already: a base that leads back to itself. */
static mla_status enter(loader *l, const char *path, writer includer, const struct stat *info) {
    for (int i = 0; i < l->depth; i++)
        if (l->open[i].device == info->st_dev && l->open[i].inode == info->st_ino) {
            mla_fail(l->error, MLA_INVALID, "%s", path);
            for (int j = l->depth; j-- > i;) mla_fail_context(l->error, "%s -> ", l->open[j].path);
            mla_fail_context(l->error, "the bases go round in a circle: ");
            return context(l, includer, "base", MLA_INVALID);
        }
    if (l->depth == BASES_DEEPEST) {
        mla_fail(l->error, MLA_INVALID, "more than %d bases behind each other", BASES_DEEPEST - 1);
        return context(l, includer, "base", MLA_INVALID);
    }
    l->open[l->depth].path = path;
    l->open[l->depth].device = info->st_dev;
    l->open[l->depth].inode = info->st_ino;
    l->depth++;
    return MLA_OK;
}

static mla_status apply_file(loader *l, const char *path, writer includer) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return unreadable(l, path, includer, errno);
    struct stat info;
    char *text = NULL;
    size_t length = 0;
    mla_status status;
    if (fstat(file, &info) != 0)
        status = unreadable(l, path, includer, errno);
    else if ((status = enter(l, path, includer, &info)) == MLA_OK) {
        status = read_all(l, file, path, includer, &text, &length);
        if (status == MLA_OK) status = apply_text(l, text, length, path);
        l->depth--;
    }
    free(text);
    close(file);
    return status;
}

static mla_status override_value(loader *l, const mla_config_key *key, const char *value, writer from) {
    size_t bytes = strlen(value) + 2;
    char *text = malloc(bytes);
    if (!text) return mla_fail(l->error, MLA_NO_MEMORY, "--set %s: out of memory", key->name);
    snprintf(text, bytes, " %s", value); /* not at a line's start, where % and --- have a meaning of their own */
    static char empty[] = "";
    mla_yaml_node nothing = {.kind = MLA_YAML_SCALAR, .plain = true, .text = empty}, *root;
    mla_status status = mla_yaml_parse(&root, text, bytes - 1, "its value", false, l->error);
    if (status == MLA_OK)
        status = set_key(l, key, root ? root : &nothing, from);
    else
        context(l, from, key->name, status);
    mla_yaml_free(root);
    free(text);
    return status;
}

static mla_status apply_override(loader *l, const char *text) {
    const char *equals = strchr(text, '=');
    writer from = {text, 0};
    char name[MLA_CONFIG_NAME_BYTES];
    size_t length = equals ? (size_t)(equals - text) : 0;
    if (length == 0) {
        mla_fail(l->error, MLA_INVALID, "expected KEY=VALUE, for example optim.lr=3e-4");
        return context(l, from, "", MLA_INVALID);
    }
    if (length >= sizeof name) return unknown(l, text, from);
    snprintf(name, sizeof name, "%.*s", (int)length, text);
    const mla_config_key *key = mla_config_key_find(name);
    if (key) return override_value(l, key, equals + 1, from);
    if (strcmp(name, "base") == 0)
        mla_fail(l->error, MLA_INVALID, "a base stands in a file and cannot be set");
    else if (mla_config_section_find(name))
        mla_fail(l->error, MLA_INVALID, "%s is a section; set its keys one by one", name);
    else
        return unknown(l, name, from);
    return context(l, from, name, MLA_INVALID);
}

static int count_of(const int counts[MLA_CONFIG_KEYS_MAX], const char *list) {
    return counts[mla_config_key_find(list) - mla_config_keys];
}

static void complete(mla_config *config, const int counts[MLA_CONFIG_KEYS_MAX]) {
    mla_model_spec *model = &config->model;
    model->stages = count_of(counts, "model.dims");
    const bool one_kind = count_of(counts, "model.attention.kind") == 1;
    for (int i = 1; i < MLA_MAX_STAGES; i++)
        if (one_kind || i >= model->stages) model->kinds[i] = i < model->stages ? model->kinds[0] : (mla_attention_kind)0;
    config->model.image = config->data.size;
    config->model.channels = 3;
    config->model.classes = 0;
}

static mla_status apply_assignments(loader *l, const mla_config_assignment *values, size_t count, const char *origin) {
    for (size_t i = 0; i < count; i++) {
        mla_status status = set_key(l, values[i].key, values[i].node, (writer){origin, values[i].node->line});
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}

static mla_status apply_overrides(loader *l, const char *const *overrides, size_t count) {
    for (size_t i = 0; i < count; i++) {
        mla_status status = apply_override(l, overrides[i]);
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}

/* What the model takes from elsewhere, and the relations between values. */
static mla_status check_whole(loader *l) {
    complete(&l->config, l->counts);
    const mla_config_key *key = NULL;
    mla_status status = mla_config_check(&l->config, l->counts, &key, l->error);
    return status == MLA_OK ? status : context(l, l->writers[key - mla_config_keys], key->name, status);
}

static loader *new_loader(const char *name, mla_error *error) {
    loader *l = calloc(1, sizeof *l);
    if (!l) {
        mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", name);
        return NULL;
    }
    l->error = error;
    l->name = name;
    mla_config_defaults_counted(&l->config, l->counts);
    return l;
}

/* Gives the config out if all went well, and the loader up. */
static mla_status end_loader(loader *l, mla_config *config, mla_status status) {
    if (status == MLA_OK) memcpy(config, &l->config, sizeof *config); /* with the zeros between the fields */
    for (int i = 0; i < l->file_count; i++) free(l->files[i]);
    free(l);
    return status;
}

/* `text` NULL: from the file `name`. */
static mla_status load(mla_config *config, const char *text, const char *name, const char *const *overrides, size_t count,
                       mla_error *error) {
    mla_error local = {0};
    loader *l = new_loader(name, error ? error : &local);
    if (!l) return MLA_NO_MEMORY;
    l->follow = !text;
    mla_status status = text ? apply_text(l, text, strlen(text), name) : apply_file(l, name, (writer){0});
    if (status == MLA_OK) status = apply_overrides(l, overrides, count);
    if (status == MLA_OK) status = check_whole(l);
    return end_loader(l, config, status);
}

mla_status mla_config_try(mla_config *config, const mla_config_assignment *value, const char *origin, mla_error *error) {
    mla_error local = {0};
    loader *l = new_loader(origin, error ? error : &local);
    if (!l) return MLA_NO_MEMORY;
    const mla_status status = apply_assignments(l, value, 1, origin);
    if (status == MLA_OK) complete(&l->config, l->counts);
    return end_loader(l, config, status);
}

mla_status mla_config_load_cell(mla_config *config, const mla_config_cell *cell, bool check, mla_error *error) {
    mla_error local = {0};
    loader *l = new_loader(cell->path, error ? error : &local);
    if (!l) return MLA_NO_MEMORY;
    l->follow = l->sweep = true;
    mla_status status = apply_file(l, cell->path, (writer){0});
    if (status == MLA_OK) status = apply_overrides(l, cell->overrides, cell->override_count);
    if (status == MLA_OK) status = apply_assignments(l, cell->values, cell->value_count, cell->path);
    if (status == MLA_OK && check) status = check_whole(l);
    if (status == MLA_OK && !check) complete(&l->config, l->counts);
    return end_loader(l, config, status);
}

mla_status mla_config_load(mla_config *config, const char *path, const char *const *overrides, size_t override_count,
                           mla_error *error) {
    return load(config, NULL, path, overrides, override_count, error);
}

mla_status mla_config_parse(mla_config *config, const char *text, const char *origin, const char *const *overrides,
                            size_t override_count, mla_error *error) {
    return load(config, text, origin, overrides, override_count, error);
}

void mla_config_defaults(mla_config *config) {
    int counts[MLA_CONFIG_KEYS_MAX];
    mla_config_defaults_counted(config, counts);
    complete(config, counts);
}
