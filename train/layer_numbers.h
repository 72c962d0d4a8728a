/* What is measured of an attention layer (train/diagnostics.h), as it stands in logs and reports.
 *
 * All numbers are means over the images and heads of a layer; one that does not exist for the kind, or is not finite, is
 * NaN, which is null in a log.
 */
#ifndef MLA_TRAIN_LAYER_NUMBERS_H
#define MLA_TRAIN_LAYER_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

/* X(NAME, name) */
#define MLA_LAYER_NUMBER_LIST(X)                                                                                            \
    X(ENERGY_Q, energy_q) /* |f(q)|^2 / |q|^2, q and k as the feature map gets them */                                      \
    X(ENERGY_K, energy_k)                                                                                                   \
    X(ENTROPY, entropy)           /* of the rows of the attention matrix, as a share of ln N; 1 = an equal share for all */ \
    X(RANK, rank)                 /* effective rank of the attention matrix */                                              \
    X(RANK_KV, rank_kv)           /* effective rank of f(k)^T v */                                                          \
    X(ANGLE, angle)               /* |t| of the variance-aware angle, radians */                                            \
    X(ANGLE_SPREAD, angle_spread) /* deviation of t over the images, radians */                                             \
    X(MOVED_BLOCK, moved_block)   /* how far the block isometries are from their start, 0 to 1 */                           \
    X(MOVED_CROSS, moved_cross)   /* the same of the reflections across heads */                                            \
    X(MOVED_TWIN, moved_twin)     /* of those that make the twin */                                                         \
    X(MOVED_FOLD, moved_fold)     /* of each of the fold */

enum {
#define MLA_LAYER_NUMBER_ENUM(NAME, name) MLA_LAYER_##NAME,
    MLA_LAYER_NUMBER_LIST(MLA_LAYER_NUMBER_ENUM)
#undef MLA_LAYER_NUMBER_ENUM
        MLA_LAYER_NUMBERS
};
extern const char *const mla_layer_number_names[MLA_LAYER_NUMBERS];

typedef struct mla_layer_record {
    const char *kind;
    size_t tokens, heads;
    double number[MLA_LAYER_NUMBERS];
} mla_layer_record;

typedef struct mla_layers_record {
    uint64_t step, epoch, images;
    const mla_layer_record *layer;
    int layers;
} mla_layers_record;

#endif
