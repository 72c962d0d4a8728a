/* What the program finds out about the machine it runs on. */
#ifndef MLA_TRAIN_MACHINE_H
#define MLA_TRAIN_MACHINE_H

#include <stddef.h>

/* Processors this process may use: the affinity mask and the control group's quota are counted. */
int mla_machine_cores(void);

/* Largest resident memory of this process so far, bytes. */
size_t mla_machine_peak_memory(void);

/* Resident memory of this process now, bytes; 0 where the system does not say. */
size_t mla_machine_memory(void);

/* Memory that this process and others of its control group may have in all, and what of it is not in use, bytes; 0 where the
 * system does not say. */
size_t mla_machine_memory_size(void);
size_t mla_machine_memory_free(void);

/* Threads to use: `wanted`, or (0) one a core but no more than lanes.  Says on stderr when there are more than lanes or
 * cores. */
int mla_machine_threads(int wanted, int lanes);

/* Flushes denormals to zero on the calling thread and all OpenMP threads: a gradient that dies away must not make
 * arithmetic a hundred times slower.  Part of every run, so results do not depend on it being chosen. */
void mla_machine_flush_denormals(int threads);

#endif
