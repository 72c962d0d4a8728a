/* Another model with the library: a small network that tells two interleaved spirals apart.
 *
 * Two hidden layers with GELU, cross-entropy, AdamW with a cosine schedule.  Compiled and run by the tests: it fails when
 * fewer than 99 % of 400 fresh points are told apart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/gemm.h"
#include "core/rng.h"
#include "layers/layers.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

enum { POINTS = 400, STEPS = 500, WIDTH = 32 };

typedef struct network {
    mla_params params;
    mla_linear_layer first, second, last;
} network;

/* Points (POINTS, 2) on two arms, and which arm each is on. */
static void spirals(real *points, int *labels, uint64_t stream) {
    mla_rng rng = mla_rng_stream(stream, MLA_RNG_TEST, 0, 0);
    for (int i = 0; i < POINTS; i++) {
        const double turn = 3 * sqrt(mla_rng_uniform(&rng)), angle = turn * 2 + 3.14159265 * (i % 2);
        points[2 * i] = (real)(turn / 3 * cos(angle) + 0.01 * mla_rng_normal(&rng));
        points[2 * i + 1] = (real)(turn / 3 * sin(angle) + 0.01 * mla_rng_normal(&rng));
        labels[i] = i % 2;
    }
}

static mla_var forward(const network *n, mla_tape *tape, real *points) {
    mla_var x = mla_tape_input(tape, mla_tensor_make(points, 2, (size_t[]){POINTS, 2}));
    x = mla_linear_forward(&n->first, tape, x, MLA_NO_VAR, MLA_GELU);
    x = mla_linear_forward(&n->second, tape, x, MLA_NO_VAR, MLA_GELU);
    return mla_linear_forward(&n->last, tape, x, MLA_NO_VAR, MLA_IDENTITY);
}

/* One update; returns the mean loss. */
static mla_status step(network *n, mla_tape *tape, mla_optimizer *optimizer, real *gradient, double lr, uint64_t update,
                       real *points, const int *labels, mla_error *error) {
    static real seed[POINTS];
    for (int i = 0; i < POINTS; i++) seed[i] = REAL(1.0 / POINTS);
    for (size_t i = 0; i < n->params.size; i++) gradient[i] = 0;
    mla_tape_begin(tape, &n->params, n->params.value, gradient);
    const mla_var loss = mla_cross_entropy(tape, forward(n, tape, points), labels, NULL, 0);
    const mla_status status = mla_tape_backward(tape, loss, seed, error);
    if (status == MLA_OK)
        mla_optimizer_step(optimizer, gradient, lr, mla_clip_factor(mla_gradient_norm(optimizer, gradient), 1), update);
    return status;
}

static int count_correct(const network *n, mla_tape *tape, real *points, const int *labels) {
    mla_tape_begin(tape, &n->params, n->params.value, NULL);
    const real *logits = mla_value(tape, forward(n, tape, points)).data;
    int correct = 0;
    for (int i = 0; i < POINTS; i++) correct += (logits[2 * i + 1] > logits[2 * i]) == (labels[i] == 1);
    return correct;
}

int main(void) {
    static real points[2 * POINTS], fresh[2 * POINTS];
    static int labels[POINTS], fresh_labels[POINTS];
    network n = {0};
    mla_error error = {0};
    mla_optimizer *optimizer = NULL;
    mla_gemm_setup();
    n.first = mla_linear_declare(&n.params, "first", 2, WIDTH, true, 0);
    n.second = mla_linear_declare(&n.params, "second", WIDTH, WIDTH, true, 0);
    n.last = mla_linear_declare(&n.params, "last", WIDTH, 2, true, 0);
    mla_status status = mla_params_allocate(&n.params, &error);
    if (status == MLA_OK) mla_params_init(&n.params, 0);
    const mla_optimizer_spec spec = {.kind = MLA_ADAMW, .weight_decay = 1e-3, .betas = {0.9, 0.999}, .eps = 1e-8};
    const mla_schedule cosine = {.kind = MLA_SCHEDULE_COSINE, .lr = 2e-2, .epochs = 1, .steps_per_epoch = STEPS};
    if (status == MLA_OK) status = mla_optimizer_new(&optimizer, &spec, &n.params, &error);
    real *gradient = status == MLA_OK ? mla_params_buffer(&n.params) : NULL;
    mla_tape *tape = mla_tape_new();
    spirals(points, labels, 1);
    spirals(fresh, fresh_labels, 2);
    for (uint64_t i = 0; gradient && tape && status == MLA_OK && i < STEPS; i++)
        status = step(&n, tape, optimizer, gradient, mla_schedule_lr(&cosine, i), i + 1, points, labels, &error);
    const int correct = gradient && tape && status == MLA_OK ? count_correct(&n, tape, fresh, fresh_labels) : 0;
    printf("%d of %d fresh points told apart %s\n", correct, POINTS, error.text);
    mla_tape_free(tape);
    free(gradient);
    mla_optimizer_free(optimizer);
    mla_params_free(&n.params);
    return correct * 100 >= POINTS * 99 ? 0 : 1;
}
