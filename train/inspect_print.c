#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/inspect.h"

static void print_subject(const mla_inspection *x) {
    const mla_model_spec *spec = &x->config->model;
    char kinds[MLA_KINDS_BYTES];
    if (x->checkpoint)
        printf("checkpoint\n  %s\n  step %" PRIu64 ", epochs completed %" PRIu64 ", weights %s\n\n", x->path,
               x->checkpoint->counters.step, x->checkpoint->counters.epoch, x->checkpoint->weight_hash);
    printf("model\n  %s, %s attention, %d x %d images, %d classes\n\n", mla_family_name(spec->family),
           mla_attention_kinds_text(spec, kinds), spec->image, spec->image, spec->classes);
}

static void print_operations(const mla_inspection *x) {
    printf("operations of one image\n  %-18s %-32s %-18s %12s %12s %11s %9s\n", "operation", "layer", "output", "MFLOPs",
           "MMACs", "parameters", "KiB kept");
    for (int i = 0; i < x->operation_count; i++) {
        const mla_inspect_operation *o = &x->operations[i];
        printf("  %-18s %-32s %-18s %12.4f %12.4f %11zu %9.1f\n", o->name, o->layer, mla_shape_text(&o->out), o->flops / 1e6,
               o->flops / 2e6, o->parameters, (double)o->bytes / 1024);
    }
    printf(
        "  forward: %.2f MFLOPs = %.2f million multiply-adds (MACs); a training step counts three times that an image\n\n",
        x->flops / 1e6, x->flops / 2e6);
}

static void print_parameters(const mla_params *params) {
    const mla_decay_totals t = mla_params_decay_totals(params);
    printf("parameters\n  %-40s %-18s %10s  %s\n", "name", "shape", "count", "group");
    for (int i = 0; i < params->entries; i++) {
        const mla_param *p = &params->entry[i];
        const mla_tensor shape = mla_tensor_make(NULL, p->ndim, p->shape);
        printf("  %-40s %-18s %10zu  %s\n", p->name, mla_shape_text(&shape), p->count,
               p->fixed   ? "fixed"
               : p->decay ? "decay"
                          : "no decay");
    }
    printf("  %zu parameters in %d tensors: weight decay on %zu, none on %zu\n\n", params->count, params->entries,
           t.count[1], t.count[0]);
}

static double mebibytes(size_t bytes) { return (double)bytes / 1048576.0; }

static const char *data_note(mla_data_set set) {
    if (set == MLA_SET_TWINS) return "generated, takes none";
    return set == MLA_SET_CIFAR10 || set == MLA_SET_CIFAR100 ? "about 3 KiB an image, mapped from its files"
                                                             : "files, read when needed";
}

static void print_memory(const mla_inspection *x) {
    const mla_train_config *train = &x->config->train;
    const char *name = x->config->optim.name == MLA_ADAMW ? "adamw" : "sgd";
    printf("memory of a training step\n  batch %d = shards of %d images%s on %d lanes, %d threads\n", train->batch, x->shard,
           train->shard ? "" : " (auto)", train->lanes, x->threads);
    printf("  activations, their gradients %9.1f MiB  a shard on each thread, %.1f MiB at most\n",
           mebibytes(x->memory.tapes), mebibytes(x->memory.tape));
    printf("  gradients of lanes           %9.1f MiB  at most, buffers of %.1f MiB\n", mebibytes(x->memory.lane_gradients),
           mebibytes(x->flat_bytes));
    printf("  packed weights               %9.1f MiB\n", mebibytes(x->memory.prepared));
    printf("  images at work               %9.1f MiB\n", mebibytes(x->memory.loading));
    printf("  weights                      %9.1f MiB\n", mebibytes(x->flat_bytes));
    printf("  moments of %-5s             %9.1f MiB  %d buffers\n", name, x->moments * mebibytes(x->flat_bytes), x->moments);
    printf("  weight average               %9.1f MiB\n", x->averages * mebibytes(x->flat_bytes));
    printf("  total                        %9.1f MiB, without the data set (%s)\n\n", mebibytes(mla_inspect_total_bytes(x)),
           data_note(x->config->data.set));
}

mla_status mla_inspect_print(const mla_inspection *x, mla_error *error) {
    char *text = mla_config_text(x->config);
    if (!text) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the config's text");
    print_subject(x);
    print_operations(x);
    print_parameters(mla_model_params(x->model));
    print_memory(x);
    printf("resolved config\n%s", text);
    free(text);
    return MLA_OK;
}
