/* Where cells get their first weights from: their seed, a checkpoint, or the cells of another sweep. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/ablate.h"
#include "train/file.h"
#include "train/finetune.h"

/* The newest checkpoint of the finished cell `name` of the sweep in `folder`; the caller frees.  NULL: there is none. */
static char *cell_checkpoint(const char *folder, const char *name) {
    char *cell = NULL, *path = NULL;
    mla_cell_state state;
    if (asprintf(&cell, "%s/cells/%s", folder, name) < 0) return NULL;
    mla_cell_state_read(&state, cell, true);
    if (state.status != MLA_CELL_DONE || mla_checkpoint_newest(&path, cell, NULL) != MLA_OK) path = NULL;
    free(cell);
    return path;
}

/* A run that began must have begun from what it would be given now.  Where those weights are gone it is taken at its word.
 */
static mla_status check_origin(const char *folder, const char *given, const char *checkpoint, mla_error *error) {
    mla_finetune record;
    bool found;
    mla_status status = mla_finetune_read(&record, &found, folder, error);
    if (status != MLA_OK || (!found && !given)) return status;
    if (!found)
        return mla_fail(
            error, MLA_INVALID,
            "%s was begun from its seed, not from the weights of %s: give another folder by --out, or remove this one",
            folder, given);
    if (!given)
        return mla_fail(error, MLA_INVALID, "%s was begun from the weights of %s: say so again by --finetune", folder,
                        record.checkpoint);
    char *path = checkpoint ? realpath(checkpoint, NULL) : NULL;
    if (path && strcmp(path, record.checkpoint) != 0 && access(record.checkpoint, F_OK) == 0)
        status = mla_fail(error, MLA_INVALID,
                          "%s was begun from the weights of %s, not of %s: give another folder by --out, or remove this one",
                          folder, record.checkpoint, path);
    free(path);
    return status;
}

mla_status mla_ablate_find_weights(mla_ablate_run *run, mla_error *error) {
    const char *from = run->options->finetune, *without = NULL;
    struct stat info;
    mla_status status = MLA_OK;
    int wanted = 0, missing = 0;
    if (from && stat(from, &info) != 0)
        return mla_fail(error, MLA_INVALID, "--finetune: there is no file or folder %s", from);
    const bool sweep = from && S_ISDIR(info.st_mode);
    for (int i = 0; i < run->sweep->cell_count && status == MLA_OK; i++) {
        const char *name = run->sweep->cell[i].name;
        const bool began = mla_cell_began(run->cell_folder[i]);
        free(run->weights[i]);
        run->weights[i] = sweep ? cell_checkpoint(from, name) : from ? strdup(from) : NULL;
        if (began) status = check_origin(run->cell_folder[i], from, run->weights[i], error);
        if (began || !from) continue;
        wanted++;
        if (run->weights[i]) continue;
        if (!without) without = name;
        missing++;
    }
    if (status == MLA_OK && missing)
        status = mla_fail(
            error, MLA_INVALID,
            "--finetune: %s has no finished cell %s: a cell starts from that of the same name (%d of %d are missing)", from,
            without, missing, wanted);
    return status;
}
