#include "train/machine.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* CPUs' worth of time that the control group allows, or 0 for no limit. */
static int group_limit(void) {
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    double quota = 0, period = 0;
    if (!file) return 0;
    const int read = fscanf(file, "%lf %lf", &quota, &period);
    fclose(file);
    if (read != 2 || period <= 0) return 0;
    const int limit = (int)(quota / period + 0.5);
    return limit > 0 ? limit : 1;
}

int mla_machine_cores(void) {
    const int cores = omp_get_num_procs(), limit = group_limit();
    return limit > 0 && limit < cores ? limit : cores;
}

size_t mla_machine_peak_memory(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return 0;
    return (size_t)usage.ru_maxrss * 1024;
}

size_t mla_machine_memory(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t whole = 0, resident = 0;
    if (!file) return 0;
    const int read = fscanf(file, "%zu %zu", &whole, &resident);
    fclose(file);
    return read == 2 ? resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

/* A line "NAME:  N kB" of /proc/meminfo, in bytes. */
static size_t memory_info(const char *name) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    size_t kilobytes = 0;
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), ": %zu kB", &kilobytes) == 1) break;
    if (file) fclose(file);
    return kilobytes * 1024;
}

/* A number of the control group; 0 for "max" and where there is none. */
static size_t group_memory(const char *path) {
    FILE *file = fopen(path, "r");
    size_t bytes = 0;
    if (!file) return 0;
    if (fscanf(file, "%zu", &bytes) != 1) bytes = 0;
    fclose(file);
    return bytes;
}

size_t mla_machine_memory_size(void) {
    const size_t whole = memory_info("MemTotal"), limit = group_memory("/sys/fs/cgroup/memory.max");
    return limit && (!whole || limit < whole) ? limit : whole;
}

size_t mla_machine_memory_free(void) {
    const size_t available = memory_info("MemAvailable"), limit = group_memory("/sys/fs/cgroup/memory.max"),
                 used = group_memory("/sys/fs/cgroup/memory.current");
    const size_t left = limit > used ? limit - used : 0;
    return limit && left < available ? left : available;
}

int mla_machine_threads(int wanted, int lanes) {
    const int cores = mla_machine_cores();
    if (wanted <= 0) return cores < lanes ? cores : lanes;
    if (wanted > cores)
        fprintf(stderr, "mirrorla: %d threads on %d cores: they will take turns, which is slower than %d threads\n", wanted,
                cores, cores);
    if (wanted > lanes)
        fprintf(stderr, "mirrorla: %d threads for %d lanes: %d of them have nothing to do in training (train.lanes)\n",
                wanted, lanes, wanted - lanes);
    return wanted;
}

void mla_machine_flush_denormals(int threads) {
#if defined(__SSE2__)
#pragma omp parallel num_threads(threads)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
#else
    (void)threads;
#endif
}
