/* The floating-point type of the engine.
 *
 * `real` is float in the program.  The same sources are built a second time with MLA_DOUBLE for the tests,
 * so that gradient checks hold to 1e-7 instead of 1e-2.
 */
#ifndef MLA_CORE_REAL_H
#define MLA_CORE_REAL_H

#ifdef MLA_DOUBLE
typedef double real;
#else
typedef float real;
#endif

/* Literals inside kernels: REAL(0.5) has the engine's type, so that no float expression is widened. */
#define REAL(x) ((real)(x))

enum { MLA_ALIGN_BYTES = 64, MLA_ALIGN_REALS = MLA_ALIGN_BYTES / (int)sizeof(real) };

#endif
