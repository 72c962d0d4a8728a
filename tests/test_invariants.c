/* What operations keep, and what they are equal to: definitions written out plainly, composed twins, extreme values. */
#include <stdio.h>

#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 2e-5 : 1e-12;

/* A graph of up to four inputs: its result and the gradients of sum(y dy), dy random. */
enum { MOST = 4 };
typedef struct graph {
    mla_tensor in[MOST], y;
    real *gradient[MOST];
    int inputs;
} graph;

typedef mla_var builder(mla_tape *tape, const mla_var *in);

static void run(graph *g, builder *build) {
    mla_tape *tape = test_tape();
    mla_var in[MOST];
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    for (g->inputs = 0; g->inputs < MOST && g->in[g->inputs].data; g->inputs++) {
        g->gradient[g->inputs] = test_reals(mla_tensor_count(&g->in[g->inputs]));
        in[g->inputs] = mla_tape_leaf(tape, g->in[g->inputs], g->gradient[g->inputs]);
    }
    const mla_var y = build(tape, in);
    g->y = mla_value(tape, y);
    ck_assert_msg(mla_tape_backward(tape, y, test_normal(mla_tensor_count(&g->y), 77), &error) == MLA_OK, "%s", error.text);
}

/* Both graphs over the same inputs: same values, same gradients. */
static void same(const char *what, graph *g, builder *one, builder *other) {
    graph twin = *g;
    char place[128];
    run(g, one);
    run(&twin, other);
    ck_assert_uint_eq(mla_tensor_count(&g->y), mla_tensor_count(&twin.y));
    test_scaled_close(what, g->y.data, twin.y.data, mla_tensor_count(&g->y), CLOSE);
    for (int i = 0; i < g->inputs; i++) {
        snprintf(place, sizeof place, "%s, gradient of input %d", what, i);
        test_scaled_close(place, g->gradient[i], twin.gradient[i], mla_tensor_count(&g->in[i]), CLOSE);
    }
}

static void all_finite(const char *what, const graph *g) {
    test_finite(what, g->y.data, mla_tensor_count(&g->y));
    for (int i = 0; i < g->inputs; i++) test_finite(what, g->gradient[i], mla_tensor_count(&g->in[i]));
}

/* ---- reflections */

/* matrix (n, n) = H(v_1) ... H(v_r), rows multiplied from the left: x matrix applies v_1 first. */
static void reflection_product(double *matrix, const real *v, size_t r, size_t n) {
    for (size_t i = 0; i < n * n; i++) matrix[i] = i % (n + 1) == 0;
    for (size_t k = 0; k < r; k++, v += n) {
        double squares = 0;
        for (size_t i = 0; i < n; i++) squares += (double)v[i] * (double)v[i];
        for (size_t row = 0; row < n && squares > 0; row++) {
            double dot = 0;
            for (size_t i = 0; i < n; i++) dot += matrix[row * n + i] * (double)v[i];
            for (size_t i = 0; i < n; i++) matrix[row * n + i] -= 2 * dot / squares * (double)v[i];
        }
    }
}

static mla_var cross(mla_tape *tape, const mla_var *in) { return mla_cross_reflect(tape, in[0], in[1]); }
static mla_var block(mla_tape *tape, const mla_var *in) { return mla_block_reflect(tape, in[0], in[1]); }

START_TEST(cross_reflect_is_the_product_of_reflections) {
    const size_t r = (size_t)_i, n = 6, rows = 2 * 5 * 2;
    graph g = {.in = {test_tensor(1, SHAPE(2, 5, 2 * n)), test_tensor(2, SHAPE(r, n))}};
    double matrix[36];
    real *want = test_reals(rows * n);
    run(&g, cross);
    reflection_product(matrix, g.in[1].data, r, n);
    for (size_t i = 0; i < rows * n; i++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++) sum += (double)g.in[0].data[i / n * n + j] * matrix[j * n + i % n];
        want[i] = (real)sum;
    }
    test_close("cross_reflect", g.y.data, want, rows * n, CLOSE);
}
END_TEST

/* Tokens times P, for q and k, are what the folded projection gives. */
START_TEST(block_reflect_is_the_matrix_on_tokens) {
    enum { HEADS = 2, BLOCKS = 2, R = 3, B = 3, C = HEADS * BLOCKS * B, IN = 5, TOKENS = 7 };
    const mla_tensor w = test_tensor(1, SHAPE(3 * C, IN)), v = test_tensor(2, SHAPE(HEADS, BLOCKS, R, B));
    const mla_tensor bias = test_tensor(3, SHAPE(3 * C)), x = test_tensor(4, SHAPE(TOKENS, IN));
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var vectors = mla_tape_input(tape, v), token = mla_tape_input(tape, x);
    const mla_var folded =
        mla_linear(tape, token, mla_block_reflect(tape, mla_tape_input(tape, w), vectors),
                   mla_block_reflect(tape, mla_tape_input(tape, bias), vectors), MLA_NO_VAR, MLA_IDENTITY);
    const real *plain = mla_value(tape, mla_linear(tape, token, mla_tape_input(tape, w), mla_tape_input(tape, bias),
                                                   MLA_NO_VAR, MLA_IDENTITY))
                            .data;
    real *want = test_reals(TOKENS * 3 * C);
    memcpy(want, plain, TOKENS * 3 * C * sizeof(real));
    for (size_t part = 0; part < (size_t)2 * HEADS * BLOCKS; part++) {
        double p[B * B];
        reflection_product(p, v.data + part % (HEADS * BLOCKS) * R * B, R, B);
        for (size_t t = 0; t < TOKENS; t++)
            for (size_t j = 0; j < B; j++) {
                double sum = 0;
                for (size_t i = 0; i < B; i++) sum += (double)plain[t * 3 * C + part * B + i] * p[i * B + j];
                want[t * 3 * C + part * B + j] = (real)sum;
            }
    }
    test_close("folded projection", mla_value(tape, folded).data, want, TOKENS * 3 * C, CLOSE);
}
END_TEST

static real *repeated(const real *v, size_t n) {
    real *twice = test_reals(2 * n);
    memcpy(twice, v, n * sizeof(real));
    for (size_t i = 0; i < n; i++) twice[n + i] = REAL(-3.5) * v[i]; /* the same mirror, whatever the length and sign */
    return twice;
}

START_TEST(a_reflection_undoes_itself) {
    graph g = {.in = {test_tensor(1, SHAPE(2, 3, 10)), mla_tensor_make(repeated(test_normal(5, 2), 5), SHAPE(2, 5))}};
    run(&g, cross);
    test_close("H(Hx)", g.y.data, g.in[0].data, 60, CLOSE);
    graph folded = {
        .in = {test_tensor(3, SHAPE(15, 4)), mla_tensor_make(repeated(test_normal(5, 4), 5), SHAPE(1, 1, 2, 5))}};
    run(&folded, block);
    test_close("P^T W with P = HH", folded.y.data, folded.in[0].data, 60, CLOSE);
}
END_TEST

static double norm(const real *x, size_t n, size_t stride) {
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i * stride] * (double)x[i * stride];
    return sqrt(squares);
}

static mla_var angle(mla_tape *tape, const mla_var *in) { return mla_pair_angle(tape, in[0], in[1], in[2], 1.5, false); }

START_TEST(isometries_keep_norms) {
    graph g = {.in = {test_tensor(1, SHAPE(2, 9, 16)), test_tensor(2, SHAPE(3, 8))}};
    run(&g, cross);
    for (size_t i = 0; i < 36; i++)
        ck_assert_double_eq_tol(norm(g.y.data + 8 * i, 8, 1), norm(g.in[0].data + 8 * i, 8, 1), CLOSE);
    graph turned = {.in = {g.in[0], test_tensor(3, SHAPE(4)), test_tensor(4, SHAPE(4))}};
    run(&turned, angle);
    for (size_t i = 0; i < 144; i++)
        ck_assert_double_eq_tol(norm(turned.y.data + 2 * i, 2, 1), norm(g.in[0].data + 2 * i, 2, 1), CLOSE);
    graph folded = {.in = {test_tensor(5, SHAPE(24, 6)), test_tensor(6, SHAPE(2, 1, 3, 4))}};
    run(&folded, block);
    for (size_t part = 0; part < 4; part++)
        for (size_t j = 0; j < 6; j++)
            ck_assert_double_eq_tol(norm(folded.y.data + 24 * part + j, 4, 6), norm(folded.in[0].data + 24 * part + j, 4, 6),
                                    CLOSE);
    test_close("rows of v", folded.y.data + 96, folded.in[0].data + 96, 48, 0);
}
END_TEST

/* One of two vectors has an extreme length: finite everywhere, and the operation is still a product of reflections. */
START_TEST(extreme_reflection_vectors) {
    static const double length[] = {0, 1e-30, 1e-18, 1e18, 1e20};
    enum { N = 8 };
    real *v = test_normal(2 * N, 3);
    const double scale = length[_i] / norm(v, N, 1);
    for (size_t i = 0; i < N; i++) v[i] = (real)(scale * (double)v[i]);
    mla_tensor identity = mla_tensor_make(test_reals(2 * N * N), SHAPE(1, N, 2 * N));
    for (size_t i = 0; i < N; i++) identity.data[i * 2 * N + i] = identity.data[i * 2 * N + N + i] = 1;
    graph g = {.in = {identity, mla_tensor_make(v, SHAPE(2, N))}};
    run(&g, cross);
    all_finite("cross_reflect", &g);
    for (size_t i = 0; i < N; i++)
        for (size_t j = 0; j < N; j++) {
            double dot = 0;
            for (size_t k = 0; k < N; k++) dot += (double)g.y.data[i * 2 * N + k] * (double)g.y.data[j * 2 * N + k];
            ck_assert_double_eq_tol(dot, i == j, 1e-5);
        }
    double matrix[N * N];
    reflection_product(matrix, v, 2, N);
    for (size_t i = 0; i < N * N; i++) ck_assert_double_eq_tol((double)g.y.data[i / N * 2 * N + i % N], matrix[i], 1e-5);
    if (_i == 0) test_close("gradient of a zero vector", g.gradient[1], test_reals(N), N, 0);
    graph folded = {.in = {test_tensor(5, SHAPE(3 * N, 3)), mla_tensor_make(v, SHAPE(1, 1, 2, N))}};
    run(&folded, block);
    all_finite("block_reflect", &folded);
    ck_assert_double_eq_tol(norm(folded.y.data, 3 * N, 1), norm(folded.in[0].data, 3 * N, 1), 1e-4);
    if (_i == 0) test_close("gradient of a zero vector", folded.gradient[1], test_reals(N), N, 0);
}
END_TEST

/* ---- attention */

static mla_var softmax(mla_tape *tape, const mla_var *in) { return mla_softmax_attention(tape, in[0], in[1], in[2], 2); }
static mla_var relu(mla_tape *tape, const mla_var *in) {
    return mla_linear_attention(tape, in[0], in[1], in[2], 2, MLA_FEATURE_RELU, 1e-6);
}
static mla_var elu1(mla_tape *tape, const mla_var *in) {
    return mla_linear_attention(tape, in[0], in[1], in[2], 2, MLA_FEATURE_ELU1, 1e-6);
}

static double feature(builder *kind, double x) { return x > 0 ? (kind == elu1 ? x + 1 : x) : kind == elu1 ? exp(x) : 0; }

/* weight (N) of the tokens for query n of one head. */
static void attention_weights(double *weight, builder *kind, const real *q, const real *k, size_t tokens, size_t c,
                              size_t d) {
    double sum = 0, largest = -INFINITY;
    for (size_t m = 0; m < tokens; m++) {
        weight[m] = 0;
        for (size_t i = 0; i < d; i++) {
            const double a = (double)q[i], b = (double)k[m * c + i];
            weight[m] += kind == softmax ? a * b / sqrt((double)d) : feature(kind, a) * feature(kind, b) / (double)tokens;
        }
        largest = fmax(largest, weight[m]);
    }
    for (size_t m = 0; m < tokens; m++) sum += weight[m] = kind == softmax ? exp(weight[m] - largest) : weight[m];
    for (size_t m = 0; m < tokens; m++) weight[m] /= sum + (kind == softmax ? 0 : 1e-6);
}

/* By the definition, with all N x N weights. */
static real *attention(builder *kind, const mla_tensor *in) {
    const size_t images = in[0].shape[0], tokens = in[0].shape[1], c = in[0].shape[2], d = c / 2;
    real *y = test_reals(images * tokens * c);
    double *weight = calloc(tokens, sizeof *weight);
    test_adopt(weight);
    for (size_t b = 0; b < images; b++)
        for (size_t h = 0; h < 2; h++)
            for (size_t n = 0; n < tokens; n++) {
                const size_t at = b * tokens * c + h * d;
                attention_weights(weight, kind, in[0].data + at + n * c, in[1].data + at, tokens, c, d);
                for (size_t i = 0; i < d; i++) {
                    double sum = 0;
                    for (size_t m = 0; m < tokens; m++) sum += weight[m] * (double)in[2].data[at + m * c + i];
                    y[at + n * c + i] = (real)sum;
                }
            }
    return y;
}

START_TEST(attention_is_its_definition) {
    static builder *const kinds[] = {softmax, relu, elu1};
    static const size_t tokens[] = {1, 7, 64, 65, 131};
    for (size_t t = 0; t < TEST_COUNT(tokens); t++) {
        const size_t n = tokens[t];
        graph g = {
            .in = {test_tensor(1, SHAPE(2, n, 10)), test_tensor(2, SHAPE(2, n, 10)), test_tensor(3, SHAPE(2, n, 10))}};
        run(&g, kinds[_i]);
        test_close("attention", g.y.data, attention(kinds[_i], g.in), 2 * n * 10, CLOSE);
    }
}
END_TEST

static void scale(mla_tensor *t, double factor) {
    for (size_t i = 0; i < mla_tensor_count(t); i++) t->data[i] = (real)(factor * (double)t->data[i]);
}

/* Linear attention with large, small and many values. */
START_TEST(attention_stays_finite) {
    static builder *const kinds[] = {softmax, relu, elu1};
    static const double size[] = {1e4, 1, 1e-4, 1e-20};
    for (size_t s = 0; s < TEST_COUNT(size); s++) {
        graph g = {
            .in = {test_tensor(1, SHAPE(1, 512, 8)), test_tensor(2, SHAPE(1, 512, 8)), test_tensor(3, SHAPE(1, 512, 8))}};
        scale(&g.in[0], size[s]);
        scale(&g.in[1], size[s]);
        run(&g, kinds[_i]);
        all_finite("attention", &g);
        /* A weighted mean of v (less than one where the floor acts): never outside of its range. */
        for (size_t i = 0; i < mla_tensor_count(&g.y); i++) ck_assert_double_lt(fabs((double)g.y.data[i]), 5);
    }
}
END_TEST

START_TEST(attention_over_many_tokens) {
    enum { N = 4096, C = 8 };
    builder *kind = _i ? elu1 : relu;
    graph g = {.in = {test_tensor(1, SHAPE(1, N, C)), test_tensor(2, SHAPE(1, N, C)), test_tensor(3, SHAPE(1, N, C))}};
    run(&g, kind);
    all_finite("linear attention", &g);
    /* The first queries against all tokens; the whole definition would take N^2. */
    real *want = test_reals(8 * C);
    double *weight = calloc(N, sizeof *weight);
    test_adopt(weight);
    for (size_t i = 0; i < 8 * C; i++) {
        const size_t n = i / C, first = i % C / 4 * 4;
        double sum = 0;
        attention_weights(weight, kind, g.in[0].data + n * C + first, g.in[1].data + first, N, C, 4);
        for (size_t m = 0; m < N; m++) sum += weight[m] * (double)g.in[2].data[m * C + i % C];
        want[i] = (real)sum;
    }
    test_close("linear attention", g.y.data, want, 8 * C, CLOSE);
}
END_TEST

/* Rows without a positive feature: y = 0 there, no gradient of q; with all keys dead too everything is zero. */
START_TEST(dead_rows_give_zero) {
    graph g = {.in = {test_tensor(1, SHAPE(1, 5, 8)), test_tensor(2, SHAPE(1, 5, 8)), test_tensor(3, SHAPE(1, 5, 8))}};
    for (size_t i = 8; i < 16; i++) g.in[0].data[i] = -(real)fabs((double)g.in[0].data[i]);
    run(&g, relu);
    all_finite("dead query", &g);
    test_close("y of a dead query", g.y.data + 8, test_reals(8), 8, 0);
    test_close("gradient of a dead query", g.gradient[0] + 8, test_reals(8), 8, 0);
    for (size_t i = 0; i < 40; i++) g.in[_i].data[i] = -(real)fabs((double)g.in[_i].data[i]);
    run(&g, relu);
    all_finite("all dead", &g);
    test_close("y of all dead", g.y.data, test_reals(40), 40, 0);
}
END_TEST

/* ---- depthwise convolution */

enum { HEIGHT = 3, WIDTH = 4 };

typedef struct filter_case {
    size_t channels, side, height, width;
} filter_case;

static const filter_case filters[] = {{5, 3, 3, 4},  {32, 3, 2, 3}, {35, 5, 4, 3}, {70, 3, 5, 5}, {3, 3, 1, 1},
                                      {33, 7, 2, 1}, {2, 9, 3, 2},  {4, 1, 2, 2},  {6, 5, 1, 6}};
static const filter_case *filter;

static mla_var convolution(mla_tape *tape, const mla_var *in) {
    return mla_depthwise_conv(tape, in[0], in[1], in[2], MLA_NO_VAR, filter->height, filter->width);
}

START_TEST(depthwise_conv_is_its_definition) {
    filter = &filters[_i];
    const size_t c = filter->channels, k = filter->side, tokens = filter->height * filter->width;
    graph g = {.in = {test_tensor(1, SHAPE(2, tokens, c)), test_tensor(2, SHAPE(c, 1, k, k)), test_tensor(3, SHAPE(c))}};
    real *want = test_reals(2 * tokens * c);
    for (size_t i = 0; i < 2 * tokens * c; i++) {
        const size_t channel = i % c, column = i / c % filter->width, row = i / c % tokens / filter->width;
        const size_t image = i / c / tokens;
        double sum = (double)g.in[2].data[channel];
        for (size_t u = 0; u < k; u++)
            for (size_t v = 0; v < k; v++) {
                const size_t y = row + u - k / 2, x = column + v - k / 2; /* wraps to huge when outside */
                if (y >= filter->height || x >= filter->width) continue;
                sum += (double)g.in[1].data[(channel * k + u) * k + v] *
                       (double)g.in[0].data[(image * tokens + y * filter->width + x) * c + channel];
            }
        want[i] = (real)sum;
    }
    run(&g, convolution);
    test_close("depthwise_conv", g.y.data, want, 2 * tokens * c, CLOSE);
    all_finite("depthwise_conv", &g);
}
END_TEST

/* ---- fused operations and their composed twins */

static mla_var fused_gelu(mla_tape *tape, const mla_var *in) {
    return mla_linear(tape, in[0], in[1], in[2], MLA_NO_VAR, MLA_GELU);
}
static mla_var composed_gelu(mla_tape *tape, const mla_var *in) {
    return mla_gelu(tape, mla_linear(tape, in[0], in[1], in[2], MLA_NO_VAR, MLA_IDENTITY));
}
static mla_var fused_residual(mla_tape *tape, const mla_var *in) {
    return mla_linear(tape, in[0], in[1], in[2], in[3], MLA_IDENTITY);
}
static mla_var composed_residual(mla_tape *tape, const mla_var *in) {
    return mla_residual(tape, in[3], mla_linear(tape, in[0], in[1], in[2], MLA_NO_VAR, MLA_IDENTITY), NULL);
}
static mla_var fused_conv(mla_tape *tape, const mla_var *in) {
    return mla_depthwise_conv(tape, in[0], in[1], in[2], in[3], HEIGHT, WIDTH);
}
static mla_var composed_conv(mla_tape *tape, const mla_var *in) {
    return mla_residual(tape, in[3], mla_depthwise_conv(tape, in[0], in[1], in[2], MLA_NO_VAR, HEIGHT, WIDTH), NULL);
}
static mla_var kept_path(mla_tape *tape, const mla_var *in) {
    static const double uniform[] = {0.5, 0.75}; /* at and above the rate: kept */
    return mla_drop_path(tape, in[0], in[1], 0.5, uniform);
}
static mla_var scaled_path(mla_tape *tape, const mla_var *in) {
    static const real two[] = {2, 2};
    return mla_residual(tape, in[0], in[1], two);
}
static mla_var dropped_path(mla_tape *tape, const mla_var *in) {
    static const double uniform[] = {0.4999, 0};
    return mla_drop_path(tape, in[0], in[1], 0.5, uniform);
}
static mla_var no_path(mla_tape *tape, const mla_var *in) {
    static const real none[] = {0, 0};
    return mla_residual(tape, in[0], in[1], none);
}
static mla_var no_rate(mla_tape *tape, const mla_var *in) { return mla_drop_path(tape, in[0], in[1], 0, NULL); }
static mla_var plain_sum(mla_tape *tape, const mla_var *in) { return mla_residual(tape, in[0], in[1], NULL); }

/* The mirror of width 32, 4 heads: in one pass, and operation by operation; with what feature is for a loop to say. */
static mla_feature_kept kept;

static mla_var mirror_steps(mla_tape *tape, mla_var qkv, mla_var a, mla_var c, mla_var u) {
    mla_var qk = mla_columns(tape, qkv, 0, 64);
    if (a.id >= 0) qk = mla_pair_angle(tape, qk, a, c, 1.5, false);
    if (u.id >= 0) qk = mla_cross_reflect(tape, qk, u);
    const size_t width = kept == MLA_KEPT_SPLIT ? 64 : 32;
    const mla_var f = mla_relu_features(tape, qk, MLA_NO_VAR, 4, kept);
    return mla_linear_attention(tape, mla_columns(tape, f, 0, width), mla_columns(tape, f, width, width),
                                mla_columns(tape, qkv, 64, 32), 4, MLA_FEATURE_GIVEN, 0.1);
}
static mla_var fused_mirror(mla_tape *tape, const mla_var *in) {
    return mla_mirror_attention(tape, in[0], in[1], in[2], in[3], 4, kept, 1.5, 0.1);
}
static mla_var composed_mirror(mla_tape *tape, const mla_var *in) { return mirror_steps(tape, in[0], in[1], in[2], in[3]); }
static mla_var fused_turn(mla_tape *tape, const mla_var *in) {
    return mla_mirror_attention(tape, in[0], in[1], in[2], MLA_NO_VAR, 4, kept, 1.5, 0.1);
}
static mla_var composed_turn(mla_tape *tape, const mla_var *in) {
    return mirror_steps(tape, in[0], in[1], in[2], MLA_NO_VAR);
}
static mla_var fused_cross(mla_tape *tape, const mla_var *in) {
    return mla_mirror_attention(tape, in[0], MLA_NO_VAR, MLA_NO_VAR, in[1], 4, kept, 0, 0.1);
}
static mla_var composed_cross(mla_tape *tape, const mla_var *in) {
    return mirror_steps(tape, in[0], MLA_NO_VAR, MLA_NO_VAR, in[1]);
}
static mla_var fused_bare(mla_tape *tape, const mla_var *in) {
    return mla_mirror_attention(tape, in[0], MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR, 4, kept, 0, 0.1);
}
static mla_var composed_bare(mla_tape *tape, const mla_var *in) {
    return mirror_steps(tape, in[0], MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR);
}

/* One token, a few, and more than the tiles that the fused operation works on. */
START_TEST(the_mirror_in_one_pass_is_its_steps) {
    const size_t tokens = ((const size_t[]){1, 7, 450})[_i % 3];
    kept = _i < 3 ? MLA_KEPT_RELU : MLA_KEPT_SPLIT;
    graph g = {.in = {test_tensor(1, SHAPE(2, tokens, 96)), test_tensor(2, SHAPE(16)), test_tensor(3, SHAPE(16)),
                      test_tensor(4, SHAPE(2, 32))}};
    same("mirror", &g, fused_mirror, composed_mirror);
    g.in[3].data = NULL;
    same("mirror, angle alone", &g, fused_turn, composed_turn);
    graph bare = {.in = {test_tensor(1, SHAPE(2, tokens, 96))}};
    same("mirror, features alone", &bare, fused_bare, composed_bare);
    for (size_t r = 1; r <= 3; r++) {
        graph reflections = {.in = {test_tensor(1, SHAPE(2, tokens, 96)), test_tensor(4, SHAPE(r, 32))}};
        same("mirror, reflections alone", &reflections, fused_cross, composed_cross);
    }
}
END_TEST

START_TEST(fused_operations_are_their_composed_twins) {
    graph linear = {.in = {test_tensor(1, SHAPE(2, 5, 9)), test_tensor(2, SHAPE(7, 9)), test_tensor(3, SHAPE(7)),
                           test_tensor(4, SHAPE(2, 5, 7))}};
    same("linear + residual", &linear, fused_residual, composed_residual);
    linear.in[3].data = NULL;
    same("linear + GELU", &linear, fused_gelu, composed_gelu);
    graph conv = {.in = {test_tensor(1, SHAPE(2, 12, 33)), test_tensor(2, SHAPE(33, 1, 3, 3)), test_tensor(3, SHAPE(33)),
                         test_tensor(4, SHAPE(2, 12, 33))}};
    same("depthwise_conv + residual", &conv, fused_conv, composed_conv);
    graph path = {.in = {test_tensor(1, SHAPE(2, 3, 4)), test_tensor(2, SHAPE(2, 3, 4))}};
    same("drop path, kept", &path, kept_path, scaled_path);
    same("drop path, dropped", &path, dropped_path, no_path);
    same("drop path, rate 0", &path, no_rate, plain_sum);
}
END_TEST

/* An image cut from planes equals the same image cut from tokens of a grid. */
START_TEST(patches_of_planes_and_of_tokens_agree) {
    const mla_tensor planes = test_tensor(1, SHAPE(2, 3, 6, 6));
    mla_tensor tokens = mla_tensor_make(test_reals(216), SHAPE(2, 36, 3));
    for (size_t i = 0; i < 216; i++) tokens.data[i / 108 * 108 + i % 36 * 3 + i % 108 / 36] = planes.data[i];
    mla_tape *tape = test_tape();
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_tensor a = mla_value(tape, mla_patches(tape, mla_tape_input(tape, planes), 2));
    const mla_tensor b = mla_value(tape, mla_patches_grid(tape, mla_tape_input(tape, tokens), 6, 2));
    ck_assert(mla_tensor_same_shape(&a, &b));
    test_close("patches", a.data, b.data, 216, 0);
    /* First row, second patch, channel 2: columns 8 .. 11 are its 2 x 2 values. */
    const real *plane = planes.data + 2 * 36;
    test_close("order of columns", a.data + 12 + 8, (real[]){plane[2], plane[3], plane[8], plane[9]}, 4, 0);
}
END_TEST

/* ---- losses and angles at the ends of their range */

static mla_var loss(mla_tape *tape, const mla_var *in) {
    static const int labels[] = {0, 1, 2, 2};
    return mla_cross_entropy(tape, in[0], labels, NULL, 0.1);
}

START_TEST(cross_entropy_of_large_logits) {
    graph g = {.in = {test_tensor(1, SHAPE(4, 3))}};
    scale(&g.in[0], 1e5);
    run(&g, loss);
    all_finite("cross_entropy", &g);
    for (size_t b = 0; b < 4; b++) { /* p - t sums to zero in each row */
        const real *row = g.gradient[0] + 3 * b;
        ck_assert_double_eq_tol((double)(row[0] + row[1] + row[2]), 0, CLOSE);
    }
    scale(&g.in[0], 0);
    run(&g, loss);
    for (size_t b = 0; b < 4; b++) ck_assert_double_eq_tol((double)g.y.data[b], log(3), CLOSE);
}
END_TEST

/* Constant tokens have variance zero; a common factor of q and k changes no angle. */
START_TEST(pair_angle_of_constant_and_scaled_tokens) {
    graph g = {.in = {test_tensor(1, SHAPE(2, 6, 16)), test_tensor(2, SHAPE(4)), test_tensor(3, SHAPE(4))}};
    graph larger = g;
    larger.in[0] = test_tensor(1, SHAPE(2, 6, 16));
    scale(&g.in[0], 1e3); /* well above the floor under the logarithm */
    scale(&larger.in[0], 1e6);
    run(&g, angle);
    run(&larger, angle);
    scale(&g.y, 1e3);
    test_scaled_close("turned", larger.y.data, g.y.data, 192, CLOSE);
    for (size_t i = 0; i < 192; i++) g.in[0].data[i] = 1;
    run(&g, angle);
    all_finite("constant tokens", &g);
    for (size_t i = 0; i < 8; i++) g.in[1 + i / 4].data[i % 4] = REAL(1e4); /* tanh at its ends */
    run(&g, angle);
    all_finite("large gain", &g);
}
END_TEST

START_TEST(layer_norm_of_constant_rows) {
    mla_tape *tape = test_tape();
    const mla_tensor x = mla_tensor_make(test_reals(8), SHAPE(2, 4)), gamma = test_tensor(1, SHAPE(4));
    const mla_tensor beta = test_tensor(2, SHAPE(4));
    real *gradient = test_reals(8);
    mla_error error = {0};
    for (size_t i = 0; i < 4; i++) x.data[4 + i] = REAL(1e6);
    mla_tape_begin(tape, NULL, NULL, NULL);
    const mla_var y = mla_layer_norm(tape, mla_tape_leaf(tape, x, gradient), mla_tape_input(tape, gamma),
                                     mla_tape_input(tape, beta), 1e-6);
    for (size_t row = 0; row < 2; row++) test_close("constant row", mla_value(tape, y).data + 4 * row, beta.data, 4, CLOSE);
    ck_assert(mla_tape_backward(tape, y, test_normal(8, 3), &error) == MLA_OK);
    test_finite("constant row", gradient, 8);
}
END_TEST

/* A value that is not finite must not vanish on its way through attention. */
START_TEST(not_a_number_is_passed_on) {
    static builder *const kinds[] = {softmax, relu, elu1};
    for (int which = 0; which < 3; which++) /* q, k or v of the mirror's first token */
        for (int parts = 0; parts < 2; parts++) {
            graph g = {.in = {test_tensor(1, SHAPE(2, 5, 96)), test_tensor(2, SHAPE(16)), test_tensor(3, SHAPE(16))}};
            g.in[0].data[32 * which + 3] = NAN;
            run(&g, parts ? composed_turn : fused_turn);
            ck_assert_msg(isnan(g.y.data[3]), "mirror: NaN in part %d gives %g", which, (double)g.y.data[3]);
        }
    for (int which = 0; which < 3; which++)
        for (int kind = 0; kind < 3; kind++) {
            graph g = {
                .in = {test_tensor(1, SHAPE(1, 5, 8)), test_tensor(2, SHAPE(1, 5, 8)), test_tensor(3, SHAPE(1, 5, 8))}};
            g.in[which].data[3] = NAN;
            run(&g, kinds[kind]);
            ck_assert_msg(isnan(g.y.data[3]), "kind %d: NaN in input %d gives %g", kind, which, (double)g.y.data[3]);
        }
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_loop_test(tcase, cross_reflect_is_the_product_of_reflections, 1, 6);
    tcase_add_test(tcase, block_reflect_is_the_matrix_on_tokens);
    tcase_add_test(tcase, a_reflection_undoes_itself);
    tcase_add_test(tcase, isometries_keep_norms);
    tcase_add_loop_test(tcase, extreme_reflection_vectors, 0, 5);
    tcase_add_loop_test(tcase, attention_is_its_definition, 0, 3);
    tcase_add_loop_test(tcase, attention_stays_finite, 0, 3);
    tcase_add_loop_test(tcase, attention_over_many_tokens, 0, 2);
    tcase_add_loop_test(tcase, dead_rows_give_zero, 0, 2);
    tcase_add_loop_test(tcase, depthwise_conv_is_its_definition, 0, (int)TEST_COUNT(filters));
    tcase_add_loop_test(tcase, the_mirror_in_one_pass_is_its_steps, 0, 6);
    tcase_add_test(tcase, fused_operations_are_their_composed_twins);
    tcase_add_test(tcase, patches_of_planes_and_of_tokens_agree);
    tcase_add_test(tcase, cross_entropy_of_large_logits);
    tcase_add_test(tcase, pair_angle_of_constant_and_scaled_tokens);
    tcase_add_test(tcase, layer_norm_of_constant_rows);
    tcase_add_test(tcase, not_a_number_is_passed_on);
}

int main(void) { return test_main("invariants", (void (*const[])(TCase *)){all}, 1); }
