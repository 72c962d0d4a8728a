#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/archive.h"
#include "train/cmd_data.h"
#include "train/dataset_kind.h"
#include "train/file.h"
#include "train/image.h"
#include "train/interrupt.h"

enum { CHUNK_BYTES = 1 << 20, TRAIN_FILES = 5, SHEET_SIDE = 6, SHEET_SCALE = 5, SHEET_GAP = 10, MARK_HEIGHT = 14 };

static mla_status check_stop(const char *path, mla_error *error) {
    return mla_interrupted
               ? mla_fail(error, MLA_INTERRUPTED, "interrupted before %s was complete; it is as it was before", path)
               : MLA_OK;
}

/* ---- CIFAR: unpacking ---- */

static mla_status unpack_entry(mla_archive *archive, uint64_t bytes, const char *path, uint8_t *chunk, mla_error *error) {
    mla_atomic_file file;
    mla_status status = mla_atomic_open(&file, path, bytes, error);
    if (status != MLA_OK) return status;
    for (uint64_t left = bytes; left && status == MLA_OK;) {
        size_t count = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        status = check_stop(path, error);
        if (status == MLA_OK) status = mla_archive_read(archive, chunk, count, error);
        if (status == MLA_OK) status = mla_atomic_write(&file, chunk, count, error);
        left -= count;
    }
    if (status == MLA_OK) return mla_atomic_commit(&file, error);
    mla_atomic_discard(&file);
    return status;
}

/* Every file of the archive under its own name, whatever folder it is in there: nothing lands outside `folder`. */
static mla_status unpack(const char *path, const char *folder, mla_error *error) {
    char target[MLA_PATH_BYTES];
    mla_archive *archive = NULL;
    mla_archive_entry entry = {0};
    uint8_t *chunk = malloc(CHUNK_BYTES);
    if (!chunk) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = mla_archive_open(&archive, path, error);
    while (status == MLA_OK && (status = mla_archive_next(archive, &entry, error)) == MLA_OK && entry.name) {
        const char *slash = strrchr(entry.name, '/'), *name = slash ? slash + 1 : entry.name;
        if (!entry.is_file || !*name) continue;
        status = mla_set_path(target, folder, name, error);
        if (status == MLA_OK) status = unpack_entry(archive, entry.bytes, target, chunk, error);
        if (status == MLA_OK) fprintf(stderr, "wrote %s (%.1f MiB)\n", target, (double)entry.bytes / (1 << 20));
    }
    mla_archive_close(archive);
    free(chunk);
    return status;
}

/* What was written must open. */
static mla_status check_result(const mla_data_config *config, const char *folder, mla_error *error) {
    mla_data_config written = *config;
    if (snprintf(written.path, sizeof written.path, "%s", folder) >= (int)sizeof written.path)
        return mla_fail(error, MLA_INVALID, "path too long: %s", folder);
    for (int split = MLA_SPLIT_TRAIN; split <= MLA_SPLIT_TEST; split++) {
        mla_dataset *set = NULL;
        mla_status status = mla_dataset_open(&set, &written, (mla_split)split, 0, error);
        if (status != MLA_OK) return status;
        printf("%s: %zu images\n", split == MLA_SPLIT_TRAIN ? "train" : "test", mla_dataset_get_info(set)->count);
        mla_dataset_close(set);
    }
    printf("data.path: %s\n", folder);
    return MLA_OK;
}

static mla_status prepare_cifar(const mla_data_config *config, const char *out, mla_error *error) {
    char source[MLA_PATH_BYTES], folder[MLA_PATH_BYTES];
    const char *name = NULL;
    mla_status status = mla_cifar_locate(source, &name, config->set, config->path, error);
    if (status == MLA_OK && mla_path_is_folder(source)) {
        printf("%s is unpacked already: no preparation is needed\ndata.path: %s\n", source, source);
        return MLA_OK;
    }
    if (status == MLA_OK) status = mla_set_path(folder, out, name, error);
    if (status == MLA_OK) status = mla_folders_make(folder, NULL, error);
    if (status == MLA_OK) status = unpack(source, folder, error);
    return status == MLA_OK ? check_result(config, folder, error) : status;
}

/* ---- twins: writing them ---- */

/* Images first .. first + count - 1 as records of CIFAR-10. */
static mla_status write_records(const mla_dataset *set, size_t first, size_t count, const char *path, mla_error *error) {
    const mla_dataset_info *info = mla_dataset_get_info(set);
    size_t record = 1 + 3 * (size_t)info->size * (size_t)info->size;
    uint8_t *bytes = malloc(record);
    mla_atomic_file file;
    if (!bytes) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = mla_atomic_open(&file, path, count * record, error);
    if (status != MLA_OK) {
        free(bytes);
        return status;
    }
    for (size_t i = 0; i < count && status == MLA_OK; i++) {
        int label = 0;
        status = check_stop(path, error);
        if (status == MLA_OK) status = mla_dataset_read(set, first + i, 0, bytes + 1, &label, error);
        bytes[0] = (uint8_t)label;
        if (status == MLA_OK) status = mla_atomic_write(&file, bytes, record, error);
    }
    if (status == MLA_OK)
        status = mla_atomic_commit(&file, error);
    else
        mla_atomic_discard(&file);
    free(bytes);
    if (status == MLA_OK) fprintf(stderr, "wrote %s (%zu images)\n", path, count);
    return status;
}

static mla_status write_names(const mla_dataset_info *info, const char *out, mla_error *error) {
    char path[MLA_PATH_BYTES], text[1024] = "";
    for (int c = 0; c < info->classes; c++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s\n", info->names[c]);
    }
    mla_status status = mla_set_path(path, out, "batches.meta.txt", error);
    return status == MLA_OK ? mla_file_write(path, text, strlen(text), error) : status;
}

static void fill(mla_image *sheet, int left, int top, int width, int height, const uint8_t rgb[3]) {
    for (int y = top; y < top + height; y++)
        for (int x = left; x < left + width; x++)
            memcpy(sheet->rgb + 3 * ((size_t)y * (size_t)sheet->width + (size_t)x), rgb, 3);
}

/* An image enlarged, with a bar in the colour of its class below. */
static mla_status paint_sample(mla_image *sheet, const mla_dataset *set, size_t index, uint8_t *pixels, mla_error *error) {
    int size = mla_dataset_get_info(set)->size, side = size * SHEET_SCALE, label = 0;
    int left = SHEET_GAP + (int)(index % SHEET_SIDE) * (side + SHEET_GAP);
    int top = SHEET_GAP + (int)(index / SHEET_SIDE) * (side + MARK_HEIGHT + 2 * SHEET_GAP);
    uint8_t rgb[3];
    mla_status status = mla_dataset_read(set, index, 0, pixels, &label, error);
    for (int i = 0; i < size * size && status == MLA_OK; i++) {
        for (int c = 0; c < 3; c++) rgb[c] = pixels[c * size * size + i];
        fill(sheet, left + i % size * SHEET_SCALE, top + i / size * SHEET_SCALE, SHEET_SCALE, SHEET_SCALE, rgb);
    }
    if (status == MLA_OK) {
        mla_twins_colour(rgb, label);
        fill(sheet, left, top + side + SHEET_GAP / 2, side, MARK_HEIGHT, rgb);
    }
    return status;
}

static mla_status write_sheet(const mla_dataset *set, const char *out, mla_error *error) {
    char path[MLA_PATH_BYTES];
    const mla_dataset_info *info = mla_dataset_get_info(set);
    int side = info->size * SHEET_SCALE;
    mla_image sheet = {0};
    uint8_t *pixels = malloc(3 * (size_t)info->size * (size_t)info->size);
    mla_status status = mla_set_path(path, out, "twins.png", error);
    if (status == MLA_OK && !pixels) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    if (status == MLA_OK)
        status = mla_image_create(&sheet, SHEET_GAP + SHEET_SIDE * (side + SHEET_GAP),
                                  SHEET_GAP + SHEET_SIDE * (side + MARK_HEIGHT + 2 * SHEET_GAP), path, error);
    if (status == MLA_OK) memset(sheet.rgb, 48, 3 * (size_t)sheet.width * (size_t)sheet.height);
    for (size_t i = 0; i < SHEET_SIDE * SHEET_SIDE && i < info->count && status == MLA_OK; i++)
        status = paint_sample(&sheet, set, i, pixels, error);
    if (status == MLA_OK) status = mla_image_write_png(&sheet, path, error);
    if (status == MLA_OK)
        fprintf(stderr, "wrote %s: the bar below an image is its class, the colour of the query's twin\n", path);
    free(pixels);
    mla_image_free(&sheet);
    return status;
}

static mla_status write_twins(const mla_dataset *train, const mla_dataset *test, const char *out, mla_error *error) {
    char path[MLA_PATH_BYTES], name[32];
    size_t count = mla_dataset_get_info(train)->count;
    mla_status status = mla_folders_make(out, NULL, error);
    for (size_t i = 0; i < TRAIN_FILES && status == MLA_OK; i++) {
        size_t first = count * i / TRAIN_FILES, end = count * (i + 1) / TRAIN_FILES;
        snprintf(name, sizeof name, "data_batch_%zu.bin", i + 1);
        status = mla_set_path(path, out, name, error);
        if (status == MLA_OK) status = write_records(train, first, end - first, path, error);
    }
    if (status == MLA_OK) status = mla_set_path(path, out, "test_batch.bin", error);
    if (status == MLA_OK) status = write_records(test, 0, mla_dataset_get_info(test)->count, path, error);
    if (status == MLA_OK) status = write_names(mla_dataset_get_info(test), out, error);
    return status == MLA_OK ? write_sheet(test, out, error) : status;
}

static mla_status prepare_twins(const mla_data_config *config, const char *out, mla_error *error) {
    mla_dataset *train = NULL, *test = NULL;
    if (config->size != 32)
        return mla_fail(error, MLA_INVALID, "twins are written in CIFAR-10's layout, which is 32 x 32 pixels, not %d",
                        config->size);
    mla_status status = mla_dataset_open(&train, config, MLA_SPLIT_TRAIN, 0, error);
    if (status == MLA_OK) status = mla_dataset_open(&test, config, MLA_SPLIT_TEST, 0, error);
    if (status == MLA_OK) status = write_twins(train, test, out, error);
    mla_dataset_close(train);
    mla_dataset_close(test);
    if (status != MLA_OK) return status;
    mla_data_config written = *config;
    written.set = MLA_SET_CIFAR10;
    return check_result(&written, out, error);
}

mla_status mla_data_prepare(const mla_data_config *config, const char *out, mla_error *error) {
    if (config->set == MLA_SET_IMAGE_FOLDER || config->set == MLA_SET_TINY_IMAGENET) {
        printf("folders of images are read as they are: no preparation is needed\n");
        return MLA_OK;
    }
    if (!out) return mla_fail(error, MLA_INVALID, "prepare needs --out DIR, the folder to write to");
    return config->set == MLA_SET_TWINS ? prepare_twins(config, out, error) : prepare_cifar(config, out, error);
}
