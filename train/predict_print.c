#include "train/predict_print.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/text.h"

enum { NAME_BYTES = 4 * MLA_PATH_BYTES };

/* For text alone: control characters could work on a terminal. */
static void print_text(const mla_prediction *p, const mla_class_info *classes, int top, const char *path) {
    char name[NAME_BYTES];
    mla_text_escape(name, sizeof name, path);
    printf("%s\n", name);
    for (int i = 0; i < top; i++) {
        mla_text_escape(name, sizeof name, classes->names[p->order[i]]);
        printf("  %6.2f %%  %s\n", 100 * p->probability[p->order[i]], name);
    }
}

static bool print_json_string(const char *text) {
    json_t *string = json_string(text);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    if (quoted) fputs(quoted, stdout);
    free(quoted);
    json_decref(string);
    return quoted != NULL;
}

static bool print_json(const mla_prediction *p, const mla_class_info *classes, int top, const char *path) {
    fputs("{\"image\": ", stdout);
    bool done = print_json_string(path);
    fputs(", \"top\": [", stdout);
    for (int i = 0; done && i < top; i++) {
        const int k = p->order[i];
        char probability[MLA_NUMBER_BYTES], logit[MLA_NUMBER_BYTES];
        mla_number_text(probability, p->probability[k]);
        mla_number_text(logit, (double)p->logits[k]);
        fputs(i ? ", {\"class\": " : "{\"class\": ", stdout);
        done = print_json_string(classes->names[k]);
        printf(", \"index\": %d, \"probability\": %s, \"logit\": %s}", k, probability, logit);
    }
    fputs("]}\n", stdout);
    return done;
}

static void print_csv_field(const char *text) {
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_csv(const mla_prediction *p, const mla_class_info *classes, int top, const char *path) {
    for (int i = 0; i < top; i++) {
        const int k = p->order[i];
        char probability[MLA_NUMBER_BYTES], logit[MLA_NUMBER_BYTES];
        mla_number_shortest(probability, p->probability[k]);
        mla_number_shortest(logit, (double)p->logits[k]);
        print_csv_field(path);
        printf(",%d,", i + 1);
        print_csv_field(classes->names[k]);
        printf(",%d,%s,%s\r\n", k, probability, logit);
    }
}

void mla_predict_print_head(mla_predict_format format) {
    if (format == MLA_PREDICT_CSV) fputs("image,rank,class,index,probability,logit\r\n", stdout);
}

mla_status mla_predict_print(const mla_prediction *p, const mla_class_info *classes, int top, mla_predict_format format,
                             mla_error *error) {
    char escaped[NAME_BYTES];
    const char *path = p->path;
    if (!mla_is_utf8(path)) {
        mla_text_escape(escaped, sizeof escaped, path);
        path = escaped;
    }
    bool done = true;
    if (top > classes->count) top = classes->count;
    switch (format) {
    case MLA_PREDICT_TEXT: print_text(p, classes, top, path); break;
    case MLA_PREDICT_JSON: done = print_json(p, classes, top, path); break;
    case MLA_PREDICT_CSV: print_csv(p, classes, top, path); break;
    }
    return done ? MLA_OK : mla_fail(error, MLA_NO_MEMORY, "out of memory for the result of %s", path);
}
