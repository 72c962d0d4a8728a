/* The messages are a handful of fields (numbers of event.proto and summary.proto), so they are encoded here: a key
 * (field << 3 | type), then a varint (type 0), 8 bytes (1), a length and bytes (2), or 4 bytes (5). */
#include "train/tensorboard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "train/file.h"
#include "train/runlog.h"

#define NAME_START "events.out.tfevents."

/* Event */
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5, SESSION_LOG = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
/* Summary, and its values */
enum { VALUE = 1, TAG = 1, SIMPLE_VALUE = 2 };

enum { TAG_BYTES = 64, HEAD_BYTES = 12 };

struct mla_tensorboard {
    int fd;
    char *path;
    uint8_t *waiting; /* records to be written at once */
    size_t length, capacity;
    size_t record; /* where the one being built begins */
    bool out_of_memory;
};

uint32_t mla_crc32c(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

static uint32_t masked_crc(const void *data, size_t bytes) {
    const uint32_t crc = mla_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- encoding */

static void put_bytes(mla_tensorboard *b, const void *data, size_t bytes) {
    if (b->length + bytes > b->capacity) {
        const size_t capacity = 2 * (b->length + bytes) + 256;
        uint8_t *larger = realloc(b->waiting, capacity);
        if (!larger) {
            b->out_of_memory = true;
            return;
        }
        b->waiting = larger;
        b->capacity = capacity;
    }
    memcpy(b->waiting + b->length, data, bytes);
    b->length += bytes;
}

static void put_little_endian(mla_tensorboard *b, uint64_t bits, size_t bytes) {
    uint8_t out[8];
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(bits >> 8 * i);
    put_bytes(b, out, bytes);
}

static void put_varint(mla_tensorboard *b, uint64_t value) {
    for (; value >= 128; value >>= 7) put_bytes(b, &(uint8_t){(uint8_t)(value | 128)}, 1);
    put_bytes(b, &(uint8_t){(uint8_t)value}, 1);
}

static void put_key(mla_tensorboard *b, unsigned field, unsigned type) { put_varint(b, field << 3 | type); }

static void put_double(mla_tensorboard *b, unsigned field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, 1);
    put_little_endian(b, bits, 8);
}

static void put_float(mla_tensorboard *b, unsigned field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, 5);
    put_little_endian(b, bits, 4);
}

static void put_text(mla_tensorboard *b, unsigned field, const char *text) {
    put_key(b, field, 2);
    put_varint(b, strlen(text));
    put_bytes(b, text, strlen(text));
}

/* ---- records */

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Starts a record behind those that wait to be written, and an event in it. */
static void start_event(mla_tensorboard *b, uint64_t step) {
    b->record = b->length;
    put_bytes(b, (const uint8_t[HEAD_BYTES]){0}, HEAD_BYTES);
    put_double(b, WALL_TIME, seconds_now());
    put_key(b, STEP, 0);
    put_varint(b, step);
}

/* Fills in the head, for which start_event left room, and adds the tail. */
static void end_event(mla_tensorboard *b) {
    if (b->out_of_memory) return;
    const size_t end = b->length, bytes = end - b->record - HEAD_BYTES;
    b->length = b->record;
    put_little_endian(b, bytes, 8);
    put_little_endian(b, masked_crc(b->waiting + b->record, 8), 4);
    b->length = end;
    put_little_endian(b, masked_crc(b->waiting + b->record + HEAD_BYTES, bytes), 4);
}

static void put_scalar(mla_tensorboard *b, uint64_t step, const char *tag, double value) {
    const size_t tag_bytes = strlen(tag), value_bytes = 2 + tag_bytes + 5;
    MLA_REQUIRE(tag_bytes < TAG_BYTES, "the tag %s is too long", tag); /* so that all lengths are varints of one byte */
    start_event(b, step);
    put_key(b, SUMMARY, 2);
    put_varint(b, 2 + value_bytes);
    put_key(b, VALUE, 2);
    put_varint(b, value_bytes);
    put_text(b, TAG, tag);
    put_float(b, SIMPLE_VALUE, (float)value);
    end_event(b);
}

static mla_status write_records(mla_tensorboard *b, mla_error *error) {
    const size_t bytes = b->length;
    const bool whole = !b->out_of_memory;
    b->length = 0;
    b->out_of_memory = false;
    return whole ? mla_append(b->fd, b->path, b->waiting, bytes, error)
                 : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", b->path);
}

mla_status mla_tensorboard_step(mla_tensorboard *b, const mla_step_record *r, mla_error *error) {
    if (!b) return MLA_OK;
    put_scalar(b, r->step, "loss/train", r->loss);
    put_scalar(b, r->step, "lr", r->lr);
    put_scalar(b, r->step, "grad_norm", r->grad_norm);
    if (r->has_retention) put_scalar(b, r->step, "loss/retention", r->retention_loss);
    return write_records(b, error);
}

mla_status mla_tensorboard_epoch(mla_tensorboard *b, const mla_epoch_record *r, mla_error *error) {
    if (!b) return MLA_OK;
    put_scalar(b, r->step, "loss/train_epoch", r->train_loss);
    put_scalar(b, r->step, "accuracy/train", (double)r->train_correct / (double)r->train_images);
    if (r->test_images) {
        put_scalar(b, r->step, "loss/test", r->test_loss);
        put_scalar(b, r->step, "accuracy/test", (double)r->test_correct / (double)r->test_images);
    }
    if (r->test_images && r->has_ema) {
        put_scalar(b, r->step, "loss/test_average", r->ema_test_loss);
        put_scalar(b, r->step, "accuracy/test_average", (double)r->ema_test_correct / (double)r->test_images);
    }
    return write_records(b, error);
}

mla_status mla_tensorboard_layers(mla_tensorboard *b, const mla_layers_record *r, mla_error *error) {
    char tag[TAG_BYTES];
    if (!b) return MLA_OK;
    for (int i = 0; i < r->layers; i++)
        for (int n = 0; n < MLA_LAYER_NUMBERS; n++) {
            if (isnan(r->layer[i].number[n])) continue;
            snprintf(tag, sizeof tag, "layers/%02d/%s", i, mla_layer_number_names[n]);
            put_scalar(b, r->step, tag, r->layer[i].number[n]);
        }
    return write_records(b, error);
}

mla_status mla_tensorboard_timing(mla_tensorboard *b, const mla_timing_record *r, mla_error *error) {
    if (!b) return MLA_OK;
    put_scalar(b, r->step, "images_per_second", r->images_per_second);
    put_scalar(b, r->step, "peak_memory_mib", (double)r->peak_memory_bytes / 1048576);
    return write_records(b, error);
}

/* ---- files */

/* TensorBoard reads the files of a folder in the order of their names. */
static uint64_t seconds_for_name(const char *folder) {
    uint64_t seconds = (uint64_t)time(NULL);
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        if (strncmp(entry->d_name, NAME_START, strlen(NAME_START)) != 0) continue;
        const uint64_t taken = strtoull(entry->d_name + strlen(NAME_START), NULL, 10);
        if (taken >= seconds && taken < UINT64_MAX) seconds = taken + 1;
    }
    if (entries) closedir(entries);
    return seconds;
}

static mla_status create_file(mla_tensorboard *b, const char *folder, mla_error *error) {
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !*host || strchr(host, '/')) strcpy(host, "localhost");
    if (asprintf(&b->path, "%s/" NAME_START "%010" PRIu64 ".%s.%ld.0", folder, seconds_for_name(folder), host,
                 (long)getpid()) < 0) {
        b->path = NULL;
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    }
    b->fd = open(b->path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return b->fd >= 0 ? MLA_OK : mla_fail(error, MLA_IO, "%s: could not be created: %s", b->path, strerror(errno));
}

static mla_status write_start(mla_tensorboard *b, uint64_t next_step, mla_error *error) {
    start_event(b, 0);
    put_text(b, FILE_VERSION, "brain.Event:2");
    end_event(b);
    start_event(b, next_step);
    put_key(b, SESSION_LOG, 2);
    put_varint(b, 2);
    put_key(b, SESSION_STATUS, 0);
    put_varint(b, SESSION_START);
    end_event(b);
    return write_records(b, error);
}

mla_status mla_tensorboard_open(mla_tensorboard **board, const char *folder, uint64_t next_step, mla_error *error) {
    *board = NULL;
    mla_tensorboard *b = calloc(1, sizeof *b);
    if (!b) return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", folder);
    b->fd = -1;
    mla_status status = create_file(b, folder, error);
    if (status == MLA_OK) status = write_start(b, next_step, error);
    if (status == MLA_OK)
        *board = b;
    else
        mla_tensorboard_close(b);
    return status;
}

void mla_tensorboard_close(mla_tensorboard *b) {
    if (!b) return;
    if (b->fd >= 0) close(b->fd);
    free(b->waiting);
    free(b->path);
    free(b);
}
