/* context.h -- devices and contexts, as the other files see them (context.c). */
#ifndef FAKECUDA_CONTEXT_H
#define FAKECUDA_CONTEXT_H
#include <sys/types.h>

#include "fake.h"

typedef struct context {
  int device, holders;
  bool used; /* made by cuCtxCreate; a destroyed one's place is not used again */
} context;
extern pid_t initialized_by;    /* a process forked from it has no driver */
context *current_context(void); /* NULL when there is none, or it was released */

#endif
