#include "train/adapt.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/image.h"

enum { NAME_BYTES = 512, SHAPE_BYTES = 128 };

/* How a parameter gets its values. */
typedef enum how { FRESH, COPIED, INTERPOLATED, BY_CLASS } how;

typedef struct placement {
    const mla_file_tensor *from; /* NULL: FRESH */
    how how;
    size_t prefix; /* INTERPOLATED: rows before those of the grid */
} placement;

typedef struct adaptation {
    mla_params *params;
    const mla_class_info *classes;
    const mla_source *source;
    const mla_adapt_rules *rules;
    placement *place;     /* (entries) */
    int *row;             /* (classes) head row of each class in the source; NULL unless BY_CLASS */
    size_t prefix_tokens; /* class, distillation and register tokens of the source */
    size_t missing, unexpected, reshaped;
    mla_adapted result;
} adaptation;

/* ---- names and shapes */

static bool matches(const mla_cli_list *patterns, const char *name, bool *used) {
    bool found = false;
    for (size_t i = 0; i < patterns->count; i++)
        if (fnmatch(patterns->item[i], name, 0) == 0) found = used[i] = true;
    return found;
}

static const char *shape_text(char out[SHAPE_BYTES], int ndim, const size_t *shape) {
    size_t used = (size_t)snprintf(out, SHAPE_BYTES, "(");
    for (int i = 0; i < ndim && used < SHAPE_BYTES - 24; i++)
        used += (size_t)snprintf(out + used, SHAPE_BYTES - used, "%s%zu", i ? ", " : "", shape[i]);
    snprintf(out + used, SHAPE_BYTES - used, ")");
    return out;
}

/* The source's name under the renaming rules; the first that fits counts. */
static void rename_tensor(char out[NAME_BYTES], const adaptation *a, const char *name, bool *used) {
    for (size_t i = 0; i < a->rules->rename.count; i++) {
        const char *rule = a->rules->rename.item[i], *equals = strchr(rule, '=');
        const size_t length = (size_t)(equals - rule);
        if (strncmp(name, rule, length) != 0) continue;
        used[i] = true;
        snprintf(out, NAME_BYTES, "%s%s", equals + 1, name + length);
        return;
    }
    snprintf(out, NAME_BYTES, "%s", name);
}

static bool ends_with(const char *text, const char *ending) {
    const size_t length = strlen(text), end = strlen(ending);
    return length >= end && strcmp(text + length - end, ending) == 0;
}

/* Tokens beside those of the grid, as timm names them: their rows come first in pos_embed. */
static size_t extra_tokens(const mla_file_tensor *tensor) {
    static const char *const names[] = {"cls_token", "dist_token", "reg_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(tensor->name, names[i]) == 0 && tensor->ndim == 3) return tensor->shape[1];
    return 0;
}

/* Side of a square of `count` places, 0 when there is none. */
static int square_side(size_t count) {
    const int side = (int)lround(sqrt((double)count));
    return count > 0 && count <= INT32_MAX && (size_t)side * (size_t)side == count ? side : 0;
}

static bool same_shape(const mla_param *param, const mla_file_tensor *tensor) {
    return param->ndim == tensor->ndim &&
           memcmp(param->shape, tensor->shape, (size_t)param->ndim * sizeof *param->shape) == 0;
}

/* ---- what goes where */

static bool place_positions(placement *place, const adaptation *a, const mla_param *param, const mla_file_tensor *tensor) {
    if (!ends_with(param->name, "pos_embed") || tensor->ndim != 3 || tensor->shape[0] != 1 ||
        tensor->shape[2] != param->shape[2])
        return false;
    const size_t rows = tensor->shape[1], extra = a->prefix_tokens;
    /* some models give those tokens no position (timm's no_embed_class) */
    if (rows > extra && square_side(rows - extra))
        *place = (placement){tensor, INTERPOLATED, extra};
    else if (square_side(rows))
        *place = (placement){tensor, INTERPOLATED, 0};
    else
        return false;
    return true;
}

/* Rows of the source's head for the classes here; false when it has none for one of them. */
static bool find_rows(adaptation *a) {
    const mla_class_info *from = &a->source->loaded.checkpoint.classes, *to = a->classes;
    a->row = malloc((size_t)to->count * sizeof *a->row);
    for (int c = 0; a->row && c < to->count; c++) {
        a->row[c] = c < from->count && strcmp(to->names[c], from->names[c]) == 0 ? c : -1;
        for (int i = 0; i < from->count && a->row[c] < 0; i++)
            if (strcmp(to->names[c], from->names[i]) == 0) a->row[c] = i;
        if (a->row[c] < 0) return false;
    }
    return a->row != NULL;
}

/* head.weight and head.bias; false: the number of classes is not what is wrong with the shape. */
static bool place_head(placement *place, adaptation *a, const mla_param *param, const mla_file_tensor *tensor) {
    const bool named = a->source->loaded.model != NULL;
    if (tensor->ndim != param->ndim || (param->ndim == 2 && tensor->shape[1] != param->shape[1])) return false;
    if (named && !a->row && !find_rows(a)) {
        free(a->row);
        a->row = NULL;
        a->result.new_head = true;
    }
    if (!named && tensor->shape[0] != param->shape[0]) a->result.new_head = true;
    *place = (placement){tensor, named ? BY_CLASS : COPIED, 0};
    return true;
}

static void place_tensor(adaptation *a, const mla_file_tensor *tensor, const char *name) {
    char found[SHAPE_BYTES], expected[SHAPE_BYTES];
    const int i = mla_params_find(a->params, name);
    if (i < 0) {
        fprintf(stderr, "unexpected: %s %s\n", name, shape_text(found, tensor->ndim, tensor->shape));
        a->unexpected++;
        return;
    }
    const mla_param *param = &a->params->entry[i];
    const bool head = !strcmp(name, "head.weight") || !strcmp(name, "head.bias");
    if (head ? place_head(&a->place[i], a, param, tensor) : same_shape(param, tensor)) {
        if (!head) a->place[i] = (placement){tensor, COPIED, 0};
        return;
    }
    if (place_positions(&a->place[i], a, param, tensor)) return;
    fprintf(stderr, "of another shape: %s is %s, expected %s\n", name, shape_text(found, tensor->ndim, tensor->shape),
            shape_text(expected, param->ndim, param->shape));
    a->place[i].from = tensor; /* not missing too */
    a->reshaped++;
}

/* A rule that matches nothing is a mistyped one. */
static mla_status check_used(const mla_cli_list *rules, const bool *used, const char *option, const char *what,
                             const char *path, mla_error *error) {
    for (size_t i = 0; i < rules->count; i++)
        if (!used[i]) return mla_fail(error, MLA_INVALID, "%s: %s: '%s' matches %s", path, option, rules->item[i], what);
    return MLA_OK;
}

static mla_status place_all(adaptation *a, bool *dropped, bool *renamed, mla_error *error) {
    const mla_source *s = a->source;
    for (size_t t = 0; t < s->count; t++) a->prefix_tokens += extra_tokens(&s->tensor[t]);
    for (size_t t = 0; t < s->count; t++) {
        char name[NAME_BYTES];
        const mla_file_tensor *tensor = &s->tensor[t];
        if (matches(&a->rules->drop, tensor->name, dropped)) {
            a->result.dropped++;
            continue;
        }
        rename_tensor(name, a, tensor->name, renamed);
        const int i = mla_params_find(a->params, name);
        if (i >= 0 && a->place[i].from)
            return mla_fail(error, MLA_INVALID, "%s: two tensors would become %s: %.200s and %.200s", s->path, name,
                            a->place[i].from->name, tensor->name);
        if (i >= 0 && !mla_dtype_is_float(tensor->dtype))
            return mla_fail(error, MLA_INVALID, "%s: tensor \"%.200s\" is of type %s, expected F32, F64, F16 or BF16",
                            s->path, tensor->name, mla_dtype_name(tensor->dtype));
        place_tensor(a, tensor, name);
    }
    mla_status status = check_used(&a->rules->drop, dropped, "--drop", "no tensor of the file", s->path, error);
    if (status == MLA_OK)
        status = check_used(&a->rules->rename, renamed, "--rename", "no tensor of the file", s->path, error);
    return status;
}

static mla_status list_missing(adaptation *a, bool *allowed, mla_error *error) {
    for (int i = 0; i < a->params->entries; i++) {
        char shape[SHAPE_BYTES];
        const mla_param *param = &a->params->entry[i];
        const bool may = matches(&a->rules->allow_missing, param->name, allowed);
        if (a->place[i].from) continue;
        a->result.fresh++;
        if (may) continue;
        fprintf(stderr, "missing: %s %s\n", param->name, shape_text(shape, param->ndim, param->shape));
        a->missing++;
    }
    return check_used(&a->rules->allow_missing, allowed, "--allow-missing", "no parameter of the model", a->source->path,
                      error);
}

/* What people most often run into, said in words. */
static const char *advice(const adaptation *a) {
    const mla_source *s = a->source;
    const char *folded = s->loaded.model ? mla_safetensors_metadata(s->loaded.checkpoint.file, "folded") : NULL;
    if (folded && a->missing)
        return "; the file was exported with --fuse, its own config has mirror.reflections or mirror.cross_head at 0";
    if (a->prefix_tokens)
        return "; this project's models have no class token: their mean over all tokens is normalised (fc_norm) and "
               "classified, so such weights can only start another training (--drop cls_token, --rename norm.=fc_norm.)";
    return "; `mirrorla import` takes --allow-missing NAME (keeps a parameter's initial values), --drop NAME (leaves a "
           "tensor "
           "out) and --rename FROM=TO";
}

static mla_status refuse_differences(const adaptation *a, mla_error *error) {
    if (!a->missing && !a->unexpected && !a->reshaped) return MLA_OK;
    return mla_fail(error, MLA_INVALID,
                    "%s does not fit the model: %zu missing, %zu unexpected, %zu of another shape, as listed above%s",
                    a->source->path, a->missing, a->unexpected, a->reshaped, advice(a));
}

/* ---- taking over */

static mla_status check_values(const adaptation *a, mla_error *error) {
    mla_status status = MLA_OK;
    for (int i = 0; i < a->params->entries && status == MLA_OK; i++)
        if (a->place[i].from) status = mla_tensor_check_finite(a->source->path, a->place[i].from, error);
    return status;
}

mla_status mla_positions_resize(float *out, int side_out, const float *in, int side_in, size_t channels, mla_error *error) {
    const size_t wide = (size_t)side_in, narrow = (size_t)side_out;
    double *weight = malloc(wide * sizeof *weight), *rows = calloc(wide * narrow * channels, sizeof *rows);
    mla_status status = MLA_OK;
    if (!weight || !rows) status = mla_fail(error, MLA_NO_MEMORY, "out of memory for interpolated positions");
    for (int x = 0; status == MLA_OK && x < side_out; x++) {
        int first, count;
        mla_bicubic_window(weight, &first, &count, x, side_in, side_out);
        for (size_t y = 0; y < wide; y++)
            for (int j = 0; j < count; j++)
                for (size_t c = 0; c < channels; c++)
                    rows[(y * narrow + (size_t)x) * channels + c] +=
                        weight[j] * (double)in[(y * wide + (size_t)(first + j)) * channels + c];
    }
    for (int y = 0; status == MLA_OK && y < side_out; y++) {
        int first, count;
        mla_bicubic_window(weight, &first, &count, y, side_in, side_out);
        for (size_t i = 0; i < narrow * channels; i++) {
            double sum = 0;
            for (int j = 0; j < count; j++) sum += weight[j] * rows[(size_t)(first + j) * narrow * channels + i];
            out[(size_t)y * narrow * channels + i] = (float)sum;
        }
    }
    free(weight);
    free(rows);
    return status;
}

static mla_status take_positions(float *out, const mla_param *param, const placement *place, mla_error *error) {
    const mla_file_tensor *from = place->from;
    const size_t rows = from->shape[1] - place->prefix, channels = param->shape[2];
    const int side_in = square_side(rows), side_out = square_side(param->shape[1]);
    float *values = malloc(rows * channels * sizeof *values);
    if (!values) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %s", param->name);
    mla_tensor_widen(values, from, place->prefix * channels, rows * channels);
    mla_status status = MLA_OK;
    if (side_in == side_out)
        memcpy(out, values, param->count * sizeof *out);
    else
        status = mla_positions_resize(out, side_out, values, side_in, channels, error);
    if (status == MLA_OK && side_in != side_out)
        fprintf(stderr, "note: %s: interpolated from %d x %d to %d x %d tokens (bicubic)\n", param->name, side_in, side_in,
                side_out, side_out);
    if (status == MLA_OK && place->prefix)
        fprintf(stderr, "note: %s: the first %zu rows, of the class token and its like, are left out\n", param->name,
                place->prefix);
    free(values);
    return status;
}

static mla_status take(adaptation *a, mla_error *error) {
    mla_status status = MLA_OK;
    for (int i = 0; i < a->params->entries && status == MLA_OK; i++) {
        const mla_param *param = &a->params->entry[i];
        const placement *place = &a->place[i];
        float *out = a->params->value + param->offset;
        if (!place->from) continue;
        if (a->result.new_head && !strncmp(param->name, "head.", 5)) {
            a->result.fresh++;
            continue;
        }
        const size_t columns = param->ndim == 2 ? param->shape[1] : 1;
        switch (place->how) {
        case COPIED: mla_tensor_widen(out, place->from, 0, param->count); break;
        case INTERPOLATED: status = take_positions(out, param, place, error); break;
        case BY_CLASS:
            for (size_t c = 0; c < param->shape[0]; c++)
                mla_tensor_widen(out + c * columns, place->from, (size_t)a->row[c] * columns, columns);
            break;
        case FRESH: break;
        }
        a->result.taken++;
    }
    return status;
}

static void tell_head(const adaptation *a) {
    const int i = mla_params_find(a->params, "head.bias"), classes = a->classes->count;
    const mla_file_tensor *from = i >= 0 ? a->place[i].from : NULL;
    bool moved = false;
    if (!from) return;
    for (int c = 0; a->row && c < classes; c++) moved |= a->row[c] != c;
    if (a->result.new_head)
        fprintf(stderr, "note: head: %zu other classes in %s, %d here: it starts anew\n", from->shape[0], a->source->path,
                classes);
    else if (a->row && (moved || from->shape[0] != (size_t)classes))
        fprintf(stderr, "note: head: the rows of %d of %zu classes are taken by name\n", classes, from->shape[0]);
    else if (!a->row)
        fprintf(stderr, "note: head: %s does not name its classes; its rows are taken for the data set's, in order\n",
                a->source->path);
}

static mla_status adapt(adaptation *a, bool *used, mla_error *error) {
    bool *renamed = used + a->rules->drop.count, *allowed = renamed + a->rules->rename.count;
    mla_status status = place_all(a, used, renamed, error);
    if (status == MLA_OK) status = list_missing(a, allowed, error);
    if (status == MLA_OK) status = refuse_differences(a, error);
    if (status == MLA_OK) status = check_values(a, error);
    if (status == MLA_OK) status = take(a, error);
    if (status == MLA_OK) tell_head(a);
    return status;
}

mla_status mla_adapt(mla_adapted *adapted, mla_params *params, const mla_class_info *classes, const mla_source *source,
                     const mla_adapt_rules *rules, mla_error *error) {
    static const mla_adapt_rules none;
    adaptation a = {.params = params, .classes = classes, .source = source, .rules = rules ? rules : &none};
    const size_t count = a.rules->drop.count + a.rules->rename.count + a.rules->allow_missing.count;
    bool *used = calloc(count + 1, sizeof *used);
    a.place = calloc((size_t)params->entries + 1, sizeof *a.place);
    const mla_status status =
        used && a.place ? adapt(&a, used, error) : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", source->path);
    *adapted = a.result;
    free(used);
    free(a.place);
    free(a.row);
    return status;
}
