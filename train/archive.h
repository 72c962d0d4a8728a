/* Reading a .tar.gz (or a plain .tar) from front to back, nothing unpacked on disk.
 *
 *     mla_archive *archive;
 *     if (mla_archive_open(&archive, "cifar-10-binary.tar.gz", &error) != MLA_OK) ...
 *     mla_archive_entry entry;
 *     while ((status = mla_archive_next(archive, &entry, &error)) == MLA_OK && entry.name)
 *         status = mla_archive_read(archive, buffer, entry.bytes, &error);   // or skip it: just go on
 *     mla_archive_close(archive);
 */
#ifndef MLA_TRAIN_ARCHIVE_H
#define MLA_TRAIN_ARCHIVE_H

#include <stdint.h>

#include "core/status.h"

typedef struct mla_archive mla_archive;

typedef struct mla_archive_entry {
    const char *name; /* path inside the archive, valid until the next call; NULL at the end */
    uint64_t bytes;
    bool is_file; /* a regular file; folders, links and the like are not */
} mla_archive_entry;

MLA_MUST_CHECK mla_status mla_archive_open(mla_archive **archive, const char *path, mla_error *error);

/* Goes to the next entry, over what is left of the current one. */
MLA_MUST_CHECK mla_status mla_archive_next(mla_archive *archive, mla_archive_entry *entry, mla_error *error);

/* The next `bytes` bytes of the current entry, which must have that many left. */
MLA_MUST_CHECK mla_status mla_archive_read(mla_archive *archive, void *out, size_t bytes, mla_error *error);

void mla_archive_close(mla_archive *archive); /* NULL is allowed */

#endif
