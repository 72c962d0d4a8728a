#include "train/trainer.h"

#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/file.h"
#include "train/interrupt.h"
#include "train/machine.h"
#include "train/run.h"

static void hash_text(char out[17], const mla_run *run) {
    snprintf(out, 17, "%016" PRIx64, mla_params_hash(mla_run_params(run), mla_run_params(run)->value));
}

static uint64_t images_done(const mla_run *run) {
    const uint64_t count = mla_dataset_get_info(run->train_set)->count, batch = (uint64_t)run->config.train.batch;
    const uint64_t here = run->counters.step_in_epoch * batch;
    return run->counters.epoch * count + (here < count ? here : count);
}

/* ---- checkpoints */

static mla_status save(mla_run *run, const char *path, mla_error *error) {
    const mla_run_buffers buffers = mla_run_buffers_of(run);
    const mla_class_info classes = mla_run_classes(run);
    const char *name = mla_params_not_finite(mla_run_params(run), buffers.value);
    if (name)
        return mla_fail(error, MLA_NOT_FINITE,
                        "no checkpoint is written, the weights are not finite: the first tensor with such a value "
                        "is %s",
                        name);
    const mla_status status = mla_runlog_sync(run->log, error);
    if (status != MLA_OK) return status;
    return mla_checkpoint_save(path, mla_run_params(run), &buffers, &run->counters, &run->config, &classes, error);
}

static mla_status save_step(mla_run *run, mla_train_summary *summary, mla_error *error) {
    char *path = mla_checkpoint_path(run->folder, run->counters.step);
    if (!path) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a path");
    const mla_status status = save(run, path, error);
    if (status == MLA_OK) {
        mla_runlog_prune(run->folder, run->config.checkpoint.keep);
        snprintf(summary->checkpoint, sizeof summary->checkpoint, "%s", path);
    }
    free(path);
    return status;
}

static mla_status save_best(mla_run *run, mla_error *error) {
    char *folder = mla_path_join(run->folder, "checkpoints"),
         *path = folder ? mla_path_join(folder, "best.safetensors") : NULL;
    const mla_status status = path ? save(run, path, error) : mla_fail(error, MLA_NO_MEMORY, "out of memory for a path");
    free(folder);
    free(path);
    return status;
}

/* ---- one step */

static mla_loader loader_of(const mla_run *run, const mla_dataset *set, bool training) {
    mla_loader loader = {.dataset = set, .seed = run->config.train.seed, .epoch = training ? run->counters.epoch : 0};
    const mla_dataset_info *info = mla_dataset_get_info(run->train_set);
    memcpy(loader.mean, info->mean, sizeof loader.mean);
    memcpy(loader.std, info->std, sizeof loader.std);
    if (training) loader.augment = &run->config.augment;
    return loader;
}

static void order_epoch(mla_run *run) {
    if (run->has_order && run->order_epoch == run->counters.epoch) return;
    mla_shuffle(run->order, mla_dataset_get_info(run->train_set)->count, run->config.train.seed, run->counters.epoch);
    run->order_epoch = run->counters.epoch;
    run->has_order = true;
}

static mla_status check_gradient(const mla_run *run, const mla_batch_result *result, double norm, mla_error *error) {
    if (isfinite(norm)) return MLA_OK;
    const char *name = mla_params_not_finite(mla_run_params(run), result->gradient);
    return mla_fail(error, MLA_NOT_FINITE, "the gradient is not finite: the first tensor with such a value is %s",
                    name ? name : "none (its norm overflows)");
}

/* The optimiser's part of a step.  A batch without one readable image (data.on_error skip; it can be a last, short one)
 * changes nothing. */
static mla_status update(mla_run *run, const mla_batch_result *result, mla_step_record *record, mla_error *error) {
    const mla_counters *c = &run->counters;
    record->lr = mla_schedule_lr(&run->schedule, c->step);
    record->loss = record->retention_loss = record->grad_norm = NAN;
    record->has_retention = mla_model_has_kind(&run->config.model, MLA_ATTENTION_MIRROR) &&
                            run->config.model.attention.mirror.retention_loss > 0;
    if (result->images == 0) return MLA_OK;
    record->loss = result->loss_sum / (double)result->images;
    record->retention_loss = result->retention_sum / (double)result->images;
    record->grad_norm = result->scale * mla_gradient_norm(run->optimizer, result->gradient);
    const mla_status status = check_gradient(run, result, record->grad_norm, error);
    if (status != MLA_OK) return status;
    mla_optimizer_step(run->optimizer, result->gradient, record->lr,
                       result->scale * mla_clip_factor(record->grad_norm, run->config.optim.clip), c->step + 1);
    return MLA_OK;
}

static mla_status step(mla_run *run, mla_error *error) {
    mla_counters *c = &run->counters;
    const uint64_t count = mla_dataset_get_info(run->train_set)->count, batch = (uint64_t)run->config.train.batch;
    const uint64_t first = c->step_in_epoch * batch, size = count - first < batch ? count - first : batch;
    order_epoch(run);
    mla_loader loader = loader_of(run, run->train_set, true);
    loader.order = run->order;
    loader.first = first;
    loader.batch = size;
    const mla_image_source source = mla_loader_source(&loader);
    mla_batch_result result;
    mla_status status = mla_engine_gradient(run->engine, &source, size, run->config.train.label_smoothing, &result, error);
    mla_step_record record = {.step = c->step + 1, .epoch = c->epoch + 1};
    if (status == MLA_OK) status = update(run, &result, &record, error);
    if (status != MLA_OK) return status;
    c->step++;
    c->step_in_epoch++;
    c->epoch_loss_sum += result.loss_sum;
    c->epoch_correct += result.correct;
    c->epoch_images += result.images;
    record.images = result.images;
    record.correct = result.correct;
    return mla_runlog_step(run->log, &record, error);
}

static void show_progress(mla_run *run) {
    const mla_counters *c = &run->counters;
    char text[160];
    if (c->epoch_images == 0) return;
    snprintf(text, sizeof text, "epoch %" PRIu64 "/%d, step %" PRIu64 ", loss %.4f, train %.1f %%", c->epoch + 1,
             run->config.train.epochs, c->step, c->epoch_loss_sum / (double)c->epoch_images,
             100 * (double)c->epoch_correct / (double)c->epoch_images);
    mla_progress_show(&run->progress, images_done(run),
                      (uint64_t)run->config.train.epochs * mla_dataset_get_info(run->train_set)->count, text);
}

static void write_report(mla_run *run, bool last) {
    mla_error why = {0};
    if (!run->report || mla_report_live_update(run->report, last, &why) == MLA_OK) return;
    fprintf(stderr, "no report.html any more: %s\n", why.text);
    mla_report_live_close(run->report);
    run->report = NULL;
}

/* ---- the end of an epoch */

static mla_status evaluate(mla_run *run, const real *values, double *loss, uint64_t *correct, uint64_t *images,
                           mla_error *error) {
    const size_t count = mla_dataset_get_info(run->test_set)->count;
    mla_loader loader = loader_of(run, run->test_set, false);
    const mla_image_source source = mla_loader_source(&loader);
    mla_batch_result result;
    const mla_status status =
        mla_engine_evaluate(run->engine, &source, count, values, NULL, &mla_interrupted, &result, error);
    if (status != MLA_OK) return status;
    if (result.images == 0) return mla_fail(error, MLA_INVALID, "none of the %zu test images could be read", count);
    *loss = result.loss_sum / (double)result.images;
    *correct = result.correct;
    *images = result.images;
    return MLA_OK;
}

static mla_status test_epoch(mla_run *run, mla_epoch_record *record, mla_train_summary *summary, mla_error *error) {
    const real *average = mla_optimizer_average(run->optimizer);
    mla_status status =
        evaluate(run, mla_run_params(run)->value, &record->test_loss, &record->test_correct, &record->test_images, error);
    if (status == MLA_OK && average) {
        uint64_t images;
        status = evaluate(run, average, &record->ema_test_loss, &record->ema_test_correct, &images, error);
        record->has_ema = 1;
    }
    if (status != MLA_OK) return status;
    summary->tested = true;
    summary->test_correct = average ? record->ema_test_correct : record->test_correct;
    summary->test_images = record->test_images;
    return MLA_OK;
}

static void tell_epoch(const mla_run *run, const mla_epoch_record *r, const mla_timing_record *t) {
    fprintf(stderr, "epoch %" PRIu64 "/%d: train loss %.4f, %.2f %%", r->epoch, run->config.train.epochs, r->train_loss,
            100 * (double)r->train_correct / (double)r->train_images);
    if (r->test_images)
        fprintf(stderr, "; test loss %.4f, %.2f %% (%" PRIu64 " of %" PRIu64 ")", r->test_loss,
                100 * (double)r->test_correct / (double)r->test_images, r->test_correct, r->test_images);
    if (r->has_ema) fprintf(stderr, "; average %.2f %%", 100 * (double)r->ema_test_correct / (double)r->test_images);
    fprintf(stderr, "; %.1f s, %.0f images/s", t->seconds, t->images_per_second);
    const size_t unreadable = mla_dataset_unreadable(run->train_set) + mla_dataset_unreadable(run->test_set);
    if (unreadable) fprintf(stderr, "; %zu unreadable images so far", unreadable);
    fputc('\n', stderr);
}

static void count_epoch(mla_run *run) {
    mla_counters *c = &run->counters;
    c->epoch++;
    c->step_in_epoch = 0;
    c->epoch_loss_sum = 0;
    c->epoch_correct = c->epoch_images = 0;
}

/* What follows the last step of an epoch, with the time that it took. */
typedef struct epoch_end {
    mla_epoch_record epoch;
    mla_layers_record layers; /* no layers: not measured in this epoch */
    double evaluation_s, diagnostics_s;
} epoch_end;

static mla_status look_inside(mla_run *run, epoch_end *end, mla_error *error) {
    if (!run->diagnostics || !mla_diagnostics_due(run->diagnostics, end->epoch.epoch)) return MLA_OK;
    const double start = mla_seconds();
    end->layers = (mla_layers_record){.step = end->epoch.step, .epoch = end->epoch.epoch};
    const mla_status status = mla_diagnostics_measure(run->diagnostics, mla_run_params(run)->value, &end->layers, error);
    end->diagnostics_s = mla_seconds() - start;
    return status;
}

static mla_status write_epoch(mla_run *run, const epoch_end *end, mla_error *error) {
    const mla_epoch_record *record = &end->epoch;
    const double seconds = mla_seconds() - run->epoch_start_s - end->evaluation_s - end->diagnostics_s;
    const mla_timing_record timing = {.step = record->step,
                                      .epoch = record->epoch,
                                      .seconds = seconds,
                                      .images_per_second =
                                          (double)(record->train_images - run->epoch_start_images) / seconds,
                                      .evaluation_seconds = end->evaluation_s,
                                      .diagnostics_seconds = end->diagnostics_s,
                                      .peak_memory_bytes = mla_machine_peak_memory()};
    mla_progress_clear(&run->progress);
    tell_epoch(run, record, &timing);
    mla_status status = mla_runlog_epoch(run->log, record, error);
    if (status == MLA_OK && end->layers.layers) status = mla_runlog_layers(run->log, &end->layers, error);
    if (status == MLA_OK) status = mla_runlog_timing(run->log, &timing, error);
    return status;
}

/* A run that goes on in a new folder, or keeps a best checkpoint from now on, has no file for the best result yet. */
static bool has_best(const mla_run *run) {
    char path[MLA_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/checkpoints/best.safetensors", run->folder);
    return !run->config.checkpoint.best || access(path, F_OK) == 0;
}

static bool due(uint64_t count, int every) { return every > 0 && count % (uint64_t)every == 0; }

static mla_status finish_epoch(mla_run *run, mla_train_summary *summary, mla_error *error) {
    mla_counters *c = &run->counters;
    const mla_config *config = &run->config;
    const uint64_t epoch = c->epoch + 1;
    const bool last = epoch == (uint64_t)config->train.epochs;
    char hash[17];
    if (c->epoch_images == 0)
        return mla_fail(error, MLA_INVALID, "none of the %zu training images could be read",
                        mla_dataset_get_info(run->train_set)->count);
    hash_text(hash, run);
    epoch_end end = {.epoch = {.step = c->step,
                               .epoch = epoch,
                               .train_loss = c->epoch_loss_sum / (double)c->epoch_images,
                               .train_correct = c->epoch_correct,
                               .train_images = c->epoch_images,
                               .weight_hash = hash}};
    const mla_epoch_record *record = &end.epoch;
    const double evaluation_start = mla_seconds();
    mla_status status = MLA_OK;
    if (last || due(epoch, config->eval_every_epochs)) status = test_epoch(run, &end.epoch, summary, error);
    end.evaluation_s = mla_seconds() - evaluation_start;
    if (status == MLA_OK) status = look_inside(run, &end, error);
    if (status == MLA_OK) status = write_epoch(run, &end, error);
    if (status != MLA_OK) return status;
    write_report(run, false);
    const uint64_t correct = record->has_ema ? record->ema_test_correct : record->test_correct;
    const bool best = record->test_images && (c->best_epoch == 0 || correct > c->best_correct || !has_best(run));
    if (best) {
        c->best_correct = correct;
        c->best_images = record->test_images;
        c->best_epoch = epoch;
    }
    count_epoch(run);
    if (best && config->checkpoint.best) status = save_best(run, error);
    if (status == MLA_OK &&
        (last || due(epoch, config->checkpoint.every_epochs) || due(c->step, config->checkpoint.every_steps)))
        status = save_step(run, summary, error);
    run->epoch_start_s = mla_seconds();
    run->epoch_start_images = 0;
    return status;
}

/* ---- the loop */

static mla_status fail_loop(mla_run *run, mla_error *error, const char *when, uint64_t step) {
    mla_progress_clear(&run->progress);
    return mla_fail_context(error, "%sstep %" PRIu64 ": ", when, step);
}

static mla_status stop_here(mla_run *run, mla_train_summary *summary, mla_error *error) {
    mla_progress_clear(&run->progress);
    const mla_status status = save_step(run, summary, error);
    if (status != MLA_OK) return fail_loop(run, error, "after ", run->counters.step);
    return mla_fail(error, MLA_INTERRUPTED, "interrupted after step %" PRIu64 "; go on with --resume --out %s",
                    run->counters.step, run->folder);
}

static mla_status loop(mla_run *run, mla_train_summary *summary, mla_error *error) {
    const mla_config *config = &run->config;
    mla_counters *c = &run->counters;
    const uint64_t steps = mla_run_steps_per_epoch(run), most = (uint64_t)config->train.max_steps;
    run->epoch_start_s = mla_seconds();
    run->epoch_start_images = c->epoch_images;
    mla_progress_start(&run->progress, images_done(run));
    while (c->epoch < (uint64_t)config->train.epochs) {
        mla_status status = MLA_OK;
        if (mla_interrupted) return stop_here(run, summary, error);
        if (c->step_in_epoch == steps) {
            status = finish_epoch(run, summary, error);
            if (status == MLA_INTERRUPTED) return stop_here(run, summary, error);
        } else if (most && c->step >= most) {
            mla_progress_clear(&run->progress);
            status = save_step(run, summary, error);
            if (status == MLA_OK) return MLA_OK;
        } else {
            const uint64_t number = c->step + 1;
            status = step(run, error);
            if (status != MLA_OK) return fail_loop(run, error, "", number);
            show_progress(run);
            if (c->step_in_epoch < steps && due(c->step, config->checkpoint.every_steps))
                status = save_step(run, summary, error);
        }
        if (status != MLA_OK) return fail_loop(run, error, "after ", c->step);
    }
    return MLA_OK;
}

/* The whole table of parameters, for the run folder: which are decayed is a question that people ask. */
static mla_status write_parameter_table(const mla_run *run, mla_error *error) {
    const mla_params *params = mla_run_params(run);
    char *text = NULL, *path = mla_path_join(run->folder, "parameters.tsv");
    size_t bytes = 0;
    FILE *file = path ? open_memstream(&text, &bytes) : NULL;
    if (!file) {
        free(path);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the table of parameters");
    }
    fputs("name\tshape\tcount\tgroup\n", file);
    for (int i = 0; i < params->entries; i++) {
        const mla_param *p = &params->entry[i];
        fprintf(file, "%s\t", p->name);
        for (int d = 0; d < p->ndim; d++) fprintf(file, d ? "x%zu" : "%zu", p->shape[d]);
        fprintf(file, "\t%zu\t%s\n", p->count, p->decay ? "decay" : "no decay");
    }
    const bool failed = ferror(file) != 0, whole = fclose(file) == 0 && !failed;
    const mla_status status = whole ? mla_file_write(path, text, bytes, error)
                                    : mla_fail(error, MLA_NO_MEMORY, "out of memory for the table of parameters");
    free(text);
    free(path);
    return status;
}

/* Whether a checkpoint is one of the run folder's own. */
static bool stands_in(const mla_run *run, const char *checkpoint) {
    char *expected = mla_path_join(run->folder, "checkpoints"), *copy = strdup(checkpoint);
    char *own = expected ? realpath(expected, NULL) : NULL, *its = copy ? realpath(dirname(copy), NULL) : NULL;
    const bool same = own && its && !strcmp(own, its);
    free(expected);
    free(copy);
    free(own);
    free(its);
    return same;
}

/* Keys such as train.epochs may have changed: the run folder tells what is in force now. */
static mla_status replace_config(const mla_run *run, const char *text, mla_error *error) {
    char *path = mla_path_join(run->folder, "config.yaml");
    const mla_status status =
        path ? mla_file_write(path, text, strlen(text), error) : mla_fail(error, MLA_NO_MEMORY, "out of memory for a path");
    free(path);
    return status;
}

/* Room for the checkpoints that will stand side by side: those kept, the best, and the one being written. */
static mla_status check_space(const mla_run *run, mla_error *error) {
    const mla_run_buffers b = mla_run_buffers_of(run);
    const uint64_t buffers = 1u + (b.moment1 != NULL) + (b.moment2 != NULL) + (b.ema != NULL);
    const uint64_t files = (uint64_t)run->config.checkpoint.keep + run->config.checkpoint.best + 1;
    return mla_file_space(run->folder, files * buffers * mla_run_params(run)->size * sizeof(real), error);
}

/* A report is for people: a run goes on without one. */
static void open_report(mla_run *run) {
    mla_error why = {0};
    if (mla_report_live_open(&run->report, run->folder, &why) != MLA_OK) fprintf(stderr, "no report.html: %s\n", why.text);
}

/* A run goes on in its own folder; from another run's checkpoint it goes on in a new one, and never over a third. */
static mla_status open_log(mla_run *run, const mla_train_options *options, mla_error *error) {
    const bool go_on = options->resume && (!options->checkpoint || stands_in(run, options->checkpoint));
    char *text = mla_config_text(&run->config), *finetune = run->finetuned ? mla_finetune_text(&run->finetune) : NULL;
    if (!text || (run->finetuned && !finetune)) {
        free(text);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the config's text");
    }
    mla_status status = go_on ? mla_runlog_resume(&run->log, run->folder, run->counters.step, run->counters.epoch, error)
                              : mla_runlog_create(&run->log, run->folder, text, finetune, error);
    if (status == MLA_OK && go_on) status = replace_config(run, text, error);
    if (status == MLA_OK && run->config.log.tensorboard)
        status = mla_runlog_tensorboard(run->log, run->counters.step + 1, error);
    if (status == MLA_OK && run->config.log.report) open_report(run);
    if (status == MLA_OK) status = write_parameter_table(run, error);
    free(text);
    free(finetune);
    return status;
}

mla_status mla_train(const mla_train_options *options, mla_train_summary *summary, mla_error *error) {
    mla_run run = {0};
    *summary = (mla_train_summary){0};
    mla_status status = mla_run_setup(&run, options, error);
    if (status == MLA_OK) status = check_space(&run, error);
    if (status == MLA_OK) status = open_log(&run, options, error);
    if (status == MLA_OK) {
        snprintf(summary->folder, sizeof summary->folder, "%s", run.folder);
        fprintf(stderr, "run folder: %s\n", run.folder);
        status = loop(&run, summary, error);
        write_report(&run, true);
        summary->steps = run.counters.step;
        hash_text(summary->weight_hash, &run);
    }
    mla_run_free(&run);
    return status;
}
