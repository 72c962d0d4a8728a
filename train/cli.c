#include "train/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int mla_cli_failed(const mla_error *error) {
    fprintf(stderr, "mirrorla: %s\n", error->text[0] ? error->text : mla_status_text(error->status));
    return mla_status_exit_code(error->status);
}

int mla_cli_usage(const char *command, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", command);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\nTry '%s --help'.\n", command);
    va_end(arguments);
    return mla_status_exit_code(MLA_INVALID);
}

int mla_cli_wrong_option(char **argv, int key) {
    const char *text = argv[optind - 1];
    if (key == ':') return mla_cli_usage(argv[0], "option '%s' needs a value", text);
    if (optopt >= ' ') return mla_cli_usage(argv[0], "there is no option '-%c'", optopt);
    if (optopt) return mla_cli_usage(argv[0], "'%s': this option takes no value", text);
    return mla_cli_usage(argv[0], "there is no option '%s'", text);
}

bool mla_cli_weights(mla_weights *out, const char *text, const char *command) {
    if (mla_weights_parse(out, text)) return true;
    (void)mla_cli_usage(command, "--weights: expected auto, raw or average, found '%s'", text);
    return false;
}

bool mla_cli_same_file(const char *a, const char *b) {
    struct stat first, second;
    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool mla_cli_number(long *out, const char *text, long low, long high, const char *command, const char *name) {
    char *end;
    errno = 0;
    *out = strtol(text, &end, 10);
    if (!errno && *text && !*end && *out >= low && *out <= high) return true;
    mla_cli_usage(command, "%s: expected a whole number from %ld to %ld, found '%s'", name, low, high, text);
    return false;
}

bool mla_cli_list_add(mla_cli_list *list, const char *item) {
    const char **larger = realloc(list->item, (list->count + 1) * sizeof *larger);
    if (!larger) return false;
    list->item = larger;
    list->item[list->count++] = item;
    return true;
}
