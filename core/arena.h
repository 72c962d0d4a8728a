/* Bump allocation by lifetime.
 *
 * An arena gives out 64-byte-aligned memory by moving a mark, and takes it all back at once.  When it overflows
 * it adds a chunk; the next reset merges the chunks into one of the size that was needed.  So after its first
 * round a repeated piece of work allocates nothing.
 *
 *     mla_arena arena = {0};
 *     real *x = mla_arena_alloc(&arena, n * sizeof(real));   // uninitialised; NULL when out of memory
 *     mla_arena_reset(&arena);                               // x is gone
 *     mla_arena_free(&arena);
 */
#ifndef MLA_CORE_ARENA_H
#define MLA_CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mla_arena_chunk mla_arena_chunk;

typedef struct mla_arena {
    mla_arena_chunk *chunk; /* newest first */
    size_t used_bytes;      /* in all chunks, since the last reset */
    size_t peak_bytes;      /* largest used_bytes ever */
    size_t allocations;     /* calls of the system's allocator ever */
} mla_arena;

/* Position to go back to; everything allocated after it is given up. */
typedef struct mla_arena_mark {
    mla_arena_chunk *chunk;
    size_t chunk_used, used_bytes;
} mla_arena_mark;

void *mla_arena_alloc(mla_arena *arena, size_t bytes);
mla_arena_mark mla_arena_save(const mla_arena *arena);
void mla_arena_restore(mla_arena *arena, mla_arena_mark mark);
void mla_arena_reset(mla_arena *arena);
/* Makes an empty arena able to give out `bytes` without allocating; false when out of memory (it then still works). */
bool mla_arena_reserve(mla_arena *arena, size_t bytes);
void mla_arena_free(mla_arena *arena);

#endif
