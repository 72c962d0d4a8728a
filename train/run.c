#include "train/run.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/gemm.h"
#include "train/augment.h"
#include "train/config_compare.h"
#include "train/file.h"
#include "train/machine.h"
#include "train/mix.h"
#include "train/resized_crop.h"

mla_params *mla_run_params(const mla_run *run) { return mla_model_params(run->model); }

mla_run_buffers mla_run_buffers_of(const mla_run *run) {
    return (mla_run_buffers){mla_run_params(run)->value, mla_optimizer_moment1(run->optimizer),
                             mla_optimizer_moment2(run->optimizer), mla_optimizer_average(run->optimizer)};
}

mla_class_info mla_run_classes(const mla_run *run) { return mla_classes_of(mla_dataset_get_info(run->train_set)); }

mla_class_info mla_classes_of(const mla_dataset_info *info) {
    mla_class_info classes = {.names = info->names, .count = info->classes, .size = info->size};
    memcpy(classes.mean, info->mean, sizeof classes.mean);
    memcpy(classes.std, info->std, sizeof classes.std);
    return classes;
}

uint64_t mla_run_steps_per_epoch(const mla_run *run) {
    const uint64_t batch = (uint64_t)run->config.train.batch;
    return (mla_dataset_get_info(run->train_set)->count + batch - 1) / batch;
}

int mla_run_shard(const mla_config *config) {
    const int shard = config->train.shard ? config->train.shard : mla_model_auto_shard(&config->model);
    return shard < config->train.batch ? shard : config->train.batch;
}

void mla_run_free(mla_run *run) {
    mla_runlog_close(run->log);
    mla_diagnostics_free(run->diagnostics);
    mla_report_live_close(run->report);
    mla_optimizer_free(run->optimizer);
    mla_engine_free(run->engine);
    mla_model_free(run->model);
    mla_dataset_close(run->train_set);
    mla_dataset_close(run->test_set);
    free(run->order);
}

/* ---- data and model */

static mla_status open_data(mla_run *run, mla_error *error) {
    const mla_config *c = &run->config;
    mla_status status = mla_dataset_open(&run->train_set, &c->data, MLA_SPLIT_TRAIN, c->train.seed, error);
    if (status == MLA_OK) status = mla_dataset_open(&run->test_set, &c->data, MLA_SPLIT_TEST, c->train.seed, error);
    if (status != MLA_OK) return status;
    const mla_dataset_info *info = mla_dataset_get_info(run->train_set);
    run->config.model.image = info->size;
    run->config.model.classes = info->classes;
    run->order = malloc(info->count * sizeof *run->order);
    if (!run->order) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the order of %zu images", info->count);
    const mla_dataset_info *test = mla_dataset_get_info(run->test_set);
    if (info->note) fprintf(stderr, "data: training: %s\n", info->note);
    if (test->note) fprintf(stderr, "data: test: %s\n", test->note);
    fprintf(stderr, "data: %s (%s), %zu training and %zu test images of %d x %d, %d classes\n",
            mla_data_set_name(c->data.set), info->source, info->count, test->count, info->size, info->size, info->classes);
    return MLA_OK;
}

mla_optimizer_spec mla_run_optimizer_spec(const mla_config *config, int threads) {
    const mla_optim_config *o = &config->optim;
    return (mla_optimizer_spec){.kind = o->name,
                                .weight_decay = o->weight_decay,
                                .betas = {o->betas[0], o->betas[1]},
                                .eps = o->eps,
                                .momentum = o->momentum,
                                .nesterov = o->nesterov,
                                .ema = o->ema,
                                .ema_warmup = o->ema_warmup,
                                .threads = threads};
}

static mla_status make_optimizer(mla_run *run, mla_error *error) {
    const mla_optim_config *o = &run->config.optim;
    const mla_schedule_config *s = &run->config.schedule;
    const mla_optimizer_spec spec = mla_run_optimizer_spec(&run->config, run->threads);
    run->schedule = (mla_schedule){.kind = s->name,
                                   .lr = o->lr,
                                   .min_lr = s->min_lr,
                                   .warmup_epochs = s->warmup_epochs,
                                   .warmup_lr = s->warmup_lr,
                                   .step_epochs = s->step_epochs,
                                   .step_factor = s->step_factor,
                                   .warmup_prefix = s->warmup_prefix,
                                   .epochs = (uint64_t)run->config.train.epochs,
                                   .steps_per_epoch = mla_run_steps_per_epoch(run)};
    return mla_optimizer_new(&run->optimizer, &spec, mla_run_params(run), error);
}

static void print_augmentation(const mla_run *run) {
    char augmentation[MLA_AUGMENT_TEXT_BYTES];
    mla_augment_describe(&run->config.augment, augmentation);
    fprintf(stderr, "augmentation: %s%s\n", augmentation,
            mla_mix_on(&run->config.augment, 0) ? " (of mixed images the label with the larger share counts as right)" : "");
    if (mla_resized_crop_on(&run->config.augment) && run->config.model.image <= 64 && run->config.augment.scale[0] < 0.5)
        fputs("note: augment.scale leaves little of images this small; they are usually trained with augment.crop_padding\n",
              stderr);
}

static mla_status make_engine(mla_run *run, mla_error *error) {
    const mla_engine_options options = {
        .threads = run->threads, .lanes = run->config.train.lanes, .shard = mla_run_shard(&run->config)};
    return mla_engine_new(&run->engine, run->model, &options, error);
}

/* How many tensors and parameters decay acts on. */
static void print_model(const mla_run *run) {
    const mla_params *params = mla_run_params(run);
    const mla_decay_totals t = mla_params_decay_totals(params);
    char kinds[MLA_KINDS_BYTES];
    fprintf(stderr,
            "model: %s, %s attention, %zu parameters: weight decay %g on %zu in %d tensors (matrices), none on %zu in %d "
            "(biases, norms, position, convolution, mirror)\n",
            mla_family_name(run->config.model.family), mla_attention_kinds_text(&run->config.model, kinds), params->count,
            run->config.optim.weight_decay, t.count[1], t.tensors[1], t.count[0], t.tensors[0]);
    fprintf(stderr, "machine: %d thread%s for %d lanes; %s\n", run->threads, run->threads == 1 ? "" : "s",
            run->config.train.lanes, mla_gemm_backend());
}

/* ---- resuming */

/* Keys that may differ between a checkpoint and the config it is resumed with. */
static bool may_change(const char *key) {
    static const char *const keys[] = {"train.epochs",
                                       "train.max_steps",
                                       "data.path",
                                       "data.on_error",
                                       "eval.every_epochs",
                                       "checkpoint.every_epochs",
                                       "checkpoint.every_steps",
                                       "checkpoint.keep",
                                       "checkpoint.best",
                                       "diagnostics.every_epochs",
                                       "diagnostics.images",
                                       "log.report",
                                       "log.tensorboard"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

typedef struct difference {
    char refused[1024];
    bool epochs;
} difference;

static void note_difference(void *context, const char *key, const char *stored, const char *given) {
    difference *d = context;
    if (!strcmp(key, "train.epochs")) d->epochs = true;
    if (may_change(key)) {
        fprintf(stderr, "resume: %s changes from %s to %s\n", key, stored, given);
        return;
    }
    const size_t used = strlen(d->refused);
    snprintf(d->refused + used, sizeof d->refused - used, "%s%s is %s there and %s here", used ? "; " : "", key, stored,
             given);
}

/* The learning rate at the resumed step under the old and the new number of epochs. */
static void tell_rebased_schedule(const mla_run *run, int old_epochs) {
    mla_schedule old = run->schedule;
    old.epochs = (uint64_t)old_epochs;
    fprintf(
        stderr,
        "resume: the schedule is re-based on %d instead of %d epochs: learning rate %.6g instead of %.6g at step %" PRIu64
        "\n",
        run->config.train.epochs, old_epochs, mla_schedule_lr(&run->schedule, run->counters.step),
        mla_schedule_lr(&old, run->counters.step), run->counters.step);
}

static mla_status check_resumable(const mla_run *run, const mla_checkpoint *checkpoint, difference *d, mla_error *error) {
    mla_config stored = checkpoint->config;
    if (!checkpoint->has_optimizer)
        return mla_fail(error, MLA_INVALID,
                        "%s holds weights alone, no optimiser state: training cannot be resumed from it, but start "
                        "from it with --finetune",
                        checkpoint->path);
    /* Filled in from the data set, not from the config's text. */
    stored.model.image = run->config.model.image;
    stored.model.classes = run->config.model.classes;
    mla_config_compare(&stored, &run->config, note_difference, d);
    if (d->refused[0])
        return mla_fail(error, MLA_INVALID, "%s was trained with another config: %s; a resumed run must go on as it began",
                        checkpoint->path, d->refused);
    const mla_counters *c = &checkpoint->counters;
    const uint64_t steps = mla_run_steps_per_epoch(run);
    if (c->step_in_epoch > steps || c->step != c->epoch * steps + c->step_in_epoch)
        return mla_fail(error, MLA_INVALID,
                        "%s stands at step %" PRIu64 " of epoch %" PRIu64 ", step %" PRIu64
                        " in all, which does not fit the %" PRIu64 " steps an epoch of this data: it is another data set",
                        checkpoint->path, c->step_in_epoch, c->epoch + 1, c->step, steps);
    return MLA_OK;
}

static mla_status load_checkpoint(mla_run *run, const char *path, mla_error *error) {
    mla_checkpoint checkpoint;
    difference d = {0};
    mla_status status = mla_checkpoint_open(&checkpoint, path, NULL, 0, error);
    if (status != MLA_OK) return status;
    status = check_resumable(run, &checkpoint, &d, error);
    const mla_run_buffers buffers = mla_run_buffers_of(run);
    if (status == MLA_OK) status = mla_checkpoint_load(&checkpoint, mla_run_params(run), &buffers, error);
    if (status == MLA_OK)
        status = mla_dataset_map_classes(run->test_set, checkpoint.classes.names, checkpoint.classes.count, error);
    if (status == MLA_OK)
        status = mla_dataset_map_classes(run->train_set, checkpoint.classes.names, checkpoint.classes.count, error);
    if (status == MLA_OK) {
        run->counters = checkpoint.counters;
        fprintf(stderr, "resume: from %s, step %" PRIu64 ", epoch %" PRIu64 "\n", path, run->counters.step,
                run->counters.epoch + 1);
        if (d.epochs) tell_rebased_schedule(run, checkpoint.config.train.epochs);
    }
    mla_checkpoint_close(&checkpoint);
    return status;
}

/* Without a checkpoint the folder's config.yaml says how the run began; it is missing when not even that was written. */
static mla_status start_over(const mla_run *run, mla_error *error) {
    difference d = {0};
    mla_config *stored = malloc(sizeof *stored);
    char *path = mla_path_join(run->folder, "config.yaml");
    const bool written = path && access(path, F_OK) == 0;
    mla_status status = stored && path ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for %s", run->folder);
    if (status == MLA_OK && written) status = mla_config_load(stored, path, NULL, 0, error);
    if (status == MLA_OK && written) {
        stored->model.image = run->config.model.image;
        stored->model.classes = run->config.model.classes;
        mla_config_compare(stored, &run->config, note_difference, &d);
        if (d.refused[0])
            status = mla_fail(error, MLA_INVALID, "%s began with another config: %s; a resumed run must go on as it began",
                              path, d.refused);
    }
    if (status == MLA_OK) fprintf(stderr, "resume: %s holds no checkpoint yet, the run starts over\n", run->folder);
    free(stored);
    free(path);
    return status;
}

/* ---- first weights */

/* Drawn from the seed; or taken from a checkpoint, as asked for or, when the run starts over, as it was then. */
static mla_status make_weights(mla_run *run, const mla_train_options *options, bool over, mla_error *error) {
    mla_params *params = mla_run_params(run);
    const mla_class_info classes = mla_run_classes(run);
    mla_finetune record = {.weights = options->weights};
    mla_params_init(params, run->config.train.seed);
    run->finetuned = options->finetune != NULL;
    if (options->finetune && strlen(options->finetune) >= sizeof record.checkpoint)
        return mla_fail(error, MLA_INVALID, "--finetune: the path is too long");
    if (options->finetune) strcpy(record.checkpoint, options->finetune);
    mla_status status = over ? mla_finetune_read(&record, &run->finetuned, run->folder, error) : MLA_OK;
    if (status != MLA_OK || !run->finetuned) return status;
    status = mla_finetune_start(&run->finetune, params, &run->config, &classes, record.checkpoint, record.weights, error);
    if (status == MLA_OK && over && strcmp(run->finetune.weight_hash, record.weight_hash) != 0)
        status = mla_fail(error, MLA_INVALID,
                          "%s: gives the first weights %s, but the run in %s started from %s: it is another file now",
                          record.checkpoint, run->finetune.weight_hash, run->folder, record.weight_hash);
    return status;
}

/* ---- folders */

/* A folder with a log, however short, and no checkpoint. */
static bool began_without_checkpoint(const mla_run *run) {
    uint64_t *steps = NULL;
    size_t count = 0;
    struct stat log;
    char *path = mla_path_join(run->folder, "log.jsonl");
    const bool none =
        path && stat(path, &log) == 0 && mla_checkpoint_list(&steps, &count, run->folder, NULL) == MLA_OK && count == 0;
    free(steps);
    free(path);
    return none;
}

/* runs/NAME, then runs/NAME-2, ...: the first that does not exist, or (newest) the last that does. */
static void default_folder(char out[MLA_PATH_BYTES], const char *config_path, bool newest) {
    char copy[MLA_PATH_BYTES], candidate[MLA_PATH_BYTES];
    snprintf(copy, sizeof copy, "%s", config_path);
    char *name = basename(copy), *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    snprintf(out, MLA_PATH_BYTES, "runs/%.200s", name);
    for (int i = 2; access(out, F_OK) == 0; i++) {
        snprintf(candidate, sizeof candidate, "runs/%.200s-%d", name, i);
        if (newest && access(candidate, F_OK) != 0) return;
        memcpy(out, candidate, MLA_PATH_BYTES);
    }
}

/* DIR of DIR/checkpoints/FILE. */
static mla_status folder_of_checkpoint(char out[MLA_PATH_BYTES], const char *path, mla_error *error) {
    char copy[MLA_PATH_BYTES];
    snprintf(copy, sizeof copy, "%s", path);
    char *folder = dirname(copy);
    char last[MLA_PATH_BYTES];
    snprintf(last, sizeof last, "%s", folder);
    if (strcmp(basename(last), "checkpoints"))
        return mla_fail(error, MLA_INVALID,
                        "%s does not stand in the checkpoints/ of a run folder: name the folder with --out", path);
    snprintf(out, MLA_PATH_BYTES, "%s", dirname(folder));
    return MLA_OK;
}

static mla_status choose_folder(mla_run *run, const mla_train_options *options, mla_error *error) {
    if (options->out) {
        if (strlen(options->out) >= MLA_PATH_BYTES) return mla_fail(error, MLA_INVALID, "--out: the path is too long");
        snprintf(run->folder, sizeof run->folder, "%s", options->out);
        return MLA_OK;
    }
    if (options->checkpoint) return folder_of_checkpoint(run->folder, options->checkpoint, error);
    default_folder(run->folder, options->config_path, options->resume);
    return MLA_OK;
}

/* ---- diagnostics */

/* The weights that the run of a checkpoint started from, where those were not drawn from the seed. */
static mla_status restore_start(mla_run *run, const char *checkpoint, mla_error *error) {
    mla_finetune record, again;
    char folder[MLA_PATH_BYTES];
    bool finetuned = false;
    const mla_class_info classes = mla_run_classes(run);
    mla_status status = folder_of_checkpoint(folder, checkpoint, error);
    if (status == MLA_OK) status = mla_finetune_read(&record, &finetuned, folder, error);
    if (status != MLA_OK || !finetuned) return status;
    status =
        mla_finetune_start(&again, mla_run_params(run), &run->config, &classes, record.checkpoint, record.weights, error);
    if (status == MLA_OK && strcmp(again.weight_hash, record.weight_hash) != 0)
        status = mla_fail(error, MLA_INVALID, "%s: is another file than the run started from", record.checkpoint);
    return status;
}

/* Comes before a checkpoint is loaded: reflections are compared with those that the run started from. */
static mla_status open_diagnostics(mla_run *run, const char *checkpoint, mla_error *error) {
    mla_error why = {0};
    const bool start_known = !checkpoint || restore_start(run, checkpoint, &why) == MLA_OK;
    if (!start_known) fprintf(stderr, "diagnostics: how far reflections moved is not known: %s\n", why.text);
    const mla_status status = mla_diagnostics_new(&run->diagnostics, &run->config, run->model, run->test_set,
                                                  mla_dataset_get_info(run->train_set), start_known, run->threads, error);
    if (status != MLA_OK) return status;
    const uint64_t every = mla_diagnostics_every(run->diagnostics), epochs = (uint64_t)run->config.train.epochs;
    if (every > epochs)
        fprintf(stderr, "diagnostics: none, the run is too short for them (diagnostics.every_epochs=1 for every epoch)\n");
    else
        fprintf(stderr, "diagnostics: every %" PRIu64 " epoch%s\n", every, every == 1 ? "" : "s");
    return MLA_OK;
}

mla_status mla_run_setup(mla_run *run, const mla_train_options *options, mla_error *error) {
    char *newest = NULL;
    mla_status status =
        mla_config_load(&run->config, options->config_path, options->overrides, options->override_count, error);
    if (status == MLA_OK) status = choose_folder(run, options, error);
    const char *checkpoint = options->checkpoint;
    const bool over = status == MLA_OK && options->resume && !checkpoint && began_without_checkpoint(run);
    if (status == MLA_OK && options->resume && !checkpoint && !over) {
        status = mla_checkpoint_newest(&newest, run->folder, error);
        checkpoint = newest;
    }
    if (status == MLA_OK) status = open_data(run, error);
    if (status == MLA_OK) status = mla_model_new(&run->model, &run->config.model, error);
    if (status == MLA_OK) {
        run->threads = mla_machine_threads(options->threads, run->config.train.lanes);
        mla_machine_flush_denormals(run->threads);
        status = make_weights(run, options, over, error);
    }
    if (status == MLA_OK && run->config.diagnostics.images > 0) status = open_diagnostics(run, checkpoint, error);
    if (status == MLA_OK) status = make_engine(run, error);
    if (status == MLA_OK) status = make_optimizer(run, error);
    if (status == MLA_OK) print_model(run);
    if (status == MLA_OK) print_augmentation(run);
    if (status == MLA_OK && checkpoint) status = load_checkpoint(run, checkpoint, error);
    if (status == MLA_OK && over) status = start_over(run, error);
    free(newest);
    return status;
}
