/* Numbers about attention layers, against dense sums, known spectra and the operations themselves. */
#include "layers/measure.h"
#include "layers/model.h"
#include "layers/probe.h"
#include "tests/support.h"

static const double CLOSE = sizeof(real) == sizeof(float) ? 2e-5 : 1e-11;
enum { SIDE = 20, TOKENS = 100, HEADS = 2, CHANNELS = 24 };

/* ---- the implied attention */

typedef struct pass {
    mla_model *model;
    mla_tape *tape, *scratch;
    mla_probe probe;
} pass;

static void run_kind(pass *p, mla_attention_kind kind) {
    mla_error error = {0};
    const mla_model_spec spec = {
        .family = MLA_FAMILY_VIT,
        .image = SIDE,
        .channels = 3,
        .classes = 5,
        .patch = 2,
        .stages = 1,
        .dims = {CHANNELS},
        .depths = {1},
        .heads = {HEADS},
        .kinds = {kind},
        .mlp_ratio = 2,
        .norm_eps = 1e-6,
        .attention = {
            .focused_factor = 3,
            .dwconv = 3,
            .qkv_bias = true,
            .eps = 1e-6,
            .agent = {3},
            .mirror = {
                .block = 2, .reflections = 3, .variance_angle = true, .angle_max = 1.5, .angle_gain = 1, .cross_head = 3}}};
    ck_assert_msg(mla_model_new(&p->model, &spec, &error) == MLA_OK, "%s", error.text);
    mla_params *params = mla_model_params(p->model);
    test_randomise(params, 5, 0.3);
    p->tape = test_tape();
    p->scratch = mla_tape_new();
    p->probe = (mla_probe){0};
    mla_tape_begin(p->tape, params, params->value, NULL);
    const mla_var images = mla_tape_input(p->tape, test_tensor(6, SHAPE(1, 3, SIDE, SIDE)));
    mla_model_forward(p->model, p->tape, images, &(mla_forward){.probe = &p->probe});
}

static void end_pass(pass *p) {
    mla_tape_free(p->scratch);
    mla_probe_free(&p->probe);
    mla_model_free(p->model);
}

/* For every kind A v is what the core gives. */
START_TEST(attention_is_the_core_s) {
    for (int kind = 0; kind < MLA_ATTENTION_KINDS; kind++) {
        pass p;
        mla_error error = {0};
        run_kind(&p, (mla_attention_kind)kind);
        const mla_params *params = mla_model_params(p.model);
        const mla_attention *layer = p.probe.layer[0].attention;
        const mla_var qkv = mla_attention_project(layer, p.tape, p.probe.layer[0].x);
        const mla_tensor t = mla_value(p.tape, qkv), y = mla_value(p.tape, mla_attention_core(layer, p.tape, qkv));
        const size_t parts = mla_measure_parts(layer), d = CHANNELS / HEADS, width = d / parts;
        real *a = malloc(HEADS * parts * TOKENS * TOKENS * sizeof *a);
        ck_assert_msg(mla_measure_attention(a, layer, p.scratch, params, params->value, t.data, TOKENS, TOKENS, &error) ==
                          MLA_OK,
                      "%s", error.text);
        for (size_t c = 0; c < CHANNELS; c++) {
            const real *matrix = a + (c / d * parts + c % d / width) * TOKENS * TOKENS;
            real sum[TOKENS], core[TOKENS];
            for (size_t n = 0; n < TOKENS; n++) {
                double dot = 0;
                for (size_t m = 0; m < TOKENS; m++)
                    dot += (double)matrix[n * TOKENS + m] * (double)t.data[m * 3 * CHANNELS + 2 * CHANNELS + c];
                sum[n] = (real)dot;
                core[n] = y.data[n * CHANNELS + c];
            }
            test_scaled_close("A v", sum, core, TOKENS, CLOSE);
        }
        /* Fewer rows are the same rows. */
        real *some = malloc(HEADS * parts * 7 * TOKENS * sizeof *some);
        ck_assert(mla_measure_attention(some, layer, p.scratch, params, params->value, t.data, TOKENS, 7, &error) == MLA_OK);
        for (size_t r = 0; r < 7; r++)
            for (size_t m = 0; m < TOKENS; m++) ck_assert(some[r * TOKENS + m] == a[r * TOKENS / 7 * TOKENS + m]);
        free(some);
        free(a);
        end_pass(&p);
    }
}
END_TEST

/* ---- entropy */

START_TEST(entropy_of_known_rows) {
    real even[6 * 4], one[6 * 4] = {0}, half[8] = {1, -1, 0, 0, 0, 0, 0, 0};
    for (size_t i = 0; i < 24; i++) even[i] = (real)0.25;
    for (size_t r = 0; r < 6; r++) one[r * 4 + r % 4] = (real)-3;
    ck_assert_double_eq_tol(mla_measure_entropy(even, 6, 4), 1, 1e-12);
    ck_assert_double_eq_tol(mla_measure_entropy(one, 6, 4), 0, 1e-12);
    /* the second row is dead, and signs do not count: ln 2 / ln 4 */
    ck_assert_double_eq_tol(mla_measure_entropy(half, 2, 4), 0.5, 1e-12);
    ck_assert(isnan(mla_measure_entropy(half + 4, 1, 4)));
    ck_assert(isnan(mla_measure_entropy(even, 6, 1)));
    even[3] = (real)NAN;
    ck_assert(isnan(mla_measure_entropy(even, 6, 4)));
}
END_TEST

/* ---- rank */

static double rank_of(const real *a, size_t rows, size_t columns, size_t stride) {
    double rank = -1;
    mla_error error = {0};
    ck_assert_msg(mla_measure_rank(&rank, a, rows, columns, stride, &error) == MLA_OK, "%s", error.text);
    return rank;
}

START_TEST(rank_of_known_spectra) {
    real a[5 * 8] = {0};
    for (size_t i = 0; i < 5; i++) a[i * 8 + i] = 2;
    ck_assert_double_eq_tol(rank_of(a, 5, 5, 8), 5, 1e-9);
    ck_assert_double_eq_tol(rank_of(a, 5, 8, 8), 5, 1e-9);
    for (size_t i = 0; i < 40; i++) a[i] = (real)(1 + i / 8) * (real)(1 + i % 8); /* u v^T, in rounded numbers */
    ck_assert_double_eq_tol(rank_of(a, 5, 8, 8), 1, 1e-9);
    /* 3, 1: exp(-(0.75 ln 0.75 + 0.25 ln 0.25)) */
    memset(a, 0, sizeof a);
    a[1] = 3, a[8] = -1;
    ck_assert_double_eq_tol(rank_of(a, 2, 2, 8), exp(-(0.75 * log(0.75) + 0.25 * log(0.25))), 1e-9);
}
END_TEST

START_TEST(rank_of_what_has_none) {
    real a[9] = {0};
    ck_assert(isnan(rank_of(a, 3, 3, 3)));
    a[4] = (real)INFINITY;
    ck_assert(isnan(rank_of(a, 3, 3, 3)));
    a[4] = (real)NAN;
    ck_assert(isnan(rank_of(a, 3, 3, 3)));
    a[4] = (real)1e-30;
    ck_assert_double_eq_tol(rank_of(a, 3, 3, 3), 1, 1e-9);
    ck_assert_double_eq_tol(rank_of(a + 4, 1, 1, 1), 1, 1e-9);
}
END_TEST

/* ---- reflections */

static double moved_of(const real *v, const real *start, size_t r, size_t b) {
    double moved = -1;
    mla_error error = {0};
    ck_assert_msg(mla_measure_moved(&moved, v, start, r, b, &error) == MLA_OK, "%s", error.text);
    return moved;
}

START_TEST(moved_reflections) {
    enum { R = 2, B = 6 };
    real start[R * B] = {0}, v[R * B];
    start[0] = start[B] = 1; /* H(e0) H(e0) = I */
    ck_assert_double_eq_tol(moved_of(start, start, R, B), 0, 1e-7);
    for (size_t i = 0; i < R * B; i++) v[i] = start[i] * (real)(i < B ? -1e5 : 3e-4); /* lengths and signs do not count */
    ck_assert_double_eq_tol(moved_of(v, start, R, B), 0, 1e-7);
    /* H(e0) H(e1) = diag(-1, -1, 1, ...): |P - I|^2 = 8 of at most 4 * 4 */
    v[B] = 0, v[B + 1] = 1;
    ck_assert_double_eq_tol(moved_of(v, start, R, B), sqrt(0.5), 1e-7);
    /* against H(e2) H(e3): four dimensions by half a turn, as far as it goes */
    real other[R * B] = {0};
    other[2] = other[B + 3] = 1;
    ck_assert_double_eq_tol(moved_of(v, other, R, B), 1, 1e-7);
    /* a turn by t in the plane of e0 and e1: 2 sqrt(2) sin(t / 2) / 4 */
    const double t = 0.3;
    v[0] = 1, v[1] = 0, v[B] = (real)cos(t / 2), v[B + 1] = (real)sin(t / 2);
    ck_assert_double_eq_tol(moved_of(v, start, R, B), sqrt(2) * sin(t / 2) / 2, 1e-6);
    /* a zero vector is the identity */
    memset(v, 0, sizeof v);
    ck_assert_double_eq_tol(moved_of(v, start, R, B), 0, 1e-7);
}
END_TEST

static void add_cases(TCase *cases) {
    tcase_add_test(cases, attention_is_the_core_s);
    tcase_add_test(cases, entropy_of_known_rows);
    tcase_add_test(cases, rank_of_known_spectra);
    tcase_add_test(cases, rank_of_what_has_none);
    tcase_add_test(cases, moved_reflections);
}

int main(void) { return test_main("measure", (void (*const[])(TCase *)){add_cases}, 1); }
