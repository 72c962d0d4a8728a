/* The image files that a command line names: files as they are, folders searched as a data set of folders is. */
#ifndef MLA_TRAIN_IMAGE_LIST_H
#define MLA_TRAIN_IMAGE_LIST_H

#include "train/folder_index.h"

typedef struct mla_image_list {
    mla_folder_index files; /* paths; the labels mean nothing */
} mla_image_list;

/* Adds a file, or the JPEG and PNG files in a folder and below, in torchvision's order (folders by path, then names).
 * MLA_IO or MLA_INVALID for a folder that can't be read or has no such file; nothing has been added then.  Whether a file
 * exists and is an image is found out when it is read. */
MLA_MUST_CHECK mla_status mla_image_list_add(mla_image_list *list, const char *path, mla_error *error);
size_t mla_image_list_count(const mla_image_list *list);
const char *mla_image_list_path(const mla_image_list *list, size_t i);
void mla_image_list_free(mla_image_list *list);

#endif
