/* mirrorla report */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "train/cli.h"
#include "train/file.h"
#include "train/report.h"

static const char help[] =
    "Usage: mirrorla report RUN... [OPTIONS]\n"
    "       mirrorla report SWEEP [OPTIONS]\n\n"
    "Writes one HTML page about runs, or about a sweep of `mirrorla ablate`: curves, results with their table, configs and\n"
    "their differences, what the attention layers do, and attention maps of test images.  It needs nothing but a browser.\n"
    "A RUN is a run folder or a log.jsonl; a running one is shown as far as it is.\n\n"
    "  -o, --output FILE  the page (default: report.html in the folder of a single RUN or SWEEP, else in this one)\n"
    "  --data PATH        where the data set is, for the attention maps (default: as in training)\n"
    "  --maps N           runs, of different settings, whose attention is drawn, at most (default: 12; 0: none)\n"
    "  --images N         test images for it (default: 4)\n"
    "  --help             this text\n";

typedef struct arguments {
    mla_report_options options;
    const char *output;
    bool help;
} arguments;

static int parse(arguments *a, int argc, char **argv) {
    enum { DATA = 1, MAPS, IMAGES, HELP };
    static const struct option table[] = {
        {"output", required_argument, NULL, 'o'}, {"data", required_argument, NULL, DATA},
        {"maps", required_argument, NULL, MAPS},  {"images", required_argument, NULL, IMAGES},
        {"help", no_argument, NULL, HELP},        {0}};
    long maps = MLA_REPORT_MAPS, images = MLA_REPORT_IMAGES;
    *a = (arguments){0};
    for (int key; (key = getopt_long(argc, argv, ":o:", table, NULL)) != -1;) switch (key) {
        case 'o': a->output = optarg; break;
        case DATA: a->options.data = optarg; break;
        case MAPS:
            if (!mla_cli_number(&maps, optarg, 0, MLA_REPORT_RUNS_MAX, argv[0], "--maps")) return 2;
            break;
        case IMAGES:
            if (!mla_cli_number(&images, optarg, 1, 100, argv[0], "--images")) return 2;
            break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    const int paths = argc - optind;
    if (paths < 1) return mla_cli_usage(argv[0], "expected a RUN or a SWEEP");
    if (paths > MLA_REPORT_RUNS_MAX)
        return mla_cli_usage(argv[0], "%d runs are too many, %d go", paths, MLA_REPORT_RUNS_MAX);
    a->options.paths = (const char *const *)argv + optind;
    a->options.count = (size_t)paths;
    a->options.maps = (int)maps;
    a->options.images = (int)images;
    for (int i = 0; paths > 1 && i < paths; i++)
        if (mla_report_is_sweep(a->options.paths[i]))
            return mla_cli_usage(argv[0], "%s is a sweep, and a sweep has a report of its own", a->options.paths[i]);
    return 0;
}

/* The caller frees it; NULL: out of memory. */
static char *output_path(const arguments *a) {
    struct stat info;
    if (a->output) return strdup(a->output);
    const bool folder = a->options.count == 1 && stat(a->options.paths[0], &info) == 0 && S_ISDIR(info.st_mode);
    return folder ? mla_path_join(a->options.paths[0], "report.html") : strdup("report.html");
}

int mla_cmd_report(int argc, char **argv) {
    arguments a;
    mla_error error = {0};
    const int code = parse(&a, argc, argv);
    if (code) return code;
    if (a.help) {
        fputs(help, stdout);
        return 0;
    }
    char *out = output_path(&a);
    const mla_status status =
        out ? mla_report_write(out, &a.options, &error) : mla_fail(&error, MLA_NO_MEMORY, "out of memory for a path");
    if (status == MLA_OK) printf("%s\n", out);
    free(out);
    return status == MLA_OK ? 0 : mla_cli_failed(&error);
}
