/* Relations between values, which no single key can state. */
#include "train/config_schema.h"

#include <stdarg.h>
#include <string.h>

typedef struct relations {
    const mla_config *config;
    const int *counts;
    const mla_config_key **key;
    mla_error *error;
} relations;

/* The sentence follows "FILE:LINE: NAME: ". */
__attribute__((format(printf, 3, 4))) static mla_status blame(const relations *r, const char *name, const char *format,
                                                              ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    *r->key = mla_config_key_find(name);
    MLA_REQUIRE(*r->key, "no key %s", name);
    return mla_fail(r->error, MLA_INVALID, "%s", text);
}

static mla_status check_stages(const relations *r) {
    static const char *const lists[] = {"model.dims", "model.depths", "model.heads"};
    int count[3];
    for (int i = 0; i < 3; i++) count[i] = r->counts[mla_config_key_find(lists[i]) - mla_config_keys];
    const mla_model_spec *model = &r->config->model;
    if (model->family == MLA_FAMILY_VIT && count[0] != 1)
        return blame(r, lists[0], "%d entries, but family vit has a single stage and so one entry; pvt takes 1 to %d",
                     count[0], MLA_MAX_STAGES);
    for (int i = 1; i < 3; i++)
        if (count[i] != count[0])
            return blame(r, lists[i], "%d entries, but model.dims has %d; dims, depths and heads have one a stage", count[i],
                         count[0]);
    const int kinds = r->counts[mla_config_key_find("model.attention.kind") - mla_config_keys];
    if (kinds != 1 && kinds != count[0])
        return blame(r, "model.attention.kind",
                     "%d entries, but model.dims has %d; write one kind for all stages, or one a stage", kinds, count[0]);
    return MLA_OK;
}

/* Stage i, whose heads are `width` wide. */
static mla_status check_mirror(const relations *r, int i, int width) {
    const mla_model_spec *model = &r->config->model;
    const mla_mirror_spec *mirror = &model->attention.mirror;
    const int dim = model->dims[i], heads = model->heads[i], block = mla_mirror_block(mirror, width);
    const bool learned = mirror->angle_planes == MLA_PLANES_LEARNED;
    if (mla_mirror_has_blocks(mirror) && width % block)
        return blame(r, "model.attention.mirror.block",
                     "blocks of %d do not divide the heads of stage %d, which are %d wide (dims %d / heads %d); "
                     "0 takes the whole head",
                     block, i + 1, width, dim, heads);
    if (mirror->variance_angle && !learned && width % 2)
        return blame(r, "model.attention.mirror.variance_angle",
                     "turns pairs of channels, but the heads of stage %d are %d wide (dims %d / heads %d), which "
                     "is odd",
                     i + 1, width, dim, heads);
    if (mirror->variance_angle && learned && block < 2)
        return blame(r, "model.attention.mirror.angle_planes",
                     "a plane needs blocks of at least 2 channels, those of stage %d are 1 wide", i + 1);
    if (mirror->feature == MLA_KEPT_TWIN && mirror->twin_init == MLA_TWIN_NEGATIVE &&
        !mla_mirror_twin_negates(mirror, block))
        return blame(
            r, "model.attention.mirror.twin_reflections",
            "%d reflections cannot make -I of the blocks of stage %d, which are %d wide: it takes %d, or more by an "
            "even number; auto takes %d",
            mirror->twin_reflections, i + 1, block, block, block);
    return MLA_OK;
}

static mla_status check_widths(const relations *r) {
    const mla_model_spec *model = &r->config->model;
    for (int i = 0; i < model->stages; i++) {
        const bool mirrors = model->kinds[i] == MLA_ATTENTION_MIRROR;
        int dim = model->dims[i], heads = model->heads[i], width = dim / heads;
        if (dim % heads) return blame(r, "model.heads", "%d heads do not divide the %d dims of stage %d", heads, dim, i + 1);
        if (model->kinds[i] == MLA_ATTENTION_POLA && width % 2)
            return blame(r, "model.heads",
                         "pola halves the channels of a head, but the heads of stage %d are %d wide (dims %d / heads %d), "
                         "which is odd",
                         i + 1, width, dim, heads);
        const mla_status status = mirrors ? check_mirror(r, i, width) : MLA_OK;
        if (status != MLA_OK) return status;
    }
    if (model->attention.dwconv && model->attention.dwconv % 2 == 0)
        return blame(r, "model.attention.dwconv", "%d is even; the side must be odd, or 0 for off", model->attention.dwconv);
    return MLA_OK;
}

/* The grid of a stage has at least as many tokens as there are agents. */
static mla_status check_agents(const relations *r) {
    const mla_model_spec *model = &r->config->model;
    for (int i = 0; i < model->stages; i++) {
        const int grid = r->config->data.size / (model->patch << i);
        if (model->kinds[i] == MLA_ATTENTION_AGENT && model->attention.agent.side > grid)
            return blame(
                r, "model.attention.agent.side",
                "%d x %d agents, but the grid of stage %d is %d x %d tokens (data.size %d in patches of %d); take at "
                "most %d, or another kind for that stage",
                model->attention.agent.side, model->attention.agent.side, i + 1, grid, grid, r->config->data.size,
                model->patch << i, grid);
    }
    return MLA_OK;
}

static mla_status check_sizes(const relations *r) {
    const mla_data_config *data = &r->config->data;
    const mla_model_spec *model = &r->config->model;
    int size = data->size, grain = model->patch << (model->stages - 1);
    if (size % model->patch) return blame(r, "data.size", "%d is not a multiple of model.patch %d", size, model->patch);
    if (size % grain)
        return blame(r, "data.size", "%d is not a multiple of %d, which is model.patch %d halved over %d stages", size,
                     grain, model->patch, model->stages);
    if (data->set == MLA_SET_TWINS && size % data->twins_grid)
        return blame(r, "data.twins.grid", "%d cells do not divide data.size %d", data->twins_grid, size);
    if (data->set == MLA_SET_TWINS && size / data->twins_grid < 6)
        return blame(r, "data.twins.grid", "%d cells at data.size %d are %d pixels wide; a cell needs at least 6",
                     data->twins_grid, size, size / data->twins_grid);
    if (r->config->augment.crop_padding > size)
        return blame(r, "augment.crop_padding", "%d is more than data.size %d", r->config->augment.crop_padding, size);
    return check_agents(r);
}

/* Two-entry lists: least, most. */
static mla_status check_order(const relations *r, const char *name, const double range[2]) {
    char a[MLA_NUMBER_BYTES], b[MLA_NUMBER_BYTES];
    mla_number_shortest(a, range[0]);
    mla_number_shortest(b, range[1]);
    return range[0] <= range[1] ? MLA_OK : blame(r, name, "the least, %s, is more than the most, %s", a, b);
}

static mla_status check_augment(const relations *r) {
    const mla_augment_config *a = &r->config->augment;
    char m[MLA_NUMBER_BYTES], most[MLA_NUMBER_BYTES];
    mla_number_shortest(m, a->randaug.m);
    mla_number_shortest(most, a->randaug.mmax);
    if (a->randaug.m > a->randaug.mmax)
        return blame(r, "augment.randaug.m", "%s is more than augment.randaug.mmax %s, the largest magnitude", m, most);
    if (a->scale[0] == 0 && a->scale[1] > 0)
        return blame(r, "augment.scale", "the least is 0, which leaves nothing to see; [0, 0] = off");
    mla_status status = check_order(r, "augment.scale", a->scale);
    if (status == MLA_OK) status = check_order(r, "augment.ratio", a->ratio);
    if (status == MLA_OK) status = check_order(r, "augment.erase_area", a->erase_area);
    if (status == MLA_OK) status = check_order(r, "augment.erase_aspect", a->erase_aspect);
    return status == MLA_OK ? check_order(r, "augment.cutmix_minmax", a->cutmix_minmax) : status;
}

static mla_status check_training(const relations *r) {
    const mla_train_config *train = &r->config->train;
    const mla_schedule_config *schedule = &r->config->schedule;
    char a[MLA_NUMBER_BYTES], b[MLA_NUMBER_BYTES];
    if (train->lanes & (train->lanes - 1)) return blame(r, "train.lanes", "%d is not a power of two", train->lanes);
    if (train->shard > train->batch)
        return blame(r, "train.shard", "%d is more than train.batch %d", train->shard, train->batch);
    mla_number_shortest(a, schedule->warmup_epochs);
    if (schedule->warmup_epochs > train->epochs)
        return blame(r, "schedule.warmup_epochs", "%s is more than train.epochs %d: the warm-up would never end", a,
                     train->epochs);
    bool descends = schedule->name == MLA_SCHEDULE_COSINE || schedule->name == MLA_SCHEDULE_LINEAR;
    mla_number_shortest(a, schedule->min_lr);
    mla_number_shortest(b, r->config->optim.lr);
    if (descends && schedule->min_lr > r->config->optim.lr)
        return blame(r, "schedule.min_lr", "%s is more than optim.lr %s: the learning rate would rise", a, b);
    return MLA_OK;
}

mla_status mla_config_check(const mla_config *config, const int counts[MLA_CONFIG_KEYS_MAX], const mla_config_key **key,
                            mla_error *error) {
    relations r = {config, counts, key, error};
    mla_status (*const checks[])(const relations *) = {check_stages, check_widths, check_sizes, check_augment,
                                                       check_training};
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        mla_status status = checks[i](&r);
        if (status != MLA_OK) return status;
    }
    return MLA_OK;
}
