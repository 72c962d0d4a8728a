#include "autograd/gradcheck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/rng.h"

typedef struct run {
    const mla_gradcheck *check;
    mla_tape *tape;
    real *gradient[MLA_GRADCHECK_INPUTS], *params_gradient, *upstream;
    size_t outputs;
} run;

/* Records the graph; with gradients wanted, leaves collect them. */
static mla_var record(run *r, bool wanted) {
    const mla_gradcheck *check = r->check;
    mla_var inputs[MLA_GRADCHECK_INPUTS];
    mla_tape_begin(r->tape, check->params, check->params ? check->params->value : NULL, wanted ? r->params_gradient : NULL);
    for (int i = 0; i < check->inputs; i++)
        inputs[i] = mla_tape_leaf(r->tape, check->input[i], wanted ? r->gradient[i] : NULL);
    return check->build(r->tape, inputs, check->context);
}

static double loss(run *r) {
    const mla_var y = record(r, false);
    const mla_tensor value = mla_value(r->tape, y);
    if (!value.data) return NAN;
    double sum = 0;
    for (size_t i = 0; i < r->outputs; i++) sum += (double)value.data[i] * (double)r->upstream[i];
    return sum;
}

static mla_status compare(run *r, mla_gradcheck_result *result, real *values, const real *gradient, size_t count,
                          const char *name, mla_error *error) {
    const double step = r->check->step > 0 ? r->check->step : 1e-5;
    const double tolerance = r->check->tolerance > 0 ? r->check->tolerance : 1e-6;
    for (size_t i = 0; i < count; i++) {
        const real kept = values[i];
        values[i] = kept + (real)step;
        const double above = loss(r);
        values[i] = kept - (real)step;
        const double below = loss(r);
        values[i] = kept;
        const double numeric = (above - below) / (2 * step), analytic = (double)gradient[i];
        if (!isfinite(numeric) || !isfinite(analytic))
            return mla_fail(error, MLA_NOT_FINITE, "%s, element %zu: analytic %g, numeric %g", name, i, analytic, numeric);
        const double size = fmax(fmax(fabs(analytic), fabs(numeric)), 1), difference = fabs(analytic - numeric) / size;
        if (difference > result->worst) result->worst = difference;
        result->compared++;
        if (!(difference <= tolerance))
            return mla_fail(error, MLA_INVALID,
                            "%s, element %zu: analytic %.9g, numeric %.9g, relative difference %.2g, allowed %.2g", name, i,
                            analytic, numeric, difference, tolerance);
    }
    return MLA_OK;
}

static mla_status compare_all(run *r, mla_gradcheck_result *result, mla_error *error) {
    const mla_gradcheck *check = r->check;
    for (int i = 0; i < check->inputs; i++) {
        char name[32];
        snprintf(name, sizeof name, "input %d", i);
        const mla_status status =
            compare(r, result, check->input[i].data, r->gradient[i], mla_tensor_count(&check->input[i]), name, error);
        if (status != MLA_OK) return status;
    }
    for (int i = 0; check->params && i < check->params->entries; i++) {
        const mla_param *p = &check->params->entry[i];
        if (p->fixed) continue;
        const mla_status status =
            compare(r, result, check->params->value + p->offset, r->params_gradient + p->offset, p->count, p->name, error);
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}

/* Buffers, upstream gradient and the analytic gradients. */
static mla_status prepare(run *r, mla_error *error) {
    const mla_gradcheck *check = r->check;
    size_t elements = check->params ? check->params->count : 0;
    for (int i = 0; i < check->inputs; i++) elements += mla_tensor_count(&check->input[i]);
    if (elements == 0) return mla_fail(error, MLA_INVALID, "the gradient check would compare nothing");
    r->tape = mla_tape_new();
    bool enough = r->tape != NULL;
    for (int i = 0; i < check->inputs; i++)
        enough &= (r->gradient[i] = calloc(mla_tensor_count(&check->input[i]) + 1, sizeof(real))) != NULL;
    if (check->params) enough &= (r->params_gradient = mla_params_buffer(check->params)) != NULL;
    if (!enough) return mla_fail(error, MLA_NO_MEMORY, "out of memory in the gradient check");
    const mla_var y = record(r, true);
    const mla_tensor value = mla_value(r->tape, y);
    if (!value.data) return mla_tape_status(r->tape, error);
    r->outputs = mla_tensor_count(&value);
    r->upstream = calloc(r->outputs, sizeof(real));
    if (!r->upstream) return mla_fail(error, MLA_NO_MEMORY, "out of memory in the gradient check");
    mla_rng rng = mla_rng_stream(7, MLA_RNG_TEST, 0, 1);
    for (size_t i = 0; i < r->outputs; i++) r->upstream[i] = (real)(mla_rng_normal(&rng) + 0.25);
    return mla_tape_backward(r->tape, y, r->upstream, error);
}

mla_status mla_gradcheck_run(const mla_gradcheck *check, mla_gradcheck_result *result, mla_error *error) {
    MLA_REQUIRE(check->inputs <= MLA_GRADCHECK_INPUTS, "gradient check of %d inputs", check->inputs);
    run r = {.check = check};
    *result = (mla_gradcheck_result){0};
    mla_status status = prepare(&r, error);
    if (status == MLA_OK) status = compare_all(&r, result, error);
    for (int i = 0; i < check->inputs; i++) free(r.gradient[i]);
    free(r.params_gradient);
    free(r.upstream);
    mla_tape_free(r.tape);
    return status;
}
