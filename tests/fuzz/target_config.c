/* A config file, its base and overrides.  What is taken must come back the same through its resolved text. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "train/config.h"

static void check_round_trip(const mla_config *config) {
    static mla_config again;
    mla_error error = {0};
    char *text = mla_config_text(config);
    MLA_REQUIRE(text, "out of memory");
    MLA_REQUIRE(mla_config_parse(&again, text, "resolved", NULL, 0, &error) == MLA_OK, "its own text is refused: %s\n%s",
                error.text, text);
    MLA_REQUIRE(memcmp(&again, config, sizeof again) == 0, "its own text gives another config:\n%s", text);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static mla_config config;
    const char *overrides[FUZZ_OVERRIDES_MOST];
    size_t count;
    char *text = fuzz_config_fill(data, bytes, overrides, &count);
    mla_error error = {0};
    mla_status status = mla_config_load(&config, fuzz_path("config.yaml"), overrides, count, &error);
    fuzz_check(status, &error);
    if (status == MLA_OK) check_round_trip(&config);
    status = mla_config_parse(&config, text, "text", overrides, count, &error); /* as a checkpoint's config is read */
    fuzz_check(status, &error);
    if (status == MLA_OK) check_round_trip(&config);
    free(text);
    return 0;
}
