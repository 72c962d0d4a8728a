/* mirrorla diff */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cli.h"
#include "train/diff.h"
#include "train/json_out.h"
#include "train/text.h"

static const char help[] =
    "Usage: mirrorla diff A B [OPTIONS]\n\n"
    "What differs between two configs, checkpoints, exports or other safetensors files: config keys with both values, and\n"
    "for each tensor whether it is in one alone, its shapes, the largest and the mean absolute difference, and the norm of\n"
    "the difference over that of A's.  Two checkpoints are compared with their training state; a checkpoint and an export\n"
    "by their weights; a config and a checkpoint by the config.\n\n"
    "  --weights WHICH   the weights of checkpoints alone: raw, average, or auto: the average where one is kept\n"
    "  --json            one JSON object instead of text\n"
    "  --help            this text\n\n"
    "Exit status: 0 equal, 1 different, 2 an error.\n";

typedef struct output {
    bool json;
    json_t *keys, *tensors; /* with --json */
    bool failed;
} output;

static void show_shape(char out[160], const mla_file_tensor *tensor) {
    size_t used = (size_t)snprintf(out, 160, "%s (", mla_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->ndim && used < 130; i++)
        used += (size_t)snprintf(out + used, 160 - used, "%s%zu", i ? ", " : "", tensor->shape[i]);
    snprintf(out + used, 160 - used, ")");
}

/* ---- text */

static void print_key(void *context, const char *section, const char *key, const char *a, const char *b) {
    (void)context;
    printf("%s: %s: %s | %s\n", section, key, a ? a : "(none)", b ? b : "(none)");
}

static void print_tensor(void *context, const mla_tensor_diff *d) {
    char a[160], b[160];
    (void)context;
    if (d->a) show_shape(a, d->a);
    if (d->b) show_shape(b, d->b);
    if (!d->a || !d->b)
        printf("tensor: %s: only in %s: %s\n", d->name, d->a ? "A" : "B", d->a ? a : b);
    else if (strcmp(a, b) != 0)
        printf("tensor: %s: %s | %s\n", d->name, a, b);
    if (!d->a || !d->b || !d->same_shape || d->differing == 0) return;
    if (mla_dtype_is_float(d->a->dtype))
        printf("tensor: %s: largest difference %.3g, mean %.3g, relative norm %.3g (%zu of %zu values)\n", d->name,
               d->largest, d->mean, d->relative, d->differing, mla_tensor_elements(d->a));
    else
        printf("tensor: %s: %zu of %zu bytes differ\n", d->name, d->differing, d->a->bytes);
}

static void print_summary(const mla_diff_result *r, bool equal) {
    printf("%s: %zu of %zu keys differ", equal ? "equal" : "different", r->keys, r->compared_keys);
    if (r->compared_tensors) printf(", %zu of %zu tensors", r->tensors, r->compared_tensors);
    puts(r->weights_alone ? " (weights alone)" : "");
}

/* ---- JSON */

static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

static json_t *number_or_null(double value) { return value - value == 0 ? json_real(value) : json_null(); }

static void add_key(void *context, const char *section, const char *key, const char *a, const char *b) {
    output *o = context;
    o->failed |= json_array_append_new(o->keys, json_pack("{s:s, s:s, s:o, s:o}", "section", section, "key", key, "a",
                                                          text_or_null(a), "b", text_or_null(b))) != 0;
}

static json_t *side_of(const mla_file_tensor *tensor) {
    if (!tensor) return json_null();
    return json_pack("{s:s, s:o}", "dtype", mla_dtype_name(tensor->dtype), "shape",
                     mla_json_shape(tensor->ndim, tensor->shape));
}

static void add_tensor(void *context, const mla_tensor_diff *d) {
    output *o = context;
    json_t *object = json_pack("{s:s, s:o, s:o, s:I, s:o, s:o, s:o}", "name", d->name, "a", side_of(d->a), "b",
                               side_of(d->b), "differing", (json_int_t)d->differing, "max_abs", number_or_null(d->largest),
                               "mean_abs", number_or_null(d->mean), "relative_norm", number_or_null(d->relative));
    o->failed |= json_array_append_new(o->tensors, object) != 0;
}

static mla_status print_json(output *o, const mla_diff_result *r, mla_error *error) {
    json_t *root = json_pack("{s:b, s:b, s:I, s:I, s:O, s:O}", "equal", !r->keys && !r->tensors, "weights_alone",
                             r->weights_alone, "compared_keys", (json_int_t)r->compared_keys, "compared_tensors",
                             (json_int_t)r->compared_tensors, "keys", o->keys, "tensors", o->tensors);
    if (o->failed) {
        json_decref(root);
        root = NULL;
    }
    return mla_json_put(root, error);
}

/* ---- the command */

static mla_status compare(const char *const paths[2], const mla_weights *weights, output *o, bool *equal, mla_error *error) {
    const mla_diff_sink sink = {o, o->json ? add_key : print_key, o->json ? add_tensor : print_tensor};
    mla_diff_side *sides = calloc(2, sizeof *sides);
    mla_diff_result result;
    if (!sides) return mla_fail(error, MLA_NO_MEMORY, "out of memory for two configs");
    mla_status status = mla_diff_open(&sides[0], paths[0], error);
    if (status == MLA_OK) status = mla_diff_open(&sides[1], paths[1], error);
    if (status == MLA_OK) status = mla_diff(&result, &sides[0], &sides[1], weights, &sink, error);
    if (status == MLA_OK) {
        *equal = !result.keys && !result.tensors;
        if (o->json)
            status = print_json(o, &result, error);
        else
            print_summary(&result, *equal);
    }
    mla_diff_close(&sides[0]);
    mla_diff_close(&sides[1]);
    free(sides);
    return status;
}

int mla_cmd_diff(int argc, char **argv) {
    enum { WEIGHTS = 1, JSON, HELP };
    static const struct option table[] = {{"weights", required_argument, NULL, WEIGHTS},
                                          {"json", no_argument, NULL, JSON},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    output o = {0};
    mla_weights weights;
    bool has_weights = false, equal = false;
    mla_error error = {0};
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case WEIGHTS:
            if (!mla_cli_weights(&weights, optarg, argv[0])) return 2;
            has_weights = true;
            break;
        case JSON: o.json = true; break;
        case HELP: fputs(help, stdout); return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 2 != argc) return mla_cli_usage(argv[0], "expected A and B, found %d arguments", argc - optind);
    if (o.json) {
        o.keys = json_array();
        o.tensors = json_array();
    }
    const mla_status status = compare((const char *const *)argv + optind, has_weights ? &weights : NULL, &o, &equal, &error);
    json_decref(o.keys);
    json_decref(o.tensors);
    if (status == MLA_OK) return equal ? 0 : 1;
    (void)mla_cli_failed(&error);
    return 2; /* 1 says that something differs */
}
