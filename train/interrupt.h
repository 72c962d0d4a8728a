/* Ctrl-C and the like: the first SIGINT or SIGTERM asks the work to end at the next safe point, a second one ends the
 * program at once. */
#ifndef MLA_TRAIN_INTERRUPT_H
#define MLA_TRAIN_INTERRUPT_H

#include <signal.h>

/* Non-zero once a signal has come. */
extern volatile sig_atomic_t mla_interrupted;

/* Installs the handlers. */
void mla_interrupt_setup(void);

#endif
