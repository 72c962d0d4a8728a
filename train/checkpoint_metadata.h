/* The __metadata__ of checkpoints and exports, both ways; private to checkpoint*.c, export.c and onnx_export.c. */
#ifndef MLA_TRAIN_CHECKPOINT_METADATA_H
#define MLA_TRAIN_CHECKPOINT_METADATA_H

#include "train/export.h"

#define MLA_CHECKPOINT_FORMAT "1"

enum { MLA_METADATA_MAX = 20 };

/* Pairs being collected for writing; running out of memory is remembered until mla_metadata_status. */
typedef struct mla_metadata {
    mla_file_pair pair[MLA_METADATA_MAX];
    char *value[MLA_METADATA_MAX]; /* owned */
    size_t count;
    bool out_of_memory;
} mla_metadata;

/* Appends a pair; `key` is static, `value` is taken over, NULL counts as out of memory. */
void mla_metadata_add(mla_metadata *metadata, const char *key, char *value);
void mla_metadata_add_count(mla_metadata *metadata, const char *key, uint64_t value); /* the same for a whole number */

/* What every file of this project says: version, config, classes, mean, std, size, weight_hash. */
MLA_MUST_CHECK mla_status mla_metadata_describe(mla_metadata *metadata, const char *path, const mla_config *config,
                                                const mla_class_info *classes, uint64_t weight_hash, mla_error *error);
/* What exported weights say: architecture, type, where they came from, the above, and how far the run came. */
MLA_MUST_CHECK mla_status mla_metadata_export(mla_metadata *metadata, const char *path, const mla_checkpoint *checkpoint,
                                              const mla_export_options *options, uint64_t weight_hash, mla_error *error);
void mla_metadata_add_counters(mla_metadata *metadata, const mla_counters *counters);
/* crc32 of all tensors, and of the pairs so far under the name "__metadata__". */
void mla_metadata_add_crc(mla_metadata *metadata, const mla_file_tensor *tensors, size_t count);
MLA_MUST_CHECK mla_status mla_metadata_status(const mla_metadata *metadata, const char *path, mla_error *error);
void mla_metadata_free(mla_metadata *metadata);

/* ---- reading: each checks one part of checkpoint->file and fills in the struct */
MLA_MUST_CHECK mla_status mla_metadata_read_classes(mla_checkpoint *checkpoint, mla_error *error);
MLA_MUST_CHECK mla_status mla_metadata_read_counters(mla_checkpoint *checkpoint, mla_error *error);
MLA_MUST_CHECK mla_status mla_metadata_read_hash(mla_checkpoint *checkpoint, mla_error *error);
MLA_MUST_CHECK mla_status mla_metadata_verify_crc(const mla_checkpoint *checkpoint, mla_error *error);

#endif
