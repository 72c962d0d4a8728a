#include "core/utf8.h"

#include <string.h>

size_t mla_utf8_length(const char *text, size_t left) {
    static const unsigned smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    size_t n = *p < 0x80 ? 1 : *p < 0xc0 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf8 ? 4 : 0;
    if (n <= 1 || n > left) return n <= 1 ? n : 0;
    unsigned code = *p & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < smallest[n] || code > 0x10ffff || surrogate ? 0 : n;
}

bool mla_is_utf8(const char *text) {
    size_t left = strlen(text);
    for (size_t n; left > 0; text += n, left -= n) {
        n = mla_utf8_length(text, left);
        if (n == 0) return false;
    }
    return true;
}
