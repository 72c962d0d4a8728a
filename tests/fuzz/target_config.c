/* A config file, its base and overrides, separated by zero bytes: TEXT [0 BASE [0 KEY=VALUE]...].  What is taken must come
 * back the same through its resolved text. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "train/config.h"

enum { OVERRIDES_MOST = 16 };

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
    const char *overrides[OVERRIDES_MOST];
    size_t count = 0;
    if (access(fuzz_path("config.yaml"), F_OK) != 0) {
        fuzz_link("config.yaml", 0);
        fuzz_link("base.yaml", 1);
    }
    char *input = malloc(bytes + 1);
    MLA_REQUIRE(input, "out of memory");
    memcpy(input, data, bytes);
    input[bytes] = 0;
    const char *end = input + bytes, *base = input + strlen(input) + 1, *next = base;
    fuzz_file_fill(0, input, strlen(input));
    fuzz_file_fill(1, base, base < end ? strlen(base) : 0);
    if (base < end) next += strlen(base) + 1;
    for (; next < end && count < OVERRIDES_MOST; next += strlen(next) + 1) overrides[count++] = next;

    mla_error error = {0};
    mla_status status = mla_config_load(&config, fuzz_path("config.yaml"), overrides, count, &error);
    fuzz_check(status, &error);
    if (status == MLA_OK) check_round_trip(&config);
    status = mla_config_parse(&config, input, "text", overrides, count, &error); /* as a checkpoint's config is read */
    fuzz_check(status, &error);
    if (status == MLA_OK) check_round_trip(&config);
    free(input);
    return 0;
}
