#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint.h"
#include "train/cmd_data.h"
#include "train/dataset.h"
#include "train/file.h"
#include "train/image.h"

/* Image `index` as DIR/NAME. */
static mla_status write_image(const mla_dataset *set, size_t index, int *label, const char *folder, const char *name,
                              mla_error *error) {
    const int side = mla_dataset_get_info(set)->size;
    const size_t plane = (size_t)side * (size_t)side;
    mla_image image = {0};
    char *path = mla_path_join(folder, name);
    uint8_t *planes = malloc(3 * plane);
    mla_status status = path && planes ? mla_image_create(&image, side, side, name, error)
                                       : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    if (status == MLA_OK) status = mla_dataset_read(set, index, 0, planes, label, error);
    for (size_t i = 0; status == MLA_OK && i < 3 * plane; i++) image.rgb[3 * (i % plane) + i / plane] = planes[i];
    if (status == MLA_OK) status = mla_image_write_png(&image, path, error);
    mla_image_free(&image);
    free(planes);
    free(path);
    return status;
}

/* Images spread over the whole split, so that sets sorted by class show more than one. */
static mla_status write_images(const mla_dataset *set, size_t count, const char *folder, mla_error *error) {
    const mla_dataset_info *info = mla_dataset_get_info(set);
    if (count > info->count) count = info->count;
    json_t *list = json_array();
    mla_status status = MLA_OK;
    for (size_t i = 0; i < count && status == MLA_OK; i++) {
        char name[64];
        int label = -1;
        snprintf(name, sizeof name, "sample-%02zu.png", i);
        status = write_image(set, i * info->count / count, &label, folder, name, error);
        if (status == MLA_OK && label >= 0) /* -1: an unreadable image that the config says to skip */
            json_array_append_new(list,
                                  json_pack("{s:s, s:i, s:s}", "file", name, "label", label, "class", info->names[label]));
    }
    char *text = json_dumps(list, JSON_INDENT(1)), *path = mla_path_join(folder, "samples.json");
    if (status == MLA_OK && (!text || !path)) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    if (status == MLA_OK) status = mla_file_write(path, text, strlen(text), error);
    if (status == MLA_OK) printf("%s: %zu test images\n", path, json_array_size(list));
    free(text);
    free(path);
    json_decref(list);
    return status;
}

mla_status mla_data_sample(const char *checkpoint_path, const char *data, size_t count, const char *out, mla_error *error) {
    mla_checkpoint checkpoint;
    mla_dataset *set = NULL;
    mla_status status = mla_checkpoint_open(&checkpoint, checkpoint_path, NULL, 0, error);
    if (status != MLA_OK) return status;
    mla_data_config config = checkpoint.config.data;
    if (data) snprintf(config.path, sizeof config.path, "%s", data);
    status = mla_dataset_open(&set, &config, MLA_SPLIT_TEST, checkpoint.config.train.seed, error);
    if (status == MLA_OK) status = mla_dataset_map_classes(set, checkpoint.classes.names, checkpoint.classes.count, error);
    if (status == MLA_OK) status = mla_folders_make(out, NULL, error);
    if (status == MLA_OK) status = write_images(set, count, out, error);
    mla_dataset_close(set);
    mla_checkpoint_close(&checkpoint);
    return status;
}
