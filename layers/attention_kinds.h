/* The kinds of attention, private to layers/attention*.c: another kind is one row here, in the table of attention.c, and in
 * one of the files
 *
 *     attention.c          the table; what all kinds share: projections, convolution
 *     attention_linear.c   softmax, and linear attention with a feature map
 *     attention_mirror.c   MirrorLA
 *     attention_other.c    efficient, injective (InLine) and agent attention
 */
#ifndef MLA_LAYERS_ATTENTION_KINDS_H
#define MLA_LAYERS_ATTENTION_KINDS_H

#include "layers/layers.h"

typedef struct mla_attention_row {
    bool linear; /* takes the depthwise convolution of v and the gate */
    bool gated;  /* always has the gate */
    /* Parameters beyond the projections, under `prefix`; NULL: none. */
    void (*declare)(mla_attention *layer, mla_params *params, const char *prefix);
    /* qkv (B, N, 3C) -> (B, N, C) */
    mla_var (*core)(const mla_attention *layer, mla_tape *tape, mla_var qkv);
    /* As mla_attention_features; NULL: the kind has no feature map. */
    void (*features)(const mla_attention *layer, mla_tape *tape, mla_var qkv, mla_var *fq, mla_var *fk);
} mla_attention_row;

extern const mla_attention_row mla_attention_softmax, mla_attention_relu, mla_attention_elu1, mla_attention_performer,
    mla_attention_cosformer, mla_attention_focused, mla_attention_pola;                            /* attention_linear.c */
extern const mla_attention_row mla_attention_mirror;                                               /* attention_mirror.c */
extern const mla_attention_row mla_attention_efficient, mla_attention_inline, mla_attention_agent; /* attention_other.c */

/* q (0), k (1) or v (2) of qkv, (B, N, C), as a view. */
mla_var mla_attention_third(const mla_attention *layer, mla_tape *tape, mla_var qkv, size_t i);

/* Declares `prefix`.`name`, without weight decay. */
int mla_attention_param(mla_params *params, const char *prefix, const char *name, int ndim, const size_t *shape,
                        mla_init init);

#endif
