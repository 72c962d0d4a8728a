/* A sweep, its base and overrides.  What is taken must come back the same through its one text. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "train/sweep.h"

static void check_cells(const mla_sweep *sweep) {
    MLA_REQUIRE(sweep->cell_count > 0 && sweep->cell_count <= MLA_SWEEP_CELLS_MAX, "%d cells", sweep->cell_count);
    int cells = 0;
    for (int r = 0; r < sweep->row_count; r++) {
        const mla_sweep_row *row = &sweep->row[r];
        MLA_REQUIRE(row->first == cells && row->count > 0, "%s: cells from %d, after %d", row->name, row->first, cells);
        MLA_REQUIRE(row->base >= -1 && row->base < sweep->row_count, "%s: base %d", row->name, row->base);
        cells += row->count;
        for (int i = row->first; i < cells; i++)
            MLA_REQUIRE(sweep->cell[i].row == r, "%s is a cell of row %d", sweep->cell[i].name, sweep->cell[i].row);
    }
    MLA_REQUIRE(cells == sweep->cell_count, "%d of %d cells have a row", cells, sweep->cell_count);
}

static void check_round_trip(const mla_sweep *sweep) {
    mla_error error = {0};
    mla_sweep *again;
    char *text = mla_sweep_text(sweep);
    MLA_REQUIRE(text, "out of memory");
    fuzz_file_fill(1, text, strlen(text));
    MLA_REQUIRE(mla_sweep_open(&again, fuzz_path("base.yaml"), NULL, 0, &error) == MLA_OK, "its own text is refused: %s\n%s",
                error.text, text);
    MLA_REQUIRE(again->cell_count == sweep->cell_count && again->row_count == sweep->row_count,
                "its own text gives %d cells in %d rows, not %d in %d:\n%s", again->cell_count, again->row_count,
                sweep->cell_count, sweep->row_count, text);
    for (int i = 0; i < sweep->cell_count; i++)
        MLA_REQUIRE(strcmp(again->cell[i].name, sweep->cell[i].name) == 0 &&
                        memcmp(&again->cell[i].config, &sweep->cell[i].config, sizeof(mla_config)) == 0,
                    "its own text gives another cell %s:\n%s", sweep->cell[i].name, text);
    for (int r = 0; r < sweep->row_count; r++)
        MLA_REQUIRE(again->row[r].base == sweep->row[r].base, "its own text gives row %s another base:\n%s",
                    sweep->row[r].name, text);
    mla_sweep_close(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const char *overrides[FUZZ_OVERRIDES_MOST];
    size_t count;
    char *text = fuzz_config_fill(data, bytes, overrides, &count);
    mla_error error = {0};
    mla_sweep *sweep;
    const mla_status status = mla_sweep_open(&sweep, fuzz_path("config.yaml"), overrides, count, &error);
    fuzz_check(status, &error);
    if (status == MLA_OK) {
        check_cells(sweep);
        check_round_trip(sweep);
        mla_sweep_close(sweep);
    }
    free(text);
    return 0;
}
