/* What a model is: everything that decides its parameters and its function, and nothing else. */
#ifndef MLA_LAYERS_SPEC_H
#define MLA_LAYERS_SPEC_H

#include <stdbool.h>

#include "autograd/ops.h"

enum { MLA_MAX_STAGES = 4 };

typedef enum mla_family { MLA_FAMILY_VIT, MLA_FAMILY_PVT } mla_family;
typedef enum mla_attention_kind {
    MLA_ATTENTION_SOFTMAX,
    MLA_ATTENTION_ELU1,
    MLA_ATTENTION_RELU,
    MLA_ATTENTION_PERFORMER,
    MLA_ATTENTION_COSFORMER,
    MLA_ATTENTION_EFFICIENT,
    MLA_ATTENTION_FOCUSED,
    MLA_ATTENTION_POLA,
    MLA_ATTENTION_INLINE,
    MLA_ATTENTION_AGENT,
    MLA_ATTENTION_MIRROR,
    MLA_ATTENTION_KINDS /* how many there are */
} mla_attention_kind;

/* How reflection vectors start: in nearly equal pairs, whose product is near I, or each uniform on the sphere. */
typedef enum mla_vectors_init { MLA_VECTORS_PAIR, MLA_VECTORS_RANDOM } mla_vectors_init;
/* What turns by an angle: channel pairs, or one learned plane a block. */
typedef enum mla_angle_planes { MLA_PLANES_PAIRS, MLA_PLANES_LEARNED } mla_angle_planes;
/* Whose variance an angle follows: that of q and k together, or of each its own. */
typedef enum mla_angle_source { MLA_ANGLE_SHARED, MLA_ANGLE_OWN } mla_angle_source;
typedef enum mla_qk_norm { MLA_QK_NORM_NONE, MLA_QK_NORM_RMS } mla_qk_norm;
/* How the twin's product of reflections starts: at random, or at -I, where twin is split. */
typedef enum mla_twin_init { MLA_TWIN_RANDOM, MLA_TWIN_NEGATIVE } mla_twin_init;
/* The power of features: 1 + 4 sigmoid(p) a channel; FLatten's cube that keeps the norm; `exponent`. */
typedef enum mla_power { MLA_POWER_NONE, MLA_POWER_LEARNED, MLA_POWER_FOCUSED, MLA_POWER_FIXED } mla_power;

typedef struct mla_mirror_spec {
    int block;           /* b, width of a block inside a head; 0 = the whole head */
    int reflections;     /* r, reflections of a block's product; 0 = off */
    bool variance_angle; /* turn channel pairs by an angle that follows their variance over the tokens */
    double angle_max;    /* T, radians */
    double angle_gain;   /* initial a */
    int cross_head;      /* rx, reflections across all heads; 0 = off */
    mla_vectors_init block_init, cross_init;
    mla_angle_planes angle_planes;
    mla_angle_source angle_source;
    mla_qk_norm qk_norm;      /* of the heads of q and k, before everything but the block isometry */
    bool scale_modulation;    /* scale channels by a learned power of their variance over the tokens */
    int fold;                 /* conditional reflections of a block; 0 = off */
    mla_feature_kept feature; /* what the feature map keeps */
    mla_twin_init twin_init;
    int twin_reflections; /* of the twin's product; 0: see mla_mirror_twin_reflections */
    mla_power power;
    double exponent;       /* of MLA_POWER_FIXED, at least 1 */
    double retention_loss; /* weight of the loss that asks ReLU to cut off little; 0 = off */
} mla_mirror_spec;

/* Does any part work on blocks, so that they have to divide the heads? */
static inline bool mla_mirror_has_blocks(const mla_mirror_spec *mirror) {
    return mirror->reflections || mirror->fold || mirror->feature == MLA_KEPT_TWIN ||
           (mirror->variance_angle && mirror->angle_planes == MLA_PLANES_LEARNED);
}

/* Is everything before the feature map the same linear map for every image? */
static inline bool mla_mirror_only_isometries(const mla_mirror_spec *mirror) {
    return !mirror->variance_angle && mirror->qk_norm == MLA_QK_NORM_NONE && !mirror->scale_modulation && !mirror->fold;
}

/* Width of the blocks of heads that are d wide. */
static inline int mla_mirror_block(const mla_mirror_spec *mirror, int d) { return mirror->block ? mirror->block : d; }

/* Reflections of the twin's product in blocks of b channels, 0 given: as many as the block isometry has and at least one,
 * or, to start at -I, b: fewer can't make it. */
static inline int mla_mirror_twin_reflections(const mla_mirror_spec *mirror, int b) {
    if (mirror->twin_reflections) return mirror->twin_reflections;
    if (mirror->twin_init == MLA_TWIN_NEGATIVE) return b;
    return mirror->reflections ? mirror->reflections : 1;
}

/* Does that product make -I at the start?  It takes b reflections, and what more there are in pairs. */
static inline bool mla_mirror_twin_negates(const mla_mirror_spec *mirror, int b) {
    const int r = mla_mirror_twin_reflections(mirror, b);
    return r >= b && (r - b) % 2 == 0;
}

typedef struct mla_agent_spec {
    int side; /* agents of an image: side x side, at most as many as the stage's grid has tokens */
} mla_agent_spec;

/* What the attention layers of all stages share; each kind reads its part. */
typedef struct mla_attention_spec {
    int dwconv; /* side of the depthwise convolution of v on the token grid, odd; 0 = off; linear kinds only */
    bool qkv_bias;
    double eps; /* floor of the linear-attention denominator, a fraction of the token mean; none for the performer */
    bool gate;  /* the output times a linear map of the input; linear kinds only, pola always has it */
    int performer_features; /* random features of a head; 0 = d ln d, rounded down */
    double focused_factor;  /* power of the focused kind */
    mla_agent_spec agent;
    mla_mirror_spec mirror;
} mla_attention_spec;

typedef struct mla_model_spec {
    mla_family family;
    int image;    /* side of the square input, pixels */
    int channels; /* of the input: 3 */
    int classes;
    int patch;  /* side of the first patch; later pvt stages halve the grid */
    int stages; /* entries used in the lists below; 1 for vit */
    int dims[MLA_MAX_STAGES], depths[MLA_MAX_STAGES], heads[MLA_MAX_STAGES];
    mla_attention_kind kinds[MLA_MAX_STAGES]; /* of the stages' attention */
    double mlp_ratio;
    double drop_path; /* rate of the last block; grows linearly from 0 at the first */
    double norm_eps;  /* of every LayerNorm */
    mla_attention_spec attention;
} mla_model_spec;

/* Does any stage have this kind? */
static inline bool mla_model_has_kind(const mla_model_spec *spec, mla_attention_kind kind) {
    for (int i = 0; i < spec->stages; i++)
        if (spec->kinds[i] == kind) return true;
    return false;
}

#endif
