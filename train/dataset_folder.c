/* Folders of image files: the ImageFolder layout, and Tiny-ImageNet as it is unpacked.
 *
 *     imagefolder      ROOT/train/CLASS/...jpg    ROOT/val/CLASS/...jpg    (or ROOT/test)
 *     tiny-imagenet    ROOT/train/WNID/images/...JPEG    ROOT/val/images/...JPEG with ROOT/val/val_annotations.txt
 *                      (or ROOT/val/WNID/...)
 *
 * The classes are the folders of train, in the order that the config says; those of val are found by name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/dataset_kind.h"
#include "train/file.h"
#include "train/folder_index.h"
#include "train/image.h"

enum { ANNOTATIONS_LIMIT_BYTES = 1 << 28 };

#define LAYOUT "expected train/<class>/*.jpg and val/<class>/*.jpg (or test/) with the same class names"

typedef struct folder_state {
    mla_folder_index index;
    mla_data_config config;
    char **classes; /* of train, in order */
    size_t class_count;
} folder_state;

/* ---- finding it ---- */

static bool has_folder(const char *root, const char *name) {
    char path[MLA_PATH_BYTES];
    return mla_set_path(path, root, name, NULL) == MLA_OK && mla_path_is_folder(path);
}

static bool has_file(const char *root, const char *name) {
    char path[MLA_PATH_BYTES];
    return mla_set_path(path, root, name, NULL) == MLA_OK && mla_path_is_file(path);
}

static mla_status locate_given(char root[MLA_PATH_BYTES], const char *path, mla_error *error) {
    errno = 0;
    if (!mla_path_is_folder(path)) {
        if (mla_path_is_file(path))
            return mla_fail(error, MLA_INVALID, "%s: a file, expected a folder (archives are not read, unpack it first)",
                            path);
        return mla_fail(error, MLA_IO, "%s: %s", path, strerror(errno ? errno : ENOENT));
    }
    if (!has_folder(path, "train")) return mla_fail(error, MLA_INVALID, "%s: no folder train in it; " LAYOUT, path);
    snprintf(root, MLA_PATH_BYTES, "%s", path);
    return MLA_OK;
}

static mla_status locate_tiny(char root[MLA_PATH_BYTES], const char *path, mla_error *error) {
    static const char name[] = "tiny-imagenet-200";
    if (strcmp(path, "auto") != 0) {
        if (!has_folder(path, "train") && has_folder(path, name)) return mla_set_path(root, path, name, error);
        return locate_given(root, path, error);
    }
    char(*roots)[MLA_PATH_BYTES] = calloc(MLA_SEARCH_ROOTS, sizeof *roots);
    if (!roots) return mla_fail(error, MLA_NO_MEMORY, "out of memory while looking for Tiny-ImageNet");
    char looked[MLA_ERROR_BYTES / 2] = "";
    int count = mla_dataset_roots(roots);
    bool found = false;
    for (int i = 0; i < count && !found; i++) {
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof looked - used, "%s%s", i ? ", " : "", roots[i]);
        if (has_file(roots[i], "wnids.txt") && has_folder(roots[i], "train"))
            found = snprintf(root, MLA_PATH_BYTES, "%s", roots[i]) < MLA_PATH_BYTES;
        else
            found = mla_set_path(root, roots[i], name, NULL) == MLA_OK && has_folder(root, "train");
    }
    free(roots);
    return found ? MLA_OK
                 : mla_fail(error, MLA_IO,
                            "Tiny-ImageNet not found: looked for the folder %s in %s; set data.path or $MLA_DATA", name,
                            looked);
}

/* ---- the classes and the files ---- */

static mla_status read_classes(folder_state *state, mla_error *error) {
    char path[MLA_PATH_BYTES];
    size_t loose = 0;
    mla_status status = mla_set_path(path, state->index.root, "train", error);
    if (status == MLA_OK)
        status = mla_folder_classes(&state->classes, &state->class_count, &loose, path, state->config.class_order, error);
    if (status != MLA_OK) return status;
    if (state->class_count == 0 && loose)
        return mla_fail(error, MLA_INVALID, "%s: %zu images lie in it directly, without class folders; " LAYOUT, path,
                        loose);
    if (state->class_count < 2)
        return mla_fail(error, MLA_INVALID, "%s: %s class folder%s%s%s in it, at least 2 are needed; " LAYOUT, path,
                        state->class_count ? "only one" : "no", state->class_count ? " ('" : "",
                        state->class_count ? state->classes[0] : "", state->class_count ? "')" : "");
    return MLA_OK;
}

static int class_label(const folder_state *state, const char *name) {
    for (size_t i = 0; i < state->class_count; i++)
        if (strcmp(state->classes[i], name) == 0) return (int)i;
    return -1;
}

static mla_status scan_class(folder_state *state, const char *split, const char *name, int label, mla_error *error) {
    size_t added = 0;
    char *folder = NULL;
    if (asprintf(&folder, "%s/%s", split, name) < 0)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for its folders", state->index.root);
    mla_status status = mla_folder_index_scan(&state->index, folder, (uint32_t)label, &added, error);
    if (status == MLA_OK && !added)
        status = mla_fail(error, MLA_INVALID, "%s/%s: no JPEG or PNG file in this class folder (nor below)%s%s",
                          state->index.root, folder, state->index.other_images ? "; of other types there is " : "",
                          state->index.other_example);
    free(folder);
    return status;
}

static mla_status scan_train(folder_state *state, mla_error *error) {
    mla_status status = MLA_OK;
    for (size_t i = 0; i < state->class_count && status == MLA_OK; i++)
        status = scan_class(state, "train", state->classes[i], (int)i, error);
    return status;
}

/* A validation folder without class folders of its own would give labels that mean nothing: say so. */
static mla_status check_test_classes(const folder_state *state, const char *path, char **names, size_t count, size_t loose,
                                     mla_error *error) {
    bool annotated = has_file(path, "val_annotations.txt");
    const char *hint = annotated && state->config.set == MLA_SET_IMAGE_FOLDER
                           ? "; val_annotations.txt is there: this is Tiny-ImageNet's own layout, use data.set tiny-imagenet"
                           : "";
    if (count == 0 && loose)
        return mla_fail(error, MLA_INVALID,
                        "%s: flat: %zu images without class folders, so their classes are unknown; sort them into one "
                        "folder a class: " LAYOUT "%s",
                        path, loose, hint);
    if (count == 0) return mla_fail(error, MLA_INVALID, "%s: no class folder in it; " LAYOUT, path);
    if (count == 1)
        return mla_fail(error, MLA_INVALID,
                        "%s: all images are in one folder ('%s') but train has %zu classes; " LAYOUT "%s", path, names[0],
                        state->class_count, hint);
    for (size_t i = 0; i < count; i++)
        if (class_label(state, names[i]) < 0)
            return mla_fail(error, MLA_INVALID, "%s: class folder '%s' is not among the %zu classes of train; " LAYOUT, path,
                            names[i], state->class_count);
    return MLA_OK;
}

static mla_status scan_test_folders(folder_state *state, const char *split, mla_error *error) {
    char path[MLA_PATH_BYTES], **names = NULL;
    size_t count = 0, loose = 0;
    mla_status status = mla_set_path(path, state->index.root, split, error);
    if (status == MLA_OK) status = mla_folder_classes(&names, &count, &loose, path, state->config.class_order, error);
    if (status == MLA_OK) status = check_test_classes(state, path, names, count, loose, error);
    for (size_t i = 0; i < count && status == MLA_OK; i++)
        status = scan_class(state, split, names[i], class_label(state, names[i]), error);
    free(names);
    return status;
}

/* Lines "file<TAB>wnid<TAB>x<TAB>y<TAB>w<TAB>h". */
static mla_status take_annotation(folder_state *state, char *line, size_t number, const char *path, mla_error *error) {
    char *rest = NULL, *full = NULL;
    const char *file = strtok_r(line, "\t\r", &rest), *wnid = file ? strtok_r(NULL, "\t\r", &rest) : NULL;
    if (!file) return MLA_OK;
    if (!wnid) return mla_fail(error, MLA_INVALID, "%s: line %zu: expected a file name, a tab and a class", path, number);
    int label = class_label(state, wnid);
    if (label < 0)
        return mla_fail(error, MLA_INVALID, "%s: line %zu: class '%s' is not among the %zu classes of train", path, number,
                        wnid, state->class_count);
    if (asprintf(&full, "val/images/%s", file) < 0) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = mla_folder_index_add(&state->index, full, (uint32_t)label, error);
    free(full);
    return status;
}

static mla_status scan_annotations(folder_state *state, mla_error *error) {
    char path[MLA_PATH_BYTES], *text = NULL;
    size_t bytes = 0, number = 1;
    mla_status status = mla_set_path(path, state->index.root, "val/val_annotations.txt", error);
    if (status == MLA_OK) status = mla_file_read(&text, &bytes, path, ANNOTATIONS_LIMIT_BYTES, error);
    for (char *line = text; line && status == MLA_OK; number++) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        status = take_annotation(state, line, number, path, error);
        line = end ? end + 1 : NULL;
    }
    free(text);
    if (status == MLA_OK && !state->index.count) return mla_fail(error, MLA_INVALID, "%s: no image is named in it", path);
    return status;
}

static mla_status scan_test(folder_state *state, mla_error *error) {
    const char *root = state->index.root;
    if (state->config.set == MLA_SET_TINY_IMAGENET && has_file(root, "val/val_annotations.txt"))
        return scan_annotations(state, error);
    if (has_folder(root, "val")) return scan_test_folders(state, "val", error);
    if (has_folder(root, "test")) return scan_test_folders(state, "test", error);
    return mla_fail(error, MLA_INVALID, "%s: neither val nor test in it; " LAYOUT, root);
}

/* The classes that Tiny-ImageNet itself lists must all be there: a broken unpacking is found out here. */
static mla_status check_wnids(const folder_state *state, mla_error *error) {
    char path[MLA_PATH_BYTES], *text = NULL, *rest = NULL;
    size_t bytes = 0;
    if (state->config.set != MLA_SET_TINY_IMAGENET || !has_file(state->index.root, "wnids.txt")) return MLA_OK;
    mla_status status = mla_set_path(path, state->index.root, "wnids.txt", error);
    if (status == MLA_OK) status = mla_file_read(&text, &bytes, path, ANNOTATIONS_LIMIT_BYTES, error);
    if (status == MLA_OK)
        for (char *wnid = strtok_r(text, " \t\r\n", &rest); wnid && status == MLA_OK;
             wnid = strtok_r(NULL, " \t\r\n", &rest))
            if (class_label(state, wnid) < 0)
                status =
                    mla_fail(error, MLA_INVALID, "%s names the class %s, but there is no folder train/%s", path, wnid, wnid);
    free(text);
    return status;
}

/* ---- the kinds ---- */

static mla_status note_omissions(mla_dataset *set, mla_error *error) {
    const folder_state *state = set->state;
    const mla_folder_index *index = &state->index;
    if (!index->other_images && !index->hidden) return MLA_OK;
    return mla_dataset_set_text(
        &set->note, error, "%s: left out %zu files of other image types%s%s%s and %zu hidden names; JPEG and PNG are read",
        index->root, index->other_images, index->other_images ? " (such as " : "", index->other_example,
        index->other_images ? ")" : "", index->hidden);
}

static mla_status folder_open(mla_dataset *set, const mla_data_config *config, mla_split split, uint64_t seed,
                              mla_error *error) {
    (void)seed;
    char root[MLA_PATH_BYTES];
    mla_status status = MLA_OK;
    if (config->set == MLA_SET_TINY_IMAGENET)
        status = locate_tiny(root, config->path, error);
    else if (strcmp(config->path, "auto") == 0)
        status = mla_fail(error, MLA_INVALID,
                          "data.path is auto, but a folder of images can be anywhere: give its path; " LAYOUT);
    else
        status = locate_given(root, config->path, error);
    if (status != MLA_OK) return status;
    folder_state *state = calloc(1, sizeof *state);
    if (!state || !(set->state = state, state->index.root = strdup(root)))
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", root);
    state->config = *config;
    status = mla_dataset_set_text(&set->source, error, "%s", root);
    if (status == MLA_OK) status = read_classes(state, error);
    if (status == MLA_OK)
        status = mla_dataset_set_names(set, (const char *const *)state->classes, (int)state->class_count, error);
    if (status == MLA_OK) status = check_wnids(state, error);
    if (status == MLA_OK) status = split == MLA_SPLIT_TRAIN ? scan_train(state, error) : scan_test(state, error);
    if (status == MLA_OK) status = note_omissions(set, error);
    mla_folder_index_trim(&state->index);
    set->info.count = state->index.count;
    set->info.size = config->size;
    memcpy(set->info.mean, (const double[3]){0.485, 0.456, 0.406}, sizeof set->info.mean);
    memcpy(set->info.std, (const double[3]){0.229, 0.224, 0.225}, sizeof set->info.std);
    return status;
}

/* What becomes of a decoded image: part `crop` of it, or what the model sees in evaluation (NULL). */
static mla_status read_file(const mla_dataset *set, size_t index, const mla_crop_name *crop, uint8_t *pixels, int *label,
                            mla_error *error) {
    const folder_state *state = set->state;
    const mla_folder_index *files = &state->index;
    char *path = NULL;
    mla_image image;
    if (asprintf(&path, "%s/%s", files->root, files->pool + files->start[index]) < 0)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory for a file name", files->root);
    mla_status status = mla_image_load(&image, path, error);
    if (status == MLA_OK) {
        status = crop ? mla_resized_crop(pixels, state->config.size, &image, crop, error)
                      : mla_image_fit(pixels, &image, &state->config, error);
        if (status != MLA_OK) status = mla_fail_context(error, "%s: ", path);
        mla_image_free(&image);
    }
    free(path);
    *label = (int)files->label[index];
    return status;
}

static mla_status folder_read(const mla_dataset *set, size_t index, uint64_t epoch, uint8_t *pixels, int *label,
                              mla_error *error) {
    (void)epoch;
    return read_file(set, index, NULL, pixels, label, error);
}

static int folder_label(const mla_dataset *set, size_t index) {
    const folder_state *state = set->state;
    return (int)state->index.label[index];
}

static void folder_close(mla_dataset *set) {
    folder_state *state = set->state;
    if (!state) return;
    mla_folder_index_free(&state->index);
    free(state->classes);
    free(state);
}

const mla_set_kind mla_set_image_folder = {
    .name = "imagefolder",
    .expects = "the folder that holds train/<class>/ and val/<class>/ (or test/<class>/) of JPEG and PNG files",
    .open = folder_open,
    .read = folder_read,
    .read_part = read_file,
    .label = folder_label,
    .close = folder_close,
};
const mla_set_kind mla_set_tiny_imagenet = {
    .name = "tiny-imagenet",
    .expects = "the folder tiny-imagenet-200 as unpacked, or the folder that holds it; auto",
    .open = folder_open,
    .read = folder_read,
    .read_part = read_file,
    .label = folder_label,
    .close = folder_close,
};
