/* Optimisers over the flat parameter buffer: one pass that reads each value once.
 *
 *     SGD     g = c grad + decay w;  m = momentum m + g;  w -= lr (nesterov ? g + momentum m : m)
 *     AdamW   w -= lr decay w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2,  g = c grad
 *             w -= lr / (1 - b1^n) m / (sqrt(v / (1 - b2^n)) + eps)          (Loshchilov & Hutter, arXiv 1711.05101)
 *     EMA     average = d average + (1 - d) w,  d = min(ema, (1 + n) / (10 + n)) with warm-up
 *
 * both as torch.optim.SGD and torch.optim.AdamW compute them; n counts updates from 1, c is the clipping factor, and
 * decay acts on the parameters whose `decay` flag is set.  Work is cut into chunks that depend on the parameters alone,
 * and sums are taken in the order of the chunks, so results do not depend on the number of threads.
 *
 *     mla_optimizer *optimizer;
 *     if (mla_optimizer_new(&optimizer, &spec, params, &error) != MLA_OK) ...
 *     double norm = mla_gradient_norm(optimizer, gradient);
 *     mla_optimizer_step(optimizer, gradient, lr, mla_clip_factor(norm, clip), n);
 *     mla_optimizer_free(optimizer);
 */
#ifndef MLA_OPTIM_OPTIMIZER_H
#define MLA_OPTIM_OPTIMIZER_H

#include <stdint.h>

#include "core/params.h"

typedef enum mla_optimizer_kind { MLA_SGD, MLA_ADAMW } mla_optimizer_kind;

typedef struct mla_optimizer_spec {
    mla_optimizer_kind kind;
    double weight_decay;
    double betas[2], eps; /* AdamW */
    double momentum;      /* SGD */
    bool nesterov;        /* SGD */
    int threads;          /* of each pass; 0: one */
    double ema;           /* decay of the weight average; 0: none is kept */
    bool ema_warmup;
} mla_optimizer_spec;

typedef struct mla_optimizer mla_optimizer;

/* Allocates the state for `params` (kept by the caller, who outlives the optimiser): moments start at zero, the average
 * at the weights as they are now. */
MLA_MUST_CHECK mla_status mla_optimizer_new(mla_optimizer **optimizer, const mla_optimizer_spec *spec, mla_params *params,
                                            mla_error *error);
void mla_optimizer_free(mla_optimizer *optimizer); /* NULL is allowed */

/* State buffers in the layout of the parameters, owned by the optimiser; NULL where the kind has none.  SGD's momentum is
 * moment1. */
real *mla_optimizer_moment1(mla_optimizer *optimizer);
real *mla_optimizer_moment2(mla_optimizer *optimizer);
real *mla_optimizer_average(mla_optimizer *optimizer);

/* Euclidean norm over all parameters, summed in double chunk by chunk. */
double mla_gradient_norm(const mla_optimizer *optimizer, const real *gradient);

/* min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when limit is 0. */
double mla_clip_factor(double norm, double limit);

/* Update n (from 1) of the weights, the moments and the average. */
void mla_optimizer_step(mla_optimizer *optimizer, const real *gradient, double lr, double factor, uint64_t n);

#endif
