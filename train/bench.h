/* Measuring training steps: `mirrorla bench`.
 *
 * A case is one model with its engine and optimiser, ready to take steps on the config's data set, or on random bytes in
 * its place.  All cases of a measurement take a step in turn, and before each step the machine's GEMM peak is measured,
 * so that a disturbance of the machine hits all of them alike.
 *
 *     bench.h            this
 *     bench_case.c       a case: what it is made of, one step
 *     bench_measure.c    rounds over cases; medians and quartiles
 *     bench_peak.c       the machine's GEMM peak
 *     bench_print.c      tables for people
 *     bench_json.c       the same as JSON
 *     bench_tokens.c     time and memory against the number of tokens
 *     cmd_bench.c        the command line
 */
#ifndef MLA_TRAIN_BENCH_H
#define MLA_TRAIN_BENCH_H

#include <jansson.h>

#include "optim/optimizer.h"
#include "train/loader.h"
#include "train/stand_in.h"

/* ---- the machine's peak */

typedef struct mla_bench_peak mla_bench_peak;

enum { MLA_BENCH_PEAK_SIDE = 2048, MLA_BENCH_PEAK_TRIES = 6 };

/* Operands for up to `threads` threads; NULL when out of memory. */
mla_bench_peak *mla_bench_peak_new(int threads);
void mla_bench_peak_free(mla_bench_peak *peak); /* NULL is allowed */
/* GFLOP/s of `threads` threads that compute a product of 2048 x 2048 single-precision matrices each, at the same time. */
double mla_bench_peak_measure(mla_bench_peak *peak, int threads);

/* ---- cases */

/* Parts of a step, ms.  In those of the threads' work it is the mean over the threads. */
typedef enum mla_bench_part {
    MLA_BENCH_STEP, /* all of it */
    MLA_BENCH_DATA,
    MLA_BENCH_FORWARD,
    MLA_BENCH_BACKWARD,
    MLA_BENCH_SUM,       /* gradients of the lanes: zeroing, adding up */
    MLA_BENCH_WAIT,      /* for threads that still worked, and between the parts */
    MLA_BENCH_OPTIMIZER, /* norm, clipping, update, average */
    MLA_BENCH_PARTS
} mla_bench_part;
const char *mla_bench_part_name(mla_bench_part part);

typedef struct mla_bench_sample {
    double ms[MLA_BENCH_PARTS];
} mla_bench_sample;

typedef struct mla_bench_case {
    mla_config config;
    int threads, shard;
    size_t tokens;     /* of an image, first stage */
    size_t data_bytes; /* resident memory that opening the data set took */
    size_t peak_bytes; /* resident memory of the process after the warm-up; 0: several cases are open */
    mla_model *model;
    mla_engine *engine;
    mla_optimizer *optimizer;
    mla_dataset *dataset; /* NULL: random bytes */
    mla_stand_in stand_in;
    mla_loader loader;
    uint32_t *order, *batch; /* of the data set; of the step at hand */
    uint64_t step;
    mla_bench_sample *samples; /* one a round */
    double *peaks;             /* GFLOP/s, measured before each sample and after the last */
    int sample_count, peak_count;
    double *scratch;            /* room for the values of a spread */
    mla_engine_profile profile; /* of all samples */
    double spent_s;
} mla_bench_case;

typedef struct mla_bench_options {
    const char *path;
    const char *const *overrides;
    size_t override_count;
    int threads; /* 0: one a core */
    int steps;
    double budget_s; /* of one case: it takes no further steps when it is used up */
    bool synthetic;  /* random bytes even if the data set is at hand */
    bool with_peak;  /* measure the machine's peak */
    bool alone;      /* the only case: the process's memory is the case's */
} mla_bench_options;

/* Loads the config and makes everything that a step needs.  On failure *c is closed. */
MLA_MUST_CHECK mla_status mla_bench_case_open(mla_bench_case *c, const mla_bench_options *options, mla_error *error);
void mla_bench_case_close(mla_bench_case *c);
/* One training step; *sample receives its times. */
MLA_MUST_CHECK mla_status mla_bench_case_step(mla_bench_case *c, mla_bench_sample *sample, mla_error *error);

/* FLOPs of one step: matrix products and convolutions of forward, times three. */
double mla_bench_case_flops(const mla_bench_case *c);
/* Weights, moments and average, bytes, and how many such buffers there are. */
size_t mla_bench_case_state_bytes(const mla_bench_case *c, int *buffers);
/* "cifar10 (/data/cifar-10)", or what stands in. */
void mla_bench_case_data(const mla_bench_case *c, char out[512]);

/* ---- measuring */

/* Warms up, then takes options->steps steps with each case in turn.  MLA_INTERRUPTED after Ctrl-C. */
MLA_MUST_CHECK mla_status mla_bench_measure(mla_bench_case *cases, int count, const mla_bench_options *options,
                                            mla_error *error);

typedef struct mla_spread {
    double median, least, quarter, three_quarters, most, mean;
} mla_spread;
/* Of `count` > 0 values, which are sorted in place. */
mla_spread mla_spread_of(double *values, int count);
mla_spread mla_bench_case_spread(const mla_bench_case *c, mla_bench_part part);
mla_spread mla_bench_case_peak(const mla_bench_case *c);
/* Step times of `other` over those of `one`, round by round. */
mla_spread mla_bench_ratio(const mla_bench_case *other, const mla_bench_case *one);

/* A row of the table of operations; together the rows make up the mean step. */
typedef struct mla_bench_row {
    const char *name, *pass;            /* pass: "forward", "backward" or "" */
    double calls, ms, gflop, mebibytes; /* of a step */
} mla_bench_row;
enum { MLA_BENCH_ROWS = 2 * (MLA_OP_COUNT + 1) + MLA_BENCH_PARTS };
int mla_bench_rows(const mla_bench_case *c, mla_bench_row rows[MLA_BENCH_ROWS]); /* how many there are */

/* ---- telling */

void mla_bench_print(const mla_bench_case *cases, int count);
json_t *mla_bench_json(const mla_bench_case *cases, int count); /* NULL when out of memory */

/* ---- against the number of tokens */

typedef struct mla_bench_sweep {
    const int *kinds, *tokens; /* attention kinds; tokens of an image */
    int kind_count, token_count;
    bool json;
} mla_bench_sweep;

/* Measures and prints the table (and the crossover of each linear kind with softmax). */
MLA_MUST_CHECK mla_status mla_bench_tokens(const mla_bench_options *options, const mla_bench_sweep *sweep, mla_error *error);

#endif
