#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/augment.h"
#include "train/cli.h"
#include "train/cmd_data.h"
#include "train/preview.h"

static const char usage[] =
    "Usage: mirrorla data preview CONFIG [-o PNG] [--count N] [--epoch E] [--set KEY=VALUE]...\n"
    "\n"
    "Draws the first training images of an epoch as the model sees them, through the code of training: cropped,\n"
    "flipped, augmented, erased and mixed, with labels and their shares; above each the image as the data set has it.\n"
    "\n"
    "  -o, --output PNG     the picture (default: preview.png)\n"
    "  --count N            images, 1 to 999 (default: 16)\n"
    "  --epoch E            of which epoch, from 1 (default: 1)\n"
    "  --set KEY=VALUE      a value in place of the config's, as for train\n"
    "  --help               this text\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage or input.\n";

typedef struct preview_arguments {
    const char *config, *output;
    long count, epoch;
    mla_cli_list overrides;
    bool help;
} preview_arguments;

/* 0, or the exit code of wrong usage. */
static int parse(preview_arguments *a, int argc, char **argv) {
    enum { COUNT = 1, EPOCH, SET };
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'},  {"count", required_argument, NULL, COUNT},
        {"epoch", required_argument, NULL, EPOCH}, {"set", required_argument, NULL, SET},
        {"help", no_argument, NULL, 'h'},          {0}};
    optind = 0;
    for (int key; (key = getopt_long(argc, argv, ":o:h", options, NULL)) != -1;) switch (key) {
        case 'o': a->output = optarg; break;
        case COUNT:
            if (!mla_cli_number(&a->count, optarg, 1, 999, argv[0], "--count")) return 2;
            break;
        case EPOCH:
            if (!mla_cli_number(&a->epoch, optarg, 1, 1000000, argv[0], "--epoch")) return 2;
            break;
        case SET:
            if (!mla_cli_list_add(&a->overrides, optarg)) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
            break;
        case 'h': a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CONFIG, found %d arguments", argc - optind);
    a->config = argv[optind];
    return 0;
}

static mla_status draw(const preview_arguments *a, mla_config *config, mla_error *error) {
    const char *slash = strrchr(a->config, '/');
    const mla_preview_options options = {.path = a->output,
                                         .title = slash ? slash + 1 : a->config,
                                         .count = (size_t)a->count,
                                         .epoch = (uint64_t)a->epoch - 1};
    char augmentation[MLA_AUGMENT_TEXT_BYTES];
    size_t count = 0;
    mla_status status = mla_config_load(config, a->config, a->overrides.item, a->overrides.count, error);
    if (status == MLA_OK && mla_cli_same_file(a->config, a->output))
        status = mla_fail(error, MLA_INVALID, "--output: %s is the config itself", a->output);
    if (status == MLA_OK) status = mla_preview_write(config, &options, &count, error);
    if (status != MLA_OK) return status;
    mla_augment_describe(&config->augment, augmentation);
    printf("%s: %zu images of epoch %ld; augmentation: %s\n", a->output, count, a->epoch, augmentation);
    return MLA_OK;
}

int mla_cmd_data_preview(int argc, char **argv) {
    preview_arguments a = {.output = "preview.png", .count = 16, .epoch = 1};
    mla_error error = {0};
    int code = parse(&a, argc, argv);
    if (code == 0 && a.help) {
        fputs(usage, stdout);
    } else if (code == 0) {
        mla_config *config = malloc(sizeof *config);
        const mla_status status = config ? draw(&a, config, &error) : mla_fail(&error, MLA_NO_MEMORY, "out of memory");
        if (status != MLA_OK) code = mla_cli_failed(&error);
        free(config);
    }
    free(a.overrides.item);
    return code;
}
