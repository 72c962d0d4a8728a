/* Learning-rate schedules: a pure function of the step, so that a resumed run cannot be off.
 *
 * Step t counts optimiser updates from 0; one update a batch.  During the warm-up the rate rises linearly and reaches
 * lr at its last step; the schedule proper then runs over the rest, without a jump.  With `warmup_prefix` false its
 * clock also ran during the warm-up, as in the schedulers of timm and of the PolaFormer family.
 *
 *     warm-up   warmup_lr + (lr - warmup_lr) (t + 1) / warm
 *     constant  lr
 *     step      lr step_factor^floor(p / step_epochs)              p: epochs since the warm-up
 *     linear    lr + (min_lr - lr) x                               x: share of the rest that is done, 0 .. 1
 *     cosine    min_lr + (lr - min_lr) (1 + cos(pi x)) / 2         (Loshchilov & Hutter, arXiv 1608.03983)
 */
#ifndef MLA_OPTIM_SCHEDULE_H
#define MLA_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mla_schedule_kind {
    MLA_SCHEDULE_CONSTANT,
    MLA_SCHEDULE_STEP,
    MLA_SCHEDULE_LINEAR,
    MLA_SCHEDULE_COSINE
} mla_schedule_kind;

typedef struct mla_schedule {
    mla_schedule_kind kind;
    double lr, min_lr;
    double warmup_epochs, warmup_lr;
    double step_epochs, step_factor;
    bool warmup_prefix;
    uint64_t epochs, steps_per_epoch;
} mla_schedule;

/* Learning rate of update `step` (0-based). */
double mla_schedule_lr(const mla_schedule *schedule, uint64_t step);

#endif
