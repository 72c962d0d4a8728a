/* Gradient checks of the operations of the mirror's options; for test_gradcheck.c alone. */
#ifndef MLA_TESTS_GRADCHECK_MIRROR_H
#define MLA_TESTS_GRADCHECK_MIRROR_H

BUILD(pair_angle_own) { return mla_pair_angle(tape, in[0], in[1], in[2], 1.5, true); }
BUILD(plane_basis) { return mla_plane_basis(tape, in[0], in[1]); }
/* a: angles of their own. */
BUILD(plane_angle) { return mla_plane_angle(tape, in[0], in[1], in[2], in[3], 1.5, c->a != 0); }
BUILD(plane_angle_view) {
    const mla_var planes = mla_plane_basis(tape, in[3], in[4]);
    return mla_plane_angle(tape, mla_columns(tape, in[0], 3, 12), in[1], in[2], planes, 0.7, c->a != 0);
}
BUILD(scale_modulation) { return mla_scale_modulation(tape, in[0], in[1]); }
BUILD(scale_modulation_view) { return mla_scale_modulation(tape, mla_columns(tape, in[0], 1, 6), in[1]); }
BUILD(head_norm) { return mla_head_norm(tape, in[0], in[1], c->a); }
BUILD(head_norm_view) { return mla_head_norm(tape, mla_columns(tape, in[0], 2, 12), in[1], c->a); }
BUILD(fold_reflect) { return mla_fold_reflect(tape, in[0], in[1]); }
BUILD(fold_reflect_view) { return mla_fold_reflect(tape, mla_columns(tape, in[0], 1, 12), in[1]); }
BUILD(fold_reflect_twice) { return mla_fold_reflect(tape, mla_fold_reflect(tape, in[0], in[1]), in[1]); }
BUILD(block_turn) { return mla_block_turn(tape, in[0], in[1]); }
BUILD(block_turn_view) { return mla_block_turn(tape, mla_columns(tape, in[0], 2, 8), in[1]); }
BUILD(features) { return mla_relu_features(tape, in[0], MLA_NO_VAR, c->a, (mla_feature_kept)c->map); }
BUILD(features_view) {
    return mla_relu_features(tape, mla_columns(tape, in[0], 1, 8), MLA_NO_VAR, c->a, (mla_feature_kept)c->map);
}
BUILD(features_twin) { return mla_relu_features(tape, in[0], in[1], c->a, MLA_KEPT_TWIN); }
BUILD(features_itself) { return mla_relu_features(tape, in[0], in[0], c->a, MLA_KEPT_TWIN); }
/* Of features, as the power takes no negative numbers; b: twice the exponent when there is none to learn. */
BUILD(power_learned) {
    return mla_feature_power(tape, mla_relu_features(tape, in[0], MLA_NO_VAR, c->a, (mla_feature_kept)c->map), in[1], c->a,
                             0);
}
BUILD(power_given) {
    return mla_feature_power(tape, mla_relu_features(tape, in[0], MLA_NO_VAR, c->a, (mla_feature_kept)c->map), MLA_NO_VAR,
                             c->a, (double)c->b / 2);
}
BUILD(power_alone) { return mla_feature_power(tape, in[0], c->b ? MLA_NO_VAR : in[1], c->a, (double)c->b / 2); }
BUILD(retention) { return mla_retention(tape, in[0], c->a); }
BUILD(retention_view) { return mla_retention(tape, mla_columns(tape, in[0], 3, 8), c->a); }

BUILD(mirror_bare) {
    return mla_mirror_attention(tape, in[0], MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR, c->a, (mla_feature_kept)c->map, 0, 1e-2);
}

#define MIRROR_CASES                                                                                                        \
    {"pair_angle", "angles of their own", pair_angle_own, IN({3, {2, 5, 16}}, {1, {4}}, {1, {4}})},                         \
        {"plane_basis", "three planes", plane_basis, IN({2, {3, 4}}, {2, {3, 4}})},                                         \
        {"plane_basis", "of two channels", plane_basis, IN({3, {2, 1, 2}}, {3, {2, 1, 2}})},                                \
        {"plane_angle", "four blocks", plane_angle, IN({3, {2, 5, 24}}, {1, {4}}, {1, {4}}, {3, {4, 2, 3}})},               \
        {"plane_angle", "four blocks, angles of their own", plane_angle,                                                    \
         IN({3, {2, 5, 24}}, {1, {4}}, {1, {4}}, {3, {4, 2, 3}}), .a = 1},                                                  \
        {"plane_angle", "one block", plane_angle, IN({3, {2, 3, 10}}, {1, {1}}, {1, {1}}, {3, {1, 2, 5}})},                 \
        {"plane_angle", "one token", plane_angle, IN({3, {2, 1, 8}}, {1, {2}}, {1, {2}}, {3, {2, 2, 2}})},                  \
        {"plane_angle", "view of columns, planes of any vectors", plane_angle_view,                                         \
         IN({3, {2, 4, 17}}, {1, {2}}, {1, {2}}, {2, {2, 3}}, {2, {2, 3}})},                                                \
        {"plane_angle", "view of columns, angles of their own", plane_angle_view,                                           \
         IN({3, {2, 4, 17}}, {1, {2}}, {1, {2}}, {2, {2, 3}}, {2, {2, 3}}), .a = 1},                                        \
        {"scale_modulation", "three channels", scale_modulation, IN({3, {2, 5, 6}}, {1, {3}})},                             \
        {"scale_modulation", "view of columns", scale_modulation_view, IN({3, {2, 4, 9}}, {1, {3}})},                       \
        {"scale_modulation", "more tokens than a block of the sum", scale_modulation, IN({3, {1, 70, 4}}, {1, {2}})},       \
        {"head_norm", "two heads", head_norm, IN({3, {2, 3, 12}}, {2, {2, 6}}), .a = 2},                                    \
        {"head_norm", "one head, view of columns", head_norm_view, IN({3, {2, 3, 15}}, {2, {2, 6}}), .a = 1},               \
        {"fold_reflect", "one mirror", fold_reflect, IN({3, {2, 5, 12}}, {4, {2, 1, 1, 3}})},                               \
        {"fold_reflect", "three mirrors of two blocks, view", fold_reflect_view, IN({3, {2, 5, 14}}, {4, {1, 2, 3, 3}})},   \
        {"fold_reflect", "one layer twice", fold_reflect_twice, IN({3, {2, 3, 8}}, {4, {2, 1, 2, 2}})},                     \
        {"block_turn", "two reflections", block_turn, IN({3, {2, 3, 12}}, {4, {1, 2, 2, 3}})},                              \
        {"block_turn", "three reflections of whole heads, view", block_turn_view, IN({3, {2, 3, 11}}, {4, {2, 1, 3, 2}})},  \
        {"block_turn", "blocks of one", block_turn, IN({3, {1, 2, 4}}, {4, {2, 1, 1, 1}})},                                 \
        {"relu_features", "relu", features, IN({3, {2, 3, 8}}), .a = 2, .map = MLA_KEPT_RELU, .away = 2e-3},                \
        {"relu_features", "split", features, IN({3, {2, 3, 8}}), .a = 2, .map = MLA_KEPT_SPLIT, .away = 2e-3},              \
        {"relu_features", "split, view of columns", features_view, IN({3, {2, 3, 11}}),                                     \
         .a = 1,          .map = MLA_KEPT_SPLIT,    .away = 2e-3},                                                          \
        {"relu_features", "twin", features_twin, IN({3, {2, 3, 8}}, {3, {2, 3, 8}}), .a = 2, .away = 2e-3},                 \
        {"relu_features", "x is its own twin", features_itself, IN({3, {2, 3, 8}}), .a = 4, .away = 2e-3},                  \
        {"feature_power",      "learned",   power_learned, IN({3, {2, 3, 8}}, {3, {2, 1, 2}}), .a = 2,                      \
         .map = MLA_KEPT_RELU, .away = 0.05},                                                                               \
        {"feature_power", "learned, of both halves", power_learned, IN({3, {2, 3, 12}}, {3, {2, 1, 3}}),                    \
         .a = 2,          .map = MLA_KEPT_SPLIT,     .away = 0.05},                                                         \
        {"feature_power", "three", power_given, IN({3, {2, 3, 8}}), .a = 2, .b = 6, .map = MLA_KEPT_SPLIT, .away = 2e-3},   \
        {"feature_power", "one", power_given, IN({3, {2, 3, 8}}), .a = 2, .b = 2, .map = MLA_KEPT_RELU, .away = 2e-3},      \
        {"feature_power", "learned, alone", power_alone,     IN({3, {2, 3, 8}}, {3, {2, 1, 2}}),                            \
         .a = 2,          .away = 0.05,     .positive = true},                                                              \
        {"feature_power", "three, alone", power_alone, IN({3, {2, 3, 8}}), .a = 2, .b = 6, .away = 0.05, .positive = true}, \
        {"feature_power", "two, alone", power_alone, IN({3, {2, 3, 8}}), .a = 2, .b = 4, .away = 0.05, .positive = true},   \
        {"feature_power", "1.5, alone", power_alone, IN({3, {2, 3, 8}}), .a = 2, .b = 3, .away = 0.05, .positive = true},   \
        {"retention", "two heads", retention, IN({3, {3, 4, 12}}), .a = 2, .away = 2e-3},                                   \
        {"retention", "one head, view of columns", retention_view, IN({3, {2, 3, 13}}), .a = 1, .away = 2e-3},              \
        {"mirror_attention",                                                                                                \
         "split, angle and two reflections",                                                                                \
         mirror,                                                                                                            \
         IN({3, {2, 5, 48}}, {1, {8}}, {1, {8}}, {2, {2, 16}}),                                                             \
         .a = 2,                                                                                                            \
         .map = MLA_KEPT_SPLIT},                                                                                            \
        {"mirror_attention", "split alone", mirror_bare, IN({3, {2, 5, 48}}), .a = 4, .map = MLA_KEPT_SPLIT, .away = 2e-3}, \
        {"mirror_attention",                                                                                                \
         "split, heads of one, three reflections",                                                                          \
         mirror_cross,                                                                                                      \
         IN({3, {1, 4, 48}}, {2, {3, 16}}),                                                                                 \
         .a = 16,                                                                                                           \
         .map = MLA_KEPT_SPLIT},                                                                                            \
    {                                                                                                                       \
        "mirror_attention", "split, two tiles of tokens, view", mirror_view,                                                \
            IN({3, {1, 50, 53}}, {1, {8}}, {1, {8}}, {2, {2, 16}}), .a = 2, .map = MLA_KEPT_SPLIT                           \
    }

/* ---- models, as MIRROR of test_gradcheck.c makes them, with options */

#define MIRROR_WITH(b, r, rx, ...)                                                                                          \
    {                                                                                                                       \
        .dwconv = 3, .qkv_bias = true, .eps = 1e-3, .mirror = {                                                             \
            .block = b,                                                                                                     \
            .reflections = r,                                                                                               \
            .variance_angle = true,                                                                                         \
            .angle_max = 1.5,                                                                                               \
            .cross_head = rx,                                                                                               \
            __VA_ARGS__                                                                                                     \
        }                                                                                                                   \
    }
#define OPTIONS(name, family, ...)                                                                                          \
    { "mirror, " name, MLA_FAMILY_##family, BOTH(MIRROR), MIRROR_WITH(__VA_ARGS__), 0 }

#define MIRROR_MODELS                                                                                                       \
    OPTIONS("split, retention", VIT, 2, 2, 2, .feature = MLA_KEPT_SPLIT, .retention_loss = 0.5),                            \
        OPTIONS("retention alone", PVT, 2, 2, 2, .retention_loss = 2),                                                      \
        OPTIONS("twin of whole heads", VIT, 0, 0, 1, .feature = MLA_KEPT_TWIN, .twin_reflections = 3),                      \
        OPTIONS("twin of the other number of reflections", PVT, 2, 3, 0, .feature = MLA_KEPT_TWIN),                         \
        OPTIONS("planes, own angles", VIT, 2, 1, 2, .angle_planes = MLA_PLANES_LEARNED, .angle_source = MLA_ANGLE_OWN),     \
        OPTIONS("planes of whole heads", PVT, 0, 2, 2, .angle_planes = MLA_PLANES_LEARNED),                                 \
        OPTIONS("own angles", VIT, 2, 2, 2, .angle_source = MLA_ANGLE_OWN),                                                 \
        OPTIONS("norm, scale, fold", VIT, 2, 2, 2, .qk_norm = MLA_QK_NORM_RMS, .scale_modulation = true, .fold = 2),        \
        OPTIONS("learned power, split", VIT, 2, 2, 1, .power = MLA_POWER_LEARNED, .feature = MLA_KEPT_SPLIT),               \
        OPTIONS("fixed power", VIT, 2, 2, 1, .power = MLA_POWER_FIXED, .exponent = 2),                                      \
        OPTIONS("everything", PVT, 2, 2, 2, .qk_norm = MLA_QK_NORM_RMS, .scale_modulation = true, .fold = 1,                \
                .angle_planes = MLA_PLANES_LEARNED, .angle_source = MLA_ANGLE_OWN, .feature = MLA_KEPT_TWIN,                \
                .power = MLA_POWER_LEARNED, .retention_loss = 0.25)

#endif
