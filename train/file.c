#include "train/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define TEMPORARY_PREFIX ".mirrorla-"
#define TEMPORARY_SUFFIX ".tmp"

static mla_status no_memory(mla_error *error, const char *path) {
    return mla_fail(error, MLA_NO_MEMORY, "%s: out of memory", path);
}

char *mla_path_join(const char *folder, const char *name) {
    size_t length = strlen(folder);
    const char *slash = length && folder[length - 1] == '/' ? "" : "/";
    char *path = NULL;
    return asprintf(&path, "%s%s%s", folder, slash, name) < 0 ? NULL : path;
}

/* Folder part of a path, in new memory: "a/b" -> "a", "b" -> ".", "/b" -> "/". */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

bool mla_is_temporary_name(const char *name) {
    size_t length = strlen(name), prefix = strlen(TEMPORARY_PREFIX), suffix = strlen(TEMPORARY_SUFFIX);
    return length > prefix + suffix && strncmp(name, TEMPORARY_PREFIX, prefix) == 0 &&
           strcmp(name + length - suffix, TEMPORARY_SUFFIX) == 0;
}

/* The name holds the number of the process that made it, see create_temporary. */
bool mla_is_abandoned_name(const char *name) {
    if (!mla_is_temporary_name(name)) return false;
    long process = strtol(name + strlen(TEMPORARY_PREFIX), NULL, 10);
    if (process <= 0 || process > INT_MAX || process == (long)getpid()) return true;
    return kill((pid_t)process, 0) != 0 && errno != EPERM;
}

/* Bytes that may still be written where `folder` is; false when the file system does not tell. */
static bool bytes_free(uint64_t *bytes, const char *folder) {
    struct statvfs info;
    if (statvfs(folder, &info) != 0 || info.f_blocks == 0) return false;
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return true;
}

static mla_status fail_space(mla_error *error, const char *path, uint64_t needed, uint64_t available, const char *why) {
    return mla_fail(error, MLA_IO, "%s: %s: %" PRIu64 " bytes (%.1f MiB) needed, %" PRIu64 " bytes (%.1f MiB) free", path,
                    why, needed, (double)needed / 0x1p20, available, (double)available / 0x1p20);
}

mla_status mla_file_space(const char *path, uint64_t bytes, mla_error *error) {
    uint64_t available;
    char *folder = strdup(path);
    while (folder && access(folder, F_OK) != 0 && strcmp(folder, ".") != 0 && strcmp(folder, "/") != 0) {
        char *parent = folder_of(folder);
        free(folder);
        folder = parent;
    }
    mla_status status = MLA_OK;
    if (!folder)
        status = no_memory(error, path);
    else if (bytes_free(&available, folder) && available < bytes)
        status = fail_space(error, path, bytes, available, "not enough space");
    free(folder);
    return status;
}

mla_status mla_fail_write(mla_error *error, const char *path, uint64_t bytes_needed, int code) {
    uint64_t available;
    char *folder = folder_of(path);
    bool space = code == ENOSPC || code == EDQUOT || code == EFBIG;
    bool known = space && folder && bytes_free(&available, folder);
    free(folder);
    if (known) return fail_space(error, path, bytes_needed, available, strerror(code));
    return mla_fail(error, MLA_IO, "%s: could not be written: %s", path, strerror(code));
}

bool mla_write_all(int fd, const void *data, size_t bytes) {
    const char *next = data;
    while (bytes > 0) {
        ssize_t done = write(fd, next, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            errno = done == 0 ? EIO : errno;
            return false;
        }
        next += done;
        bytes -= (size_t)done;
    }
    return true;
}

mla_status mla_append(int fd, const char *path, const void *data, size_t bytes, mla_error *error) {
    struct stat before;
    if (fstat(fd, &before) != 0) return mla_fail_write(error, path, bytes, errno);
    if (mla_write_all(fd, data, bytes)) return MLA_OK;
    int code = errno;
    if (ftruncate(fd, before.st_size) != 0) return mla_fail(error, MLA_IO, "%s: its end is cut: %s", path, strerror(code));
    return mla_fail_write(error, path, bytes, code);
}

/* The file that a write to `path` means, in new memory: an existing one with links followed, else `path`. */
static mla_status resolve_target(char **target, const char *path, mla_error *error) {
    struct stat info;
    size_t length = strlen(path);
    if (length == 0 || path[length - 1] == '/')
        return mla_fail(error, MLA_INVALID, "\"%s\" is not the name of a file", path);
    if (stat(path, &info) != 0) {
        *target = strdup(path);
        return *target ? MLA_OK : no_memory(error, path);
    }
    if (!S_ISREG(info.st_mode))
        return mla_fail(error, MLA_INVALID, "%s: is %s, not a file that could be replaced", path,
                        S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    *target = realpath(path, NULL);
    return *target ? MLA_OK : mla_fail(error, MLA_IO, "%s: could not be resolved: %s", path, strerror(errno));
}

/* Creates a file under a name of its own; the mode follows the umask, which mkstemp's would not. */
static int create_temporary(char **temporary, const char *folder) {
    static atomic_uint counter;
    for (int attempt = 0; attempt < 1000; attempt++) {
        char name[64];
        snprintf(name, sizeof name, TEMPORARY_PREFIX "%ld-%u" TEMPORARY_SUFFIX, (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        *temporary = mla_path_join(folder, name);
        if (!*temporary) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(*temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) return fd;
        free(*temporary);
        *temporary = NULL;
        if (errno != EEXIST) return -1;
    }
    return -1;
}

mla_status mla_atomic_open(mla_atomic_file *file, const char *path, uint64_t bytes_needed, mla_error *error) {
    *file = (mla_atomic_file){.fd = -1, .bytes_needed = bytes_needed};
    mla_status status = resolve_target(&file->path, path, error);
    if (status != MLA_OK) return status;
    uint64_t available;
    char *folder = folder_of(file->path);
    if (!folder) {
        status = no_memory(error, path);
    } else if (bytes_free(&available, folder) && available < bytes_needed) {
        status = fail_space(error, path, bytes_needed, available, "not enough space");
    } else {
        file->fd = create_temporary(&file->temporary, folder);
        if (file->fd < 0)
            status = errno == ENOENT || errno == ENOTDIR
                         ? mla_fail(error, MLA_IO, "%s: the folder %s does not exist", path, folder)
                         : mla_fail_write(error, path, bytes_needed, errno);
    }
    free(folder);
    if (status != MLA_OK) mla_atomic_discard(file);
    return status;
}

mla_status mla_atomic_write(mla_atomic_file *file, const void *data, size_t bytes, mla_error *error) {
    if (mla_write_all(file->fd, data, bytes)) return MLA_OK;
    mla_status status = mla_fail_write(error, file->path, file->bytes_needed, errno);
    mla_atomic_discard(file);
    return status;
}

/* Makes names in a folder durable.  Some file systems can't sync a folder (EINVAL); nothing can be done there. */
static bool sync_folder(const char *path) {
    char *folder = folder_of(path);
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (fd < 0) return false;
    bool synced = fsync(fd) == 0 || errno == EINVAL;
    close(fd);
    return synced;
}

mla_status mla_atomic_commit(mla_atomic_file *file, mla_error *error) {
    mla_status status = MLA_OK;
    if (fsync(file->fd) != 0) status = mla_fail_write(error, file->path, file->bytes_needed, errno);
    /* close can report a delayed write error too (NFS) */
    if (close(file->fd) != 0 && status == MLA_OK) status = mla_fail_write(error, file->path, file->bytes_needed, errno);
    file->fd = -1;
    if (status == MLA_OK && rename(file->temporary, file->path) != 0)
        status = mla_fail_write(error, file->path, file->bytes_needed, errno);
    if (status == MLA_OK) {
        free(file->temporary);
        file->temporary = NULL;
        if (!sync_folder(file->path))
            status = mla_fail(error, MLA_IO, "%s: its folder could not be synced: %s", file->path, strerror(errno));
    }
    mla_atomic_discard(file);
    return status;
}

void mla_atomic_discard(mla_atomic_file *file) {
    if (file->fd >= 0) close(file->fd);
    if (file->temporary) unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    *file = (mla_atomic_file){.fd = -1};
}

mla_status mla_file_write(const char *path, const void *data, size_t bytes, mla_error *error) {
    mla_atomic_file file;
    mla_status status = mla_atomic_open(&file, path, bytes, error);
    if (status == MLA_OK) status = mla_atomic_write(&file, data, bytes, error);
    if (status == MLA_OK) status = mla_atomic_commit(&file, error);
    return status;
}

/* Reads to the end in growing pieces: sizes from stat are wrong for pipes and /proc. */
static mla_status read_all(char **data, size_t *bytes, int fd, const char *path, size_t limit_bytes, mla_error *error) {
    size_t capacity = 0;
    for (;;) {
        if (capacity - *bytes < 2) {
            capacity = capacity ? 2 * capacity : 4096;
            char *larger = realloc(*data, capacity);
            if (!larger) return no_memory(error, path);
            *data = larger;
        }
        ssize_t got = read(fd, *data + *bytes, capacity - *bytes - 1);
        if (got < 0 && errno != EINTR) return mla_fail(error, MLA_IO, "%s: could not be read: %s", path, strerror(errno));
        if (got == 0) break;
        *bytes += got > 0 ? (size_t)got : 0;
        if (*bytes > limit_bytes) return mla_fail(error, MLA_INVALID, "%s: is larger than %zu bytes", path, limit_bytes);
    }
    (*data)[*bytes] = 0;
    return MLA_OK;
}

mla_status mla_file_read(char **data, size_t *bytes, const char *path, size_t limit_bytes, mla_error *error) {
    *data = NULL;
    *bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return mla_fail(error, MLA_IO, "%s: could not be opened: %s", path, strerror(errno));
    mla_status status = read_all(data, bytes, fd, path, limit_bytes, error);
    close(fd);
    if (status != MLA_OK) {
        free(*data);
        *data = NULL;
        *bytes = 0;
    }
    return status;
}

/* Makes one level; `prefix` may exist already. */
static mla_status make_level(const char *prefix, int *made, mla_error *error) {
    struct stat info;
    if (mkdir(prefix, 0777) == 0) {
        ++*made;
        return MLA_OK;
    }
    int code = errno;
    if (stat(prefix, &info) == 0)
        return S_ISDIR(info.st_mode) ? MLA_OK : mla_fail(error, MLA_INVALID, "%s: exists and is not a folder", prefix);
    return mla_fail(error, MLA_IO, "%s: the folder could not be made: %s", prefix, strerror(code));
}

mla_status mla_folders_make(const char *path, int *made, mla_error *error) {
    int levels = 0;
    char *prefix = strdup(path);
    if (!prefix) return no_memory(error, path);
    mla_status status = *path ? MLA_OK : mla_fail(error, MLA_INVALID, "the name of the folder is empty");
    for (char *end = prefix; status == MLA_OK && *end;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char kept = *end;
        *end = 0;
        status = make_level(prefix, &levels, error);
        if (status != MLA_OK) {
            /* what was made stands above the level that failed */
            char *parent = folder_of(prefix);
            if (parent) mla_folders_unmake(parent, levels);
            free(parent);
            levels = 0;
        }
        *end = kept;
        if (kept && strspn(end, "/") == strlen(end)) break;
    }
    free(prefix);
    if (made) *made = levels;
    return status;
}

void mla_folders_unmake(const char *path, int made) {
    char *level = strdup(path);
    while (level && made-- > 0) {
        size_t length = strlen(level);
        while (length > 1 && level[length - 1] == '/') level[--length] = 0;
        if (rmdir(level) != 0) break;
        char *parent = folder_of(level);
        free(level);
        level = parent;
    }
    free(level);
}
