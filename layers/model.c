#include "layers/model.h"

#include <stdio.h>
#include <stdlib.h>

#include "layers/probe.h"

static const mla_family_row *const families[] = {
    [MLA_FAMILY_VIT] = &mla_family_vit,
    [MLA_FAMILY_PVT] = &mla_family_pvt,
};

struct mla_model {
    mla_model_spec spec;
    mla_params params;
    mla_stage stages[MLA_MAX_STAGES];
    mla_block *blocks;
    mla_norm_layer norm;
    mla_linear_layer head;
};

static mla_status check_mirror(const mla_mirror_spec *m, int i, int d, mla_error *error) {
    const int b = mla_mirror_block(m, d);
    if (mla_mirror_has_blocks(m) && d % b)
        return mla_fail(error, MLA_INVALID, "stage %d: head width %d is not a multiple of mirror.block %d", i + 1, d, b);
    if (m->variance_angle && m->angle_planes == MLA_PLANES_PAIRS && d % 2)
        return mla_fail(error, MLA_INVALID, "stage %d: mirror.variance_angle turns channel pairs, head width %d is odd",
                        i + 1, d);
    if (m->variance_angle && m->angle_planes == MLA_PLANES_LEARNED && b < 2)
        return mla_fail(error, MLA_INVALID, "stage %d: mirror.angle_planes: a block of 1 channel has no plane", i + 1);
    if (m->feature == MLA_KEPT_TWIN && m->twin_init == MLA_TWIN_NEGATIVE && !mla_mirror_twin_negates(m, b))
        return mla_fail(error, MLA_INVALID, "stage %d: mirror.twin_reflections %d cannot make -I of blocks of %d", i + 1,
                        m->twin_reflections, b);
    if (m->power == MLA_POWER_FIXED && !(m->exponent >= 1))
        return mla_fail(error, MLA_INVALID, "mirror.exponent %g is less than 1", m->exponent);
    return MLA_OK;
}

static mla_status check_stage(const mla_model_spec *spec, int i, int side, mla_error *error) {
    const int dim = spec->dims[i], heads = spec->heads[i];
    if (dim < 1 || heads < 1 || spec->depths[i] < 1 || dim % heads)
        return mla_fail(error, MLA_INVALID,
                        "stage %d: dims %d, depths %d, heads %d: all at least 1, and dims a multiple of heads", i + 1, dim,
                        spec->depths[i], heads);
    if (!(spec->mlp_ratio * dim >= 1))
        return mla_fail(error, MLA_INVALID, "stage %d: mlp_ratio %g of %d dims leaves the MLP without width", i + 1,
                        spec->mlp_ratio, dim);
    const int patch = i == 0 ? spec->patch : 2, d = dim / heads;
    if (patch < 1 || side % patch || side / patch < 1)
        return mla_fail(error, MLA_INVALID, "stage %d: a grid of side %d cannot be cut into patches of %d", i + 1, side,
                        patch);
    if (spec->kinds[i] == MLA_ATTENTION_FOCUSED && !(spec->attention.focused_factor >= 1))
        return mla_fail(error, MLA_INVALID, "focused.factor %g: at least 1", spec->attention.focused_factor);
    if (spec->kinds[i] == MLA_ATTENTION_POLA && d % 2)
        return mla_fail(error, MLA_INVALID, "stage %d: pola halves the channels of a head, head width %d is odd", i + 1, d);
    const int agents = spec->attention.agent.side;
    if (spec->kinds[i] == MLA_ATTENTION_AGENT && (agents < 1 || agents > side / patch))
        return mla_fail(error, MLA_INVALID, "stage %d: agent.side %d does not fit a grid of side %d", i + 1, agents,
                        side / patch);
    if (spec->kinds[i] != MLA_ATTENTION_MIRROR) return MLA_OK;
    return check_mirror(&spec->attention.mirror, i, d, error);
}

static mla_status check(const mla_model_spec *spec, mla_error *error) {
    const mla_family_row *family = families[spec->family];
    if (spec->stages < 1 || spec->stages > family->max_stages)
        return mla_fail(error, MLA_INVALID, "%s has 1 to %d stages, not %d", family->name, family->max_stages, spec->stages);
    if (spec->classes < 2)
        return mla_fail(error, MLA_INVALID, "a classifier needs at least 2 classes, not %d", spec->classes);
    if (spec->attention.dwconv && spec->attention.dwconv % 2 == 0)
        return mla_fail(error, MLA_INVALID, "attention.dwconv %d must be odd, or 0", spec->attention.dwconv);
    for (int i = 0, side = spec->image; i < spec->stages; i++) {
        const mla_status status = check_stage(spec, i, side, error);
        if (status != MLA_OK) return status;
        side /= i == 0 ? spec->patch : 2;
    }
    return MLA_OK;
}

static void declare(mla_model *model) {
    const mla_model_spec *spec = &model->spec;
    const mla_family_row *family = families[spec->family];
    size_t side = (size_t)spec->image, channels = (size_t)spec->channels;
    unsigned first = 0;
    for (int i = 0; i < spec->stages; i++) {
        char prefix[MLA_PARAM_NAME_BYTES];
        family->stage_prefix(prefix, i);
        model->stages[i] = mla_stage_declare(&model->params, prefix, spec, i, side, channels, family->embed_norm,
                                             model->blocks + first, first);
        side = model->stages[i].side;
        channels = (size_t)spec->dims[i];
        first += (unsigned)spec->depths[i];
    }
    model->norm = mla_norm_declare(&model->params, "fc_norm", channels, spec->norm_eps);
    model->head = mla_linear_declare(&model->params, "head", channels, (size_t)spec->classes, true, 0.02);
}

mla_status mla_model_declare(mla_model **out, const mla_model_spec *spec, mla_error *error) {
    *out = NULL;
    mla_status status = check(spec, error);
    if (status != MLA_OK) return status;
    size_t blocks = 0;
    for (int i = 0; i < spec->stages; i++) blocks += (size_t)spec->depths[i];
    mla_model *model = calloc(1, sizeof *model);
    if (model) model->blocks = calloc(blocks, sizeof *model->blocks);
    if (!model || !model->blocks) {
        mla_model_free(model);
        return mla_fail(error, MLA_NO_MEMORY, "out of memory for a model of %zu blocks", blocks);
    }
    model->spec = *spec;
    declare(model);
    *out = model;
    return MLA_OK;
}

mla_status mla_model_new(mla_model **out, const mla_model_spec *spec, mla_error *error) {
    mla_status status = mla_model_declare(out, spec, error);
    if (status != MLA_OK) return status;
    status = mla_params_allocate(&(*out)->params, error);
    if (status != MLA_OK) {
        mla_model_free(*out);
        *out = NULL;
    }
    return status;
}

void mla_model_free(mla_model *model) {
    if (!model) return;
    mla_params_free(&model->params);
    free(model->blocks);
    free(model);
}

mla_params *mla_model_params(mla_model *model) { return &model->params; }

const mla_model_spec *mla_model_get_spec(const mla_model *model) { return &model->spec; }

mla_model_parts mla_model_get_parts(const mla_model *model) {
    return (mla_model_parts){model->stages, model->spec.stages, model->norm, model->head};
}

mla_var mla_model_forward(const mla_model *model, mla_tape *tape, mla_var images, const mla_forward *forward) {
    mla_var x = images;
    for (int i = 0; i < model->spec.stages; i++) x = mla_stage_forward(&model->stages[i], tape, x, forward);
    mla_probe_head(forward->probe, &model->norm, &model->head, x);
    x = mla_norm_forward(&model->norm, tape, mla_token_mean(tape, x));
    return mla_linear_forward(&model->head, tape, x, MLA_NO_VAR, MLA_IDENTITY);
}

static int losses_of(const mla_tape *tape) {
    int count = 0;
    for (mla_var x = mla_tape_next_loss(tape, MLA_NO_VAR); x.id >= 0; x = mla_tape_next_loss(tape, x)) count++;
    return count;
}

mla_var mla_model_loss(const mla_model *model, mla_tape *tape, mla_var loss) {
    const int count = losses_of(tape);
    const size_t images = mla_value(tape, loss).shape[0];
    real *scale = count ? mla_tape_alloc(tape, images * sizeof(real)) : NULL;
    if (!scale) return loss;
    for (size_t b = 0; b < images; b++) scale[b] = (real)(model->spec.attention.mirror.retention_loss / count);
    mla_var sum = loss;
    for (mla_var x = mla_tape_next_loss(tape, MLA_NO_VAR); x.id >= 0; x = mla_tape_next_loss(tape, x))
        sum = mla_residual(tape, sum, x, scale);
    return sum;
}

double mla_model_retention(const mla_tape *tape, size_t b) {
    const int count = losses_of(tape);
    double sum = 0;
    for (mla_var x = mla_tape_next_loss(tape, MLA_NO_VAR); x.id >= 0; x = mla_tape_next_loss(tape, x))
        sum += (double)mla_value(tape, x).data[b];
    return count ? sum / count : 0;
}

int mla_model_auto_shard(const mla_model_spec *spec) {
    enum { REALS = 64 * 1024, MOST_IMAGES = 16 };
    const long side = spec->image / spec->patch, reals = side * side * spec->dims[0];
    int images = MOST_IMAGES;
    while (images > 1 && images * reals > REALS) images /= 2;
    return images;
}
