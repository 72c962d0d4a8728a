/* Errors as values.
 *
 * Every function that can fail for a reason outside the code (a file, a config, memory) returns a status
 * and takes an `mla_error *` as its last parameter, which receives one sentence for a person: what was
 * expected, what was found, where.  On MLA_OK the error is left as it was.  The pointer may be NULL.
 *
 *     mla_error error = {0};
 *     if (mla_config_load(&config, "run.yaml", &error) != MLA_OK)
 *         fprintf(stderr, "mirrorla: %s\n", error.text);
 *
 * Mistakes of the program itself (a shape that does not fit, an index out of range) are not errors of this
 * kind: MLA_REQUIRE stops at once with the place and the sentence.
 */
#ifndef MLA_CORE_STATUS_H
#define MLA_CORE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

/* X(name, exit code of the program, meaning) */
#define MLA_STATUS_LIST(X)                                                                                                  \
    X(MLA_OK, 0, "done")                                                                                                    \
    X(MLA_INVALID, 2, "invalid input or usage")                                                                             \
    X(MLA_IO, 1, "file could not be read or written")                                                                       \
    X(MLA_NO_MEMORY, 1, "out of memory")                                                                                    \
    X(MLA_NOT_FINITE, 1, "a value is not finite")                                                                           \
    X(MLA_INTERRUPTED, 130, "interrupted")

typedef enum mla_status {
#define MLA_STATUS_ENUM(name, exit_code, meaning) name,
    MLA_STATUS_LIST(MLA_STATUS_ENUM)
#undef MLA_STATUS_ENUM
} mla_status;

#define MLA_MUST_CHECK __attribute__((warn_unused_result))

enum { MLA_ERROR_BYTES = 2048 };

typedef struct mla_error {
    mla_status status;
    char text[MLA_ERROR_BYTES]; /* UTF-8, one sentence, no newline at the end; cut when longer */
} mla_error;

/* Fills *error (if not NULL) with the formatted sentence and returns `status`: `return mla_fail(...)`. */
mla_status mla_fail(mla_error *error, mla_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts the formatted text in front of the sentence already in *error, for context that only the caller
 * knows ("run.yaml: "); returns error->status, or MLA_INVALID when error is NULL. */
mla_status mla_fail_context(mla_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Short English meaning of a status, static storage. */
const char *mla_status_text(mla_status status);

/* Exit code of the program for a status: 0 done, 1 failed, 2 wrong usage or input, 130 interrupted. */
int mla_status_exit_code(mla_status status);

/* Stops the program for a mistake in the code; prints file, line and the sentence to stderr. */
_Noreturn void mla_die(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define MLA_REQUIRE(condition, ...) ((condition) ? (void)0 : mla_die(__FILE__, __LINE__, __VA_ARGS__))

#endif
