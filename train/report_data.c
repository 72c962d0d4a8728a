#include "train/report_data.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/config_schema.h"
#include "train/file.h"
#include "train/text.h"

/* ---- runs */

static mla_status read_config(mla_report_run *run, mla_error *error) {
    mla_error why = {0};
    char *path = mla_path_join(run->folder, "config.yaml");
    run->config = malloc(sizeof *run->config);
    if (!path || !run->config) {
        free(path);
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", run->folder);
    }
    if (mla_config_load(run->config, path, NULL, 0, &why) != MLA_OK) {
        fprintf(stderr, "mirrorla: shown without its config: %s\n", why.text);
        free(run->config);
        run->config = NULL;
    }
    free(path);
    return MLA_OK;
}

static mla_status open_folder(mla_report_run *run, const char *path, mla_error *error) {
    run->folder = strdup(path);
    run->log_path = mla_path_join(path, "log.jsonl");
    run->timing_path = mla_path_join(path, "timing.jsonl");
    if (!run->folder || !run->log_path || !run->timing_path)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    if (access(run->log_path, F_OK) != 0)
        return mla_fail(error, MLA_INVALID, "%s: is no run folder: it has no log.jsonl", path);
    return read_config(run, error);
}

mla_status mla_report_run_open(mla_report_run *run, const char *path, const char *name, mla_error *error) {
    struct stat info;
    *run = (mla_report_run){.name = strdup(name), .curves = mla_curves_new()};
    mla_status status = MLA_OK;
    if (!run->name || !run->curves) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    if (status == MLA_OK && stat(path, &info) != 0)
        status = mla_fail(error, MLA_INVALID, "%s: there is no such run folder", path);
    if (status == MLA_OK && S_ISDIR(info.st_mode)) {
        status = open_folder(run, path, error);
    } else if (status == MLA_OK) {
        run->log_path = strdup(path);
        if (!run->log_path) status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    }
    run->log.path = run->log_path;
    run->timing.path = run->timing_path;
    if (status != MLA_OK) mla_report_run_close(run);
    return status;
}

mla_status mla_report_run_read(mla_report_run *run, mla_error *error) {
    const mla_status status = mla_curves_read(run->curves, &run->log, error);
    return status == MLA_OK && run->timing_path ? mla_curves_read(run->curves, &run->timing, error) : status;
}

void mla_report_run_close(mla_report_run *run) {
    free(run->folder);
    free(run->name);
    free(run->log_path);
    free(run->timing_path);
    free(run->config);
    mla_curves_free(run->curves);
    *run = (mla_report_run){0};
}

/* ---- JSON */

void mla_report_put_json(FILE *out, const char *json) {
    for (; *json; json++) *json == '<' ? fputs("\\u003c", out) : fputc(*json, out);
}

void mla_report_put_text(FILE *out, const char *text) {
    char plain[MLA_PATH_BYTES];
    mla_text_escape(plain, sizeof plain, text);
    json_t *string = json_string(plain);
    char *json = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    mla_report_put_json(out, json ? json : "null");
    json_decref(string);
    free(json);
}

void mla_report_put_number(FILE *out, double value) {
    char text[MLA_NUMBER_BYTES];
    mla_number_digits(text, value, 5);
    fputs(text, out);
}

void mla_report_put_bytes(FILE *out, const uint8_t *data, size_t bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    fputc('"', out);
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t left = bytes - i;
        const uint32_t three =
            (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) | (left > 2 ? data[i + 2] : 0);
        for (size_t j = 0; j < 4; j++) fputc(j <= left ? digits[three >> (18 - 6 * j) & 63] : '=', out);
    }
    fputc('"', out);
}

static void put_list(FILE *out, const char *key, size_t count, double (*value)(const void *context, size_t i),
                     const void *context) {
    fprintf(out, ",\"%s\":[", key);
    for (size_t i = 0; i < count; i++) {
        if (i) fputc(',', out);
        mla_report_put_number(out, value(context, i));
    }
    fputc(']', out);
}

/* ---- a run's curves */

typedef struct pick {
    const mla_curves *curves;
    int number;
    size_t layer;
} pick;

static double bucket_mean(const void *context, size_t i) {
    const pick *p = context;
    const mla_curve_bucket *b = &p->curves->bucket[i];
    return b->count[p->number] ? b->sum[p->number] / (double)b->count[p->number] : (double)NAN;
}

static double bucket_low(const void *context, size_t i) {
    const pick *p = context;
    const mla_curve_bucket *b = &p->curves->bucket[i];
    return b->count[p->number] ? b->low[p->number] : (double)NAN;
}

static double bucket_high(const void *context, size_t i) {
    const pick *p = context;
    const mla_curve_bucket *b = &p->curves->bucket[i];
    return b->count[p->number] ? b->high[p->number] : (double)NAN;
}

static double epoch_number(const void *context, size_t i) {
    const pick *p = context;
    return p->curves->epoch[i].number[p->number];
}

static double sample_number(const void *context, size_t i) {
    const pick *p = context;
    return p->curves->sample[i].number[p->layer * MLA_LAYER_NUMBERS + (size_t)p->number];
}

static bool has_step_number(const mla_curves *c, int number) {
    for (size_t i = 0; i < c->buckets; i++)
        if (c->bucket[i].count[number]) return true;
    return false;
}

/* Steps stand as whole numbers, which five digits would not do. */
static void put_steps(FILE *out, const mla_curves *c) {
    char key[32];
    fprintf(out, ",\"steps\":{\"bucket\":%" PRIu64 ",\"at\":[", c->bucket_steps);
    for (size_t i = 0; i < c->buckets; i++) fprintf(out, "%s%" PRIu64, i ? "," : "", c->bucket[i].last_step);
    fputc(']', out);
    for (int n = 0; n < MLA_STEP_NUMBERS; n++) {
        const pick p = {.curves = c, .number = n};
        if (!has_step_number(c, n)) continue;
        put_list(out, mla_step_number_names[n], c->buckets, bucket_mean, &p);
        if (n == MLA_STEP_LR || c->bucket_steps < 2) continue;
        snprintf(key, sizeof key, "%s_low", mla_step_number_names[n]);
        put_list(out, key, c->buckets, bucket_low, &p);
        snprintf(key, sizeof key, "%s_high", mla_step_number_names[n]);
        put_list(out, key, c->buckets, bucket_high, &p);
    }
    fputc('}', out);
}

static bool has_number(const mla_curves *c, int number) {
    for (size_t i = 0; i < c->epochs; i++)
        if (isfinite(c->epoch[i].number[number])) return true;
    return false;
}

static void put_epochs(FILE *out, const mla_curves *c) {
    fputs(",\"epochs\":{\"at\":[", out);
    for (size_t i = 0; i < c->epochs; i++) fprintf(out, "%s%" PRIu64, i ? "," : "", c->epoch[i].epoch);
    fputc(']', out);
    for (int n = 0; n < MLA_EPOCH_NUMBERS; n++)
        if (has_number(c, n)) put_list(out, mla_epoch_number_names[n], c->epochs, epoch_number, &(pick){c, n, 0});
    fputc('}', out);
}

/* "values": one list a layer, of one list a number, of one value a sample. */
static void put_layers(FILE *out, const mla_curves *c) {
    fputs(",\"layers\":{\"at\":[", out);
    for (size_t i = 0; i < c->samples; i++) fprintf(out, "%s%" PRIu64, i ? "," : "", c->sample[i].epoch);
    fputs("],\"layer\":[", out);
    for (size_t i = 0; i < c->layers; i++) {
        fprintf(out, "%s{\"kind\":", i ? "," : "");
        mla_report_put_text(out, c->layer[i].kind);
        fputs(",\"tokens\":", out);
        mla_report_put_number(out, c->layer[i].tokens);
        fputs(",\"heads\":", out);
        mla_report_put_number(out, c->layer[i].heads);
        for (int n = 0; n < MLA_LAYER_NUMBERS; n++)
            put_list(out, mla_layer_number_names[n], c->samples, sample_number, &(pick){c, n, i});
        fputc('}', out);
    }
    fputs("]}", out);
}

static void put_config(FILE *out, const mla_config *config) {
    fputs(",\"config\":[", out);
    for (size_t i = 0; i < mla_config_key_count; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *value = open_memstream(&text, &bytes);
        if (value) {
            mla_config_put_value(value, config, &mla_config_keys[i]);
            fclose(value);
        }
        if (i) fputc(',', out);
        mla_report_put_text(out, text ? text : "?");
        free(text);
    }
    fputc(']', out);
}

static void put_run(FILE *out, const mla_report_run *run) {
    const mla_curves *c = run->curves;
    fputs("{\"name\":", out);
    mla_report_put_text(out, run->name);
    fputs(",\"steps_per_epoch\":", out);
    mla_report_put_number(out, c->steps_per_epoch);
    if (c->best.epoch) {
        const double average = c->best.number[MLA_EPOCH_AVERAGE_ACCURACY];
        fprintf(out, ",\"best_epoch\":%" PRIu64 ",\"best\":", c->best.epoch);
        mla_report_put_number(out, isfinite(average) ? average : c->best.number[MLA_EPOCH_TEST_ACCURACY]);
    }
    if (run->config) put_config(out, run->config);
    put_steps(out, c);
    put_epochs(out, c);
    if (c->samples) put_layers(out, c);
    fputc('}', out);
}

void mla_report_put_runs(FILE *out, const mla_report_run *runs, size_t count) {
    fputs("\"keys\":[", out);
    for (size_t i = 0; i < mla_config_key_count; i++) fprintf(out, "%s\"%s\"", i ? "," : "", mla_config_keys[i].name);
    fputs("],\"layer_numbers\":[", out);
    for (int n = 0; n < MLA_LAYER_NUMBERS; n++) fprintf(out, "%s\"%s\"", n ? "," : "", mla_layer_number_names[n]);
    fputs("],\n\"runs\":[\n", out);
    for (size_t i = 0; i < count; i++) {
        if (i) fputs(",\n", out);
        put_run(out, &runs[i]);
    }
    fputs("]", out);
}
