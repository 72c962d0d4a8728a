/* Backward of every operation and of whole models against central differences, in the double build.  With
 * MLA_TEST_VERBOSE=1 CK_FORK=no the worst difference of each is printed. */
#ifndef MLA_DOUBLE
#error "the gradient checks need the double build of the engine"
#endif

#include <stdio.h>

#include "autograd/gradcheck.h"
#include "layers/model.h"
#include "tests/support.h"

/* ---- operations: a row a case */

enum { MOST_INPUTS = 5 };

typedef struct gradient_case {
    const char *op, *name;
    mla_var (*build)(mla_tape *tape, const mla_var *in, const struct gradient_case *c);
    struct {
        int ndim;
        size_t shape[MLA_MAX_DIMS];
    } input[MOST_INPUTS];
    size_t a, b; /* what the builder makes of them: heads, grid, patch, columns to skip */
    double away; /* inputs stay so far from zero */
    double smoothing;
    int map;       /* activation or feature map */
    bool negative; /* input 0 is negative throughout the first image's first token */
    bool positive; /* input 0 has no negative number */
} gradient_case;

#define BUILD(name) static mla_var name(mla_tape *tape, const mla_var *in, __attribute__((unused)) const gradient_case *c)

BUILD(linear) { return mla_linear(tape, in[0], in[1], in[2], MLA_NO_VAR, (mla_activation)c->map); }
BUILD(linear_residual) { return mla_linear(tape, in[0], in[1], in[2], in[3], MLA_IDENTITY); }
BUILD(linear_bare) { return mla_linear(tape, in[0], in[1], MLA_NO_VAR, MLA_NO_VAR, (mla_activation)c->map); }
BUILD(linear_residual_bare) { return mla_linear(tape, in[0], in[1], MLA_NO_VAR, in[2], MLA_IDENTITY); }
BUILD(linear_view) {
    return mla_linear(tape, mla_columns(tape, in[0], c->a, c->b), in[1], in[2], MLA_NO_VAR, (mla_activation)c->map);
}
/* x is input and residual at once. */
BUILD(linear_onto_itself) { return mla_linear(tape, in[0], in[1], in[2], in[0], MLA_IDENTITY); }
/* The same layer twice, with an activation between. */
BUILD(linear_twice) {
    const mla_var y = mla_linear(tape, in[0], in[1], in[2], MLA_NO_VAR, MLA_GELU);
    return mla_linear(tape, y, in[1], in[2], in[0], MLA_IDENTITY);
}
/* x is the result of another operation, whose gradient nobody has added to yet; it is the bias too. */
BUILD(linear_of_a_result) {
    const mla_var y = mla_gelu(tape, in[0]);
    return mla_linear(tape, y, in[1], y, MLA_NO_VAR, MLA_IDENTITY);
}
/* A residual that is a view, and one that is added to twice. */
BUILD(linear_onto_a_view) {
    const mla_var wide = mla_gelu(tape, in[0]), y = mla_reshape(tape, wide, 2, (size_t[]){3, 4});
    return mla_residual(tape, y, mla_linear(tape, y, in[1], in[2], y, MLA_IDENTITY), NULL);
}
BUILD(linear_reshaped) {
    const mla_var w = mla_reshape(tape, in[1], 2, (size_t[]){6, 4});
    return mla_reshape(tape, mla_linear(tape, in[0], w, in[2], MLA_NO_VAR, MLA_IDENTITY), 2, (size_t[]){9, 2});
}

BUILD(layer_norm) { return mla_layer_norm(tape, in[0], in[1], in[2], 1e-6); }
BUILD(layer_norm_twice) { return mla_layer_norm(tape, mla_layer_norm(tape, in[0], in[1], in[2], 1e-6), in[1], in[2], 1e-2); }
BUILD(gelu) { return mla_gelu(tape, in[0]); }
BUILD(residual) { return mla_residual(tape, in[0], in[1], NULL); }
BUILD(residual_scaled) {
    static const real scale[] = {0, 1.25, -2};
    return mla_residual(tape, in[0], in[1], scale);
}
BUILD(residual_double) { return mla_residual(tape, in[0], in[0], NULL); }
BUILD(drop_path) {
    static const double uniform[] = {0.1, 0.9, 0.5};
    return mla_drop_path(tape, in[0], mla_gelu(tape, in[0]), 0.3, uniform);
}
BUILD(position) { return mla_position(tape, in[0], in[1]); }
BUILD(patches) { return mla_patches(tape, in[0], c->a); }
BUILD(patches_grid) { return mla_patches_grid(tape, in[0], c->a, c->b); }
BUILD(conv) { return mla_depthwise_conv(tape, in[0], in[1], in[2], MLA_NO_VAR, c->a, c->b); }
BUILD(conv_residual) { return mla_depthwise_conv(tape, in[0], in[1], in[2], in[3], c->a, c->b); }
BUILD(conv_view) { return mla_depthwise_conv(tape, mla_columns(tape, in[0], 6, 3), in[1], in[2], MLA_NO_VAR, c->a, c->b); }
BUILD(conv_onto_itself) { return mla_depthwise_conv(tape, in[0], in[1], in[2], in[0], c->a, c->b); }
BUILD(token_mean) { return mla_token_mean(tape, in[0]); }
BUILD(softmax) { return mla_softmax_attention(tape, in[0], in[1], in[2], c->a); }
/* q, k and v are thirds of one tensor, as models have it; b is their width. */
BUILD(softmax_thirds) {
    return mla_softmax_attention(tape, mla_columns(tape, in[0], 0, c->b), mla_columns(tape, in[0], c->b, c->b),
                                 mla_columns(tape, in[0], 2 * c->b, c->b), c->a);
}
BUILD(softmax_itself) { return mla_softmax_attention(tape, in[0], in[0], in[0], c->a); }
BUILD(feature_map) { return mla_features(tape, in[0], (mla_feature_map)c->map); }
BUILD(feature_map_view) { return mla_features(tape, mla_columns(tape, in[0], 2, 5), (mla_feature_map)c->map); }
BUILD(attention) { return mla_linear_attention(tape, in[0], in[1], in[2], c->a, (mla_feature_map)c->map, 1e-2); }
BUILD(attention_thirds) {
    return mla_linear_attention(tape, mla_columns(tape, in[0], 0, c->b), mla_columns(tape, in[0], c->b, c->b),
                                mla_columns(tape, in[0], 2 * c->b, c->b), c->a, (mla_feature_map)c->map, 1e-6);
}
/* Features from elsewhere, of another width than v; b is q's. */
BUILD(attention_given) {
    return mla_linear_attention(tape, mla_features(tape, in[0], MLA_FEATURE_ELU1),
                                mla_features(tape, in[1], MLA_FEATURE_RELU), in[2], c->a, MLA_FEATURE_GIVEN, 1e-2);
}
BUILD(attention_given_view) {
    const mla_var f = mla_features(tape, in[0], MLA_FEATURE_ELU1);
    return mla_linear_attention(tape, mla_columns(tape, f, 0, c->b), mla_columns(tape, f, c->b, c->b), in[1], c->a,
                                MLA_FEATURE_GIVEN, 1e-2);
}
BUILD(attention_itself) { return mla_linear_attention(tape, in[0], in[0], in[0], c->a, (mla_feature_map)c->map, 1e-3); }
/* As many queries and keys as agents have. */
BUILD(softmax_of_fewer) { return mla_softmax_attention(tape, in[0], in[1], in[2], c->a); }
BUILD(block_reflect) { return mla_block_reflect(tape, in[0], in[1]); }
/* Weight and bias are folded with the same vectors. */
BUILD(block_reflect_twice) {
    return mla_linear(tape, in[3], mla_block_reflect(tape, in[0], in[2]), mla_block_reflect(tape, in[1], in[2]), MLA_NO_VAR,
                      MLA_IDENTITY);
}
BUILD(pair_angle) { return mla_pair_angle(tape, in[0], in[1], in[2], 1.5, false); }
BUILD(pair_angle_view) { return mla_pair_angle(tape, mla_columns(tape, in[0], 0, 8), in[1], in[2], 0.7, false); }
BUILD(cross_reflect) { return mla_cross_reflect(tape, in[0], in[1]); }
BUILD(cross_reflect_view) { return mla_cross_reflect(tape, mla_columns(tape, in[0], 2, 8), in[1]); }
BUILD(cross_reflect_twice) { return mla_cross_reflect(tape, mla_gelu(tape, mla_cross_reflect(tape, in[0], in[1])), in[1]); }
BUILD(mirror) { return mla_mirror_attention(tape, in[0], in[1], in[2], in[3], c->a, (mla_feature_kept)c->map, 1.5, 1e-2); }
BUILD(mirror_angle) {
    return mla_mirror_attention(tape, in[0], in[1], in[2], MLA_NO_VAR, c->a, (mla_feature_kept)c->map, 0.7, 1e-2);
}
BUILD(mirror_cross) {
    return mla_mirror_attention(tape, in[0], MLA_NO_VAR, MLA_NO_VAR, in[1], c->a, (mla_feature_kept)c->map, 0, 1e-2);
}
BUILD(mirror_view) {
    return mla_mirror_attention(tape, mla_columns(tape, in[0], 3, 48), in[1], in[2], in[3], c->a, (mla_feature_kept)c->map,
                                1.5, 1e-2);
}
BUILD(cross_entropy) {
    static const int labels[] = {2, 0, 4};
    return mla_cross_entropy(tape, in[0], labels, NULL, c->smoothing);
}
BUILD(cross_entropy_soft) {
    /* The last row does not sum to one: the gradient still has to fit. */
    static const real soft[] = {0.5, 0.25, 0.25, 0, 0, 0.1, 0.2, 0.3, 0.4, 0, 1, 0, 0.5, 0, 0.25};
    return mla_cross_entropy(tape, in[0], NULL, soft, c->smoothing);
}
/* One image's two labels are the same. */
BUILD(cross_entropy_mixed) {
    static const int labels[] = {2, 0, 4}, others[] = {1, 0, 3};
    static const real shares[] = {0.25, 0.5, 0.875};
    return mla_cross_entropy_mixed(tape, in[0], labels, others, shares, c->smoothing);
}

#define RELU .map = MLA_FEATURE_RELU, .away = 2e-3
#define ELU1 .map = MLA_FEATURE_ELU1, .away = 2e-3
#define IN(...) .input = {__VA_ARGS__}

#include "tests/gradcheck_kinds.h"
#include "tests/gradcheck_mirror.h"

static const gradient_case cases[] = {
    KINDS_CASES,
    MIRROR_CASES,
    {"linear", "bias", linear, IN({3, {2, 3, 4}}, {2, {5, 4}}, {1, {5}})},
    {"linear", "GELU", linear, IN({2, {3, 4}}, {2, {7, 4}}, {1, {7}}), .map = MLA_GELU},
    {"linear", "no bias", linear_bare, IN({2, {3, 4}}, {2, {5, 4}})},
    {"linear", "no bias, GELU", linear_bare, IN({2, {3, 4}}, {2, {5, 4}}), .map = MLA_GELU},
    {"linear", "residual", linear_residual, IN({3, {2, 3, 4}}, {2, {5, 4}}, {1, {5}}, {3, {2, 3, 5}})},
    {"linear", "residual, no bias", linear_residual_bare, IN({3, {2, 3, 4}}, {2, {5, 4}}, {3, {2, 3, 5}})},
    {"linear", "view of columns", linear_view, IN({3, {2, 3, 7}}, {2, {5, 4}}, {1, {5}}), .a = 2, .b = 4},
    {"linear", "view of columns, GELU", linear_view, IN({2, {3, 7}}, {2, {5, 3}}, {1, {5}}), .a = 4, .b = 3,
     .map = MLA_GELU},
    {"linear", "convolution weight", linear, IN({3, {2, 3, 12}}, {4, {5, 3, 2, 2}}, {1, {5}})},
    {"linear", "one by one", linear, IN({2, {1, 1}}, {2, {1, 1}}, {1, {1}})},
    {"linear", "x is the residual too", linear_onto_itself, IN({3, {2, 3, 4}}, {2, {4, 4}}, {1, {4}})},
    {"linear", "x is a result and the bias too", linear_of_a_result, IN({2, {1, 4}}, {2, {4, 4}})},
    {"linear", "onto a view of a result", linear_onto_a_view, IN({2, {2, 6}}, {2, {4, 4}}, {1, {4}})},
    {"linear", "one layer twice", linear_twice, IN({2, {3, 4}}, {2, {4, 4}}, {1, {4}})},
    {"linear", "reshaped weight and result", linear_reshaped, IN({2, {3, 4}}, {1, {24}}, {1, {6}})},
    {"layer_norm", "three dimensions", layer_norm, IN({3, {2, 3, 7}}, {1, {7}}, {1, {7}})},
    {"layer_norm", "two channels", layer_norm, IN({2, {5, 2}}, {1, {2}}, {1, {2}})},
    {"layer_norm", "one layer twice", layer_norm_twice, IN({2, {3, 33}}, {1, {33}}, {1, {33}})},
    {"gelu", "odd length", gelu, IN({3, {3, 1, 7}})},
    {"residual", "sum", residual, IN({3, {3, 2, 3}}, {3, {3, 2, 3}})},
    {"residual", "scaled by image", residual_scaled, IN({3, {3, 2, 3}}, {3, {3, 2, 3}})},
    {"residual", "x + x", residual_double, IN({2, {3, 5}})},
    {"residual", "drop path", drop_path, IN({3, {3, 2, 3}})},
    {"position", "three images", position, IN({3, {3, 4, 5}}, {3, {1, 4, 5}})},
    {"position", "one token", position, IN({3, {2, 1, 3}}, {3, {1, 1, 3}})},
    {"patches", "2 x 2", patches, IN({4, {2, 3, 4, 4}}), .a = 2},
    {"patches", "whole image", patches, IN({4, {2, 2, 3, 3}}), .a = 3},
    {"patches", "single pixels", patches, IN({4, {1, 3, 3, 3}}), .a = 1},
    {"patches_grid", "2 x 2", patches_grid, IN({3, {2, 16, 3}}), .a = 4, .b = 2},
    {"patches_grid", "3 x 3 of a grid of 6", patches_grid, IN({3, {1, 36, 2}}), .a = 6, .b = 3},
    {"depthwise_conv", "3 x 3 on 4 x 5", conv, IN({3, {2, 20, 3}}, {4, {3, 1, 3, 3}}, {1, {3}}), .a = 4, .b = 5},
    {"depthwise_conv", "5 x 5 on 3 x 2, residual", conv_residual,
     IN({3, {2, 6, 3}}, {4, {3, 1, 5, 5}}, {1, {3}}, {3, {2, 6, 3}}), .a = 3, .b = 2},
    {"depthwise_conv", "35 channels", conv, IN({3, {1, 6, 35}}, {4, {35, 1, 3, 3}}, {1, {35}}), .a = 2, .b = 3},
    {"depthwise_conv", "view of columns", conv_view, IN({3, {2, 6, 9}}, {4, {3, 1, 3, 3}}, {1, {3}}), .a = 2, .b = 3},
    {"depthwise_conv", "one token", conv, IN({3, {2, 1, 3}}, {4, {3, 1, 5, 5}}, {1, {3}}), .a = 1, .b = 1},
    {"depthwise_conv", "1 x 1", conv, IN({3, {2, 4, 3}}, {4, {3, 1, 1, 1}}, {1, {3}}), .a = 2, .b = 2},
    {"depthwise_conv", "x is the residual too", conv_onto_itself, IN({3, {1, 6, 3}}, {4, {3, 1, 3, 3}}, {1, {3}}), .a = 2,
     .b = 3},
    {"token_mean", "odd", token_mean, IN({3, {3, 5, 7}})},
    {"token_mean", "one token", token_mean, IN({3, {3, 1, 2}})},
    {"softmax_attention", "apart", softmax, IN({3, {2, 5, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}), .a = 2},
    {"softmax_attention", "thirds of one tensor", softmax_thirds, IN({3, {2, 4, 18}}), .a = 3, .b = 6},
    {"softmax_attention", "one token", softmax, IN({3, {2, 1, 4}}, {3, {2, 1, 4}}, {3, {2, 1, 4}}), .a = 2},
    {"softmax_attention", "two tiles of queries", softmax_thirds, IN({3, {1, 67, 6}}), .a = 1, .b = 2},
    {"softmax_attention", "two blocks of keys", softmax_of_fewer, IN({3, {1, 7, 6}}, {3, {1, 139, 6}}, {3, {1, 139, 6}}),
     .a = 2},
    {"softmax_attention", "q, k and v are one", softmax_itself, IN({3, {1, 5, 3}}), .a = 1},
    {"feature_map", "ReLU", feature_map, IN({3, {2, 3, 5}}), RELU},
    {"feature_map", "elu + 1, view of columns", feature_map_view, IN({3, {2, 3, 9}}), ELU1},
    {"linear_attention", "ReLU", attention, IN({3, {2, 5, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}), .a = 2, RELU},
    {"linear_attention", "elu + 1", attention, IN({3, {2, 5, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}), .a = 2, ELU1},
    {"linear_attention", "ReLU, a query all negative", attention, IN({3, {2, 5, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}), .a = 2,
     RELU, .negative = true},
    {"linear_attention", "ReLU, thirds of one tensor", attention_thirds, IN({3, {2, 4, 36}}), .a = 3, .b = 12, RELU},
    {"linear_attention", "elu + 1, thirds of one tensor", attention_thirds, IN({3, {2, 4, 18}}), .a = 2, .b = 6, ELU1},
    {"linear_attention", "ReLU, one token", attention, IN({3, {2, 1, 4}}, {3, {2, 1, 4}}, {3, {2, 1, 4}}), .a = 1, RELU},
    {"linear_attention", "elu + 1, more tokens than a block of the sum", attention_thirds, IN({3, {1, 70, 6}}), .a = 1,
     .b = 2, ELU1},
    {"linear_attention", "ReLU, q, k and v are one", attention_itself, IN({3, {1, 5, 4}}), .a = 2, RELU},
    {"linear_attention", "given, wider than v", attention_given, IN({3, {2, 5, 10}}, {3, {2, 5, 10}}, {3, {2, 5, 6}}),
     .a = 2, RELU},
    {"linear_attention", "given, narrower than v", attention_given, IN({3, {2, 4, 3}}, {3, {2, 4, 3}}, {3, {2, 4, 15}}),
     .a = 3, RELU},
    {"linear_attention", "given, views, more than a tile", attention_given_view, IN({3, {1, 99, 20}}, {3, {1, 99, 6}}),
     .a = 2, .b = 10},
    {"softmax_attention", "fewer queries than keys", softmax_of_fewer, IN({3, {2, 2, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}),
     .a = 2},
    {"softmax_attention", "fewer keys than queries, two tiles", softmax_of_fewer,
     IN({3, {1, 50, 4}}, {3, {1, 3, 4}}, {3, {1, 3, 4}}), .a = 1},
    {"softmax_attention", "one key", softmax_of_fewer, IN({3, {2, 3, 4}}, {3, {2, 1, 4}}, {3, {2, 1, 4}}), .a = 2},
    {"block_reflect", "one reflection", block_reflect, IN({2, {24, 5}}, {4, {2, 2, 1, 2}})},
    {"block_reflect", "three reflections of whole heads", block_reflect, IN({2, {18, 3}}, {4, {2, 1, 3, 3}})},
    {"block_reflect", "bias", block_reflect, IN({1, {24}}, {4, {1, 2, 2, 4}})},
    {"block_reflect", "blocks of one", block_reflect, IN({2, {6, 3}}, {4, {1, 2, 2, 1}})},
    {"block_reflect", "weight and bias", block_reflect_twice, IN({2, {12, 3}}, {1, {12}}, {4, {2, 1, 2, 2}}, {2, {2, 3}})},
    {"pair_angle", "four pairs", pair_angle, IN({3, {2, 5, 16}}, {1, {4}}, {1, {4}})},
    {"pair_angle", "one pair", pair_angle, IN({3, {2, 3, 4}}, {1, {1}}, {1, {1}})},
    {"pair_angle", "one token", pair_angle, IN({3, {2, 1, 12}}, {1, {3}}, {1, {3}})},
    {"pair_angle", "view of columns", pair_angle_view, IN({3, {2, 3, 12}}, {1, {2}}, {1, {2}})},
    {"cross_reflect", "one reflection", cross_reflect, IN({3, {2, 3, 10}}, {2, {1, 5}})},
    {"cross_reflect", "three reflections", cross_reflect, IN({3, {2, 3, 8}}, {2, {3, 4}})},
    {"cross_reflect", "view of columns", cross_reflect_view, IN({3, {2, 3, 11}}, {2, {2, 4}})},
    {"cross_reflect", "more reflections than channels", cross_reflect, IN({3, {1, 1, 4}}, {2, {5, 2}})},
    {"cross_reflect", "one layer twice", cross_reflect_twice, IN({3, {1, 3, 6}}, {2, {2, 3}})},
    {"mirror_attention", "angle and two reflections", mirror, IN({3, {2, 5, 48}}, {1, {8}}, {1, {8}}, {2, {2, 16}}), .a = 2},
    {"mirror_attention", "angle alone", mirror_angle, IN({3, {2, 4, 48}}, {1, {8}}, {1, {8}}), .a = 4},
    {"mirror_attention", "three reflections alone", mirror_cross, IN({3, {2, 4, 48}}, {2, {3, 16}}), .a = 1},
    {"mirror_attention", "one token", mirror, IN({3, {3, 1, 48}}, {1, {8}}, {1, {8}}, {2, {1, 16}}), .a = 2},
    {"mirror_attention", "two tiles of tokens", mirror, IN({3, {1, 99, 48}}, {1, {8}}, {1, {8}}, {2, {2, 16}}), .a = 2},
    {"mirror_attention", "view of columns", mirror_view, IN({3, {1, 3, 53}}, {1, {8}}, {1, {8}}, {2, {2, 16}}), .a = 2},
    {"cross_entropy", "labels", cross_entropy, IN({2, {3, 5}})},
    {"cross_entropy", "labels, smoothed", cross_entropy, IN({2, {3, 5}}), .smoothing = 0.1},
    {"cross_entropy", "soft targets", cross_entropy_soft, IN({2, {3, 5}})},
    {"cross_entropy", "soft targets, smoothed", cross_entropy_soft, IN({2, {3, 5}}), .smoothing = 0.2},
    {"cross_entropy", "two labels", cross_entropy_mixed, IN({2, {3, 5}})},
    {"cross_entropy", "two labels, smoothed", cross_entropy_mixed, IN({2, {3, 5}}), .smoothing = 0.1},
};

typedef struct case_run {
    const gradient_case *c;
    bool recorded; /* the operation that the case is about was on the tape */
} case_run;

static mla_var build_case(mla_tape *tape, const mla_var *in, void *context) {
    case_run *r = context;
    const mla_var y = r->c->build(tape, in, r->c);
    mla_node_info info;
    for (int i = 0; mla_tape_node(tape, i, &info); i++) r->recorded |= strcmp(info.op, r->c->op) == 0;
    return y;
}

static mla_gradcheck check_of(const gradient_case *c, case_run *r) {
    mla_gradcheck check = {.build = build_case, .context = r};
    *r = (case_run){c, false};
    for (int i = 0; i < MOST_INPUTS && c->input[i].ndim; i++) {
        check.input[i] = test_tensor((uint64_t)i + 1, (size_t)c->input[i].ndim, c->input[i].shape);
        test_keep_away(&check.input[i], c->away);
        check.inputs++;
    }
    for (size_t i = 0; c->negative && i < mla_tensor_columns(&check.input[0]); i++)
        check.input[0].data[i] = -fabs(check.input[0].data[i]);
    for (size_t i = 0; c->positive && i < mla_tensor_count(&check.input[0]); i++)
        check.input[0].data[i] = fabs(check.input[0].data[i]);
    return check;
}

/* Worst relative difference; fails with the case's name. */
static double run_case(const gradient_case *c) {
    case_run r;
    const mla_gradcheck check = check_of(c, &r);
    mla_gradcheck_result result;
    mla_error error = {0};
    const mla_status status = mla_gradcheck_run(&check, &result, &error);
    ck_assert_msg(status == MLA_OK, "%s, %s: %s", c->op, c->name, error.text);
    ck_assert_msg(r.recorded, "%s, %s: the case does not record the operation", c->op, c->name);
    return result.worst;
}

START_TEST(every_operation) {
    const char *op = mla_op_get((mla_op_id)_i)->name;
    int checked = 0;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        if (strcmp(cases[i].op, op) != 0) continue;
        const double worst = run_case(&cases[i]);
        if (getenv("MLA_TEST_VERBOSE")) printf("%-18s %-44s %.1e\n", op, cases[i].name, worst);
        checked++;
    }
    ck_assert_msg(checked > 0, "operation %s has no gradient check", op);
}
END_TEST

/* Gradients of all inputs, or of input `only` alone, the others being constants; on top of `content` everywhere. */
static void gradients(const mla_gradcheck *check, int only, real content, real *gradient[MOST_INPUTS]) {
    mla_tape *tape = test_tape();
    mla_var in[MOST_INPUTS];
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    for (int i = 0; i < check->inputs; i++) {
        gradient[i] = test_reals(mla_tensor_count(&check->input[i]));
        for (size_t j = 0; j < mla_tensor_count(&check->input[i]); j++) gradient[i][j] = content;
        in[i] = mla_tape_leaf(tape, check->input[i], only < 0 || i == only ? gradient[i] : NULL);
    }
    const mla_var y = check->build(tape, in, check->context);
    const mla_tensor t = mla_value(tape, y);
    ck_assert(mla_tape_backward(tape, y, test_normal(mla_tensor_count(&t), 50), &error) == MLA_OK);
}

/* An input's gradient is the same whether or not the others' are wanted. */
START_TEST(any_input_may_be_a_constant) {
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        case_run r;
        const mla_gradcheck check = check_of(&cases[i], &r);
        real *all_wanted[MOST_INPUTS], *one_wanted[MOST_INPUTS];
        gradients(&check, -1, 0, all_wanted);
        for (int only = 0; only < check.inputs; only++) {
            gradients(&check, only, 0, one_wanted);
            test_close(cases[i].name, one_wanted[only], all_wanted[only], mla_tensor_count(&check.input[only]), 1e-13);
        }
        test_release();
    }
}
END_TEST

/* Does the case record one operation, on its inputs?  What stands between hides a gradient that is written, not added to. */
static bool records_one(const mla_gradcheck *check) {
    mla_tape *tape = test_tape();
    mla_var in[MOST_INPUTS];
    mla_node_info info;
    mla_tape_begin(tape, NULL, NULL, NULL);
    for (int i = 0; i < check->inputs; i++) in[i] = mla_tape_input(tape, check->input[i]);
    check->build(tape, in, check->context);
    return !mla_tape_node(tape, 1, &info);
}

START_TEST(every_operation_has_a_case_alone) {
    const char *op = mla_op_get((mla_op_id)_i)->name;
    bool alone = false;
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        case_run r;
        if (strcmp(cases[i].op, op) != 0) continue;
        const mla_gradcheck check = check_of(&cases[i], &r);
        alone |= records_one(&check);
    }
    ck_assert_msg(alone, "operation %s has no gradient check on its own inputs", op);
}
END_TEST

/* Every operation adds to what its inputs' gradients hold. */
START_TEST(every_gradient_is_added) {
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        case_run r;
        const mla_gradcheck check = check_of(&cases[i], &r);
        real *alone[MOST_INPUTS], *added[MOST_INPUTS];
        gradients(&check, -1, 0, alone);
        gradients(&check, -1, 5, added);
        for (int input = 0; input < check.inputs; input++)
            for (size_t j = 0; j < mla_tensor_count(&check.input[input]); j++)
                ck_assert_msg(fabs(added[input][j] - 5 - alone[input][j]) < 1e-12,
                              "%s, %s: the gradient of input %d is not added", cases[i].op, cases[i].name, input);
        test_release();
    }
}
END_TEST

START_TEST(every_case_names_an_operation) {
    for (size_t i = 0; i < TEST_COUNT(cases); i++) {
        bool known = false;
        for (int op = 0; op < MLA_OP_COUNT; op++) known |= strcmp(mla_op_get((mla_op_id)op)->name, cases[i].op) == 0;
        ck_assert_msg(known, "no operation %s", cases[i].op);
    }
}
END_TEST

/* ---- whole models: every parameter */

typedef struct model_case {
    const char *name;
    mla_family family;
    mla_attention_kind kinds[2];
    mla_attention_spec attention;
    double drop_path;
} model_case;

#define BOTH(KIND)                                                                                                          \
    { MLA_ATTENTION_##KIND, MLA_ATTENTION_##KIND }
#define PLAIN(convolution, bias)                                                                                            \
    { .dwconv = convolution, .qkv_bias = bias, .eps = 1e-3 }
#define OTHER(...)                                                                                                          \
    { .dwconv = 3, .qkv_bias = true, .eps = 1e-3, __VA_ARGS__ }
#define MIRROR(b, r, angle, rx)                                                                                             \
    {                                                                                                                       \
        .dwconv = 3, .qkv_bias = true, .eps = 1e-3, .mirror = {                                                             \
            .block = b,                                                                                                     \
            .reflections = r,                                                                                               \
            .variance_angle = angle,                                                                                        \
            .angle_max = 1.5,                                                                                               \
            .angle_gain = 1,                                                                                                \
            .cross_head = rx                                                                                                \
        }                                                                                                                   \
    }

static const model_case models[] = {
    {"vit softmax", MLA_FAMILY_VIT, BOTH(SOFTMAX), PLAIN(3, true), 0},
    {"vit relu", MLA_FAMILY_VIT, BOTH(RELU), PLAIN(3, true), 0},
    {"vit elu1", MLA_FAMILY_VIT, BOTH(ELU1), PLAIN(0, false), 0},
    {"vit efficient", MLA_FAMILY_VIT, BOTH(EFFICIENT), PLAIN(3, true), 0},
    {"vit inline", MLA_FAMILY_VIT, BOTH(INLINE), PLAIN(3, true), 0},
    {"vit agent", MLA_FAMILY_VIT, BOTH(AGENT), OTHER(.agent = {2}), 0},
    {"vit one agent", MLA_FAMILY_VIT, BOTH(AGENT), OTHER(.agent = {1}), 0.5},
    {"vit mirror", MLA_FAMILY_VIT, BOTH(MIRROR), MIRROR(2, 2, true, 2), 0},
    {"vit mirror, drop path", MLA_FAMILY_VIT, BOTH(MIRROR), MIRROR(0, 3, true, 1), 0.5},
    {"vit mirror, no block reflections", MLA_FAMILY_VIT, BOTH(MIRROR), MIRROR(2, 0, true, 2), 0},
    {"vit mirror, no angle", MLA_FAMILY_VIT, BOTH(MIRROR), MIRROR(2, 2, false, 2), 0},
    {"vit mirror, no cross reflections", MLA_FAMILY_VIT, BOTH(MIRROR), MIRROR(2, 2, true, 0), 0},
    {"vit mirror, nothing but ReLU", MLA_FAMILY_VIT, BOTH(MIRROR), MIRROR(0, 0, false, 0), 0},
    {"pvt softmax", MLA_FAMILY_PVT, BOTH(SOFTMAX), PLAIN(0, false), 0.5},
    {"pvt relu", MLA_FAMILY_PVT, BOTH(RELU), PLAIN(0, true), 0},
    {"pvt elu1", MLA_FAMILY_PVT, BOTH(ELU1), PLAIN(3, true), 0},
    {"pvt efficient", MLA_FAMILY_PVT, BOTH(EFFICIENT), PLAIN(0, true), 0.5},
    {"pvt inline", MLA_FAMILY_PVT, BOTH(INLINE), PLAIN(0, false), 0},
    {"pvt agent", MLA_FAMILY_PVT, BOTH(AGENT), OTHER(.agent = {2}), 0},
    {"pvt agent, inline", MLA_FAMILY_PVT, {MLA_ATTENTION_AGENT, MLA_ATTENTION_INLINE}, OTHER(.agent = {3}), 0},
    {"pvt mirror", MLA_FAMILY_PVT, BOTH(MIRROR), MIRROR(2, 2, true, 2), 0.5},
    {"vit relu, gate", MLA_FAMILY_VIT, BOTH(RELU), OTHER(.gate = true), 0},
    {"vit performer", MLA_FAMILY_VIT, BOTH(PERFORMER), OTHER(.performer_features = 3), 0},
    {"pvt performer", MLA_FAMILY_PVT, BOTH(PERFORMER), OTHER(.performer_features = 0), 0},
    {"vit cosformer", MLA_FAMILY_VIT, BOTH(COSFORMER), PLAIN(3, true), 0},
    {"pvt cosformer", MLA_FAMILY_PVT, BOTH(COSFORMER), OTHER(.gate = true), 0},
    {"vit focused", MLA_FAMILY_VIT, BOTH(FOCUSED), OTHER(.focused_factor = 3), 0},
    {"pvt focused", MLA_FAMILY_PVT, BOTH(FOCUSED), OTHER(.focused_factor = 1.5), 0},
    {"vit pola", MLA_FAMILY_VIT, BOTH(POLA), PLAIN(3, true), 0},
    {"pvt pola", MLA_FAMILY_PVT, BOTH(POLA), PLAIN(0, false), 0},
    {"pvt relu, mirror", MLA_FAMILY_PVT, {MLA_ATTENTION_RELU, MLA_ATTENTION_MIRROR}, MIRROR(2, 2, true, 2), 0},
    MIRROR_MODELS,
};

typedef struct model_run {
    mla_model *model;
    mla_tensor images;
} model_run;

static mla_var build_model(mla_tape *tape, const mla_var *in, void *context) {
    static const uint64_t samples[] = {11, 12, 13};
    static const int labels[] = {1, 0, 2};
    const model_run *r = context;
    const mla_forward forward = {.training = true, .seed = 5, .epoch = 1, .samples = samples};
    const mla_var logits = mla_model_forward(r->model, tape, in[0], &forward);
    return mla_model_loss(r->model, tape, mla_cross_entropy(tape, logits, labels, NULL, 0.1));
}

START_TEST(whole_model) {
    const model_case *c = &models[_i];
    const bool pyramid = c->family == MLA_FAMILY_PVT;
    const mla_model_spec spec = {.family = c->family,
                                 .image = 4,
                                 .channels = 3,
                                 .classes = 3,
                                 .patch = pyramid ? 1 : 2,
                                 .stages = pyramid ? 2 : 1,
                                 .dims = {4, 8},
                                 .depths = {pyramid ? 1 : 2, 1},
                                 .heads = {1, 2},
                                 .mlp_ratio = 1.5,
                                 .drop_path = c->drop_path,
                                 .norm_eps = 1e-6,
                                 .kinds = {c->kinds[0], c->kinds[1]},
                                 .attention = c->attention};
    model_run r;
    mla_error error = {0};
    ck_assert_msg(mla_model_new(&r.model, &spec, &error) == MLA_OK, "%s", error.text);
    test_randomise(mla_model_params(r.model), 100, 0.6);
    mla_gradcheck check = {.build = build_model,
                           .context = &r,
                           .params = mla_model_params(r.model),
                           .inputs = 1,
                           .input = {test_tensor(9, SHAPE(3, 3, 4, 4))}};
    mla_gradcheck_result result;
    const mla_status status = mla_gradcheck_run(&check, &result, &error);
    ck_assert_msg(status == MLA_OK, "%s: %s", c->name, error.text);
    ck_assert_uint_eq(result.compared, mla_model_params(r.model)->count + 3 * 3 * 4 * 4);
    if (getenv("MLA_TEST_VERBOSE")) printf("%-63s %.1e\n", c->name, result.worst);
    mla_model_free(r.model);
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_loop_test(tcase, every_operation, 0, MLA_OP_COUNT);
    tcase_add_loop_test(tcase, every_operation_has_a_case_alone, 0, MLA_OP_COUNT);
    tcase_add_test(tcase, any_input_may_be_a_constant);
    tcase_add_test(tcase, every_gradient_is_added);
    tcase_add_test(tcase, every_case_names_an_operation);
    tcase_add_loop_test(tcase, whole_model, 0, (int)TEST_COUNT(models));
}

int main(void) { return test_main("gradcheck", (void (*const[])(TCase *)){all}, 1); }
