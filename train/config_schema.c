/* The one list of keys, and what is said about keys. */
#include "train/config_schema.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const family_names[] = {[MLA_FAMILY_VIT] = "vit", [MLA_FAMILY_PVT] = "pvt", NULL};
static const char *const attention_names[] = {
    [MLA_ATTENTION_SOFTMAX] = "softmax",     [MLA_ATTENTION_ELU1] = "elu1",
    [MLA_ATTENTION_RELU] = "relu",           [MLA_ATTENTION_PERFORMER] = "performer",
    [MLA_ATTENTION_COSFORMER] = "cosformer", [MLA_ATTENTION_EFFICIENT] = "efficient",
    [MLA_ATTENTION_FOCUSED] = "focused",     [MLA_ATTENTION_POLA] = "pola",
    [MLA_ATTENTION_INLINE] = "inline",       [MLA_ATTENTION_AGENT] = "agent",
    [MLA_ATTENTION_MIRROR] = "mirror",       NULL};
static const char *const vectors_init_names[] = {[MLA_VECTORS_PAIR] = "pair", [MLA_VECTORS_RANDOM] = "random", NULL};
static const char *const planes_names[] = {[MLA_PLANES_PAIRS] = "pairs", [MLA_PLANES_LEARNED] = "learned", NULL};
static const char *const source_names[] = {[MLA_ANGLE_SHARED] = "shared", [MLA_ANGLE_OWN] = "own", NULL};
static const char *const qk_norm_names[] = {[MLA_QK_NORM_NONE] = "none", [MLA_QK_NORM_RMS] = "rms", NULL};
static const char *const feature_names[] = {
    [MLA_KEPT_RELU] = "relu", [MLA_KEPT_SPLIT] = "split", [MLA_KEPT_TWIN] = "twin", NULL};
static const char *const twin_init_names[] = {[MLA_TWIN_RANDOM] = "random", [MLA_TWIN_NEGATIVE] = "negative", NULL};
static const char *const power_names[] = {[MLA_POWER_NONE] = "none",
                                          [MLA_POWER_LEARNED] = "learned",
                                          [MLA_POWER_FOCUSED] = "focused",
                                          [MLA_POWER_FIXED] = "fixed",
                                          NULL};
static const char *const set_names[] = {[MLA_SET_TWINS] = "twins",
                                        [MLA_SET_CIFAR10] = "cifar10",
                                        [MLA_SET_CIFAR100] = "cifar100",
                                        [MLA_SET_IMAGE_FOLDER] = "imagefolder",
                                        [MLA_SET_TINY_IMAGENET] = "tiny-imagenet",
                                        NULL};
static const char *const order_names[] = {[MLA_ORDER_TORCHVISION] = "torchvision", [MLA_ORDER_NATURAL] = "natural", NULL};
static const char *const on_error_names[] = {
    [MLA_ON_ERROR_FAIL] = "fail", [MLA_ON_ERROR_SKIP] = "skip", [MLA_ON_ERROR_SUBSTITUTE] = "substitute", NULL};
static const char *const interpolation_names[] = {[MLA_BILINEAR] = "bilinear", [MLA_BICUBIC] = "bicubic", NULL};
static const char *const resize_names[] = {[MLA_RESIZE_SHORTER] = "shorter", [MLA_RESIZE_SQUASH] = "squash", NULL};
static const char *const filter_names[] = {
    [MLA_AUG_BILINEAR] = "bilinear", [MLA_AUG_BICUBIC] = "bicubic", [MLA_AUG_RANDOM] = "random", NULL};
static const char *const erase_names[] = {
    [MLA_ERASE_CONST] = "const", [MLA_ERASE_RAND] = "rand", [MLA_ERASE_PIXEL] = "pixel", NULL};
static const char *const mix_names[] = {[MLA_MIX_BATCH] = "batch", [MLA_MIX_PAIR] = "pair", [MLA_MIX_ELEM] = "elem", NULL};
static const char *const optimizer_names[] = {[MLA_SGD] = "sgd", [MLA_ADAMW] = "adamw", NULL};
static const char *const schedule_names[] = {[MLA_SCHEDULE_CONSTANT] = "constant",
                                             [MLA_SCHEDULE_STEP] = "step",
                                             [MLA_SCHEDULE_LINEAR] = "linear",
                                             [MLA_SCHEDULE_COSINE] = "cosine",
                                             NULL};

/* The table: NAME, field, [range,] default, meaning.  Further properties follow the meaning. */
#define KEY(kind, dotted, field, text, ...)                                                                                 \
    { .name = dotted, .type = kind, .offset = offsetof(mla_config, field), .fallback = text, .meaning = __VA_ARGS__ }
#define BOOL(dotted, field, text, ...) KEY(MLA_KEY_BOOL, dotted, field, text, __VA_ARGS__)
#define ENUM(dotted, field, list, text, ...) KEY(MLA_KEY_ENUM, dotted, field, text, __VA_ARGS__, .names = list)
#define INT(dotted, field, from, to, text, ...) KEY(MLA_KEY_INT, dotted, field, text, __VA_ARGS__, .low = from, .high = to)
#define DOUBLE(dotted, field, from, to, text, ...)                                                                          \
    KEY(MLA_KEY_DOUBLE, dotted, field, text, __VA_ARGS__, .low = from, .high = to)
#define INTS(dotted, field, to, text, ...)                                                                                  \
    KEY(MLA_KEY_INTS, dotted, field, text, __VA_ARGS__, .low = 1, .high = to, .most = MLA_MAX_STAGES)
#define DOUBLES(dotted, field, entries, from, to, text, ...)                                                                \
    KEY(MLA_KEY_DOUBLES, dotted, field, text, __VA_ARGS__, .low = from, .high = to, .most = entries)
#define MIRROR "model.attention.mirror."
#define RANDAUG "augment.randaug."

const mla_config_key mla_config_keys[] = {
    ENUM("model.family", model.family, family_names, "vit", "vit: one grid of tokens; pvt: a pyramid of stages"),
    INT("model.patch", model.patch, 1, 64, "4", "side of the first patch, pixels; later pvt stages halve the grid"),
    INTS("model.dims", model.dims, 8192, "[64]", "width of the tokens, one entry a stage"),
    INTS("model.depths", model.depths, 64, "[4]", "blocks, one entry a stage"),
    INTS("model.heads", model.heads, 64, "[4]", "attention heads, one entry a stage"),
    DOUBLE("model.mlp_ratio", model.mlp_ratio, 0.25, 16, "4", "hidden width of the MLP over dims"),
    DOUBLE("model.drop_path", model.drop_path, 0, 1, "0", "stochastic depth of the last block, grows linearly from 0",
           .high_open = true),
    DOUBLE("model.norm_eps", model.norm_eps, 1e-30, 0.1, "1e-6", "epsilon of every LayerNorm"),
    KEY(MLA_KEY_ENUMS, "model.attention.kind", model.kinds, "mirror",
        "how tokens are mixed: in all stages, or one entry a stage", .names = attention_names, .most = MLA_MAX_STAGES),
    INT("model.attention.dwconv", model.attention.dwconv, 0, 31, "5",
        "side of the depthwise convolution of v, odd; 0 = off; unused by softmax"),
    BOOL("model.attention.qkv_bias", model.attention.qkv_bias, "true", "bias of the q, k, v projection"),
    DOUBLE("model.attention.eps", model.attention.eps, 1e-30, 1, "1e-6",
           "floor of the linear denominator, a fraction of its token mean; the performer has none"),
    BOOL("model.attention.gate", model.attention.gate, "false",
         "multiply the output by a linear map of the input; unused by softmax, and pola always does"),
    INT("model.attention.performer.features", model.attention.performer_features, 1, 65536, "auto",
        "random features of a head; auto: d ln d, d its width", .automatic = true),
    DOUBLE("model.attention.focused.factor", model.attention.focused_factor, 1, 64, "3", "power of the focusing map"),
    INT("model.attention.agent.side", model.attention.agent.side, 1, 1024, "4",
        "agents of an image: side x side, at most as many as tokens"),
    INT(MIRROR "block", model.attention.mirror.block, 0, 8192, "8",
        "width of the reflected blocks inside a head; 0 = the whole head"),
    INT(MIRROR "reflections", model.attention.mirror.reflections, 0, 64, "2", "reflections of a block; 0 = off"),
    BOOL(MIRROR "variance_angle", model.attention.mirror.variance_angle, "true",
         "turn channel pairs by an angle that follows their variance over the tokens"),
    DOUBLE(MIRROR "angle_max", model.attention.mirror.angle_max, 0, 6.283185307179586, "1.5707963267948966",
           "largest such angle, radians"),
    DOUBLE(MIRROR "angle_gain", model.attention.mirror.angle_gain, -100, 100, "1", "initial gain of the angle"),
    INT(MIRROR "cross_head", model.attention.mirror.cross_head, 0, 64, "2", "reflections across all heads; 0 = off"),
    ENUM(MIRROR "block_init", model.attention.mirror.block_init, vectors_init_names, "pair",
         "start of a block's reflections: nearly equal pairs (near I), or random"),
    ENUM(MIRROR "cross_init", model.attention.mirror.cross_init, vectors_init_names, "pair",
         "start of the reflections across all heads"),
    ENUM(MIRROR "angle_planes", model.attention.mirror.angle_planes, planes_names, "pairs",
         "what turns: channel pairs, or one learned plane a block"),
    ENUM(MIRROR "angle_source", model.attention.mirror.angle_source, source_names, "shared",
         "one angle for q and k, or each its own"),
    ENUM(MIRROR "qk_norm", model.attention.mirror.qk_norm, qk_norm_names, "none",
         "normalise each head of q and k by its root mean square"),
    BOOL(MIRROR "scale_modulation", model.attention.mirror.scale_modulation, "false",
         "scale channels by a learned power of their variance over the tokens"),
    INT(MIRROR "fold", model.attention.mirror.fold, 0, 64, "0", "conditional reflections of a block; 0 = off"),
    ENUM(MIRROR "feature", model.attention.mirror.feature, feature_names, "relu",
         "what is kept of x: relu(x); split adds relu(-x), twin relu(x R), R learned"),
    ENUM(MIRROR "twin_init", model.attention.mirror.twin_init, twin_init_names, "random",
         "start of R: random, or negative: -I, where twin is split"),
    INT(MIRROR "twin_reflections", model.attention.mirror.twin_reflections, 0, 8192, "auto",
        "reflections of R; auto: the block's number, or its width for negative", .automatic = true),
    ENUM(MIRROR "power", model.attention.mirror.power, power_names, "none",
         "of features: learned a channel, focused (FLatten), or fixed: exponent"),
    DOUBLE(MIRROR "exponent", model.attention.mirror.exponent, 1, 16, "3", "the fixed power of features"),
    DOUBLE(MIRROR "retention_loss", model.attention.mirror.retention_loss, 0, 1000, "0",
           "weight of the loss that asks ReLU to cut off little energy; 0 = off"),

    ENUM("data.set", data.set, set_names, "cifar10", "the data set"),
    KEY(MLA_KEY_TEXT, "data.path", data.path, "auto", "its folder; auto looks in the usual places", .automatic = true),
    INT("data.size", data.size, 4, 1024, "32", "side of the square model input, pixels"),
    DOUBLES("data.mean", data.mean, 3, 0, 1, "auto", "R, G, B mean of pixels in 0..1; auto: the set's own",
            .automatic = true, .auto_offset = offsetof(mla_config, data.mean_auto)),
    DOUBLES("data.std", data.std, 3, 0, 1, "auto", "R, G, B standard deviation; auto: the set's own", .low_open = true,
            .automatic = true, .auto_offset = offsetof(mla_config, data.std_auto)),
    DOUBLE("data.subset", data.subset, 0, 1, "1", "share of the training images, the same of every class", .low_open = true),
    ENUM("data.class_order", data.class_order, order_names, "torchvision",
         "order of class folders: byte order, or numbers by value"),
    ENUM("data.on_error", data.on_error, on_error_names, "fail", "what an unreadable image does"),
    ENUM("data.interpolation", data.interpolation, interpolation_names, "bicubic", "filter of resizing"),
    ENUM("data.resize", data.resize, resize_names, "shorter",
         "evaluation: the shorter side to size / crop_pct, or both sides (squash)"),
    DOUBLE("data.crop_pct", data.crop_pct, 0.1, 1, "0.875", "evaluation: centre crop, a share of the resized side"),
    INT("data.twins.grid", data.twins_grid, 2, 32, "4", "cells per side of a twins image"),
    INT("data.twins.train", data.twins_train, 1, 100000000, "12800", "images per epoch"),
    INT("data.twins.test", data.twins_test, 1, 100000000, "4000", "images of the fixed test set"),

    INT("augment.crop_padding", augment.crop_padding, 0, 1024, "4", "zero padding of the random crop, pixels; 0 = off"),
    DOUBLES("augment.scale", augment.scale, 2, 0, 1, "[0, 0]",
            "resized crop in place of the padded one: least and most area, a share of the image; [0, 0] = off",
            .null_is_zero = true),
    DOUBLES("augment.ratio", augment.ratio, 2, 0.01, 100, "[0.75, 1.3333333333333333]",
            "of the resized crop: least and most width over height"),
    ENUM("augment.interpolation", augment.interpolation, filter_names, "random",
         "filter of the resized crop and of randaug's rotation, shear, translation; random: drawn each time"),
    DOUBLE("augment.flip", augment.flip, 0, 1, "0.5", "probability of a horizontal flip"),
    DOUBLE("augment.color_jitter", augment.color_jitter, 0, 10, "0",
           "brightness, contrast and saturation change by up to this share; 0 = off", .null_is_zero = true),
    DOUBLE("augment.color_jitter_hue", augment.color_jitter_hue, 0, 0.5, "0",
           "the hue turns by up to this share of a circle"),
    DOUBLE("augment.color_jitter_prob", augment.color_jitter_prob, 0, 1, "1", "probability of colour jitter"),
    BOOL("augment.force_color_jitter", augment.force_color_jitter, "false",
         "colour jitter also beside randaug, which else stands in its place"),
    DOUBLE("augment.erase", augment.erase, 0, 1, "0", "probability of random erasing, after normalisation"),
    ENUM("augment.erase_mode", augment.erase_mode, erase_names, "pixel",
         "const: the mean colour; rand: one normal colour; pixel: normal noise"),
    INT("augment.erase_count", augment.erase_count, 1, 100, "1", "most rectangles erased; they share the area"),
    DOUBLES("augment.erase_area", augment.erase_area, 2, 0, 1, "[0.02, 0.3333333333333333]",
            "least and most area erased, a share of the image", .low_open = true),
    DOUBLES("augment.erase_aspect", augment.erase_aspect, 2, 0.01, 100, "[0.3, 3.3333333333333335]",
            "least and most height over width of what is erased"),
    DOUBLE("augment.mixup", augment.mixup, 0, 100, "0", "alpha of Mixup's weights; 0 = off"),
    DOUBLE("augment.cutmix", augment.cutmix, 0, 100, "0", "alpha of CutMix's areas; 0 = off"),
    DOUBLES("augment.cutmix_minmax", augment.cutmix_minmax, 2, 0, 1, "[0, 0]",
            "least and most side of CutMix's box over the image's, instead of cutmix; [0, 0] = off", .null_is_zero = true),
    DOUBLE("augment.mixup_prob", augment.mixup_prob, 0, 1, "1", "probability of Mixup or CutMix"),
    DOUBLE("augment.mixup_switch_prob", augment.mixup_switch_prob, 0, 1, "0.5", "share of CutMix where both are on"),
    ENUM("augment.mixup_mode", augment.mixup_mode, mix_names, "batch",
         "what shares a draw of mixing: the batch, a pair of images, nobody (elem)"),
    INT("augment.mixup_off_epoch", augment.mixup_off_epoch, 0, 1000000, "0",
        "Mixup and CutMix end after so many epochs; 0 = never"),
    INT("augment.aug_repeats", augment.aug_repeats, 0, 100, "1",
        "times an image stands in a batch, each differently augmented; 0 and 1 = once"),
    INT(RANDAUG "n", augment.randaug.n, 0, 100, "0", "operations drawn for an image; 0 = off, usually 2"),
    DOUBLE(RANDAUG "m", augment.randaug.m, 0, 100, "9", "mean magnitude"),
    DOUBLE(RANDAUG "mstd", augment.randaug.mstd, 0, 1e6, "0.5", "its deviation; above 100: evenly from 0 to m"),
    DOUBLE(RANDAUG "mmax", augment.randaug.mmax, 0, 100, "10", "largest magnitude"),
    DOUBLE(RANDAUG "p", augment.randaug.p, 0, 1, "0.5", "probability of a drawn operation to be applied"),
    INT(RANDAUG "inc", augment.randaug.inc, 0, 1, "1",
        "1: in all operations change grows with magnitude; 0: the older levels"),

    ENUM("optim.name", optim.name, optimizer_names, "adamw", "the optimiser"),
    DOUBLE("optim.lr", optim.lr, 0, 100, "1e-3", "learning rate after the warm-up"),
    DOUBLE("optim.weight_decay", optim.weight_decay, 0, 10, "0.05", "decay of matrices; norms and biases have none"),
    DOUBLES("optim.betas", optim.betas, 2, 0, 1, "[0.9, 0.999]", "adamw: decay of the two moments", .high_open = true),
    DOUBLE("optim.eps", optim.eps, 1e-30, 1, "1e-8", "adamw: epsilon of the denominator"),
    DOUBLE("optim.momentum", optim.momentum, 0, 1, "0.9", "sgd: momentum", .high_open = true),
    BOOL("optim.nesterov", optim.nesterov, "false", "sgd: Nesterov's form"),
    DOUBLE("optim.clip", optim.clip, 0, 1e6, "1", "largest global gradient norm; 0 = off", .null_is_zero = true),
    DOUBLE("optim.ema", optim.ema, 0, 1, "0", "decay of the weight average; 0 = off", .high_open = true,
           .null_is_zero = true),
    BOOL("optim.ema_warmup", optim.ema_warmup, "true", "decay at update n is min(ema, (1 + n) / (10 + n))"),

    ENUM("schedule.name", schedule.name, schedule_names, "cosine", "course of the learning rate"),
    DOUBLE("schedule.warmup_epochs", schedule.warmup_epochs, 0, 1e6, "1", "linear warm-up, epochs; 0 = none"),
    DOUBLE("schedule.warmup_lr", schedule.warmup_lr, 0, 100, "0", "learning rate the warm-up starts from"),
    DOUBLE("schedule.min_lr", schedule.min_lr, 0, 100, "1e-5", "learning rate at the end of cosine and linear"),
    DOUBLE("schedule.step_epochs", schedule.step_epochs, 0, 1e6, "30", "step: epochs between drops", .low_open = true),
    DOUBLE("schedule.step_factor", schedule.step_factor, 0, 1, "0.1", "step: factor of a drop", .low_open = true),
    BOOL("schedule.warmup_prefix", schedule.warmup_prefix, "true",
         "false: the schedule's clock also runs during the warm-up"),

    INT("train.epochs", train.epochs, 1, 1000000, "10", "passes over the training images"),
    INT("train.batch", train.batch, 1, 1000000, "128", "images of one update"),
    INT("train.lanes", train.lanes, 1, 1024, "8", "groups whose gradients are summed in a fixed order, a power of two"),
    INT("train.shard", train.shard, 0, 1000000, "auto", "images a lane works on at a time", .automatic = true),
    INT("train.max_steps", train.max_steps, 0, INT_MAX, "0", "stop after so many updates in all; 0 = off"),
    DOUBLE("train.label_smoothing", train.label_smoothing, 0, 1, "0.1", "share spread over all classes", .high_open = true),
    KEY(MLA_KEY_U64, "train.seed", train.seed, "0", "of weights, order and augmentation"),

    INT("checkpoint.every_epochs", checkpoint.every_epochs, 0, 1000000, "1", "epochs between files; 0 = only the last"),
    INT("checkpoint.every_steps", checkpoint.every_steps, 0, INT_MAX, "0", "updates between files; 0 = off"),
    INT("checkpoint.keep", checkpoint.keep, 1, 10000, "2", "newest files kept"),
    BOOL("checkpoint.best", checkpoint.best, "true", "also keep the one with the best test accuracy"),

    INT("eval.every_epochs", eval_every_epochs, 1, 1000000, "1", "epochs between evaluations"),

    INT("diagnostics.every_epochs", diagnostics.every_epochs, 0, 1000000, "auto",
        "epochs between looks inside; auto: as often as 2 % of the training allow", .automatic = true),
    INT("diagnostics.images", diagnostics.images, 0, 1024, "4", "test images that are looked at; 0 = off"),

    BOOL("log.report", log.report, "true", "rewrite report.html after each epoch"),
    BOOL("log.tensorboard", log.tensorboard, "true", "also write TensorBoard event files"),
};
const size_t mla_config_key_count = sizeof mla_config_keys / sizeof mla_config_keys[0];
_Static_assert(sizeof mla_config_keys / sizeof mla_config_keys[0] <= MLA_CONFIG_KEYS_MAX, "raise MLA_CONFIG_KEYS_MAX");
_Static_assert(sizeof(mla_family) == sizeof(int) && sizeof(mla_data_set) == sizeof(int), "enums are stored as int");

const mla_config_section mla_config_sections[] = {
    {"model", "what is trained"},
    {"model.attention", "how its tokens are mixed"},
    {"model.attention.performer", "of attention kind performer"},
    {"model.attention.focused", "of attention kind focused"},
    {"model.attention.agent", "of attention kind agent"},
    {"model.attention.mirror", "of attention kind mirror"},
    {"data", "what it is trained on"},
    {"data.twins", "of the generated set twins"},
    {"augment", "random changes of training images"},
    {"augment.randaug", "RandAugment, in timm's form"},
    {"optim", "the optimiser"},
    {"schedule", "course of the learning rate"},
    {"train", "the loop"},
    {"checkpoint", "when files are written"},
    {"eval", "when the test set is measured"},
    {"diagnostics", "what the attention layers do"},
    {"log", "files for people"},
};
const size_t mla_config_section_count = sizeof mla_config_sections / sizeof mla_config_sections[0];

#define RANDAUG_ADVICE "rand-m9-n2-mstd0.5-inc1 is augment.randaug: {n: 2, m: 9, mstd: 0.5, inc: 1}"

/* Names people know from elsewhere, with what to do instead. */
static const struct {
    const char *name, *advice;
} strangers[] = {
    {"model.image", "it is data.size"},
    {"model.channels", "it comes from the data set"},
    {"model.classes", "it comes from the data set"},
    {"augment.aa", RANDAUG_ADVICE},
    {"augment.auto_augment", RANDAUG_ADVICE},
    {"augment.reprob", "it is augment.erase"},
    {"augment.remode", "it is augment.erase_mode"},
    {"augment.recount", "it is augment.erase_count"},
    {"augment.hflip", "it is augment.flip"},
    {"augment.train_interpolation", "it is augment.interpolation"},
    {"augment.vflip", "images are flipped horizontally alone, by augment.flip"},
    {"augment.mixup_alpha", "it is augment.mixup"},
    {"augment.cutmix_alpha", "it is augment.cutmix"},
    {"augment.switch_prob", "it is augment.mixup_switch_prob"},
    {"augment.repeated_aug", "it is augment.aug_repeats, 1 without and usually 3 with"},
    {"augment.smoothing", "it is train.label_smoothing"},
    {"sweep", "a file with a sweep is run by 'mirrorla ablate FILE', and is no base; the other commands take one "
              "configuration"},
};

const mla_config_key *mla_config_key_find(const char *name) {
    for (size_t i = 0; i < mla_config_key_count; i++)
        if (strcmp(mla_config_keys[i].name, name) == 0) return &mla_config_keys[i];
    return NULL;
}

const mla_config_section *mla_config_section_find(const char *name) {
    for (size_t i = 0; i < mla_config_section_count; i++)
        if (strcmp(mla_config_sections[i].name, name) == 0) return &mla_config_sections[i];
    return NULL;
}

size_t mla_config_section_length(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Edits from a to b: insertion, deletion, change, swap of neighbours; letters count the same in both cases. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = MLA_CONFIG_NAME_BYTES };
    size_t m = strlen(a), n = strlen(b);
    if (m >= LONGEST || n >= LONGEST) return LONGEST;
    int row[3][LONGEST + 1];
    for (size_t j = 0; j <= n; j++) row[0][j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int best = before[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            best = before[j] + 1 < best ? before[j] + 1 : best;
            best = now[j - 1] + 1 < best ? now[j - 1] + 1 : best;
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]) &&
                earlier[j - 2] + 1 < best)
                best = earlier[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[m % 3][n];
}

/* distance(), where one name continuing the other by a further word (batch, batch_size) is near. */
static int remoteness(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    size_t common = m < n ? m : n;
    if (m != n && strncasecmp(a, b, common) == 0 && (m > n ? a : b)[common] == '_') return 1;
    return distance(a, b);
}

static int farthest(const char *text) { return 1 + (int)strlen(text) / 4; }

const char *mla_config_nearest(const char *text, const char *const *names) {
    const char *nearest = NULL;
    int best = farthest(text) + 1;
    for (; *names; names++) {
        int d = remoteness(text, *names);
        if (d < best) best = d, nearest = *names;
    }
    return nearest;
}

/* Keys of the same section come first, except for an exact name elsewhere; sections are candidates too. */
static const char *nearest_name(const char *name) {
    size_t section = mla_config_section_length(name), leaf = section ? section + 1 : 0;
    const char *nearest = NULL;
    int best = 2 * farthest(name + leaf) + 2;
    for (size_t i = 0; i < mla_config_key_count + mla_config_section_count; i++) {
        const char *other =
            i < mla_config_key_count ? mla_config_keys[i].name : mla_config_sections[i - mla_config_key_count].name;
        size_t place = mla_config_section_length(other);
        bool same = place == section && memcmp(name, other, section) == 0;
        int d = remoteness(name + leaf, other + (place ? place + 1 : 0));
        int whole = remoteness(name, other);
        d = whole < d ? whole : d;
        int score = 2 * d + (same ? 0 : 1);
        if (d <= farthest(name + leaf) && score < best) best = score, nearest = other;
    }
    return nearest;
}

/* "name, lr, ..." of what stands directly in the section that is the first `length` bytes of `name`. */
static void list_section(const char *name, size_t length, char *out, size_t bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < mla_config_key_count + mla_config_section_count; i++) {
        const char *other =
            i < mla_config_key_count ? mla_config_keys[i].name : mla_config_sections[i - mla_config_key_count].name;
        size_t place = mla_config_section_length(other);
        if (place != length || memcmp(name, other, length) != 0 || used + 1 >= bytes) continue;
        int n = snprintf(out + used, bytes - used, "%s%s", used ? ", " : "", other + (length ? length + 1 : 0));
        used += n > 0 ? (size_t)n : 0;
    }
}

mla_status mla_config_unknown(const char *name, mla_error *error) {
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++)
        if (strcmp(strangers[i].name, name) == 0)
            return mla_fail(error, MLA_INVALID, "not a key of a config: %s", strangers[i].advice);
    size_t length = mla_config_section_length(name);
    char section[MLA_CONFIG_NAME_BYTES], keys[512];
    snprintf(section, sizeof section, "%s%.*s", length ? "section " : "the top level", (int)length, name);
    const char *near = nearest_name(name);
    if (!near) {
        snprintf(keys, sizeof keys, "%.*s", (int)length, name);
        if (length && !mla_config_section_find(keys)) snprintf(section, sizeof section, "the top level"), length = 0;
        list_section(name, length, keys, sizeof keys);
        return mla_fail(error, MLA_INVALID, "unknown key in %s, which has: %s", section, keys);
    }
    size_t place = mla_config_section_length(near);
    if (mla_config_section_find(near))
        return mla_fail(error, MLA_INVALID, "unknown key in %s; did you mean the section %s?", section, near);
    if (place == length && memcmp(name, near, length) == 0)
        return mla_fail(error, MLA_INVALID, "unknown key in %s; did you mean %s?", section, near);
    return mla_fail(error, MLA_INVALID, "unknown key in %s; did you mean %s (it stands in section %.*s)?", section, near,
                    (int)place, near);
}

static void describe_range(const mla_config_key *key, char *out, size_t bytes) {
    char low[MLA_NUMBER_BYTES], high[MLA_NUMBER_BYTES];
    mla_number_shortest(low, key->low);
    mla_number_shortest(high, key->high);
    if (!key->low_open && !key->high_open)
        snprintf(out, bytes, "from %s to %s", low, high);
    else
        snprintf(out, bytes, "%s %s and %s %s", key->low_open ? "above" : "at least", low,
                 key->high_open ? "below" : "at most", high);
}

void mla_config_allowed(const mla_config_key *key, char out[MLA_CONFIG_ALLOWED_BYTES]) {
    enum { BYTES = MLA_CONFIG_ALLOWED_BYTES };
    char range[128];
    const char *or_auto = key->automatic ? ", or auto" : key->null_is_zero ? ", or null" : "";
    describe_range(key, range, sizeof range);
    int used;
    switch (key->type) {
    case MLA_KEY_BOOL: snprintf(out, BYTES, "true or false"); break;
    case MLA_KEY_INT: snprintf(out, BYTES, "a whole number %s%s", range, or_auto); break;
    case MLA_KEY_U64: snprintf(out, BYTES, "a whole number from 0 to 18446744073709551615"); break;
    case MLA_KEY_DOUBLE: snprintf(out, BYTES, "a number %s%s", range, or_auto); break;
    case MLA_KEY_TEXT: snprintf(out, BYTES, "text%s", or_auto); break;
    case MLA_KEY_INTS: snprintf(out, BYTES, "a list of 1 to %d whole numbers %s%s", key->most, range, or_auto); break;
    case MLA_KEY_DOUBLES: snprintf(out, BYTES, "a list of %d numbers %s%s", key->most, range, or_auto); break;
    case MLA_KEY_ENUM:
    case MLA_KEY_ENUMS:
        used = snprintf(out, BYTES, key->type == MLA_KEY_ENUM ? "one of" : "one, or a list of one a stage, of");
        for (int i = 0; key->names[i] && used > 0 && used < BYTES; i++)
            used += snprintf(out + used, (size_t)(BYTES - used), "%s %s", i ? "," : "", key->names[i]);
        break;
    }
}

static const char *name_of(const char *const *names, unsigned value) {
    for (unsigned i = 0; names[i]; i++)
        if (i == value) return names[i];
    return "?";
}

const char *mla_attention_kind_name(mla_attention_kind kind) { return name_of(attention_names, (unsigned)kind); }

const char *mla_attention_kinds_text(const mla_model_spec *spec, char out[MLA_KINDS_BYTES]) {
    bool same = true;
    for (int i = 1; i < spec->stages; i++) same = same && spec->kinds[i] == spec->kinds[0];
    int used = 0;
    for (int i = 0; i < (same ? 1 : spec->stages) && used < MLA_KINDS_BYTES; i++)
        used += snprintf(out + used, (size_t)(MLA_KINDS_BYTES - used), "%s%s", i ? ", " : "",
                         mla_attention_kind_name(spec->kinds[i]));
    return out;
}

const char *mla_family_name(mla_family family) { return name_of(family_names, (unsigned)family); }

const char *mla_data_set_name(mla_data_set set) { return name_of(set_names, (unsigned)set); }
