/* Text that is UTF-8, and text that is not. */
#ifndef MLA_CORE_UTF8_H
#define MLA_CORE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes (1 to 4) of the UTF-8 character at `text`, of which `left` > 0 bytes are there; 0 if it is none (also for
 * surrogates and longer forms than needed). */
size_t mla_utf8_length(const char *text, size_t left);
bool mla_is_utf8(const char *text);

#endif
