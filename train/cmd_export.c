/* mirrorla export */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cli.h"
#include "train/export.h"
#include "train/onnx.h"

static const char help[] =
    "Usage: mirrorla export CKPT --to FORMAT [OPTIONS]\n\n"
    "Writes a checkpoint's model for other tools, with config, class names, input size, mean and deviation as metadata.\n"
    "docs/formats.md says what is in the files and how they are read.\n\n"
    "  --to FORMAT        safetensors: the weights alone, under the state_dict names of the PyTorch twin\n"
    "                     (tools/mirrorla.py);  onnx: weights and graph, float32, opset 17, any batch size\n"
    "  -o, --output FILE  default: the checkpoint's name with .export.safetensors or .onnx\n"
    "  --weights WHICH    raw, average, or auto (default): the average where one is kept\n"
    "  --help             this text\n\n"
    "safetensors:\n"
    "  --dtype TYPE       f32 (default), bf16 or f16, rounded to nearest\n"
    "  --fuse             fold the mirror's static reflections into the q and k projections: the same logits, fewer\n"
    "                     tensors\n\n"
    "onnx:\n"
    "  --preprocess HOW   metadata (default): the input is float32 (batch, 3, S, S), normalised by the caller with the\n"
    "                     mean and std in the metadata;  graph: uint8 (batch, S, S, 3), normalised in the graph\n"
    "  --attention        a second output, how much attention each token of the last block receives\n";

typedef struct format format;
enum { OPTIONS = 8 };

typedef struct arguments {
    const char *checkpoint, *output, *name; /* name: argv[0], for messages */
    const format *format;
    mla_weights weights;
    mla_dtype dtype;
    mla_onnx_options onnx;
    bool fuse, help;
    const char *given[OPTIONS]; /* options that are not for every format */
    int given_count;
} arguments;

/* One row a format.  `write` prints the line of the result. */
struct format {
    const char *name, *ending;
    const char *options[OPTIONS]; /* that it takes beside those of every format */
    mla_status (*write)(const char *path, mla_loaded *loaded, const arguments *a, mla_error *error);
};

/* ---- safetensors */

static void tell_folded(const mla_folded *folded, const mla_model_spec *spec, const char *name) {
    if (folded->blocks + folded->cross > 0)
        fprintf(stderr,
                "%s: folded %d block and %d cross-head isometries into the q and k projections: %zu tensors (%zu values) "
                "fewer\n",
                name, folded->blocks, folded->cross, folded->tensors, folded->values);
    else
        fprintf(stderr, "%s: nothing can be folded: %s; the weights are written as they are\n", name,
                mla_model_has_kind(spec, MLA_ATTENTION_MIRROR)
                    ? "this mirror has no reflections that are the same for every image"
                    : "this attention kind has no reflections");
}

static mla_status write_safetensors(const char *path, mla_loaded *loaded, const arguments *a, mla_error *error) {
    mla_params *params = mla_model_params(loaded->model);
    mla_folded folded = {0};
    mla_status status = MLA_OK;
    if (a->fuse) {
        status = mla_fold(&folded, params, &loaded->checkpoint.config, error);
        if (status == MLA_OK) tell_folded(&folded, &loaded->checkpoint.config.model, a->name);
    }
    const mla_export_options options = {.dtype = a->dtype, .average = loaded->average, .folded = a->fuse ? &folded : NULL};
    if (status == MLA_OK) status = mla_export_safetensors(path, params, params->value, &loaded->checkpoint, &options, error);
    if (status == MLA_OK)
        printf("%s: %zu parameters in %zu tensors, %s weights, %s\n", path, params->count - folded.values,
               (size_t)params->entries - folded.tensors, loaded->average ? "averaged" : "raw", mla_dtype_name(a->dtype));
    mla_folded_free(&folded);
    return status;
}

/* ---- ONNX */

static mla_status write_onnx(const char *path, mla_loaded *loaded, const arguments *a, mla_error *error) {
    const mla_params *params = mla_model_params(loaded->model);
    mla_onnx_options options = a->onnx;
    options.average = loaded->average;
    const mla_status status = mla_export_onnx(path, loaded->model, &loaded->checkpoint, &options, error);
    if (status == MLA_OK)
        printf("%s: %zu parameters in %d tensors, %s weights\n", path, params->count, params->entries,
               loaded->average ? "averaged" : "raw");
    return status;
}

/* ---- the command */

static const format formats[] = {
    {"safetensors", ".export.safetensors", {"--dtype", "--fuse"}, write_safetensors},
    {"onnx", ".onnx", {"--preprocess", "--attention"}, write_onnx},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* "safetensors or x or y" */
static const char *format_names(void) {
    static char text[128];
    for (size_t i = 0, used = 0; i < FORMATS && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " or " : "", formats[i].name);
    return text;
}

static bool parse_dtype(mla_dtype *dtype, const char *text) {
    static const struct {
        const char *name;
        mla_dtype dtype;
    } known[] = {{"f32", MLA_F32}, {"bf16", MLA_BF16}, {"f16", MLA_F16}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(text, known[i].name)) {
            *dtype = known[i].dtype;
            return true;
        }
    return false;
}

static bool takes(const format *row, const char *option) {
    for (int i = 0; i < OPTIONS && row->options[i]; i++)
        if (!strcmp(row->options[i], option)) return true;
    return false;
}

/* Notes an option of some formats alone; one given twice counts once. */
static void note_given(arguments *a, const char *option) {
    for (int i = 0; i < a->given_count; i++)
        if (!strcmp(a->given[i], option)) return;
    MLA_REQUIRE(a->given_count < OPTIONS, "no room for %s", option);
    a->given[a->given_count++] = option;
}

/* What the chosen format makes of the options. */
static int check(arguments *a, int argc, char **argv, const char *to) {
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CKPT, found %d arguments", argc - optind);
    if (!to) return mla_cli_usage(argv[0], "--to is missing: expected %s", format_names());
    for (int i = 0; i < FORMATS && !a->format; i++)
        if (!strcmp(to, formats[i].name)) a->format = &formats[i];
    if (!a->format) return mla_cli_usage(argv[0], "--to: expected %s, found '%s'", format_names(), to);
    for (int i = 0; i < a->given_count; i++)
        if (!takes(a->format, a->given[i])) return mla_cli_usage(argv[0], "%s is not for --to %s", a->given[i], to);
    a->checkpoint = argv[optind];
    if (a->output && mla_cli_same_file(a->checkpoint, a->output))
        return mla_cli_usage(argv[0], "-o: %s is the checkpoint itself, and its training state would be lost", a->output);
    return 0;
}

static int parse(arguments *a, int argc, char **argv) {
    enum { TO = 1, WEIGHTS, DTYPE, FUSE, PREPROCESS, ATTENTION, HELP };
    static const struct option table[] = {{"to", required_argument, NULL, TO},
                                          {"output", required_argument, NULL, 'o'},
                                          {"weights", required_argument, NULL, WEIGHTS},
                                          {"dtype", required_argument, NULL, DTYPE},
                                          {"fuse", no_argument, NULL, FUSE},
                                          {"preprocess", required_argument, NULL, PREPROCESS},
                                          {"attention", no_argument, NULL, ATTENTION},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    const char *to = NULL;
    *a = (arguments){.name = argv[0], .dtype = MLA_F32};
    for (int key; (key = getopt_long(argc, argv, ":o:", table, NULL)) != -1;) switch (key) {
        case TO: to = optarg; break;
        case 'o': a->output = optarg; break;
        case WEIGHTS:
            if (!mla_cli_weights(&a->weights, optarg, argv[0])) return 2;
            break;
        case DTYPE:
            note_given(a, "--dtype");
            if (!parse_dtype(&a->dtype, optarg))
                return mla_cli_usage(argv[0], "--dtype: expected f32, bf16 or f16, found '%s'", optarg);
            break;
        case FUSE:
            note_given(a, "--fuse");
            a->fuse = true;
            break;
        case PREPROCESS:
            note_given(a, "--preprocess");
            a->onnx.pixels = !strcmp(optarg, "graph");
            if (!a->onnx.pixels && strcmp(optarg, "metadata"))
                return mla_cli_usage(argv[0], "--preprocess: expected metadata or graph, found '%s'", optarg);
            break;
        case ATTENTION:
            note_given(a, "--attention");
            a->onnx.attention = true;
            break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    return check(a, argc, argv, to);
}

int mla_cmd_export(int argc, char **argv) {
    arguments a;
    mla_loaded loaded;
    mla_error error = {0};
    char path[MLA_PATH_BYTES];
    const int code = parse(&a, argc, argv);
    if (code) return code;
    if (a.help) {
        fputs(help, stdout);
        return 0;
    }
    const size_t stem = mla_checkpoint_stem(a.checkpoint);
    const int length =
        snprintf(path, sizeof path, "%.*s%s", (int)(stem ? stem : strlen(a.checkpoint)), a.checkpoint, a.format->ending);
    if (!a.output && (length < 0 || (size_t)length >= sizeof path))
        return mla_cli_usage(argv[0], "the path is too long: give -o FILE");
    mla_status status = mla_loaded_open(&loaded, a.checkpoint, a.weights, NULL, 0, &error);
    if (status != MLA_OK) return mla_cli_failed(&error);
    status = a.format->write(a.output ? a.output : path, &loaded, &a, &error);
    mla_loaded_close(&loaded);
    return status == MLA_OK ? 0 : mla_cli_failed(&error);
}
