/* What the papers promise of their attention kinds, on layers as models have them. */
#include "layers/layers.h"
#include "tests/support.h"

enum { IMAGES = 2, SIDE = 4, TOKENS = SIDE * SIDE, CHANNELS = 16, HEADS = 2, D = CHANNELS / HEADS };

/* A layer with random parameters, and qkv of some images on a tape. */
typedef struct lab {
    mla_params params;
    mla_attention layer;
    mla_tape *tape;
    mla_tensor in;
    mla_var qkv;
} lab;

static void open_lab(lab *l, mla_attention_kind kind, int performer_features, double factor, double scale) {
    *l = (lab){.tape = test_tape()};
    const mla_attention_spec spec = {.dwconv = 0,
                                     .qkv_bias = true,
                                     .eps = 1e-6,
                                     .performer_features = performer_features,
                                     .focused_factor = factor,
                                     .mirror = {.reflections = 2, .variance_angle = true, .angle_max = 1, .cross_head = 2}};
    l->layer = mla_attention_declare(&l->params, "attn", CHANNELS, HEADS, SIDE, kind, &spec);
    ck_assert(mla_params_allocate(&l->params, NULL) == MLA_OK);
    mla_params_init(&l->params, 1);
    mla_tape_begin(l->tape, &l->params, l->params.value, NULL);
    l->in = test_tensor(3, SHAPE(IMAGES, TOKENS, 3 * CHANNELS));
    for (size_t i = 0; i < mla_tensor_count(&l->in); i++)
        if (i % (3 * CHANNELS) < 2 * CHANNELS) l->in.data[i] *= (real)scale; /* q and k */
    l->qkv = mla_tape_input(l->tape, l->in);
}

static const real *row_of(const lab *l, size_t token, size_t part, size_t head) {
    return l->in.data + (token * 3 + part) * CHANNELS + head * D;
}

static double dot(const real *a, const real *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Features are as wide as one another, none is negative, and attention over them is the core, but for efficient, whose
 * weights sum to one by themselves (tests/test_other_kinds.c); kinds without say so. */
START_TEST(features_make_the_core) {
    const mla_attention_kind kind = (mla_attention_kind)_i;
    lab l;
    open_lab(&l, kind, 0, 3, 1);
    mla_var fq, fk;
    if (mla_attention_features(&l.layer, l.tape, l.qkv, &fq, &fk)) {
        const mla_tensor q = mla_value(l.tape, fq), k = mla_value(l.tape, fk);
        ck_assert(mla_tensor_same_shape(&q, &k) && q.ndim == 3 && q.shape[2] % HEADS == 0);
        for (size_t i = 0; i < mla_tensor_count(&q); i++) ck_assert(q.data[i] >= 0 && k.data[i] >= 0);
        const mla_var v = mla_columns(l.tape, l.qkv, 2 * CHANNELS, CHANNELS);
        const size_t heads = kind == MLA_ATTENTION_POLA ? 2 * HEADS : HEADS;
        const double eps = kind == MLA_ATTENTION_PERFORMER ? 0 : 1e-6;
        const mla_tensor got = mla_value(l.tape, mla_attention_core(&l.layer, l.tape, l.qkv)),
                         want = mla_value(l.tape, mla_linear_attention(l.tape, fq, fk, v, heads, MLA_FEATURE_GIVEN, eps));
        if (kind != MLA_ATTENTION_EFFICIENT) test_close("core", got.data, want.data, mla_tensor_count(&want), 2e-5);
    } else {
        ck_assert(fq.id < 0 && fk.id < 0);
    }
    mla_params_free(&l.params);
}
END_TEST

/* The more random features the performer has, the nearer it is to softmax attention. */
START_TEST(performer_estimates_softmax) {
    double error[2];
    for (int i = 0; i < 2; i++) {
        lab l;
        open_lab(&l, MLA_ATTENTION_PERFORMER, i ? 4096 : 64, 3, 0.4);
        mla_var part[3];
        for (size_t p = 0; p < 3; p++) part[p] = mla_columns(l.tape, l.qkv, p * CHANNELS, CHANNELS);
        const mla_tensor want = mla_value(l.tape, mla_softmax_attention(l.tape, part[0], part[1], part[2], HEADS)),
                         got = mla_value(l.tape, mla_attention_core(&l.layer, l.tape, l.qkv));
        error[i] = test_scaled_error(got.data, want.data, mla_tensor_count(&want));
        mla_params_free(&l.params);
    }
    ck_assert_msg(error[0] < 0.3 && error[1] < 0.04, "64 features: %g, 4096: %g", error[0], error[1]);
}
END_TEST

/* The projection has int(d ln d) rows unless the config says otherwise: 16 for heads of 8. */
START_TEST(performer_counts_its_features) {
    lab own, usual;
    open_lab(&own, MLA_ATTENTION_PERFORMER, 5, 3, 1);
    open_lab(&usual, MLA_ATTENTION_PERFORMER, 0, 3, 1);
    ck_assert_uint_eq(own.params.entry[own.layer.projection].shape[0], 5);
    ck_assert_uint_eq(usual.params.entry[usual.layer.projection].shape[0], 16);
    ck_assert(usual.params.entry[usual.layer.projection].fixed);
    mla_params_free(&own.params);
    mla_params_free(&usual.params);
}
END_TEST

/* fq_n . fk_m = (relu(q_n) . relu(k_m)) cos(pi (n - m) / (2 N)) */
START_TEST(cosformer_weighs_by_distance) {
    lab l;
    open_lab(&l, MLA_ATTENTION_COSFORMER, 0, 3, 1);
    mla_var fq, fk;
    ck_assert(mla_attention_features(&l.layer, l.tape, l.qkv, &fq, &fk));
    const real *q = mla_value(l.tape, fq).data, *k = mla_value(l.tape, fk).data;
    for (size_t n = 0; n < TOKENS; n++)
        for (size_t m = 0; m < TOKENS; m++)
            for (size_t head = 0; head < HEADS; head++) {
                const real *x = row_of(&l, n, 0, head), *y = row_of(&l, m, 1, head);
                double want = 0;
                for (size_t i = 0; i < D; i++) want += fmax((double)x[i], 0) * fmax((double)y[i], 0);
                want *= cos(1.57079632679489662 * ((double)n - (double)m) / TOKENS);
                const double got = dot(q + (n * HEADS + head) * 2 * D, k + (m * HEADS + head) * 2 * D, 2 * D);
                ck_assert_double_lt(fabs(got - want), 1e-5);
            }
    mla_params_free(&l.params);
}
END_TEST

/* The power keeps the norm and sharpens the direction, and stays finite where nothing is positive. */
START_TEST(focusing_keeps_the_norm) {
    static const double factors[] = {1, 3, 7.5, 64};
    mla_tensor x = test_tensor(2, SHAPE(1, 3, D));
    for (size_t i = 0; i < D; i++) x.data[i] = -1 - x.data[i] * x.data[i];
    for (size_t f = 0; f < TEST_COUNT(factors); f++) {
        mla_tape *tape = test_tape();
        real *gradient = test_reals(mla_tensor_count(&x));
        mla_error error = {0};
        mla_tape_begin(tape, NULL, NULL, NULL);
        const mla_var y = mla_focused_features(tape, mla_tape_leaf(tape, x, gradient), 1, factors[f]);
        for (size_t n = 0; n < 3; n++) {
            const real *row = mla_value(tape, y).data + n * D;
            double norm = 0;
            for (size_t i = 0; i < D; i++) norm += pow(fmax((double)x.data[n * D + i], 0) + 1e-6, 2);
            ck_assert_double_lt(fabs(sqrt(dot(row, row, D)) - sqrt(norm)), 1e-6 * sqrt(norm) + 1e-11);
        }
        ck_assert(mla_tape_backward(tape, y, test_normal(mla_tensor_count(&x), 4), &error) == MLA_OK);
        test_finite("gradient", gradient, mla_tensor_count(&x));
    }
}
END_TEST

/* With power 1 (s very low) and scale 1, the two products of a head add up to |q| . |k|: agreeing and opposite signs. */
START_TEST(polarities_add_up) {
    lab l;
    open_lab(&l, MLA_ATTENTION_POLA, 0, 3, 1);
    real *values = l.params.value;
    for (size_t i = 0; i < CHANNELS; i++) {
        values[l.params.entry[l.layer.qk_scale].offset + i] = (real)log(expm1(1.0)); /* softplus of it is 1 */
        values[l.params.entry[l.layer.power].offset + i] = -80;
    }
    mla_var fq, fk;
    ck_assert(mla_attention_features(&l.layer, l.tape, l.qkv, &fq, &fk));
    const real *q = mla_value(l.tape, fq).data, *k = mla_value(l.tape, fk).data;
    for (size_t n = 0; n < TOKENS; n++)
        for (size_t head = 0; head < HEADS; head++) {
            const size_t m = (n * 5 + 3) % TOKENS;
            const real *x = row_of(&l, n, 0, head), *y = row_of(&l, m, 1, head);
            double agree = 0, oppose = 0;
            for (size_t i = 0; i < D; i++) {
                const double product = (double)x[i] * (double)y[i];
                agree += fmax(product, 0);
                oppose += fmax(-product, 0);
            }
            const real *a = q + (n * HEADS + head) * 4 * D, *b = k + (m * HEADS + head) * 4 * D;
            ck_assert_double_lt(fabs(dot(a, b, 2 * D) - agree), 1e-5);
            ck_assert_double_lt(fabs(dot(a + 2 * D, b + 2 * D, 2 * D) - oppose), 1e-5);
        }
    mla_params_free(&l.params);
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_loop_test(tcase, features_make_the_core, 0, MLA_ATTENTION_KINDS);
    tcase_add_test(tcase, performer_estimates_softmax);
    tcase_add_test(tcase, performer_counts_its_features);
    tcase_add_test(tcase, cosformer_weighs_by_distance);
    tcase_add_test(tcase, focusing_keeps_the_norm);
    tcase_add_test(tcase, polarities_add_up);
}

int main(void) { return test_main("kinds", (void (*const[])(TCase *)){all}, 1); }
