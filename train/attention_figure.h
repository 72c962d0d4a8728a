/* Pictures of where a model's answer comes from, one block an image:
 *
 *     the image and its most probable classes | evidence | layer 1 | layer 2 | ...
 *
 * Evidence: what each of the last tokens says for the most probable class (mla_probe_evidence).  Layers: the attention that
 * each token receives (mla_view_received), that is its share in the mean of the layer's output, relative to an equal share;
 * the mean over heads, or a row a layer with a column a head.  Kinds that map q and k by ReLU also show how q's and k's
 * channels are spread, for the mirror before and after its reflections, with the share of energy that the features keep.
 *
 * Every map has its own scale, whose ends are written below it; the scale of a layer covers at least 0.9 to 1.1, so that
 * next to nothing does not look like something.  Maps are interpolated (bicubic) to the size of the picture.
 */
#ifndef MLA_TRAIN_ATTENTION_FIGURE_H
#define MLA_TRAIN_ATTENTION_FIGURE_H

#include "train/predict.h"

typedef struct mla_attention_options {
    const int *layers; /* from 0, any order; the caller keeps them */
    int layer_count;
    bool each_head;
    int top; /* classes named beside an image; there is room for five */
} mla_attention_options;

typedef struct mla_attention_figure mla_attention_figure;

/* Attention layers of a model. */
int mla_attention_layers(const mla_model_spec *spec);

/* How many images one picture can hold. */
size_t mla_attention_figure_room(const mla_model_spec *spec, const mla_attention_options *options);

/* An empty picture for up to `images` of them (1 to the room).  `loaded` is kept by the caller; `origin` names the
 * checkpoint in the title. */
MLA_MUST_CHECK mla_status mla_attention_figure_new(mla_attention_figure **figure, const mla_loaded *loaded,
                                                   const char *origin, const mla_attention_options *options, int images,
                                                   mla_error *error);
void mla_attention_figure_free(mla_attention_figure *figure); /* NULL is allowed */

/* Reads the prediction's image again, runs it by itself with a probe, and draws its block below the others. */
MLA_MUST_CHECK mla_status mla_attention_figure_add(mla_attention_figure *figure, const mla_prediction *prediction,
                                                   mla_error *error);
/* Writes the blocks so far as a PNG. */
MLA_MUST_CHECK mla_status mla_attention_figure_write(mla_attention_figure *figure, const char *path, mla_error *error);

#endif
