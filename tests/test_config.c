/* Configs: what is accepted and what it means, what is refused and with which words, and that text reads back. */
#include <check.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/run_suite.h"
#include "tests/config_refusals.h"
#include "train/config_schema.h"

enum { PATH_ROOM = MLA_PATH_BYTES + 512 };

static mla_status parse(mla_config *config, const char *text, mla_error *error) {
    return mla_config_parse(config, text, "t.yaml", NULL, 0, error);
}

static mla_config accepted(const char *text) {
    mla_config config;
    mla_error error = {0};
    ck_assert_msg(parse(&config, text, &error) == MLA_OK, "refused: %s\n%s", text, error.text);
    return config;
}

/* ---- refused inputs ---- */

static void check_message(const refusal *r, const mla_error *error) {
    for (int i = 0; i < 3 && r->hint[i]; i++)
        ck_assert_msg(strstr(error->text, r->hint[i]), "input: %s\nmessage: %s\nlacks: %s", r->text, error->text,
                      r->hint[i]);
    ck_assert_msg(!strchr(error->text, '\n'), "newline in: %s", error->text);
}

START_TEST(refuses) {
    const refusal *r = &refusals[_i];
    mla_config config;
    memset(&config, 0x5a, sizeof config);
    mla_config before = config;
    mla_error error = {0};
    ck_assert_msg(parse(&config, r->text, &error) == MLA_INVALID, "accepted: %s", r->text);
    ck_assert_int_eq(error.status, MLA_INVALID);
    check_message(r, &error);
    ck_assert_msg(memcmp(&config, &before, sizeof config) == 0, "written to on failure: %s", r->text);
    ck_assert_int_eq(parse(&config, r->text, NULL), MLA_INVALID);
}
END_TEST

START_TEST(refuses_override) {
    const refusal *r = &override_refusals[_i];
    mla_config config;
    mla_error error = {0};
    ck_assert_msg(mla_config_parse(&config, "", "t.yaml", &r->text, 1, &error) == MLA_INVALID, "accepted: %s", r->text);
    check_message(r, &error);
}
END_TEST

/* ---- accepted spellings ---- */

START_TEST(numbers) {
    static const struct {
        const char *text;
        double value;
    } spellings[] = {{"1e-5", 1e-5}, {"1E-5", 1e-5}, {".5", .5},   {"5", 5},          {"5.", 5},    {"5.0", 5},
                     {"+5", 5},      {"0", 0},       {"0.0e0", 0}, {"1.0e-05", 1e-5}, {"1e+1", 10}, {"0.1", 0.1}};
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        char text[96];
        snprintf(text, sizeof text, "optim: {lr: %s}\nschedule: {min_lr: 0}\n", spellings[i].text);
        ck_assert_msg(accepted(text).optim.lr == spellings[i].value, "%s", spellings[i].text);
    }
    ck_assert_uint_eq(accepted("train: {seed: 18446744073709551615}").train.seed, UINT64_MAX);
}
END_TEST

START_TEST(switches) {
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes", "on", "On", "ON"};
    static const char *const no[] = {"false", "False", "FALSE", "no", "No", "off", "Off", "OFF"};
    char text[64];
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        snprintf(text, sizeof text, "optim: {nesterov: %s}\n", yes[i]);
        ck_assert_msg(accepted(text).optim.nesterov, "%s", yes[i]);
        snprintf(text, sizeof text, "optim: {ema_warmup: %s}\n", no[i]);
        ck_assert_msg(!accepted(text).optim.ema_warmup, "%s", no[i]);
    }
}
END_TEST

START_TEST(nulls_and_autos) {
    static const char *const words[] = {"null", "None", "~", "NULL"};
    char text[160];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *w = words[i];
        snprintf(text, sizeof text, "optim: {clip: %s, ema: %s}\ntrain: {shard: %s}\ndata: {path: %s, mean: %s}", w, w, w, w,
                 w);
        mla_config c = accepted(text);
        ck_assert(c.optim.clip == 0 && c.optim.ema == 0 && c.train.shard == 0 && c.data.mean_auto);
        ck_assert_str_eq(c.data.path, "auto");
    }
    mla_config c = accepted("data: {path: \"null\", mean: [0.1, 0.2, 0.3], std: auto}\ntrain: {shard: 16}\n");
    ck_assert_str_eq(c.data.path, "null");
    ck_assert(!c.data.mean_auto && c.data.mean[2] == 0.3 && c.data.std_auto && c.train.shard == 16);
}
END_TEST

START_TEST(lists) {
    mla_config c = accepted("optim:\n  betas: (0.8, 0.95)\nmodel:\n  dims: (128,)\n  heads:\n    - 8\n");
    ck_assert(c.optim.betas[0] == 0.8 && c.optim.betas[1] == 0.95);
    ck_assert(c.model.dims[0] == 128 && c.model.heads[0] == 8 && c.model.stages == 1);
    c = accepted("model: {family: pvt, patch: 2, dims: [64, 128, 64, 32], depths: [2, 2, 6, 2], heads: [2, 2, 2, 2]}");
    ck_assert(c.model.stages == 4 && c.model.depths[2] == 6 && c.model.family == MLA_FAMILY_PVT);
}
END_TEST

START_TEST(empty_is_default) {
    static const char *const texts[] = {"",         "\n",         "# nothing\n",
                                        "---\n",    "{}\n",       "\xef\xbb\xbf",
                                        "optim:\n", "---\n...\n", "\xef\xbb\xbfoptim: {lr: 1e-3}\r\n"};
    mla_config defaults;
    mla_config_defaults(&defaults);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        mla_config c = accepted(texts[i]);
        ck_assert_msg(memcmp(&c, &defaults, sizeof c) == 0, "case %zu", i);
    }
    ck_assert(defaults.model.stages == 1 && defaults.model.dims[0] == 64 && defaults.model.depths[0] == 4);
    ck_assert(defaults.model.image == 32 && defaults.model.channels == 3 && defaults.model.classes == 0);
    ck_assert(defaults.model.kinds[0] == MLA_ATTENTION_MIRROR && defaults.model.attention.mirror.block == 8);
    ck_assert(defaults.model.attention.mirror.angle_max == 1.57079632679489661923);
    ck_assert(defaults.optim.name == MLA_ADAMW && defaults.optim.lr == 1e-3 && defaults.optim.betas[1] == 0.999);
    ck_assert(defaults.schedule.name == MLA_SCHEDULE_COSINE && defaults.train.batch == 128);
    ck_assert(defaults.train.lanes == 8 && defaults.train.shard == 0);
    ck_assert(defaults.data.set == MLA_SET_CIFAR10 && defaults.data.mean_auto && defaults.checkpoint.keep == 2);
    ck_assert_int_eq(defaults.eval_every_epochs, 1);
}
END_TEST

START_TEST(overrides_in_order) {
    const char *set[] = {"optim.lr=3e-4",          "model.dims=[192]", "model.heads=[6]", "data.path=/a b/%c",
                         "optim.betas=(0.8, 0.9)", "optim.clip=null",  "optim.lr=.5",     "train.batch=64"};
    mla_config c;
    mla_error error = {0};
    ck_assert_msg(mla_config_parse(&c, "train: {batch: 32}", "t", set, 8, &error) == MLA_OK, "%s", error.text);
    ck_assert(c.optim.lr == 0.5 && c.model.dims[0] == 192 && c.model.heads[0] == 6 && c.train.batch == 64);
    ck_assert(c.optim.betas[1] == 0.9 && c.optim.clip == 0);
    ck_assert_str_eq(c.data.path, "/a b/%c");
    const char *percent[] = {"data.path=---"};
    ck_assert(mla_config_parse(&c, "", "t", percent, 1, &error) == MLA_OK);
    ck_assert_str_eq(c.data.path, "---");
}
END_TEST

/* ---- text and reference ---- */

static void check_round_trip(const mla_config *config) {
    char *text = mla_config_text(config);
    ck_assert_ptr_nonnull(text);
    mla_config again = accepted(text);
    ck_assert_msg(memcmp(config, &again, sizeof again) == 0, "not read back to the same bits:\n%s", text);
    free(text);
}

static const char every_key[] =
    "model: {family: pvt, patch: 2, dims: [64, 128], depths: [1, 3], heads: [2, 4], mlp_ratio: 2.6666666666666665,\n"
    "  drop_path: 0.1, norm_eps: 1e-5, attention: {kind: [elu1, pola], dwconv: 3, qkv_bias: off, eps: 3e-7,\n"
    "  gate: on, performer: {features: 7}, focused: {factor: 2.5}, agent: {side: 7}, mirror: {\n"
    "  block: 0, reflections: 3, variance_angle: no, angle_max: 0.7853981633974483, angle_gain: -0.0,\n"
    "  cross_head: 0, block_init: random, cross_init: random, angle_planes: learned, angle_source: own, qk_norm: rms,\n"
    "  scale_modulation: on, fold: 3, feature: twin, twin_init: negative, twin_reflections: 34, power: fixed,\n"
    "  exponent: 2.5, retention_loss: 0.1}}}\n"
    "data: {set: imagefolder, path: '/x: y/\"q\"\\ü', size: 64,\n"
    "  mean: [0.1, 0.2, 0.30000000000000004], std: [0.25, 1, 5e-324], subset: 0.3333333333333333, class_order: natural,\n"
    "  on_error: skip, interpolation: bilinear, resize: squash, crop_pct: 0.95, twins: {grid: 8, train: 7, test: 9}}\n"
    "augment: {crop_padding: 0, flip: 0, color_jitter: 0.4, color_jitter_hue: 0.1, color_jitter_prob: 0.8,\n"
    "  force_color_jitter: yes, erase: 0.25, erase_mode: rand, erase_count: 2, erase_area: [0.1, 0.25],\n"
    "  erase_aspect: [0.5, 2], mixup: 0.8, cutmix: 1, cutmix_minmax: [0.2, 0.8], mixup_prob: 0.9,\n"
    "  mixup_switch_prob: 0.4, mixup_mode: pair, mixup_off_epoch: 175, aug_repeats: 3,\n"
    "  randaug: {n: 2, m: 7, mstd: 0.25, mmax: 30, p: 0.7, inc: 0},\n"
    "  scale: [0.2, 0.9], ratio: [0.5, 2], interpolation: bicubic}\n"
    "optim: {name: sgd, lr: 0.12345678901234568, weight_decay: 1e-300, betas: [0, 0.99], eps: 1e-6, momentum: 0,\n"
    "  nesterov: true, clip: null, ema: 0.9999, ema_warmup: false}\n"
    "schedule: {name: step, warmup_epochs: 0.5, warmup_lr: 1e-6, min_lr: 0, step_epochs: 2.5, step_factor: 0.3,\n"
    "  warmup_prefix: false}\n"
    "train: {epochs: 3, batch: 100, lanes: 1, shard: 25, max_steps: 2147483647, label_smoothing: 0.05,\n"
    "  seed: 18446744073709551615}\n"
    "checkpoint: {every_epochs: 0, every_steps: 10, keep: 5, best: false}\n"
    "eval: {every_epochs: 4}\n"
    "diagnostics: {every_epochs: 2, images: 7}\n"
    "log: {report: false, tensorboard: false}\n";

START_TEST(round_trip) {
    mla_config c;
    mla_config_defaults(&c);
    check_round_trip(&c);
    c = accepted(every_key);
    check_round_trip(&c);
    mla_config defaults; /* the text above leaves no key at its default: printing is checked for each */
    mla_config_defaults(&defaults);
    for (size_t i = 0; i < mla_config_key_count; i++) {
        const mla_config_key *key = &mla_config_keys[i];
        size_t bytes = key->type == MLA_KEY_BOOL ? 1 : key->type == MLA_KEY_TEXT ? MLA_PATH_BYTES : 4;
        if (key->type == MLA_KEY_DOUBLE || key->type == MLA_KEY_DOUBLES || key->type == MLA_KEY_U64) bytes = 8;
        const char *a = (const char *)&c + key->offset, *b = (const char *)&defaults + key->offset;
        bool first_entry_only = strcmp(key->name, "model.dims") == 0;
        ck_assert_msg(first_entry_only || memcmp(a, b, bytes) != 0, "%s is at its default", key->name);
    }
}
END_TEST

START_TEST(odd_paths_read_back) {
    static const char *const paths[] = {"~",
                                        "null",
                                        "a\nb\tc",
                                        " lead and trail ",
                                        "#x",
                                        "- a",
                                        "\"",
                                        "\\",
                                        "'",
                                        "\xc2\x85\xe2\x80\xa8\xe2\x80\xa9",
                                        "\xef\xbb\xbf\xef\xbf\xbe\xef\xbf\xbf",
                                        "\xc2\x80\xc2\x9f\xc2\xa0\x7f\x01",
                                        "\xf0\x9f\x98\x80",
                                        "a: b",
                                        "{",
                                        "..."};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        mla_config c;
        mla_config_defaults(&c);
        memset(c.data.path, 0, sizeof c.data.path);
        memcpy(c.data.path, paths[i], strlen(paths[i]));
        check_round_trip(&c);
    }
}
END_TEST

/* Every line a later base or override leaves behind: the longer path must not shine through. */
START_TEST(no_rest_of_earlier_values) {
    const char *set[] = {"data.path=/long/long/long", "data.mean=[0.1, 0.1, 0.1]", "data.path=/s", "data.mean=auto"};
    const char *direct[] = {"data.path=/s"};
    mla_config a, b;
    mla_error error = {0};
    ck_assert(mla_config_parse(&a, "", "t", set, 4, &error) == MLA_OK);
    ck_assert(mla_config_parse(&b, "", "t", direct, 1, &error) == MLA_OK);
    ck_assert_mem_eq(&a, &b, sizeof a);
}
END_TEST

START_TEST(any_locale) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "ru_RU.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_ALL, names[i]) && strcmp(localeconv()->decimal_point, ",") == 0) break;
    if (strcmp(localeconv()->decimal_point, ",") != 0)
        fprintf(stderr, "any_locale: no locale with a decimal comma here; checked with the plain one only\n");
    mla_config c = accepted(every_key);
    ck_assert(c.augment.flip == 0 && c.data.mean[0] == 0.1);
    check_round_trip(&c);
    char *text = mla_config_text(&c);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(strstr(text, "crop_pct: 0.95\n"));
    free(text);
}
END_TEST

static char *reference(const char *key) {
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    mla_error error = {0};
    ck_assert_msg(mla_config_reference(out, key, &error) == MLA_OK, "%s", error.text);
    fclose(out);
    return text;
}

START_TEST(reference_is_complete) {
    char *all = reference(NULL);
    for (size_t i = 0; i < mla_config_key_count; i++) {
        const mla_config_key *key = &mla_config_keys[i];
        char allowed[MLA_CONFIG_ALLOWED_BYTES];
        mla_config_allowed(key, allowed);
        ck_assert_msg(strstr(all, key->name) && strstr(all, key->meaning) && strstr(all, allowed), "%s", key->name);
        char *one = reference(key->name);
        ck_assert_msg(strstr(one, key->name) && strstr(one, allowed) && strstr(one, key->fallback), "%s", one);
        free(one);
        char section[MLA_CONFIG_NAME_BYTES];
        snprintf(section, sizeof section, "%.*s", (int)mla_config_section_length(key->name), key->name);
        ck_assert_msg(mla_config_section_find(section), "section %s has no entry", section);
    }
    free(all);
    char *section = reference("model");
    ck_assert(strstr(section, "model.attention.mirror.block") && !strstr(section, "optim.lr"));
    free(section);
    mla_error error = {0};
    ck_assert_int_eq(mla_config_reference(stderr, "optim.lrr", &error), MLA_INVALID);
    ck_assert_msg(strstr(error.text, "optim.lrr") && strstr(error.text, "did you mean optim.lr?"), "%s", error.text);
}
END_TEST

START_TEST(names) {
    ck_assert_str_eq(mla_attention_kind_name(MLA_ATTENTION_MIRROR), "mirror");
    ck_assert_str_eq(mla_family_name(MLA_FAMILY_PVT), "pvt");
    ck_assert_str_eq(mla_data_set_name(MLA_SET_TINY_IMAGENET), "tiny-imagenet");
    ck_assert_str_eq(mla_attention_kind_name((mla_attention_kind)99), "?");
}
END_TEST

/* ---- files ---- */

static char folder[256];

static void make_folder(void) {
    const char *root = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/mla_config_XXXXXX", root ? root : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void) {
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *in_folder(const char *name) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text, size_t length) {
    FILE *out = fopen(in_folder(name), "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(text, 1, length, out), length);
    ck_assert_int_eq(fclose(out), 0);
}

static void file(const char *name, const char *text) { write_file(name, text, strlen(text)); }

static void load_refused(const char *name, mla_status status, const char *hint, const char *second) {
    mla_config config;
    mla_error error = {0};
    mla_status got = mla_config_load(&config, in_folder(name), NULL, 0, &error);
    ck_assert_msg(got == status, "%s: status %d, %s", name, (int)got, error.text);
    ck_assert_msg(strstr(error.text, hint) && strstr(error.text, second), "%s\nlacks %s or %s", error.text, hint, second);
}

START_TEST(bases) {
    mkdir(in_folder("sub"), 0700);
    file("root.yaml", "optim: {lr: 1e-3, clip: 5}\ntrain: {batch: 16, epochs: 3}\n");
    file("sub/mid.yaml", "optim: {lr: 2e-3}\nbase: ../root.yaml\n");
    file("other.yaml", "optim: {clip: 7}\n");
    file("run.yaml", "base: [sub/mid.yaml, other.yaml]\ntrain: {batch: 64}\n");
    const char *set[] = {"train.seed=9"};
    mla_config c;
    mla_error error = {0};
    ck_assert_msg(mla_config_load(&c, in_folder("run.yaml"), set, 1, &error) == MLA_OK, "%s", error.text);
    ck_assert(c.optim.lr == 2e-3 && c.optim.clip == 7 && c.train.seed == 9);
    ck_assert(c.train.batch == 64 && c.train.epochs == 3);
    char text[PATH_ROOM + 16];
    snprintf(text, sizeof text, "base: %s\n", in_folder("other.yaml"));
    file("absolute.yaml", text);
    ck_assert(mla_config_load(&c, in_folder("absolute.yaml"), NULL, 0, &error) == MLA_OK && c.optim.clip == 7);
    /* a relation is blamed on the file that wrote the value */
    file("lanes.yaml", "train:\n  lanes: 3\n");
    file("user.yaml", "base: lanes.yaml\n");
    load_refused("user.yaml", MLA_INVALID, "lanes.yaml:2: train.lanes", "power of two");
}
END_TEST

START_TEST(base_mistakes) {
    file("a.yaml", "base: b.yaml\n");
    file("b.yaml", "\nbase: ./a.yaml\n");
    load_refused("a.yaml", MLA_INVALID, "b.yaml:2: base: ", "round in a circle");
    file("self.yaml", "base: self.yaml\n");
    load_refused("self.yaml", MLA_INVALID, "self.yaml:1: base: ", "round in a circle");
    file("lost.yaml", "\n\nbase: nowhere.yaml\n");
    load_refused("lost.yaml", MLA_INVALID, "lost.yaml:3: base: ", "nowhere.yaml: No such file");
    file("null.yaml", "base: null\n");
    load_refused("null.yaml", MLA_INVALID, "null.yaml:1: base: ", "expected a file name");
    file("map.yaml", "base: {a: b}\n");
    load_refused("map.yaml", MLA_INVALID, "map.yaml:1: base: ", "expected a file name");
    file("none.yaml", "base: []\n");
    load_refused("none.yaml", MLA_INVALID, "none.yaml:1: base: ", "expected a file name");
    file("nest.yaml", "base: [[a]]\n");
    load_refused("nest.yaml", MLA_INVALID, "nest.yaml:1: base: ", "expected a file name");
    file("twice.yaml", "base: leaf.yaml\nbase: leaf.yaml\n");
    file("leaf.yaml", "");
    load_refused("twice.yaml", MLA_INVALID, "twice.yaml:2: base: ", "line 1 and in line 2");
    file("inner.yaml", "optim: {base: leaf.yaml}\n");
    load_refused("inner.yaml", MLA_INVALID, "inner.yaml:1: optim.base: ", "unknown key");
    for (int i = 0; i < 20; i++) { /* each names the next twice: 2^20 files without a limit */
        char name[32], text[64];
        snprintf(name, sizeof name, "double%d.yaml", i);
        snprintf(text, sizeof text, "base: [double%d.yaml, double%d.yaml]\n", i + 1, i + 1);
        file(name, i < 12 ? text : "");
        snprintf(name, sizeof name, "chain%d.yaml", i);
        snprintf(text, sizeof text, "base: chain%d.yaml\n", i + 1);
        file(name, text);
    }
    load_refused("double0.yaml", MLA_INVALID, "base: ", "more than 64 files");
    load_refused("chain0.yaml", MLA_INVALID, "chain15.yaml:1: base: ", "more than 15 bases");
}
END_TEST

START_TEST(bad_files) {
    load_refused("missing.yaml", MLA_INVALID, "missing.yaml", "No such file");
    load_refused("", MLA_INVALID, "cannot read", "directory");
    write_file("nul.yaml", "optim: {lr: 1}\n#\0\n", 18);
    load_refused("nul.yaml", MLA_INVALID, "nul.yaml:2: ", "NUL byte");
    write_file("wide.yaml",
               "\xff\xfe"
               "a\0:\0",
               6);
    load_refused("wide.yaml", MLA_INVALID, "wide.yaml:1: ", "not UTF-8");
    size_t bytes = MLA_CONFIG_FILE_BYTES;
    char *text = malloc(bytes + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, '#', bytes + 1);
    write_file("large.yaml", text, bytes + 1);
    load_refused("large.yaml", MLA_INVALID, "large.yaml: ", "larger than 1 MiB");
    write_file("full.yaml", text, bytes);
    mla_config config;
    mla_error error = {0};
    ck_assert_msg(mla_config_load(&config, in_folder("full.yaml"), NULL, 0, &error) == MLA_OK, "%s", error.text);
    memset(text, '[', bytes);
    write_file("deep.yaml", text, bytes);
    load_refused("deep.yaml", MLA_INVALID, "deep.yaml:1:", "");
    memset(text, 'x', bytes);
    write_file("word.yaml", text, bytes);
    load_refused("word.yaml", MLA_INVALID, "word.yaml:1", "expected sections");
    free(text);
}
END_TEST

START_TEST(shipped_configs) {
    static const char *const models[] = {"study", "pvt_nano", "vit_tiny"};
    static const char *const kinds[] = {"softmax",   "elu1",    "relu", "mirror", "performer", "cosformer",
                                        "efficient", "focused", "pola", "inline", "agent"};
    const char *source = getenv("MLA_SOURCE_DIR");
    ck_assert_msg(source, "MLA_SOURCE_DIR is not set");
    char path[PATH_ROOM];
    mla_config c;
    mla_error error = {0};
    snprintf(path, sizeof path, "%s/configs/quickstart.yaml", source);
    ck_assert_msg(mla_config_load(&c, path, NULL, 0, &error) == MLA_OK, "%s", error.text);
    ck_assert(c.data.set == MLA_SET_TWINS && c.data.size / c.model.patch == c.data.twins_grid);
    check_round_trip(&c);
    for (size_t m = 0; m < 3; m++)
        for (int k = 0; k < (m ? 4 : 11); k++) { /* the study has all */
            snprintf(path, sizeof path, "%s/configs/cifar10/%s_%s.yaml", source, models[m], kinds[k]);
            ck_assert_msg(mla_config_load(&c, path, NULL, 0, &error) == MLA_OK, "%s", error.text);
            ck_assert_str_eq(mla_attention_kind_name(c.model.kinds[c.model.stages - 1]), kinds[k]);
            ck_assert(c.data.set == MLA_SET_CIFAR10 && c.train.epochs == 10 && c.model.attention.dwconv == 5);
            ck_assert_int_eq(c.model.stages, m == 1 ? 3 : 1);
            check_round_trip(&c);
        }
}
END_TEST

START_TEST(statuses) {
    mla_error error = {0};
    ck_assert_int_eq(mla_fail(NULL, MLA_IO, "x"), MLA_IO);
    ck_assert_int_eq(mla_fail(&error, MLA_IO, "a\nb %d", 3), MLA_IO);
    ck_assert_str_eq(error.text, "a b 3");
    ck_assert_int_eq(mla_fail_context(&error, "%s: ", "f"), MLA_IO);
    ck_assert_str_eq(error.text, "f: a b 3");
    ck_assert_int_eq(mla_fail_context(NULL, "x"), MLA_INVALID);
    char text[2 * MLA_ERROR_BYTES];
    for (int lead = 0; lead < 4; lead++) { /* never half of a character where the sentence was cut */
        memset(text, 0, sizeof text);
        memset(text, 'x', (size_t)lead);
        for (size_t i = (size_t)lead; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\x98\x80", 4);
        mla_fail(&error, MLA_INVALID, "%s", text);
        ck_assert_uint_eq((strlen(error.text) - (size_t)lead) % 4, 0);
        ck_assert_uint_gt(strlen(error.text), MLA_ERROR_BYTES - 6);
    }
    ck_assert_int_eq(mla_status_exit_code(MLA_INVALID), 2);
    ck_assert_int_eq(mla_status_exit_code(MLA_INTERRUPTED), 130);
    ck_assert_int_eq(mla_status_exit_code((mla_status)99), 1);
    ck_assert_str_eq(mla_status_text(MLA_OK), "done");
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *const *tests, size_t count) {
    TCase *group = tcase_create(name);
    for (size_t i = 0; i < count; i++) tcase_add_test(group, tests[i]);
    suite_add_tcase(suite, group);
}

int main(void) {
    Suite *suite = suite_create("config");
    TCase *refused = tcase_create("refused");
    tcase_add_loop_test(refused, refuses, 0, (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_loop_test(refused, refuses_override, 0, (int)(sizeof override_refusals / sizeof override_refusals[0]));
    suite_add_tcase(suite, refused);
    const TTest *const values[] = {numbers,          switches,           nulls_and_autos, lists,
                                   empty_is_default, overrides_in_order, statuses};
    add(suite, "values", values, sizeof values / sizeof values[0]);
    const TTest *const text[] = {round_trip,     odd_paths_read_back,   no_rest_of_earlier_values,
                                 any_locale,     reference_is_complete, names,
                                 shipped_configs};
    add(suite, "text", text, sizeof text / sizeof text[0]);
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, make_folder, remove_folder);
    tcase_add_test(files, bases);
    tcase_add_test(files, base_mistakes);
    tcase_add_test(files, bad_files);
    suite_add_tcase(suite, files);
    return run_suite(suite);
}
