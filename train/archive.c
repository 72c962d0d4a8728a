/* The tar format (POSIX ustar, with GNU's and pax's long names): blocks of 512 bytes; an entry is a header
 * block, then its bytes, filled up to whole blocks; two blocks of zeros end the archive. */
#include "train/archive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { BLOCK_BYTES = 512, LONG_NAME_BYTES = 4096 };

struct mla_archive {
    gzFile file;
    char *path;
    uint64_t left, padding; /* bytes of the current entry: data, then filling */
    char name[LONG_NAME_BYTES];
};

mla_status mla_archive_open(mla_archive **archive, const char *path, mla_error *error) {
    *archive = NULL;
    mla_archive *fresh = calloc(1, sizeof *fresh);
    if (!fresh || !(fresh->path = strdup(path))) {
        free(fresh);
        return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
    }
    errno = 0;
    fresh->file = gzopen(path, "rb");
    if (!fresh->file) {
        mla_status status = errno ? mla_fail(error, MLA_IO, "%s: %s", path, strerror(errno))
                                  : mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
        mla_archive_close(fresh);
        return status;
    }
    gzbuffer(fresh->file, 1u << 17);
    *archive = fresh;
    return MLA_OK;
}

void mla_archive_close(mla_archive *archive) {
    if (!archive) return;
    if (archive->file) gzclose_r(archive->file);
    free(archive->path);
    free(archive);
}

/* Exactly `bytes` bytes of the decompressed stream. */
static mla_status read_exactly(mla_archive *archive, void *out, size_t bytes, mla_error *error) {
    char *at = out;
    while (bytes) {
        unsigned chunk = bytes > (1u << 30) ? 1u << 30 : (unsigned)bytes;
        int got = gzread(archive->file, at, chunk);
        if (got <= 0) {
            int code = 0;
            const char *text = gzerror(archive->file, &code);
            if (code == Z_OK || code == Z_BUF_ERROR)
                return mla_fail(error, MLA_IO, "%s: the archive is cut off: it ends in the middle of %s; download it again",
                                archive->path, archive->name[0] ? archive->name : "its first entry");
            return mla_fail(error, MLA_IO, "%s: damaged archive: %s", archive->path,
                            code == Z_ERRNO ? strerror(errno) : text);
        }
        at += got;
        bytes -= (size_t)got;
    }
    return MLA_OK;
}

static mla_status skip(mla_archive *archive, uint64_t bytes, mla_error *error) {
    char scrap[1 << 14];
    while (bytes) {
        size_t chunk = bytes < sizeof scrap ? (size_t)bytes : sizeof scrap;
        mla_status status = read_exactly(archive, scrap, chunk, error);
        if (status != MLA_OK) return status;
        bytes -= chunk;
    }
    return MLA_OK;
}

mla_status mla_archive_read(mla_archive *archive, void *out, size_t bytes, mla_error *error) {
    MLA_REQUIRE(bytes <= archive->left, "%zu bytes asked for of %s, which has %llu left", bytes, archive->name,
                (unsigned long long)archive->left);
    mla_status status = read_exactly(archive, out, bytes, error);
    archive->left -= bytes;
    return status;
}

/* A number field: octal text, or GNU's big-endian binary with the top bit set. */
static bool parse_number(const uint8_t *field, size_t bytes, uint64_t *value) {
    uint64_t number = 0;
    if (field[0] & 0x80) {
        for (size_t i = bytes - 8; i < bytes; i++) number = number << 8 | field[i];
        *value = number;
        return true;
    }
    size_t i = 0;
    while (i < bytes && field[i] == ' ') i++;
    for (; i < bytes && field[i] != 0 && field[i] != ' '; i++) {
        if (field[i] < '0' || field[i] > '7') return false;
        number = number << 3 | (uint64_t)(field[i] - '0');
    }
    *value = number;
    return true;
}

/* The header's checksum counts its own field as spaces. */
static bool header_is_sound(const uint8_t header[BLOCK_BYTES]) {
    uint64_t stored = 0, sum = 0;
    if (!parse_number(header + 148, 8, &stored)) return false;
    for (int i = 0; i < BLOCK_BYTES; i++) sum += i >= 148 && i < 156 ? ' ' : header[i];
    return sum == stored;
}

static bool all_zero(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

/* name (100 bytes) behind prefix (155 bytes, ustar alone), neither of which need end in a zero. */
static void short_name(char name[LONG_NAME_BYTES], const uint8_t header[BLOCK_BYTES]) {
    size_t prefix = memcmp(header + 257, "ustar\0", 6) == 0 ? strnlen((const char *)header + 345, 155) : 0;
    size_t length = strnlen((const char *)header, 100), at = 0;
    if (prefix) {
        memcpy(name, header + 345, prefix);
        name[prefix] = '/';
        at = prefix + 1;
    }
    memcpy(name + at, header, length);
    name[at + length] = 0;
}

/* The `path` record of a pax header ("<length> path=<name>\n"...), moved to the front; false: there is none. */
static bool pax_name(char *text) {
    for (char *line = text; *line;) {
        char *rest = NULL;
        unsigned long length = strtoul(line, &rest, 10);
        if (rest == line || length == 0 || length > strlen(line)) return false;
        if (strncmp(rest, " path=", 6) == 0) {
            size_t begin = (size_t)(rest - text) + 6, end = (size_t)(line - text) + length - 1;
            if (end < begin) return false;
            memmove(text, text + begin, end - begin);
            text[end - begin] = 0;
            return true;
        }
        line += length;
    }
    return false;
}

/* The name of the entry that follows, given ahead of it as the content of an entry of its own. */
static mla_status long_name(mla_archive *archive, bool pax, bool *found, mla_error *error) {
    if (archive->left >= LONG_NAME_BYTES)
        return mla_fail(error, MLA_INVALID, "%s: an entry's name takes %llu bytes, at most %d are read", archive->path,
                        (unsigned long long)archive->left, LONG_NAME_BYTES - 1);
    size_t bytes = (size_t)archive->left;
    mla_status status = mla_archive_read(archive, archive->name, bytes, error);
    archive->name[bytes] = 0;
    *found = status == MLA_OK && (!pax || pax_name(archive->name));
    return status;
}

mla_status mla_archive_next(mla_archive *archive, mla_archive_entry *entry, mla_error *error) {
    bool named = false;
    *entry = (mla_archive_entry){0};
    for (;;) {
        uint8_t header[BLOCK_BYTES];
        mla_status status = skip(archive, archive->left + archive->padding, error);
        if (status == MLA_OK) status = read_exactly(archive, header, sizeof header, error);
        if (status != MLA_OK) return status;
        archive->left = archive->padding = 0;
        if (all_zero(header, sizeof header)) return MLA_OK;
        if (!header_is_sound(header) || !parse_number(header + 124, 12, &archive->left) || archive->left >> 56)
            return mla_fail(error, MLA_INVALID, "%s: not a tar archive, or a damaged one: a header's checksum is wrong",
                            archive->path);
        archive->padding = (BLOCK_BYTES - archive->left % BLOCK_BYTES) % BLOCK_BYTES;
        char type = (char)header[156];
        if (type == 'L' || type == 'x') {
            status = long_name(archive, type == 'x', &named, error);
            if (status != MLA_OK) return status;
        } else if (type != 'g') { /* 'g': pax settings for all entries, without names */
            if (!named) short_name(archive->name, header);
            *entry = (mla_archive_entry){archive->name, archive->left, type == '0' || type == 0};
            return MLA_OK;
        }
    }
}
