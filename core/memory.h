/* Memory of large buffers. */
#ifndef MLA_CORE_MEMORY_H
#define MLA_CORE_MEMORY_H

#include <stddef.h>

/* `bytes` of uninitialised memory, aligned to MLA_ALIGN_BYTES; large buffers stand on huge pages where the system gives
 * them, so that walking through them does not wait for page tables.  Pages are taken when they are first touched.  The
 * caller releases it with free.  NULL when out of memory. */
void *mla_memory_new(size_t bytes);

#endif
