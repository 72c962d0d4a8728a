/* mirrorla export */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cli.h"
#include "train/loaded.h"
#include "train/onnx.h"

static const char help[] =
    "Usage: mirrorla export CKPT --to FORMAT [OPTIONS]\n\n"
    "Writes a checkpoint's model for other tools, float32, with config, class names, input size, mean and deviation as\n"
    "metadata.\n\n"
    "  --to FORMAT        safetensors: the weights alone, under the state_dict names of the PyTorch twin\n"
    "                     (tools/mirrorla.py);  onnx: weights and graph, opset 17, any batch size\n"
    "  -o, --output FILE  default: the checkpoint's name with .export.safetensors or .onnx\n"
    "  --weights WHICH    raw, average, or auto (default): the average where one is kept\n"
    "  --preprocess HOW   onnx: metadata (default): the input is float32 (batch, 3, S, S), normalised by the caller with "
    "the\n"
    "                     mean and std in the metadata;  graph: uint8 (batch, S, S, 3), normalised in the graph\n"
    "  --attention        onnx: a second output, how much attention each token of the last block receives\n"
    "  --help             this text\n";

typedef struct arguments {
    const char *checkpoint, *format, *output;
    mla_weights weights;
    bool is_onnx, help;
    mla_onnx_options onnx;
    const char *onnx_option; /* the last option given that is for ONNX alone */
} arguments;

static int parse(arguments *a, int argc, char **argv) {
    enum { TO = 1, WEIGHTS, PREPROCESS, ATTENTION, HELP };
    static const struct option table[] = {{"to", required_argument, NULL, TO},
                                          {"output", required_argument, NULL, 'o'},
                                          {"weights", required_argument, NULL, WEIGHTS},
                                          {"preprocess", required_argument, NULL, PREPROCESS},
                                          {"attention", no_argument, NULL, ATTENTION},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    *a = (arguments){0};
    for (int key; (key = getopt_long(argc, argv, ":o:", table, NULL)) != -1;) switch (key) {
        case TO: a->format = optarg; break;
        case 'o': a->output = optarg; break;
        case WEIGHTS:
            if (!mla_weights_parse(&a->weights, optarg))
                return mla_cli_usage(argv[0], "--weights: expected auto, raw or average, found '%s'", optarg);
            break;
        case PREPROCESS:
            a->onnx.pixels = !strcmp(optarg, "graph");
            if (!a->onnx.pixels && strcmp(optarg, "metadata"))
                return mla_cli_usage(argv[0], "--preprocess: expected metadata or graph, found '%s'", optarg);
            a->onnx_option = "--preprocess";
            break;
        case ATTENTION:
            a->onnx.attention = true;
            a->onnx_option = "--attention";
            break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CKPT, found %d arguments", argc - optind);
    if (!a->format) return mla_cli_usage(argv[0], "--to is missing: expected safetensors or onnx");
    a->is_onnx = !strcmp(a->format, "onnx");
    if (!a->is_onnx && strcmp(a->format, "safetensors"))
        return mla_cli_usage(argv[0], "--to: expected safetensors or onnx, found '%s'", a->format);
    if (!a->is_onnx && a->onnx_option) return mla_cli_usage(argv[0], "%s goes with --to onnx alone", a->onnx_option);
    a->checkpoint = argv[optind];
    return 0;
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
    const int length = snprintf(path, sizeof path, "%.*s%s", (int)(stem ? stem : strlen(a.checkpoint)), a.checkpoint,
                                a.is_onnx ? ".onnx" : ".export.safetensors");
    if (!a.output && (length < 0 || (size_t)length >= sizeof path))
        return mla_cli_usage(argv[0], "the path is too long: give -o FILE");
    if (a.output && mla_cli_same_file(a.checkpoint, a.output))
        return mla_cli_usage(argv[0], "-o: %s is the checkpoint itself, and its training state would be lost", a.output);
    mla_status status = mla_loaded_open(&loaded, a.checkpoint, a.weights, NULL, 0, &error);
    if (status != MLA_OK) return mla_cli_failed(&error);
    const mla_params *params = mla_model_params(loaded.model);
    const char *output = a.output ? a.output : path;
    status = a.is_onnx ? mla_export_onnx(output, loaded.model, &loaded.checkpoint, &a.onnx, &error)
                       : mla_export_safetensors(output, params, params->value, &loaded.checkpoint, &error);
    if (status == MLA_OK)
        printf("%s: %zu parameters in %d tensors, %s weights\n", output, params->count, params->entries,
               loaded.average ? "averaged" : "raw");
    mla_loaded_close(&loaded);
    return status == MLA_OK ? 0 : mla_cli_failed(&error);
}
