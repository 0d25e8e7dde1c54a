/* rules.h -- what the stand-ins agree on: failures that a test asks for by FAKECUDA_FAIL (see fake.h), empty code.
 *
 * Every library reads the variable and counts its own calls. */
#ifndef FAKECUDA_RULES_H
#define FAKECUDA_RULES_H
#include <stddef.h>

/* Every call asks first: the code this one is to fail with, or 0. */
int rules_provoked(const char *function);
#define FAIL_IF_TOLD                         \
  const int told = rules_provoked(__func__); \
  if (told) return told

/* The same in a call that gives `what` back: refused, it is still there, and in sight of those who look for leaks. */
void rules_keep(void *what);
#define FAIL_IF_TOLD_KEEPING(what)           \
  const int told = rules_provoked(__func__); \
  if (told) return rules_keep(what), told

/* Machine code with FAKENVRTC_EMPTY: a module that has every kernel, and none does anything. */
#define EMPTY_CODE "every kernel, empty"

/* Work of a library on a stream: call(args), now or from the graph that the stream records; args is copied. Of the
 * driver. */
__attribute__((visibility("default"))) int fakecuda_call(void *stream, void (*call)(const void *args), const void *args,
                                                         size_t bytes);

/* For tests: how many calls of this library have failed because they were told to. */
__attribute__((visibility("default"))) long fakecuda_provoked(void);

#endif
