#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cmd_data.h"
#include "train/dataset.h"
#include "train/interrupt.h"
#include "train/machine.h"
#include "train/progress.h"

/* An image that can't be read. */
typedef struct complaint {
    size_t index;
    char *text;
} complaint;

typedef struct survey {
    size_t *images;             /* (classes) readable images */
    uint64_t sum[3], square[3]; /* of the pixels of all readable images; whole numbers, so in any order */
    size_t read;
    complaint *complaints;
    size_t complaint_count, complaint_room;
    bool out_of_memory;
    size_t done; /* readable or not */
    mla_progress progress;
} survey;

static void survey_free(survey *s) {
    for (size_t i = 0; i < s->complaint_count; i++) free(s->complaints[i].text);
    free(s->complaints);
    free(s->images);
}

static void complain(survey *s, size_t index, const char *text) {
    if (s->complaint_count == s->complaint_room) {
        size_t room = s->complaint_room ? 2 * s->complaint_room : 16;
        complaint *list = realloc(s->complaints, room * sizeof *list);
        if (!list) {
            s->out_of_memory = true;
            return;
        }
        s->complaints = list;
        s->complaint_room = room;
    }
    s->complaints[s->complaint_count] = (complaint){index, strdup(text)};
    s->complaint_count++;
}

static int by_index(const void *a, const void *b) {
    size_t i = ((const complaint *)a)->index, j = ((const complaint *)b)->index;
    return (i > j) - (i < j);
}

static void add_pixels(survey *s, const uint8_t *pixels, size_t plane, int label) {
    uint64_t sum[3] = {0}, square[3] = {0};
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < plane; i++) {
            uint32_t value = pixels[c * plane + i];
            sum[c] += value;
            square[c] += value * value;
        }
#pragma omp critical(mla_survey)
    {
        for (int c = 0; c < 3; c++) {
            s->sum[c] += sum[c];
            s->square[c] += square[c];
        }
        s->images[label]++;
        s->read++;
    }
}

static void read_all(survey *s, const mla_dataset *set, const char *name) {
    const mla_dataset_info *info = mla_dataset_get_info(set);
    size_t count = info->count, plane = (size_t)info->size * (size_t)info->size;
    mla_progress_start(&s->progress, 0);
#pragma omp parallel num_threads(mla_machine_cores())
    {
        uint8_t *pixels = malloc(3 * plane);
        mla_error error = {0};
#pragma omp for schedule(dynamic, 16)
        for (size_t i = 0; i < count; i++) {
            int label = 0;
            if (mla_interrupted || !pixels) continue;
            bool readable = mla_dataset_read(set, i, 0, pixels, &label, &error) == MLA_OK;
            if (readable) add_pixels(s, pixels, plane, label);
#pragma omp critical(mla_survey)
            {
                if (!readable) complain(s, i, error.text);
                mla_progress_show(&s->progress, ++s->done, count, name);
            }
        }
        if (!pixels) {
#pragma omp critical(mla_survey)
            s->out_of_memory = true;
        }
        free(pixels);
    }
    mla_progress_clear(&s->progress);
}

static void print_survey(survey *s, const mla_dataset_info *info, const char *name) {
    double pixels = (double)s->read * info->size * info->size, mean[3] = {0}, std[3] = {0};
    for (int c = 0; c < 3 && s->read; c++) {
        mean[c] = (double)s->sum[c] / pixels / 255.0;
        std[c] = sqrt(fmax(0.0, (double)s->square[c] / pixels / (255.0 * 255.0) - mean[c] * mean[c]));
    }
    printf("%s: %zu images, %d classes, read as %d x %d pixels\n", name, info->count, info->classes, info->size, info->size);
    printf("  source        %s\n", info->source);
    printf("  mean          %.4f %.4f %.4f   (used: %.4f %.4f %.4f)\n", mean[0], mean[1], mean[2], info->mean[0],
           info->mean[1], info->mean[2]);
    printf("  deviation     %.4f %.4f %.4f   (used: %.4f %.4f %.4f)\n", std[0], std[1], std[2], info->std[0], info->std[1],
           info->std[2]);
    for (int c = 0; c < info->classes; c++) printf("  %5d  %-24s %zu\n", c, info->names[c], s->images[c]);
    if (info->note) printf("  note          %s\n", info->note);
    printf("  unreadable    %zu\n", s->complaint_count);
    if (s->complaint_count) qsort(s->complaints, s->complaint_count, sizeof *s->complaints, by_index);
    for (size_t i = 0; i < s->complaint_count; i++)
        printf("    %s\n", s->complaints[i].text ? s->complaints[i].text : "(out of memory)");
}

static mla_status verify_split(const mla_data_config *config, mla_split split, size_t *unreadable, mla_error *error) {
    const char *name = split == MLA_SPLIT_TRAIN ? "train" : "test";
    mla_dataset *set = NULL;
    mla_status status = mla_dataset_open(&set, config, split, 0, error);
    if (status != MLA_OK) return mla_fail_context(error, "%s split: ", name);
    const mla_dataset_info *info = mla_dataset_get_info(set);
    survey s = {0};
    s.images = calloc((size_t)info->classes, sizeof *s.images);
    fprintf(stderr, "reading %zu images of the %s split\n", info->count, name);
    if (s.images) read_all(&s, set, name);
    if (!s.images || s.out_of_memory)
        status = mla_fail(error, MLA_NO_MEMORY, "%s split: out of memory", name);
    else if (mla_interrupted)
        status =
            mla_fail(error, MLA_INTERRUPTED, "%s split: interrupted after %zu of %zu images", name, s.read, info->count);
    else
        print_survey(&s, info, name);
    *unreadable += s.complaint_count;
    survey_free(&s);
    mla_dataset_close(set);
    return status;
}

mla_status mla_data_verify(const mla_data_config *config, size_t *unreadable, mla_error *error) {
    mla_data_config strict = *config;
    strict.on_error = MLA_ON_ERROR_FAIL;
    mla_status status = verify_split(&strict, MLA_SPLIT_TRAIN, unreadable, error);
    if (status == MLA_OK) status = verify_split(&strict, MLA_SPLIT_TEST, unreadable, error);
    return status;
}
