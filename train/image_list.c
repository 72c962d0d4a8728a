#include "train/image_list.h"

#include <stdlib.h>
#include <string.h>

#include "train/dataset_kind.h"
#include "train/file.h"

static const char *entry(const mla_folder_index *index, size_t i) { return index->pool + index->start[i]; }

/* The scan gives paths below the folder that begin with "./". */
static mla_status add_found(mla_image_list *list, const mla_folder_index *found, mla_error *error) {
    mla_status status = MLA_OK;
    for (size_t i = 0; status == MLA_OK && i < found->count; i++) {
        char *path = mla_path_join(found->root, entry(found, i) + 2);
        status = path ? mla_folder_index_add(&list->files, path, 0, error)
                      : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its file names", found->root);
        free(path);
    }
    return status;
}

static mla_status add_folder(mla_image_list *list, const char *path, mla_error *error) {
    size_t added = 0, length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    mla_folder_index found = {.root = strndup(path, length)};
    if (!found.root) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = mla_folder_index_scan(&found, ".", 0, &added, error);
    if (status == MLA_OK && !added)
        status = mla_fail(error, MLA_INVALID, "%s: no JPEG or PNG file in this folder (nor below)%s%s", path,
                          found.other_images ? "; of other types there is " : "", found.other_example);
    if (status == MLA_OK) status = add_found(list, &found, error);
    mla_folder_index_free(&found);
    return status;
}

mla_status mla_image_list_add(mla_image_list *list, const char *path, mla_error *error) {
    if (mla_path_is_folder(path)) return add_folder(list, path, error);
    return mla_folder_index_add(&list->files, path, 0, error);
}

size_t mla_image_list_count(const mla_image_list *list) { return list->files.count; }

const char *mla_image_list_path(const mla_image_list *list, size_t i) { return entry(&list->files, i); }

void mla_image_list_free(mla_image_list *list) { mla_folder_index_free(&list->files); }
