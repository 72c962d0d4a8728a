/* The parts of `mirrorla data`. */
#ifndef MLA_TRAIN_CMD_DATA_H
#define MLA_TRAIN_CMD_DATA_H

#include "core/status.h"
#include "train/config.h"

/* `mirrorla data preview`, with its own command line (argv[0]: its name). */
int mla_cmd_data_preview(int argc, char **argv);

/* Opens both splits, reads every image and prints what is there; *unreadable counts the images that are not. */
MLA_MUST_CHECK mla_status mla_data_verify(const mla_data_config *config, size_t *unreadable, mla_error *error);

/* Writes the set into the folder `out` (NULL will do for sets that need no preparation). */
MLA_MUST_CHECK mla_status mla_data_prepare(const mla_data_config *config, const char *out, mla_error *error);

/* Writes `count` images of the test set of a checkpoint's data (`data`: where it is, NULL: as in training) into the
 * folder `out`, made if need be: sample-00.png ..., and samples.json, a list of {file, label, class}. */
MLA_MUST_CHECK mla_status mla_data_sample(const char *checkpoint_path, const char *data, size_t count, const char *out,
                                          mla_error *error);

#endif
