/* mirrorla train */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/cli.h"
#include "train/interrupt.h"
#include "train/trainer.h"

static const char help[] =
    "Usage: mirrorla train CONFIG [OPTIONS]\n\n"
    "Trains the model that CONFIG describes and leaves a run folder with config.yaml, log.jsonl and checkpoints/.\n"
    "Ctrl-C finishes the step, writes a checkpoint and exits with 130.\n\n"
    "  --set KEY=VALUE      override a key of the config, e.g. --set optim.lr=3e-4; may be given again\n"
    "  --out DIR            run folder (default: runs/NAME of the config, numbered if that exists)\n"
    "  --resume[=CKPT]      go on from CKPT, or from the newest checkpoint of the run folder (without --out: the newest\n"
    "                       runs/NAME); with CKPT and --out also into a new folder\n"
    "  --finetune CKPT      start from the weights of a checkpoint or export instead of the seed's, at step 0; a head of "
    "other\n"
    "                       classes starts anew, positions of another grid are interpolated, anything else must fit\n"
    "  --weights WHICH      of --finetune: raw, average, or auto (default): the average where one is kept\n"
    "  --threads N          threads (default: one a core, at most train.lanes); results do not depend on it\n"
    "  --help               this text\n";

static int parse(int argc, char **argv, mla_train_options *options, mla_cli_list *overrides, bool *done) {
    enum { SET = 1, OUT, RESUME, FINETUNE, WEIGHTS, THREADS, HELP };
    static const struct option table[] = {{"set", required_argument, NULL, SET},
                                          {"out", required_argument, NULL, OUT},
                                          {"resume", optional_argument, NULL, RESUME},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"finetune", required_argument, NULL, FINETUNE},
                                          {"weights", required_argument, NULL, WEIGHTS},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    long threads = 0;
    bool weights = false;
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case SET:
            if (!mla_cli_list_add(overrides, optarg)) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
            break;
        case OUT: options->out = optarg; break;
        case RESUME:
            options->resume = true;
            options->checkpoint = optarg;
            break;
        case FINETUNE: options->finetune = optarg; break;
        case WEIGHTS:
            if (!mla_cli_weights(&options->weights, optarg, argv[0])) return 2;
            weights = true;
            break;
        case THREADS:
            if (!mla_cli_number(&threads, optarg, 1, 1024, argv[0], "--threads")) return 2;
            break;
        case HELP:
            fputs(help, stdout);
            *done = true;
            return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 2 == argc && options->resume && !options->checkpoint)
        return mla_cli_usage(argv[0], "found two arguments, '%s' and '%s': a checkpoint is given as --resume=CKPT",
                             argv[optind], argv[optind + 1]);
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CONFIG, found %d arguments", argc - optind);
    if (options->finetune && options->resume)
        return mla_cli_usage(argv[0], "--finetune starts a run and --resume goes on with one: give one of them");
    if (weights && !options->finetune) return mla_cli_usage(argv[0], "--weights is for --finetune");
    options->config_path = argv[optind];
    options->overrides = overrides->item;
    options->override_count = overrides->count;
    options->threads = (int)threads;
    return 0;
}

static void print_summary(const mla_train_summary *s) {
    if (s->tested)
        printf("test accuracy %.2f %% (%" PRIu64 " of %" PRIu64 ")\n",
               100 * (double)s->test_correct / (double)s->test_images, s->test_correct, s->test_images);
    printf("steps %" PRIu64 "\nweights %s\n", s->steps, s->weight_hash);
    if (s->checkpoint[0]) printf("checkpoint %s\n", s->checkpoint);
}

int mla_cmd_train(int argc, char **argv) {
    mla_train_options options = {0};
    mla_cli_list overrides = {0};
    mla_error error = {0};
    bool done = false;
    int code = parse(argc, argv, &options, &overrides, &done);
    if (code == 0 && !done) {
        mla_train_summary summary;
        mla_interrupt_setup();
        const mla_status status = mla_train(&options, &summary, &error);
        if (status == MLA_OK || (status == MLA_INTERRUPTED && summary.folder[0])) print_summary(&summary);
        code = status == MLA_OK ? 0 : mla_cli_failed(&error);
    }
    free(overrides.item);
    return code;
}
