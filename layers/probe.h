/* A look inside a forward pass: what its attention layers did, as plain numbers, for pictures, diagnostics and tests.
 *
 * While a pass is recorded, a probe notes the input of every attention layer, and the tokens that the head pools.
 * Everything else is computed again from those and the parameters, one image at a time: q and k step by step, attention by
 * the kind's own core, so the probe knows no formula of a kind and the pass may fuse its operations as speed asks for.
 *
 *     mla_probe probe = {0};
 *     mla_tape_begin(tape, params, params->value, NULL);
 *     mla_model_forward(model, tape, images, &(mla_forward){.probe = &probe});
 *     for (int i = 0; i < probe.layers; i++) {
 *         mla_view view;
 *         if (mla_view_open(&view, &probe, i, 0, tape, &error) != MLA_OK) ...      // layer i, image 0
 *         status = mla_view_received(received, &view, false, &error);
 *         double kept = mla_view_kept(&view, MLA_AFTER_CROSS, MLA_SIDE_K, MLA_ALL_HEADS);
 *         mla_view_close(&view);
 *     }
 *     mla_probe_free(&probe);
 *
 * Ownership: a probe belongs to the caller and to one pass: mla_probe_free makes it ready for the next.  What it noted
 * is valid until the tape's next begin; a view owns its numbers.  N tokens, C channels, h heads, d = C / h.
 */
#ifndef MLA_LAYERS_PROBE_H
#define MLA_LAYERS_PROBE_H

#include "layers/layers.h"

/* Where q and k stand on their way through the mirror.  Kinds and parts that are off leave them as they were. */
typedef enum mla_mirror_stage {
    MLA_BEFORE,      /* x W^T + bias */
    MLA_AFTER_BLOCK, /* times the block isometry */
    MLA_AFTER_ANGLE, /* turned (mla_mirror_turn) */
    MLA_AFTER_CROSS, /* reflected (mla_mirror_reflect): what the feature map gets */
    MLA_MIRROR_STAGES
} mla_mirror_stage;
typedef enum mla_side { MLA_SIDE_Q, MLA_SIDE_K } mla_side;
enum { MLA_ALL_HEADS = -1 };

typedef struct mla_probed_layer {
    const mla_attention *attention; /* the model's */
    mla_var x;                      /* (B, N, C), its input */
} mla_probed_layer;

typedef struct mla_probe {
    mla_probed_layer *layer; /* in the order of the pass */
    int layers, capacity;
    mla_var tokens; /* (B, N, C), what the head takes the mean of */
    const mla_norm_layer *norm;
    const mla_linear_layer *head;
    bool out_of_memory;
} mla_probe;

void mla_probe_free(mla_probe *probe);

/* Called by the layers; a NULL probe notes nothing. */
void mla_probe_attention(mla_probe *probe, const mla_attention *attention, mla_var x);
void mla_probe_head(mla_probe *probe, const mla_norm_layer *norm, const mla_linear_layer *head, mla_var tokens);

/* One attention layer at work on one image. */
typedef struct mla_view {
    const mla_attention *attention;
    size_t tokens, channels, heads, d;
    real *qk[MLA_MIRROR_STAGES]; /* (N, 2C) each, q and k side by side */
    real *v;                     /* (N, C) */
    size_t width;                /* D of a head's features */
    real *f;                     /* (N, 2 h D), those of q and k side by side; NULL: the kind has none */
    mla_tape *tape;              /* for running the core */
    const mla_tape *pass;        /* the tape of the pass */
} mla_view;

/* Computes the view of layer `layer` and image `image` (of the batch).  The tape is the one of the pass; parameters are
 * read through it.  MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_view_open(mla_view *view, const mla_probe *probe, int layer, size_t image, mla_tape *tape,
                                        mla_error *error);
void mla_view_close(mla_view *view); /* a zeroed view is allowed */

/* Attention that token m receives, a_m = sum_n A[n, m] of the implied attention matrix (layers/measure.h): its share in the
 * mean of the attention's output, (1/N) sum_n y_n = (1/N) sum_m a_m v_m, relative to an equal one; and so the gradient of
 * the output's sum with respect to v_m, which is how it is found for every kind.  received (h, N); a head's row sums to N,
 * or less by dead queries.  With `mean` the first row becomes the mean over the heads.  Where the halves of v are mixed
 * differently (pola) it is the mean of both.  Memory is linear in N.  MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_view_received(real *received, const mla_view *view, bool mean, mla_error *error);

/* The numbers of q or k of one head (or of all) at a stage: rows of *width values, 2C reals apart. */
const real *mla_view_channels(size_t *width, const mla_view *view, mla_mirror_stage stage, mla_side side, int head);

/* Share of the energy that the feature map keeps, |f|^2 / |x|^2 over all tokens of q or k, in a head or in all of them: at
 * the last stage of the kind's own features f, before it of f = relu(x).  NaN for x = 0. */
double mla_view_kept(const mla_view *view, mla_mirror_stage stage, mla_side side, int head);

/* Whether a kind's feature map is made of ReLU: the others have no energy to lose. */
bool mla_view_is_relu(const mla_view *view);

/* The class activation map (Zhou et al., arXiv 1512.04150), made exact for a head with LayerNorm: the statistics of the
 * pooled token are constants, and the rest is linear in the tokens.  evidence (N) is what each final token says for
 * `class` against the mean of all classes:
 *
 *   logit_class - mean_k logit_k = *offset + (1/N) sum_n evidence_n
 *
 * MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_probe_evidence(real *evidence, double *offset, const mla_probe *probe, size_t class,
                                             size_t image, mla_tape *tape, mla_error *error);

#endif
