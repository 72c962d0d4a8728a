/* Gradient checks of the operations of the other papers' kinds; for test_gradcheck.c alone. */
#ifndef MLA_TESTS_GRADCHECK_KINDS_H
#define MLA_TESTS_GRADCHECK_KINDS_H

BUILD(soft_scale) { return mla_soft_scale(tape, in[0], in[1]); }
BUILD(soft_scale_view) { return mla_soft_scale(tape, mla_columns(tape, in[0], 3, 4), in[1]); }
BUILD(focused) { return mla_focused_features(tape, in[0], c->a, (double)c->b / 2); }
BUILD(focused_view) { return mla_focused_features(tape, mla_columns(tape, in[0], 1, 6), c->a, 3); }
BUILD(polar) { return mla_polar_features(tape, in[0], in[1], c->a, c->b); }
BUILD(polar_view) { return mla_polar_features(tape, mla_columns(tape, in[0], 1, 6), in[1], c->a, true); }
BUILD(cosine) { return mla_cosine_features(tape, in[0], c->a); }
BUILD(cosine_view) { return mla_cosine_features(tape, mla_columns(tape, in[0], 2, 6), c->a); }
/* a heads, b random features; map: of queries. */
BUILD(positive) {
    const size_t d = mla_value(tape, in[0]).shape[2] / c->a;
    return mla_positive_features(tape, in[0], mla_tape_input(tape, test_tensor(7, SHAPE(c->b, d))), c->a, c->map);
}
BUILD(positive_view) {
    return mla_positive_features(tape, mla_columns(tape, in[0], 3, 6), mla_tape_input(tape, test_tensor(7, SHAPE(4, 3))),
                                 c->a, c->map);
}
BUILD(product) { return mla_product(tape, in[0], in[1]); }
BUILD(product_square) { return mla_product(tape, in[0], in[0]); }
BUILD(channel_softmax) { return mla_channel_softmax(tape, in[0], c->a); }
BUILD(channel_softmax_view) { return mla_channel_softmax(tape, mla_columns(tape, in[0], 1, 6), c->a); }
BUILD(token_softmax) { return mla_token_softmax(tape, in[0]); }
BUILD(token_softmax_view) { return mla_token_softmax(tape, mla_columns(tape, in[0], 2, 5)); }
BUILD(state) { return mla_state_attention(tape, in[0], in[1], in[2], c->a, 1, false); }
BUILD(centred) { return mla_state_attention(tape, in[0], in[1], in[2], c->a, 0.3, true); }
BUILD(centred_thirds) {
    return mla_state_attention(tape, mla_columns(tape, in[0], 0, c->b), mla_columns(tape, in[0], c->b, c->b),
                               mla_columns(tape, in[0], 2 * c->b, c->b), c->a, 0.3, true);
}
BUILD(centred_itself) { return mla_state_attention(tape, in[0], in[0], in[0], c->a, 0.3, true); }
/* The whole of Efficient Attention. */
BUILD(efficient) {
    return mla_state_attention(tape, mla_channel_softmax(tape, in[0], c->a), mla_token_softmax(tape, in[1]), in[2], c->a, 1,
                               false);
}
BUILD(grid_pool) { return mla_grid_pool(tape, in[0], c->a, c->b); }
BUILD(grid_pool_view) { return mla_grid_pool(tape, mla_columns(tape, in[0], 1, 3), c->a, c->b); }

#define KINDS_CASES                                                                                                         \
    {"soft_scale", "three dimensions", soft_scale, IN({3, {2, 3, 5}}, {3, {5, 1, 1}})},                                     \
        {"soft_scale", "view of columns, more than a tile of rows", soft_scale_view, IN({2, {70, 9}}, {1, {4}})},           \
        {"focused_features", "cubes", focused, IN({3, {2, 3, 8}}), .a = 2, .b = 6, .away = 2e-3},                           \
        {"focused_features", "power of 2.5", focused, IN({3, {2, 3, 6}}), .a = 3, .b = 5, .away = 2e-3},                    \
        {"focused_features", "power of 1", focused, IN({2, {3, 4}}), .a = 1, .b = 2, .away = 2e-3},                         \
        {"focused_features", "view of columns", focused_view, IN({3, {1, 3, 9}}), .a = 2, .away = 2e-3},                    \
        {"polar_features", "crossed", polar, IN({3, {2, 3, 8}}, {3, {2, 1, 4}}), .a = 2, .b = 1, .away = 2e-3},             \
        {"polar_features", "not crossed, more than a tile of rows", polar, IN({3, {1, 70, 4}}, {3, {1, 1, 4}}), .a = 1,     \
         .away = 2e-3},                                                                                                     \
        {"polar_features", "view of columns", polar_view, IN({3, {2, 3, 9}}, {1, {6}}), .a = 3, .away = 2e-3},              \
        {"cosine_features", "two heads", cosine, IN({3, {2, 5, 6}}), .a = 2, .away = 2e-3},                                 \
        {"cosine_features", "one token", cosine, IN({3, {2, 1, 3}}), .a = 1, .away = 2e-3},                                 \
        {"cosine_features", "view of columns", cosine_view, IN({3, {2, 3, 9}}), .a = 3, .away = 2e-3},                      \
        {"positive_features", "queries", positive, IN({3, {2, 5, 6}}), .a = 2, .b = 7, .map = 1},                           \
        {"positive_features", "keys", positive, IN({3, {2, 5, 6}}), .a = 2, .b = 7},                                        \
        {"positive_features", "keys, one feature", positive, IN({3, {1, 3, 4}}), .a = 1, .b = 1},                           \
        {"positive_features", "queries, more than a tile", positive, IN({3, {1, 70, 2}}), .a = 2, .b = 3, .map = 1},        \
        {"positive_features", "keys, more than a tile", positive, IN({3, {1, 70, 2}}), .a = 1, .b = 3},                     \
        {"positive_features", "keys, view of columns", positive_view, IN({3, {2, 3, 11}}), .a = 2},                         \
        {"positive_features", "queries, view of columns", positive_view, IN({3, {2, 3, 11}}), .a = 2, .map = 1},            \
        {"product", "apart", product, IN({3, {2, 3, 5}}, {3, {2, 3, 5}})},                                                  \
        {"product", "a square", product_square, IN({2, {3, 5}})},                                                           \
        {"channel_softmax", "two heads", channel_softmax, IN({3, {2, 3, 6}}), .a = 2},                                      \
        {"channel_softmax", "heads of one channel", channel_softmax, IN({3, {1, 2, 3}}), .a = 3},                           \
        {"channel_softmax", "view of columns", channel_softmax_view, IN({3, {2, 3, 9}}), .a = 1},                           \
        {"token_softmax", "two images", token_softmax, IN({3, {2, 5, 3}})},                                                 \
        {"token_softmax", "one token", token_softmax, IN({3, {2, 1, 3}})},                                                  \
        {"token_softmax", "two blocks of tokens", token_softmax, IN({3, {1, 70, 2}})},                                      \
        {"token_softmax", "view of columns", token_softmax_view, IN({3, {2, 4, 9}})},                                       \
        {"state_attention", "plain, two heads", state, IN({3, {2, 5, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}), .a = 2},         \
        {"state_attention", "plain, two tiles of tokens", state, IN({3, {1, 99, 2}}, {3, {1, 99, 2}}, {3, {1, 99, 2}}),     \
         .a = 1},                                                                                                           \
        {"state_attention", "Efficient Attention", efficient, IN({3, {2, 5, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}), .a = 2},  \
        {"state_attention", "centred, two heads", centred, IN({3, {2, 5, 6}}, {3, {2, 5, 6}}, {3, {2, 5, 6}}), .a = 2},     \
        {"state_attention", "centred, one token", centred, IN({3, {2, 1, 4}}, {3, {2, 1, 4}}, {3, {2, 1, 4}}), .a = 2},     \
        {"state_attention", "centred, two tiles of tokens", centred, IN({3, {1, 99, 2}}, {3, {1, 99, 2}}, {3, {1, 99, 2}}), \
         .a = 1},                                                                                                           \
        {"state_attention", "centred, thirds of one tensor", centred_thirds, IN({3, {2, 4, 18}}), .a = 3, .b = 6},          \
        {"state_attention", "centred, q, k and v are one", centred_itself, IN({3, {2, 4, 6}}), .a = 2},                     \
        {"grid_pool", "cells that divide the grid", grid_pool, IN({3, {2, 16, 3}}), .a = 4, .b = 2},                        \
        {"grid_pool", "cells that overlap", grid_pool, IN({3, {2, 25, 2}}), .a = 5, .b = 3},                                \
        {"grid_pool", "one cell", grid_pool, IN({3, {2, 9, 2}}), .a = 3, .b = 1}, {                                         \
        "grid_pool", "view of columns", grid_pool_view, IN({3, {1, 9, 5}}), .a = 3, .b = 2                                  \
    }

#endif
