#include "train/config_compare.h"

#include <stdlib.h>
#include <string.h>

#include "train/config_schema.h"

static char *value_text(const mla_config *config, const mla_config_key *key) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return NULL;
    mla_config_put_value(out, config, key);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

void mla_config_compare(const mla_config *a, const mla_config *b,
                        void (*each)(void *context, const char *key, const char *a_text, const char *b_text),
                        void *context) {
    for (size_t i = 0; i < mla_config_key_count; i++) {
        char *first = value_text(a, &mla_config_keys[i]), *second = value_text(b, &mla_config_keys[i]);
        if (!first || !second || strcmp(first, second))
            each(context, mla_config_keys[i].name, first ? first : "?", second ? second : "?");
        free(first);
        free(second);
    }
}
