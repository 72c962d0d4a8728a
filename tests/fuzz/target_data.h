/* Opening a data set on a path and reading all of it, for the targets of CIFAR's two forms. */
#ifndef MLA_TESTS_FUZZ_DATA_H
#define MLA_TESTS_FUZZ_DATA_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"
#include "train/dataset.h"

enum { FUZZ_IMAGES_MOST = 16 };

static inline void fuzz_open_data(mla_data_set kind, const char *path, mla_split split, int size, double subset) {
    static mla_data_config config;
    mla_dataset *set;
    mla_error error = {0};
    config = (mla_data_config){
        .set = kind, .size = size, .mean_auto = true, .std_auto = true, .subset = subset, .crop_pct = 0.875};
    snprintf(config.path, sizeof config.path, "%s", path);
    const mla_status status = mla_dataset_open(&set, &config, split, 1, &error);
    fuzz_check(status, &error);
    MLA_REQUIRE((status == MLA_OK) == (set != NULL), "a data set without success, or the other way round");
    if (!set) return;
    const mla_dataset_info *info = mla_dataset_get_info(set);
    uint8_t *pixels = malloc(3 * (size_t)size * (size_t)size);
    MLA_REQUIRE(pixels && info->count > 0, "out of memory, or a data set without images");
    for (size_t i = 0; i < info->count && i < FUZZ_IMAGES_MOST; i++) {
        int label = -1;
        fuzz_check(mla_dataset_read(set, i, 0, pixels, &label, &error), &error);
        MLA_REQUIRE(label >= 0 && label < info->classes, "label %d of %d classes", label, info->classes);
    }
    free(pixels);
    mla_dataset_close(set);
}

#endif
