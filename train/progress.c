#include "train/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { BAR_CELLS = 24 };

double mla_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void mla_progress_start(mla_progress *progress, uint64_t done) {
    const double now = mla_seconds();
    *progress = (mla_progress){.terminal = isatty(STDERR_FILENO) == 1, .start_done = done, .start_s = now, .shown_s = now};
}

void mla_progress_duration(char out[32], double seconds) {
    const long s = seconds < 0 ? 0 : seconds > 8e6 ? 8000000 : (long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(out, 32, "%ld h %02ld min", s / 3600, s % 3600 / 60);
    else if (s >= 60)
        snprintf(out, 32, "%ld min %02ld s", s / 60, s % 60);
    else
        snprintf(out, 32, "%ld s", s);
}

void mla_progress_bar(mla_progress *progress, double share, const char *text) {
    char bar[BAR_CELLS + 1];
    const int full = (int)(BAR_CELLS * share);
    for (int i = 0; i < BAR_CELLS; i++) bar[i] = i < full ? '#' : '.';
    bar[BAR_CELLS] = 0;
    fprintf(stderr, "\r\033[K[%s] %s", bar, text);
    fflush(stderr);
    progress->shown = true;
}

void mla_progress_show(mla_progress *progress, uint64_t total_done, uint64_t total, const char *text) {
    const double now = mla_seconds();
    if (now - progress->shown_s < (progress->terminal ? 0.2 : 10.0)) return;
    progress->shown_s = now;
    const double rate = (double)(total_done - progress->start_done) / (now - progress->start_s + 1e-9);
    char left[32], whole[320];
    mla_progress_duration(left, (double)(total - total_done) / (rate + 1e-9));
    snprintf(whole, sizeof whole, "%s, %.0f images/s, %s left", text, rate, left);
    if (progress->terminal)
        mla_progress_bar(progress, total ? (double)total_done / (double)total : 0, whole);
    else
        fprintf(stderr, "%s\n", whole);
}

void mla_progress_clear(mla_progress *progress) {
    if (!progress->shown) return;
    fputs("\r\033[K", stderr);
    progress->shown = false;
}
