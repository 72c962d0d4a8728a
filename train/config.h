/* The configuration of a run: YAML text to a checked struct, and back.
 *
 * One schema table (config_schema.c) lists every key with its type, range, default and meaning; loading,
 * overrides, the reference printed by `mirrorla config`, and the resolved text come from it.  The schema, not
 * the text, decides a value's type: `1e-5` is a number where a number is due and a word where a word is due.
 *
 *     mla_config config;
 *     mla_error error = {0};
 *     const char *set[] = {"optim.lr=3e-4"};
 *     if (mla_config_load(&config, "configs/quickstart.yaml", set, 1, &error) != MLA_OK) ...
 *     char *text = mla_config_text(&config);   // the fully resolved YAML; the caller frees it
 *
 * Errors name file, line, key, what was found and what is allowed; an unknown key names the nearest known one.
 */
#ifndef MLA_TRAIN_CONFIG_H
#define MLA_TRAIN_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "core/status.h"
#include "layers/spec.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"

enum { MLA_PATH_BYTES = 4096, MLA_NAME_BYTES = 64 };

typedef enum mla_data_set {
    MLA_SET_TWINS,
    MLA_SET_CIFAR10,
    MLA_SET_CIFAR100,
    MLA_SET_IMAGE_FOLDER,
    MLA_SET_TINY_IMAGENET
} mla_data_set;
typedef enum mla_class_order { MLA_ORDER_TORCHVISION, MLA_ORDER_NATURAL } mla_class_order;
typedef enum mla_on_error { MLA_ON_ERROR_FAIL, MLA_ON_ERROR_SKIP, MLA_ON_ERROR_SUBSTITUTE } mla_on_error;
typedef enum mla_interpolation { MLA_BILINEAR, MLA_BICUBIC } mla_interpolation;
typedef enum mla_resize_mode { MLA_RESIZE_SHORTER, MLA_RESIZE_SQUASH } mla_resize_mode;

typedef struct mla_data_config {
    mla_data_set set;
    char path[MLA_PATH_BYTES]; /* "auto": looked for in the usual places */
    int size;                  /* side of the square model input, pixels */
    bool mean_auto, std_auto;  /* the data set's own constants; resolved when it is opened */
    double mean[3], std[3];    /* of pixels in [0, 1], R G B */
    double subset;             /* fraction of the training images, (0, 1], the same share of every class */
    mla_class_order class_order;
    mla_on_error on_error;
    mla_interpolation interpolation;
    mla_resize_mode resize;
    double crop_pct;             /* evaluation: resize to size / crop_pct, then centre crop to size */
    int twins_grid;              /* twins: cells per side; tokens = grid^2 at one cell a patch */
    int twins_train, twins_test; /* twins: images per epoch, images of the fixed test set */
} mla_data_config;

typedef enum mla_augment_filter { MLA_AUG_BILINEAR, MLA_AUG_BICUBIC, MLA_AUG_RANDOM } mla_augment_filter;
typedef enum mla_erase_mode { MLA_ERASE_CONST, MLA_ERASE_RAND, MLA_ERASE_PIXEL } mla_erase_mode;
typedef enum mla_mix_mode { MLA_MIX_BATCH, MLA_MIX_PAIR, MLA_MIX_ELEM } mla_mix_mode;

typedef struct mla_randaug_config { /* train/randaug.h */
    int n;                          /* operations drawn for an image; 0 = off */
    double m, mstd, mmax;           /* magnitude: mean, deviation (over 100: evenly from 0 .. m), largest */
    double p;                       /* of an operation to be applied */
    int inc;                        /* 1: change grows with magnitude in all operations */
} mla_randaug_config;

typedef struct mla_augment_config {   /* train/augment.h, train/mix.h */
    int crop_padding;                 /* zero padding of the random crop, pixels; 0 = off */
    double scale[2], ratio[2];        /* resized crop: share of the area, width over height; scale 0, 0: the padded crop */
    mla_augment_filter interpolation; /* of the resized crop; of RandAugment's rotation, shear and translation */
    double flip;                      /* probability of a horizontal flip */
    mla_randaug_config randaug;
    double color_jitter, color_jitter_hue; /* largest change of brightness, contrast, saturation; of the hue, circles */
    double color_jitter_prob;
    bool force_color_jitter; /* also where RandAugment is on */
    double erase;            /* probability of random erasing */
    mla_erase_mode erase_mode;
    int erase_count;                       /* most rectangles an image */
    double erase_area[2], erase_aspect[2]; /* share of the image, height over width: least, most */
    double mixup, cutmix;                  /* alpha of the two; 0 = off */
    double cutmix_minmax[2];               /* sides of the box over the image's; 0, 0: drawn from cutmix */
    double mixup_prob, mixup_switch_prob;  /* of mixing at all; of CutMix where both are on */
    mla_mix_mode mixup_mode;
    int mixup_off_epoch; /* mixing ends after so many epochs; 0 = never */
    int aug_repeats;     /* times an image stands in a batch, differently augmented */
} mla_augment_config;

typedef struct mla_optim_config {
    mla_optimizer_kind name;
    double lr, weight_decay, betas[2], eps; /* adamw */
    double momentum;                        /* sgd */
    bool nesterov;                          /* sgd */
    double clip;                            /* largest global gradient norm; 0 = off */
    double ema;                             /* decay of the weight average; 0 = off */
    bool ema_warmup;                        /* decay at update n is min(ema, (1 + n) / (10 + n)) */
} mla_optim_config;

typedef struct mla_schedule_config {
    mla_schedule_kind name;
    double warmup_epochs, warmup_lr; /* linear from warmup_lr; the schedule proper runs over the rest */
    double min_lr;
    double step_epochs, step_factor; /* step: times step_factor every step_epochs */
    bool warmup_prefix;              /* false: the schedule's clock also runs during the warm-up */
} mla_schedule_config;

typedef struct mla_train_config {
    int epochs, batch, lanes;
    int shard;     /* images; 0 = auto, a function of the model alone */
    int max_steps; /* stop after so many steps in all; 0 = off; the schedule is not changed by it */
    double label_smoothing;
    uint64_t seed;
} mla_train_config;

typedef struct mla_checkpoint_config {
    int every_epochs; /* 0 = only at the end */
    int every_steps;  /* 0 = off */
    int keep;         /* newest files kept, at least 1 */
    bool best;        /* also keep the one with the best test accuracy */
} mla_checkpoint_config;

typedef struct mla_diagnostics_config {
    int every_epochs; /* 0 = auto: as often as two per cent of the training allow */
    int images;       /* of the test set; 0 = off */
} mla_diagnostics_config;

typedef struct mla_log_config {
    bool report, tensorboard;
} mla_log_config;

typedef struct mla_config {
    mla_model_spec model; /* image, channels and classes are filled in from the data set */
    mla_data_config data;
    mla_augment_config augment;
    mla_optim_config optim;
    mla_schedule_config schedule;
    mla_train_config train;
    mla_checkpoint_config checkpoint;
    int eval_every_epochs;
    mla_diagnostics_config diagnostics;
    mla_log_config log;
} mla_config;

/* Reads `path` with its bases and then the overrides ("key=value", dotted keys), checks every value and the
 * relations between values.  *config is written only on success. */
MLA_MUST_CHECK mla_status mla_config_load(mla_config *config, const char *path, const char *const *overrides,
                                          size_t override_count, mla_error *error);

/* The same from YAML text in memory (a checkpoint's); `origin` names it in messages. No `base` is followed. */
MLA_MUST_CHECK mla_status mla_config_parse(mla_config *config, const char *text, const char *origin,
                                           const char *const *overrides, size_t override_count, mla_error *error);

/* The defaults of every key. */
void mla_config_defaults(mla_config *config);

/* The fully resolved config as YAML that mla_config_parse reads back to the same bits (%.17g where needed, in
 * the C locale's form whatever the locale).  The caller frees it; NULL when out of memory. */
char *mla_config_text(const mla_config *config);

/* Prints the reference of all keys, or of one key or section; MLA_INVALID with the nearest name if unknown. */
MLA_MUST_CHECK mla_status mla_config_reference(FILE *out, const char *key, mla_error *error);

/* Names for enumerated values as they stand in configs, e.g. "mirror". */
const char *mla_attention_kind_name(mla_attention_kind kind);
/* The kinds of a model's stages: "mirror", or one a stage: "relu, relu, mirror".  Returns `out`. */
enum { MLA_KINDS_BYTES = MLA_MAX_STAGES * 16 };
const char *mla_attention_kinds_text(const mla_model_spec *spec, char out[MLA_KINDS_BYTES]);
const char *mla_family_name(mla_family family);
const char *mla_data_set_name(mla_data_set set);

#endif
