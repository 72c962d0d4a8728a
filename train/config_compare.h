/* What differs between two configs, key by key. */
#ifndef MLA_TRAIN_CONFIG_COMPARE_H
#define MLA_TRAIN_CONFIG_COMPARE_H

#include "train/config.h"

/* Calls `each` for every key whose values differ, with both as they would stand in a file. */
void mla_config_compare(const mla_config *a, const mla_config *b,
                        void (*each)(void *context, const char *key, const char *a_text, const char *b_text), void *context);

#endif
