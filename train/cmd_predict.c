/* mirrorla predict */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "train/attention_figure.h"
#include "train/cli.h"
#include "train/dataset_kind.h"
#include "train/file.h"
#include "train/interrupt.h"
#include "train/machine.h"
#include "train/predict_print.h"
#include "train/text.h"

static const char help[] =
    "Usage: mirrorla predict CKPT IMAGE... [OPTIONS]\n\n"
    "The most probable classes of JPEG and PNG files of any size; a folder stands for the images in it and below, in "
    "sorted\n"
    "order.  CKPT is a checkpoint or an exported file; images are resized, cropped and normalised as for eval.  An image\n"
    "that can't be read is reported, the others are done, and the exit status is 1.\n\n"
    "  --top N           classes an image (default: 5)\n"
    "  --json            one JSON object an image and line, as soon as it is known\n"
    "  --csv             one record a class (RFC 4180): image, rank, class, index, probability, logit\n"
    "                    In both a file name that is not UTF-8 has \\xNN for each byte that is not.\n"
    "  --weights WHICH   raw, average, or auto (default): the average where one is kept\n"
    "  --attention OUT   also draw where the answers come from: evidence for the class, and the attention that each token\n"
    "                    receives in each layer.  OUT.png: one picture, a block an image; a folder (or a name that ends in\n"
    "                    '/'): one picture an image, NUMBER-NAME.png\n"
    "  --layers WHICH    with --attention: all (default), last, or a list such as 1,4,8\n"
    "  --heads WHICH     with --attention: mean (default) or all: a row a layer, a column a head\n"
    "  --threads N       threads (default: one a core)\n"
    "  --help            this text\n";

enum { MAX_LAYERS = 1024 };

typedef struct arguments {
    const char *checkpoint, *attention;
    char *const *images;
    int image_count;
    long top, threads;
    mla_weights weights;
    mla_predict_format format;
    bool json, csv, each_head, drawing_option, help;
    int layers[MAX_LAYERS]; /* from 1; layer_count 0: all, -1: the last one */
    int layer_count;
} arguments;

static int parse_layers(arguments *a, const char *text, const char *command) {
    a->layer_count = 0;
    if (!strcmp(text, "all")) return 0;
    if (!strcmp(text, "last")) {
        a->layer_count = -1;
        return 0;
    }
    for (const char *at = text;; at++) {
        char *end;
        const long layer = strtol(at, &end, 10);
        if (end == at || layer < 1 || layer > MAX_LAYERS || (*end && *end != ',') || a->layer_count == MAX_LAYERS)
            return mla_cli_usage(command, "--layers: expected all, last or numbers from 1 such as 1,4,8, found '%s'", text);
        a->layers[a->layer_count++] = (int)layer;
        at = end;
        if (!*end) return 0;
    }
}

static int check(arguments *a, int argc, char **argv) {
    if (a->json && a->csv) return mla_cli_usage(argv[0], "--json and --csv: one of them at a time");
    if (a->drawing_option && !a->attention) return mla_cli_usage(argv[0], "--layers and --heads go with --attention");
    if (optind + 1 >= argc)
        return mla_cli_usage(argv[0], "expected CKPT and at least one IMAGE, found %d arguments", argc - optind);
    a->format = a->json ? MLA_PREDICT_JSON : a->csv ? MLA_PREDICT_CSV : MLA_PREDICT_TEXT;
    a->checkpoint = argv[optind];
    a->images = argv + optind + 1;
    a->image_count = argc - optind - 1;
    return 0;
}

static int parse(arguments *a, int argc, char **argv) {
    enum { TOP = 1, JSON, CSV, WEIGHTS, ATTENTION, LAYERS, HEADS, THREADS, HELP };
    static const struct option table[] = {{"top", required_argument, NULL, TOP},
                                          {"json", no_argument, NULL, JSON},
                                          {"csv", no_argument, NULL, CSV},
                                          {"weights", required_argument, NULL, WEIGHTS},
                                          {"attention", required_argument, NULL, ATTENTION},
                                          {"layers", required_argument, NULL, LAYERS},
                                          {"heads", required_argument, NULL, HEADS},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    *a = (arguments){.top = 5};
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case TOP:
            if (!mla_cli_number(&a->top, optarg, 1, INT32_MAX, argv[0], "--top")) return 2;
            break;
        case JSON: a->json = true; break;
        case CSV: a->csv = true; break;
        case WEIGHTS:
            if (!mla_cli_weights(&a->weights, optarg, argv[0])) return 2;
            break;
        case ATTENTION: a->attention = optarg; break;
        case LAYERS:
            a->drawing_option = true;
            if (parse_layers(a, optarg, argv[0])) return 2;
            break;
        case HEADS:
            a->drawing_option = true;
            if (strcmp(optarg, "mean") && strcmp(optarg, "all"))
                return mla_cli_usage(argv[0], "--heads: expected mean or all, found '%s'", optarg);
            a->each_head = !strcmp(optarg, "all");
            break;
        case THREADS:
            if (!mla_cli_number(&a->threads, optarg, 1, 1024, argv[0], "--threads")) return 2;
            break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    return check(a, argc, argv);
}

typedef struct prediction_run {
    const arguments *arguments;
    mla_loaded loaded;
    mla_image_list list;
    size_t done, folders, failed; /* images handed over so far; folders without images; both without a result */
    mla_attention_options drawing;
    int layers[MAX_LAYERS];       /* drawn, from 0 */
    bool picture_each;            /* --attention names a folder */
    mla_attention_figure *figure; /* the one picture of all */
} prediction_run;

static void tell_failure(prediction_run *run, const char *text) {
    fflush(stdout); /* so that both streams stay in order where they end in one place */
    fprintf(stderr, "mirrorla: %s\n", text);
    run->failed++;
}

static mla_status list_images(prediction_run *run, mla_error *error) {
    for (int i = 0; i < run->arguments->image_count; i++) {
        mla_error why = {0};
        const mla_status status = mla_image_list_add(&run->list, run->arguments->images[i], &why);
        if (status == MLA_NO_MEMORY) {
            *error = why;
            return status;
        }
        if (status == MLA_OK) continue;
        tell_failure(run, why.text);
        run->folders++;
    }
    return MLA_OK;
}

/* ---- drawing */

static mla_status choose_layers(prediction_run *run, mla_error *error) {
    const arguments *a = run->arguments;
    const int layers = mla_attention_layers(&run->loaded.checkpoint.config.model);
    run->drawing =
        (mla_attention_options){run->layers, a->layer_count, a->each_head, a->top > INT16_MAX ? INT16_MAX : (int)a->top};
    if (a->layer_count < 1) run->drawing.layer_count = a->layer_count ? 1 : layers < MAX_LAYERS ? layers : MAX_LAYERS;
    for (int i = 0; i < run->drawing.layer_count; i++) {
        run->layers[i] = a->layer_count > 0 ? a->layers[i] - 1 : a->layer_count ? layers - 1 : i;
        if (run->layers[i] >= layers)
            return mla_fail(error, MLA_INVALID, "--layers: %s has %d attention layers, found %d", a->checkpoint, layers,
                            run->layers[i] + 1);
    }
    return MLA_OK;
}

/* Found out before the work is done: an output that would take an input's place, or can't be written. */
static mla_status check_file(const prediction_run *run, const char *path, mla_error *error) {
    const size_t length = strlen(path);
    mla_atomic_file file;
    if (length < 5 || strcasecmp(path + length - 4, ".png"))
        return mla_fail(error, MLA_INVALID, "--attention: expected a name that ends in .png or a folder, found '%s'", path);
    if (mla_cli_same_file(path, run->arguments->checkpoint))
        return mla_fail(error, MLA_INVALID, "--attention: %s is the checkpoint itself", path);
    for (size_t i = 0; i < mla_image_list_count(&run->list); i++)
        if (mla_cli_same_file(path, mla_image_list_path(&run->list, i)))
            return mla_fail(error, MLA_INVALID, "--attention: %s is one of the images", path);
    const mla_status status = mla_atomic_open(&file, path, 1 << 20, error);
    if (status == MLA_OK) mla_atomic_discard(&file);
    return status;
}

static mla_status prepare_drawing(prediction_run *run, mla_error *error) {
    const char *out = run->arguments->attention;
    const size_t images = mla_image_list_count(&run->list), length = strlen(out);
    mla_status status = choose_layers(run, error);
    if (status != MLA_OK) return status;
    const size_t room = mla_attention_figure_room(&run->loaded.checkpoint.config.model, &run->drawing);
    run->picture_each = mla_path_is_folder(out) || (length && out[length - 1] == '/');
    if (room == 0)
        return mla_fail(error, MLA_INVALID, "--layers: %d are too many for one picture", run->drawing.layer_count);
    if (run->picture_each) return mla_folders_make(out, NULL, error);
    if (images > room)
        return mla_fail(error, MLA_INVALID,
                        "--attention: one picture holds %zu images, found %zu; name a folder for one each", room, images);
    status = check_file(run, out, error);
    if (status != MLA_OK || !images) return status;
    return mla_attention_figure_new(&run->figure, &run->loaded, run->arguments->checkpoint, &run->drawing, (int)images,
                                    error);
}

/* FOLDER/NUMBER-NAME.png: the number from 1 keeps images of one name apart. */
static char *picture_path(const prediction_run *run, const char *image) {
    const char *slash = strrchr(image, '/'), *name = slash ? slash + 1 : image;
    char stem[160], file[200];
    mla_text_escape(stem, sizeof stem, name);
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem) *dot = 0;
    snprintf(file, sizeof file, "%06zu-%s.png", run->done, stem);
    return mla_path_join(run->arguments->attention, file);
}

static mla_status draw_alone(prediction_run *run, const mla_prediction *p, mla_error *error) {
    mla_attention_figure *figure = NULL;
    char *path = picture_path(run, p->path);
    mla_status status = path ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", p->path);
    if (status == MLA_OK)
        status = mla_attention_figure_new(&figure, &run->loaded, run->arguments->checkpoint, &run->drawing, 1, error);
    if (status == MLA_OK) status = mla_attention_figure_add(figure, p, error);
    if (status == MLA_OK) status = mla_attention_figure_write(figure, path, error);
    mla_attention_figure_free(figure);
    free(path);
    return status;
}

/* ---- */

static mla_status take(void *context, const mla_prediction *p, mla_error *error) {
    prediction_run *run = context;
    run->done++;
    if (p->failure) {
        tell_failure(run, p->failure);
        return MLA_OK;
    }
    mla_status status =
        mla_predict_print(p, &run->loaded.checkpoint.classes, (int)run->arguments->top, run->arguments->format, error);
    if (status != MLA_OK || !run->arguments->attention) return status;
    return run->picture_each ? draw_alone(run, p, error) : mla_attention_figure_add(run->figure, p, error);
}

static mla_status predict(prediction_run *run, mla_error *error) {
    const arguments *a = run->arguments;
    mla_status status = mla_loaded_open_weights(&run->loaded, a->checkpoint, a->weights, error);
    if (status == MLA_OK) status = list_images(run, error);
    if (status == MLA_OK && a->attention) status = prepare_drawing(run, error);
    if (status != MLA_OK) return status;
    mla_predict_print_head(a->format);
    status = mla_predict(&run->loaded, &run->list, mla_machine_threads((int)a->threads, 1024), &mla_interrupted, take, run,
                         error);
    if (status == MLA_OK && run->figure && run->failed - run->folders < run->done)
        status = mla_attention_figure_write(run->figure, a->attention, error);
    return status;
}

int mla_cmd_predict(int argc, char **argv) {
    arguments a;
    mla_error error = {0};
    const int code = parse(&a, argc, argv);
    if (code) return code;
    if (a.help) {
        fputs(help, stdout);
        return 0;
    }
    mla_interrupt_setup();
    prediction_run run = {.arguments = &a};
    const mla_status status = predict(&run, &error);
    mla_attention_figure_free(run.figure);
    mla_image_list_free(&run.list);
    mla_loaded_close(&run.loaded);
    if (status != MLA_OK) return mla_cli_failed(&error);
    if (!run.failed) return 0;
    if (run.done + run.folders > 1)
        fprintf(stderr, "mirrorla: no result for %zu of %zu images and folders\n", run.failed, run.done + run.folders);
    return 1;
}
