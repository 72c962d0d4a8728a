/* The files of a folder tree by class: one compact index, shared by all threads.
 *
 * Paths are kept relative to the root, behind each other in one pool of bytes (any bytes that the file system
 * allows), so that a million files cost about their names and 12 bytes each.
 */
#ifndef MLA_TRAIN_FOLDER_INDEX_H
#define MLA_TRAIN_FOLDER_INDEX_H

#include <stdint.h>

#include "core/status.h"
#include "train/config.h"

typedef struct mla_folder_index {
    char *root; /* every path below is relative to it */
    char *pool; /* the paths, each with a zero behind it */
    size_t pool_bytes, pool_room;
    uint64_t *start; /* (count) of a path in the pool */
    uint32_t *label; /* (count) */
    size_t count, room;
    size_t other_images, hidden; /* left out: files of other image types, names that begin with a dot */
    char other_example[64];
} mla_folder_index;

/* Sorted names of the folders in `path`; *names is one block to be freed.  Names that begin with a dot are left
 * out.  *loose (may be NULL) counts the JPEG and PNG files that lie beside them. */
MLA_MUST_CHECK mla_status mla_folder_classes(char ***names, size_t *count, size_t *loose, const char *path,
                                             mla_class_order order, mla_error *error);

/* Adds the JPEG and PNG files in root/folder and below, in torchvision's order; *added counts them. */
MLA_MUST_CHECK mla_status mla_folder_index_scan(mla_folder_index *index, const char *folder, uint32_t label, size_t *added,
                                                mla_error *error);
MLA_MUST_CHECK mla_status mla_folder_index_add(mla_folder_index *index, const char *path, uint32_t label, mla_error *error);
/* Gives back memory that growing took too much. */
void mla_folder_index_trim(mla_folder_index *index);
void mla_folder_index_free(mla_folder_index *index);

/* Orders of class names: plain bytes, or numbers inside names by their value and letters without case. */
int mla_natural_compare(const char *a, const char *b);

#endif
