/* The program: finds the command and hands over.  Compiled for any processor: see core/isa.h. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "core/gemm.h"
#include "core/isa.h"
#include "train/cli.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *meaning;
} command;

static const command commands[] = {
    {"train", mla_cmd_train, "train a model from a config, or go on with a stopped run"},
    {"ablate", mla_cmd_ablate, "run a sweep of configs, and the table of their accuracies"},
    {"eval", mla_cmd_eval, "accuracy and loss of a checkpoint on a data set"},
    {"predict", mla_cmd_predict, "classes of image files, and pictures of what the model attends to"},
    {"inspect", mla_cmd_inspect, "layers, shapes, parameters, FLOPs and memory of a config or checkpoint"},
    {"export", mla_cmd_export, "write a checkpoint's model for other tools: safetensors, ONNX"},
    {"import", mla_cmd_import, "make a checkpoint from weights of other tools"},
    {"diff", mla_cmd_diff, "what differs between two configs, checkpoints or exports"},
    {"bench", mla_cmd_bench, "time training steps: speed, share of the machine's peak, memory, operations"},
    {"report", mla_cmd_report, "one HTML page about runs, or about a sweep"},
    {"data", mla_cmd_data, "list, verify or prepare data sets, and look at what models see of them"},
    {"config", mla_cmd_config, "explain the keys of a config"},
    {"version", mla_cmd_version, "version, processor path and libraries"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void help(FILE *out) {
    fputs("Usage: mirrorla COMMAND [ARGUMENTS]\n\nTrains MirrorLA vision transformers.\n\nCommands:\n", out);
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].meaning);
    fputs("\n'mirrorla COMMAND --help' explains a command.\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.\n",
          out);
}

/* A result that did not get out, e.g. into a full disk, is not a success. */
static int end(int code) {
    if (!fflush(stdout) && !ferror(stdout)) return code;
    fprintf(stderr, "mirrorla: the results could not be written to the standard output\n");
    return code ? code : 1;
}

int main(int argc, char **argv) {
    const char *missing = mla_isa_missing(&mla_isa_engine);
    if (missing) {
        fprintf(stderr,
                "mirrorla: this binary was built for processors with %s; this one lacks %s: build with -Dcpu=x86-64\n",
                mla_isa_engine.name, missing);
        return 1;
    }
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version")) argv[1] = (char *)"version";
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name)) continue;
        static char name[64];
        snprintf(name, sizeof name, "mirrorla %s", commands[i].name);
        if (!mla_gemm_setup())
            fputs("mirrorla: the BLAS in use computes wrong products on this machine; built-in loops are used instead, "
                  "which are slow\n",
                  stderr);
        argv[1] = name;
        opterr = 0; /* the commands tell what is wrong with an option */
        return end(commands[i].run(argc - 1, argv + 1));
    }
    fprintf(stderr, "mirrorla: there is no command '%s'\nTry 'mirrorla --help'.\n", argv[1]);
    return 2;
}
