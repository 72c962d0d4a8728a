/* mirrorla import */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/adapt.h"
#include "train/run.h"

static const char help[] =
    "Usage: mirrorla import FILE CONFIG [OPTIONS]\n\n"
    "Makes a checkpoint at step 0, for `eval` and `train --finetune`, from the weights of FILE (safetensors: an export or\n"
    "checkpoint of mirrorla, or a state_dict under the same names, which for a vit are timm's with average pooling and\n"
    "without class token) for the model and data set of CONFIG.  Names and shapes must fit; what does not is listed.\n"
    "Positions of another grid are interpolated, and a head of other classes starts anew; both are told.\n\n"
    "  -o, --output CKPT        default: FILE's name with .import.safetensors\n"
    "  --set KEY=VALUE          override a key of the config; may be given again\n"
    "  --weights WHICH          of a checkpoint: raw, average, or auto (default): the average where one is kept\n"
    "  --allow-missing PATTERN  parameters that FILE may lack; they keep their initial values (train.seed)\n"
    "  --drop PATTERN           tensors of FILE that are left out, e.g. cls_token\n"
    "  --rename FROM=TO         names of FILE that begin with FROM begin with TO instead, e.g. module.=\n"
    "  --help                   this text\n\n"
    "The last three may be given again; in patterns * stands for any text, dots included.\n";

typedef struct arguments {
    const char *file, *config, *output;
    mla_cli_list overrides;
    mla_adapt_rules rules;
    mla_weights weights;
    bool help;
} arguments;

static int parse(arguments *a, int argc, char **argv) {
    enum { SET = 1, WEIGHTS, MISSING, DROP, RENAME, HELP };
    static const struct option table[] = {{"output", required_argument, NULL, 'o'},
                                          {"set", required_argument, NULL, SET},
                                          {"weights", required_argument, NULL, WEIGHTS},
                                          {"allow-missing", required_argument, NULL, MISSING},
                                          {"drop", required_argument, NULL, DROP},
                                          {"rename", required_argument, NULL, RENAME},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    bool kept = true;
    for (int key; kept && (key = getopt_long(argc, argv, ":o:", table, NULL)) != -1;) switch (key) {
        case 'o': a->output = optarg; break;
        case SET: kept = mla_cli_list_add(&a->overrides, optarg); break;
        case WEIGHTS:
            if (!mla_cli_weights(&a->weights, optarg, argv[0])) return 2;
            break;
        case MISSING: kept = mla_cli_list_add(&a->rules.allow_missing, optarg); break;
        case DROP: kept = mla_cli_list_add(&a->rules.drop, optarg); break;
        case RENAME:
            if (!strchr(optarg, '=') || *optarg == '=')
                return mla_cli_usage(argv[0], "--rename: expected FROM=TO, found '%s'", optarg);
            kept = mla_cli_list_add(&a->rules.rename, optarg);
            break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (!kept) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
    if (optind + 2 != argc) return mla_cli_usage(argv[0], "expected FILE and CONFIG, found %d arguments", argc - optind);
    a->file = argv[optind];
    a->config = argv[optind + 1];
    if (a->output && mla_cli_same_file(a->file, a->output))
        return mla_cli_usage(argv[0], "-o: %s is the file that is read", a->output);
    return 0;
}

typedef struct import {
    mla_config config;
    mla_source source;
    mla_dataset *dataset; /* NULL when it is not there */
    mla_class_info classes;
    mla_model *model;
} import;

static void tell_constants(const import *i) {
    const mla_class_info *stored = &i->source.loaded.checkpoint.classes, *here = &i->classes;
    if (i->source.loaded.model &&
        (memcmp(stored->mean, here->mean, sizeof here->mean) != 0 || memcmp(stored->std, here->std, sizeof here->std) != 0))
        fprintf(stderr, "note: %s was trained with other data.mean and data.std; the config's are stored\n", i->source.path);
}

/* Classes, size and constants are those of the config's data set, as in training; where it is not at hand, those that the
 * file brings along. */
static mla_status find_classes(import *i, mla_error *error) {
    mla_error why = {0};
    if (mla_dataset_open(&i->dataset, &i->config.data, MLA_SPLIT_TEST, i->config.train.seed, &why) == MLA_OK) {
        i->classes = mla_classes_of(mla_dataset_get_info(i->dataset));
        tell_constants(i);
        return MLA_OK;
    }
    if (!i->source.loaded.model || why.status == MLA_NO_MEMORY) return mla_fail(error, why.status, "%s", why.text);
    i->classes = i->source.loaded.checkpoint.classes;
    if (i->classes.size != i->config.data.size)
        return mla_fail(error, MLA_INVALID, "%s (and %s has another input size, %d, so that its class names are no help)",
                        why.text, i->source.path, i->classes.size);
    fprintf(stderr, "note: %s; class names, mean and deviation are those of %s\n", why.text, i->source.path);
    return MLA_OK;
}

static mla_status convert(import *i, const arguments *a, mla_adapted *adapted, mla_error *error) {
    mla_status status = mla_config_load(&i->config, a->config, a->overrides.item, a->overrides.count, error);
    if (status == MLA_OK) status = mla_source_open(&i->source, a->file, a->weights, error);
    if (status == MLA_OK) status = find_classes(i, error);
    if (status != MLA_OK) return status;
    i->config.model.image = i->classes.size;
    i->config.model.channels = 3;
    i->config.model.classes = i->classes.count;
    status = mla_model_new(&i->model, &i->config.model, error);
    if (status != MLA_OK) return mla_fail_context(error, "%s: ", a->config);
    mla_source_tell_config(&i->source, &i->config);
    mla_params_init(mla_model_params(i->model), i->config.train.seed);
    return mla_adapt(adapted, mla_model_params(i->model), &i->classes, &i->source, &a->rules, error);
}

static mla_status save(const import *i, const char *path, mla_error *error) {
    const mla_params *params = mla_model_params(i->model);
    const mla_run_buffers buffers = {.value = params->value};
    const mla_counters start = {0};
    return mla_checkpoint_save(path, params, &buffers, &start, &i->config, &i->classes, error);
}

static mla_status run(const arguments *a, mla_error *error) {
    import *i = calloc(1, sizeof *i);
    char *path = NULL;
    mla_adapted adapted = {0};
    if (!i) return mla_fail(error, MLA_NO_MEMORY, "out of memory for a config");
    mla_status status = convert(i, a, &adapted, error);
    const size_t stem = mla_checkpoint_stem(a->file);
    const int length = a->output ? asprintf(&path, "%s", a->output)
                                 : asprintf(&path, "%.*s.import.safetensors", (int)(stem ? stem : strlen(a->file)), a->file);
    if (status == MLA_OK && length < 0) status = mla_fail(error, MLA_NO_MEMORY, "out of memory for a path");
    if (status == MLA_OK) status = save(i, path, error);
    if (status == MLA_OK)
        printf("%s: %zu parameters in %d tensors: %zu taken, %zu initialised (seed %llu), %zu of the file left out\n", path,
               mla_model_params(i->model)->count, mla_model_params(i->model)->entries, adapted.taken, adapted.fresh,
               (unsigned long long)i->config.train.seed, adapted.dropped);
    if (length >= 0) free(path);
    mla_model_free(i->model);
    mla_dataset_close(i->dataset);
    mla_source_close(&i->source);
    free(i);
    return status;
}

int mla_cmd_import(int argc, char **argv) {
    arguments a = {0};
    mla_error error = {0};
    int code = parse(&a, argc, argv);
    if (a.help)
        fputs(help, stdout);
    else if (!code && run(&a, &error) != MLA_OK)
        code = mla_cli_failed(&error);
    free(a.overrides.item);
    free(a.rules.allow_missing.item);
    free(a.rules.drop.item);
    free(a.rules.rename.item);
    return code;
}
