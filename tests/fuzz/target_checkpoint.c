/* Any bytes as a checkpoint: open, verify, build its model and load the weights, as eval, export and resume do. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "train/loaded.h"

/* What the training state of a run that goes on from here would be. */
static void load_state(const mla_loaded *loaded) {
    const mla_params *params = mla_model_params(loaded->model);
    const mla_checkpoint *checkpoint = &loaded->checkpoint;
    mla_run_buffers all = {mla_params_buffer(params), mla_params_buffer(params), mla_params_buffer(params),
                           checkpoint->has_ema ? mla_params_buffer(params) : NULL};
    mla_error error = {0};
    if (all.value && all.moment1 && all.moment2) fuzz_check(mla_checkpoint_load(checkpoint, params, &all, &error), &error);
    free(all.value);
    free(all.moment1);
    free(all.moment2);
    free(all.ema);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const mla_weights wanted[] = {MLA_WEIGHTS_RAW, MLA_WEIGHTS_AVERAGE};
    fuzz_file_fill(0, data, bytes);
    for (int i = 0; i < 2; i++) {
        mla_loaded loaded;
        mla_error error = {0};
        const mla_status status = mla_loaded_open(&loaded, fuzz_file_path(0), wanted[i], NULL, 0, &error);
        fuzz_check(status, &error);
        MLA_REQUIRE((status == MLA_OK) == (loaded.model != NULL), "a model without success, or the other way round");
        if (status != MLA_OK) continue;
        (void)mla_model_auto_shard(mla_model_get_spec(loaded.model));
        if (loaded.checkpoint.has_optimizer) load_state(&loaded);
        mla_loaded_close(&loaded);
    }
    return 0;
}
