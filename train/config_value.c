/* One value, typed by its key.
 *
 * YAML's own rules for plain words are not used: 1e-5 is a word to YAML 1.1, `no` a switch and 010 eight.  Here the
 * key says what is due, a few spellings of it are accepted, and any other is refused with what to write. */
#include "train/config_schema.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 128 };

typedef struct value_due { /* what a conversion needs for its error sentence */
    const mla_config_key *key;
    int entry; /* of a list, from 1; 0 = not in a list */
    mla_error *error;
} value_due;

static bool is(const mla_config_item *item, const char *word) {
    return item->length == strlen(word) && memcmp(item->text, word, item->length) == 0;
}

static bool is_any(const mla_config_item *item, const char *const *words) {
    for (; *words; words++)
        if (is(item, *words)) return true;
    return false;
}

bool mla_config_is_null(const mla_config_item *item) {
    static const char *const words[] = {"null", "Null", "NULL", "None", "~", NULL};
    return item->scalar && item->plain && is_any(item, words);
}

void mla_config_show(const char *text, size_t length, char out[MLA_CONFIG_SHOW_BYTES]) {
    enum { ROOM = MLA_CONFIG_SHOW_BYTES - 4 };
    bool cut = length > ROOM;
    size_t n = cut ? ROOM : length;
    while (cut && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    for (size_t i = 0; i < n; i++) out[i] = text[i] ? text[i] : ' ';
    snprintf(out + n, MLA_CONFIG_SHOW_BYTES - n, "%s", cut ? "..." : "");
}

/* "expected ..., found ...; hint" */
static mla_status refuse(const value_due *due, const mla_config_item *item, const char *hint) {
    char allowed[MLA_CONFIG_ALLOWED_BYTES], text[MLA_CONFIG_SHOW_BYTES], entry[32] = "";
    mla_config_allowed(due->key, allowed);
    if (due->entry) snprintf(entry, sizeof entry, " as entry %d", due->entry);
    if (!item->scalar) return mla_fail(due->error, MLA_INVALID, "expected %s, found a list or section%s", allowed, entry);
    mla_config_show(item->text, item->length, text);
    return mla_fail(due->error, MLA_INVALID, "expected %s, found %s\"%s\"%s%s%s", allowed,
                    item->plain ? "" : "the quoted text ", text, entry, *hint ? "; " : "", hint);
}

static bool digit(char c) { return c >= '0' && c <= '9'; }

/* [+-] digits [. digits] [e [+-] digits], with a digit before or after the point. */
static bool number_shaped(const char *p, bool *whole) {
    int before = 0, after = 0, exponent = 0;
    *whole = true;
    p += *p == '+' || *p == '-';
    for (; digit(*p); p++) before++;
    if (*p == '.') {
        *whole = false;
        for (p++; digit(*p); p++) after++;
    }
    if (before + after == 0) return false;
    if (*p == 'e' || *p == 'E') {
        *whole = false;
        p++;
        p += *p == '+' || *p == '-';
        for (; digit(*p); p++) exponent++;
        if (exponent == 0) return false;
    }
    return *p == '\0';
}

static bool leading_zero(const char *p) {
    p += *p == '+' || *p == '-';
    return p[0] == '0' && digit(p[1]);
}

static const char *number_hint(const char *text) {
    static const char *const endless[] = {".inf", "+.inf", "-.inf", ".Inf", "-.Inf",    ".INF", "-.INF", ".nan",
                                          ".NaN", ".NAN",  "inf",   "-inf", "Infinity", "nan",  "NaN",   NULL};
    for (int i = 0; endless[i]; i++)
        if (strcmp(text, endless[i]) == 0) return "it must be finite";
    if (text[0] == '(' || text[0] == '[') return "a single number is due";
    if (strchr(text, '_')) return "write numbers without underscores";
    if (strchr(text, ',')) return "write numbers without commas, with a decimal point";
    if (strchr(text, '%')) return "write a fraction, 0.5 for 50 %";
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X' || text[1] == 'o' || text[1] == 'b'))
        return "write numbers in decimal";
    return "";
}

/* The checks all numbers share: unquoted, shaped like a number, no leading zero (octal to some readers). */
static mla_status number_text(const mla_config_item *item, const value_due *due, char out[NUMBER_BYTES], bool *whole) {
    if (!item->scalar) return refuse(due, item, "");
    if (!item->plain) return refuse(due, item, "write it without quotes");
    if (item->length >= NUMBER_BYTES || memchr(item->text, '\0', item->length)) return refuse(due, item, "");
    memcpy(out, item->text, item->length);
    out[item->length] = '\0';
    if (!number_shaped(out, whole)) return refuse(due, item, number_hint(out));
    if (leading_zero(out)) return refuse(due, item, "write it without the leading zero");
    return MLA_OK;
}

static mla_status read_double(double *out, const mla_config_item *item, const value_due *due) {
    char text[NUMBER_BYTES];
    bool whole = false;
    mla_status status = number_text(item, due, text, &whole);
    if (status != MLA_OK) return status;
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    if (!isfinite(value)) return refuse(due, item, "it is too large for a number here");
    if (value == 0 && strcspn(text, "123456789") < strcspn(text, "eE"))
        return refuse(due, item, "it is too small to differ from 0; write 0");
    const mla_config_key *key = due->key;
    if (value < key->low || value > key->high || (key->low_open && value == key->low) ||
        (key->high_open && value == key->high))
        return refuse(due, item, "it is out of range");
    *out = value;
    return MLA_OK;
}

static mla_status whole_text(const mla_config_item *item, const value_due *due, char out[NUMBER_BYTES]) {
    bool whole = false;
    mla_status status = number_text(item, due, out, &whole);
    if (status == MLA_OK && !whole) return refuse(due, item, "write a whole number without decimal point or exponent");
    return status;
}

static mla_status read_int(int *out, const mla_config_item *item, const value_due *due) {
    char text[NUMBER_BYTES];
    mla_status status = whole_text(item, due, text);
    if (status != MLA_OK) return status;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno || (double)value < due->key->low || (double)value > due->key->high)
        return refuse(due, item, "it is out of range");
    *out = (int)value;
    return MLA_OK;
}

static mla_status read_u64(uint64_t *out, const mla_config_item *item, const value_due *due) {
    char text[NUMBER_BYTES];
    mla_status status = whole_text(item, due, text);
    if (status != MLA_OK) return status;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || text[0] == '-') /* strtoull would wrap it around */
        return refuse(due, item, "it is out of range");
    *out = value;
    return MLA_OK;
}

static mla_status read_bool(bool *out, const mla_config_item *item, const value_due *due) {
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", NULL};
    bool known = is_any(item, yes) || is_any(item, no);
    if (!item->plain) return refuse(due, item, known ? "write it without quotes" : "");
    if (!known) return refuse(due, item, "");
    *out = is_any(item, yes);
    return MLA_OK;
}

static mla_status read_enum(int *out, const mla_config_item *item, const value_due *due) {
    if (!item->scalar) return refuse(due, item, "");
    for (int i = 0; due->key->names[i]; i++)
        if (is(item, due->key->names[i])) {
            *out = i;
            return MLA_OK;
        }
    char text[MLA_CONFIG_SHOW_BYTES], hint[64] = "";
    mla_config_show(item->text, item->length, text);
    const char *near = mla_config_nearest(text, due->key->names);
    if (near) snprintf(hint, sizeof hint, "did you mean %s?", near);
    return refuse(due, item, hint);
}

static mla_status read_text(char out[MLA_PATH_BYTES], const mla_config_item *item, const value_due *due) {
    if (item->length == 0) return refuse(due, item, "it is empty");
    if (memchr(item->text, '\0', item->length)) return refuse(due, item, "it contains a NUL character");
    if (item->length >= MLA_PATH_BYTES) return refuse(due, item, "it is longer than 4095 bytes");
    memset(out, 0, MLA_PATH_BYTES); /* no rest of an earlier value: equal configs are equal bytes */
    memcpy(out, item->text, item->length);
    return MLA_OK;
}

/* (0.9, 0.999) and, in the table of defaults, [0.9, 0.999]: a list written as one word. */
static bool split(mla_config_value *list, const mla_config_item *item) {
    const char *p = item->text, *end = p + item->length;
    if (!item->plain || item->length < 2 || !((*p == '(' && end[-1] == ')') || (*p == '[' && end[-1] == ']'))) return false;
    *list = (mla_config_value){.list = true};
    for (p++, end--; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        const char *from = p, *to = stop;
        while (from < to && *from == ' ') from++;
        while (to > from && to[-1] == ' ') to--;
        if (from == to && !comma && list->count) /* as in (64,) */
            break;
        if (list->count < MLA_CONFIG_LIST_MAX)
            list->item[list->count] = (mla_config_item){from, (size_t)(to - from), true, true};
        list->count++;
        p = comma ? stop + 1 : end;
    }
    return true;
}

static mla_status set_list(char *field, const mla_config_key *key, const mla_config_value *value, int *count,
                           mla_error *error) {
    int least = key->type == MLA_KEY_DOUBLES ? key->most : 1;
    value_due due = {key, 0, error};
    if (value->count < least || value->count > key->most) {
        char allowed[MLA_CONFIG_ALLOWED_BYTES];
        mla_config_allowed(key, allowed);
        return mla_fail(error, MLA_INVALID, "expected %s, found a list of %d", allowed, value->count);
    }
    int ints[MLA_CONFIG_LIST_MAX] = {0}; /* of enums, too */
    double doubles[MLA_CONFIG_LIST_MAX] = {0};
    for (int i = 0; i < value->count; i++) {
        due.entry = i + 1;
        mla_status status = key->type == MLA_KEY_INTS    ? read_int(&ints[i], &value->item[i], &due)
                            : key->type == MLA_KEY_ENUMS ? read_enum(&ints[i], &value->item[i], &due)
                                                         : read_double(&doubles[i], &value->item[i], &due);
        if (status != MLA_OK) return status;
    }
    if (key->type != MLA_KEY_DOUBLES)
        memcpy(field, ints, (size_t)key->most * sizeof(int));
    else
        memcpy(field, doubles, (size_t)key->most * sizeof(double));
    *count = value->count;
    return MLA_OK;
}

static mla_status set_scalar(char *field, const mla_config_key *key, const mla_config_item *item, mla_error *error) {
    value_due due = {key, 0, error};
    void *place = field;
    switch (key->type) {
    case MLA_KEY_BOOL: return read_bool(place, item, &due);
    case MLA_KEY_INT: return read_int(place, item, &due);
    case MLA_KEY_U64: return read_u64(place, item, &due);
    case MLA_KEY_DOUBLE: return read_double(place, item, &due);
    case MLA_KEY_ENUM: return read_enum(place, item, &due);
    case MLA_KEY_TEXT: return read_text(place, item, &due);
    case MLA_KEY_ENUMS:
    case MLA_KEY_INTS:
    case MLA_KEY_DOUBLES: break;
    }
    return refuse(&due, item,
                  item->length && item->text[0] == '(' ? "write a list as [1, 2]"
                                                       : "write a list in brackets, also of one entry");
}

static void set_auto(mla_config *config, const mla_config_key *key) {
    char *field = (char *)config + key->offset;
    if (key->type == MLA_KEY_TEXT) {
        memset(field, 0, MLA_PATH_BYTES);
        memcpy(field, "auto", 5);
    } else if (key->type == MLA_KEY_INT) {
        memset(field, 0, sizeof(int));
    } else {
        memset(field, 0, (size_t)key->most * sizeof(double));
        *((bool *)config + key->auto_offset) = true;
    }
}

mla_status mla_config_set(mla_config *config, const mla_config_key *key, const mla_config_value *value, int *count,
                          mla_error *error) {
    char *field = (char *)config + key->offset, allowed[MLA_CONFIG_ALLOWED_BYTES];
    bool due_list = key->type == MLA_KEY_ENUMS || key->type == MLA_KEY_INTS || key->type == MLA_KEY_DOUBLES;
    const mla_config_item *item = &value->item[0];
    mla_config_allowed(key, allowed);
    if (value->map) return mla_fail(error, MLA_INVALID, "expected %s, found a section", allowed);
    if (value->list && !due_list) return mla_fail(error, MLA_INVALID, "expected %s, found a list", allowed);
    mla_config_value words;
    if (due_list && !value->list && split(&words, item)) value = &words;
    if (!value->list && item->plain && item->length == 0)
        return mla_fail(error, MLA_INVALID, "expected %s, found no value", allowed);
    bool null = !value->list && mla_config_is_null(item);
    if (null && !key->automatic && !key->null_is_zero)
        return mla_fail(error, MLA_INVALID, "expected %s, found null; this key always has a value", allowed);
    if (null && key->null_is_zero) {
        memset(field, 0, (due_list ? (size_t)key->most : 1) * sizeof(double));
        return MLA_OK;
    }
    if (null || (key->automatic && !value->list && is(item, "auto"))) {
        set_auto(config, key);
        return MLA_OK;
    }
    bool several = value->list || key->type == MLA_KEY_ENUMS; /* one name is a list of one */
    mla_status status = several ? set_list(field, key, value, count, error) : set_scalar(field, key, item, error);
    if (status == MLA_OK && key->automatic && due_list) *((bool *)config + key->auto_offset) = false;
    return status;
}

void mla_config_defaults_counted(mla_config *config, int counts[MLA_CONFIG_KEYS_MAX]) {
    memset(config, 0, sizeof *config);
    memset(counts, 0, MLA_CONFIG_KEYS_MAX * sizeof *counts);
    for (size_t i = 0; i < mla_config_key_count; i++) {
        const mla_config_key *key = &mla_config_keys[i];
        mla_config_value value = {.count = 1, .item = {{key->fallback, strlen(key->fallback), true, true}}};
        mla_error error = {0};
        MLA_REQUIRE(mla_config_set(config, key, &value, &counts[i], &error) == MLA_OK, "default of %s: %s", key->name,
                    error.text);
    }
}
