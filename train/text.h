/* Numbers as text that mean the same in every locale, and text that is UTF-8. */
#ifndef MLA_TRAIN_TEXT_H
#define MLA_TRAIN_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/utf8.h"

enum { MLA_NUMBER_BYTES = 40 };

/* The shortest decimal that reads back to the same double: "3", "0.1", "1e-05". */
void mla_number_shortest(char out[MLA_NUMBER_BYTES], double value);

/* The same, but always with a point or an exponent ("3.0", "1e-05"):
 * readers take it for a fraction.  JSON has no infinities and no NaN: those become "null". */
void mla_number_text(char out[MLA_NUMBER_BYTES], double value);

/* `digits` significant digits at most, for files that people look at; not finite: "null". */
void mla_number_digits(char out[MLA_NUMBER_BYTES], double value, int digits);

/* A C99 hexadecimal constant with a whole mantissa, e.g. "0x13333333333333p-52": exact, and without the radix
 * character that a locale could change.  Not finite: "inf", "-inf", "nan". */
void mla_number_hex(char out[MLA_NUMBER_BYTES], double value);

/* Reads what mla_number_hex wrote; false when the text is anything else than one number. */
bool mla_number_read(double *value, const char *text);

/* Makes any bytes fit for a message: those that are not UTF-8, and control characters, become \xNN.  What does not fit
 * into `out_bytes` is left out, whole characters at a time. */
void mla_text_escape(char *out, size_t out_bytes, const char *text);

#endif
