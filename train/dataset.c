#include "train/dataset.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/rng.h"
#include "train/dataset_kind.h"
#include "train/text.h"

/* The order is that of mla_data_set. */
static const mla_set_kind *const kinds[] = {
    [MLA_SET_TWINS] = &mla_set_twins,
    [MLA_SET_CIFAR10] = &mla_set_cifar10,
    [MLA_SET_CIFAR100] = &mla_set_cifar100,
    [MLA_SET_IMAGE_FOLDER] = &mla_set_image_folder,
    [MLA_SET_TINY_IMAGENET] = &mla_set_tiny_imagenet,
};

const mla_set_kind *mla_set_kind_get(int set) {
    return set >= 0 && set < (int)(sizeof kinds / sizeof *kinds) ? kinds[set] : NULL;
}

/* ---- shared by the kinds ---- */

mla_status mla_dataset_set_text(char **text, mla_error *error, const char *format, ...) {
    char *fresh = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&fresh, format, arguments);
    va_end(arguments);
    if (length < 0) return mla_fail(error, MLA_NO_MEMORY, "out of memory while opening a data set");
    free(*text);
    *text = fresh;
    return MLA_OK;
}

/* Checkpoints store the names as JSON: what does not fit there is told before a run starts. */
static mla_status check_names(const mla_dataset *set, const char *const *names, int count, mla_error *error) {
    for (int i = 0; i < count; i++) {
        if (mla_is_utf8(names[i])) continue;
        char name[512];
        mla_text_escape(name, sizeof name, names[i]);
        return mla_fail(error, MLA_INVALID, "%s: the name of class %d, \"%s\", is not valid UTF-8: rename it",
                        set->source ? set->source : set->kind->name, i, name);
    }
    return MLA_OK;
}

mla_status mla_dataset_set_names(mla_dataset *set, const char *const *names, int count, mla_error *error) {
    mla_status status = check_names(set, names, count, error);
    if (status != MLA_OK) return status;
    size_t pointer_bytes = (size_t)count * sizeof(char *), bytes = pointer_bytes;
    for (int i = 0; i < count; i++) bytes += strlen(names[i]) + 1;
    char *block = malloc(bytes);
    if (!block) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the names of %d classes", count);
    char **pointers = (char **)(void *)block, *at = block + pointer_bytes;
    for (int i = 0; i < count; i++) {
        pointers[i] = at;
        at = stpcpy(at, names[i]) + 1;
    }
    free(set->name_block);
    set->name_block = block;
    set->info.names = (const char *const *)pointers;
    set->info.classes = count;
    return MLA_OK;
}

int mla_dataset_roots(char roots[MLA_SEARCH_ROOTS][MLA_PATH_BYTES]) {
    const char *data = getenv("MLA_DATA"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int count = 0;
    if (data && *data) snprintf(roots[count++], MLA_PATH_BYTES, "%s", data);
    snprintf(roots[count++], MLA_PATH_BYTES, "./data");
    snprintf(roots[count++], MLA_PATH_BYTES, ".");
    if (cache && *cache)
        snprintf(roots[count++], MLA_PATH_BYTES, "%s/mirrorla", cache);
    else if (home && *home)
        snprintf(roots[count++], MLA_PATH_BYTES, "%s/.cache/mirrorla", home);
    if (home && *home) snprintf(roots[count++], MLA_PATH_BYTES, "%s/data", home);
    return count;
}

mla_status mla_set_path(char path[MLA_PATH_BYTES], const char *root, const char *name, mla_error *error) {
    size_t length = strlen(root);
    const char *slash = length && root[length - 1] == '/' ? "" : "/";
    if (snprintf(path, MLA_PATH_BYTES, "%s%s%s", root, slash, name) >= MLA_PATH_BYTES)
        return mla_fail(error, MLA_INVALID, "path too long (over %d bytes): %s/%s", MLA_PATH_BYTES - 1, root, name);
    return MLA_OK;
}

bool mla_path_is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool mla_path_is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* ---- the subset ---- */

/* Marks the images of one class that are kept: a prefix of one random order of the class, so that a smaller
 * subset of the same seed is part of a larger one.  `members` holds the class's `count` indices. */
static void keep_of_class(uint8_t *keep, uint32_t *members, size_t count, double share, uint64_t seed, int label) {
    size_t kept = (size_t)((double)count * share + 0.5);
    if (kept < 1) kept = 1;
    mla_rng rng = mla_rng_stream(seed, MLA_RNG_SUBSET, 0, (uint64_t)label);
    for (size_t i = 0; i < kept && i < count; i++) {
        size_t other = i + mla_rng_below(&rng, (uint32_t)(count - i));
        uint32_t chosen = members[other];
        members[other] = members[i];
        members[i] = chosen;
        keep[chosen] = 1;
    }
}

static mla_status take_subset(mla_dataset *set, double share, uint64_t seed, mla_error *error) {
    size_t total = set->total;
    int classes = set->info.classes;
    size_t *start = calloc((size_t)classes + 1, sizeof *start); /* of each class in `members` */
    uint32_t *members = malloc(total * sizeof *members);
    uint8_t *keep = calloc(total, 1);
    mla_status status = MLA_OK;
    if (!start || !members || !keep) {
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory for a subset of %zu images", total);
        goto done;
    }
    for (size_t i = 0; i < total; i++) start[set->kind->label(set, i) + 1]++;
    for (int c = 0; c < classes; c++) start[c + 1] += start[c];
    for (size_t i = 0; i < total; i++)
        members[start[set->kind->label(set, i)]++] = (uint32_t)i; /* afterwards start[c] is the end of class c */
    for (int c = 0; c < classes; c++) {
        size_t begin = c ? start[c - 1] : 0;
        keep_of_class(keep, members + begin, start[c] - begin, share, seed, c);
    }
    size_t count = 0;
    for (size_t i = 0; i < total; i++)
        if (keep[i]) members[count++] = (uint32_t)i;
    set->kept = members;
    set->info.count = count;
    members = NULL;
done:
    free(start);
    free(members);
    free(keep);
    return status;
}

/* ---- open, close ---- */

static mla_status finish_open(mla_dataset *set, const mla_data_config *config, mla_split split, uint64_t seed,
                              mla_error *error) {
    for (int c = 0; c < 3; c++) {
        if (!config->mean_auto) set->info.mean[c] = config->mean[c];
        if (!config->std_auto) set->info.std[c] = config->std[c];
    }
    set->total = set->info.count;
    if (set->total > UINT32_MAX)
        return mla_fail(error, MLA_INVALID, "%s: %zu images, at most %u can be used", set->info.source, set->total,
                        UINT32_MAX);
    if (split != MLA_SPLIT_TRAIN || config->subset >= 1.0) return MLA_OK;
    if (!set->kind->generated) return take_subset(set, config->subset, seed, error);
    /* Generated images are alike: fewer of them are drawn. */
    size_t count = (size_t)((double)set->total * config->subset + 0.5);
    set->info.count = count ? count : 1;
    return MLA_OK;
}

mla_status mla_dataset_open(mla_dataset **dataset, const mla_data_config *config, mla_split split, uint64_t seed,
                            mla_error *error) {
    *dataset = NULL;
    const mla_set_kind *kind = mla_set_kind_get((int)config->set);
    MLA_REQUIRE(kind, "data set number %d is not in the table", (int)config->set);
    if (!(config->subset > 0.0))
        return mla_fail(error, MLA_INVALID, "data.subset is %g, expected a share above 0 and up to 1", config->subset);
    mla_dataset *set = calloc(1, sizeof *set);
    if (!set) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the data set %s", kind->name);
    set->kind = kind;
    set->on_error = config->on_error;
    atomic_init(&set->unreadable, 0);
    mla_status status = kind->open(set, config, split, seed, error);
    set->info.source = set->source ? set->source : "generated";
    set->info.note = set->note;
    if (status == MLA_OK) status = finish_open(set, config, split, seed, error);
    if (status != MLA_OK) {
        mla_dataset_close(set);
        return status;
    }
    *dataset = set;
    return MLA_OK;
}

void mla_dataset_close(mla_dataset *dataset) {
    if (!dataset) return;
    dataset->kind->close(dataset);
    free(dataset->kept);
    free(dataset->class_map);
    free(dataset->name_block);
    free(dataset->source);
    free(dataset->note);
    free(dataset);
}

const mla_dataset_info *mla_dataset_get_info(const mla_dataset *dataset) { return &dataset->info; }

/* ---- reading ---- */

/* Part `crop` of the image, or all of it (NULL). */
static mla_status read_kept(const mla_dataset *set, size_t index, uint64_t epoch, const mla_crop_name *crop, uint8_t *pixels,
                            int *label, mla_error *error) {
    const size_t stored = set->kept ? set->kept[index] : index;
    const bool parts = crop && set->kind->read_part;
    mla_status status = parts ? set->kind->read_part(set, stored, crop, pixels, label, error)
                              : set->kind->read(set, stored, epoch, pixels, label, error);
    if (status == MLA_OK && crop && !parts) status = mla_resized_crop_planes(pixels, set->info.size, crop, error);
    if (status == MLA_OK && set->class_map) *label = set->class_map[*label];
    return status;
}

static mla_status read_or_replace(const mla_dataset *dataset, size_t index, uint64_t epoch, const mla_crop_name *crop,
                                  uint8_t *pixels, int *label, mla_error *error) {
    size_t count = dataset->info.count;
    MLA_REQUIRE(index < count, "image %zu of %zu", index, count);
    mla_status status = read_kept(dataset, index, epoch, crop, pixels, label, error);
    if (status == MLA_OK || status == MLA_NO_MEMORY || dataset->on_error == MLA_ON_ERROR_FAIL) return status;
    /* The counter is the one thing that changes in an open data set. */
    atomic_fetch_add_explicit((atomic_size_t *)(uintptr_t)&dataset->unreadable, 1, memory_order_relaxed);
    if (dataset->on_error == MLA_ON_ERROR_SUBSTITUTE) {
        for (size_t step = 1; step < count; step++) {
            status = read_kept(dataset, (index + step) % count, epoch, crop, pixels, label, error);
            if (status == MLA_OK || status == MLA_NO_MEMORY) return status;
        }
        return mla_fail_context(error, "%s: none of the %zu images can be read; the last one: ", dataset->info.source,
                                count);
    }
    *label = -1;
    memset(pixels, 0, 3 * (size_t)dataset->info.size * (size_t)dataset->info.size);
    return MLA_OK;
}

mla_status mla_dataset_read(const mla_dataset *dataset, size_t index, uint64_t epoch, uint8_t *pixels, int *label,
                            mla_error *error) {
    return read_or_replace(dataset, index, epoch, NULL, pixels, label, error);
}

mla_status mla_dataset_read_part(const mla_dataset *dataset, size_t index, uint64_t epoch, const mla_augment_config *augment,
                                 uint64_t seed, uint64_t name, uint8_t *pixels, int *label, mla_error *error) {
    const mla_crop_name crop = {augment, seed, epoch, name};
    return read_or_replace(dataset, index, epoch, &crop, pixels, label, error);
}

size_t mla_dataset_unreadable(const mla_dataset *dataset) {
    return atomic_load_explicit((atomic_size_t *)(uintptr_t)&dataset->unreadable, memory_order_relaxed);
}

/* ---- classes, order ---- */

mla_status mla_dataset_map_classes(mla_dataset *dataset, const char *const *names, int count, mla_error *error) {
    int classes = dataset->info.classes;
    int *map = malloc((size_t)classes * sizeof *map);
    mla_status status = MLA_OK;
    if (!map) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a map of %d classes", classes);
    for (int c = 0; c < classes && status == MLA_OK; c++) {
        map[c] = -1;
        for (int i = 0; i < count && map[c] < 0; i++)
            if (strcmp(dataset->info.names[c], names[i]) == 0) map[c] = i;
        if (map[c] < 0)
            status =
                mla_fail(error, MLA_INVALID, "%s: class '%s' is not among the %d classes that the labels are to be given in",
                         dataset->info.source, dataset->info.names[c], count);
    }
    if (status == MLA_OK) status = mla_dataset_set_names(dataset, names, count, error);
    if (status == MLA_OK && dataset->class_map) {
        /* A second mapping starts from the labels that the first one gives out. */
        for (int c = 0; c < dataset->kind_classes; c++) dataset->class_map[c] = map[dataset->class_map[c]];
    } else if (status == MLA_OK) {
        dataset->class_map = map;
        dataset->kind_classes = classes;
        return MLA_OK;
    }
    free(map);
    return status;
}

void mla_shuffle(uint32_t *order, size_t count, uint64_t seed, uint64_t epoch) {
    MLA_REQUIRE(count <= UINT32_MAX, "an order of %zu images does not fit 32 bits", count);
    mla_rng rng = mla_rng_stream(seed, MLA_RNG_SHUFFLE, epoch, 0);
    for (size_t i = 0; i < count; i++) order[i] = (uint32_t)i;
    for (size_t left = count; left > 1; left--) {
        size_t other = mla_rng_below(&rng, (uint32_t)left);
        uint32_t last = order[left - 1];
        order[left - 1] = order[other];
        order[other] = last;
    }
}
