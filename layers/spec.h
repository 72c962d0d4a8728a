/* What a model is: everything that decides its parameters and its function, and nothing else. */
#ifndef MLA_LAYERS_SPEC_H
#define MLA_LAYERS_SPEC_H

#include <stdbool.h>

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

typedef struct mla_mirror_spec {
    int block;           /* b, width of a block inside a head; 0 = the whole head */
    int reflections;     /* r, reflections of a block's product; 0 = off */
    bool variance_angle; /* turn channel pairs by an angle that follows their variance over the tokens */
    double angle_max;    /* T, radians */
    double angle_gain;   /* initial a */
    int cross_head;      /* rx, reflections across all heads; 0 = off */
} mla_mirror_spec;

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
