#include "train/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/dataset.h"
#include "train/lanes.h"
#include "train/machine.h"
#include "train/run.h"

enum { SHARDS_A_THREAD = 4 }; /* of a round: enough that threads seldom wait for each other at its end */

/* The images that are worked on together. */
typedef struct round_of_images {
    const mla_loaded *loaded;
    const mla_image_list *list;
    size_t first, count; /* in the list */
    real *logits;        /* (room, classes) */
    char **failure;      /* (room), owned; NULL where the image was read */
} round_of_images;

mla_status mla_predict_fit(uint8_t *pixels, const mla_image *image, const mla_checkpoint *checkpoint, mla_error *error) {
    mla_data_config config = checkpoint->config.data;
    config.size = checkpoint->classes.size;
    return mla_image_fit(pixels, image, &config, error);
}

static mla_status load_one(real *out, const char *path, const mla_checkpoint *checkpoint, uint8_t *pixels,
                           mla_error *error) {
    mla_image image;
    mla_status status = mla_image_load(&image, path, error);
    if (status != MLA_OK) return status;
    status = mla_predict_fit(pixels, &image, checkpoint, error);
    mla_image_free(&image);
    if (status != MLA_OK) return mla_fail_context(error, "%s: ", path);
    mla_image_prepare(out, pixels, checkpoint->classes.size, checkpoint->classes.mean, checkpoint->classes.std, NULL, 0, 0,
                      0);
    return MLA_OK;
}

/* An image that can't be read leaves its reason, and zeros in its place. */
static mla_status load(void *context, size_t first, size_t count, mla_shard *shard, mla_error *error) {
    round_of_images *round = context;
    const mla_checkpoint *checkpoint = &round->loaded->checkpoint;
    const size_t side = (size_t)checkpoint->classes.size, values = 3 * side * side;
    real *images = shard->images;
    for (size_t i = first; i < first + count; i++, images += values) {
        const char *path = mla_image_list_path(round->list, round->first + i);
        mla_error why = {0};
        shard->samples[i - first] = round->first + i;
        shard->labels[i - first] = 0;
        if (load_one(images, path, checkpoint, shard->pixels, &why) == MLA_OK) continue;
        shard->labels[i - first] = -1;
        memset(images, 0, values * sizeof *images);
        round->failure[i] = strdup(why.text);
        if (!round->failure[i]) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    }
    return MLA_OK;
}

static int more_probable_first(const void *left, const void *right, void *probability) {
    const int a = *(const int *)left, b = *(const int *)right;
    const double p = ((const double *)probability)[a], q = ((const double *)probability)[b];
    return p > q ? -1 : p < q ? 1 : a - b;
}

/* Softmax and ranking; false when a logit is not finite. */
static bool score(mla_prediction *p) {
    double largest = (double)p->logits[0], sum = 0;
    for (size_t k = 0; k < p->classes; k++) {
        if (!isfinite(p->logits[k])) return false;
        largest = fmax(largest, (double)p->logits[k]);
    }
    for (size_t k = 0; k < p->classes; k++) sum += p->probability[k] = exp((double)p->logits[k] - largest);
    for (size_t k = 0; k < p->classes; k++) p->order[k] = (int)k;
    for (size_t k = 0; k < p->classes; k++) p->probability[k] /= sum;
    qsort_r(p->order, p->classes, sizeof *p->order, more_probable_first, p->probability);
    return true;
}

static mla_status hand_over(const round_of_images *round, mla_prediction *p, mla_prediction_sink *sink, void *context,
                            mla_error *error) {
    mla_status status = MLA_OK;
    for (size_t i = 0; status == MLA_OK && i < round->count; i++) {
        char not_finite[MLA_ERROR_BYTES];
        p->path = mla_image_list_path(round->list, round->first + i);
        p->logits = round->logits + i * p->classes;
        p->failure = round->failure[i];
        if (!p->failure && !score(p)) {
            snprintf(not_finite, sizeof not_finite, "%s: the model gives numbers that are not finite", p->path);
            p->failure = not_finite;
        }
        status = sink(context, p, error);
    }
    return status;
}

static mla_status run_round(round_of_images *round, mla_engine *engine, const volatile sig_atomic_t *stop,
                            mla_error *error) {
    mla_batch_result result;
    const mla_image_source source = {.load = load, .context = round};
    return mla_engine_evaluate(engine, &source, round->count, mla_model_params(round->loaded->model)->value, round->logits,
                               stop, &result, error);
}

static void forget_failures(round_of_images *round) {
    for (size_t i = 0; i < round->count; i++) {
        free(round->failure[i]);
        round->failure[i] = NULL;
    }
}

mla_status mla_predict(const mla_loaded *loaded, const mla_image_list *list, int threads, const volatile sig_atomic_t *stop,
                       mla_prediction_sink *sink, void *context, mla_error *error) {
    const size_t classes = (size_t)loaded->checkpoint.classes.count, total = mla_image_list_count(list);
    const size_t shard = (size_t)mla_run_shard(&loaded->checkpoint.config), shards = (total + shard - 1) / shard;
    const int used = (size_t)threads < shards ? threads : shards ? (int)shards : 1;
    const size_t largest = shard * SHARDS_A_THREAD * (size_t)used, room = total < largest ? total : largest;
    round_of_images round = {.loaded = loaded,
                             .list = list,
                             .logits = malloc((room + 1) * classes * sizeof(real)),
                             .failure = calloc(room + 1, sizeof(char *))};
    mla_prediction p = {
        .classes = classes, .probability = malloc(classes * sizeof(double)), .order = malloc(classes * sizeof(int))};
    mla_engine *engine = NULL;
    mla_status status = round.logits && round.failure && p.probability && p.order
                            ? MLA_OK
                            : mla_fail(error, MLA_NO_MEMORY, "out of memory for the scores of %zu images", room);
    mla_machine_flush_denormals(used);
    const mla_engine_options options = {.threads = used, .lanes = 1, .shard = (int)shard};
    if (status == MLA_OK) status = mla_engine_new(&engine, loaded->model, &options, error);
    for (; status == MLA_OK && round.first < total; round.first += round.count) {
        round.count = total - round.first < room ? total - round.first : room;
        status = run_round(&round, engine, stop, error);
        if (status == MLA_OK) status = hand_over(&round, &p, sink, context, error);
        forget_failures(&round);
    }
    mla_engine_free(engine);
    free(round.logits);
    free(round.failure);
    free(p.probability);
    free(p.order);
    return status;
}
