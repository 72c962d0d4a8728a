/* CIFAR-10 and CIFAR-100 in their binary version: records of one or two label bytes and 3 x 1024 bytes of pixels,
 * planar already.  Files of the folder are mapped; the .tar.gz is read through zlib into memory.  A file may hold any
 * number of whole records, not only the original's 10,000 or 50,000. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/archive.h"
#include "train/dataset_kind.h"
#include "train/file.h"
#include "train/image.h"

enum { SIDE = 32, PIXEL_BYTES = 3 * SIDE * SIDE, MAX_PARTS = 5, NAMES_LIMIT_BYTES = 1 << 16, PYTHON_NAMES = 3 };

typedef struct cifar_format {
    const char *title;
    int classes;
    int label_bytes; /* the last of them counts; the other one is CIFAR-100's coarse label */
    const char *folder, *archive, *train[MAX_PARTS], *test[1], *names_file;
    const char *python_folder, *python[PYTHON_NAMES]; /* how the python version is recognised */
    const char *const *names;
    double mean[3], std[3];
} cifar_format;

static const char *const names10[10] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                        "dog",      "frog",       "horse", "ship", "truck"};
static const char *const names100[100] = {
    "apple",       "aquarium_fish", "baby",         "bear",         "beaver",     "bed",        "bee",       "beetle",
    "bicycle",     "bottle",        "bowl",         "boy",          "bridge",     "bus",        "butterfly", "camel",
    "can",         "castle",        "caterpillar",  "cattle",       "chair",      "chimpanzee", "clock",     "cloud",
    "cockroach",   "couch",         "crab",         "crocodile",    "cup",        "dinosaur",   "dolphin",   "elephant",
    "flatfish",    "forest",        "fox",          "girl",         "hamster",    "house",      "kangaroo",  "keyboard",
    "lamp",        "lawn_mower",    "leopard",      "lion",         "lizard",     "lobster",    "man",       "maple_tree",
    "motorcycle",  "mountain",      "mouse",        "mushroom",     "oak_tree",   "orange",     "orchid",    "otter",
    "palm_tree",   "pear",          "pickup_truck", "pine_tree",    "plain",      "plate",      "poppy",     "porcupine",
    "possum",      "rabbit",        "raccoon",      "ray",          "road",       "rocket",     "rose",      "sea",
    "seal",        "shark",         "shrew",        "skunk",        "skyscraper", "snail",      "snake",     "spider",
    "squirrel",    "streetcar",     "sunflower",    "sweet_pepper", "table",      "tank",       "telephone", "television",
    "tiger",       "tractor",       "train",        "trout",        "tulip",      "turtle",     "wardrobe",  "whale",
    "willow_tree", "wolf",          "woman",        "worm"};

static const cifar_format cifar10 = {
    .title = "CIFAR-10",
    .classes = 10,
    .label_bytes = 1,
    .folder = "cifar-10-batches-bin",
    .archive = "cifar-10-binary.tar.gz",
    .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
    .test = {"test_batch.bin"},
    .names_file = "batches.meta.txt",
    .python_folder = "cifar-10-batches-py",
    .python = {"data_batch_1", "test_batch", "batches.meta"},
    .names = names10,
    .mean = {0.4914, 0.4822, 0.4465},
    .std = {0.2470, 0.2435, 0.2616},
};
static const cifar_format cifar100 = {
    .title = "CIFAR-100",
    .classes = 100,
    .label_bytes = 2,
    .folder = "cifar-100-binary",
    .archive = "cifar-100-binary.tar.gz",
    .train = {"train.bin"},
    .test = {"test.bin"},
    .names_file = "fine_label_names.txt",
    .python_folder = "cifar-100-python",
    .python = {"train", "test", "meta"},
    .names = names100,
    .mean = {0.5071, 0.4867, 0.4408},
    .std = {0.2675, 0.2565, 0.2761},
};

typedef struct cifar_part {
    const uint8_t *bytes;
    size_t count; /* bytes */
    size_t records;
    bool mapped; /* unmapped at the end, otherwise freed */
} cifar_part;

typedef struct cifar_state {
    const cifar_format *format;
    cifar_part parts[MAX_PARTS];
    const char *const *files; /* (part_count) names of the parts */
    int part_count;
    bool named;
    mla_data_config geometry; /* of the resize, when another size than 32 is asked for */
} cifar_state;

static size_t record_bytes(const cifar_format *format) { return (size_t)format->label_bytes + PIXEL_BYTES; }

static const cifar_format *other_format(const cifar_format *format) { return format == &cifar10 ? &cifar100 : &cifar10; }

/* ---- finding it ---- */

static bool has(const char *folder, const char *name) {
    char path[MLA_PATH_BYTES];
    return mla_set_path(path, folder, name, NULL) == MLA_OK && access(path, F_OK) == 0;
}

static bool holds_files(const cifar_format *format, const char *folder) {
    bool found = has(folder, format->test[0]);
    for (int i = 0; i < MAX_PARTS && format->train[i]; i++) found = found || has(folder, format->train[i]);
    return found;
}

static bool holds_python_version(const cifar_format *format, const char *folder) {
    bool found = true;
    for (int i = 0; i < PYTHON_NAMES; i++) found = found && has(folder, format->python[i]);
    return found;
}

/* The folder with the files, or the archive, at `root` or in it; both are whatever exists there first. */
static bool locate(char found[MLA_PATH_BYTES], const cifar_format *format, const char *root) {
    if (mla_path_is_file(root) || holds_files(format, root))
        return snprintf(found, MLA_PATH_BYTES, "%s", root) < MLA_PATH_BYTES;
    if (mla_set_path(found, root, format->folder, NULL) == MLA_OK && holds_files(format, found)) return true;
    return mla_set_path(found, root, format->archive, NULL) == MLA_OK && mla_path_is_file(found);
}

static mla_status fail_python(const cifar_format *format, const char *path, mla_error *error) {
    return mla_fail(error, MLA_INVALID,
                    "%s: this is the python version of %s (pickles); the binary version is needed: download %s from "
                    "https://www.cs.toronto.edu/~kriz/cifar.html and give that file or the folder %s in it",
                    path, format->title, format->archive, format->folder);
}

static mla_status fail_other(const cifar_format *format, const char *path, mla_error *error) {
    const cifar_format *other = other_format(format);
    return mla_fail(error, MLA_INVALID,
                    "%s: this is %s, but the config asks for %s: set data.set accordingly or give the path of %s", path,
                    other->title, format->title, format->folder);
}

/* Why nothing was found at a path that the user gave. */
static mla_status explain(const cifar_format *format, const char *path, mla_error *error) {
    if (!mla_path_is_folder(path)) return mla_fail(error, MLA_IO, "%s: %s", path, strerror(errno ? errno : ENOENT));
    if (holds_python_version(format, path) || has(path, format->python_folder)) return fail_python(format, path, error);
    if (holds_files(other_format(format), path)) return fail_other(format, path, error);
    return mla_fail(error, MLA_INVALID, "%s: no %s here: expected %s, the folder %s or the archive %s", path, format->title,
                    format->test[0], format->folder, format->archive);
}

static mla_status locate_anywhere(char found[MLA_PATH_BYTES], const cifar_format *format, mla_error *error) {
    char(*roots)[MLA_PATH_BYTES] = calloc(MLA_SEARCH_ROOTS, sizeof *roots);
    if (!roots) return mla_fail(error, MLA_NO_MEMORY, "out of memory while looking for %s", format->title);
    int count = mla_dataset_roots(roots);
    char looked[MLA_ERROR_BYTES / 2] = "";
    bool there = false;
    for (int i = 0; i < count && !there; i++) {
        there = mla_path_is_folder(roots[i]) && locate(found, format, roots[i]);
        size_t used = strlen(looked);
        snprintf(looked + used, sizeof looked - used, "%s%s", i ? ", " : "", roots[i]);
    }
    mla_status status = MLA_OK;
    if (!there)
        status = mla_fail(error, MLA_IO,
                          "%s not found: looked for the folder %s and the archive %s in %s; set data.path or $MLA_DATA "
                          "(download from https://www.cs.toronto.edu/~kriz/cifar.html)",
                          format->title, format->folder, format->archive, looked);
    free(roots);
    return status;
}

static mla_status locate_or_explain(char found[MLA_PATH_BYTES], const cifar_format *format, const char *path,
                                    mla_error *error) {
    errno = 0;
    if (strcmp(path, "auto") == 0) return locate_anywhere(found, format, error);
    return locate(found, format, path) ? MLA_OK : explain(format, path, error);
}

mla_status mla_cifar_locate(char found[MLA_PATH_BYTES], const char **folder_name, mla_data_set set, const char *path,
                            mla_error *error) {
    const cifar_format *format = set == MLA_SET_CIFAR10 ? &cifar10 : &cifar100;
    *folder_name = format->folder;
    return locate_or_explain(found, format, path, error);
}

/* ---- reading it in ---- */

/* Checks size and labels of one file. */
static mla_status check_part(const cifar_state *state, cifar_part *part, const char *origin, const char *file,
                             mla_error *error) {
    const cifar_format *format = state->format, *other = other_format(format);
    size_t record = record_bytes(format);
    part->records = part->count / record;
    if (part->count == 0) return mla_fail(error, MLA_INVALID, "%s: %s is empty", origin, file);
    if (part->count % record) {
        bool fits = part->count % record_bytes(other) == 0;
        return mla_fail(error, MLA_INVALID,
                        "%s: %s has %zu bytes, expected a multiple of %zu (the records of %s): %zu bytes over; %s%s", origin,
                        file, part->count, record, format->title, part->count % record,
                        fits ? "the size fits " : "the file is cut off or not the binary version", fits ? other->title : "");
    }
    int last = format->label_bytes - 1;
    for (size_t i = 0; i < part->records; i++) {
        const uint8_t *label = part->bytes + i * record;
        if (label[last] >= format->classes || (last && label[0] >= 20))
            return mla_fail(error, MLA_INVALID, "%s: %s: record %zu of %zu: %slabel %d, expected 0 to %d", origin, file, i,
                            part->records, label[last] >= format->classes ? "" : "coarse ",
                            label[last] >= format->classes ? label[last] : label[0],
                            label[last] >= format->classes ? format->classes - 1 : 19);
    }
    return MLA_OK;
}

static mla_status map_part(cifar_part *part, const char *path, mla_error *error) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        int code = errno;
        if (fd >= 0) close(fd);
        if (code == ENOENT)
            return mla_fail(error, MLA_IO,
                            "%s is missing; the other files of its folder are there: is the download complete?", path);
        return mla_fail(error, MLA_IO, "%s: %s", path, strerror(code));
    }
    mla_status result = MLA_OK;
    part->count = (size_t)status.st_size;
    if (!S_ISREG(status.st_mode)) {
        result = mla_fail(error, MLA_INVALID, "%s: not a regular file", path);
    } else if (part->count) {
        void *bytes = mmap(NULL, part->count, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            result = mla_fail(error, MLA_IO, "%s: can't be mapped: %s", path, strerror(errno));
        else
            *part = (cifar_part){.bytes = bytes, .count = part->count, .mapped = true};
    }
    close(fd);
    return result;
}

/* One name a line; `text` ends in a zero and is cut into names. */
static mla_status take_names(mla_dataset *set, char *text, const char *origin, mla_error *error) {
    cifar_state *state = set->state;
    const cifar_format *format = state->format;
    const char *names[100];
    int count = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        if (count == format->classes)
            return mla_fail(error, MLA_INVALID, "%s: %s has more than %d class names", origin, format->names_file,
                            format->classes);
        names[count++] = line;
    }
    if (count != format->classes)
        return mla_fail(error, MLA_INVALID, "%s: %s has %d class names, expected %d", origin, format->names_file, count,
                        format->classes);
    state->named = true;
    return mla_dataset_set_names(set, names, count, error);
}

static mla_status read_folder(mla_dataset *set, const char *folder, mla_error *error) {
    cifar_state *state = set->state;
    char path[MLA_PATH_BYTES];
    for (int i = 0; i < state->part_count; i++) {
        mla_status status = mla_set_path(path, folder, state->files[i], error);
        if (status == MLA_OK) status = map_part(&state->parts[i], path, error);
        if (status == MLA_OK) status = check_part(state, &state->parts[i], folder, state->files[i], error);
        if (status != MLA_OK) return status;
    }
    if (!has(folder, state->format->names_file)) return MLA_OK;
    char *text = NULL;
    size_t bytes = 0;
    mla_status status = mla_set_path(path, folder, state->format->names_file, error);
    if (status == MLA_OK) status = mla_file_read(&text, &bytes, path, NAMES_LIMIT_BYTES, error);
    if (status == MLA_OK) status = take_names(set, text, folder, error);
    free(text);
    return status;
}

/* Bytes of the current entry with a zero behind them.  Memory grows with what comes, not with the size that the entry's
 * header claims.  *bytes, NULL before, is the caller's also after a failure. */
static mla_status read_entry(uint8_t **bytes, mla_archive *archive, const mla_archive_entry *entry, const char *path,
                             mla_error *error) {
    enum { FIRST_PIECE_BYTES = 1 << 20 };
    uint64_t got = 0, piece;
    do {
        piece = got ? got : FIRST_PIECE_BYTES;
        if (piece > entry->bytes - got) piece = entry->bytes - got;
        uint8_t *larger = got + piece < SIZE_MAX ? realloc(*bytes, (size_t)(got + piece) + 1) : NULL;
        if (!larger)
            return mla_fail(error, MLA_NO_MEMORY,
                            "%s: out of memory for the %llu bytes of %s; unpack the archive and give the folder", path,
                            (unsigned long long)entry->bytes, entry->name);
        *bytes = larger;
        mla_status status = mla_archive_read(archive, larger + got, (size_t)piece, error);
        if (status != MLA_OK) return status;
        got += piece;
    } while (got < entry->bytes);
    (*bytes)[got] = 0;
    return MLA_OK;
}

/* Takes an entry that is wanted; *left counts the parts that are still to come. */
static mla_status take_entry(mla_dataset *set, mla_archive *archive, const mla_archive_entry *entry, const char *path,
                             int *left, mla_error *error) {
    cifar_state *state = set->state;
    const char *slash = strrchr(entry->name, '/'), *file = slash ? slash + 1 : entry->name;
    uint8_t *bytes = NULL;
    mla_status status = MLA_OK;
    if (strcmp(file, state->format->names_file) == 0 && entry->bytes < NAMES_LIMIT_BYTES) {
        status = read_entry(&bytes, archive, entry, path, error);
        if (status == MLA_OK) status = take_names(set, (char *)bytes, path, error);
        free(bytes);
        return status;
    }
    for (int i = 0; i < state->part_count; i++) {
        cifar_part *part = &state->parts[i];
        if (strcmp(file, state->files[i]) != 0 || part->bytes) continue;
        status = read_entry(&bytes, archive, entry, path, error);
        part->bytes = bytes;
        part->count = (size_t)entry->bytes;
        if (status == MLA_OK) status = check_part(state, part, path, state->files[i], error);
        --*left;
        return status;
    }
    return MLA_OK;
}

static mla_status read_archive(mla_dataset *set, const char *path, mla_error *error) {
    cifar_state *state = set->state;
    const cifar_format *format = state->format;
    mla_archive *archive = NULL;
    mla_archive_entry entry = {0};
    bool python = false, other = false;
    int left = state->part_count;
    mla_status status = mla_archive_open(&archive, path, error);
    while (status == MLA_OK && (left || !state->named)) {
        status = mla_archive_next(archive, &entry, error);
        if (status != MLA_OK || !entry.name) break;
        python = python || strstr(entry.name, format->python_folder);
        other = other || strstr(entry.name, other_format(format)->folder);
        if (entry.is_file) status = take_entry(set, archive, &entry, path, &left, error);
    }
    mla_archive_close(archive);
    if (status != MLA_OK || !left) return status;
    if (python) return fail_python(format, path, error);
    if (other) return fail_other(format, path, error);
    int missing = 0;
    while (state->parts[missing].bytes) missing++;
    return mla_fail(error, MLA_INVALID, "%s: %s is missing in the archive", path, state->files[missing]);
}

/* ---- the kind ---- */

static mla_status cifar_open(mla_dataset *set, const cifar_format *format, const mla_data_config *config, mla_split split,
                             mla_error *error) {
    char path[MLA_PATH_BYTES];
    cifar_state *state = calloc(1, sizeof *state);
    if (!state) return mla_fail(error, MLA_NO_MEMORY, "out of memory for %s", format->title);
    set->state = state;
    state->format = format;
    state->geometry = *config;
    state->geometry.crop_pct = 1.0; /* the images are square: only the size changes */
    state->files = split == MLA_SPLIT_TRAIN ? format->train : format->test;
    while (state->part_count < (split == MLA_SPLIT_TRAIN ? MAX_PARTS : 1) && state->files[state->part_count])
        state->part_count++;
    mla_status status = locate_or_explain(path, format, config->path, error);
    if (status == MLA_OK) status = mla_dataset_set_text(&set->source, error, "%s", path);
    if (status == MLA_OK) status = mla_path_is_folder(path) ? read_folder(set, path, error) : read_archive(set, path, error);
    if (status == MLA_OK && !state->named) status = mla_dataset_set_names(set, format->names, format->classes, error);
    for (int i = 0; i < state->part_count; i++) set->info.count += state->parts[i].records;
    set->info.size = config->size;
    memcpy(set->info.mean, format->mean, sizeof format->mean);
    memcpy(set->info.std, format->std, sizeof format->std);
    return status;
}

static const uint8_t *record(const cifar_state *state, size_t index) {
    int part = 0;
    while (index >= state->parts[part].records) index -= state->parts[part++].records;
    return state->parts[part].bytes + index * record_bytes(state->format);
}

static mla_status read_resized(const cifar_state *state, const uint8_t *planes, uint8_t *pixels, mla_error *error) {
    uint8_t rgb[PIXEL_BYTES];
    for (int i = 0; i < SIDE * SIDE; i++)
        for (int c = 0; c < 3; c++) rgb[3 * i + c] = planes[c * SIDE * SIDE + i];
    mla_image image = {SIDE, SIDE, rgb};
    return mla_image_fit(pixels, &image, &state->geometry, error);
}

static mla_status cifar_read(const mla_dataset *set, size_t index, uint64_t epoch, uint8_t *pixels, int *label,
                             mla_error *error) {
    (void)epoch;
    const cifar_state *state = set->state;
    const uint8_t *from = record(state, index);
    *label = from[state->format->label_bytes - 1];
    from += state->format->label_bytes;
    if (set->info.size != SIDE) return read_resized(state, from, pixels, error);
    memcpy(pixels, from, PIXEL_BYTES);
    return MLA_OK;
}

static int cifar_label(const mla_dataset *set, size_t index) {
    const cifar_state *state = set->state;
    return record(state, index)[state->format->label_bytes - 1];
}

static void cifar_close(mla_dataset *set) {
    cifar_state *state = set->state;
    for (int i = 0; state && i < state->part_count; i++) {
        void *bytes = (void *)(uintptr_t)state->parts[i].bytes;
        if (state->parts[i].mapped)
            munmap(bytes, state->parts[i].count);
        else
            free(bytes);
    }
    free(state);
}

static mla_status open10(mla_dataset *set, const mla_data_config *config, mla_split split, uint64_t seed, mla_error *error) {
    (void)seed;
    return cifar_open(set, &cifar10, config, split, error);
}

static mla_status open100(mla_dataset *set, const mla_data_config *config, mla_split split, uint64_t seed,
                          mla_error *error) {
    (void)seed;
    return cifar_open(set, &cifar100, config, split, error);
}

const mla_set_kind mla_set_cifar10 = {
    .name = "cifar10",
    .expects = "cifar-10-binary.tar.gz, the folder cifar-10-batches-bin, or the folder that holds either; auto",
    .open = open10,
    .read = cifar_read,
    .label = cifar_label,
    .close = cifar_close,
};
const mla_set_kind mla_set_cifar100 = {
    .name = "cifar100",
    .expects = "cifar-100-binary.tar.gz, the folder cifar-100-binary, or the folder that holds either; auto",
    .open = open100,
    .read = cifar_read,
    .label = cifar_label,
    .close = cifar_close,
};
