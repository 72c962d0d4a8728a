#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *meaning;
    int exit_code;
} statuses[] = {
#define MLA_STATUS_ROW(name, exit_code, meaning) [name] = {meaning, exit_code},
    MLA_STATUS_LIST(MLA_STATUS_ROW)
#undef MLA_STATUS_ROW
};

enum { STATUS_COUNT = sizeof statuses / sizeof statuses[0] };

/* The sentence goes to terminals and to logs with one record a line: no control characters, and no half of a
 * UTF-8 character where it was cut. */
static void tidy(char *text) {
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) text[i] = ' ';
    size_t start = length; /* of the last character */
    while (start > 0 && length - start < 4 && ((unsigned char)text[start - 1] & 0xc0) == 0x80) start--;
    if (start == 0 || (unsigned char)text[start - 1] < 0xc0) return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t due = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (length - start < due) text[start - 1] = '\0';
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
