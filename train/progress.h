/* Progress on standard error: a bar with rate and remaining time on a terminal, a plain line now and then elsewhere. */
#ifndef MLA_TRAIN_PROGRESS_H
#define MLA_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mla_progress {
    bool terminal, shown;
    uint64_t start_done; /* what was done when the clock started */
    double start_s, shown_s;
} mla_progress;

/* Seconds of a clock that only goes forward. */
double mla_seconds(void);

/* `done` of the work lies behind already (a resumed run). */
void mla_progress_start(mla_progress *progress, uint64_t done);

/* Shows the state if it is due: 5 times a second on a terminal, every 10 s elsewhere.  `total_done` and `total` count
 * images of the whole run, for the remaining time; `text` is what to say, e.g. "epoch 2/10 loss 1.234". */
void mla_progress_show(mla_progress *progress, uint64_t total_done, uint64_t total, const char *text);

/* Draws a bar of which `share` (0 to 1) is full, with a text behind it; for a terminal. */
void mla_progress_bar(mla_progress *progress, double share, const char *text);

/* "45 s", "3 min 05 s", "2 h 10 min". */
void mla_progress_duration(char out[32], double seconds);

/* Takes the bar off the terminal, so that an ordinary line can be printed. */
void mla_progress_clear(mla_progress *progress);

#endif
