/* TensorBoard event files: the numbers of the logs in the format that TensorBoard, and what reads its files, know.
 *
 * A file is a sequence of records {uint64 length, uint32 masked CRC-32C of the length, data, uint32 masked CRC-32C of the
 * data}, little-endian, mask(c) = rotate_right(c, 15) + 0xa282ead8; data is a tensorflow.Event in protobuf's encoding
 * (tensorboard/compat/proto/event.proto).  Each record is written whole with one write(2), so that only a kill can cut one,
 * at the end, which readers pass over.
 *
 * Every start of a run opens a file of its own, events.out.tfevents.SECONDS.HOST.PID.0, later than all that are there.  It
 * begins with the session's start at `next_step`: readers forget what older files say of that step and later ones, so
 * that a resumed run is one curve.
 *
 * Tags: loss/train, lr, grad_norm a step, and loss/retention where that loss is on; loss/train_epoch, accuracy/train,
 * loss/test, accuracy/test, loss/test_average, accuracy/test_average, images_per_second, peak_memory_mib an epoch;
 * layers/00/energy_q, ... (train/layer_numbers.h). Accuracies are shares of 1.
 */
#ifndef MLA_TRAIN_TENSORBOARD_H
#define MLA_TRAIN_TENSORBOARD_H

#include "core/status.h"
#include "train/layer_numbers.h"

typedef struct mla_tensorboard mla_tensorboard;
struct mla_step_record;
struct mla_epoch_record;
struct mla_timing_record;

MLA_MUST_CHECK mla_status mla_tensorboard_open(mla_tensorboard **board, const char *folder, uint64_t next_step,
                                               mla_error *error);
void mla_tensorboard_close(mla_tensorboard *board); /* NULL is allowed */

/* A NULL board takes them and does nothing.  Numbers that do not exist (NaN of layers, no test) are left out. */
MLA_MUST_CHECK mla_status mla_tensorboard_step(mla_tensorboard *board, const struct mla_step_record *record,
                                               mla_error *error);
MLA_MUST_CHECK mla_status mla_tensorboard_epoch(mla_tensorboard *board, const struct mla_epoch_record *record,
                                                mla_error *error);
MLA_MUST_CHECK mla_status mla_tensorboard_layers(mla_tensorboard *board, const mla_layers_record *record, mla_error *error);
MLA_MUST_CHECK mla_status mla_tensorboard_timing(mla_tensorboard *board, const struct mla_timing_record *record,
                                                 mla_error *error);

/* CRC-32C (Castagnoli) of some bytes, as in iSCSI: of "123456789" it is 0xe3069283. */
uint32_t mla_crc32c(const void *data, size_t bytes);

#endif
