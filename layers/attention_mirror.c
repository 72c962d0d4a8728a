/* MirrorLA (arXiv 2602.04346): q and k pass reflections before the feature map of ReLU; and the alternatives to its parts.
 *
 *   projection, with the block isometry in it (mla_attention_project)
 *   q/k norm, scale modulation, angle of pairs or planes, conditional reflections, cross-head isometry   reorient
 *   relu, split or twin; power                                                                           map
 *   linear attention
 */
#include "layers/attention_kinds.h"

static const mla_init near = {MLA_INIT_REFLECTION_PAIRS, 0.1}, anywhere = {MLA_INIT_REFLECTIONS, 0};

static mla_init start_of(mla_vectors_init init) { return init == MLA_VECTORS_RANDOM ? anywhere : near; }

/* What all layers declare and forward go by. */
typedef struct place {
    mla_params *params;
    const char *prefix;
    size_t channels, heads, d, blocks, b; /* blocks of b channels a head */
} place;

static int vectors(const place *p, const char *name, int count, mla_init init) {
    return mla_attention_param(p->params, p->prefix, name, 4, (size_t[]){p->heads, p->blocks, (size_t)count, p->b}, init);
}

static int constants(const place *p, const char *name, size_t count, double value) {
    return mla_attention_param(p->params, p->prefix, name, 1, &count, (mla_init){MLA_INIT_CONSTANT, value});
}

static void declare_angle(mla_attention *layer, const place *p) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const bool learned = m->angle_planes == MLA_PLANES_LEARNED;
    const size_t planes = learned ? p->heads * p->blocks : p->channels / 2;
    layer->angle_a = constants(p, "angle_a", planes, m->angle_gain);
    layer->angle_c = constants(p, "angle_c", planes, 0);
    if (!learned) return;
    const size_t shape[] = {p->heads, p->blocks, p->b};
    layer->mirror.plane_u = mla_attention_param(p->params, p->prefix, "plane_u", 3, shape, anywhere);
    layer->mirror.plane_w = mla_attention_param(p->params, p->prefix, "plane_w", 3, shape, anywhere);
}

static void declare_twin(mla_attention *layer, const place *p) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const mla_init init = m->twin_init == MLA_TWIN_NEGATIVE ? (mla_init){MLA_INIT_REFLECTION_BASIS, near.scale} : anywhere;
    layer->mirror.twin_v = vectors(p, "twin_v", mla_mirror_twin_reflections(m, (int)p->b), init);
}

/* Where two parameters of one start have the same shape, their streams of random numbers still differ. */
static void declare(mla_attention *layer, mla_params *params, const char *prefix) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    place p = {params, prefix, layer->channels, layer->heads, layer->channels / layer->heads, 0, 0};
    p.b = (size_t)mla_mirror_block(m, (int)p.d);
    p.blocks = p.d / p.b;
    if (m->reflections) layer->block_v = vectors(&p, "block_v", m->reflections, start_of(m->block_init));
    if (m->variance_angle) declare_angle(layer, &p);
    if (m->cross_head)
        layer->cross_v = mla_attention_param(params, prefix, "cross_v", 2, (size_t[]){(size_t)m->cross_head, p.channels},
                                             start_of(m->cross_init));
    if (m->feature == MLA_KEPT_TWIN) declare_twin(layer, &p);
    if (m->fold) layer->mirror.fold_v = vectors(&p, "fold_v", m->fold, anywhere);
    if (m->scale_modulation) layer->mirror.gamma = constants(&p, "gamma", p.channels, 0);
    if (m->power == MLA_POWER_LEARNED)
        layer->mirror.power =
            mla_attention_param(params, prefix, "power", 3, (size_t[]){p.heads, 1, p.d}, (mla_init){MLA_INIT_CONSTANT, 0});
    if (m->qk_norm == MLA_QK_NORM_RMS)
        layer->mirror.qk_gain =
            mla_attention_param(params, prefix, "qk_gain", 2, (size_t[]){2, p.channels}, (mla_init){MLA_INIT_CONSTANT, 1});
}

static mla_var param(mla_tape *tape, int index) { return index < 0 ? MLA_NO_VAR : mla_tape_param(tape, index); }

mla_var mla_mirror_scale(const mla_attention *layer, mla_tape *tape, mla_var qk) {
    if (layer->mirror.qk_gain >= 0) qk = mla_head_norm(tape, qk, param(tape, layer->mirror.qk_gain), layer->heads);
    return layer->mirror.gamma >= 0 ? mla_scale_modulation(tape, qk, param(tape, layer->mirror.gamma)) : qk;
}

mla_var mla_mirror_turn(const mla_attention *layer, mla_tape *tape, mla_var qk) {
    if (layer->angle_a < 0) return qk;
    const mla_mirror_spec *m = &layer->spec.mirror;
    const mla_var a = param(tape, layer->angle_a), c = param(tape, layer->angle_c);
    const bool own = m->angle_source == MLA_ANGLE_OWN;
    if (layer->mirror.plane_u < 0) return mla_pair_angle(tape, qk, a, c, m->angle_max, own);
    const mla_var planes = mla_plane_basis(tape, param(tape, layer->mirror.plane_u), param(tape, layer->mirror.plane_w));
    return mla_plane_angle(tape, qk, a, c, planes, m->angle_max, own);
}

mla_var mla_mirror_reflect(const mla_attention *layer, mla_tape *tape, mla_var qk) {
    if (layer->mirror.fold_v >= 0) qk = mla_fold_reflect(tape, qk, param(tape, layer->mirror.fold_v));
    return layer->cross_v >= 0 ? mla_cross_reflect(tape, qk, param(tape, layer->cross_v)) : qk;
}

/* q and k on their way to the feature map, (B, N, 2C).  The block isometry stands in the projection already. */
static mla_var reorient(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    const mla_var qk = mla_columns(tape, qkv, 0, 2 * layer->channels);
    return mla_mirror_reflect(layer, tape, mla_mirror_turn(layer, tape, mla_mirror_scale(layer, tape, qk)));
}

/* What the feature map makes of them, (B, N, 2 h D). */
static mla_var map(const mla_attention *layer, mla_tape *tape, mla_var qk) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const mla_var twin = layer->mirror.twin_v < 0 ? MLA_NO_VAR : mla_block_turn(tape, qk, param(tape, layer->mirror.twin_v));
    const mla_var f = mla_relu_features(tape, qk, twin, layer->heads, m->feature);
    switch (m->power) {
    case MLA_POWER_LEARNED: return mla_feature_power(tape, f, param(tape, layer->mirror.power), layer->heads, 0);
    case MLA_POWER_FIXED: return mla_feature_power(tape, f, MLA_NO_VAR, layer->heads, m->exponent);
    case MLA_POWER_FOCUSED: return mla_focused_features(tape, f, 2 * layer->heads, 3);
    case MLA_POWER_NONE: break;
    }
    return f;
}

/* Do q and k meet nothing but what mirror_attention does in one pass? */
static bool fused(const mla_attention *layer) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const mla_mirror_params *p = &layer->mirror;
    const bool something = layer->angle_a >= 0 || layer->cross_v >= 0 || m->feature == MLA_KEPT_SPLIT;
    return something && p->plane_u < 0 && m->angle_source == MLA_ANGLE_SHARED && p->qk_gain < 0 && p->gamma < 0 &&
           p->fold_v < 0 && m->feature != MLA_KEPT_TWIN && m->power == MLA_POWER_NONE && m->retention_loss == 0 &&
           mla_mirror_attention_fits(layer->channels);
}

static mla_var core(const mla_attention *layer, mla_tape *tape, mla_var qkv) {
    const mla_mirror_spec *m = &layer->spec.mirror;
    const double eps = layer->spec.eps;
    const mla_var v = mla_attention_third(layer, tape, qkv, 2);
    if (fused(layer))
        return mla_mirror_attention(tape, qkv, param(tape, layer->angle_a), param(tape, layer->angle_c),
                                    param(tape, layer->cross_v), layer->heads, m->feature, m->angle_max, eps);
    mla_var qk = reorient(layer, tape, qkv);
    if (m->retention_loss > 0) mla_tape_mark_loss(tape, mla_retention(tape, qk, layer->heads));
    const bool plain = m->feature == MLA_KEPT_RELU && m->power == MLA_POWER_NONE;
    if (!plain) qk = map(layer, tape, qk);
    const size_t width = (plain || m->feature == MLA_KEPT_RELU ? 1 : 2) * layer->channels;
    return mla_linear_attention(tape, mla_columns(tape, qk, 0, width), mla_columns(tape, qk, width, width), v, layer->heads,
                                plain ? MLA_FEATURE_RELU : MLA_FEATURE_GIVEN, eps);
}

static void features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk) {
    const mla_var f = map(layer, tape, reorient(layer, tape, qkv));
    const size_t width = (layer->spec.mirror.feature == MLA_KEPT_RELU ? 1 : 2) * layer->channels;
    *fq = mla_columns(tape, f, 0, width);
    *fk = mla_columns(tape, f, width, width);
}

const mla_attention_row mla_attention_mirror = {.linear = true, .declare = declare, .core = core, .features = features};
