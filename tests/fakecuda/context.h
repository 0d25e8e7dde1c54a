/* context.h -- devices and contexts, as the other files see them (context.c). */
#ifndef FAKECUDA_CONTEXT_H
#define FAKECUDA_CONTEXT_H
#include "fake.h"

typedef struct context {
  int device, holders;
} context;
extern bool initialized;
context *current_context(void); /* NULL when there is none, or it was released */

#endif
