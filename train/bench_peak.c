#include <cblas.h>
#include <omp.h>
#include <stdlib.h>

#include "core/rng.h"
#include "train/bench.h"
#include "train/progress.h"

enum { SIDE = MLA_BENCH_PEAK_SIDE };

struct mla_bench_peak {
    float *a, *b, *c; /* (SIDE, SIDE); c: one a thread */
};

mla_bench_peak *mla_bench_peak_new(int threads) {
    const size_t count = (size_t)SIDE * SIDE;
    mla_bench_peak *peak = calloc(1, sizeof *peak);
    if (!peak) return NULL;
    peak->a = malloc(count * sizeof(float));
    peak->b = malloc(count * sizeof(float));
    peak->c = calloc((size_t)threads * count, sizeof(float));
    if (!peak->a || !peak->b || !peak->c) {
        mla_bench_peak_free(peak);
        return NULL;
    }
    mla_rng rng = mla_rng_stream(0, MLA_RNG_TEST, 0, 0);
    for (size_t i = 0; i < count; i++) {
        peak->a[i] = (float)mla_rng_uniform(&rng) - 0.5f;
        peak->b[i] = (float)mla_rng_uniform(&rng) - 0.5f;
    }
    return peak;
}

void mla_bench_peak_free(mla_bench_peak *peak) {
    if (!peak) return;
    free(peak->a);
    free(peak->b);
    free(peak->c);
    free(peak);
}

/* BLAS itself and not mla_gemm: what is measured is the machine, whatever the engine makes of it. */
double mla_bench_peak_measure(mla_bench_peak *peak, int threads) {
    const double start = mla_seconds();
#pragma omp parallel num_threads(threads)
    {
        float *c = peak->c + (size_t)omp_get_thread_num() * SIDE * SIDE;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIDE, SIDE, SIDE, 1, peak->a, SIDE, peak->b, SIDE, 0, c,
                    SIDE);
    }
    return 2.0 * threads * SIDE * SIDE * SIDE / (mla_seconds() - start) / 1e9;
}
