/* mirrorla config, mirrorla version */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <yaml.h>
#include <zlib.h>

#include "core/gemm.h"
#include "core/isa.h"
#include "train/cli.h"
#include "train/config.h"
#include "train/machine.h"

enum { HELP = 1 };
static const struct option help_only[] = {{"help", no_argument, NULL, HELP}, {0}};

int mla_cmd_config(int argc, char **argv) {
    mla_error error = {0};
    for (int key; (key = getopt_long(argc, argv, ":", help_only, NULL)) != -1;) {
        if (key != HELP) return mla_cli_wrong_option(argv, key);
        fputs("Usage: mirrorla config [KEY]\n\nExplains all keys of a config, one key (optim.lr) or one section (optim): "
              "type, allowed\n"
              "values, default and meaning.\n",
              stdout);
        return 0;
    }
    if (argc - optind > 1) return mla_cli_usage(argv[0], "expected one KEY at most");
    if (mla_config_reference(stdout, optind < argc ? argv[optind] : NULL, &error) != MLA_OK) return mla_cli_failed(&error);
    return 0;
}

int mla_cmd_version(int argc, char **argv) {
    for (int key; (key = getopt_long(argc, argv, ":", help_only, NULL)) != -1;) {
        if (key != HELP) return mla_cli_wrong_option(argv, key);
        fputs("Usage: mirrorla version\n\nPrints the version, the processor path in use and the libraries.\n", stdout);
        return 0;
    }
    if (optind < argc) return mla_cli_usage(argv[0], "expected no arguments");
    int major, minor, patch;
    yaml_get_version(&major, &minor, &patch);
    printf("mirrorla %s\n", MLA_VERSION);
    printf("compiler   %s\n", __VERSION__);
    printf("vectors    %s; exp of elu + 1: %s\n", mla_isa_engine.name,
           mla_isa_engine.vector_maths ? "vector variants of the C library (libmvec)" : "scalar functions of the C library");
    printf("products   %s\n", mla_gemm_backend());
    printf("threads    %d, one a core, unless --threads says otherwise\n", mla_machine_cores());
    printf("libraries  zlib %s, libyaml %d.%d.%d, jansson %s\n", zlibVersion(), major, minor, patch, JANSSON_VERSION);
    return 0;
}
