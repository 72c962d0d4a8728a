/* mirrorla inspect: what a config or checkpoint describes, found by recording it on a tape. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cli.h"
#include "train/inspect.h"
#include "train/json_out.h"
#include "train/machine.h"
#include "train/stand_in.h"
#include "train/text.h"

static const char help[] =
    "Usage: mirrorla inspect CONFIG|CKPT|FILE.safetensors [OPTIONS]\n\n"
    "Operations of one image with layer, shape, FLOPs and parameters; all parameters with their decay group; memory of a\n"
    "training step; the resolved config.  FLOPs count multiply-adds (MACs) of matrix products and convolutions as two, "
    "those\n"
    "of attention among them.  Of a safetensors file of another program, the tensors.\n\n"
    "  --set KEY=VALUE   override a key; may be given again\n"
    "  --threads N       threads for the memory plan (default: one a core)\n"
    "  --json            one JSON object instead of tables\n"
    "  --help            this text\n";

typedef struct arguments {
    const char *path;
    mla_cli_list overrides;
    long threads;
    bool json, help;
} arguments;

static json_t *tensors_json(const mla_safetensors *file) {
    json_t *list = json_array();
    for (size_t i = 0; i < mla_safetensors_count(file); i++) {
        const mla_file_tensor *t = mla_safetensors_at(file, i);
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "type", mla_dtype_name(t->dtype),
                                              "shape", mla_json_shape(t->ndim, t->shape), "count",
                                              (json_int_t)(t->bytes / mla_dtype_bytes(t->dtype))));
    }
    return json_pack("{s:o}", "tensors", list);
}

static void print_tensors(const mla_safetensors *file) {
    size_t elements = 0;
    printf("tensors\n  %-48s %-5s %-24s %12s\n", "name", "type", "shape", "count");
    for (size_t i = 0; i < mla_safetensors_count(file); i++) {
        const mla_file_tensor *t = mla_safetensors_at(file, i);
        const size_t count = t->bytes / mla_dtype_bytes(t->dtype);
        char name[256], shape[MLA_TENSOR_MAX_DIMS * 24] = "(";
        mla_text_escape(name, sizeof name, t->name);
        for (int d = 0; d < t->ndim; d++) {
            const size_t used = strlen(shape);
            snprintf(shape + used, sizeof shape - used, d ? ", %zu" : "%zu", t->shape[d]);
        }
        strcat(shape, ")");
        printf("  %-48s %-5s %-24s %12zu\n", name, mla_dtype_name(t->dtype), shape, count);
        elements += count;
    }
    printf("  %zu values in %zu tensors; the file says nothing of the model\n", elements, mla_safetensors_count(file));
}

/* The file itself when it is a safetensors file with nothing of ours in it; else NULL, and *status tells whether it could
 * be read. */
static mla_safetensors *foreign_file(const char *path, mla_status *status, mla_error *error) {
    mla_safetensors *file = NULL;
    *status = mla_safetensors_open(&file, path, error);
    if (*status == MLA_OK && !mla_checkpoint_is_own(file)) return file;
    mla_safetensors_close(file);
    return NULL;
}

static mla_status inspect_model(mla_inspection *x, int threads, bool json, mla_error *error) {
    mla_status status = mla_inspect_open(x, threads, error);
    if (status == MLA_OK) status = json ? mla_json_put(mla_inspect_json(x), error) : mla_inspect_print(x, error);
    mla_inspect_close(x);
    return status;
}

static mla_status inspect_path(const arguments *a, mla_error *error) {
    mla_config config;
    mla_loaded loaded = {0};
    mla_inspection x = {.path = a->path, .config = &config};
    mla_status status;
    const mla_cli_list *set = &a->overrides;
    if (mla_checkpoint_stem(a->path)) {
        mla_safetensors *file = foreign_file(a->path, &status, error);
        if (file) {
            if (a->json)
                status = mla_json_put(tensors_json(file), error);
            else
                print_tensors(file);
            mla_safetensors_close(file);
            return status;
        }
        if (status == MLA_OK) status = mla_loaded_open(&loaded, a->path, MLA_WEIGHTS_AUTO, set->item, set->count, error);
        if (status != MLA_OK) return status;
        config = loaded.checkpoint.config;
        x.checkpoint = &loaded.checkpoint;
    } else {
        status = mla_config_load(&config, a->path, set->item, set->count, error);
        if (status == MLA_OK) status = mla_config_fill_from_data(&config, error);
        if (status == MLA_OK) status = mla_model_new(&loaded.model, &config.model, error);
    }
    x.model = loaded.model;
    if (status == MLA_OK)
        status = inspect_model(&x, mla_machine_threads((int)a->threads, config.train.lanes), a->json, error);
    mla_loaded_close(&loaded);
    return status;
}

static int parse(arguments *a, int argc, char **argv) {
    enum { SET = 1, THREADS, JSON, HELP };
    static const struct option table[] = {{"set", required_argument, NULL, SET},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"json", no_argument, NULL, JSON},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case SET:
            if (!mla_cli_list_add(&a->overrides, optarg)) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
            break;
        case THREADS:
            if (!mla_cli_number(&a->threads, optarg, 1, 1024, argv[0], "--threads")) return 2;
            break;
        case JSON: a->json = true; break;
        case HELP: a->help = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CONFIG or CKPT, found %d arguments", argc - optind);
    a->path = argv[optind];
    return 0;
}

int mla_cmd_inspect(int argc, char **argv) {
    arguments a = {0};
    mla_error error = {0};
    int code = parse(&a, argc, argv);
    if (code == 0 && a.help) fputs(help, stdout);
    if (code == 0 && !a.help && inspect_path(&a, &error) != MLA_OK) code = mla_cli_failed(&error);
    free(a.overrides.item);
    return code;
}
