/* Files that are whole or not there.
 *
 * An atomic file is written under a temporary name in the target's folder, synced, renamed over the target, and
 * the folder synced: whoever opens the target sees the old content or the new one, whatever is killed or
 * unplugged in between.  Data goes straight from the caller's buffers to the file.
 *
 *     mla_atomic_file file;
 *     if (mla_atomic_open(&file, "run/config.yaml", bytes, &error) != MLA_OK ||
 *         mla_atomic_write(&file, text, bytes, &error) != MLA_OK ||
 *         mla_atomic_commit(&file, &error) != MLA_OK)
 *         return error.status;                 // the target is as it was, the temporary file is gone
 *
 * A kill leaves the temporary file behind; mla_is_abandoned_name tells such names, for cleaning up.
 */
#ifndef MLA_TRAIN_FILE_H
#define MLA_TRAIN_FILE_H

#include <stdint.h>
#include <sys/types.h>

#include "core/status.h"

typedef struct mla_atomic_file {
    int fd;                 /* -1 once committed or discarded */
    char *path, *temporary; /* path: the target with symbolic links followed */
    uint64_t bytes_needed;  /* as announced, for messages */
} mla_atomic_file;

/* Checks the free space for `bytes_needed` and creates the temporary file.  An existing target must be a regular
 * file; a symbolic link is followed, so that the link stays. */
MLA_MUST_CHECK mla_status mla_atomic_open(mla_atomic_file *file, const char *path, uint64_t bytes_needed, mla_error *error);
/* Both discard the file when they fail. */
MLA_MUST_CHECK mla_status mla_atomic_write(mla_atomic_file *file, const void *data, size_t bytes, mla_error *error);
MLA_MUST_CHECK mla_status mla_atomic_commit(mla_atomic_file *file, mla_error *error);
/* Removes the temporary file; does nothing after a commit, a failure or on a zeroed struct with fd = -1. */
void mla_atomic_discard(mla_atomic_file *file);

/* The three steps at once. */
MLA_MUST_CHECK mla_status mla_file_write(const char *path, const void *data, size_t bytes, mla_error *error);

/* The whole file with a zero byte behind it; the caller frees *data.  `limit_bytes` bounds what is accepted. */
MLA_MUST_CHECK mla_status mla_file_read(char **data, size_t *bytes, const char *path, size_t limit_bytes, mla_error *error);

/* Whether `bytes` more fit where `path` is or, while it does not exist, where its nearest existing parent is; MLA_IO with
 * path, bytes needed and bytes free. */
MLA_MUST_CHECK mla_status mla_file_space(const char *path, uint64_t bytes, mla_error *error);

/* Whether a name (without folder) is that of a temporary file of mla_atomic_open. */
bool mla_is_temporary_name(const char *name);
/* The same, and no other process that is alive is writing it: it may be removed. */
bool mla_is_abandoned_name(const char *name);

/* Makes a folder and its parents.  *made (may be NULL) counts the levels that did not exist before; on failure
 * those are removed again. */
MLA_MUST_CHECK mla_status mla_folders_make(const char *path, int *made, mla_error *error);
/* Removes the deepest `made` levels of `path` as long as they are empty. */
void mla_folders_unmake(const char *path, int made);

/* "folder/name" in new memory; NULL when out of memory. */
char *mla_path_join(const char *folder, const char *name);

/* Writes all bytes to a descriptor, going on after signals and short writes; false with errno set. */
bool mla_write_all(int fd, const void *data, size_t bytes);

/* The same at the end of a file opened for appending; what does not fit on the disk is taken back whole. */
MLA_MUST_CHECK mla_status mla_append(int fd, const char *path, const void *data, size_t bytes, mla_error *error);

/* MLA_IO for a failed write to `path` with errno `code`; for a full disk, a quota or a size limit the
 * sentence gives bytes needed and bytes free. */
mla_status mla_fail_write(mla_error *error, const char *path, uint64_t bytes_needed, int code);

#endif
