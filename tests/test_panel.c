/* Products with packed panels against the plain loop, and prepared parameters against parameters as they are. */
#include <stdio.h>

#include "core/gemm.h"
#include "core/panel.h"
#include "layers/prepared.h"
#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 2e-5 : 1e-12;

enum { GAP = 3 }; /* columns between rows, which no product may touch */

typedef enum start_kind { FROM_ZERO, FROM_BIAS, FROM_ITSELF, FROM_BOTH, STARTS } start_kind;

static void check_product(size_t m, size_t n, size_t k, bool transposed, bool packed, start_kind kind) {
    const size_t lda = (transposed ? m : k) + GAP, ldb = n + GAP, ldc = n + GAP;
    const real *a = test_normal((transposed ? k : m) * lda, 1), *b = test_normal(k * ldb + 1, 2), *bias = test_normal(n, 3);
    real *got = test_normal(m * ldc, 4), *want = test_reals(m * ldc), *panels = test_reals(mla_panel_reals(k, n) + 1);
    const bool add = kind == FROM_ITSELF || kind == FROM_BOTH, with_bias = kind == FROM_BIAS || kind == FROM_BOTH;
    char what[128];
    snprintf(what, sizeof what, "panels, %zu x %zu x %zu, %s, %s, start %d", m, n, k, transposed ? "transposed" : "rows",
             packed ? "packed" : "direct", (int)kind);
    memcpy(want, got, m * ldc * sizeof(real));
    mla_gemm_plain(transposed ? MLA_T : MLA_N, MLA_N, m, n, k, 1, a, lda, b, ldb, add, want, ldc);
    for (size_t i = 0; with_bias && i < m * n; i++) want[i / n * ldc + i % n] += bias[i % n];
    for (size_t i = 0; !add && i < m * n; i++) got[i / n * ldc + i % n] = NAN; /* must not be read */
    mla_panel_left left = transposed ? mla_columns_of(a, lda) : mla_rows(a, lda);
    left.far = kind == FROM_BIAS; /* a hint: the values are the same, and what it asks for may lie behind the end */
    mla_panel_pack(panels, k, n, b, ldb, 1);
    mla_panel_product(m, n, k, left, packed ? mla_panels_packed(panels, k) : mla_panels_direct(b, ldb),
                      (mla_panel_start){with_bias ? bias : NULL, add ? got : NULL, ldc}, got, ldc);
    test_close(what, got, want, m * ldc, (sizeof(real) == sizeof(float) ? 1e-6 : 1e-14) * (2 + (double)k));
}

/* Widths below, at and above a vector and a panel; rows below, at and above a tile; depths beyond the pieces of an edge. */
START_TEST(panel_products_are_right) {
    static const size_t rows[] = {1, 5, 6, 13, 25}, depths[] = {0, 1, 7, 65, 130};
    static const size_t widths[] = {1, 3, 4, 8, 11, 16, 19, 32, 37, 64};
    for (size_t j = 0; j < TEST_COUNT(widths); j++)
        for (size_t p = 0; p < TEST_COUNT(depths); p++)
            for (int kind = 0; kind < STARTS; kind++)
                check_product(rows[_i / 4], widths[j], depths[p], _i & 1, _i & 2, (start_kind)kind);
}
END_TEST

/* W (n, k) packed as W^T, its rows as columns: the same panels as those of the transposed matrix. */
START_TEST(transposed_packing) {
    const size_t n = 21, k = 10;
    const real *w = test_normal(n * k, 5);
    real *turned = test_reals(k * n), *one = test_reals(mla_panel_reals(k, n)), *other = test_reals(mla_panel_reals(k, n));
    for (size_t i = 0; i < n * k; i++) turned[i % k * n + i / k] = w[i];
    for (size_t i = 0; i < mla_panel_reals(k, n); i++) one[i] = other[i] = NAN; /* all of it is written */
    mla_panel_pack(one, k, n, w, 1, k);
    mla_panel_pack(other, k, n, turned, n, 1);
    test_close("panels of the transposed", one, other, mla_panel_reals(k, n), 0);
}
END_TEST

/* ---- prepared parameters */

static mla_model_spec spec_of(int variant) {
    return (mla_model_spec){
        .family = variant & 1 ? MLA_FAMILY_PVT : MLA_FAMILY_VIT,
        .image = 8,
        .channels = 3,
        .classes = 5,
        .patch = 2,
        .stages = variant & 1 ? 2 : 1,
        .dims = {16, 32},
        .depths = {2, 1},
        .heads = {2, 2},
        .mlp_ratio = 2,
        .norm_eps = 1e-6,
        .kinds = {MLA_ATTENTION_MIRROR, MLA_ATTENTION_MIRROR},
        .attention = {
            .dwconv = 3,
            .qkv_bias = !(variant & 2),
            .eps = 1e-3,
            .mirror = {
                .block = 4, .reflections = 2, .variance_angle = true, .angle_max = 1.5, .angle_gain = 1, .cross_head = 2}}};
}

/* Logits and gradient of two images with the parameters as they are (prepared: NULL) or in prepared forms. */
static real *step(const mla_model *model, mla_params *params, mla_prepared *prepared, real *gradient) {
    static const int labels[] = {1, 4};
    static const real seed[] = {1, -2};
    mla_tape *tape = test_tape();
    mla_error error = {0};
    const mla_forward f = {0};
    mla_tape_begin(tape, params, params->value, gradient);
    if (prepared) mla_prepared_use(prepared, tape);
    const mla_var logits = mla_model_forward(model, tape, mla_tape_input(tape, test_tensor(8, SHAPE(2, 3, 8, 8))), &f);
    const mla_var loss = mla_cross_entropy(tape, logits, labels, NULL, 0.1);
    ck_assert_msg(mla_tape_backward(tape, loss, seed, &error) == MLA_OK, "%s", error.text);
    if (prepared) mla_prepared_gradient(prepared, params->value, gradient);
    return mla_value(tape, logits).data;
}

START_TEST(prepared_parameters_change_nothing) {
    const mla_model_spec spec = spec_of(_i);
    mla_model *model;
    mla_prepared *prepared;
    mla_error error = {0};
    ck_assert_msg(mla_model_new(&model, &spec, &error) == MLA_OK, "%s", error.text);
    ck_assert_msg(mla_prepared_new(&prepared, model, &error) == MLA_OK, "%s", error.text);
    mla_params *params = mla_model_params(model);
    real *plain = mla_params_buffer(params), *gradient = mla_params_buffer(params);
    for (uint64_t round = 0; round < 2; round++) { /* the second time with other weights */
        test_randomise(params, 60 + round, 0.4);
        memset(plain, 0, params->size * sizeof(real));
        memset(gradient, 0, params->size * sizeof(real));
        mla_prepared_update(prepared, params->value, 1 + (int)round);
        const real *want = step(model, params, NULL, plain);
        test_scaled_close("logits", step(model, params, prepared, gradient), want, 10, CLOSE);
        for (int i = 0; i < params->entries; i++) {
            const mla_param *e = &params->entry[i];
            test_scaled_close(e->name, gradient + e->offset, plain + e->offset, e->count, 10 * CLOSE);
        }
    }
    free(plain);
    free(gradient);
    mla_prepared_free(prepared);
    mla_model_free(model);
}
END_TEST

static void products(TCase *tcase) {
    tcase_add_loop_test(tcase, panel_products_are_right, 0, 4 * 5);
    tcase_add_test(tcase, transposed_packing);
}

static void parameters(TCase *tcase) { tcase_add_loop_test(tcase, prepared_parameters_change_nothing, 0, 4); }

int main(void) { return test_main("panel", (void (*const[])(TCase *)){products, parameters}, 2); }
