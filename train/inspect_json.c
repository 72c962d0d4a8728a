#include <stdlib.h>

#include "train/inspect.h"
#include "train/json_out.h"

static json_t *operations_json(const mla_inspection *x) {
    json_t *list = json_array();
    for (int i = 0; i < x->operation_count; i++) {
        const mla_inspect_operation *o = &x->operations[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:f, s:f, s:I, s:I}", "operation", o->name, "layer", o->layer,
                                              "output", mla_json_shape(o->out.ndim, o->out.shape), "flops", o->flops, "macs",
                                              o->flops / 2, "parameters", (json_int_t)o->parameters, "bytes_kept",
                                              (json_int_t)o->bytes));
    }
    return list;
}

static json_t *parameters_json(const mla_params *params) {
    json_t *list = json_array();
    for (int i = 0; i < params->entries; i++) {
        const mla_param *p = &params->entry[i];
        json_array_append_new(list, json_pack("{s:s, s:o, s:I, s:b, s:b}", "name", p->name, "shape",
                                              mla_json_shape(p->ndim, p->shape), "count", (json_int_t)p->count, "decay",
                                              p->decay, "fixed", p->fixed));
    }
    return list;
}

static json_t *memory_json(const mla_inspection *x) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tape", (json_int_t)x->memory.tape, "tapes",
                     (json_int_t)x->memory.tapes, "lane_gradients", (json_int_t)x->memory.lane_gradients, "packed_weights",
                     (json_int_t)x->memory.prepared, "images", (json_int_t)x->memory.loading, "weights",
                     (json_int_t)x->flat_bytes, "moments", (json_int_t)((size_t)x->moments * x->flat_bytes), "average",
                     (json_int_t)((size_t)x->averages * x->flat_bytes), "total", (json_int_t)mla_inspect_total_bytes(x));
}

json_t *mla_inspect_json(const mla_inspection *x) {
    const mla_model_spec *spec = &x->config->model;
    const mla_params *params = mla_model_params(x->model);
    const mla_decay_totals t = mla_params_decay_totals(params);
    char *text = mla_config_text(x->config), kinds[MLA_KINDS_BYTES];
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:f, s:f, s:o, s:o, s:i, s:i, s:i, s:i, s:o, s:s}", "family",
                  mla_family_name(spec->family), "attention", mla_attention_kinds_text(spec, kinds), "image", spec->image,
                  "classes", spec->classes, "parameters", (json_int_t)params->count, "decayed_parameters",
                  (json_int_t)t.count[1], "flops", x->flops, "macs", x->flops / 2, "operations", operations_json(x),
                  "tensors", parameters_json(params), "batch", x->config->train.batch, "shard", x->shard, "lanes",
                  x->config->train.lanes, "threads", x->threads, "memory_bytes", memory_json(x), "config", text ? text : "");
    free(text);
    if (x->checkpoint)
        json_object_set_new(json, "checkpoint",
                            json_pack("{s:s, s:I, s:I, s:s}", "path", x->path, "step",
                                      (json_int_t)x->checkpoint->counters.step, "epochs",
                                      (json_int_t)x->checkpoint->counters.epoch, "weights", x->checkpoint->weight_hash));
    return json;
}
