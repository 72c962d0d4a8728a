/* Compiled without -march: see isa.h. */
#include "core/isa.h"

#include <stdio.h>
#include <string.h>

const char *mla_isa_missing(const mla_isa *isa) {
    static char text[192];
    text[0] = 0;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
#define LOOK(name, gcc_name)                                                                                                \
    if ((isa->needs >> MLA_ISA_BIT_##name & 1u) && !__builtin_cpu_supports(gcc_name))                                       \
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", text[0] ? ", " : "", gcc_name);
    MLA_ISA_LIST(LOOK)
#undef LOOK
#else
    (void)isa; /* processors of other kinds are told apart by the system: it does not load what they cannot run */
#endif
    return text[0] ? text : NULL;
}
