#include "train/diagnostics.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/measure.h"
#include "layers/probe.h"

/* Of training.  What is counted is twice what was measured (docs/decisions.md), as room for threads that wait for the last
 * image. */
static const double SHARE = 0.02;
/* A pass alone, without packed weights, in the time of so many in training. */
static const double PASS_COST = 4;

const char *const mla_layer_number_names[MLA_LAYER_NUMBERS] = {
#define MLA_LAYER_NUMBER_NAME(NAME, name) #name,
    MLA_LAYER_NUMBER_LIST(MLA_LAYER_NUMBER_NAME)
#undef MLA_LAYER_NUMBER_NAME
};

/* What a thread works with. */
typedef struct worker {
    mla_tape *tape, *scratch; /* of the pass; of cores run with unit vectors */
    uint8_t *pixels;          /* (3, S, S) */
    real *input;              /* (3, S, S) */
} worker;

/* Of one layer and image, means over the heads; angles (2, planes) of q and of k, NULL: the kind has none. */
typedef struct layer_sample {
    double number[MLA_LAYER_NUMBERS];
    double *angle;
    size_t angles;
} layer_sample;

/* Reflection vectors of a layer, and the number that says how far they have moved. */
enum { BLOCK, CROSS, TWIN, FOLD, SETS };
static const int moved_number[SETS] = {MLA_LAYER_MOVED_BLOCK, MLA_LAYER_MOVED_CROSS, MLA_LAYER_MOVED_TWIN,
                                       MLA_LAYER_MOVED_FOLD};

struct mla_diagnostics {
    const mla_config *config;
    mla_model *model;
    const mla_dataset *test;
    const mla_dataset_info *train;
    int threads, images, layers;
    uint64_t every;
    const mla_attention **layer; /* (layers) the model's */
    real *(*start)[SETS];        /* (layers) reflection vectors as they began; NULL: none */
    worker *workers;
    layer_sample *samples; /* (images, layers) */
    bool *readable;        /* (images) */
    mla_layer_record *record;
};

/* ---- angles */

/* From sums over the tokens, the angle from `before` to `after` in the plane of a and b, (width) each:
 * atan2(sum x1 y2 - x2 y1, sum x1 y1 + x2 y2).  Both begin at a block's first channel. */
static double plane_angle(const mla_tensor *before, const mla_tensor *after, size_t column, const real *a, const real *b,
                          size_t width) {
    double sine = 0, cosine = 0;
    for (size_t n = 0; n < mla_tensor_rows(before); n++) {
        const real *x = before->data + n * before->stride + column, *y = after->data + n * after->stride + column;
        double x1 = 0, x2 = 0, y1 = 0, y2 = 0;
        for (size_t i = 0; i < width; i++) {
            x1 += (double)x[i] * (double)a[i];
            x2 += (double)x[i] * (double)b[i];
            y1 += (double)y[i] * (double)a[i];
            y2 += (double)y[i] * (double)b[i];
        }
        sine += x1 * y2 - x2 * y1;
        cosine += x1 * y1 + x2 * y2;
    }
    return atan2(sine, cosine);
}

static mla_status measure_angles(layer_sample *s, const mla_attention *layer, mla_tape *tape, mla_var qkv,
                                 mla_error *error) {
    static const real axes[4] = {1, 0, 0, 1};
    const bool pairs = layer->mirror.plane_u < 0;
    const mla_var before = mla_mirror_scale(layer, tape, mla_columns(tape, qkv, 0, 2 * layer->channels));
    const mla_var after = mla_mirror_turn(layer, tape, before);
    const mla_var planes = pairs ? MLA_NO_VAR
                                 : mla_plane_basis(tape, mla_tape_param(tape, layer->mirror.plane_u),
                                                   mla_tape_param(tape, layer->mirror.plane_w));
    const mla_status status = mla_tape_status(tape, error);
    if (status != MLA_OK) return status;
    const mla_tensor x = mla_value(tape, before), y = mla_value(tape, after);
    const size_t width = 2 * layer->channels / s->angles, count = s->angles / 2;
    double sum = 0;
    for (size_t i = 0; i < s->angles; i++) {
        const real *basis = pairs ? axes : mla_value(tape, planes).data + i % count * 2 * width;
        sum += fabs(s->angle[i] = plane_angle(&x, &y, i * width, basis, basis + width, width));
    }
    s->number[MLA_LAYER_ANGLE] = sum / (double)s->angles;
    return MLA_OK;
}

/* ---- one layer on one image */

/* f(k)^T v (D, d) of a head. */
static void key_values(real *out, const mla_view *view, size_t head) {
    const size_t width = view->width, d = view->d, columns = view->heads * width;
    memset(out, 0, width * d * sizeof *out);
    for (size_t n = 0; n < view->tokens; n++)
        for (size_t i = 0; i < width; i++) {
            const real f = view->f[(2 * n + 1) * columns + head * width + i];
            for (size_t j = 0; j < d; j++) out[i * d + j] += f * view->v[n * view->channels + head * d + j];
        }
}

static mla_status measure_features(layer_sample *s, const mla_view *view, mla_error *error) {
    if (!view->f) return MLA_OK;
    s->number[MLA_LAYER_ENERGY_Q] = mla_view_kept(view, MLA_AFTER_CROSS, MLA_SIDE_Q, MLA_ALL_HEADS);
    s->number[MLA_LAYER_ENERGY_K] = mla_view_kept(view, MLA_AFTER_CROSS, MLA_SIDE_K, MLA_ALL_HEADS);
    real *kv = malloc(view->width * view->d * sizeof *kv);
    if (!kv) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the keys and values of a head");
    mla_status status = MLA_OK;
    double sum = 0, rank;
    for (size_t h = 0; status == MLA_OK && h < view->heads; h++) {
        key_values(kv, view, h);
        status = mla_measure_rank(&rank, kv, view->width, view->d, view->d, error);
        if (status == MLA_OK) sum += rank;
    }
    s->number[MLA_LAYER_RANK_KV] = sum / (double)view->heads;
    free(kv);
    return status;
}

static mla_status measure_attention(layer_sample *s, const mla_attention *layer, const worker *w, const mla_params *params,
                                    const real *values, const real *qkv, size_t tokens, mla_error *error) {
    const size_t rows = mla_measure_rows(tokens), matrices = layer->heads * mla_measure_parts(layer);
    real *a = malloc(matrices * rows * tokens * sizeof *a);
    if (!a) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the attention of %zu tokens", tokens);
    mla_status status = mla_measure_attention(a, layer, w->scratch, params, values, qkv, tokens, rows, error);
    double entropy = 0, ranks = 0, rank;
    for (size_t i = 0; status == MLA_OK && i < matrices; i++) {
        status = mla_measure_rank(&rank, a + i * rows * tokens, rows, tokens, tokens, error);
        if (status != MLA_OK) break;
        ranks += rank;
        entropy += mla_measure_entropy(a + i * rows * tokens, rows, tokens);
    }
    s->number[MLA_LAYER_RANK] = ranks / (double)matrices;
    s->number[MLA_LAYER_ENTROPY] = entropy / (double)matrices;
    free(a);
    return status;
}

static mla_status measure_image(mla_diagnostics *d, int image, const real *values, mla_error *error) {
    worker *w = &d->workers[omp_get_thread_num()];
    const mla_params *params = mla_model_params(d->model);
    const size_t side = (size_t)d->config->model.image, count = mla_dataset_get_info(d->test)->count;
    mla_probe probe = {0};
    int label;
    mla_status status = mla_dataset_read(d->test, (size_t)image * count / (size_t)d->images, 0, w->pixels, &label, error);
    if (status != MLA_OK) return status;
    d->readable[image] = label >= 0;
    if (label < 0) return MLA_OK;
    mla_image_prepare(w->input, w->pixels, (int)side, d->train->mean, d->train->std, NULL, 0, 0, 0);
    mla_tape_begin(w->tape, params, values, NULL);
    const mla_var x = mla_tape_input(w->tape, mla_tensor_make(w->input, 4, (size_t[]){1, 3, side, side}));
    mla_model_forward(d->model, w->tape, x, &(mla_forward){.probe = &probe});
    status = mla_tape_status(w->tape, error);
    for (int i = 0; status == MLA_OK && i < d->layers; i++) {
        const mla_attention *layer = d->layer[i];
        layer_sample *s = &d->samples[image * d->layers + i];
        for (int n = 0; n < MLA_LAYER_NUMBERS; n++) s->number[n] = NAN;
        const mla_var qkv = mla_attention_project(layer, w->tape, probe.layer[i].x);
        status = mla_tape_status(w->tape, error);
        if (status != MLA_OK) break;
        const mla_tensor t = mla_value(w->tape, qkv);
        mla_view view;
        status = mla_view_open(&view, &probe, i, 0, w->tape, error);
        if (status == MLA_OK) status = measure_features(s, &view, error);
        mla_view_close(&view);
        if (status == MLA_OK) status = measure_attention(s, layer, w, params, values, t.data, t.shape[1], error);
        if (status == MLA_OK && s->angles) status = measure_angles(s, layer, w->tape, qkv, error);
    }
    mla_probe_free(&probe);
    return status;
}

/* ---- means over images */

/* To six digits, which is more than they mean, and keeps the log short. */
static double rounded(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.5e", value);
    return isfinite(value) ? strtod(text, NULL) : (double)NAN;
}

/* Root of the mean, over the angles, of their variance over the images. */
static double angle_spread(const mla_diagnostics *d, int layer, size_t images) {
    const size_t angles = d->samples[layer].angles;
    double sum = 0;
    for (size_t a = 0; a < angles; a++) {
        double mean = 0, deviation = 0;
        for (int i = 0; i < d->images; i++)
            if (d->readable[i]) mean += d->samples[i * d->layers + layer].angle[a] / (double)images;
        for (int i = 0; i < d->images; i++) {
            const double off = d->readable[i] ? d->samples[i * d->layers + layer].angle[a] - mean : 0;
            deviation += off * off;
        }
        sum += deviation / (double)images / (double)angles;
    }
    return angles ? sqrt(sum) : (double)NAN;
}

/* The parameter of a set; -1: the layer has none. */
static int reflections(const mla_attention *layer, int set) {
    const int index[SETS] = {layer->block_v, layer->cross_v, layer->mirror.twin_v, layer->mirror.fold_v};
    return index[set];
}

/* Vectors are (..., r, b), mean over the products of r.  Those of the fold are conditional, so each counts for itself. */
static mla_status measure_moved(double *mean, const mla_param *p, bool product, const real *values, const real *start,
                                mla_error *error) {
    const size_t b = p->shape[p->ndim - 1], r = product ? p->shape[p->ndim - 2] : 1, products = p->count / (r * b);
    mla_status status = MLA_OK;
    double sum = 0, moved;
    for (size_t i = 0; status == MLA_OK && i < products; i++) {
        status = mla_measure_moved(&moved, values + p->offset + i * r * b, start + i * r * b, r, b, error);
        if (status == MLA_OK) sum += moved;
    }
    *mean = sum / (double)products;
    return status;
}

static mla_status measure_reflections(const mla_diagnostics *d, int layer, const real *values, double *number,
                                      mla_error *error) {
    const mla_params *params = mla_model_params(d->model);
    mla_status status = MLA_OK;
    for (int set = 0; set < SETS; set++) {
        double *moved = &number[moved_number[set]];
        *moved = NAN;
        if (status != MLA_OK || !d->start[layer][set]) continue;
        const mla_param *p = &params->entry[reflections(d->layer[layer], set)];
        status = measure_moved(moved, p, set != FOLD, values, d->start[layer][set], error);
    }
    return status;
}

static mla_status fill_record(mla_diagnostics *d, int layer, const real *values, size_t images, mla_error *error) {
    double *number = d->record[layer].number;
    for (int n = 0; n < MLA_LAYER_NUMBERS; n++) {
        number[n] = 0;
        for (int i = 0; i < d->images; i++)
            if (d->readable[i]) number[n] += d->samples[i * d->layers + layer].number[n] / (double)images;
    }
    number[MLA_LAYER_ANGLE_SPREAD] = angle_spread(d, layer, images);
    const mla_status status = measure_reflections(d, layer, values, number, error);
    for (int n = 0; n < MLA_LAYER_NUMBERS; n++) number[n] = rounded(number[n]);
    return status;
}

mla_status mla_diagnostics_measure(mla_diagnostics *d, const real *values, mla_layers_record *record, mla_error *error) {
    mla_error first = {0};
#pragma omp parallel for schedule(dynamic, 1) num_threads(d->threads)
    for (int image = 0; image < d->images; image++) {
        mla_error mine = {0};
        if (measure_image(d, image, values, &mine) == MLA_OK) continue;
#pragma omp critical(mla_diagnostics_error)
        first = mine;
    }
    if (first.status != MLA_OK) {
        if (error) *error = first;
        return first.status;
    }
    record->images = 0;
    for (int i = 0; i < d->images; i++) record->images += d->readable[i];
    mla_status status = MLA_OK;
    for (int i = 0; status == MLA_OK && i < d->layers; i++) status = fill_record(d, i, values, record->images, error);
    record->layer = d->record;
    record->layers = d->layers;
    return status;
}

/* ---- how often */

uint64_t mla_diagnostics_every(const mla_diagnostics *d) { return d->every; }

bool mla_diagnostics_due(const mla_diagnostics *d, uint64_t epoch) {
    const uint64_t epochs = (uint64_t)d->config->train.epochs;
    return d->every > 0 && epoch >= d->every && epoch <= epochs && (epochs - epoch) % d->every == 0;
}

/* Time of the singular values of a matrix, in operations of training in that time: LAPACK's 8/3 m^2 n, at a tenth of the
 * speed of training and less for small ones (measured, docs/decisions.md). */
static double rank_cost(size_t rows, size_t columns) {
    const double smaller = (double)(rows < columns ? rows : columns), larger = (double)(rows < columns ? columns : rows);
    return 30 * smaller * smaller * larger * (1 + 128 / smaller);
}

/* The same of all that is measured of a layer on an image. */
static mla_status layer_cost(double *cost, const mla_attention *layer, mla_tape *tape, size_t tokens, mla_error *error) {
    const size_t d = layer->channels / layer->heads, parts = mla_measure_parts(layer);
    real *qkv = calloc(tokens * 3 * layer->channels, sizeof *qkv);
    if (!qkv) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu tokens", tokens);
    const double before = mla_tape_flops(tape);
    mla_attention_core(layer, tape,
                       mla_tape_input(tape, mla_tensor_make(qkv, 3, (size_t[]){1, tokens, 3 * layer->channels})));
    const mla_status status = mla_tape_status(tape, error);
    const double core = mla_tape_flops(tape) - before, cores = ceil((double)tokens * (double)parts / (double)d);
    const double numbers = (double)tokens * (double)layer->channels * 3;
    *cost += (double)(layer->heads * parts) * rank_cost(mla_measure_rows(tokens), tokens);
    *cost += (double)layer->heads * rank_cost(d, d);
    *cost += cores * (4 * core + 20 * numbers) + 400 * numbers;
    free(qkv);
    return status;
}

/* Operations of an image in training are three times those of forward. */
static mla_status choose_every(mla_diagnostics *d, mla_error *error) {
    const mla_params *params = mla_model_params(d->model);
    worker *w = &d->workers[0];
    const size_t side = (size_t)d->config->model.image;
    mla_probe probe = {0};
    memset(w->input, 0, 3 * side * side * sizeof *w->input);
    mla_tape_begin(w->tape, params, params->value, NULL);
    const mla_var x = mla_tape_input(w->tape, mla_tensor_make(w->input, 4, (size_t[]){1, 3, side, side}));
    mla_model_forward(d->model, w->tape, x, &(mla_forward){.probe = &probe});
    mla_status status = mla_tape_status(w->tape, error);
    const double forward = mla_tape_flops(w->tape), epoch = 3 * forward * (double)d->train->count;
    double cost = PASS_COST * forward;
    for (int i = 0; status == MLA_OK && i < d->layers; i++) {
        mla_tape_begin(w->scratch, params, params->value, NULL);
        status = layer_cost(&cost, d->layer[i], w->scratch, mla_value(w->tape, probe.layer[i].x).shape[1], error);
    }
    mla_probe_free(&probe);
    d->every = (uint64_t)fmin(ceil(d->images * cost / (SHARE * epoch)), 1e6);
    return status;
}

/* ---- open, close */

static bool open_worker(worker *w, size_t side) {
    w->tape = mla_tape_new();
    w->scratch = mla_tape_new();
    w->pixels = malloc(3 * side * side);
    w->input = malloc(3 * side * side * sizeof *w->input);
    return w->tape && w->scratch && w->pixels && w->input;
}

/* A copy of a parameter as it is now; true with NULL when the layer has none. */
static bool keep_start(real **start, const mla_params *params, int index) {
    *start = NULL;
    if (index < 0) return true;
    const mla_param *p = &params->entry[index];
    *start = malloc(p->count * sizeof **start);
    if (*start) memcpy(*start, params->value + p->offset, p->count * sizeof **start);
    return *start;
}

static bool open_layers(mla_diagnostics *d, bool start_known) {
    const mla_model_parts parts = mla_model_get_parts(d->model);
    const mla_params *params = mla_model_params(d->model);
    int layer = 0;
    for (int s = 0; s < parts.stages; s++)
        for (int b = 0; b < parts.stage[s].depth; b++, layer++) {
            const mla_attention *attention = d->layer[layer] = &parts.stage[s].blocks[b].attention;
            d->record[layer] = (mla_layer_record){.kind = mla_attention_kind_name(attention->kind),
                                                  .tokens = attention->side * attention->side,
                                                  .heads = attention->heads};
            for (int set = 0; start_known && set < SETS; set++)
                if (!keep_start(&d->start[layer][set], params, reflections(attention, set))) return false;
            for (int i = 0; i < d->images; i++) {
                layer_sample *sample = &d->samples[i * d->layers + layer];
                sample->angles = attention->angle_a >= 0 ? 2 * params->entry[attention->angle_a].count : 0;
                sample->angle = sample->angles ? calloc(sample->angles, sizeof *sample->angle) : NULL;
                if (sample->angles && !sample->angle) return false;
            }
        }
    return true;
}

static bool allocate(mla_diagnostics *d, bool start_known) {
    const mla_model_parts parts = mla_model_get_parts(d->model);
    for (int s = 0; s < parts.stages; s++) d->layers += parts.stage[s].depth;
    const size_t layers = (size_t)d->layers, images = (size_t)d->images;
    d->layer = calloc(layers, sizeof *d->layer);
    d->start = calloc(layers, sizeof *d->start);
    d->record = calloc(layers, sizeof *d->record);
    d->samples = calloc(images * layers, sizeof *d->samples);
    d->readable = calloc(images, sizeof *d->readable);
    d->workers = calloc((size_t)d->threads, sizeof *d->workers);
    bool enough = d->layer && d->start && d->record && d->samples && d->readable && d->workers;
    for (int t = 0; enough && t < d->threads; t++) enough = open_worker(&d->workers[t], (size_t)d->config->model.image);
    return enough && open_layers(d, start_known);
}

mla_status mla_diagnostics_new(mla_diagnostics **out, const mla_config *config, mla_model *model, const mla_dataset *test,
                               const mla_dataset_info *train, bool start_known, int threads, mla_error *error) {
    const size_t images = (size_t)config->diagnostics.images, count = mla_dataset_get_info(test)->count;
    *out = NULL;
    mla_diagnostics *d = calloc(1, sizeof *d);
    if (!d) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the diagnostics");
    d->config = config;
    d->model = model;
    d->test = test;
    d->train = train;
    d->images = (int)(images < count ? images : count);
    d->threads = threads < d->images ? threads : d->images;
    d->every = (uint64_t)config->diagnostics.every_epochs;
    mla_status status =
        allocate(d, start_known) ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for the diagnostics");
    if (status == MLA_OK && d->every == 0) status = choose_every(d, error);
    if (status == MLA_OK)
        *out = d;
    else
        mla_diagnostics_free(d);
    return status;
}

void mla_diagnostics_free(mla_diagnostics *d) {
    if (!d) return;
    for (int t = 0; d->workers && t < d->threads; t++) {
        mla_tape_free(d->workers[t].tape);
        mla_tape_free(d->workers[t].scratch);
        free(d->workers[t].pixels);
        free(d->workers[t].input);
    }
    for (int i = 0; d->start && i < d->layers; i++)
        for (int set = 0; set < SETS; set++) free(d->start[i][set]);
    for (int i = 0; d->samples && i < d->images * d->layers; i++) free(d->samples[i].angle);
    free(d->layer);
    free(d->start);
    free(d->record);
    free(d->samples);
    free(d->readable);
    free(d->workers);
    free(d);
}
