#include "train/interrupt.h"

#include <stddef.h>

volatile sig_atomic_t mla_interrupted;

static void handle(int signal_number) {
    (void)signal_number;
    mla_interrupted = 1;
}

void mla_interrupt_setup(void) {
    /* SA_RESETHAND: the second signal does what it does by default. */
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}
