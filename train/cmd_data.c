#include "train/cmd_data.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cli.h"
#include "train/dataset_kind.h"
#include "train/interrupt.h"

static const char usage[] =
    "Usage: mirrorla data list\n"
    "       mirrorla data verify SET [--path PATH] [--size N] [--class-order ORDER]\n"
    "       mirrorla data prepare SET [--path PATH] --out DIR\n"
    "       mirrorla data sample CKPT [--path PATH] [--count N] --out DIR\n"
    "       mirrorla data preview CONFIG [-o PNG] [--count N] [--epoch E] [--set K=V]...\n"
    "\n"
    "list      the data sets, and what data.path points at for each\n"
    "verify    reads every image of both splits; prints classes, counts, mean and deviation,\n"
    "          and each file that can't be read (then the exit status is 1)\n"
    "prepare   cifar10, cifar100: unpacks the archive into DIR (training also reads the archive itself);\n"
    "          twins: writes the set in CIFAR-10's binary layout, and a picture of it\n"
    "sample    writes test images of a checkpoint's data set, as its model sees them, as PNG files,\n"
    "          and samples.json with their classes\n"
    "preview   draws training images of a config as its model sees them ('mirrorla data preview --help')\n"
    "\n"
    "  --path PATH          where the set is (default: auto, which looks in $MLA_DATA, ./data, .,\n"
    "                       ~/.cache/mirrorla and ~/data)\n"
    "  --out DIR            folder to write to; made if need be\n"
    "  --count N            images that sample writes, spread over the test set (default: 12)\n"
    "  --size N             side of the images as the model sees them, pixels (default: 32)\n"
    "  --class-order ORDER  of class folders: torchvision (plain, default) or natural (numbers by value)\n"
    "  --help               this text\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted.\n";

typedef struct data_arguments {
    const char *verb, *set, *path, *out, *size, *order, *count;
    bool prepare, help;
} data_arguments;

static int list_sets(void) {
    const mla_set_kind *kind = NULL;
    for (int set = 0; (kind = mla_set_kind_get(set)); set++) printf("%-14s %s\n", kind->name, kind->expects);
    return 0;
}

/* 0, or the exit code of wrong usage. */
static int parse(data_arguments *arguments, int argc, char **argv) {
    enum { CLASS_ORDER = 1, COUNT };
    static const struct option options[] = {
        {"path", required_argument, NULL, 'p'},
        {"out", required_argument, NULL, 'o'},
        {"size", required_argument, NULL, 's'},
        {"class-order", required_argument, NULL, CLASS_ORDER},
        {"count", required_argument, NULL, COUNT},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    optind = 0; /* another command line may have been read before (in tests): start afresh */
    for (int key; (key = getopt_long(argc, argv, ":p:o:s:h", options, NULL)) != -1;) {
        switch (key) {
        case 'p': arguments->path = optarg; break;
        case 'o': arguments->out = optarg; break;
        case 's': arguments->size = optarg; break;
        case CLASS_ORDER: arguments->order = optarg; break;
        case COUNT: arguments->count = optarg; break;
        case 'h': arguments->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    }
    if (optind < argc) arguments->verb = argv[optind++];
    if (optind < argc) arguments->set = argv[optind++];
    return optind < argc ? mla_cli_usage(argv[0], "too many arguments: '%s'", argv[optind]) : 0;
}

/* The config that the arguments describe; 0, or the exit code of wrong usage. */
static int make_config(mla_config *config, const data_arguments *arguments, const char *command) {
    mla_config_defaults(config);
    const mla_set_kind *kind = NULL;
    int set = 0;
    while ((kind = mla_set_kind_get(set)) && strcmp(kind->name, arguments->set) != 0) set++;
    if (!kind) return mla_cli_usage(command, "unknown data set '%s' (mirrorla data list names them)", arguments->set);
    config->data.set = (mla_data_set)set;
    if (arguments->path && strlen(arguments->path) >= sizeof config->data.path)
        return mla_cli_usage(command, "path too long: %s", arguments->path);
    if (arguments->path) strcpy(config->data.path, arguments->path);
    if (arguments->size) {
        long size = 0;
        if (!mla_cli_number(&size, arguments->size, 4, 1024, command, "--size")) return mla_status_exit_code(MLA_INVALID);
        config->data.size = (int)size;
    }
    if (arguments->order && strcmp(arguments->order, "natural") == 0)
        config->data.class_order = MLA_ORDER_NATURAL;
    else if (arguments->order && strcmp(arguments->order, "torchvision") != 0)
        return mla_cli_usage(command, "--class-order: expected torchvision or natural, found '%s'", arguments->order);
    return 0;
}

static int run(const mla_data_config *config, const data_arguments *arguments) {
    mla_error error = {0};
    size_t unreadable = 0;
    mla_interrupt_setup(); /* long loops end with MLA_INTERRUPTED */
    mla_status status =
        arguments->prepare ? mla_data_prepare(config, arguments->out, &error) : mla_data_verify(config, &unreadable, &error);
    return status == MLA_OK ? unreadable != 0 : mla_cli_failed(&error);
}

static int sample(const data_arguments *arguments, const char *command) {
    mla_error error = {0};
    long count = 12;
    if (!arguments->set) return mla_cli_usage(command, "sample: of which checkpoint?");
    if (!arguments->out) return mla_cli_usage(command, "sample needs --out DIR, the folder to write to");
    if (arguments->path && strlen(arguments->path) >= MLA_PATH_BYTES)
        return mla_cli_usage(command, "path too long: %s", arguments->path);
    if (arguments->count && !mla_cli_number(&count, arguments->count, 1, 99, command, "--count")) return 2;
    const mla_status status = mla_data_sample(arguments->set, arguments->path, (size_t)count, arguments->out, &error);
    return status == MLA_OK ? 0 : mla_cli_failed(&error);
}

int mla_cmd_data(int argc, char **argv) {
    data_arguments arguments = {0};
    if (argc > 1 && strcmp(argv[1], "preview") == 0) {
        static char name[] = "mirrorla data preview";
        argv[1] = name;
        return mla_cmd_data_preview(argc - 1, argv + 1);
    }
    int code = parse(&arguments, argc, argv);
    if (code) return code;
    if (arguments.help) {
        fputs(usage, stdout);
        return 0;
    }
    if (!arguments.verb) return mla_cli_usage(argv[0], "one of list, verify, prepare, sample, preview is needed");
    if (strcmp(arguments.verb, "list") == 0)
        return arguments.set ? mla_cli_usage(argv[0], "list takes no argument, found '%s'", arguments.set) : list_sets();
    if (strcmp(arguments.verb, "sample") == 0) return sample(&arguments, argv[0]);
    arguments.prepare = strcmp(arguments.verb, "prepare") == 0;
    if (!arguments.prepare && strcmp(arguments.verb, "verify") != 0)
        return mla_cli_usage(argv[0], "unknown word '%s', expected list, verify, prepare, sample or preview",
                             arguments.verb);
    if (!arguments.set) return mla_cli_usage(argv[0], "%s: which data set? (mirrorla data list names them)", arguments.verb);
    if (!arguments.prepare && arguments.out) return mla_cli_usage(argv[0], "verify writes nothing: --out is for prepare");
    mla_config *config = malloc(sizeof *config);
    if (!config) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
    code = make_config(config, &arguments, argv[0]);
    if (!code) code = run(&config->data, &arguments);
    free(config);
    return code;
}
