/* Twins: a data set without files, on which attention is the only way to the answer.
 *
 * The image is a grid of cells.  Every cell shows a glyph, a pattern of black and white dots that is new in every
 * image, inside a frame of a random colour.  One cell, the query, has a grey frame, and its glyph is that of exactly
 * one other cell, its twin.  The class is the colour of the twin.
 *
 *     cell of 8 x 8 pixels: frame of 1 pixel (28 around), glyph of 6 x 6 dots, 18 of them white
 *
 * Glyphs have a left half and its mirror image, which people match at a glance.  The frame of each colour is bright
 * and dim (a quarter) in that colour's own rhythm: ten hues out of three channels are hard to keep apart for a small
 * model that averages over tokens.  With plain frames a model of two blocks and width 64 stays at guessing the
 * commonest colour (26 %) after 1,600 steps of 128; with the rhythm it solves the task.
 *
 * Larger cells are drawn enlarged, smaller ones have fewer dots.  A training image is a function of (seed, epoch,
 * index); the test set is the same for all seeds.
 */
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "train/dataset_kind.h"

enum {
    COLOURS = 10,
    MAX_GRID = 32,
    MAX_CELLS = MAX_GRID * MAX_GRID,
    MAX_DOTS = 6, /* along a side of the glyph */
    MIN_CELL = 6, /* pixels: 4 dots and the frame */
    GREY = 128,
    DIM = 4,   /* the dim units of a frame have the colour divided by this */
    TRIES = 64 /* for one glyph, before nearer ones are allowed */
};

/* Test images come from an epoch that training never reaches. */
static const uint64_t test_seed = 0x7477696e73, test_epoch = UINT32_MAX;

typedef struct colour {
    const char *name;
    uint8_t rgb[3];
    uint32_t bright; /* bit i: unit i of the frame is bright, clockwise from the top left corner */
} colour;

/* Rhythms: the best of 3,000 random draws of 14 bright units out of 28; any two differ in at least 12. */
static const colour colours[COLOURS] = {
    {"red", {255, 0, 0}, 0x4a38dba},      {"orange", {255, 128, 0}, 0xc28acf5},  {"yellow", {255, 255, 0}, 0x27d5d14},
    {"green", {0, 255, 0}, 0x959fe02},    {"cyan", {0, 255, 255}, 0x5f52e50},    {"blue", {0, 0, 255}, 0x342db1b},
    {"violet", {128, 0, 255}, 0xb4b41ea}, {"magenta", {255, 0, 255}, 0x43e23bc}, {"brown", {128, 64, 0}, 0x7c7b122},
    {"pink", {255, 160, 200}, 0xad64ee0},
};

typedef struct twins_state {
    int size, grid, cell;
    int dots;     /* along a side of the glyph */
    int columns;  /* of the glyph that are drawn by chance; the others mirror them */
    int scale;    /* pixels of a dot's side */
    int distance; /* least number of dots in which the random columns of two glyphs differ */
    uint64_t seed;
    bool test;
} twins_state;

/* What an image shows; `glyphs` bit (y columns + x). */
typedef struct twins_scene {
    int cells, query, twin;
    uint8_t colour[MAX_CELLS];
    uint32_t glyphs[MAX_CELLS];
} twins_scene;

/* A glyph with half of its dots lit, so that its brightness says nothing, and unlike all before. */
static uint32_t draw_glyph(mla_rng *rng, const uint32_t *before, int count, const twins_state *state) {
    int bits = state->dots * state->columns, distance = state->distance, tries = 0;
    for (;;) {
        uint32_t glyph = mla_rng_u32(rng) >> (32 - bits);
        if (__builtin_popcount(glyph) != bits / 2) continue;
        int i = 0;
        while (i < count && __builtin_popcount(glyph ^ before[i]) >= distance) i++;
        if (i == count) return glyph;
        if (++tries % TRIES == 0 && distance > 2) distance -= 2; /* crowded: many cells with few dots */
    }
}

static void draw_scene(twins_scene *scene, const twins_state *state, mla_rng *rng) {
    int cells = state->grid * state->grid;
    scene->cells = cells;
    scene->query = (int)mla_rng_below(rng, (uint32_t)cells);
    scene->twin = (scene->query + 1 + (int)mla_rng_below(rng, (uint32_t)cells - 1)) % cells;
    for (int i = 0; i < cells; i++) {
        scene->colour[i] = (uint8_t)mla_rng_below(rng, COLOURS);
        scene->glyphs[i] = draw_glyph(rng, scene->glyphs, i, state);
    }
    scene->glyphs[scene->query] = scene->glyphs[scene->twin];
}

/* One unit (a dot or a piece of the frame) of `scale` x `scale` pixels. */
static void fill_unit(uint8_t *pixels, const twins_state *state, int left, int top, const uint8_t rgb[3]) {
    size_t row = (size_t)state->size, plane = row * row;
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < state->scale; y++)
            memset(pixels + (size_t)c * plane + (size_t)(top + y) * row + left, rgb[c], (size_t)state->scale);
}

static void paint_frame(uint8_t *pixels, const twins_state *state, int left, int top, const colour *hue) {
    static const uint8_t grey[3] = {GREY, GREY, GREY};
    uint8_t dim[3] = {0};
    for (int c = 0; hue && c < 3; c++) dim[c] = hue->rgb[c] / DIM;
    int side = state->dots + 1; /* units from corner to corner */
    for (int i = 0; i < 4 * side; i++) {
        int along = i % side, edge = i / side;
        int x = edge == 0 ? along : edge == 1 ? side : edge == 2 ? side - along : 0;
        int y = edge == 0 ? 0 : edge == 1 ? along : edge == 2 ? side : side - along;
        const uint8_t *rgb = !hue ? grey : hue->bright >> i & 1 ? hue->rgb : dim;
        fill_unit(pixels, state, left + x * state->scale, top + y * state->scale, rgb);
    }
}

static void paint_cell(uint8_t *pixels, const twins_state *state, const twins_scene *scene, int index) {
    static const uint8_t white[3] = {255, 255, 255};
    int left = index % state->grid * state->cell, top = index / state->grid * state->cell, dots = state->dots;
    paint_frame(pixels, state, left, top, index == scene->query ? NULL : &colours[scene->colour[index]]);
    for (int y = 0; y < dots; y++)
        for (int x = 0; x < dots; x++) {
            int column = x < state->columns ? x : dots - 1 - x;
            if (scene->glyphs[index] >> (y * state->columns + column) & 1)
                fill_unit(pixels, state, left + (1 + x) * state->scale, top + (1 + y) * state->scale, white);
        }
}

static mla_status twins_read(const mla_dataset *set, size_t index, uint64_t epoch, uint8_t *pixels, int *label,
                             mla_error *error) {
    (void)error;
    const twins_state *state = set->state;
    twins_scene scene;
    mla_rng rng = state->test ? mla_rng_stream(test_seed, MLA_RNG_DATASET, test_epoch, index)
                              : mla_rng_stream(state->seed, MLA_RNG_DATASET, epoch, index);
    draw_scene(&scene, state, &rng);
    memset(pixels, 0, 3 * (size_t)state->size * (size_t)state->size);
    for (int i = 0; i < scene.cells; i++) paint_cell(pixels, state, &scene, i);
    *label = scene.colour[scene.twin];
    return MLA_OK;
}

static mla_status check_geometry(const mla_data_config *config, mla_error *error) {
    int grid = config->twins_grid;
    if (grid < 2 || grid > MAX_GRID)
        return mla_fail(error, MLA_INVALID, "data.twins.grid is %d, expected 2 to %d cells a side", grid, MAX_GRID);
    if (config->size % grid)
        return mla_fail(error, MLA_INVALID, "data.size %d does not divide into %d cells a side (data.twins.grid)",
                        config->size, grid);
    if (config->size / grid < MIN_CELL)
        return mla_fail(error, MLA_INVALID,
                        "data.size %d leaves %d pixels for each of %d cells a side, at least %d are needed: size %d or more",
                        config->size, config->size / grid, grid, MIN_CELL, MIN_CELL * grid);
    return MLA_OK;
}

static mla_status twins_open(mla_dataset *set, const mla_data_config *config, mla_split split, uint64_t seed,
                             mla_error *error) {
    mla_status status = check_geometry(config, error);
    twins_state *state = NULL;
    if (status != MLA_OK) return status;
    if (!(set->state = state = calloc(1, sizeof *state)))
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the data set twins");
    state->size = config->size;
    state->grid = config->twins_grid;
    state->cell = state->size / state->grid;
    state->dots = state->cell - 2 < MAX_DOTS ? state->cell - 2 : MAX_DOTS;
    state->scale = state->cell / (state->dots + 2);
    /* 4 x 4 dots have too few mirrored patterns. */
    state->columns = state->dots > 4 ? (state->dots + 1) / 2 : state->dots;
    state->distance = state->dots == MAX_DOTS && state->grid <= 8 ? 6 : 4;
    state->seed = seed;
    state->test = split == MLA_SPLIT_TEST;
    set->info.count = (size_t)(state->test ? config->twins_test : config->twins_train);
    set->info.size = config->size;
    /* Mean and deviation of the pixels of 4 x 4 cells of 8 x 8. */
    memcpy(set->info.mean, (const double[3]){0.4493, 0.4071, 0.4174}, sizeof set->info.mean);
    memcpy(set->info.std, (const double[3]){0.4546, 0.4506, 0.4629}, sizeof set->info.std);
    const char *names[COLOURS];
    for (int i = 0; i < COLOURS; i++) names[i] = colours[i].name;
    return mla_dataset_set_names(set, names, COLOURS, error);
}

void mla_twins_colour(uint8_t rgb[3], int label) { memcpy(rgb, colours[label].rgb, 3); }

static void twins_close(mla_dataset *set) { free(set->state); }

const mla_set_kind mla_set_twins = {
    .name = "twins",
    .expects = "nothing: the images are generated",
    .generated = true,
    .open = twins_open,
    .read = twins_read,
    .close = twins_close,
};
