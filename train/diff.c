#include "train/diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/config_compare.h"
#include "train/config_schema.h"

/* ---- sides */

static bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

mla_status mla_diff_open(mla_diff_side *side, const char *path, mla_error *error) {
    *side = (mla_diff_side){.path = path};
    if (!mla_checkpoint_stem(path)) {
        side->has_config = true;
        return mla_config_load(&side->config, path, NULL, 0, error);
    }
    mla_status status = mla_safetensors_open(&side->file, path, error);
    if (status != MLA_OK || !mla_checkpoint_is_own(side->file)) return status;
    mla_safetensors_close(side->file);
    side->file = NULL;
    status = mla_checkpoint_open(&side->checkpoint, path, NULL, 0, error);
    if (status != MLA_OK) return status;
    side->has_config = true;
    side->config = side->checkpoint.config;
    side->file = side->checkpoint.file;
    side->full = mla_safetensors_metadata(side->file, "mirrorla.checkpoint") != NULL;
    side->trained = side->full && (side->checkpoint.has_optimizer || side->checkpoint.has_ema);
    return MLA_OK;
}

void mla_diff_close(mla_diff_side *side) {
    if (side->checkpoint.path)
        mla_checkpoint_close(&side->checkpoint);
    else
        mla_safetensors_close(side->file);
    *side = (mla_diff_side){0};
}

/* ---- values */

typedef struct sums {
    double largest, sum, squares, squares_a;
    size_t differing;
} sums;

static void add_chunk(sums *s, const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        s->squares_a += (double)a[i] * (double)a[i];
        if (memcmp(&a[i], &b[i], sizeof *a) == 0) continue; /* also NaN and NaN, infinity and infinity */
        s->differing++;
        s->sum += difference;
        s->squares += difference * difference;
        if (!(difference <= s->largest)) s->largest = difference;
    }
}

static void compare_floats(mla_tensor_diff *diff) {
    enum { CHUNK = 4096 };
    float a[CHUNK], b[CHUNK];
    sums s = {0};
    const size_t total = mla_tensor_elements(diff->a);
    for (size_t first = 0; first < total; first += CHUNK) {
        const size_t count = total - first < CHUNK ? total - first : CHUNK;
        mla_tensor_widen(a, diff->a, first, count);
        mla_tensor_widen(b, diff->b, first, count);
        add_chunk(&s, a, b, count);
    }
    diff->differing = s.differing;
    diff->largest = s.largest;
    diff->mean = total ? s.sum / (double)total : 0;
    diff->relative = s.squares > 0 ? sqrt(s.squares) / sqrt(s.squares_a) : s.squares; /* infinite for a = 0 */
}

static void compare_tensors(mla_tensor_diff *diff) {
    const mla_file_tensor *a = diff->a, *b = diff->b;
    diff->largest = diff->mean = diff->relative = NAN;
    if (!a || !b) return;
    diff->same_shape = a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
    if (!diff->same_shape) return;
    if (mla_dtype_is_float(a->dtype) && mla_dtype_is_float(b->dtype)) {
        compare_floats(diff);
    } else if (a->dtype == b->dtype) {
        const unsigned char *left = a->data, *right = b->data;
        for (size_t i = 0; i < a->bytes; i++) diff->differing += left[i] != right[i];
    }
}

static bool differs(const mla_tensor_diff *diff) {
    return !diff->a || !diff->b || !diff->same_shape || diff->a->dtype != diff->b->dtype || diff->differing > 0;
}

/* ---- which tensors */

/* A tensor under the name that it is compared by. */
typedef struct entry {
    const char *name;
    const mla_file_tensor *tensor;
} entry;

static int by_name(const void *left, const void *right) {
    return strcmp(((const entry *)left)->name, ((const entry *)right)->name);
}

/* All tensors, or with `alone` the chosen weights under the names of the model. */
static entry *list(size_t *count, const mla_diff_side *side, bool alone, mla_weights weights) {
    const size_t total = mla_safetensors_count(side->file);
    entry *entries = calloc(total + 1, sizeof *entries);
    const bool average = side->trained && side->checkpoint.has_ema && weights != MLA_WEIGHTS_RAW;
    *count = 0;
    for (size_t i = 0; entries && i < total; i++) {
        const mla_file_tensor *tensor = mla_safetensors_at(side->file, i);
        const bool kept = starts_with(tensor->name, "ema.");
        if (alone && side->trained && (starts_with(tensor->name, "optim.") || kept != average)) continue;
        entries[(*count)++] = (entry){tensor->name + (alone && side->trained && kept ? 4 : 0), tensor};
    }
    if (entries) qsort(entries, *count, sizeof *entries, by_name);
    return entries;
}

static void diff_lists(mla_diff_result *result, const mla_diff_side *sides[2], entry *const lists[2], const size_t counts[2],
                       const mla_diff_sink *sink) {
    for (size_t i = 0, j = 0; i < counts[0] || j < counts[1];) {
        const int order = i == counts[0] ? 1 : j == counts[1] ? -1 : strcmp(lists[0][i].name, lists[1][j].name);
        mla_tensor_diff diff = {.name = order <= 0 ? lists[0][i].name : lists[1][j].name,
                                .a = order <= 0 ? lists[0][i].tensor : NULL,
                                .b = order >= 0 ? lists[1][j].tensor : NULL};
        i += order <= 0;
        j += order >= 0;
        compare_tensors(&diff);
        result->compared_tensors++;
        if (differs(&diff)) {
            result->tensors++;
            sink->tensor(sink->context, &diff);
        }
        if (diff.a) mla_safetensors_release(sides[0]->file, diff.a);
        if (diff.b) mla_safetensors_release(sides[1]->file, diff.b);
    }
}

static mla_status diff_tensors(mla_diff_result *result, const mla_diff_side *a, const mla_diff_side *b,
                               const mla_weights *weights, const mla_diff_sink *sink, mla_error *error) {
    const mla_diff_side *sides[2] = {a, b};
    entry *lists[2];
    size_t counts[2];
    result->weights_alone = (a->trained || b->trained) && (weights || !(a->trained && b->trained));
    for (int i = 0; i < 2; i++) {
        if (weights && *weights == MLA_WEIGHTS_AVERAGE && sides[i]->full && !sides[i]->checkpoint.has_ema)
            return mla_fail(error, MLA_INVALID, "%s holds no weight average (optim.ema was 0)", sides[i]->path);
    }
    for (int i = 0; i < 2; i++)
        lists[i] = list(&counts[i], sides[i], result->weights_alone, weights ? *weights : MLA_WEIGHTS_AUTO);
    mla_status status = MLA_OK;
    if (lists[0] && lists[1])
        diff_lists(result, sides, lists, counts, sink);
    else
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory for the tensors of %s and %s", a->path, b->path);
    free(lists[0]);
    free(lists[1]);
    return status;
}

/* ---- keys */

typedef struct key_context {
    mla_diff_result *result;
    const mla_diff_sink *sink;
    const char *section;
} key_context;

static void note_key(void *context, const char *key, const char *a, const char *b) {
    const key_context *c = context;
    c->result->keys++;
    c->sink->key(c->sink->context, c->section, key, a, b);
}

/* What stands beside config and tensors: hashes and CRCs follow from those. */
static void diff_metadata(key_context *c, const mla_diff_side *a, const mla_diff_side *b) {
    static const char *const keys[] = {
        "classes", "mean", "std", "size", "counters", "step", "epoch", "best_test_accuracy", "best_test_epoch"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *first = mla_safetensors_metadata(a->file, keys[i]), *second = mla_safetensors_metadata(b->file, keys[i]);
        if (!first || !second) continue; /* an export, or one that another tool saved again, says less */
        c->result->compared_keys++;
        if (strcmp(first, second)) note_key(c, keys[i], first, second);
    }
}

mla_status mla_diff(mla_diff_result *result, const mla_diff_side *a, const mla_diff_side *b, const mla_weights *weights,
                    const mla_diff_sink *sink, mla_error *error) {
    key_context context = {result, sink, "config"};
    const bool configs = a->has_config && b->has_config, tensors = a->file && b->file;
    *result = (mla_diff_result){0};
    if (!configs && !tensors)
        return mla_fail(error, MLA_INVALID,
                        "%s and %s have nothing in common: one is a config, the other tensors without one", a->path,
                        b->path);
    if (configs) {
        result->compared_keys = mla_config_key_count;
        mla_config_compare(&a->config, &b->config, note_key, &context);
    }
    context.section = "metadata";
    if (configs && tensors) diff_metadata(&context, a, b);
    return tensors ? diff_tensors(result, a, b, weights, sink, error) : MLA_OK;
}
