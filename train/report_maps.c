/* Attention of runs on the same test images, for the page: numbers as bytes, which the page colours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/probe.h"
#include "train/dataset.h"
#include "train/file.h"
#include "train/loaded.h"
#include "train/machine.h"
#include "train/report_data.h"

enum { MOST_TOKENS = 4096 };

/* A run's model with the images that it sees. */
typedef struct subject {
    mla_loaded loaded;
    mla_dataset *set;
    mla_tape *tape;
    uint8_t *pixels;
    real *input;
} subject;

static void close_subject(subject *s) {
    mla_loaded_close(&s->loaded);
    mla_dataset_close(s->set);
    mla_tape_free(s->tape);
    free(s->pixels);
    free(s->input);
}

/* The best checkpoint, else the newest; the caller frees it.  NULL: none, with the reason. */
static char *find_checkpoint(const mla_report_run *run, mla_error *why) {
    char *path = NULL;
    if (!run->folder) {
        (void)mla_fail(why, MLA_INVALID, "a log alone has no checkpoint");
        return NULL;
    }
    if (asprintf(&path, "%s/checkpoints/best.safetensors", run->folder) < 0) return NULL;
    if (access(path, F_OK) == 0) return path;
    free(path);
    path = NULL;
    return mla_checkpoint_newest(&path, run->folder, why) == MLA_OK ? path : NULL;
}

static mla_status open_subject(subject *s, const char *checkpoint, const char *data, mla_error *error) {
    *s = (subject){0};
    mla_status status = mla_loaded_open_weights(&s->loaded, checkpoint, MLA_WEIGHTS_AUTO, error);
    if (status != MLA_OK) return status;
    mla_data_config set = s->loaded.checkpoint.config.data;
    const mla_class_info *classes = &s->loaded.checkpoint.classes;
    if (data && strlen(data) >= sizeof set.path) status = mla_fail(error, MLA_INVALID, "--data: the path is too long");
    if (data && status == MLA_OK) strcpy(set.path, data);
    if (status == MLA_OK)
        status = mla_dataset_open(&s->set, &set, MLA_SPLIT_TEST, s->loaded.checkpoint.config.train.seed, error);
    if (status == MLA_OK) status = mla_dataset_map_classes(s->set, classes->names, classes->count, error);
    const size_t values = 3 * (size_t)classes->size * (size_t)classes->size;
    s->tape = mla_tape_new();
    s->pixels = malloc(values);
    s->input = malloc(values * sizeof *s->input);
    if (status == MLA_OK && (!s->tape || !s->pixels || !s->input))
        status = mla_fail(error, MLA_NO_MEMORY, "out of memory for an image");
    if (status == MLA_OK && mla_dataset_get_info(s->set)->size != classes->size)
        status = mla_fail(error, MLA_INVALID, "%s takes images of %d pixels, the data set gives %d", checkpoint,
                          classes->size, mla_dataset_get_info(s->set)->size);
    if (status != MLA_OK) close_subject(s);
    return status;
}

/* ---- numbers as bytes */

/* {"side":8,"low":0.8,"high":1.3,"map":"..."}: 0 = low, 255 = high. */
static void put_map(FILE *out, const double *value, size_t tokens, double low, double high) {
    uint8_t level[MOST_TOKENS];
    for (size_t i = 0; i < tokens; i++)
        level[i] = isfinite(value[i]) ? (uint8_t)lround(255 * fmin(fmax((value[i] - low) / (high - low), 0), 1)) : 0;
    fprintf(out, "{\"side\":%ld,\"low\":", lround(sqrt((double)tokens)));
    mla_report_put_number(out, low);
    fputs(",\"high\":", out);
    mla_report_put_number(out, high);
    fputs(",\"map\":", out);
    mla_report_put_bytes(out, level, tokens);
    fputc('}', out);
}

/* The scale covers at least 0.9 to 1.1, so that next to nothing does not look like something. */
static void put_share_map(FILE *out, const double *value, size_t tokens) {
    double low = 0.9, high = 1.1;
    for (size_t i = 0; i < tokens; i++) {
        low = fmin(low, value[i]);
        high = fmax(high, value[i]);
    }
    put_map(out, value, tokens, low, high);
}

static void put_signed_map(FILE *out, const double *value, size_t tokens) {
    double reach = 1e-6;
    for (size_t i = 0; i < tokens; i++) reach = fmax(reach, fabs(value[i]));
    put_map(out, value, tokens, -reach, reach);
}

/* ---- one image */

/* share (N): of each token in a layer, mean over the heads. */
static mla_status mean_share(double *share, const subject *s, const mla_probe *probe, int layer, mla_error *error) {
    mla_view view;
    mla_status status = mla_view_open(&view, probe, layer, 0, s->tape, error);
    if (status != MLA_OK) return status;
    real *received = malloc(view.heads * view.tokens * sizeof *received);
    status = received ? mla_view_received(received, &view, true, error)
                      : mla_fail(error, MLA_NO_MEMORY, "out of memory for the attention of %zu tokens", view.tokens);
    for (size_t n = 0; status == MLA_OK && n < view.tokens; n++) share[n] = (double)received[n];
    free(received);
    mla_view_close(&view);
    return status;
}

static void put_answer(FILE *out, const subject *s, mla_var logits) {
    const mla_tensor t = mla_value(s->tape, logits);
    const size_t classes = t.shape[1];
    size_t best = 0;
    double sum = 0;
    for (size_t k = 1; k < classes; k++)
        if (t.data[k] > t.data[best]) best = k;
    for (size_t k = 0; k < classes; k++) sum += exp((double)t.data[k] - (double)t.data[best]);
    fputs("{\"answer\":", out);
    mla_report_put_text(out, s->loaded.checkpoint.classes.names[best]);
    fputs(",\"probability\":", out);
    mla_report_put_number(out, 1 / sum);
}

static mla_status put_layer_maps(FILE *out, const subject *s, const mla_probe *probe, mla_error *error) {
    double *received = malloc(MOST_TOKENS * sizeof *received);
    mla_status status = received ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for a map");
    fputs(",\"layers\":[", out);
    for (int i = 0; status == MLA_OK && i < probe->layers; i++) {
        const size_t tokens = mla_value(s->tape, probe->layer[i].x).shape[1];
        if (i) fputc(',', out);
        if (tokens > MOST_TOKENS) {
            fputs("null", out);
            continue;
        }
        status = mean_share(received, s, probe, i, error);
        if (status == MLA_OK) put_share_map(out, received, tokens);
    }
    fputs("]", out);
    free(received);
    return status;
}

/* What the tokens say for the right class. */
static mla_status put_evidence(FILE *out, const subject *s, const mla_probe *probe, int label, mla_error *error) {
    const size_t tokens = mla_value(s->tape, probe->tokens).shape[1];
    if (tokens > MOST_TOKENS) return MLA_OK;
    real *evidence = malloc(tokens * sizeof *evidence);
    double *value = malloc(tokens * sizeof *value), offset;
    mla_status status =
        evidence && value ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for the evidence of %zu tokens", tokens);
    if (status == MLA_OK) status = mla_probe_evidence(evidence, &offset, probe, (size_t)label, 0, s->tape, error);
    for (size_t i = 0; status == MLA_OK && i < tokens; i++) value[i] = (double)evidence[i];
    if (status == MLA_OK) {
        fputs(",\"evidence\":", out);
        put_signed_map(out, value, tokens);
    }
    free(evidence);
    free(value);
    return status;
}

static size_t image_index(const subject *s, int image, int images) {
    return (size_t)image * mla_dataset_get_info(s->set)->count / (size_t)images;
}

static mla_status put_image_maps(FILE *out, const subject *s, size_t index, mla_error *error) {
    const mla_params *params = mla_model_params(s->loaded.model);
    const mla_class_info *classes = &s->loaded.checkpoint.classes;
    const size_t side = (size_t)classes->size;
    mla_probe probe = {0};
    int label;
    mla_status status = mla_dataset_read(s->set, index, 0, s->pixels, &label, error);
    if (status != MLA_OK) return status;
    mla_image_prepare(s->input, s->pixels, classes->size, classes->mean, classes->std, NULL, 0, 0, 0);
    mla_tape_begin(s->tape, params, params->value, NULL);
    const mla_var x = mla_tape_input(s->tape, mla_tensor_make(s->input, 4, (size_t[]){1, 3, side, side}));
    const mla_var logits = mla_model_forward(s->loaded.model, s->tape, x, &(mla_forward){.probe = &probe});
    status = mla_tape_status(s->tape, error);
    if (status == MLA_OK) put_answer(out, s, logits);
    if (status == MLA_OK) status = put_layer_maps(out, s, &probe, error);
    if (status == MLA_OK && label >= 0) status = put_evidence(out, s, &probe, label, error);
    fputc('}', out);
    mla_probe_free(&probe);
    return status;
}

/* ---- all */

static mla_status put_pictures(FILE *out, const subject *s, int images, mla_error *error) {
    const mla_dataset_info *info = mla_dataset_get_info(s->set);
    const size_t plane = (size_t)info->size * (size_t)info->size;
    fputc('[', out);
    for (int i = 0; i < images; i++) {
        int label;
        const mla_status status = mla_dataset_read(s->set, image_index(s, i, images), 0, s->pixels, &label, error);
        if (status != MLA_OK) return status;
        fprintf(out, "%s{\"size\":%d,\"label\":", i ? "," : "", info->size);
        mla_report_put_text(out, label < 0 ? "?" : info->names[label]);
        fputs(",\"planes\":", out);
        mla_report_put_bytes(out, s->pixels, 3 * plane);
        fputc('}', out);
    }
    fputc(']', out);
    return MLA_OK;
}

/* `pictures` are text, or "null" for those of the run before. */
static mla_status put_subject(FILE *out, size_t run, const subject *s, const char *pictures, int images, mla_error *error) {
    mla_status status = MLA_OK;
    fprintf(out, "{\"run\":%zu,\"pictures\":%s,\"images\":[", run, pictures);
    for (int i = 0; status == MLA_OK && i < images; i++) {
        if (i) fputc(',', out);
        status = put_image_maps(out, s, image_index(s, i, images), error);
    }
    fputs("]}", out);
    return status;
}

/* The same but for the seed and where the data is. */
static bool same_setting(const mla_report_run *a, const mla_report_run *b) {
    if (!a->config || !b->config) return false;
    mla_config *other = malloc(sizeof *other);
    if (!other) return false;
    *other = *b->config;
    other->train.seed = a->config->train.seed;
    memcpy(other->data.path, a->config->data.path, sizeof other->data.path);
    char *x = mla_config_text(a->config), *y = mla_config_text(other);
    const bool same = x && y && !strcmp(x, y);
    free(x);
    free(y);
    free(other);
    return same;
}

/* Ends a text begun with open_memstream; *text is NULL, and nothing left, when it failed. */
static void end_text(FILE *out, char **text, mla_status *status, mla_error *error) {
    const bool failed = ferror(out) != 0;
    if ((fclose(out) != 0 || failed) && *status == MLA_OK)
        *status = mla_fail(error, MLA_NO_MEMORY, "out of memory for maps");
    if (*status == MLA_OK) return;
    free(*text);
    *text = NULL;
}

/* A run's maps as a text of its own, so that one that fails leaves nothing behind; NULL then.  *pictures, which the caller
 * frees, are those of the run before, and become this run's where they are others. */
static char *maps_of_run(char **pictures, const mla_report_run *run, size_t index, const mla_report_options *options,
                         mla_error *error) {
    subject s;
    char *text = NULL, *own = NULL;
    size_t bytes;
    char *checkpoint = find_checkpoint(run, error);
    mla_status status = checkpoint ? open_subject(&s, checkpoint, options->data, error) : MLA_INVALID;
    free(checkpoint);
    if (status != MLA_OK) return NULL;
    const size_t count = mla_dataset_get_info(s.set)->count;
    const int images = (size_t)options->images < count ? options->images : (int)count;
    FILE *out = open_memstream(&own, &bytes);
    status = out ? put_pictures(out, &s, images, error) : mla_fail(error, MLA_NO_MEMORY, "out of memory for maps");
    if (out) end_text(out, &own, &status, error);
    const bool same = own && *pictures && !strcmp(own, *pictures);
    out = status == MLA_OK ? open_memstream(&text, &bytes) : NULL;
    if (out) {
        status = put_subject(out, index, &s, same ? "null" : own, images, error);
        end_text(out, &text, &status, error);
    }
    if (text && !same) {
        free(*pictures);
        *pictures = own;
        own = NULL;
    }
    free(own);
    close_subject(&s);
    return text;
}

mla_status mla_report_put_maps(FILE *out, const mla_report_run *runs, size_t count, const mla_report_options *options,
                               mla_error *error) {
    int shown = 0;
    char *pictures = NULL;
    mla_status status = MLA_OK;
    mla_machine_flush_denormals(1);
    fputs("\"maps\":[", out);
    for (size_t i = 0; status == MLA_OK && i < count && shown < options->maps; i++) {
        mla_error why = {0};
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) seen = same_setting(&runs[j], &runs[i]);
        if (seen) continue;
        char *text = maps_of_run(&pictures, &runs[i], i, options, &why);
        if (text)
            fprintf(out, "%s%s", shown++ ? ",\n" : "", text);
        else if (why.status == MLA_NO_MEMORY)
            status = mla_fail(error, MLA_NO_MEMORY, "%s", why.text);
        else
            fprintf(stderr, "mirrorla: %s: without attention maps: %s\n", runs[i].name, why.text);
        free(text);
    }
    free(pictures);
    fputc(']', out);
    return status;
}
