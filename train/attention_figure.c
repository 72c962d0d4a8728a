#include "train/attention_figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/probe.h"
#include "train/colormap.h"
#include "train/config_schema.h"
#include "train/dataset.h"
#include "train/figure.h"

/* Pixels. */
enum {
    TILE = 120,
    GAP = 14,
    MARGIN = 16,
    TITLE = 34,
    HEADING = 20,
    LABEL = 16,
    SCALE = 26,
    HISTOGRAM = 54,
    BELOW = 14,
    LEGEND_LINE = 15,
    LEGEND_WIDTH = 780,
    LEGEND = 4 * LEGEND_LINE,
    CLASS_LINE = 15,
    MOST_CLASSES = 5
};
enum { BINS = 36 };
static const double REACH = 3;           /* of the histograms, in units of the rms */
static const double COLOUR_SHARE = 0.65; /* of a map over the grey picture */
static const uint32_t BLACK = 0x1a1a1a, GREY = 0x6b6b6b, PALE = 0xececec, BEFORE_COLOUR = 0xb5b5b5, AFTER_COLOUR = 0xd95f02,
                      BAR_COLOUR = 0xcfe3f3;

struct mla_attention_figure {
    const mla_loaded *loaded;
    mla_attention_options options;
    mla_figure *sheet;
    int y; /* where the next block begins */
    mla_tape *tape;
    real *input;             /* (3, S, S) */
    uint8_t *pixels;         /* (3, max(S, TILE), max(S, TILE)) */
    mla_image picture, grey; /* TILE x TILE */
};

/* ---- sizes */

int mla_attention_layers(const mla_model_spec *spec) {
    int layers = 0;
    for (int i = 0; i < spec->stages; i++) layers += spec->depths[i];
    return layers;
}

static bool maps_by_relu(const mla_model_spec *spec) {
    return mla_model_has_kind(spec, MLA_ATTENTION_RELU) || mla_model_has_kind(spec, MLA_ATTENTION_MIRROR);
}

static int heads_of(const mla_model_spec *spec, int layer) {
    int stage = 0;
    while (layer >= spec->depths[stage]) layer -= spec->depths[stage++];
    return spec->heads[stage];
}

/* Maps side by side: a column a layer or, with a row a layer, a column a head. */
static int map_columns(const mla_model_spec *spec, const mla_attention_options *options) {
    int most = options->each_head ? 1 : options->layer_count;
    for (int i = 0; options->each_head && i < options->layer_count; i++)
        if (heads_of(spec, options->layers[i]) > most) most = heads_of(spec, options->layers[i]);
    return most;
}

static int row_height(const mla_model_spec *spec) { return LABEL + TILE + SCALE + (maps_by_relu(spec) ? HISTOGRAM : 0); }

static int block_height(const mla_model_spec *spec, const mla_attention_options *options) {
    const int rows = (options->each_head ? options->layer_count : 1) * row_height(spec);
    const int classes = LABEL + TILE + 4 + CLASS_LINE * MOST_CLASSES;
    return HEADING + (rows > classes ? rows : classes) + BELOW;
}

/* At least as wide as the legend. */
static int sheet_width(const mla_model_spec *spec, const mla_attention_options *options) {
    const int columns = 2 * MARGIN + (2 + map_columns(spec, options)) * (TILE + GAP) - GAP;
    return columns > LEGEND_WIDTH ? columns : LEGEND_WIDTH;
}

static int column_x(int column) { return MARGIN + column * (TILE + GAP); }

size_t mla_attention_figure_room(const mla_model_spec *spec, const mla_attention_options *options) {
    if (sheet_width(spec, options) > MLA_FIGURE_MAX_SIDE) return 0;
    return (size_t)((MLA_FIGURE_MAX_SIDE - TITLE - LEGEND) / block_height(spec, options));
}

/* ---- open, close */

static void draw_title(mla_attention_figure *f, const char *origin) {
    const mla_checkpoint *c = &f->loaded->checkpoint;
    char text[MLA_PATH_BYTES + 256], kinds[MLA_KINDS_BYTES];
    snprintf(text, sizeof text, "%s with %s attention, %s weights: %s", mla_family_name(c->config.model.family),
             mla_attention_kinds_text(&c->config.model, kinds), f->loaded->average ? "averaged" : "raw", origin);
    mla_figure_text(f->sheet, MARGIN, 22,
                    (mla_text_style){13, true, BLACK, MLA_ALIGN_LEFT,
                                     sheet_width(&f->loaded->checkpoint.config.model, &f->options) - 2 * MARGIN},
                    text);
}

mla_status mla_attention_figure_new(mla_attention_figure **out, const mla_loaded *loaded, const char *origin,
                                    const mla_attention_options *options, int images, mla_error *error) {
    const mla_model_spec *spec = &loaded->checkpoint.config.model;
    const size_t side = (size_t)spec->image, most = side > TILE ? side : TILE;
    *out = NULL;
    mla_attention_figure *f = calloc(1, sizeof *f);
    if (!f) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a picture");
    f->loaded = loaded;
    f->options = *options;
    f->y = TITLE;
    f->tape = mla_tape_new();
    f->input = malloc(3 * side * side * sizeof *f->input);
    f->pixels = malloc(3 * most * most);
    mla_status status =
        f->tape && f->input && f->pixels ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for a picture");
    if (status == MLA_OK) status = mla_image_create(&f->picture, TILE, TILE, "a picture", error);
    if (status == MLA_OK) status = mla_image_create(&f->grey, TILE, TILE, "a picture", error);
    if (status == MLA_OK)
        status = mla_figure_new(&f->sheet, sheet_width(spec, options), TITLE + images * block_height(spec, options) + LEGEND,
                                error);
    if (status != MLA_OK) {
        mla_attention_figure_free(f);
        return status;
    }
    draw_title(f, origin);
    *out = f;
    return MLA_OK;
}

void mla_attention_figure_free(mla_attention_figure *f) {
    if (!f) return;
    mla_figure_free(f->sheet);
    mla_tape_free(f->tape);
    mla_image_free(&f->picture);
    mla_image_free(&f->grey);
    free(f->input);
    free(f->pixels);
    free(f);
}

/* ---- the picture under the maps */

static mla_status picture_from_planes(mla_attention_figure *f, int side, mla_error *error) {
    mla_image image, resized;
    const size_t plane = (size_t)side * (size_t)side;
    mla_status status = mla_image_create(&image, side, side, "a picture", error);
    if (status != MLA_OK) return status;
    for (size_t i = 0; i < plane; i++)
        for (size_t c = 0; c < 3; c++) image.rgb[3 * i + c] = f->pixels[c * plane + i];
    status = mla_image_resize(&resized, &image, TILE, TILE, MLA_BICUBIC, error);
    mla_image_free(&image);
    if (status != MLA_OK) return status;
    memcpy(f->picture.rgb, resized.rgb, 3 * TILE * TILE);
    mla_image_free(&resized);
    for (int i = 0; i < TILE * TILE; i++) {
        const uint8_t *p = f->picture.rgb + 3 * i;
        const int luma = (299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000; /* ITU-R BT.601 */
        memset(f->grey.rgb + 3 * i, 72 + luma * 3 / 7,
               3); /* without its extremes, which would look like values of the map */
    }
    return MLA_OK;
}

/* The model's input, and the same part of the image for people: from the file where that is finer. */
static mla_status read_image(mla_attention_figure *f, const char *path, mla_error *error) {
    const mla_checkpoint *c = &f->loaded->checkpoint;
    mla_image image;
    mla_status status = mla_image_load(&image, path, error);
    if (status != MLA_OK) return status;
    int side = c->classes.size;
    status = mla_predict_fit(f->pixels, &image, c, error);
    if (status == MLA_OK) mla_image_prepare(f->input, f->pixels, side, c->classes.mean, c->classes.std, NULL, 0, 0, 0);
    if (status == MLA_OK && side < TILE && (image.width != side || image.height != side)) {
        mla_data_config fine = c->config.data;
        side = fine.size = TILE;
        status = mla_image_fit(f->pixels, &image, &fine, error);
    }
    mla_image_free(&image);
    return status == MLA_OK ? picture_from_planes(f, side, error) : status;
}

/* ---- maps */

/* A map's values, and the numbers at the ends of its colours. */
typedef struct map {
    const real *value; /* (side, side) */
    size_t tokens;
    double low, high;
    mla_colours colours;
} map;

/* Interpolates the levels of the colours, 0 to 255, to the size of the picture. */
static mla_status map_levels(mla_image *levels, const map *m, mla_error *error) {
    const int side = (int)lround(sqrt((double)m->tokens));
    mla_image small;
    mla_status status = mla_image_create(&small, side, side, "a map", error);
    if (status != MLA_OK) return status;
    for (size_t i = 0; i < m->tokens; i++) {
        const double level = 255 * ((double)m->value[i] - m->low) / (m->high - m->low);
        memset(small.rgb + 3 * i, (int)lround(fmin(fmax(level, 0), 255)), 3);
    }
    status = mla_image_resize(levels, &small, TILE, TILE, MLA_BICUBIC, error);
    mla_image_free(&small);
    return status;
}

static void draw_scale(mla_attention_figure *f, int x, int y, const map *m) {
    char low[32], high[32];
    for (int i = 0; i < TILE; i++) mla_figure_box(f->sheet, x + i, y, 1, 6, mla_colour(m->colours, 255 * i / (TILE - 1)));
    snprintf(low, sizeof low, "%.2f", m->low);
    snprintf(high, sizeof high, m->colours == MLA_COLOURS_COOL_WARM ? "%+.2f" : "%.2f", m->high);
    mla_figure_text(f->sheet, x, y + 17, (mla_text_style){10, false, GREY, MLA_ALIGN_LEFT, 0}, low);
    mla_figure_text(f->sheet, x + TILE, y + 17, (mla_text_style){10, false, GREY, MLA_ALIGN_RIGHT, 0}, high);
    const double zero = m->colours == MLA_COLOURS_COOL_WARM ? 0 : 1, at = (zero - m->low) / (m->high - m->low);
    mla_figure_box(f->sheet, x + at * TILE - 0.5, y - 1, 1, 9, BLACK);
}

/* The map over the grey picture, its label above and its scale below. */
static mla_status draw_map(mla_attention_figure *f, int x, int y, const char *label, const map *m, mla_error *error) {
    mla_image blend;
    mla_status status = map_levels(&blend, m, error);
    if (status != MLA_OK) return status;
    for (int i = 0; i < TILE * TILE; i++) {
        const uint32_t colour = mla_colour(m->colours, blend.rgb[3 * i]);
        for (int c = 0; c < 3; c++)
            blend.rgb[3 * i + c] =
                (uint8_t)lround(COLOUR_SHARE * (colour >> (16 - 8 * c) & 255) + (1 - COLOUR_SHARE) * f->grey.rgb[3 * i + c]);
    }
    mla_figure_text(f->sheet, x, y + LABEL - 5, (mla_text_style){10.5, false, BLACK, MLA_ALIGN_LEFT, TILE}, label);
    mla_figure_image(f->sheet, x, y + LABEL, &blend);
    draw_scale(f, x, y + LABEL + TILE + 4, m);
    mla_image_free(&blend);
    return MLA_OK;
}

static map share_map(const real *share, size_t tokens) {
    map m = {share, tokens, 0.9, 1.1, MLA_COLOURS_VIRIDIS};
    for (size_t i = 0; i < tokens; i++) {
        m.low = fmin(m.low, (double)share[i]);
        m.high = fmax(m.high, (double)share[i]);
    }
    return m;
}

static map signed_map(const real *value, size_t tokens) {
    double most = 0.01;
    for (size_t i = 0; i < tokens; i++) most = fmax(most, fabs((double)value[i]));
    return (map){value, tokens, -most, most, MLA_COLOURS_COOL_WARM};
}

/* ---- histograms of q and k */

/* Which channels: of a head (or all), of q or k. */
typedef struct channels {
    const mla_view *view;
    mla_side side;
    int head;
} channels;

static double rms_of(const channels *c) {
    size_t width;
    const real *x = mla_view_channels(&width, c->view, MLA_BEFORE, c->side, c->head);
    double squares = 0;
    for (size_t n = 0; n < c->view->tokens; n++, x += 2 * c->view->channels)
        for (size_t i = 0; i < width; i++) squares += (double)x[i] * (double)x[i];
    return sqrt(squares / (double)(c->view->tokens * width));
}

/* How many values lie in each of the bins over -REACH .. REACH rms. */
static void count_bins(double bin[BINS], const channels *c, mla_mirror_stage stage, double rms) {
    size_t width;
    const real *x = mla_view_channels(&width, c->view, stage, c->side, c->head);
    memset(bin, 0, BINS * sizeof *bin);
    for (size_t n = 0; n < c->view->tokens; n++, x += 2 * c->view->channels)
        for (size_t i = 0; i < width; i++) {
            const double at = floor(BINS * ((double)x[i] / rms + REACH) / (2 * REACH));
            if (at >= 0 && at < BINS) bin[(int)at]++;
        }
}

static double percent_kept(const channels *c, mla_mirror_stage stage) {
    return 100 * mla_view_kept(c->view, stage, c->side, c->head);
}

static void draw_histogram(mla_attention_figure *f, int x, int y, const channels *c) {
    const bool mirror = c->view->attention->kind == MLA_ATTENTION_MIRROR;
    const double width = (TILE - 8) / 2.0, height = HISTOGRAM - 18, rms = rms_of(c);
    const char name = c->side == MLA_SIDE_Q ? 'q' : 'k';
    double before[BINS], after[BINS], most = 1;
    char label[64];
    count_bins(before, c, MLA_BEFORE, rms);
    count_bins(after, c, MLA_AFTER_CROSS, rms);
    for (int i = 0; i < BINS; i++) most = fmax(most, fmax(before[i], after[i]));
    for (int i = 0; i < BINS; i++) before[i] /= most, after[i] /= most;
    mla_figure_box(f->sheet, x, y, width / 2, height, PALE); /* what ReLU cuts off */
    mla_figure_steps(f->sheet, x, y, width, height, before, BINS, true, BEFORE_COLOUR);
    if (mirror) mla_figure_steps(f->sheet, x, y, width, height, after, BINS, false, AFTER_COLOUR);
    mla_figure_box(f->sheet, x, y + height, width, 1, GREY);
    if (mirror)
        snprintf(label, sizeof label, "%c %.0f\xe2\x86\x92%.0f%%", name, percent_kept(c, MLA_BEFORE),
                 percent_kept(c, MLA_AFTER_CROSS));
    else
        snprintf(label, sizeof label, "%c %.0f %%", name, percent_kept(c, MLA_BEFORE));
    mla_figure_text(f->sheet, x, y + height + 12, (mla_text_style){9, false, BLACK, MLA_ALIGN_LEFT, width}, label);
}

/* ---- a block */

static void draw_classes(mla_attention_figure *f, int y, const mla_prediction *p) {
    const int x = column_x(0);
    for (int i = 0; i < f->options.top && i < MOST_CLASSES && (size_t)i < p->classes; i++, y += CLASS_LINE) {
        const double probability = p->probability[p->order[i]];
        char percent[32];
        snprintf(percent, sizeof percent, "%.1f %%", 100 * probability);
        mla_figure_box(f->sheet, x, y, TILE * probability, CLASS_LINE - 2, BAR_COLOUR);
        mla_figure_text(f->sheet, x + 3, y + 10, (mla_text_style){10.5, i == 0, BLACK, MLA_ALIGN_LEFT, TILE - 48},
                        f->loaded->checkpoint.classes.names[p->order[i]]);
        mla_figure_text(f->sheet, x + TILE - 2, y + 10, (mla_text_style){10, false, BLACK, MLA_ALIGN_RIGHT, 0}, percent);
    }
}

static mla_status draw_evidence(mla_attention_figure *f, int y, const mla_prediction *p, const mla_probe *probe,
                                mla_error *error) {
    const mla_tensor tokens = mla_value(f->tape, probe->tokens);
    const char *name = f->loaded->checkpoint.classes.names[p->order[0]];
    real *evidence = malloc(tokens.shape[1] * sizeof *evidence);
    char label[MLA_NAME_BYTES];
    double offset;
    if (!evidence) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the evidence of %zu tokens", tokens.shape[1]);
    mla_status status = mla_probe_evidence(evidence, &offset, probe, (size_t)p->order[0], 0, f->tape, error);
    if (status == MLA_OK) {
        const map m = signed_map(evidence, tokens.shape[1]);
        snprintf(label, sizeof label, "evidence: %s", name);
        status = draw_map(f, column_x(1), y, label, &m, error);
    }
    free(evidence);
    return status;
}

/* One map of a layer; head MLA_ALL_HEADS: the mean of all.  share (N): relative to an equal share. */
static mla_status draw_layer_map(mla_attention_figure *f, int x, int y, const mla_view *view, int layer, int head,
                                 const real *share, mla_error *error) {
    const map m = share_map(share, view->tokens);
    const int side = (int)lround(sqrt((double)view->tokens));
    char label[64];
    if (head == MLA_ALL_HEADS)
        snprintf(label, sizeof label, "layer %d, %d \xc3\x97 %d", layer + 1, side, side);
    else
        snprintf(label, sizeof label, "layer %d, head %d", layer + 1, head + 1);
    const mla_status status = draw_map(f, x, y, label, &m, error);
    if (status != MLA_OK || !mla_view_is_relu(view)) return status;
    y += LABEL + TILE + SCALE;
    draw_histogram(f, x, y, &(channels){view, MLA_SIDE_Q, head});
    draw_histogram(f, x + TILE / 2 + 4, y, &(channels){view, MLA_SIDE_K, head});
    return MLA_OK;
}

/* The layer at `place` of those that are drawn. */
static mla_status draw_layer(mla_attention_figure *f, int place, int y, const mla_probe *probe, mla_error *error) {
    const mla_model_spec *spec = &f->loaded->checkpoint.config.model;
    const int layer = f->options.layers[place];
    mla_view view;
    mla_status status = mla_view_open(&view, probe, layer, 0, f->tape, error);
    if (status != MLA_OK) return status;
    real *share = malloc(view.heads * view.tokens * sizeof *share);
    status = share ? mla_view_received(share, &view, !f->options.each_head, error)
                   : mla_fail(error, MLA_NO_MEMORY, "out of memory for the attention of %zu tokens", view.tokens);
    if (status == MLA_OK && !f->options.each_head)
        status = draw_layer_map(f, column_x(2 + place), y, &view, layer, MLA_ALL_HEADS, share, error);
    for (size_t h = 0; status == MLA_OK && f->options.each_head && h < view.heads; h++)
        status = draw_layer_map(f, column_x(2 + (int)h), y + place * row_height(spec), &view, layer, (int)h,
                                share + h * view.tokens, error);
    free(share);
    mla_view_close(&view);
    return status;
}

static mla_status draw_block(mla_attention_figure *f, const mla_prediction *p, const mla_probe *probe, mla_error *error) {
    int y = f->y;
    char label[64];
    const int side = f->loaded->checkpoint.classes.size;
    mla_figure_text(f->sheet, MARGIN, y + 12,
                    (mla_text_style){12, true, BLACK, MLA_ALIGN_LEFT,
                                     sheet_width(&f->loaded->checkpoint.config.model, &f->options) - 2 * MARGIN},
                    p->path);
    y += HEADING;
    snprintf(label, sizeof label, "seen as %d \xc3\x97 %d", side, side);
    mla_figure_text(f->sheet, MARGIN, y + LABEL - 5, (mla_text_style){10.5, false, BLACK, MLA_ALIGN_LEFT, TILE}, label);
    mla_figure_image(f->sheet, MARGIN, y + LABEL, &f->picture);
    draw_classes(f, y + LABEL + TILE + 4, p);
    mla_status status = draw_evidence(f, y, p, probe, error);
    for (int i = 0; status == MLA_OK && i < f->options.layer_count; i++) status = draw_layer(f, i, y, probe, error);
    if (status == MLA_OK) f->y += block_height(&f->loaded->checkpoint.config.model, &f->options);
    return status;
}

mla_status mla_attention_figure_add(mla_attention_figure *f, const mla_prediction *p, mla_error *error) {
    const mla_params *params = mla_model_params(f->loaded->model);
    const size_t side = (size_t)f->loaded->checkpoint.classes.size;
    mla_probe probe = {0};
    mla_status status = read_image(f, p->path, error);
    if (status != MLA_OK) return status;
    mla_tape_begin(f->tape, params, params->value, NULL);
    const mla_var x = mla_tape_input(f->tape, mla_tensor_make(f->input, 4, (size_t[]){1, 3, side, side}));
    mla_model_forward(f->loaded->model, f->tape, x, &(mla_forward){.probe = &probe});
    status = mla_tape_status(f->tape, error);
    if (status == MLA_OK) status = draw_block(f, p, &probe, error);
    mla_probe_free(&probe);
    return status;
}

static void draw_legend(mla_attention_figure *f, int y) {
    const mla_model_spec *spec = &f->loaded->checkpoint.config.model;
    const double width = sheet_width(spec, &f->options) - 2 * MARGIN;
    const char *const lines[] = {
        "evidence: what a token says for the class against the mean of all classes, in logits (adds up to the logit)",
        f->options.each_head
            ? "layers: a token's share in the mean output of the head, 1 = an equal share (tick); each map has its own scale"
            : "layers: a token's share in the mean output of the attention, 1 = an equal share (tick), mean of the heads; "
              "each map has its own scale",
        mla_model_has_kind(spec, MLA_ATTENTION_MIRROR)
            ? "histograms: channels of q and k, -3 to 3 rms, before (grey) and after the "
              "reflections (orange); %: energy that "
              "the features keep"
        : mla_model_has_kind(spec, MLA_ATTENTION_RELU)
            ? "histograms: channels of q and k, -3 to 3 rms; %: energy that the features keep"
            : NULL};
    for (size_t i = 0; i < 3; i++, y += LEGEND_LINE)
        if (lines[i])
            mla_figure_text(f->sheet, MARGIN, y, (mla_text_style){10.5, false, GREY, MLA_ALIGN_LEFT, width}, lines[i]);
}

mla_status mla_attention_figure_write(mla_attention_figure *f, const char *path, mla_error *error) {
    draw_legend(f, f->y + LEGEND_LINE);
    return mla_figure_write(f->sheet, f->y + LEGEND, path, error);
}
