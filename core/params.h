/* Parameters in one flat buffer.
 *
 * A model declares its parameters by name and shape; each becomes a slice of one 64-byte-aligned array. Gradients
 * of a lane, optimiser moments and the weight average are arrays of the same layout, so that clipping, the
 * optimiser, checkpoints and an all-reduce are single loops over `size` values or over the named ranges.
 *
 *     mla_params params = {0};
 *     int w = mla_params_add(&params, "head.weight", 2, (size_t[]){10, 64}, (mla_init){MLA_INIT_NORMAL, 0.02}, true);
 *     if (mla_params_allocate(&params, &error) != MLA_OK) ...
 *     mla_params_init(&params, seed);
 *     real *weight = params.value + params.entry[w].offset;
 *     mla_params_free(&params);
 *
 * Gaps between slices (up to the next multiple of MLA_ALIGN_REALS) hold zero and stay zero.
 */
#ifndef MLA_CORE_PARAMS_H
#define MLA_CORE_PARAMS_H

#include <stdint.h>

#include "core/real.h"
#include "core/status.h"

enum { MLA_MAX_DIMS = 4 };

typedef enum mla_init_kind {
    MLA_INIT_CONSTANT,         /* every value = scale */
    MLA_INIT_NORMAL,           /* normal, mean 0, deviation scale */
    MLA_INIT_ORTHOGONAL_ROWS,  /* of a (rows, width) matrix: each `width` of them are orthogonal, with a uniformly random
                                  basis, and each is as long as a vector of `width` normal numbers, times scale */
    MLA_INIT_REFLECTIONS,      /* unit vectors along the last dimension, uniform on the sphere */
    MLA_INIT_REFLECTION_PAIRS, /* the same; in the dimension before it, vectors 2i and 2i+1 start nearly equal (noise of
                                  length about `scale`): their product is near I */
    MLA_INIT_REFLECTION_BASIS  /* the coordinate axes, whose product is -I, and behind them, where there are more vectors
                                  than dimensions, pairs as above */
} mla_init_kind;

typedef struct mla_init {
    mla_init_kind kind;
    double scale;
} mla_init;

typedef struct mla_param {
    char *name; /* of the state_dict, e.g. blocks.0.attn.qkv.weight */
    int ndim;
    size_t shape[MLA_MAX_DIMS];
    size_t offset, count; /* in reals; offset is a multiple of MLA_ALIGN_REALS */
    mla_init init;
    bool decay;  /* weight decay applies */
    bool fixed;  /* keeps its initial values: no gradient, no update, no average */
    bool matrix; /* the weight of a linear map, (shape[0], count / shape[0]) row by row */
} mla_param;

typedef struct mla_params {
    mla_param *entry;
    int entries, capacity;
    size_t size;  /* reals of a flat buffer, gaps included */
    size_t count; /* parameters proper: gaps and what is fixed not included */
    real *value;  /* the weights, NULL until allocated */
    bool out_of_memory;
} mla_params;

/* Declares a parameter and returns its index.  Out of memory is remembered and told by mla_params_allocate;
 * the index is then -1. */
int mla_params_add(mla_params *params, const char *name, int ndim, const size_t *shape, mla_init init, bool decay);

/* Marks a parameter as the matrix of a linear map; an index of -1 (out of memory) is passed over. */
static inline void mla_params_mark_matrix(mla_params *params, int index) {
    if (index >= 0) params->entry[index].matrix = true;
}

/* Fixes a tensor at its initial values: it belongs to the model and to its files, but is no parameter that is counted,
 * trained, decayed or averaged.  An index of -1 is passed over. */
void mla_params_fix(mla_params *params, int index);

/* Allocates the weights (zeros).  No parameter may be added afterwards. */
MLA_MUST_CHECK mla_status mla_params_allocate(mla_params *params, mla_error *error);

/* Draws initial weights; parameter i uses the stream (seed, MLA_RNG_INIT, 0, i). */
void mla_params_init(mla_params *params, uint64_t seed);

/* Index of a name, or -1. */
int mla_params_find(const mla_params *params, const char *name);

/* A further zeroed buffer of params->size reals in the same layout (gradient, moment, average); the caller
 * releases it with free.  NULL when out of memory. */
real *mla_params_buffer(const mla_params *params);

/* 64-bit FNV-1a over the bytes of all parameters in order, gaps left out: the hash that runs print and compare. */
uint64_t mla_params_hash(const mla_params *params, const real *value);

/* One step of that hash over any bytes, from MLA_HASH_START: for weights that are not in a flat buffer. */
#define MLA_HASH_START UINT64_C(14695981039346656037)
uint64_t mla_hash_bytes(uint64_t hash, const void *data, size_t bytes);

/* What weight decay acts on ([1]) and what it does not ([0]), of what is trained. */
typedef struct mla_decay_totals {
    size_t count[2]; /* parameters */
    int tensors[2];
} mla_decay_totals;
mla_decay_totals mla_params_decay_totals(const mla_params *params);

/* Name of the first parameter that has a value that is not finite, or NULL. */
const char *mla_params_not_finite(const mla_params *params, const real *value);

void mla_params_free(mla_params *params);

#endif
