#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/utf8.h"

static const struct {
    const char *meaning;
    int exit_code;
} statuses[] = {
#define MLA_STATUS_ROW(name, exit_code, meaning) [name] = {meaning, exit_code},
    MLA_STATUS_LIST(MLA_STATUS_ROW)
#undef MLA_STATUS_ROW
};

enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0] };

/* Whether these bytes are a character without its end, as a cut leaves it. */
static bool is_cut(const char *text, size_t left) {
    size_t n = 1;
    while (n < left && ((unsigned char)text[n] & 0xc0) == 0x80) n++;
    return (unsigned char)*text >= 0xc0 && n == left && left < 4;
}

/* The sentence goes to terminals and to logs with one record a line, and parts of it come from files: no control
 * characters, nothing but UTF-8, and no half of a character at the end. */
static void tidy(char *text) {
    for (size_t left = strlen(text), length; left > 0; text += length, left -= length) {
        length = mla_utf8_length(text, left);
        if (length == 0) {
            *text = is_cut(text, left) ? '\0' : '?';
            if (!*text) return;
            length = 1;
        }
        if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = ' ';
    }
}

mla_status mla_fail(mla_error *error, mla_status status, const char *format, ...) {
    if (!error) return status;
    char text[MLA_ERROR_BYTES]; /* apart, since an argument may point into error->text */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tidy(text);
    error->status = status;
    memcpy(error->text, text, strlen(text) + 1);
    return status;
}

mla_status mla_fail_context(mla_error *error, const char *format, ...) {
    if (!error) return MLA_INVALID;
    char text[MLA_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s", error->text);
    tidy(text);
    memcpy(error->text, text, strlen(text) + 1);
    return error->status;
}

const char *mla_status_text(mla_status status) {
    return (unsigned)status < STATUS_COUNT ? statuses[status].meaning : "unknown status";
}

int mla_status_exit_code(mla_status status) { return (unsigned)status < STATUS_COUNT ? statuses[status].exit_code : 1; }

_Noreturn void mla_die(const char *file, int line, const char *format, ...) {
    fprintf(stderr, "mirrorla: %s:%d: ", file, line);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}
