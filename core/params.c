#include "core/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

/* Makes room for one more entry; false when out of memory. */
static bool grow(mla_params *params) {
    if (params->entries < params->capacity) return true;
    int capacity = params->capacity ? 2 * params->capacity : 64;
    mla_param *entry = realloc(params->entry, (size_t)capacity * sizeof *entry);
    if (!entry) return false;
    params->entry = entry;
    params->capacity = capacity;
    return true;
}

/* Values of a shape; false when they, with the padding behind them, can't be addressed. */
static bool shape_count(size_t *count, int ndim, const size_t *shape) {
    *count = 1;
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(*count, shape[i], count)) return false;
    return *count <= PTRDIFF_MAX / sizeof(real) - MLA_ALIGN_REALS;
}

int mla_params_add(mla_params *params, const char *name, int ndim, const size_t *shape, mla_init init, bool decay) {
    MLA_REQUIRE(!params->value, "parameter %s is added after the parameters were allocated", name);
    MLA_REQUIRE(ndim >= 0 && ndim <= MLA_MAX_DIMS, "parameter %s has %d dimensions, at most %d are possible", name, ndim,
                (int)MLA_MAX_DIMS);
    MLA_REQUIRE(init.kind < MLA_INIT_REFLECTIONS || ndim >= 2,
                "parameter %s: reflections need a shape (..., reflections, width)", name);
    MLA_REQUIRE(init.kind != MLA_INIT_ORTHOGONAL_ROWS || ndim == 2, "parameter %s: orthogonal rows need a matrix", name);
    MLA_REQUIRE(mla_params_find(params, name) < 0, "parameter %s is added twice", name);

    mla_param param = {.ndim = ndim, .offset = params->size, .init = init, .decay = decay};
    size_t size = 0;
    bool fits = shape_count(&param.count, ndim, shape);
    if (fits) {
        for (int i = 0; i < ndim; i++) param.shape[i] = shape[i];
        size_t padded = (param.count + MLA_ALIGN_REALS - 1) / MLA_ALIGN_REALS * MLA_ALIGN_REALS;
        fits = !__builtin_add_overflow(params->size, padded, &size) && size <= PTRDIFF_MAX / sizeof(real);
    }
    if (!fits || !grow(params) || !(param.name = strdup(name))) {
        params->out_of_memory = true;
        return -1;
    }
    params->size = size;
    params->count += param.count;
    params->entry[params->entries] = param;
    return params->entries++;
}

void mla_params_fix(mla_params *params, int index) {
    if (index < 0 || params->entry[index].fixed) return;
    params->entry[index].fixed = true;
    params->count -= params->entry[index].count;
}

mla_status mla_params_allocate(mla_params *params, mla_error *error) {
    MLA_REQUIRE(!params->value, "the parameters are allocated twice");
    if (params->out_of_memory)
        return mla_fail(error, MLA_NO_MEMORY, "the model's parameters do not fit in memory (%d declared, %.0f MiB)",
                        params->entries, (double)params->size * sizeof(real) / 0x1p20);
    params->value = mla_params_buffer(params);
    if (!params->value)
        return mla_fail(error, MLA_NO_MEMORY, "could not allocate %.0f MiB for %zu parameters",
                        (double)params->size * sizeof(real) / 0x1p20, params->count);
    return MLA_OK;
}

real *mla_params_buffer(const mla_params *params) {
    /* size is a multiple of MLA_ALIGN_REALS, as aligned_alloc wants it. */
    size_t bytes = params->size ? params->size * sizeof(real) : MLA_ALIGN_BYTES;
    real *buffer = aligned_alloc(MLA_ALIGN_BYTES, bytes);
    if (buffer) memset(buffer, 0, bytes);
    return buffer;
}

static void normalise(real *v, size_t width) {
    double square = 0;
    for (size_t i = 0; i < width; i++) square += (double)v[i] * (double)v[i];
    if (square > 0) {
        double scale = 1 / sqrt(square);
        for (size_t i = 0; i < width; i++) v[i] = (real)(v[i] * scale);
    } else if (width) {
        v[0] = 1; /* all draws zero: any direction is as good */
    }
}

/* v <- v + noise of length about `scale`, of unit length again. */
static void perturb(real *v, size_t width, double scale, mla_rng *rng) {
    double deviation = scale / sqrt((double)width);
    for (size_t i = 0; i < width; i++) v[i] = (real)(v[i] + deviation * mla_rng_normal(rng));
    normalise(v, width);
}

/* v (r, width): a direction uniform on the sphere for vectors 2i and 2i+1 together, each then perturbed.  The
 * product of two nearly equal reflections is near the identity; exactly equal ones would be a symmetric
 * start that training does not leave. */
static void init_reflections(real *v, size_t r, size_t width, double scale, mla_rng *rng) {
    for (size_t i = 0; i < r; i += 2) {
        real *first = v + i * width, *second = first + width;
        for (size_t j = 0; j < width; j++) first[j] = (real)mla_rng_normal(rng);
        normalise(first, width);
        bool paired = i + 1 < r;
        if (paired) memcpy(second, first, width * sizeof *v);
        perturb(first, width, scale, rng);
        if (paired) perturb(second, width, scale, rng);
    }
}

/* Rows that are orthogonal in blocks of `width`: normal vectors, each made orthogonal to those before it in its block
 * (Gram-Schmidt, twice, which leaves nothing but rounding), then as long as another normal vector. */
static void init_orthogonal(real *v, size_t rows, size_t width, double scale, mla_rng *rng) {
    for (size_t i = 0; i < rows; i++) {
        real *row = v + i * width;
        for (size_t j = 0; j < width; j++) row[j] = (real)mla_rng_normal(rng);
        for (int pass = 0; pass < 2; pass++)
            for (size_t k = i / width * width; k < i; k++) {
                double dot = 0;
                for (size_t j = 0; j < width; j++) dot += (double)row[j] * (double)v[k * width + j];
                for (size_t j = 0; j < width; j++) row[j] = (real)((double)row[j] - dot * (double)v[k * width + j]);
            }
        normalise(row, width);
    }
    for (size_t i = 0; i < rows; i++) {
        double square = 0;
        for (size_t j = 0; j < width; j++) {
            const double x = mla_rng_normal(rng);
            square += x * x;
        }
        for (size_t j = 0; j < width; j++) v[i * width + j] = (real)(scale * sqrt(square) * (double)v[i * width + j]);
    }
}

/* v (r, width): H(e_1) ... H(e_width) = -I, the shortest product that is; pairs near I behind it. */
static void init_basis(real *v, size_t r, size_t width, double scale, mla_rng *rng) {
    const size_t axes = r < width ? r : width;
    memset(v, 0, axes * width * sizeof *v);
    for (size_t i = 0; i < axes; i++) v[i * width + i] = 1;
    init_reflections(v + axes * width, r - axes, width, scale, rng);
}

static void init_directions(real *v, size_t count, size_t width, mla_rng *rng) {
    for (size_t i = 0; i < count * width; i++) v[i] = (real)mla_rng_normal(rng);
    for (size_t i = 0; i < count; i++) normalise(v + i * width, width);
}

static void init_param(real *value, const mla_param *param, mla_rng *rng) {
    const double scale = param->init.scale;
    const size_t width = param->ndim ? param->shape[param->ndim - 1] : 1,
                 r = param->ndim > 1 ? param->shape[param->ndim - 2] : 1;
    switch (param->init.kind) {
    case MLA_INIT_CONSTANT:
        for (size_t i = 0; i < param->count; i++) value[i] = (real)scale;
        break;
    case MLA_INIT_NORMAL:
        for (size_t i = 0; i < param->count; i++) value[i] = (real)(scale * mla_rng_normal(rng));
        break;
    case MLA_INIT_ORTHOGONAL_ROWS: init_orthogonal(value, param->shape[0], param->shape[1], scale, rng); break;
    case MLA_INIT_REFLECTIONS: init_directions(value, param->count / width, width, rng); break;
    case MLA_INIT_REFLECTION_PAIRS:
        for (size_t i = 0; i < param->count; i += r * width) init_reflections(value + i, r, width, scale, rng);
        break;
    case MLA_INIT_REFLECTION_BASIS:
        for (size_t i = 0; i < param->count; i += r * width) init_basis(value + i, r, width, scale, rng);
        break;
    }
}

void mla_params_init(mla_params *params, uint64_t seed) {
    MLA_REQUIRE(params->value, "the parameters are initialised before they are allocated");
    for (int i = 0; i < params->entries; i++) {
        mla_rng rng = mla_rng_stream(seed, MLA_RNG_INIT, 0, (uint64_t)i);
        init_param(params->value + params->entry[i].offset, &params->entry[i], &rng);
    }
}

int mla_params_find(const mla_params *params, const char *name) {
    for (int i = 0; i < params->entries; i++)
        if (strcmp(params->entry[i].name, name) == 0) return i;
    return -1;
}

uint64_t mla_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

uint64_t mla_params_hash(const mla_params *params, const real *value) {
    uint64_t hash = MLA_HASH_START;
    for (int i = 0; i < params->entries; i++)
        hash = mla_hash_bytes(hash, value + params->entry[i].offset, params->entry[i].count * sizeof *value);
    return hash;
}

mla_decay_totals mla_params_decay_totals(const mla_params *params) {
    mla_decay_totals totals = {0};
    for (int i = 0; i < params->entries; i++) {
        if (params->entry[i].fixed) continue;
        totals.count[params->entry[i].decay] += params->entry[i].count;
        totals.tensors[params->entry[i].decay]++;
    }
    return totals;
}

const char *mla_params_not_finite(const mla_params *params, const real *value) {
    for (int i = 0; i < params->entries; i++) {
        const real *v = value + params->entry[i].offset;
        for (size_t j = 0; j < params->entry[i].count; j++)
            if (!isfinite(v[j])) return params->entry[i].name;
    }
    return NULL;
}

void mla_params_free(mla_params *params) {
    for (int i = 0; i < params->entries; i++) free(params->entry[i].name);
    free(params->entry);
    free(params->value);
    *params = (mla_params){0};
}
