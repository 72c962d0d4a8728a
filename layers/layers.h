/* Layers: parameters by name, and how they are applied.
 *
 * A layer is a small struct of parameter indices.  `..._declare` adds its parameters to a store under a prefix
 * ("blocks.0.mlp.fc1" gives "blocks.0.mlp.fc1.weight"); `..._forward` records its operations on a tape.  Layers keep no
 * state between calls, so one may be applied twice in a step.
 */
#ifndef MLA_LAYERS_LAYERS_H
#define MLA_LAYERS_LAYERS_H

#include "autograd/ops.h"
#include "layers/spec.h"

enum { MLA_PARAM_NAME_BYTES = 128 };

struct mla_probe;

/* What a forward pass knows of the images it works on. */
typedef struct mla_forward {
    bool training;           /* drop path is active */
    uint64_t seed, epoch;    /* of the run; streams of random numbers are named by them */
    const uint64_t *samples; /* (B) index of each image in its data set; needed when training with drop path */
    struct mla_probe *probe; /* notes what it needs to look inside (layers/probe.h), or NULL */
} mla_forward;

typedef struct mla_linear_layer {
    int weight, bias; /* bias: -1 for none */
} mla_linear_layer;

/* weight (out, in) normal with deviation `scale` (0: in^-1/2), decayed; bias zeros. */
mla_linear_layer mla_linear_declare(mla_params *params, const char *prefix, size_t in, size_t out, bool bias, double scale);
/* x (..., in) -> (..., out) */
mla_var mla_linear_forward(const mla_linear_layer *layer, mla_tape *tape, mla_var x, mla_var residual,
                           mla_activation activation);

typedef struct mla_norm_layer {
    int weight, bias;
    double eps;
} mla_norm_layer;

mla_norm_layer mla_norm_declare(mla_params *params, const char *prefix, size_t channels, double eps);
mla_var mla_norm_forward(const mla_norm_layer *layer, mla_tape *tape, mla_var x);

/* Parameters of the mirror's options; -1: option is off. */
typedef struct mla_mirror_params {
    int plane_u, plane_w, fold_v, twin_v, gamma, power, qk_gain;
} mla_mirror_params;

/* Attention of any kind on the tokens of a square grid: q, k, v projection, the kind's core, output projection. */
typedef struct mla_attention {
    mla_attention_kind kind;
    mla_attention_spec spec;
    size_t channels, heads, side;
    mla_linear_layer qkv, proj;
    int dwconv_weight, dwconv_bias;         /* -1: none */
    mla_linear_layer gate;                  /* weight -1: none */
    int projection;                         /* performer; -1: none */
    int qk_scale, power;                    /* focused and pola; pola; -1: none */
    int block_v, angle_a, angle_c, cross_v; /* mirror; -1: part is off */
    mla_mirror_params mirror;
} mla_attention;

mla_attention mla_attention_declare(mla_params *params, const char *prefix, size_t channels, size_t heads, size_t side,
                                    mla_attention_kind kind, const mla_attention_spec *spec);
/* x (B, N, C), N = side^2 -> (B, N, C); residual (B, N, C) is added when given. */
mla_var mla_attention_forward(const mla_attention *layer, mla_tape *tape, mla_var x, mla_var residual);

/* The parts of forward, for code that looks inside (what a tape records for them is the caller's). */

/* x (B, N, C) -> q, k and v side by side, (B, N, 3C). */
mla_var mla_attention_project(const mla_attention *layer, mla_tape *tape, mla_var x);
/* qkv (B, N, 3C), of mla_attention_project or the caller's own -> (B, N, C): what the tokens take from each other, without
 * convolution and output projection.  Linear in v: with unit vectors in its place it gives the attention matrix. */
mla_var mla_attention_core(const mla_attention *layer, mla_tape *tape, mla_var qkv);
/* What the kind's feature map makes of q and k, (B, N, h D) each with head h in columns h D .. h D + D - 1; false, and
 * nothing recorded, for kinds without one.  Pola has two maps a head, one for each half of v, side by side: D = 4d. */
bool mla_attention_features(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk);

/* The mirror's steps between projection and feature map: norm and scale; angle; conditional reflections and those across
 * all heads.  qk (B, N, 2C), q and k side by side -> the same. */
mla_var mla_mirror_scale(const mla_attention *layer, mla_tape *tape, mla_var qk);
mla_var mla_mirror_turn(const mla_attention *layer, mla_tape *tape, mla_var qk);
mla_var mla_mirror_reflect(const mla_attention *layer, mla_tape *tape, mla_var qk);

/* A pre-norm transformer block: x += attention(norm1(x)); x += mlp(norm2(x)). */
typedef struct mla_block {
    mla_norm_layer norm1, norm2;
    mla_attention attention;
    mla_linear_layer fc1, fc2;
    double drop_path;
    unsigned index; /* in the model, names the drop-path stream */
} mla_block;

mla_block mla_block_declare(mla_params *params, const char *prefix, size_t channels, size_t heads, size_t side,
                            mla_attention_kind kind, const mla_model_spec *spec, double drop_path, unsigned index);
mla_var mla_block_forward(const mla_block *block, mla_tape *tape, mla_var x, const mla_forward *forward);

/* Patch embedding, position embedding, blocks: images or the tokens of the stage before -> tokens (B, side^2, C). */
typedef struct mla_stage {
    size_t patch, side_in, side; /* side: of the token grid */
    bool first;                  /* reads planar images; else tokens of a grid */
    mla_linear_layer embed;
    bool has_norm;
    mla_norm_layer norm;
    int position;
    int depth;
    mla_block *blocks; /* owned by the model */
} mla_stage;

/* `blocks` receives depth blocks; `prefix` is "" or ends in '.'. */
mla_stage mla_stage_declare(mla_params *params, const char *prefix, const mla_model_spec *spec, int index, size_t side_in,
                            size_t channels_in, bool norm, mla_block *blocks, unsigned first_block);
mla_var mla_stage_forward(const mla_stage *stage, mla_tape *tape, mla_var x, const mla_forward *forward);

#endif
