/* mirrorla inspect: what a config or checkpoint describes, found by recording it on a tape. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/cli.h"
#include "train/loaded.h"
#include "train/machine.h"
#include "train/run.h"
#include "train/stand_in.h"

static const char help[] =
    "Usage: mirrorla inspect CONFIG|CKPT [OPTIONS]\n\n"
    "Operations with shapes and FLOPs of one image, parameters with their decay group, memory of a training step, and the\n"
    "resolved config.  FLOPs count multiply-adds of matrix products and convolutions as two; k^T v and q (k^T v) are in.\n\n"
    "  --set KEY=VALUE   override a key; may be given again\n"
    "  --threads N       threads for the memory plan (default: one a core)\n"
    "  --help            this text\n";

/* The last part of a parameter's name is the tensor; what stands before it is the layer. */
static void layer_name(char out[MLA_PARAM_NAME_BYTES], const mla_params *params, int param) {
    snprintf(out, MLA_PARAM_NAME_BYTES, "%s", param >= 0 ? params->entry[param].name : "(input)");
    char *dot = strrchr(out, '.');
    if (dot && param >= 0) *dot = 0;
}

static void print_operations(const mla_tape *tape, const mla_params *params) {
    printf("operations of one image\n  %-18s %-28s %-18s %12s %12s\n", "operation", "layer", "output", "MFLOPs", "KiB kept");
    mla_node_info info;
    for (int i = 0; mla_tape_node(tape, i, &info); i++) {
        char layer[MLA_PARAM_NAME_BYTES];
        layer_name(layer, params, info.param);
        printf("  %-18s %-28s %-18s %12.4f %12.1f\n", info.op, layer, mla_shape_text(&info.out), info.flops / 1e6,
               (double)info.bytes / 1024);
    }
    const double flops = mla_tape_flops(tape);
    printf(
        "  forward: %.2f MFLOPs = %.2f million multiply-adds (MACs); a training step counts three times that an image\n\n",
        flops / 1e6, flops / 2e6);
}

static void print_parameters(const mla_params *params) {
    size_t decayed = 0;
    printf("parameters\n  %-40s %-18s %10s  %s\n", "name", "shape", "count", "group");
    for (int i = 0; i < params->entries; i++) {
        const mla_param *p = &params->entry[i];
        const mla_tensor shape = mla_tensor_make(NULL, p->ndim, p->shape);
        printf("  %-40s %-18s %10zu  %s\n", p->name, mla_shape_text(&shape), p->count, p->decay ? "decay" : "no decay");
        if (p->decay) decayed += p->count;
    }
    printf("  %zu parameters in %d tensors: weight decay on %zu, none on %zu\n\n", params->count, params->entries, decayed,
           params->count - decayed);
}

/* One training step, to see what it takes.  More shards than lanes take no more memory; fresh weights stand in for a
 * checkpoint's, which may have diverged. */
static mla_status print_memory(mla_model *model, const mla_config *config, int threads, mla_error *error) {
    const int shard = mla_run_shard(config);
    const size_t batch = (size_t)config->train.batch, round = (size_t)shard * (size_t)config->train.lanes;
    mla_params_init(mla_model_params(model), config->train.seed);
    mla_engine *engine;
    mla_status status = mla_engine_new(&engine, model, &(mla_engine_options){threads, config->train.lanes, shard}, error);
    if (status != MLA_OK) return status;
    mla_stand_in images;
    mla_batch_result result;
    status = mla_stand_in_open(&images, config, error);
    const mla_image_source source = mla_stand_in_source(&images);
    if (status == MLA_OK)
        status = mla_engine_gradient(engine, &source, batch < round ? batch : round, config->train.label_smoothing, &result,
                                     error);
    mla_stand_in_close(&images);
    if (status == MLA_OK) {
        const mla_engine_memory memory = mla_engine_memory_of(engine);
        const double unit = 1048576.0, flat = (double)(mla_model_params(model)->size * sizeof(real)) / unit;
        const int buffers = 1 + (config->optim.name == MLA_ADAMW ? 2 : config->optim.momentum > 0) + (config->optim.ema > 0);
        const double shards = (double)(memory.tapes + memory.lane_gradients) / unit;
        printf("memory of a training step\n  batch %d = shards of %d images%s on %d lanes, %d threads\n",
               config->train.batch, shard, config->train.shard ? "" : " (auto)", config->train.lanes, threads);
        printf("  weights and optimiser state %8.1f MiB (%d buffers of %.1f MiB)\n", buffers * flat, buffers, flat);
        printf("  activations and gradients   %8.1f MiB at most\n  total                       %8.1f MiB, without the data "
               "set\n\n",
               shards, shards + buffers * flat);
    }
    mla_engine_free(engine);
    return status;
}

static mla_status inspect(mla_model *model, const mla_config *config, int threads, mla_error *error) {
    const mla_model_spec *spec = &config->model;
    const mla_params *params = mla_model_params(model);
    mla_tape *tape = mla_tape_new();
    const size_t side = (size_t)spec->image;
    real *image = calloc(3 * side * side, sizeof(real));
    mla_status status = tape && image ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for one image");
    if (status == MLA_OK) {
        const mla_forward forward = {.training = false};
        mla_tape_begin(tape, params, params->value, NULL);
        mla_model_forward(model, tape, mla_tape_input(tape, mla_tensor_make(image, 4, (size_t[]){1, 3, side, side})),
                          &forward);
        status = mla_tape_status(tape, error);
    }
    if (status == MLA_OK) {
        printf("model\n  %s, %s attention, %d x %d images, %d classes\n\n", mla_family_name(spec->family),
               mla_attention_kind_name(spec->attention.kind), spec->image, spec->image, spec->classes);
        print_operations(tape, params);
        print_parameters(params);
        status = print_memory(model, config, threads, error);
    }
    mla_tape_free(tape);
    free(image);
    return status;
}

static mla_status inspect_path(const char *path, const mla_cli_list *overrides, long threads, mla_error *error) {
    const bool is_checkpoint = mla_checkpoint_stem(path) > 0;
    mla_config config;
    mla_loaded loaded = {0};
    mla_status status;
    if (is_checkpoint) {
        status = mla_loaded_open(&loaded, path, MLA_WEIGHTS_AUTO, overrides->item, overrides->count, error);
        if (status == MLA_OK) {
            config = loaded.checkpoint.config;
            printf("checkpoint\n  %s\n  step %" PRIu64 ", epochs completed %" PRIu64 ", weights %s\n\n", path,
                   loaded.checkpoint.counters.step, loaded.checkpoint.counters.epoch, loaded.checkpoint.weight_hash);
        }
    } else {
        status = mla_config_load(&config, path, overrides->item, overrides->count, error);
        if (status == MLA_OK) status = mla_config_fill_from_data(&config, error);
        if (status == MLA_OK) status = mla_model_new(&loaded.model, &config.model, error);
        if (status == MLA_OK) mla_params_init(mla_model_params(loaded.model), config.train.seed);
    }
    if (status == MLA_OK)
        status = inspect(loaded.model, &config, mla_machine_threads((int)threads, config.train.lanes), error);
    char *text = status == MLA_OK ? mla_config_text(&config) : NULL;
    if (text) printf("resolved config\n%s", text);
    free(text);
    mla_loaded_close(&loaded);
    return status;
}

static int parse(int argc, char **argv, mla_cli_list *overrides, long *threads, bool *done) {
    enum { SET = 1, THREADS, HELP };
    static const struct option table[] = {{"set", required_argument, NULL, SET},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"help", no_argument, NULL, HELP},
                                          {0}};
    for (int key; (key = getopt_long(argc, argv, ":", table, NULL)) != -1;) switch (key) {
        case SET:
            if (!mla_cli_list_add(overrides, optarg)) return mla_cli_failed(&(mla_error){.status = MLA_NO_MEMORY});
            break;
        case THREADS:
            if (!mla_cli_number(threads, optarg, 1, 1024, argv[0], "--threads")) return 2;
            break;
        case HELP: *done = true; return 0;
        default: return mla_cli_wrong_option(argv, key);
        }
    if (optind + 1 != argc) return mla_cli_usage(argv[0], "expected one CONFIG or CKPT, found %d arguments", argc - optind);
    return 0;
}

int mla_cmd_inspect(int argc, char **argv) {
    mla_cli_list overrides = {0};
    mla_error error = {0};
    long threads = 0;
    bool done = false;
    int code = parse(argc, argv, &overrides, &threads, &done);
    if (done) fputs(help, stdout);
    if (!code && !done && inspect_path(argv[optind], &overrides, threads, &error) != MLA_OK) code = mla_cli_failed(&error);
    free(overrides.item);
    return code;
}
