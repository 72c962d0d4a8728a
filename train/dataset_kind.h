/* What a kind of data set has to bring, and what dataset.c does for all of them.
 *
 * A kind is one file with one `const mla_set_kind`, and one row in dataset.c's table.  open() fills in
 * set->info (count, size, mean, std), the names and its own state; dataset.c then takes care of the subset,
 * of the config's mean and std, of class mapping and of unreadable images.  When open() fails, dataset.c
 * calls close(), which therefore has to cope with a half-filled state.
 */
#ifndef MLA_TRAIN_DATASET_KIND_H
#define MLA_TRAIN_DATASET_KIND_H

#include <stdatomic.h>

#include "train/dataset.h"
#include "train/resized_crop.h"

typedef struct mla_set_kind {
    const char *name;    /* as in configs */
    const char *expects; /* one line for people: what data.path points at */
    bool generated;      /* no files; labels depend on (seed, epoch, index) */
    mla_status (*open)(mla_dataset *set, const mla_data_config *config, mla_split split, uint64_t seed, mla_error *error);
    /* Image `index` of all images of the split, label in the kind's own class order. */
    mla_status (*read)(const mla_dataset *set, size_t index, uint64_t epoch, uint8_t *pixels, int *label, mla_error *error);
    /* The same of a part of the image as stored; NULL: images are stored as `read` gives them. */
    mla_status (*read_part)(const mla_dataset *set, size_t index, const mla_crop_name *name, uint8_t *pixels, int *label,
                            mla_error *error);
    int (*label)(const mla_dataset *set, size_t index); /* without reading the image; NULL when generated */
    void (*close)(mla_dataset *set);
} mla_set_kind;

struct mla_dataset {
    const mla_set_kind *kind;
    mla_dataset_info info;
    void *state;      /* the kind's own */
    size_t total;     /* images of the split before the subset */
    uint32_t *kept;   /* (info.count) indices of the subset, NULL = all */
    int *class_map;   /* (kind_classes) the label given out, NULL = the kind's own */
    int kind_classes; /* of the kind itself, set together with class_map */
    char *name_block; /* what info.names points into */
    char *source, *note;
    mla_on_error on_error;
    atomic_size_t unreadable;
};

extern const mla_set_kind mla_set_twins, mla_set_cifar10, mla_set_cifar100, mla_set_image_folder, mla_set_tiny_imagenet;

/* The kind of a configured set, NULL past the end of the table. */
const mla_set_kind *mla_set_kind_get(int set);

/* Copies the class names; the old ones are freed.  MLA_INVALID when one is not UTF-8. */
MLA_MUST_CHECK mla_status mla_dataset_set_names(mla_dataset *set, const char *const *names, int count, mla_error *error);
/* printf into a fresh string that replaces *text. */
MLA_MUST_CHECK mla_status mla_dataset_set_text(char **text, mla_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Where a data set is looked for when data.path is `auto`, in this order: $MLA_DATA, ./data, the working
 * folder, $XDG_CACHE_HOME/mirrorla or ~/.cache/mirrorla, ~/data.  roots[i] is filled in with the
 * i-th (MLA_PATH_BYTES each, those that exist or not); returns how many. */
enum { MLA_SEARCH_ROOTS = 5 };
int mla_dataset_roots(char roots[MLA_SEARCH_ROOTS][MLA_PATH_BYTES]);

/* root/name into `path`; MLA_INVALID when it is too long. */
MLA_MUST_CHECK mla_status mla_set_path(char path[MLA_PATH_BYTES], const char *root, const char *name, mla_error *error);
bool mla_path_is_folder(const char *path);
bool mla_path_is_file(const char *path);

/* For `mirrorla data prepare`: where a CIFAR set is (a folder or an archive) and the folder's usual name; the colour
 * that stands for a class of twins. */
MLA_MUST_CHECK mla_status mla_cifar_locate(char found[MLA_PATH_BYTES], const char **folder_name, mla_data_set set,
                                           const char *path, mla_error *error);
void mla_twins_colour(uint8_t rgb[3], int label);

#endif
