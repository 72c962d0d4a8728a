/* The operations of mirror_ops.safetensors, the options of the mirror; for test_golden.c alone. */
#ifndef MLA_TESTS_GOLDEN_MIRROR_H
#define MLA_TESTS_GOLDEN_MIRROR_H

static const double RIGHT_ANGLE = 1.57079632679489662;
static mla_var own_angle(mla_tape *tape, const mla_var *in) {
    return mla_pair_angle(tape, in[0], in[1], in[2], RIGHT_ANGLE, true);
}
static mla_var plane_angle(mla_tape *tape, const mla_var *in) {
    return mla_plane_angle(tape, in[0], in[1], in[2], mla_plane_basis(tape, in[3], in[4]), RIGHT_ANGLE, false);
}
static mla_var own_plane_angle(mla_tape *tape, const mla_var *in) {
    return mla_plane_angle(tape, in[0], in[1], in[2], mla_plane_basis(tape, in[3], in[4]), RIGHT_ANGLE, true);
}
static mla_var scale_modulation(mla_tape *tape, const mla_var *in) { return mla_scale_modulation(tape, in[0], in[1]); }
static mla_var head_norm(mla_tape *tape, const mla_var *in) { return mla_head_norm(tape, in[0], in[1], 2); }
static mla_var fold_reflect(mla_tape *tape, const mla_var *in) { return mla_fold_reflect(tape, in[0], in[1]); }
static mla_var block_turn(mla_tape *tape, const mla_var *in) { return mla_block_turn(tape, in[0], in[1]); }
static mla_var split(mla_tape *tape, const mla_var *in) {
    return mla_relu_features(tape, in[0], MLA_NO_VAR, 2, MLA_KEPT_SPLIT);
}
static mla_var twin(mla_tape *tape, const mla_var *in) { return mla_relu_features(tape, in[0], in[1], 2, MLA_KEPT_TWIN); }
static mla_var learned_power(mla_tape *tape, const mla_var *in) { return mla_feature_power(tape, in[0], in[1], 2, 0); }
static mla_var fixed_power(mla_tape *tape, const mla_var *in) { return mla_feature_power(tape, in[0], MLA_NO_VAR, 2, 2.5); }
static mla_var retention(mla_tape *tape, const mla_var *in) { return mla_retention(tape, in[0], 2); }

static const operation mirror_operations[] = {
    {"own_angle", own_angle, {"qk", "a", "c"}, NULL},
    {"plane_angle", plane_angle, {"qk", "a", "c", "u", "w"}, NULL},
    {"own_plane_angle", own_plane_angle, {"qk", "a", "c", "u", "w"}, NULL},
    {"scale_modulation", scale_modulation, {"qk", "gamma"}, NULL},
    {"head_norm", head_norm, {"qk", "gain"}, NULL},
    {"fold_reflect", fold_reflect, {"qk", "v"}, NULL},
    {"block_turn", block_turn, {"qk", "v"}, NULL},
    {"split", split, {"qk"}, NULL},
    {"twin", twin, {"qk", "twin"}, NULL},
    {"learned_power", learned_power, {"f", "power"}, NULL},
    {"fixed_power", fixed_power, {"f"}, NULL},
    {"retention", retention, {"qk"}, NULL},
};

#endif
