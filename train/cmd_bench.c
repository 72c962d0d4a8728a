/* mirrorla bench */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/bench.h"
#include "train/cli.h"
#include "train/config_schema.h"
#include "train/interrupt.h"
#include "train/json_out.h"
#include "train/machine.h"

static const char help[] =
    "Usage: mirrorla bench CONFIG [OPTIONS]\n\n"
    "Times training steps of CONFIG's model, and shows where the time goes: parts of a step, operations, share of the\n"
    "machine's GEMM peak, memory.  Works without the data set: random bytes then go through the same augmentation.\n\n"
    "  --steps N         steps measured (default 10), after two of warm-up\n"
    "  --batch N         images of a step (default: train.batch)\n"
    "  --threads LIST    threads (default: one a core); several, e.g. 1,2, are measured in turn and compared\n"
    "  --kinds LIST      attention kinds (default: the config's); several, e.g. relu,mirror, likewise\n"
    "  --tokens LIST     instead: time and memory against the number of tokens, e.g. 256,1024,4096, each a square number;\n"
    "                    the images grow, the batch shrinks (--kinds default: all)\n"
    "  --budget SECONDS  of --tokens: longest time a case may take (default 60)\n"
    "  --set KEY=VALUE   override a key; may be given again\n"
    "  --json            one JSON object instead of tables\n"
    "  --help            this text\n";

enum { LIST_MAX = 16 };

typedef struct arguments {
    const char *path;
    mla_cli_list overrides;
    int threads[LIST_MAX], kinds[LIST_MAX], tokens[LIST_MAX];
    int thread_count, kind_count, token_count;
    long steps, batch, budget;
    bool json, help;
} arguments;

static bool read_number(int *out, const char *text, const char *command, const char *option) {
    long value;
    if (!mla_cli_number(&value, text, 1, 1 << 20, command, option)) return false;
    *out = (int)value;
    return true;
}

static bool read_threads(int *out, const char *text, const char *command, const char *option) {
    long value;
    if (!mla_cli_number(&value, text, 1, 1024, command, option)) return false;
    *out = (int)value;
    return true;
}

static bool read_kind(int *out, const char *text, const char *command, const char *option) {
    for (int kind = 0; kind < MLA_ATTENTION_KINDS; kind++)
        if (!strcmp(text, mla_attention_kind_name((mla_attention_kind)kind))) {
            *out = kind;
            return true;
        }
    char names[MLA_CONFIG_ALLOWED_BYTES];
    int used = 0;
    for (int kind = 0; kind < MLA_ATTENTION_KINDS && used < (int)sizeof names; kind++)
        used += snprintf(names + used, sizeof names - (size_t)used, "%s%s", kind ? ", " : "",
                         mla_attention_kind_name((mla_attention_kind)kind));
    mla_cli_usage(command, "%s: there is no attention kind '%s': expected one of %s", option, text, names);
    return false;
}

/* Entries between commas; false after telling what is wrong. */
static bool read_list(int *out, int *count, const char *text, const char *command, const char *option,
                      bool (*read)(int *, const char *, const char *, const char *)) {
    char entry[32];
    *count = 0;
    for (bool more = true; more; text += *text == ',') {
        const size_t length = strcspn(text, ",");
        if (*count == LIST_MAX || length >= sizeof entry) {
            mla_cli_usage(command, "%s: expected up to %d short entries", option, LIST_MAX);
            return false;
        }
        memcpy(entry, text, length);
        entry[length] = 0;
        if (!read(&out[*count], entry, command, option)) return false;
        for (int i = 0; i < *count; i++)
            if (out[i] == out[*count]) {
                mla_cli_usage(command, "%s: '%s' is there twice", option, entry);
                return false;
            }
        ++*count;
        text += length;
        more = *text == ',';
    }
    return true;
}

static int parse(arguments *a, int argc, char **argv) {
    enum { SET = 1, STEPS, BATCH, THREADS, KINDS, TOKENS, BUDGET, JSON, HELP };
    static const struct option table[] = {
        {"set", required_argument, NULL, SET},       {"steps", required_argument, NULL, STEPS},
        {"batch", required_argument, NULL, BATCH},   {"threads", required_argument, NULL, THREADS},
        {"kinds", required_argument, NULL, KINDS},   {"tokens", required_argument, NULL, TOKENS},
        {"budget", required_argument, NULL, BUDGET}, {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP},           {0}};
    *a = (arguments){.steps = 10, .budget = 60};
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case SET:
            if (!mla_cli_list_add(&a->overrides, optarg)) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
            break;
        case STEPS:
            if (!mla_cli_number(&a->steps, optarg, 1, 100000, argv[0], "--steps")) return 2;
            break;
        case BATCH:
            if (!mla_cli_number(&a->batch, optarg, 1, 1000000, argv[0], "--batch")) return 2;
            break;
        case THREADS:
            if (!read_list(a->threads, &a->thread_count, optarg, argv[0], "--threads", read_threads)) return 2;
            break;
        case KINDS:
            if (!read_list(a->kinds, &a->kind_count, optarg, argv[0], "--kinds", read_kind)) return 2;
            break;
        case TOKENS:
            if (!read_list(a->tokens, &a->token_count, optarg, argv[0], "--tokens", read_number)) return 2;
            break;
        case BUDGET:
            if (!mla_cli_number(&a->budget, optarg, 1, 1000000, argv[0], "--budget")) return 2;
            break;
        case JSON: a->json = true; break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CONFIG, found %d arguments", argc - optind);
    if (a->token_count && a->thread_count > 1) return mla_cli_usage(argv[0], "--tokens goes with one number of threads");
    a->path = argv[optind];
    return 0;
}

/* The overrides given, what --batch stands for, which `batch_text` keeps, and one more (NULL: none). */
static bool own_overrides(mla_cli_list *list, const arguments *a, char batch_text[64], const char *more, mla_error *error) {
    bool enough = true;
    for (size_t i = 0; i < a->overrides.count; i++) enough &= mla_cli_list_add(list, a->overrides.item[i]);
    snprintf(batch_text, 64, "train.batch=%ld", a->batch);
    if (a->batch) enough &= mla_cli_list_add(list, batch_text);
    if (more) enough &= mla_cli_list_add(list, more);
    if (enough) return true;
    free(list->item);
    mla_fail(error, MLA_NO_MEMORY, "out of memory for the overrides");
    return false;
}

/* One case: the config with this kind (-1: its own). */
static mla_status open_case(mla_bench_case *c, const arguments *a, mla_bench_options *options, int kind, mla_error *error) {
    char kind_text[64], batch_text[64];
    mla_cli_list overrides = {0};
    snprintf(kind_text, sizeof kind_text, "model.attention.kind=%s",
             mla_attention_kind_name(kind < 0 ? MLA_ATTENTION_SOFTMAX : (mla_attention_kind)kind));
    if (!own_overrides(&overrides, a, batch_text, kind < 0 ? NULL : kind_text, error)) return MLA_NO_MEMORY;
    options->overrides = overrides.item;
    options->override_count = overrides.count;
    const mla_status status = mla_bench_case_open(c, options, error);
    free(overrides.item);
    return status;
}

static mla_status compare(const arguments *a, mla_bench_options *options, mla_error *error) {
    const int kinds = a->kind_count ? a->kind_count : 1, threads = a->thread_count ? a->thread_count : 1;
    const int count = kinds * threads;
    int open = 0;
    mla_bench_case *cases = calloc((size_t)count, sizeof *cases);
    mla_status status = cases ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for %d cases", count);
    options->alone = count == 1;
    for (; open < count && status == MLA_OK; open++) {
        options->threads = a->thread_count ? a->threads[open % threads] : 0;
        status = open_case(&cases[open], a, options, a->kind_count ? a->kinds[open / threads] : -1, error);
    }
    if (status == MLA_OK) status = mla_bench_measure(cases, count, options, error);
    if (status == MLA_OK && a->json) status = mla_json_put(mla_bench_json(cases, count), error);
    if (status == MLA_OK && !a->json) mla_bench_print(cases, count);
    for (int i = 0; i < open; i++) mla_bench_case_close(&cases[i]);
    free(cases);
    return status;
}

static mla_status sweep(const arguments *a, mla_bench_options *options, mla_error *error) {
    int all[MLA_ATTENTION_KINDS];
    for (int i = 0; i < MLA_ATTENTION_KINDS; i++) all[i] = i;
    const mla_bench_sweep s = {.kinds = a->kind_count ? a->kinds : all,
                               .kind_count = a->kind_count ? a->kind_count : MLA_ATTENTION_KINDS,
                               .tokens = a->tokens,
                               .token_count = a->token_count,
                               .json = a->json};
    char batch_text[64];
    mla_cli_list overrides = {0};
    if (!own_overrides(&overrides, a, batch_text, NULL, error)) return MLA_NO_MEMORY;
    options->overrides = overrides.item;
    options->override_count = overrides.count;
    options->budget_s = (double)a->budget;
    options->with_peak = false;
    options->threads = mla_machine_threads(a->thread_count ? a->threads[0] : 0, INT_MAX);
    const mla_status status = mla_bench_tokens(options, &s, error);
    free(overrides.item);
    return status;
}

int mla_cmd_bench(int argc, char **argv) {
    arguments a;
    mla_error error = {0};
    int code = parse(&a, argc, argv);
    if (code == 0 && a.help) fputs(help, stdout);
    if (code == 0 && !a.help) {
        mla_interrupt_setup();
        mla_bench_options options = {.path = a.path, .steps = (int)a.steps, .budget_s = 1e9, .with_peak = true};
        if ((a.token_count ? sweep : compare)(&a, &options, &error) != MLA_OK) code = mla_cli_failed(&error);
    }
    free(a.overrides.item);
    return code;
}
