/* MirrorLA (arXiv 2602.04346): q and k pass reflections before the feature map of ReLU. */
#include "layers/attention_kinds.h"

static void declare(mla_attention *layer, mla_params *params, const char *prefix) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const size_t channels = layer->channels, d = channels / layer->heads, b = m->block ? (size_t)m->block : d;
    const mla_init pairs = {MLA_INIT_REFLECTION_PAIRS, 0.1};
    if (m->reflections)
        layer->block_v = mla_attention_param(params, prefix, "block_v", 4,
                                             (size_t[]){layer->heads, d / b, (size_t)m->reflections, b}, pairs);
    if (m->variance_angle) {
        const size_t planes = channels / 2;
        layer->angle_a =
            mla_attention_param(params, prefix, "angle_a", 1, &planes, (mla_init){MLA_INIT_CONSTANT, m->angle_gain});
        layer->angle_c = mla_attention_param(params, prefix, "angle_c", 1, &planes, (mla_init){MLA_INIT_CONSTANT, 0});
    }
    if (m->cross_head)
        layer->cross_v =
            mla_attention_param(params, prefix, "cross_v", 2, (size_t[]){(size_t)m->cross_head, channels}, pairs);
}

static mla_var param(mla_tape *tape, int index) { return index < 0 ? MLA_NO_VAR : mla_tape_param(tape, index); }

/* q and k on their way to the feature map, (B, N, 2C).  The block isometry stands in the projection already
 * (mla_attention_project). */
static mla_var reorient(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    mla_var qk = mla_columns(tape, qkv, 0, 2 * layer->channels);
    if (layer->angle_a >= 0)
        qk =
            mla_pair_angle(tape, qk, param(tape, layer->angle_a), param(tape, layer->angle_c), layer->spec.mirror.angle_max);
    if (layer->cross_v >= 0) qk = mla_cross_reflect(tape, qk, param(tape, layer->cross_v));
    return qk;
}

static mla_var core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    const size_t channels = layer->channels;
    const double eps = layer->spec.eps;
    if ((layer->angle_a >= 0 || layer->cross_v >= 0) && mla_mirror_attention_fits(channels))
        return mla_mirror_attention(tape, qkv, param(tape, layer->angle_a), param(tape, layer->angle_c),
                                    param(tape, layer->cross_v), layer->heads, layer->spec.mirror.angle_max, eps);
    /* Step by step where there are no steps, or the channels do not fill whole vectors. */
    const mla_var qk = reorient(layer, tape, qkv);
    return mla_linear_attention(tape, mla_columns(tape, qk, 0, channels), mla_columns(tape, qk, channels, channels),
                                mla_attention_third(layer, tape, qkv, 2), layer->heads, MLA_FEATURE_RELU, eps);
}

static void features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    const mla_var qk = reorient(layer, tape, qkv);
    *fq = mla_features(tape, mla_columns(tape, qk, 0, layer->channels), MLA_FEATURE_RELU);
    *fk = mla_features(tape, mla_columns(tape, qk, layer->channels, layer->channels), MLA_FEATURE_RELU);
}

const mla_attention_row mla_attention_mirror = {.linear = true, .declare = declare, .core = core, .features = features};
