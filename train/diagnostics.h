/* Looks inside during training: at the ends of epochs, a few test images go through the model one by one, and each attention
 * layer is measured on them (layers/measure.h, train/layer_numbers.h).
 *
 * The images are the same all along, spread evenly over the test set.  What is measured depends on config, data and
 * weights alone: a thread works on an image by itself, and means are taken in the images' order.
 *
 * How often: `diagnostics.every_epochs`, counted back from the last epoch; `auto` is as often as keeps the measuring below
 * 2 % of the training, by operations counted and not by a clock, so that the log stays a function of the config.  A run
 * too short for one such look has none.
 */
#ifndef MLA_TRAIN_DIAGNOSTICS_H
#define MLA_TRAIN_DIAGNOSTICS_H

#include "layers/model.h"
#include "train/config.h"
#include "train/dataset.h"
#include "train/layer_numbers.h"

typedef struct mla_diagnostics mla_diagnostics;

/* With `start_known` the model holds the weights that the run started from: reflections are compared with them.  `train` is
 * the training set; model and sets are kept by the caller.  config->diagnostics.images is not 0. */
MLA_MUST_CHECK mla_status mla_diagnostics_new(mla_diagnostics **diagnostics, const mla_config *config, mla_model *model,
                                              const mla_dataset *test, const mla_dataset_info *train, bool start_known,
                                              int threads, mla_error *error);
void mla_diagnostics_free(mla_diagnostics *diagnostics); /* NULL is allowed */

/* Epochs between looks; 0: never. */
uint64_t mla_diagnostics_every(const mla_diagnostics *diagnostics);
/* Whether epoch `epoch`, counted from 1, ends with a look. */
bool mla_diagnostics_due(const mla_diagnostics *diagnostics, uint64_t epoch);

/* Measures with `values` as the weights; fills in record->images, layer and layers, which stay the diagnostics' own until
 * the next call.  Images that can't be read (data.on_error: skip) are left out. */
MLA_MUST_CHECK mla_status mla_diagnostics_measure(mla_diagnostics *diagnostics, const real *values,
                                                  mla_layers_record *record, mla_error *error);

#endif
