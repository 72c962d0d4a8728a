#include "train/report_curves.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 4096, COUNT_MAX_BITS = 53 };

const char *const mla_step_number_names[MLA_STEP_NUMBERS] = {
#define MLA_STEP_NUMBER_NAME(NAME, name) #name,
    MLA_STEP_NUMBER_LIST(MLA_STEP_NUMBER_NAME)
#undef MLA_STEP_NUMBER_NAME
};
const char *const mla_epoch_number_names[MLA_EPOCH_NUMBERS] = {
#define MLA_EPOCH_NUMBER_NAME(NAME, name) #name,
    MLA_EPOCH_NUMBER_LIST(MLA_EPOCH_NUMBER_NAME)
#undef MLA_EPOCH_NUMBER_NAME
};

mla_curves *mla_curves_new(void) {
    mla_curves *curves = calloc(1, sizeof *curves);
    if (!curves) return NULL;
    curves->epoch_thinning.stride = curves->sample_thinning.stride = 1;
    curves->steps_per_epoch = NAN;
    return curves;
}

void mla_curves_free(mla_curves *curves) {
    if (!curves) return;
    for (size_t i = 0; i < curves->samples; i++) free(curves->sample[i].number);
    free(curves->layer);
    free(curves);
}

static double get_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- steps */

static void join(mla_curve_bucket *to, const mla_curve_bucket *from) {
    to->last_step = from->last_step;
    for (int n = 0; n < MLA_STEP_NUMBERS; n++) {
        if (from->count[n] == 0) continue;
        to->low[n] = to->count[n] && to->low[n] < from->low[n] ? to->low[n] : from->low[n];
        to->high[n] = to->count[n] && to->high[n] > from->high[n] ? to->high[n] : from->high[n];
        to->sum[n] += from->sum[n];
        to->count[n] += from->count[n];
    }
}

/* Buckets of twice as many steps.  A bucket is told by its steps, so gaps in a log stay gaps. */
static void double_buckets(mla_curves *c) {
    size_t kept = 0;
    c->bucket_steps *= 2;
    for (size_t i = 0; i < c->buckets; i++) {
        const mla_curve_bucket from = c->bucket[i];
        const uint64_t place = (from.last_step - 1) / c->bucket_steps;
        if (kept == 0 || (c->bucket[kept - 1].last_step - 1) / c->bucket_steps != place)
            c->bucket[kept++] = (mla_curve_bucket){0};
        join(&c->bucket[kept - 1], &from);
    }
    c->buckets = kept;
}

static void add_step(mla_curves *c, uint64_t step, const json_t *line) {
    mla_curve_bucket one = {.last_step = step};
    for (int n = 0; n < MLA_STEP_NUMBERS; n++) {
        const double number = get_number(line, mla_step_number_names[n]);
        if (!isfinite(number)) continue;
        one.sum[n] = one.low[n] = one.high[n] = number;
        one.count[n] = 1;
    }
    if (c->bucket_steps == 0) c->bucket_steps = 1;
    const bool first = c->buckets == 0;
    if (first || (step - 1) / c->bucket_steps != (c->bucket[c->buckets - 1].last_step - 1) / c->bucket_steps) {
        while (c->buckets == MLA_CURVE_BUCKETS) double_buckets(c);
        if (first || (step - 1) / c->bucket_steps != (c->bucket[c->buckets - 1].last_step - 1) / c->bucket_steps)
            c->bucket[c->buckets++] = (mla_curve_bucket){0};
    }
    join(&c->bucket[c->buckets - 1], &one);
}

/* ---- thinning */

/* Makes room for a further entry at the end of `count` of `size` bytes each; entries that go are given to `drop`.  At most
 * `most` stay, and one that waits. */
static void *next_entry(void *entries, size_t *count, size_t size, size_t most, mla_thinning *t, void (*drop)(void *entry)) {
    char *base = entries;
    if (t->last_waits) drop(base + --*count * size);
    if (*count == most) {
        for (size_t i = 0; i < most; i++)
            if (i % 2 == 0)
                memmove(base + i / 2 * size, base + i * size, size);
            else
                drop(base + i * size);
        *count = (most + 1) / 2;
        t->stride *= 2;
    }
    t->last_waits = t->seen++ % t->stride != 0;
    return base + (*count)++ * size;
}

static void drop_epoch(void *entry) { (void)entry; }
static void drop_sample(void *entry) { free(((mla_curve_layers *)entry)->number); }

/* ---- lines */

static bool get_count(uint64_t *count, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) >> COUNT_MAX_BITS)
        return false;
    *count = (uint64_t)json_integer_value(value);
    return true;
}

static void add_epoch(mla_curves *c, uint64_t step, uint64_t epoch, const json_t *line) {
    mla_curve_epoch e = {.step = step, .epoch = epoch};
    const double train = get_number(line, "train_images"), test = get_number(line, "test_images");
    e.number[MLA_EPOCH_TRAIN_LOSS] = get_number(line, "train_loss");
    e.number[MLA_EPOCH_TRAIN_ACCURACY] = 100 * get_number(line, "train_correct") / train;
    e.number[MLA_EPOCH_TEST_LOSS] = get_number(line, "test_loss");
    e.number[MLA_EPOCH_TEST_ACCURACY] = 100 * get_number(line, "test_correct") / test;
    e.number[MLA_EPOCH_AVERAGE_LOSS] = get_number(line, "ema_test_loss");
    e.number[MLA_EPOCH_AVERAGE_ACCURACY] = 100 * get_number(line, "ema_test_correct") / test;
    e.number[MLA_EPOCH_RATE] = e.number[MLA_EPOCH_MEMORY] = NAN;
    const bool average = isfinite(e.number[MLA_EPOCH_AVERAGE_ACCURACY]);
    const int judged = average ? MLA_EPOCH_AVERAGE_ACCURACY : MLA_EPOCH_TEST_ACCURACY;
    if (isfinite(e.number[judged]) && (c->best.epoch == 0 || e.number[judged] > c->best.number[judged])) c->best = e;
    c->steps_per_epoch = (double)step / (double)epoch;
    mla_curve_epoch *place =
        next_entry(c->epoch, &c->epochs, sizeof *c->epoch, MLA_CURVE_EPOCHS, &c->epoch_thinning, drop_epoch);
    *place = e;
}

/* Of an epoch that was thinned out there is nothing to complete. */
static void add_timing(mla_curves *c, uint64_t epoch, const json_t *line) {
    for (size_t i = c->epochs; i-- > 0 && c->epoch[i].epoch >= epoch;)
        if (c->epoch[i].epoch == epoch) {
            c->epoch[i].number[MLA_EPOCH_RATE] = get_number(line, "images_per_second");
            c->epoch[i].number[MLA_EPOCH_MEMORY] = get_number(line, "peak_memory_bytes") / 1048576;
        }
}

static mla_status set_layers(mla_curves *c, const json_t *list, mla_error *error) {
    const size_t layers = json_array_size(list);
    if (layers == 0 || layers > LAYERS_MAX) return mla_fail(error, MLA_INVALID, "it has no list \"layers\"");
    c->layer = calloc(layers, sizeof *c->layer);
    if (!c->layer) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu layers", layers);
    c->layers = layers;
    for (size_t i = 0; i < layers; i++) {
        const json_t *entry = json_array_get(list, i);
        const char *kind = json_string_value(json_object_get(entry, "kind"));
        if (kind && strlen(kind) < sizeof c->layer[i].kind) strcpy(c->layer[i].kind, kind);
        c->layer[i].tokens = get_number(entry, "tokens");
        c->layer[i].heads = get_number(entry, "heads");
    }
    return MLA_OK;
}

static mla_status add_layers(mla_curves *c, uint64_t step, uint64_t epoch, const json_t *line, mla_error *error) {
    const json_t *list = json_object_get(line, "layers");
    const mla_status status = c->layers ? MLA_OK : set_layers(c, list, error);
    if (status != MLA_OK) return status;
    if (json_array_size(list) != c->layers)
        return mla_fail(error, MLA_INVALID, "it has %zu layers, the lines before %zu", json_array_size(list), c->layers);
    double *number = malloc(c->layers * MLA_LAYER_NUMBERS * sizeof *number);
    if (!number) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu layers", c->layers);
    for (size_t i = 0; i < c->layers; i++)
        for (int n = 0; n < MLA_LAYER_NUMBERS; n++)
            number[i * MLA_LAYER_NUMBERS + (size_t)n] = get_number(json_array_get(list, i), mla_layer_number_names[n]);
    mla_curve_layers *place =
        next_entry(c->sample, &c->samples, sizeof *c->sample, MLA_CURVE_LAYERS, &c->sample_thinning, drop_sample);
    *place = (mla_curve_layers){step, epoch, number};
    return MLA_OK;
}

static mla_status add_object(mla_curves *c, const json_t *line, mla_error *error) {
    const char *event = json_string_value(json_object_get(line, "event"));
    uint64_t step, epoch;
    if (!event) return mla_fail(error, MLA_INVALID, "it has no \"event\"");
    if (!get_count(&step, line, "step")) return mla_fail(error, MLA_INVALID, "it has no whole number \"step\"");
    if (!get_count(&epoch, line, "epoch")) return mla_fail(error, MLA_INVALID, "it has no whole number \"epoch\"");
    if (!strcmp(event, "step"))
        add_step(c, step, line);
    else if (!strcmp(event, "epoch"))
        add_epoch(c, step, epoch, line);
    else if (!strcmp(event, "timing"))
        add_timing(c, epoch, line);
    else if (!strcmp(event, "layers"))
        return add_layers(c, step, epoch, line, error);
    return MLA_OK;
}

mla_status mla_curves_add(mla_curves *c, const char *line, size_t bytes, mla_error *error) {
    json_error_t why;
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!object) return mla_fail(error, MLA_INVALID, "%s", why.text);
    const mla_status status = add_object(c, object, error);
    json_decref(object);
    return status;
}

mla_status mla_curves_read(mla_curves *c, mla_curves_file *file, mla_error *error) {
    mla_status status = MLA_OK;
    char *text = NULL;
    size_t capacity = 0;
    FILE *stream = fopen(file->path, "re");
    if (!stream && errno == ENOENT) return MLA_OK;
    if (!stream || fseeko(stream, (off_t)file->offset, SEEK_SET) != 0)
        status = mla_fail(error, MLA_IO, "%s: could not be read: %s", file->path, strerror(errno));
    for (ssize_t got; status == MLA_OK && (got = getline(&text, &capacity, stream)) > 0 && text[got - 1] == '\n';) {
        status = mla_curves_add(c, text, (size_t)got - 1, error);
        if (status != MLA_OK)
            return free(text), fclose(stream),
                   mla_fail_context(error, "%s:%" PRIu64 ": is not a line of a log: ", file->path, file->lines + 1);
        file->offset += (uint64_t)got;
        file->lines++;
    }
    if (status == MLA_OK && ferror(stream))
        status = mla_fail(error, MLA_IO, "%s: could not be read: %s", file->path, strerror(errno));
    free(text);
    if (stream) fclose(stream);
    return status;
}
