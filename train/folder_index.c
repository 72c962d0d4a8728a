#include "train/folder_index.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 32 }; /* of folders; links may lead round in a circle */

/* ---- names of one folder ---- */

typedef struct name_list {
    char **names;
    size_t count, room;
} name_list;

static void names_free(name_list *list) {
    for (size_t i = 0; i < list->count; i++) free(list->names[i]);
    free(list->names);
    *list = (name_list){0};
}

static bool names_add(name_list *list, const char *name) {
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        char **names = realloc(list->names, room * sizeof *names);
        if (!names) return false;
        list->names = names;
        list->room = room;
    }
    char *copy = strdup(name);
    if (copy) list->names[list->count++] = copy;
    return copy != NULL;
}

static int compare_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int mla_natural_compare(const char *a, const char *b) {
    const char *x = a, *y = b;
    while (*x && *y) {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            x += strspn(x, "0");
            y += strspn(y, "0");
            size_t m = strspn(x, "0123456789"), n = strspn(y, "0123456789");
            int order = m != n ? (m < n ? -1 : 1) : memcmp(x, y, m);
            if (order) return order;
            x += m;
            y += n;
        } else {
            int order = tolower((unsigned char)*x) - tolower((unsigned char)*y);
            if (order) return order;
            x++;
            y++;
        }
    }
    return *x || *y ? (*x ? 1 : -1) : strcmp(a, b);
}

static int compare_natural(const void *a, const void *b) {
    return mla_natural_compare(*(char *const *)a, *(char *const *)b);
}

/* ---- kinds of files ---- */

static bool has_ending(const char *name, const char *const *endings) {
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && endings[i]; i++)
        if (strcasecmp(dot + 1, endings[i]) == 0) return true;
    return false;
}

static bool is_image(const char *name) {
    static const char *const endings[] = {"jpg", "jpeg", "png", NULL};
    return has_ending(name, endings);
}

static bool is_other_image(const char *name) {
    static const char *const endings[] = {"gif", "bmp",  "webp", "tif", "tiff", "ppm", "pgm", "pbm",
                                          "jp2", "heic", "avif", "jxl", "jfif", "tga", NULL};
    return has_ending(name, endings);
}

/* Links are followed; what can't be looked at counts as a file, so that reading it reports it. */
static bool is_folder(const char *path, const struct dirent *entry) {
    struct stat status;
    if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) return entry->d_type == DT_DIR;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The names in a folder, each kind by itself; those that start with a point are only counted. */
typedef struct listing {
    name_list folders, files;
    size_t hidden;
} listing;

static void listing_free(listing *list) {
    names_free(&list->folders);
    names_free(&list->files);
}

static mla_status list_folder(listing *list, const char *path, mla_error *error) {
    *list = (listing){0};
    DIR *folder = opendir(path);
    if (!folder) return mla_fail(error, MLA_IO, "%s: the folder can't be opened: %s", path, strerror(errno));
    mla_status status = MLA_OK;
    char *full = malloc(strlen(path) + 2 + sizeof((struct dirent *)0)->d_name);
    struct dirent *entry = NULL;
    while (full && status == MLA_OK && (errno = 0, entry = readdir(folder))) {
        const char *name = entry->d_name;
        if (name[0] == '.') {
            list->hidden += strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
            continue;
        }
        sprintf(full, "%s/%s", path, name);
        if (!names_add(is_folder(full, entry) ? &list->folders : &list->files, name))
            status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its file names", path);
    }
    if (!full)
        status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its file names", path);
    else if (status == MLA_OK && errno)
        status = mla_fail(error, MLA_IO, "%s: the folder can't be read: %s", path, strerror(errno));
    free(full);
    closedir(folder);
    if (status != MLA_OK) listing_free(list);
    return status;
}

mla_status mla_folder_classes(char ***names, size_t *count, size_t *loose, const char *path, mla_class_order order,
                              mla_error *error) {
    listing list;
    mla_status status = list_folder(&list, path, error);
    *names = NULL;
    *count = 0;
    if (status != MLA_OK) return status;
    size_t n = list.folders.count, bytes = n * sizeof(char *);
    if (n) qsort(list.folders.names, n, sizeof(char *), order == MLA_ORDER_NATURAL ? compare_natural : compare_bytes);
    for (size_t i = 0; i < n; i++) bytes += strlen(list.folders.names[i]) + 1;
    char **block = malloc(bytes + 1);
    if (block) {
        char *at = (char *)(block + n);
        for (size_t i = 0; i < n; i++) {
            block[i] = at;
            at = stpcpy(at, list.folders.names[i]) + 1;
        }
        *names = block;
        *count = n;
    } else {
        status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for %zu class names", path, n);
    }
    for (size_t i = 0; loose && i < list.files.count; i++) *loose += is_image(list.files.names[i]);
    listing_free(&list);
    return status;
}

/* ---- the index ---- */

mla_status mla_folder_index_add(mla_folder_index *index, const char *path, uint32_t label, mla_error *error) {
    size_t bytes = strlen(path) + 1;
    if (index->count == index->room) {
        size_t room = index->room ? index->room + index->room / 2 : 1024;
        uint64_t *start = realloc(index->start, room * sizeof *start);
        index->start = start ? start : index->start;
        uint32_t *labels = realloc(index->label, room * sizeof *labels);
        index->label = labels ? labels : index->label;
        if (!start || !labels)
            return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for the list of %zu files", index->root, room);
        index->room = room;
    }
    if (index->pool_room - index->pool_bytes < bytes) {
        size_t room = index->pool_room + index->pool_room / 2 + bytes + (1u << 16);
        char *pool = realloc(index->pool, room);
        if (!pool) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for %zu bytes of file names", index->root, room);
        index->pool = pool;
        index->pool_room = room;
    }
    index->start[index->count] = index->pool_bytes;
    index->label[index->count++] = label;
    memcpy(index->pool + index->pool_bytes, path, bytes);
    index->pool_bytes += bytes;
    return MLA_OK;
}

void mla_folder_index_trim(mla_folder_index *index) {
    if (!index->count) return;
    void *pool = realloc(index->pool, index->pool_bytes);
    void *start = realloc(index->start, index->count * sizeof *index->start);
    void *label = realloc(index->label, index->count * sizeof *index->label);
    index->pool = pool ? pool : index->pool;
    index->start = start ? start : index->start;
    index->label = label ? label : index->label;
}

void mla_folder_index_free(mla_folder_index *index) {
    free(index->root);
    free(index->pool);
    free(index->start);
    free(index->label);
    *index = (mla_folder_index){0};
}

static mla_status add_files(mla_folder_index *index, listing *list, const char *folder, uint32_t label, mla_error *error) {
    mla_status status = MLA_OK;
    if (list->files.count) qsort(list->files.names, list->files.count, sizeof(char *), compare_bytes);
    for (size_t i = 0; i < list->files.count && status == MLA_OK; i++) {
        const char *name = list->files.names[i];
        if (is_image(name)) {
            char *path = NULL;
            if (asprintf(&path, "%s/%s", folder, name) < 0)
                return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its file names", folder);
            status = mla_folder_index_add(index, path, label, error);
            free(path);
        } else if (is_other_image(name) && !index->other_images++) {
            snprintf(index->other_example, sizeof index->other_example, "%s", name);
        }
    }
    return status;
}

/* Collects the tree's folders, paths relative to the root, `folder` itself first. */
static mla_status collect_folders(mla_folder_index *index, name_list *folders, const char *folder, int depth,
                                  mla_error *error) {
    if (depth > MAX_DEPTH)
        return mla_fail(error, MLA_INVALID, "%s/%s: folders nested over %d deep (does a link lead round in a circle?)",
                        index->root, folder, MAX_DEPTH);
    char *full = NULL;
    listing list = {0};
    mla_status status = MLA_OK;
    if (asprintf(&full, "%s/%s", index->root, folder) < 0 || !names_add(folders, folder))
        status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its folders", index->root);
    else
        status = list_folder(&list, full, error);
    for (size_t i = 0; i < list.folders.count && status == MLA_OK; i++) {
        char *below = NULL;
        if (asprintf(&below, "%s/%s", folder, list.folders.names[i]) < 0)
            status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its folders", full);
        else
            status = collect_folders(index, folders, below, depth + 1, error);
        free(below);
    }
    free(full);
    listing_free(&list);
    return status;
}

/* torchvision's order: folders sorted by path, the files of each sorted by name. */
mla_status mla_folder_index_scan(mla_folder_index *index, const char *folder, uint32_t label, size_t *added,
                                 mla_error *error) {
    size_t before = index->count;
    name_list folders = {0};
    mla_status status = collect_folders(index, &folders, folder, 0, error);
    if (status == MLA_OK) qsort(folders.names, folders.count, sizeof(char *), compare_bytes);
    for (size_t i = 0; i < folders.count && status == MLA_OK; i++) {
        char *full = NULL;
        listing list = {0};
        if (asprintf(&full, "%s/%s", index->root, folders.names[i]) < 0)
            status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its folders", index->root);
        else
            status = list_folder(&list, full, error);
        free(full);
        if (status == MLA_OK) status = add_files(index, &list, folders.names[i], label, error);
        index->hidden += list.hidden;
        listing_free(&list);
    }
    names_free(&folders);
    *added = index->count - before;
    return status;
}
