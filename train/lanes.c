#include "train/lanes.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "layers/prepared.h"

/* What a thread works with. */
typedef struct worker {
    mla_tape *tape;
    mla_shard shard;
    real *seed;
    bool profiled;
    mla_engine_profile profile;
} worker;

/* Sums of one shard, kept apart so that they are added in the order of the shards. */
typedef struct shard_sum {
    double loss, retention;
    uint64_t images, correct;
} shard_sum;

struct mla_engine {
    const mla_model *model;
    mla_prepared *prepared;
    mla_engine_options options;
    worker *workers;
    /* The tree: node 1 is the root, node i has children 2i and 2i + 1, lane l is node lanes + l.  A finished subtree
     * waits in its node until its sibling is finished; `idle` holds buffers nobody uses. */
    real **node, **idle;
    real *buffers;
    int buffer_count, idle_count;
    omp_lock_t lock;
    shard_sum *sums;
    size_t sum_capacity, allocations;
    mla_error error; /* of the first shard that failed; `failed_shard` orders them */
    size_t failed_shard;
    bool failed;
};

/* Stands for a subtree without images: adding it is leaving it out. */
static real nothing[1];

/* Buffers alive at once: one a thread, and, for each thread's unfinished lane, at most one finished subtree a level. */
static int buffers_needed(const mla_engine_options *o) {
    int levels = 0;
    for (int lanes = o->lanes; lanes > 1; lanes /= 2) levels++;
    const int most = o->threads * (1 + levels);
    return most < o->lanes ? most : o->lanes;
}

static bool worker_allocate(worker *w, const mla_engine *engine) {
    const mla_model_spec *spec = mla_model_get_spec(engine->model);
    const size_t shard = (size_t)engine->options.shard;
    w->tape = mla_tape_new();
    w->seed = malloc(shard * sizeof(real));
    return mla_shard_allocate(&w->shard, shard, (size_t)spec->image) && w->tape && w->seed;
}

static mla_params *params_of(const mla_engine *engine) { return mla_model_params((mla_model *)(uintptr_t)engine->model); }

mla_status mla_engine_new(mla_engine **out, const mla_model *model, const mla_engine_options *options, mla_error *error) {
    *out = NULL;
    MLA_REQUIRE(options->threads > 0 && options->shard > 0 && options->lanes > 0 && !(options->lanes & (options->lanes - 1)),
                "engine of %d threads, %d lanes, shards of %d", options->threads, options->lanes, options->shard);
    mla_engine *e = calloc(1, sizeof *e);
    if (!e) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the training engine");
    omp_init_lock(&e->lock);
    e->model = model;
    e->options = *options;
    e->workers = calloc((size_t)options->threads, sizeof *e->workers);
    e->node = calloc(2 * (size_t)options->lanes, sizeof *e->node);
    e->idle = calloc((size_t)options->lanes, sizeof *e->idle);
    if (mla_prepared_new(&e->prepared, model, error) != MLA_OK) {
        mla_engine_free(e);
        return MLA_NO_MEMORY;
    }
    bool enough = e->workers && e->node && e->idle;
    for (int t = 0; enough && t < options->threads; t++) enough = worker_allocate(&e->workers[t], e);
    if (!enough) {
        mla_engine_free(e);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the training engine of %d threads", options->threads);
    }
    *out = e;
    return MLA_OK;
}

void mla_engine_free(mla_engine *e) {
    if (!e) return;
    for (int t = 0; e->workers && t < e->options.threads; t++) {
        mla_tape_free(e->workers[t].tape);
        mla_shard_free(&e->workers[t].shard);
        free(e->workers[t].seed);
    }
    omp_destroy_lock(&e->lock);
    mla_prepared_free(e->prepared);
    free(e->workers);
    free(e->node);
    free(e->idle);
    free(e->buffers);
    free(e->sums);
    free(e);
}

/* Room for the sums of `shards` shards, and in training for the lanes' gradients (evaluation needs none). */
static mla_status reserve(mla_engine *e, size_t shards, bool gradients, mla_error *error) {
    if (shards > e->sum_capacity) {
        free(e->sums);
        e->sums = calloc(shards, sizeof *e->sums);
        e->sum_capacity = e->sums ? shards : 0;
        e->allocations++;
        if (!e->sums) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %zu shards", shards);
    }
    if (gradients && !e->buffers) {
        const size_t size = params_of(e)->size;
        e->buffer_count = buffers_needed(&e->options);
        /* Pages are only taken by buffers that come to be used. */
        e->buffers = mla_memory_new((size_t)e->buffer_count * size * sizeof(real));
        e->allocations++;
        if (!e->buffers)
            return mla_fail(error, MLA_NO_MEMORY, "out of memory for %d gradient buffers of %.1f MiB", e->buffer_count,
                            (double)(size * sizeof(real)) / 1048576.0);
    }
    /* All buffers are idle again, wherever the call before left them; the first ones are taken first. */
    for (int i = 0; i < e->buffer_count; i++) e->idle[e->buffer_count - 1 - i] = e->buffers + (size_t)i * params_of(e)->size;
    e->idle_count = e->buffer_count;
    memset(e->node, 0, 2 * (size_t)e->options.lanes * sizeof *e->node);
    e->failed = false;
    return MLA_OK;
}

/* The error of the earliest shard is the one told, whoever met one first. */
static void remember_error(mla_engine *e, size_t shard, const mla_error *error) {
    omp_set_lock(&e->lock);
    if (!e->failed || shard < e->failed_shard) {
        e->error = *error;
        e->failed_shard = shard;
    }
    e->failed = true;
    omp_unset_lock(&e->lock);
}

/* A shard after one that failed is not needed any more; one before it is, as its error would be the one told. */
static bool not_needed(mla_engine *e, size_t shard) {
    omp_set_lock(&e->lock);
    const bool later = e->failed && shard > e->failed_shard;
    omp_unset_lock(&e->lock);
    return later;
}

static mla_status fail_not_finite(const mla_engine *e, const mla_tape *tape, mla_error *error) {
    const int node = mla_tape_not_finite(tape);
    mla_node_info info;
    if (node < 0 || !mla_tape_node(tape, node, &info)) return mla_fail(error, MLA_NOT_FINITE, "the loss is not finite");
    return mla_fail(error, MLA_NOT_FINITE,
                    "the loss is not finite: the first value that is not is operation %d, %s %s, at %s", node, info.op,
                    mla_shape_text(&info.out), info.param >= 0 ? params_of(e)->entry[info.param].name : "the input");
}

/* Loss and correct answers of the shard's images; labels of -1 are left out. */
static void count_results(const worker *w, const mla_tensor *logits, const mla_tensor *loss, size_t count, shard_sum *sum) {
    const mla_shard *shard = &w->shard;
    const size_t classes = logits->shape[1];
    *sum = (shard_sum){0};
    for (size_t b = 0; b < count; b++) {
        if (shard->labels[b] < 0) continue;
        const real *row = logits->data + b * classes;
        size_t best = 0;
        for (size_t k = 1; k < classes; k++)
            if (row[k] > row[best]) best = k;
        sum->loss += (double)loss->data[b];
        sum->retention += mla_model_retention(w->tape, b);
        sum->images++;
        sum->correct += best == (size_t)mla_shard_answer(shard, b);
    }
}

/* A shard's job: which images, with which weights, and what to do with them. */
typedef struct job {
    const mla_image_source *source;
    size_t first, count, batch;
    const real *values;
    real *gradient; /* NULL: evaluation */
    double smoothing;
    real *logits; /* (batch, classes), evaluation; NULL: not wanted */
} job;

/* The loss of each image, with one or two labels; images that are left out get label 0 and no weight. */
static mla_var record_loss(worker *w, mla_var logits, const job *j) {
    const mla_shard *shard = &w->shard;
    bool mixed = false;
    for (size_t b = 0; b < j->count; b++) {
        mixed |= shard->shares[b] != 1;
        w->seed[b] = shard->labels[b] < 0 ? 0 : (real)(1 / (double)j->batch);
    }
    int *labels = mla_tape_alloc(w->tape, j->count * sizeof(int));
    for (size_t b = 0; labels && b < j->count; b++) labels[b] = shard->labels[b] < 0 ? 0 : shard->labels[b];
    if (!labels) return MLA_NO_VAR;
    if (!mixed) return mla_cross_entropy(w->tape, logits, labels, NULL, j->smoothing);
    for (size_t b = 0; b < j->count; b++)
        if (shard->shares[b] == 1) shard->others[b] = labels[b];
    return mla_cross_entropy_mixed(w->tape, logits, labels, shard->others, shard->shares, j->smoothing);
}

static uint64_t start_part(const worker *w) { return w->profiled ? mla_profile_now() : 0; }

/* Adds the time since *start to a part and starts the next one. */
static void end_part(worker *w, mla_engine_part part, uint64_t *start) {
    if (!w->profiled) return;
    const uint64_t now = mla_profile_now();
    w->profile.ns[part] += now - *start;
    *start = now;
}

static mla_status run_shard(mla_engine *e, worker *w, const job *j, shard_sum *sum, mla_error *error) {
    const mla_model_spec *spec = mla_model_get_spec(e->model);
    const size_t side = (size_t)spec->image;
    uint64_t start = start_part(w);
    for (size_t b = 0; b < j->count; b++) w->shard.shares[b] = 1;
    mla_status status = j->source->load(j->source->context, j->first, j->count, &w->shard, error);
    if (status != MLA_OK) return status;
    end_part(w, MLA_PART_LOAD, &start);
    mla_tape_begin(w->tape, params_of(e), j->values, j->gradient);
    mla_prepared_use(e->prepared, w->tape);
    const mla_forward forward = {j->gradient != NULL, j->source->seed, j->source->epoch, w->shard.samples, NULL};
    const mla_var x = mla_tape_input(w->tape, mla_tensor_make(w->shard.images, 4, (size_t[]){j->count, 3, side, side}));
    const mla_var logits = mla_model_forward(e->model, w->tape, x, &forward);
    const mla_var loss = record_loss(w, logits, j);
    status = mla_tape_status(w->tape, error);
    if (status != MLA_OK) return status;
    const mla_tensor rows = mla_value(w->tape, logits), losses = mla_value(w->tape, loss);
    count_results(w, &rows, &losses, j->count, sum);
    if (j->logits) memcpy(j->logits + j->first * rows.shape[1], rows.data, j->count * rows.shape[1] * sizeof(real));
    if (!j->gradient) return MLA_OK;
    if (!isfinite(sum->loss)) return fail_not_finite(e, w->tape, error);
    end_part(w, MLA_PART_FORWARD, &start);
    status = mla_tape_backward(w->tape, mla_model_loss(e->model, w->tape, loss), w->seed, error);
    end_part(w, MLA_PART_BACKWARD, &start);
    return status;
}

/* ---- the tree */

static real *take_buffer(mla_engine *e) {
    omp_set_lock(&e->lock);
    MLA_REQUIRE(e->idle_count > 0, "%d gradient buffers are too few for %d lanes on %d threads", e->buffer_count,
                e->options.lanes, e->options.threads);
    real *buffer = e->idle[--e->idle_count];
    omp_unset_lock(&e->lock);
    return buffer;
}

static void give_buffer(mla_engine *e, real *buffer) {
    if (buffer == nothing) return;
    omp_set_lock(&e->lock);
    e->idle[e->idle_count++] = buffer;
    omp_unset_lock(&e->lock);
}

/* left + right, always in this order, into left's buffer. */
static real *add_subtrees(mla_engine *e, real *left, real *right) {
    if (right == nothing) return left;
    if (left == nothing) return right;
    const size_t size = params_of(e)->size;
#pragma omp simd
    for (size_t i = 0; i < size; i++) left[i] += right[i];
    give_buffer(e, right);
    return left;
}

/* A subtree is finished: waits for its sibling, or is added to it and goes up. */
static void finish_node(mla_engine *e, size_t node, real *buffer) {
    while (node > 1) {
        omp_set_lock(&e->lock);
        real *sibling = e->node[node ^ 1];
        if (sibling)
            e->node[node ^ 1] = NULL;
        else
            e->node[node] = buffer;
        omp_unset_lock(&e->lock);
        if (!sibling) return;
        buffer = node % 2 ? add_subtrees(e, sibling, buffer) : add_subtrees(e, buffer, sibling);
        node /= 2;
    }
    e->node[1] = buffer;
}

static void run_lane(mla_engine *e, worker *w, const job *whole, size_t lane) {
    const size_t shard = (size_t)e->options.shard, lanes = (size_t)e->options.lanes;
    const size_t shards = (whole->batch + shard - 1) / shard;
    real *gradient = nothing;
    for (size_t s = lane; s < shards && !not_needed(e, s); s += lanes) {
        job j = *whole;
        if (gradient == nothing) {
            uint64_t start = start_part(w);
            gradient = take_buffer(e);
            memset(gradient, 0, params_of(e)->size * sizeof(real));
            end_part(w, MLA_PART_SUM, &start);
        }
        j.first = s * shard;
        j.count = whole->batch - j.first < shard ? whole->batch - j.first : shard;
        j.gradient = gradient;
        mla_error error = {0};
        if (run_shard(e, w, &j, &e->sums[s], &error) != MLA_OK) remember_error(e, s, &error);
    }
    uint64_t start = start_part(w);
    finish_node(e, lanes + lane, gradient);
    end_part(w, MLA_PART_SUM, &start);
}

/* Which thread meets how large a shard is chance: after a step all tapes get the room of the largest, so that later steps
 * allocate nothing. */
static void level_tapes(mla_engine *e) {
    const worker *largest = &e->workers[0];
    for (int t = 1; t < e->options.threads; t++)
        if (mla_tape_peak_bytes(e->workers[t].tape) > mla_tape_peak_bytes(largest->tape)) largest = &e->workers[t];
    for (int t = 0; t < e->options.threads; t++) mla_tape_match(e->workers[t].tape, largest->tape);
}

static void add_sums(const mla_engine *e, size_t shards, mla_batch_result *result) {
    *result = (mla_batch_result){.scale = 1};
    for (size_t s = 0; s < shards; s++) {
        result->loss_sum += e->sums[s].loss;
        result->retention_sum += e->sums[s].retention;
        result->images += e->sums[s].images;
        result->correct += e->sums[s].correct;
    }
}

static mla_status told_error(const mla_engine *e, mla_error *error) {
    if (error) *error = e->error;
    return e->error.status;
}

mla_status mla_engine_gradient(mla_engine *e, const mla_image_source *source, size_t count, double label_smoothing,
                               mla_batch_result *result, mla_error *error) {
    const size_t shards = (count + (size_t)e->options.shard - 1) / (size_t)e->options.shard;
    const mla_status status = reserve(e, shards, true, error);
    if (status != MLA_OK) return status;
    const job whole = {.source = source, .batch = count, .values = params_of(e)->value, .smoothing = label_smoothing};
    mla_prepared_update(e->prepared, whole.values, e->options.threads);
#pragma omp parallel for schedule(dynamic, 1) num_threads(e->options.threads)
    for (int lane = 0; lane < e->options.lanes; lane++) run_lane(e, &e->workers[omp_get_thread_num()], &whole, (size_t)lane);
    if (e->failed) return told_error(e, error);
    level_tapes(e);
    add_sums(e, shards, result);
    if (result->images == 0) return MLA_OK;
    result->gradient = e->node[1];
    mla_prepared_gradient(e->prepared, whole.values, result->gradient);
    result->scale = (double)count / (double)result->images;
    return MLA_OK;
}

mla_status mla_engine_evaluate(mla_engine *e, const mla_image_source *source, size_t count, const real *values, real *logits,
                               const volatile sig_atomic_t *stop, mla_batch_result *result, mla_error *error) {
    const size_t shard = (size_t)e->options.shard, shards = (count + shard - 1) / shard;
    const mla_status status = reserve(e, shards, false, error);
    if (status != MLA_OK) return status;
    mla_prepared_update(e->prepared, values, e->options.threads);
#pragma omp parallel for schedule(dynamic, 1) num_threads(e->options.threads)
    for (size_t s = 0; s < shards; s++) {
        if (not_needed(e, s)) continue;
        mla_error mine = {0};
        if (stop && *stop) {
            mla_fail(&mine, MLA_INTERRUPTED, "interrupted");
            remember_error(e, s, &mine);
            continue;
        }
        const job j = {.source = source,
                       .first = s * shard,
                       .count = count - s * shard < shard ? count - s * shard : shard,
                       .batch = count,
                       .values = values,
                       .logits = logits};
        if (run_shard(e, &e->workers[omp_get_thread_num()], &j, &e->sums[s], &mine) != MLA_OK) remember_error(e, s, &mine);
    }
    if (e->failed) return told_error(e, error);
    add_sums(e, shards, result);
    return MLA_OK;
}

void mla_engine_profile_set(mla_engine *e, bool on) {
    for (int t = 0; t < e->options.threads; t++) {
        worker *w = &e->workers[t];
        w->profiled = on;
        w->profile = (mla_engine_profile){0};
        mla_tape_profile(w->tape, on ? &w->profile.operations : NULL);
    }
}

void mla_engine_profile_take(mla_engine *e, mla_engine_profile *sum) {
    *sum = (mla_engine_profile){0};
    for (int t = 0; t < e->options.threads; t++) {
        worker *w = &e->workers[t];
        mla_profile_sum(&sum->operations, &w->profile.operations);
        for (int i = 0; i < MLA_PARTS; i++) sum->ns[i] += w->profile.ns[i];
        w->profile = (mla_engine_profile){0};
    }
}

mla_engine_memory mla_engine_memory_of(const mla_engine *e) {
    const size_t side = (size_t)mla_model_get_spec(e->model)->image, threads = (size_t)e->options.threads;
    mla_engine_memory memory = {
        .lane_gradients = (size_t)e->buffer_count * params_of(e)->size * sizeof(real),
        .prepared = mla_prepared_bytes(e->prepared),
        .loading = threads * (size_t)e->options.shard * 3 * side * side * sizeof(real),
    };
    for (size_t t = 0; t < threads; t++) {
        const size_t bytes = mla_tape_peak_bytes(e->workers[t].tape);
        memory.tapes += bytes;
        if (bytes > memory.tape) memory.tape = bytes;
    }
    return memory;
}

size_t mla_engine_allocations(const mla_engine *e) {
    size_t count = e->allocations;
    for (int t = 0; t < e->options.threads; t++) count += mla_tape_allocations(e->workers[t].tape);
    return count;
}
