#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/checkpoint_metadata.h"
#include "train/file.h"

_Static_assert(sizeof(real) == sizeof(float), "checkpoints hold F32 and are written from the buffers in place");

/* Where a buffer of the run stands in the file: its tensors are named PREFIX + name of the parameter. */
typedef struct section {
    const char *prefix;
    real *buffer; /* NULL: not wanted, or not kept by this run */
} section;

enum { VALUE, MOMENT1, MOMENT2, AVERAGE, SECTIONS };

static void list_sections(section sections[SECTIONS], const mla_run_buffers *buffers, mla_optimizer_kind optimizer) {
    bool sgd = optimizer == MLA_SGD;
    sections[VALUE] = (section){"", buffers->value};
    sections[MOMENT1] = (section){sgd ? "optim.momentum." : "optim.exp_avg.", buffers->moment1};
    sections[MOMENT2] = (section){"optim.exp_avg_sq.", sgd ? NULL : buffers->moment2};
    sections[AVERAGE] = (section){"ema.", buffers->ema};
}

static char *tensor_name(const char *prefix, const char *name) {
    char *text = NULL;
    return asprintf(&text, "%s%s", prefix, name) < 0 ? NULL : text;
}

/* ---- saving */

static void free_tensors(mla_file_tensor *tensors, char **names, size_t count) {
    for (size_t i = 0; i < count; i++) free(names[i]);
    free(names);
    free(tensors);
}

/* Views of all buffers as tensors of the file; `names` owns what the views point at. */
static bool list_tensors(mla_file_tensor **tensors, char ***names, size_t *count, const mla_params *params,
                         const section sections[SECTIONS]) {
    size_t most = (size_t)params->entries * SECTIONS;
    *count = 0;
    *tensors = calloc(most + 1, sizeof **tensors);
    *names = calloc(most + 1, sizeof **names);
    if (!*tensors || !*names) return false;
    for (int s = 0; s < SECTIONS; s++) {
        for (int i = 0; i < params->entries && sections[s].buffer; i++) {
            const mla_param *param = &params->entry[i];
            char *name = tensor_name(sections[s].prefix, param->name);
            if (!name) return false;
            mla_file_tensor tensor = {.name = name,
                                      .dtype = MLA_F32,
                                      .ndim = param->ndim,
                                      .data = sections[s].buffer + param->offset,
                                      .bytes = param->count * sizeof(real)};
            memcpy(tensor.shape, param->shape, sizeof param->shape);
            (*names)[*count] = name;
            (*tensors)[(*count)++] = tensor;
        }
    }
    return true;
}

mla_status mla_checkpoint_save(const char *path, const mla_params *params, const mla_run_buffers *buffers,
                               const mla_counters *counters, const mla_config *config, const mla_class_info *classes,
                               mla_error *error) {
    MLA_REQUIRE(buffers->value, "a checkpoint without weights is saved");
    section sections[SECTIONS];
    mla_file_tensor *tensors;
    char **names;
    size_t count;
    mla_metadata metadata = {0};
    list_sections(sections, buffers, config->optim.name);
    mla_status status = list_tensors(&tensors, &names, &count, params, sections)
                            ? MLA_OK
                            : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    if (status == MLA_OK) {
        mla_metadata_add(&metadata, "mirrorla.checkpoint", strdup(MLA_CHECKPOINT_FORMAT));
        status = mla_metadata_describe(&metadata, path, config, classes, mla_params_hash(params, buffers->value), error);
    }
    if (status == MLA_OK) {
        mla_metadata_add_counters(&metadata, counters);
        mla_metadata_add_crc(&metadata, tensors, count);
        status = mla_metadata_status(&metadata, path, error);
    }
    if (status == MLA_OK) status = mla_safetensors_write(path, tensors, count, metadata.pair, metadata.count, error);
    mla_metadata_free(&metadata);
    free_tensors(tensors, names, count);
    return status;
}

/* ---- opening */

static bool starts_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

bool mla_checkpoint_is_own(const mla_safetensors *file) {
    static const char *const keys[] = {"mirrorla.version", "mirrorla.checkpoint", "weight_hash"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (mla_safetensors_metadata(file, keys[i])) return true;
    return false;
}

/* Checkpoints say which format they have; exported weights do not, and hold no training state. */
static mla_status check_format(bool *full, const mla_checkpoint *checkpoint, mla_error *error) {
    const char *format = mla_safetensors_metadata(checkpoint->file, "mirrorla.checkpoint");
    *full = format != NULL;
    if (format && strcmp(format, MLA_CHECKPOINT_FORMAT) != 0)
        return mla_fail(error, MLA_INVALID, "%s: has checkpoint format \"%.20s\", this program reads format %s",
                        checkpoint->path, format, MLA_CHECKPOINT_FORMAT);
    if (!mla_safetensors_metadata(checkpoint->file, "config"))
        return mla_fail(error, MLA_INVALID,
                        "%s: is a safetensors file, but its metadata has no \"config\": expected a "
                        "checkpoint or weights exported by mirrorla; weights of other tools come in by `mirrorla import`",
                        checkpoint->path);
    return MLA_OK;
}

static mla_status read_config(mla_checkpoint *checkpoint, const char *const *overrides, size_t override_count,
                              mla_error *error) {
    char *origin = NULL;
    if (asprintf(&origin, "%s (config)", checkpoint->path) < 0)
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", checkpoint->path);
    mla_status status = mla_config_parse(&checkpoint->config, mla_safetensors_metadata(checkpoint->file, "config"), origin,
                                         overrides, override_count, error);
    free(origin);
    /* these three come from the data set, not from the config's text */
    checkpoint->config.model.image = checkpoint->classes.size;
    checkpoint->config.model.channels = 3;
    checkpoint->config.model.classes = checkpoint->classes.count;
    return status;
}

static mla_status read_checkpoint(mla_checkpoint *checkpoint, const char *const *overrides, size_t override_count,
                                  mla_error *error) {
    bool full = false;
    mla_status status = mla_safetensors_open(&checkpoint->file, checkpoint->path, error);
    if (status == MLA_OK) status = check_format(&full, checkpoint, error);
    if (status == MLA_OK && full) status = mla_metadata_verify_crc(checkpoint, error);
    if (status == MLA_OK && full) status = mla_metadata_read_counters(checkpoint, error);
    if (status == MLA_OK) status = mla_metadata_read_classes(checkpoint, error);
    if (status == MLA_OK) status = mla_metadata_read_hash(checkpoint, error);
    if (status == MLA_OK) status = read_config(checkpoint, overrides, override_count, error);
    bool moments = false;
    for (size_t i = 0; status == MLA_OK && i < mla_safetensors_count(checkpoint->file); i++) {
        const char *name = mla_safetensors_at(checkpoint->file, i)->name;
        checkpoint->has_ema |= starts_with(name, "ema.");
        moments |= starts_with(name, "optim.");
    }
    /* imported weights stand at step 0 without moments; SGD without momentum never has any */
    const mla_optim_config *o = &checkpoint->config.optim;
    checkpoint->has_optimizer =
        full && (moments || checkpoint->counters.step > 0 || (o->name == MLA_SGD && o->momentum == 0));
    return status;
}

static mla_status open_parts(mla_checkpoint *checkpoint, const char *path, bool weights_only, const char *const *overrides,
                             size_t override_count, mla_error *error) {
    *checkpoint = (mla_checkpoint){.path = strdup(path), .weights_only = weights_only};
    if (!checkpoint->path) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    mla_status status = read_checkpoint(checkpoint, overrides, override_count, error);
    if (status != MLA_OK) mla_checkpoint_close(checkpoint);
    return status;
}

mla_status mla_checkpoint_open(mla_checkpoint *checkpoint, const char *path, const char *const *overrides,
                               size_t override_count, mla_error *error) {
    return open_parts(checkpoint, path, false, overrides, override_count, error);
}

mla_status mla_checkpoint_open_weights(mla_checkpoint *checkpoint, const char *path, mla_error *error) {
    return open_parts(checkpoint, path, true, NULL, 0, error);
}

void mla_checkpoint_close(mla_checkpoint *checkpoint) {
    mla_safetensors_close(checkpoint->file);
    /* one block, see copy_names; the cast only takes the const of the public type away */
    free((void *)(uintptr_t)checkpoint->classes.names);
    free(checkpoint->path);
    free(checkpoint->weight_hash);
    *checkpoint = (mla_checkpoint){0};
}

/* ---- loading */

/* The first few names of a kind of trouble, as text. */
typedef struct name_list {
    char text[640];
    size_t length, count;
} name_list;

static void list_name(name_list *list, const char *name) {
    if (list->count++ < 4) {
        int wrote = snprintf(list->text + list->length, sizeof list->text - list->length, "%s%.140s",
                             list->length ? ", " : "", name);
        list->length += wrote > 0 ? (size_t)wrote : 0;
    }
}

typedef struct mismatch {
    name_list missing, unexpected, reshaped;
} mismatch;

static bool same_shape(const mla_file_tensor *tensor, const mla_param *param) {
    return tensor->ndim == param->ndim &&
           memcmp(tensor->shape, param->shape, (size_t)param->ndim * sizeof *param->shape) == 0;
}

static mla_status compare_section(mismatch *found, const mla_safetensors *file, const mla_params *params, const char *prefix,
                                  mla_error *error) {
    for (int i = 0; i < params->entries; i++) {
        char *name = tensor_name(prefix, params->entry[i].name);
        if (!name) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", mla_safetensors_path(file));
        const mla_file_tensor *tensor = mla_safetensors_find(file, name);
        if (!tensor)
            list_name(&found->missing, name);
        else if (!same_shape(tensor, &params->entry[i]))
            list_name(&found->reshaped, name);
        free(name);
    }
    return MLA_OK;
}

/* Tensors of the file that belong to no parameter, whatever section they are in. */
static void list_unexpected(mismatch *found, const mla_safetensors *file, const mla_params *params) {
    static const char *const prefixes[] = {"optim.momentum.", "optim.exp_avg.", "optim.exp_avg_sq.", "ema."};
    for (size_t i = 0; i < mla_safetensors_count(file); i++) {
        const char *name = mla_safetensors_at(file, i)->name, *rest = name;
        for (size_t j = 0; j < sizeof prefixes / sizeof *prefixes; j++)
            if (starts_with(name, prefixes[j])) rest = name + strlen(prefixes[j]);
        if (mla_params_find(params, rest) < 0) list_name(&found->unexpected, name);
    }
}

static mla_status fail_mismatch(const mismatch *found, const char *path, mla_error *error) {
    const struct {
        const char *what;
        const name_list *list;
    } kinds[] = {{"missing", &found->missing}, {"unexpected", &found->unexpected}, {"of another shape", &found->reshaped}};
    char text[MLA_ERROR_BYTES] = "";
    size_t length = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].list->count == 0) continue;
        int wrote =
            snprintf(text + length, sizeof text - length, "%s%zu %s (%s%s)", length ? "; " : "", kinds[i].list->count,
                     kinds[i].what, kinds[i].list->text, kinds[i].list->count > 4 ? ", ..." : "");
        length += wrote > 0 ? (size_t)wrote : 0;
    }
    return length ? mla_fail(error, MLA_INVALID, "%s: its tensors do not fit the model: %s", path, text) : MLA_OK;
}

mla_status mla_checkpoint_fits(const mla_checkpoint *checkpoint, const mla_params *params, bool average, mla_error *error) {
    mismatch found = {0};
    mla_status status = compare_section(&found, checkpoint->file, params, average ? "ema." : "", error);
    list_unexpected(&found, checkpoint->file, params);
    return status == MLA_OK ? fail_mismatch(&found, checkpoint->path, error) : status;
}

/* Compares the stored weights, as they lie in the file, with the hash stored beside them. */
static mla_status verify_hash(const mla_checkpoint *checkpoint, const mla_params *params, mla_error *error) {
    const char *stored = mla_safetensors_metadata(checkpoint->file, "dtype");
    const char *dtype = stored ? stored : mla_dtype_name(MLA_F32);
    /* the CRCs, which are four times as fast, have covered the same bytes */
    if (checkpoint->weights_only && mla_safetensors_metadata(checkpoint->file, "crc32")) return MLA_OK;
    uint64_t hash = MLA_HASH_START;
    char text[17];
    if (!strcmp(checkpoint->weight_hash, MLA_NO_HASH)) return MLA_OK;
    for (int i = 0; i < params->entries; i++) {
        const mla_file_tensor *tensor = mla_safetensors_find(checkpoint->file, params->entry[i].name);
        if (!tensor || strcmp(mla_dtype_name(tensor->dtype), dtype) != 0)
            return MLA_OK; /* converted by another tool: the hash is that of the weights before */
        hash = mla_hash_bytes(hash, tensor->data, tensor->bytes);
        mla_safetensors_release(checkpoint->file, tensor);
    }
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (strcmp(text, checkpoint->weight_hash) != 0)
        return mla_fail(error, MLA_INVALID,
                        "%s: the weights have the hash %s, but %s is stored with them: the file was "
                        "changed or is damaged",
                        checkpoint->path, text, checkpoint->weight_hash);
    return MLA_OK;
}

/* One number that is none would spoil every result, without a word. */
static mla_status check_finite(const mla_checkpoint *checkpoint, const mla_params *params, const char *prefix,
                               mla_error *error) {
    for (int i = 0; i < params->entries; i++) {
        char *name = tensor_name(prefix, params->entry[i].name);
        if (!name) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", checkpoint->path);
        const mla_file_tensor *tensor = mla_safetensors_find(checkpoint->file, name);
        free(name);
        const mla_status status = mla_tensor_check_finite(checkpoint->path, tensor, error);
        if (status != MLA_OK) return status;
        mla_safetensors_release(checkpoint->file, tensor);
    }
    return MLA_OK;
}

/* Everything that can be wrong, before a value is copied. */
static mla_status verify_tensors(const mla_checkpoint *checkpoint, const mla_params *params,
                                 const section sections[SECTIONS], mla_error *error) {
    mismatch found = {0};
    for (int s = 0; s < SECTIONS; s++) {
        if (!sections[s].buffer) continue;
        mla_status status = compare_section(&found, checkpoint->file, params, sections[s].prefix, error);
        if (status != MLA_OK) return status;
    }
    list_unexpected(&found, checkpoint->file, params);
    mla_status status = fail_mismatch(&found, checkpoint->path, error);
    for (size_t i = 0; status == MLA_OK && i < mla_safetensors_count(checkpoint->file); i++) {
        const mla_file_tensor *tensor = mla_safetensors_at(checkpoint->file, i);
        if (tensor->dtype > MLA_BF16)
            status = mla_fail(error, MLA_INVALID, "%s: tensor \"%.200s\" is of type %s, expected F32", checkpoint->path,
                              tensor->name, mla_dtype_name(tensor->dtype));
    }
    /* the moments may overflow without harm to the weights: a run must be able to go on with them */
    if (status == MLA_OK && sections[VALUE].buffer) status = check_finite(checkpoint, params, sections[VALUE].prefix, error);
    if (status == MLA_OK && sections[AVERAGE].buffer)
        status = check_finite(checkpoint, params, sections[AVERAGE].prefix, error);
    return status == MLA_OK ? verify_hash(checkpoint, params, error) : status;
}

/* One parameter of a section, its bytes of the file given up at once. */
static mla_status load_param(const section *from, const mla_param *param, const mla_checkpoint *checkpoint,
                             mla_error *error) {
    char *name = tensor_name(from->prefix, param->name);
    if (!name) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", checkpoint->path);
    const mla_status status =
        mla_safetensors_floats(from->buffer + param->offset, param->count, checkpoint->file, name, error);
    if (status == MLA_OK) mla_safetensors_release(checkpoint->file, mla_safetensors_find(checkpoint->file, name));
    free(name);
    return status;
}

mla_status mla_checkpoint_load(const mla_checkpoint *checkpoint, const mla_params *params, const mla_run_buffers *buffers,
                               mla_error *error) {
    section sections[SECTIONS];
    MLA_REQUIRE(!checkpoint->weights_only || (!buffers->moment1 && !buffers->moment2),
                "%s was opened for its weights alone, and its moments are asked for", checkpoint->path);
    list_sections(sections, buffers, checkpoint->config.optim.name);
    mla_status status = verify_tensors(checkpoint, params, sections, error);
    for (int s = 0; s < SECTIONS && status == MLA_OK; s++) {
        for (int i = 0; i < params->entries && sections[s].buffer && status == MLA_OK; i++)
            status = load_param(&sections[s], &params->entry[i], checkpoint, error);
    }
    return status;
}

/* ---- finding */

char *mla_checkpoint_path(const char *run_folder, uint64_t step) {
    char *path = NULL;
    return asprintf(&path, "%s/checkpoints/step-%08" PRIu64 ".safetensors", run_folder, step) < 0 ? NULL : path;
}

bool mla_checkpoint_step(uint64_t *step, const char *name) {
    char *end;
    if (!starts_with(name, "step-") || strspn(name + 5, "0123456789") < 8) return false;
    errno = 0;
    *step = strtoull(name + 5, &end, 10);
    return errno == 0 && strcmp(end, ".safetensors") == 0;
}

static int newer_first(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? 1 : a > b ? -1 : 0;
}

mla_status mla_checkpoint_list(uint64_t **steps, size_t *count, const char *run_folder, mla_error *error) {
    *steps = NULL;
    *count = 0;
    char *folder = mla_path_join(run_folder, "checkpoints");
    if (!folder) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", run_folder);
    DIR *entries = opendir(folder);
    int code = errno;
    mla_status status = entries || code == ENOENT || code == ENOTDIR
                            ? MLA_OK
                            : mla_fail(error, MLA_IO, "%s: could not be read: %s", folder, strerror(code));
    free(folder);
    for (struct dirent *entry; entries && status == MLA_OK && (entry = readdir(entries));) {
        uint64_t step;
        if (!mla_checkpoint_step(&step, entry->d_name)) continue;
        uint64_t *larger = realloc(*steps, (*count + 1) * sizeof **steps);
        if (!larger) {
            status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", run_folder);
            break;
        }
        *steps = larger;
        (*steps)[(*count)++] = step;
    }
    if (entries) closedir(entries);
    if (status == MLA_OK && *count) qsort(*steps, *count, sizeof **steps, newer_first);
    if (status != MLA_OK) {
        free(*steps);
        *steps = NULL;
        *count = 0;
    }
    return status;
}

mla_status mla_checkpoint_newest(char **path, const char *run_folder, mla_error *error) {
    uint64_t *steps;
    size_t count;
    *path = NULL;
    mla_status status = mla_checkpoint_list(&steps, &count, run_folder, error);
    for (size_t i = 0; i < count && status == MLA_OK && !*path; i++) {
        mla_checkpoint checkpoint;
        mla_error why = {0};
        char *candidate = mla_checkpoint_path(run_folder, steps[i]);
        if (!candidate) {
            status = mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", run_folder);
        } else if (mla_checkpoint_open(&checkpoint, candidate, NULL, 0, &why) == MLA_OK) {
            mla_checkpoint_close(&checkpoint);
            *path = candidate;
        } else {
            fprintf(stderr, "mirrorla: passed over: %s\n", why.text);
            free(candidate);
        }
    }
    free(steps);
    if (status != MLA_OK || *path) return status;
    if (count)
        return mla_fail(error, MLA_INVALID, "%s: none of the %zu files checkpoints/step-*.safetensors can be read",
                        run_folder, count);
    return mla_fail(error, MLA_INVALID,
                    "%s: nothing to resume from: expected %s/checkpoints/step-00000000.safetensors "
                    "(any number), found none",
                    run_folder, run_folder);
}
