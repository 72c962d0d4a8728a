/* mirrorla eval */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cli.h"
#include "train/file.h"
#include "train/interrupt.h"
#include "train/loaded.h"
#include "train/loader.h"
#include "train/machine.h"
#include "train/run.h"
#include "train/text.h"

static const char help[] =
    "Usage: mirrorla eval CKPT [OPTIONS]\n\n"
    "Accuracy and mean cross-entropy of a checkpoint (or an exported file) on its data set, with the size, mean, deviation\n"
    "and class order that are stored in it.  Every image is counted once.\n\n"
    "  --data PATH       where the data set is (default: as in training)\n"
    "  --split SPLIT     test (default) or train (without augmentation)\n"
    "  --weights WHICH   raw, average, or auto (default): the average where one is kept\n"
    "  --limit N         the first N images alone\n"
    "  --logits FILE     also write logits (N, classes) and labels (N) as safetensors\n"
    "  --json            one JSON object instead of text\n"
    "  --threads N       threads (default: one a core)\n"
    "  --help            this text\n";

typedef struct arguments {
    const char *checkpoint, *data, *logits;
    mla_split split;
    mla_weights weights;
    long limit, threads;
    bool json, help;
} arguments;

static int parse(arguments *a, int argc, char **argv) {
    enum { DATA = 1, SPLIT, WEIGHTS, LIMIT, LOGITS, JSON, THREADS, HELP };
    static const struct option table[] = {{"data", required_argument, NULL, DATA},
                                          {"split", required_argument, NULL, SPLIT},
                                          {"weights", required_argument, NULL, WEIGHTS},
                                          {"limit", required_argument, NULL, LIMIT},
                                          {"logits", required_argument, NULL, LOGITS},
                                          {"json", no_argument, NULL, JSON},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    *a = (arguments){.split = MLA_SPLIT_TEST};
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case DATA: a->data = optarg; break;
        case SPLIT:
            if (strcmp(optarg, "test") && strcmp(optarg, "train"))
                return mla_cli_usage(argv[0], "--split: expected test or train, found '%s'", optarg);
            a->split = strcmp(optarg, "train") ? MLA_SPLIT_TEST : MLA_SPLIT_TRAIN;
            break;
        case WEIGHTS:
            if (!mla_cli_weights(&a->weights, optarg, argv[0])) return 2;
            break;
        case LIMIT:
            if (!mla_cli_number(&a->limit, optarg, 1, INT32_MAX, argv[0], "--limit")) return 2;
            break;
        case LOGITS: a->logits = optarg; break;
        case JSON: a->json = true; break;
        case THREADS:
            if (!mla_cli_number(&a->threads, optarg, 1, 1024, argv[0], "--threads")) return 2;
            break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CKPT, found %d arguments", argc - optind);
    a->checkpoint = argv[optind];
    return 0;
}

typedef struct evaluation {
    mla_loaded loaded;
    mla_dataset *dataset;
    mla_engine *engine;
    size_t count, unreadable;
    mla_loader loader;
    real *logits; /* with --logits alone, as are labels */
    int64_t *labels;
    mla_batch_result result;
} evaluation;

/* What the loader gives, with the labels kept. */
static mla_status load_and_keep(void *context, size_t first, size_t count, mla_shard *shard, mla_error *error) {
    evaluation *e = context;
    const mla_image_source source = mla_loader_source(&e->loader);
    const mla_status status = source.load(source.context, first, count, shard, error);
    for (size_t i = 0; status == MLA_OK && e->labels && i < count; i++) e->labels[first + i] = shard->labels[i];
    return status;
}

/* Found out before the work is done, not after it. */
static mla_status check_output(const evaluation *e, const arguments *a, mla_error *error) {
    mla_atomic_file file;
    if (mla_cli_same_file(a->checkpoint, a->logits))
        return mla_fail(error, MLA_INVALID, "--logits: %s is the checkpoint itself", a->logits);
    const uint64_t bytes = e->count * ((size_t)e->loaded.checkpoint.classes.count * sizeof(real) + sizeof(int64_t));
    const mla_status status = mla_atomic_open(&file, a->logits, bytes, error);
    if (status == MLA_OK) mla_atomic_discard(&file);
    return status;
}

static mla_status open_data(evaluation *e, const arguments *a, mla_error *error) {
    mla_data_config data = e->loaded.checkpoint.config.data;
    const mla_class_info *classes = &e->loaded.checkpoint.classes;
    if (a->data && strlen(a->data) >= sizeof data.path) return mla_fail(error, MLA_INVALID, "--data: the path is too long");
    if (a->data) snprintf(data.path, sizeof data.path, "%s", a->data);
    mla_status status = mla_dataset_open(&e->dataset, &data, a->split, e->loaded.checkpoint.config.train.seed, error);
    if (status == MLA_OK) status = mla_dataset_map_classes(e->dataset, classes->names, classes->count, error);
    if (status != MLA_OK) return status;
    const mla_dataset_info *info = mla_dataset_get_info(e->dataset);
    if (info->size != classes->size)
        return mla_fail(error, MLA_INVALID, "%s takes images of %d pixels, the data set gives %d", a->checkpoint,
                        classes->size, info->size);
    e->count = a->limit && (size_t)a->limit < info->count ? (size_t)a->limit : info->count;
    return MLA_OK;
}

static mla_status run(evaluation *e, const arguments *a, mla_error *error) {
    const mla_config *config = &e->loaded.checkpoint.config;
    const mla_class_info *classes = &e->loaded.checkpoint.classes;
    mla_status status = open_data(e, a, error);
    if (status != MLA_OK) return status;
    const mla_engine_options options = {
        .threads = mla_machine_threads((int)a->threads, 1024), .lanes = 1, .shard = mla_run_shard(config)};
    mla_machine_flush_denormals(options.threads);
    status = mla_engine_new(&e->engine, e->loaded.model, &options, error);
    if (status != MLA_OK) return status;
    if (a->logits) {
        status = check_output(e, a, error);
        if (status != MLA_OK) return status;
        e->logits = malloc(e->count * (size_t)classes->count * sizeof *e->logits);
        e->labels = malloc(e->count * sizeof *e->labels);
        if (!e->logits || !e->labels)
            return mla_fail(error, MLA_NO_MEMORY, "out of memory for the logits of %zu images", e->count);
    }
    e->loader = (mla_loader){.dataset = e->dataset, .seed = config->train.seed};
    memcpy(e->loader.mean, classes->mean, sizeof e->loader.mean);
    memcpy(e->loader.std, classes->std, sizeof e->loader.std);
    const mla_image_source source = {.load = load_and_keep, .context = e, .seed = config->train.seed};
    status = mla_engine_evaluate(e->engine, &source, e->count, mla_model_params(e->loaded.model)->value, e->logits,
                                 &mla_interrupted, &e->result, error);
    e->unreadable = mla_dataset_unreadable(e->dataset);
    if (status == MLA_OK && e->result.images == 0)
        status = mla_fail(error, MLA_INVALID, "%s: none of the %zu images could be read",
                          mla_dataset_get_info(e->dataset)->source, e->count);
    return status;
}

static mla_status write_logits(const evaluation *e, const char *path, mla_error *error) {
    const size_t classes = (size_t)e->loaded.checkpoint.classes.count;
    const mla_file_tensor tensors[] = {{.name = "logits",
                                        .dtype = MLA_F32,
                                        .ndim = 2,
                                        .shape = {e->count, classes},
                                        .data = e->logits,
                                        .bytes = e->count * classes * sizeof(real)},
                                       {.name = "labels",
                                        .dtype = MLA_I64,
                                        .ndim = 1,
                                        .shape = {e->count},
                                        .data = e->labels,
                                        .bytes = e->count * sizeof *e->labels}};
    return mla_safetensors_write(path, tensors, 2, NULL, 0, error);
}

static void print_result(const evaluation *e, const arguments *a) {
    const mla_batch_result *r = &e->result;
    const double loss = r->loss_sum / (double)r->images, accuracy = (double)r->correct / (double)r->images;
    if (a->json) {
        char accuracy_text[MLA_NUMBER_BYTES], loss_text[MLA_NUMBER_BYTES]; /* null where a number is not finite */
        mla_number_text(accuracy_text, accuracy);
        mla_number_text(loss_text, loss);
        printf("{\"images\": %" PRIu64 ", \"correct\": %" PRIu64 ", \"accuracy\": %s, \"loss\": %s, \"unreadable\": %zu, "
               "\"weights\": \"%s\", \"step\": %" PRIu64 "}\n",
               r->images, r->correct, accuracy_text, loss_text, e->unreadable, e->loaded.average ? "average" : "raw",
               e->loaded.checkpoint.counters.step);
        return;
    }
    printf("accuracy %.2f %% (%" PRIu64 " of %" PRIu64 ")\nloss %.4f\n", 100 * accuracy, r->correct, r->images, loss);
    if (e->unreadable) printf("unreadable images %zu\n", e->unreadable);
}

int mla_cmd_eval(int argc, char **argv) {
    arguments a;
    evaluation e = {0};
    mla_error error = {0};
    const int code = parse(&a, argc, argv);
    if (code) return code;
    if (a.help) {
        fputs(help, stdout);
        return 0;
    }
    mla_interrupt_setup();
    mla_status status = mla_loaded_open(&e.loaded, a.checkpoint, a.weights, NULL, 0, &error);
    if (status != MLA_OK) return mla_cli_failed(&error);
    status = run(&e, &a, &error);
    if (status == MLA_OK && a.logits) status = write_logits(&e, a.logits, &error);
    if (status == MLA_OK) print_result(&e, &a);
    free(e.logits);
    free(e.labels);
    mla_engine_free(e.engine);
    mla_dataset_close(e.dataset);
    mla_loaded_close(&e.loaded);
    return status == MLA_OK ? 0 : mla_cli_failed(&error);
}
