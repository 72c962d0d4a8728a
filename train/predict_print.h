/* Predictions as text, JSON or CSV on the standard output. */
#ifndef MLA_TRAIN_PREDICT_PRINT_H
#define MLA_TRAIN_PREDICT_PRINT_H

#include "train/predict.h"

typedef enum mla_predict_format { MLA_PREDICT_TEXT, MLA_PREDICT_JSON, MLA_PREDICT_CSV } mla_predict_format;

/* What stands above the first prediction (CSV: the names of the columns). */
void mla_predict_print_head(mla_predict_format format);

/* The `top` most probable classes of a prediction that has no failure.
 *
 *     JSON   one object a line and image: {"image": ..., "top": [{"class", "index", "probability", "logit"}, ...]}
 *     CSV    RFC 4180; one record a class: image, rank (from 1), class, index, probability, logit
 *
 * Numbers are the shortest that read back to the same value.  A file name that is not UTF-8 is written with \xNN for each
 * byte that is not, and for control characters; other names are written as they are.  MLA_NO_MEMORY. */
MLA_MUST_CHECK mla_status mla_predict_print(const mla_prediction *prediction, const mla_class_info *classes, int top,
                                            mla_predict_format format, mla_error *error);

#endif
