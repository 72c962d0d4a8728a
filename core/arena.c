#include "core/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/real.h"

struct mla_arena_chunk {
    mla_arena_chunk *next;
    size_t capacity, used;
    alignas(MLA_ALIGN_BYTES) char data[];
};

enum { FIRST_CHUNK_BYTES = 1 << 20 };

static size_t round_up(size_t bytes) { return (bytes + MLA_ALIGN_BYTES - 1) / MLA_ALIGN_BYTES * MLA_ALIGN_BYTES; }

static mla_arena_chunk *chunk_new(mla_arena *arena, size_t capacity) {
    mla_arena_chunk *chunk = mla_memory_new(sizeof(mla_arena_chunk) + capacity);
    if (!chunk) return NULL;
    arena->allocations++;
    *chunk = (mla_arena_chunk){.capacity = capacity};
    return chunk;
}

void *mla_arena_alloc(mla_arena *arena, size_t bytes) {
    if (bytes > SIZE_MAX / 4) return NULL;
    bytes = round_up(bytes ? bytes : 1);
    mla_arena_chunk *chunk = arena->chunk;
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        size_t capacity = chunk ? 2 * chunk->capacity : FIRST_CHUNK_BYTES;
        if (capacity < bytes) capacity = bytes;
        mla_arena_chunk *fresh = chunk_new(arena, round_up(capacity));
        if (!fresh) return NULL;
        fresh->next = chunk;
        arena->chunk = chunk = fresh;
    }
    void *memory = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->used_bytes += bytes;
    if (arena->used_bytes > arena->peak_bytes) arena->peak_bytes = arena->used_bytes;
    return memory;
}

mla_arena_mark mla_arena_save(const mla_arena *arena) {
    return (mla_arena_mark){arena->chunk, arena->chunk ? arena->chunk->used : 0, arena->used_bytes};
}

void mla_arena_restore(mla_arena *arena, mla_arena_mark mark) {
    /* Chunks newer than the mark stay until the reset, empty: the next overflow may need them. */
    for (mla_arena_chunk *chunk = arena->chunk; chunk && chunk != mark.chunk; chunk = chunk->next) chunk->used = 0;
    if (mark.chunk && arena->chunk == mark.chunk) mark.chunk->used = mark.chunk_used;
    arena->used_bytes = mark.used_bytes;
}

void mla_arena_reset(mla_arena *arena) {
    mla_arena_chunk *chunk = arena->chunk;
    arena->used_bytes = 0;
    if (!chunk) return;
    chunk->used = 0;
    if (!chunk->next) return;
    mla_arena_free(arena);
    /* A quarter more than the peak: a round may split chunks elsewhere.  Failing here is told by the next alloc. */
    arena->chunk = chunk_new(arena, round_up(arena->peak_bytes + arena->peak_bytes / 4));
}

bool mla_arena_reserve(mla_arena *arena, size_t bytes) {
    mla_arena_reset(arena);
    if (arena->chunk && arena->chunk->capacity >= bytes) return true;
    mla_arena_free(arena);
    arena->chunk = chunk_new(arena, round_up(bytes));
    return arena->chunk != NULL;
}

void mla_arena_free(mla_arena *arena) {
    for (mla_arena_chunk *chunk = arena->chunk, *next; chunk; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    arena->chunk = NULL;
    arena->used_bytes = 0;
}
