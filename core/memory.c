#include "core/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/real.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

void *mla_memory_new(size_t bytes) {
    const size_t align = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : MLA_ALIGN_BYTES;
    const size_t rounded = (bytes + align - 1) / align * align;
    if (rounded < bytes) return NULL;
    void *memory = aligned_alloc(align, rounded ? rounded : align);
#ifdef MADV_HUGEPAGE
    /* A hint: without it the memory is as good, only slower. */
    if (memory && align == HUGE_PAGE_BYTES) (void)madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    return memory;
}
