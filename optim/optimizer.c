#include "optim/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 16384 }; /* reals worked on at once: a chunk of five buffers stays in L2 */

typedef struct chunk {
    size_t offset, count;
    bool decay;
} chunk;

struct mla_optimizer {
    mla_optimizer_spec spec;
    mla_params *params;
    real *moment1, *moment2, *average;
    chunk *chunks;
    double *partial; /* sums of the chunks */
    int chunk_count;
};

/* Fixed tensors are in none: they keep their values, and so does their place in the average. */
static int count_chunks(const mla_params *params) {
    size_t count = 0;
    for (int i = 0; i < params->entries; i++)
        if (!params->entry[i].fixed) count += (params->entry[i].count + CHUNK - 1) / CHUNK;
    return (int)count;
}

static void fill_chunks(mla_optimizer *optimizer) {
    chunk *next = optimizer->chunks;
    for (int i = 0; i < optimizer->params->entries; i++) {
        const mla_param *p = &optimizer->params->entry[i];
        for (size_t first = 0; !p->fixed && first < p->count; first += CHUNK)
            *next++ = (chunk){p->offset + first, p->count - first < CHUNK ? p->count - first : CHUNK, p->decay};
    }
}

mla_status mla_optimizer_new(mla_optimizer **out, const mla_optimizer_spec *spec, mla_params *params, mla_error *error) {
    *out = NULL;
    mla_optimizer *o = calloc(1, sizeof *o);
    if (!o) return mla_fail(error, MLA_NO_MEMORY, "out of memory for the optimiser");
    o->spec = *spec;
    if (o->spec.threads < 1) o->spec.threads = 1;
    o->params = params;
    o->chunk_count = count_chunks(params);
    o->chunks = calloc((size_t)o->chunk_count + 1, sizeof *o->chunks);
    o->partial = calloc((size_t)o->chunk_count + 1, sizeof *o->partial);
    bool enough = o->chunks && o->partial;
    if (spec->kind == MLA_ADAMW || spec->momentum > 0) enough &= (o->moment1 = mla_params_buffer(params)) != NULL;
    if (spec->kind == MLA_ADAMW) enough &= (o->moment2 = mla_params_buffer(params)) != NULL;
    if (spec->ema > 0) enough &= (o->average = mla_params_buffer(params)) != NULL;
    if (!enough) {
        mla_optimizer_free(o);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for the optimiser's state of %zu parameters", params->count);
    }
    fill_chunks(o);
    if (o->average) memcpy(o->average, params->value, params->size * sizeof(real));
    *out = o;
    return MLA_OK;
}

void mla_optimizer_free(mla_optimizer *o) {
    if (!o) return;
    free(o->moment1);
    free(o->moment2);
    free(o->average);
    free(o->chunks);
    free(o->partial);
    free(o);
}

real *mla_optimizer_moment1(mla_optimizer *o) { return o->moment1; }
real *mla_optimizer_moment2(mla_optimizer *o) { return o->moment2; }
real *mla_optimizer_average(mla_optimizer *o) { return o->average; }

double mla_gradient_norm(const mla_optimizer *o, const real *gradient) {
#pragma omp parallel for schedule(static) num_threads(o->spec.threads)
    for (int i = 0; i < o->chunk_count; i++) {
        const real *g = gradient + o->chunks[i].offset;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < o->chunks[i].count; j++) sum += (double)g[j] * (double)g[j];
        o->partial[i] = sum;
    }
    double sum = 0;
    for (int i = 0; i < o->chunk_count; i++) sum += o->partial[i];
    return sqrt(sum);
}

double mla_clip_factor(double norm, double limit) {
    const double factor = limit / (norm + 1e-6);
    return limit > 0 && factor < 1 ? factor : 1;
}

/* One update's numbers, in the engine's type. */
typedef struct update {
    real lr, decay, factor, beta1, beta2, rest1, rest2, rate, root_correction, eps, momentum; /* rest: 1 - beta */
    bool nesterov;
} update;

static void adamw(real *restrict w, real *restrict m, real *restrict v, const real *restrict gradient, size_t n, update u) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const real g = u.factor * gradient[i], kept = w[i] - u.lr * u.decay * w[i];
        m[i] = u.beta1 * m[i] + u.rest1 * g;
        v[i] = u.beta2 * v[i] + u.rest2 * g * g;
#ifdef MLA_DOUBLE
        w[i] = kept - u.rate * m[i] / (sqrt(v[i]) * u.root_correction + u.eps);
#else
        w[i] = kept - u.rate * m[i] / (sqrtf(v[i]) * u.root_correction + u.eps);
#endif
    }
}

static void sgd(real *restrict w, real *restrict m, const real *restrict gradient, size_t n, update u) {
    for (size_t i = 0; i < n; i++) {
        const real g = u.factor * gradient[i] + u.decay * w[i];
        real step = g;
        if (m) {
            m[i] = u.momentum * m[i] + g;
            step = u.nesterov ? g + u.momentum * m[i] : m[i];
        }
        w[i] -= u.lr * step;
    }
}

static void update_average(real *restrict average, const real *restrict w, size_t n, real decay) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) average[i] = decay * average[i] + (1 - decay) * w[i];
}

void mla_optimizer_step(mla_optimizer *o, const real *gradient, double lr, double factor, uint64_t n) {
    const mla_optimizer_spec *spec = &o->spec;
    const double first = 1 - pow(spec->betas[0], (double)n), second = 1 - pow(spec->betas[1], (double)n);
    update u = {.lr = (real)lr,
                .factor = (real)factor,
                .beta1 = (real)spec->betas[0],
                .beta2 = (real)spec->betas[1],
                .eps = (real)spec->eps,
                .momentum = (real)spec->momentum,
                .nesterov = spec->nesterov};
    if (spec->kind == MLA_ADAMW) {
        /* Subtracted in double: 1 - 0.999 in float is off by 1e-5 of itself. */
        u.rest1 = (real)(1 - spec->betas[0]);
        u.rest2 = (real)(1 - spec->betas[1]);
        u.rate = (real)(lr / first);
        u.root_correction = (real)(1 / sqrt(second));
    }
    const double warm = (1 + (double)n) / (10 + (double)n);
    const real ema = (real)(spec->ema_warmup && warm < spec->ema ? warm : spec->ema);
#pragma omp parallel for schedule(static) num_threads(o->spec.threads)
    for (int i = 0; i < o->chunk_count; i++) {
        const chunk c = o->chunks[i];
        update mine = u;
        mine.decay = c.decay ? (real)spec->weight_decay : 0;
        real *w = o->params->value + c.offset;
        if (spec->kind == MLA_ADAMW)
            adamw(w, o->moment1 + c.offset, o->moment2 + c.offset, gradient + c.offset, c.count, mine);
        else
            sgd(w, o->moment1 ? o->moment1 + c.offset : NULL, gradient + c.offset, c.count, mine);
        if (o->average) update_average(o->average + c.offset, w, c.count, ema);
    }
}
