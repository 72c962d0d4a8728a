#include "train/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Puts '.' where the locale has its own decimal point, which may be several bytes long. */
static void plain_point(char *text) {
    const char *point = localeconv()->decimal_point;
    char *found = strstr(text, point);
    if (!found || strcmp(point, ".") == 0) return;
    size_t length = strlen(point);
    *found = '.';
    memmove(found + 1, found + length, strlen(found + length) + 1);
}

void mla_number_shortest(char out[MLA_NUMBER_BYTES], double value) {
    /* Whole numbers stay whole: 1000000, not 1e+06. */
    bool whole = fabs(value) < 1e15 && value == floor(value);
    for (int digits = whole ? 15 : 1; digits <= 17; digits++) {
        snprintf(out, MLA_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(out, NULL) == value) /* the same locale wrote it */
            break;
    }
    plain_point(out);
}

void mla_number_text(char out[MLA_NUMBER_BYTES], double value) {
    if (!isfinite(value)) {
        strcpy(out, "null");
        return;
    }
    mla_number_shortest(out, value);
    if (!strpbrk(out, ".e")) strcat(out, ".0");
}

void mla_number_digits(char out[MLA_NUMBER_BYTES], double value, int digits) {
    if (!isfinite(value)) {
        strcpy(out, "null");
        return;
    }
    snprintf(out, MLA_NUMBER_BYTES, "%.*g", digits, value);
    plain_point(out);
}

void mla_number_hex(char out[MLA_NUMBER_BYTES], double value) {
    if (!isfinite(value)) {
        strcpy(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    int exponent;
    double fraction = frexp(fabs(value), &exponent); /* in [0.5, 1), or 0 */
    snprintf(out, MLA_NUMBER_BYTES, "%s0x%" PRIx64 "p%d", signbit(value) ? "-" : "", (uint64_t)ldexp(fraction, 53),
             fraction > 0 ? exponent - 53 : 0);
}

bool mla_number_read(double *value, const char *text) {
    char *end;
    if (!*text || isspace((unsigned char)*text)) return false;
    *value = strtod(text, &end);
    return *end == 0;
}

void mla_text_escape(char *out, size_t out_bytes, const char *text) {
    for (size_t left = strlen(text); left > 0;) {
        char escaped[8];
        unsigned byte = (unsigned char)*text;
        size_t n = mla_utf8_length(text, left);
        bool plain = n > 1 || (n == 1 && byte >= ' ' && byte != 0x7f);
        size_t bytes = plain ? n : (size_t)snprintf(escaped, sizeof escaped, "\\x%02x", byte);
        if (bytes >= out_bytes) break;
        memcpy(out, plain ? text : escaped, bytes);
        out += bytes;
        out_bytes -= bytes;
        text += plain ? n : 1;
        left -= plain ? n : 1;
    }
    *out = 0;
}
