/* Efficient, injective (InLine) and agent attention: what their operations are equal to, and extreme values. */
#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 2e-5 : 1e-12;

enum { HEADS = 2 };

/* One pass over q, k and v (B, N, C): y, and the gradients of sum(y dy), dy random. */
typedef struct pass {
    mla_tensor in[3], y;
    real *gradient[3], *dy;
} pass;

typedef mla_var builder(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t agents);

static mla_var efficient(mla_tape *tape, mla_var q, mla_var k, mla_var v, __attribute__((unused)) size_t agents) {
    return mla_state_attention(tape, mla_channel_softmax(tape, q, HEADS), mla_token_softmax(tape, k), v, HEADS, 1, false);
}

static double injective_factor(const mla_tensor *q) { return 1 / ((double)q->shape[1] * sqrt((double)q->shape[2] / HEADS)); }

static mla_var injective(mla_tape *tape, mla_var q, mla_var k, mla_var v, __attribute__((unused)) size_t agents) {
    const mla_tensor t = mla_value(tape, q);
    return mla_state_attention(tape, q, k, v, HEADS, injective_factor(&t), true);
}

static size_t side_of(size_t tokens) { return (size_t)(sqrt((double)tokens) + 0.5); }

static mla_var agent(mla_tape *tape, mla_var q, mla_var k, mla_var v, size_t agents) {
    const mla_var a = mla_grid_pool(tape, q, side_of(mla_value(tape, q).shape[1]), agents);
    return mla_softmax_attention(tape, q, a, mla_softmax_attention(tape, a, k, v, HEADS), HEADS);
}

static builder *const kinds[] = {efficient, injective, agent};
static const char *const names[] = {"efficient", "inline", "agent"};

static pass inputs(size_t images, size_t tokens, size_t channels) {
    return (pass){.in = {test_tensor(1, SHAPE(images, tokens, channels)), test_tensor(2, SHAPE(images, tokens, channels)),
                         test_tensor(3, SHAPE(images, tokens, channels))}};
}

static void run(pass *p, builder *build, size_t agents) {
    mla_tape *tape = test_tape();
    mla_var in[3];
    mla_error error = {0};
    mla_tape_begin(tape, NULL, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        p->gradient[i] = test_reals(mla_tensor_count(&p->in[i]));
        in[i] = mla_tape_leaf(tape, p->in[i], p->gradient[i]);
    }
    const mla_var y = build(tape, in[0], in[1], in[2], agents);
    p->y = mla_value(tape, y);
    p->dy = test_normal(mla_tensor_count(&p->y), 77);
    ck_assert_msg(mla_tape_backward(tape, y, p->dy, &error) == MLA_OK, "%s", error.text);
}

static void all_finite(const char *what, const pass *p) {
    test_finite(what, p->y.data, mla_tensor_count(&p->y));
    for (int i = 0; i < 3; i++) test_finite(what, p->gradient[i], mla_tensor_count(&p->in[i]));
}

/* Every value becomes factor x + shift. */
static void change(mla_tensor *t, double factor, double shift) {
    for (size_t i = 0; i < mla_tensor_count(t); i++) t->data[i] = (real)(factor * (double)t->data[i] + shift);
}

/* ---- the definitions, in double precision, with all weights written out */

static double *numbers(size_t n) {
    double *x = calloc(n, sizeof *x);
    test_adopt(x);
    return x;
}

/* One head of one image: rows `stride` apart. */
typedef struct head {
    const real *q, *k;
    size_t stride, tokens, d;
} head;

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* x, n values `step` apart, becomes its softmax. */
static void soften(double *x, size_t n, size_t step) {
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, x[i * step]);
    for (size_t i = 0; i < n; i++) sum += x[i * step] = exp(x[i * step] - largest);
    for (size_t i = 0; i < n; i++) x[i * step] /= sum;
}

/* (N, d) of q or k. */
static double *copied(const head *h, const real *x) {
    double *out = numbers(h->tokens * h->d);
    for (size_t i = 0; i < h->tokens * h->d; i++) out[i] = (double)x[i / h->d * h->stride + i % h->d];
    return out;
}

/* weight (rows, columns) = a b^T, a (rows, d), b (columns, d), times `scale`. */
static double *similarities(const double *a, size_t rows, const double *b, size_t columns, size_t d, double scale) {
    double *weight = numbers(rows * columns);
    for (size_t i = 0; i < rows * columns; i++) weight[i] = scale * dot(a + i / columns * d, b + i % columns * d, d);
    return weight;
}

static double *efficient_weights(const head *h) {
    double *q = copied(h, h->q), *k = copied(h, h->k);
    for (size_t n = 0; n < h->tokens; n++) soften(q + n * h->d, h->d, 1);
    for (size_t c = 0; c < h->d; c++) soften(k + c, h->tokens, h->d);
    return similarities(q, h->tokens, k, h->tokens, h->d, 1);
}

static double *injective_weights(const head *h) {
    const size_t n = h->tokens;
    double *weight = similarities(copied(h, h->q), n, copied(h, h->k), n, h->d, 1 / ((double)n * sqrt((double)h->d)));
    for (size_t i = 0; i < n; i++) {
        double mean = 0;
        for (size_t j = 0; j < n; j++) mean += weight[i * n + j] / (double)n;
        for (size_t j = 0; j < n; j++) weight[i * n + j] += 1 / (double)n - mean;
    }
    return weight;
}

/* (agents^2, d): means of q over the cells of the grid. */
static double *pooled(const head *h, size_t agents) {
    const size_t side = side_of(h->tokens);
    double *a = numbers(agents * agents * h->d);
    for (size_t cell = 0; cell < agents * agents; cell++) {
        size_t members = 0;
        for (size_t n = 0; n < h->tokens; n++) {
            const size_t y = n / side, x = n % side, i = cell / agents, j = cell % agents;
            if (y < i * side / agents || y * agents >= (i + 1) * side || x < j * side / agents ||
                x * agents >= (j + 1) * side)
                continue;
            members++;
            for (size_t c = 0; c < h->d; c++) a[cell * h->d + c] += (double)h->q[n * h->stride + c];
        }
        for (size_t c = 0; c < h->d; c++) a[cell * h->d + c] /= (double)members;
    }
    return a;
}

static double *agent_weights(const head *h, size_t agents) {
    const size_t n = h->tokens, count = agents * agents;
    const double scale = 1 / sqrt((double)h->d), *a = pooled(h, agents);
    double *gather = similarities(a, count, copied(h, h->k), n, h->d, scale);
    double *spread = similarities(copied(h, h->q), n, a, count, h->d, scale), *weight = numbers(n * n);
    for (size_t i = 0; i < count; i++) soften(gather + i * n, n, 1);
    for (size_t i = 0; i < n; i++) soften(spread + i * count, count, 1);
    for (size_t i = 0; i < n * n; i++)
        for (size_t j = 0; j < count; j++) weight[i] += spread[i / n * count + j] * gather[j * n + i % n];
    return weight;
}

/* y by the definition. */
static real *defined(const pass *p, builder *kind, size_t agents) {
    const size_t images = p->in[0].shape[0], n = p->in[0].shape[1], c = p->in[0].shape[2], d = c / HEADS;
    real *y = test_reals(images * n * c);
    for (size_t part = 0; part < images * HEADS; part++) {
        const size_t at = part / HEADS * n * c + part % HEADS * d;
        const head h = {.q = p->in[0].data + at, .k = p->in[1].data + at, .stride = c, .tokens = n, .d = d};
        const double *weight = kind == efficient   ? efficient_weights(&h)
                               : kind == injective ? injective_weights(&h)
                                                   : agent_weights(&h, agents);
        for (size_t i = 0; i < n * d; i++) {
            double sum = 0;
            for (size_t m = 0; m < n; m++) sum += weight[i / d * n + m] * (double)p->in[2].data[at + m * c + i % d];
            y[at + i / d * c + i % d] = (real)sum;
        }
    }
    return y;
}

START_TEST(attention_is_its_definition) {
    static const struct { size_t tokens, agents; } sizes[] = {{1, 1}, {4, 1}, {9, 2}, {25, 4}, {64, 4}, {121, 11}, {144, 5}};
    for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
        pass p = inputs(2, sizes[i].tokens, 10);
        run(&p, kinds[_i], sizes[i].agents);
        test_close(names[_i], p.y.data, defined(&p, kinds[_i], sizes[i].agents), 2 * sizes[i].tokens * 10, CLOSE);
    }
}
END_TEST

/* ---- what follows from it */

/* The weights of a query sum to one: values that are the same at all tokens come back, whatever q and k are. */
START_TEST(weights_sum_to_one) {
    static const double size[] = {1e4, 1, 1e-4, 0};
    for (size_t s = 0; s < TEST_COUNT(size); s++) {
        pass p = inputs(1, 100, 8);
        change(&p.in[0], size[s] > 1 && kinds[_i] == injective ? 100 : size[s], 0); /* its weights grow with q and k */
        change(&p.in[1], size[s] > 1 && kinds[_i] == injective ? 100 : size[s], 3);
        for (size_t i = 0; i < 800; i++) p.in[2].data[i] = p.in[2].data[i % 8];
        run(&p, kinds[_i], 4);
        test_close(names[_i], p.y.data, p.in[2].data, 800, CLOSE);
    }
}
END_TEST

/* Keys that are all alike tell no token from another: every output is the mean of the values. */
START_TEST(equal_keys_give_the_mean) {
    pass p = inputs(1, 49, 8);
    real *mean = test_reals(49 * 8);
    for (size_t i = 0; i < 49 * 8; i++) p.in[1].data[i] = p.in[1].data[i % 8];
    for (size_t i = 0; i < 49 * 8; i++)
        for (size_t m = 0; m < 49; m++) mean[i] += p.in[2].data[m * 8 + i % 8] / 49;
    run(&p, kinds[_i], 3);
    test_close(names[_i], p.y.data, mean, 49 * 8, CLOSE);
    all_finite(names[_i], &p);
}
END_TEST

/* One token attends to itself: its value comes back, q and k do not matter. */
START_TEST(one_token_keeps_its_value) {
    pass p = inputs(3, 1, 8);
    change(&p.in[0], 50, 7);
    run(&p, kinds[_i], 1);
    test_close(names[_i], p.y.data, p.in[2].data, 24, CLOSE);
    test_close("gradient of v", p.gradient[2], p.dy, 24, CLOSE);
    test_close("gradient of q", p.gradient[0], test_reals(24), 24, 10 * CLOSE);
    test_close("gradient of k", p.gradient[1], test_reals(24), 24, 10 * CLOSE);
}
END_TEST

START_TEST(extreme_values_stay_finite) {
    static const double size[] = {1e15, 1e4, 1e-4, 1e-20, 0};
    for (size_t s = 0; s < TEST_COUNT(size); s++) {
        pass p = inputs(1, 400, 8);
        change(&p.in[0], size[s], 0);
        change(&p.in[1], size[s], 0);
        run(&p, kinds[_i], 4);
        all_finite(names[_i], &p);
        /* Softmax weights are positive: a weighted mean of v stays within its range. */
        for (size_t i = 0; kinds[_i] != injective && i < 3200; i++) ck_assert_double_lt(fabs((double)p.y.data[i]), 5);
    }
}
END_TEST

/* A head whose queries, keys or values are all zero is finite, and the other head does not notice. */
START_TEST(a_dead_head_is_alone) {
    pass whole = inputs(1, 16, 8);
    run(&whole, kinds[_i], 2);
    for (int part = 0; part < 3; part++) {
        pass p = inputs(1, 16, 8);
        for (size_t i = 0; i < 128; i++)
            if (i % 8 < 4) p.in[part].data[i] = 0;
        run(&p, kinds[_i], 2);
        all_finite(names[_i], &p);
        for (size_t i = 0; i < 128; i++)
            ck_assert_msg(i % 8 < 4 || p.y.data[i] == whole.y.data[i], "%s: value %zu of the other head", names[_i], i);
    }
}
END_TEST

/* What InLine is for: a query and its double give different outputs, where a quotient of linear terms gives one. */
static mla_var divided(mla_tape *tape, mla_var q, mla_var k, mla_var v, __attribute__((unused)) size_t agents) {
    return mla_linear_attention(tape, q, k, v, HEADS, MLA_FEATURE_RELU, 0);
}

START_TEST(inline_tells_lengths_of_queries_apart) {
    pass p = inputs(1, 9, 8);
    for (size_t i = 0; i < 8; i++) {
        p.in[0].data[i] = (real)fabs((double)p.in[0].data[i]);
        p.in[0].data[8 + i] = 2 * p.in[0].data[i];
    }
    run(&p, divided, 0);
    test_close("a quotient", p.y.data, p.y.data + 8, 8, CLOSE);
    run(&p, injective, 0);
    ck_assert_double_gt(test_error(p.y.data, p.y.data + 8, 8), 1e-2);
}
END_TEST

/* Large means of k and v do not drown what differs between the tokens. */
START_TEST(inline_bears_large_means) {
    pass p = inputs(1, 300, 8);
    change(&p.in[1], 1, 300);
    change(&p.in[2], 1, -500);
    run(&p, injective, 0);
    test_scaled_close("inline", p.y.data, defined(&p, injective, 0), 2400, sizeof(real) == sizeof(float) ? 2e-6 : 1e-11);
}
END_TEST

/* ---- agents */

START_TEST(one_agent_gives_all_queries_the_same) {
    pass p = inputs(1, 36, 8);
    run(&p, agent, 1);
    for (size_t n = 1; n < 36; n++) test_close("one agent", p.y.data + n * 8, p.y.data, 8, 0);
}
END_TEST

static mla_var no_pool(mla_tape *tape, mla_var q, mla_var k, mla_var v, __attribute__((unused)) size_t agents) {
    return mla_softmax_attention(tape, q, q, mla_softmax_attention(tape, q, k, v, HEADS), HEADS);
}

START_TEST(as_many_agents_as_tokens_need_no_pool) {
    pass p = inputs(2, 36, 8), other = p;
    run(&p, agent, 6);
    run(&other, no_pool, 0);
    test_close("values", p.y.data, other.y.data, 2 * 36 * 8, 0);
    for (int i = 0; i < 3; i++) test_close("gradient", p.gradient[i], other.gradient[i], 2 * 36 * 8, CLOSE);
}
END_TEST

/* ---- the feature maps of Efficient Attention */

static mla_var of_channels(mla_tape *tape, mla_var q, mla_var k, mla_var v, __attribute__((unused)) size_t agents) {
    return mla_residual(tape, mla_channel_softmax(tape, q, HEADS), mla_state_attention(tape, k, k, v, HEADS, 0, false),
                        NULL);
}
static mla_var of_tokens(mla_tape *tape, mla_var q, mla_var k, mla_var v, __attribute__((unused)) size_t agents) {
    return mla_residual(tape, mla_token_softmax(tape, q), mla_state_attention(tape, k, k, v, HEADS, 0, false), NULL);
}

/* Sums are one at any size, and adding a constant changes nothing. */
START_TEST(softmax_sums_to_one) {
    static const double size[] = {1e37, 1e3, 1, 1e-30};
    for (size_t s = 0; s < TEST_COUNT(size); s++)
        for (int tokens = 0; tokens < 2; tokens++) {
            pass p = inputs(1, 70, 8);
            change(&p.in[0], size[s], 0);
            run(&p, tokens ? of_tokens : of_channels, 0);
            all_finite("softmax", &p);
            const size_t groups = tokens ? 8 : 140, length = tokens ? 70 : 4, step = tokens ? 8 : 1;
            for (size_t g = 0; g < groups; g++) {
                double sum = 0;
                for (size_t i = 0; i < length; i++) sum += (double)p.y.data[g * (tokens ? 1 : 4) + i * step];
                ck_assert_double_eq_tol(sum, 1, CLOSE);
            }
        }
    pass p = inputs(1, 70, 8), moved = inputs(1, 70, 8);
    change(&moved.in[0], 1, 16);
    run(&p, _i ? of_tokens : of_channels, 0);
    run(&moved, _i ? of_tokens : of_channels, 0);
    test_close("moved by a constant", moved.y.data, p.y.data, 560, CLOSE);
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_loop_test(tcase, attention_is_its_definition, 0, 3);
    tcase_add_loop_test(tcase, weights_sum_to_one, 0, 3);
    tcase_add_loop_test(tcase, equal_keys_give_the_mean, 0, 3);
    tcase_add_loop_test(tcase, one_token_keeps_its_value, 0, 3);
    tcase_add_loop_test(tcase, extreme_values_stay_finite, 0, 3);
    tcase_add_loop_test(tcase, a_dead_head_is_alone, 0, 3);
    tcase_add_test(tcase, inline_tells_lengths_of_queries_apart);
    tcase_add_test(tcase, inline_bears_large_means);
    tcase_add_test(tcase, one_agent_gives_all_queries_the_same);
    tcase_add_test(tcase, as_many_agents_as_tokens_need_no_pool);
    tcase_add_loop_test(tcase, softmax_sums_to_one, 0, 2);
}

int main(void) { return test_main("other_kinds", (void (*const[])(TCase *)){all}, 1); }
