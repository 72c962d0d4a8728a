#include "train/interrupt.h"

#include <stddef.h>

volatile sig_atomic_t mla_interrupted;

static void handle(int signal_number) {
    (void)signal_number;
    mla_interrupted = 1;
    /* the second signal, of either kind, does what it does by default */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

void mla_interrupt_setup(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}
