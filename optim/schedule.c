#include "optim/schedule.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

double mla_schedule_lr(const mla_schedule *s, uint64_t step) {
    const double steps_per_epoch = (double)s->steps_per_epoch, total = (double)s->epochs * steps_per_epoch;
    const double warm = floor(s->warmup_epochs * steps_per_epoch + 0.5), t = (double)step;
    if (t < warm) return s->warmup_lr + (s->lr - s->warmup_lr) * (t + 1) / warm;
    const double start = s->warmup_prefix ? warm : 0, rest = total - start;
    double done = rest > 0 ? (t - start) / rest : 1;
    if (done > 1) done = 1;
    switch (s->kind) {
    case MLA_SCHEDULE_STEP: return s->lr * pow(s->step_factor, floor((t - start) / (s->step_epochs * steps_per_epoch)));
    case MLA_SCHEDULE_LINEAR: return s->lr + (s->min_lr - s->lr) * done;
    case MLA_SCHEDULE_COSINE: return s->min_lr + 0.5 * (s->lr - s->min_lr) * (1 + cos(PI * done));
    case MLA_SCHEDULE_CONSTANT: break;
    }
    return s->lr;
}
