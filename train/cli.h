/* The commands of the program, and what their command lines share. */
#ifndef MLA_TRAIN_CLI_H
#define MLA_TRAIN_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"
#include "train/loaded.h"

/* Each takes the command's own argv (argv[0] is its name, e.g. "mirrorla train") and returns the exit code. */
int mla_cmd_train(int argc, char **argv);
int mla_cmd_ablate(int argc, char **argv);
int mla_cmd_eval(int argc, char **argv);
int mla_cmd_predict(int argc, char **argv);
int mla_cmd_inspect(int argc, char **argv);
int mla_cmd_export(int argc, char **argv);
int mla_cmd_import(int argc, char **argv);
int mla_cmd_diff(int argc, char **argv);
int mla_cmd_bench(int argc, char **argv);
int mla_cmd_report(int argc, char **argv);
int mla_cmd_data(int argc, char **argv);
int mla_cmd_config(int argc, char **argv);
int mla_cmd_version(int argc, char **argv);

/* Prints "mirrorla: <sentence>" to stderr and gives the exit code of the error. */
int mla_cli_failed(const mla_error *error);

/* Wrong usage: prints the sentence and where help is; gives 2. */
int mla_cli_usage(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Wrong usage that getopt_long found: `key` is the '?' or ':' it returned.  Its short options must start with ':' and the
 * values of long options be below 32, or the letter of their short form. */
int mla_cli_wrong_option(char **argv, int key);

/* A whole number from `low` to `high` for option `name`; false after telling what was found and allowed. */
bool mla_cli_number(long *out, const char *text, long low, long high, const char *command, const char *name);

/* The value of --weights; false after telling what was found and allowed. */
bool mla_cli_weights(mla_weights *out, const char *text, const char *command);

/* Do both names mean one existing file? */
bool mla_cli_same_file(const char *a, const char *b);

/* A growing list of --set values. */
typedef struct mla_cli_list {
    const char **item;
    size_t count;
} mla_cli_list;
bool mla_cli_list_add(mla_cli_list *list, const char *item); /* false when out of memory */

#endif
