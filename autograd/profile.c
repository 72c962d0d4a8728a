#include "autograd/profile.h"

#include <time.h>

const char *mla_profile_name(int row) { return row < MLA_OP_COUNT ? mla_op_get((mla_op_id)row)->name : "(own)"; }

static void add_rows(mla_profile_row *sum, const mla_profile_row *more) {
    for (int i = 0; i <= MLA_OP_COUNT; i++) {
        sum[i].calls += more[i].calls;
        sum[i].ns += more[i].ns;
        sum[i].bytes += more[i].bytes;
        sum[i].flops += more[i].flops;
    }
}

void mla_profile_sum(mla_profile *sum, const mla_profile *more) {
    add_rows(sum->forward, more->forward);
    add_rows(sum->backward, more->backward);
}

uint64_t mla_profile_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static size_t reals_of(const mla_tensor *t) { return t->data ? mla_tensor_count(t) : 0; }

static int row_of(const mla_op *op) {
    int row = 0;
    while (row < MLA_OP_COUNT && mla_op_get((mla_op_id)row) != op) row++;
    return row;
}

void mla_profile_add(mla_profile_row rows[MLA_OP_COUNT + 1], const mla_op *op, uint64_t start_ns, double flops,
                     const mla_op_args *args, size_t saved) {
    const uint64_t end_ns = mla_profile_now();
    mla_profile_row *row = &rows[row_of(op)];
    size_t reals = reals_of(&args->out) + reals_of(&args->dout) + saved;
    for (int i = 0; i < MLA_MAX_INPUTS; i++) reals += reals_of(&args->in[i]) + reals_of(&args->din[i]);
    row->calls++;
    row->ns += end_ns - start_ns;
    row->bytes += reals * sizeof(real);
    row->flops += flops;
}
