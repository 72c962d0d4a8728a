#include "train/preview.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/augment.h"
#include "train/figure.h"
#include "train/loader.h"
#include "train/mix.h"

enum {
    LEAST_TILE = 128, /* smaller images are enlarged */
    MOST_COLUMNS = 8,
    MOST_WIDTH = 1900, /* of the tiles side by side */
    LEAST_WIDTH = 640,
    MARGIN = 14,
    GUTTER = 78, /* what the rows are */
    GAP = 8,
    TITLE = 62,
    LINE = 15, /* of text */
    BLACK = 0x1a1a1a,
    GREY = 0x666666
};

typedef struct preview {
    const mla_config *config;
    const mla_preview_options *options;
    mla_dataset *dataset;
    const mla_dataset_info *info;
    mla_loader loader;
    uint32_t *order;
    mla_shard shard; /* of one image */
    mla_figure *sheet;
    mla_image tile;
    size_t count;
    int scale, side, columns; /* side of a tile */
    bool mixes;
} preview;

static int pictures_of(const preview *v) { return v->mixes ? 3 : 2; }

/* Of a block of rows that belong together. */
static int block_height(const preview *v) { return pictures_of(v) * (v->side + GAP) + (v->mixes ? 2 : 1) * LINE + 2 * GAP; }

static mla_status lay_out(preview *v, mla_error *error) {
    const int size = v->info->size;
    v->scale = size < LEAST_TILE ? LEAST_TILE / size : 1;
    v->side = v->scale * size;
    v->columns = MOST_WIDTH / (v->side + GAP);
    v->columns = v->columns < 1 ? 1 : v->columns > MOST_COLUMNS ? MOST_COLUMNS : v->columns;
    if ((size_t)v->columns > v->count) v->columns = (int)v->count;
    const size_t columns = (size_t)v->columns, blocks = (v->count + columns - 1) / columns;
    const size_t most = (size_t)((MLA_FIGURE_MAX_SIDE - TITLE) / block_height(v));
    if (blocks > most)
        return mla_fail(error, MLA_INVALID, "%zu images of %d x %d pixels do not fit on a picture; %zu do", v->count, size,
                        size, most * columns);
    const int width = 2 * MARGIN + GUTTER + v->columns * (v->side + GAP);
    const mla_status status = mla_image_create(&v->tile, v->side, v->side, "preview", error);
    if (status != MLA_OK) return status;
    return mla_figure_new(&v->sheet, width < LEAST_WIDTH ? LEAST_WIDTH : width, TITLE + (int)blocks * block_height(v),
                          error);
}

static mla_status open_all(preview *v, mla_error *error) {
    const mla_train_config *train = &v->config->train;
    mla_status status = mla_dataset_open(&v->dataset, &v->config->data, MLA_SPLIT_TRAIN, train->seed, error);
    if (status != MLA_OK) return status;
    v->info = mla_dataset_get_info(v->dataset);
    v->count = v->options->count < v->info->count ? v->options->count : v->info->count;
    v->mixes = mla_mix_on(&v->config->augment, v->options->epoch);
    v->order = malloc(v->info->count * sizeof *v->order);
    if (!mla_shard_allocate(&v->shard, 1, (size_t)v->info->size) || !v->order)
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the order of %zu images", v->info->count);
    mla_shuffle(v->order, v->info->count, train->seed, v->options->epoch);
    v->loader = (mla_loader){.dataset = v->dataset,
                             .order = v->order,
                             .augment = &v->config->augment,
                             .seed = train->seed,
                             .epoch = v->options->epoch};
    memcpy(v->loader.mean, v->info->mean, sizeof v->loader.mean);
    memcpy(v->loader.std, v->info->std, sizeof v->loader.std);
    return lay_out(v, error);
}

static void close_all(preview *v) {
    mla_figure_free(v->sheet);
    mla_image_free(&v->tile);
    mla_shard_free(&v->shard);
    free(v->order);
    mla_dataset_close(v->dataset);
}

/* Enlarges planar bytes, each pixel to a square, and draws them. */
static void draw_tile(preview *v, int x, int y, const uint8_t *planes) {
    const size_t size = (size_t)v->info->size, scale = (size_t)v->scale, side = (size_t)v->side;
    for (size_t row = 0; row < side; row++)
        for (size_t column = 0; column < side; column++)
            for (size_t c = 0; c < 3; c++)
                v->tile.rgb[3 * (row * side + column) + c] = planes[(c * size + row / scale) * size + column / scale];
    mla_figure_image(v->sheet, x, y, &v->tile);
}

/* As the data set has it. */
static mla_status draw_original(preview *v, int x, int y, uint64_t place, mla_error *error) {
    int label;
    const uint64_t sample = mla_loader_sample(&v->loader, place);
    const mla_status status = mla_dataset_read(v->dataset, sample, v->options->epoch, v->shard.pixels, &label, error);
    if (status == MLA_OK) draw_tile(v, x, y, v->shard.pixels);
    return status;
}

static void draw_as_trained(preview *v, int x, int y) {
    const size_t plane = (size_t)v->info->size * (size_t)v->info->size;
    for (size_t i = 0; i < 3 * plane; i++) {
        const double value = (double)v->shard.images[i] * v->info->std[i / plane] + v->info->mean[i / plane];
        v->shard.pixels[i] = (uint8_t)lround(255 * fmin(fmax(value, 0), 1));
    }
    draw_tile(v, x, y, v->shard.pixels);
}

static void draw_label(preview *v, int x, int y, int label, double share) {
    const mla_text_style left = {11.5, false, BLACK, MLA_ALIGN_LEFT, v->side - 32},
                         right = {11.5, false, GREY, MLA_ALIGN_RIGHT, 0};
    char text[16];
    mla_figure_text(v->sheet, x, y, left, label < 0 ? "unreadable" : v->info->names[label]);
    if (share == 1) return;
    snprintf(text, sizeof text, "%d %%", (int)lround(100 * share));
    mla_figure_text(v->sheet, x + v->side, y, right, text);
}

static mla_status draw_column(preview *v, int x, int y, uint64_t at, mla_error *error) {
    const uint64_t total = v->info->count, batch = (uint64_t)v->config->train.batch;
    v->loader.first = at / batch * batch;
    v->loader.batch = total - v->loader.first < batch ? total - v->loader.first : batch;
    const uint64_t place = at - v->loader.first;
    const mla_image_source source = mla_loader_source(&v->loader);
    v->shard.shares[0] = 1;
    mla_status status = source.load(source.context, place, 1, &v->shard, error);
    if (status != MLA_OK) return status;
    draw_as_trained(v, x, y + (pictures_of(v) - 1) * (v->side + GAP));
    const bool mixed = v->shard.shares[0] != 1;
    const int text = y + pictures_of(v) * (v->side + GAP) + LINE - GAP;
    draw_label(v, x, text, v->shard.labels[0], (double)v->shard.shares[0]);
    if (mixed) draw_label(v, x, text + LINE, v->shard.others[0], 1 - (double)v->shard.shares[0]);
    status = draw_original(v, x, y, place, error);
    if (status == MLA_OK && mixed) status = draw_original(v, x, y + v->side + GAP, v->loader.batch - 1 - place, error);
    return status;
}

static void draw_title(preview *v) {
    const int width = 2 * MARGIN + GUTTER + v->columns * (v->side + GAP),
              room = (width < LEAST_WIDTH ? LEAST_WIDTH : width) - 2 * MARGIN;
    char text[MLA_PATH_BYTES + 256], augmentation[MLA_AUGMENT_TEXT_BYTES];
    snprintf(text, sizeof text, "%s: %s, %d x %d pixels, the first %zu images of epoch %" PRIu64, v->options->title,
             mla_data_set_name(v->config->data.set), v->info->size, v->info->size, v->count, v->options->epoch + 1);
    mla_figure_text(v->sheet, MARGIN, 24, (mla_text_style){14, true, BLACK, MLA_ALIGN_LEFT, room}, text);
    mla_augment_describe(&v->config->augment, augmentation);
    mla_figure_text(v->sheet, MARGIN, 44, (mla_text_style){11.5, false, GREY, MLA_ALIGN_LEFT, room}, augmentation);
}

static void draw_gutter(preview *v, int y) {
    static const char *const names[2][3] = {{"original", "as trained"}, {"original", "mixed with", "as trained"}};
    for (int i = 0; i < pictures_of(v); i++)
        mla_figure_text(v->sheet, MARGIN, y + i * (v->side + GAP) + v->side / 2 + 4,
                        (mla_text_style){11.5, false, GREY, MLA_ALIGN_LEFT, 0}, names[v->mixes][i]);
}

mla_status mla_preview_write(const mla_config *config, const mla_preview_options *options, size_t *count, mla_error *error) {
    preview v = {.config = config, .options = options};
    mla_status status = open_all(&v, error);
    int y = TITLE;
    if (status == MLA_OK) draw_title(&v);
    for (size_t at = 0; status == MLA_OK && at < v.count; at++) {
        const int column = (int)(at % (size_t)v.columns);
        if (at && column == 0) y += block_height(&v);
        if (column == 0) draw_gutter(&v, y);
        status = draw_column(&v, MARGIN + GUTTER + column * (v.side + GAP), y, at, error);
    }
    if (status == MLA_OK) status = mla_figure_write(v.sheet, y + block_height(&v), options->path, error);
    *count = v.count;
    close_all(&v);
    return status;
}
