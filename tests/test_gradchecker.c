/* The gradient checker has to find planted mistakes; in the double build, which the checks need. */
#ifndef MLA_DOUBLE
#error "the gradient checker needs the double build of the engine"
#endif

#include "autograd/gradcheck.h"
#include "tests/support.h"

/* y = x^2, with a backward that may be wrong. */

static void square_plan(const mla_op_args *args, mla_op_plan *plan) {
    plan->ndim = args->in[0].ndim;
    memcpy(plan->shape, args->in[0].shape, sizeof plan->shape);
}
static void square_forward(mla_op_args *args) {
    for (size_t i = 0; i < mla_tensor_count(&args->in[0]); i++)
        args->out.data[i] = args->in[0].data[i] * args->in[0].data[i];
}
static void add_gradient(mla_op_args *args, real factor) {
    for (size_t i = 0; i < mla_tensor_count(&args->in[0]); i++)
        args->din[0].data[i] += factor * args->in[0].data[i] * args->dout.data[i];
}
static void right(mla_op_args *args) { add_gradient(args, 2); }
static void wrong_sign(mla_op_args *args) { add_gradient(args, -2); }
static void missing_factor(mla_op_args *args) { add_gradient(args, 1); }
static void slightly_off(mla_op_args *args) { add_gradient(args, 2.0001); }
static void overwriting(mla_op_args *args) {
    memset(args->din[0].data, 0, mla_tensor_count(&args->in[0]) * sizeof(real));
    add_gradient(args, 2);
}
static void one_element_missing(mla_op_args *args) {
    const real kept = args->din[0].data[4];
    add_gradient(args, 2);
    args->din[0].data[4] = kept;
}
static void not_a_number(mla_op_args *args) {
    add_gradient(args, 2);
    args->din[0].data[2] = NAN;
}
static void infinite(mla_op_args *args) {
    add_gradient(args, 2);
    args->din[0].data[2] = INFINITY;
}

typedef struct planted {
    mla_op op;
    bool twice; /* x^2 + x: the gradient has two parts */
    mla_status expected;
} planted;

#define SQUARE(pass)                                                                                                        \
    { .name = "square", .plan = square_plan, .forward = square_forward, .backward = pass }
static const planted mistakes[] = {
    {SQUARE(right), false, MLA_OK},
    {SQUARE(right), true, MLA_OK},
    {SQUARE(overwriting), false, MLA_OK}, /* harmless with a single use, which is why the next one is needed */
    {SQUARE(overwriting), true, MLA_INVALID},
    {SQUARE(wrong_sign), false, MLA_INVALID},
    {SQUARE(missing_factor), false, MLA_INVALID},
    {SQUARE(slightly_off), false, MLA_INVALID},
    {SQUARE(one_element_missing), true, MLA_INVALID},
    {SQUARE(not_a_number), false, MLA_NOT_FINITE},
    {SQUARE(infinite), false, MLA_NOT_FINITE},
};

static mla_var build_square(mla_tape *tape, const mla_var *in, void *context) {
    const planted *p = context;
    const mla_var inputs[MLA_MAX_INPUTS] = {in[0], MLA_NO_VAR, MLA_NO_VAR, MLA_NO_VAR};
    const mla_var y = mla_record_op(tape, &p->op, inputs, NULL, 0);
    return p->twice ? mla_residual(tape, y, in[0], NULL) : y;
}

START_TEST(planted_mistakes_are_found) {
    planted p = mistakes[_i];
    mla_gradcheck check = {.build = build_square, .context = &p, .inputs = 1, .input = {test_tensor(1, SHAPE(2, 3))}};
    mla_gradcheck_result result;
    mla_error error = {0};
    ck_assert_int_eq(mla_gradcheck_run(&check, &result, &error), p.expected);
    ck_assert(p.expected == MLA_OK || strstr(error.text, "input 0, element"));
}
END_TEST

START_TEST(comparing_nothing_fails) {
    planted p = mistakes[0];
    mla_params params = {0};
    mla_gradcheck check = {.build = build_square, .context = &p, .params = _i ? &params : NULL};
    mla_gradcheck_result result;
    mla_error error = {0};
    ck_assert_int_eq(mla_gradcheck_run(&check, &result, &error), MLA_INVALID);
    ck_assert_ptr_nonnull(strstr(error.text, "nothing"));
}
END_TEST

/* A function that is not the same every time has no gradient to compare. */
static mla_var build_drifting(mla_tape *tape, const mla_var *in, void *context) {
    int *calls = context;
    real *scale = mla_tape_alloc(tape, 2 * sizeof(real));
    scale[0] = scale[1] = (*calls)++ ? 3 : 1;
    return mla_residual(tape, in[0], in[0], scale);
}

START_TEST(changing_function_fails) {
    int calls = 0;
    mla_gradcheck check = {.build = build_drifting, .context = &calls, .inputs = 1, .input = {test_tensor(1, SHAPE(2, 3))}};
    mla_gradcheck_result result;
    mla_error error = {0};
    ck_assert_int_eq(mla_gradcheck_run(&check, &result, &error), MLA_INVALID);
}
END_TEST

static void all(TCase *tcase) {
    tcase_add_loop_test(tcase, planted_mistakes_are_found, 0, (int)TEST_COUNT(mistakes));
    tcase_add_loop_test(tcase, comparing_nothing_fails, 0, 2);
    tcase_add_test(tcase, changing_function_fails);
}

int main(void) { return test_main("gradchecker", (void (*const[])(TCase *)){all}, 1); }
