/* stack.c -- how much stack the calling thread has left.
 *
 * A module runs on the stack of the thread that calls it. The engine stops it after STACK_BYTES, wherever the stack
 * itself ends; so a thread that has less must not call at all. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include "pack/pack.h"

enum { HOST_BYTES = 128 << 10, MAIN_BYTES = 64 << 20 }; /* the host's own calls; a main thread without a limit */

/* The ends of this thread's stack, asked once; 0, 0: unknown */
typedef struct {
  uintptr_t low, top;
} bounds;

#if defined(__linux__)
/* That of the main thread grows up to the limit of the process, and musl says only how far it has grown. */
static uintptr_t lowest_of_main(uintptr_t low, uintptr_t top) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) != 0) return low;
  uintptr_t most = limit.rlim_cur == RLIM_INFINITY ? MAIN_BYTES : (uintptr_t)limit.rlim_cur;
  return most < top && top - most < low ? top - most : low;
}

static bounds stack_of_thread(void) {
  pthread_attr_t a;
  void *at = NULL;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &a) != 0) return (bounds){0, 0};
  bool known = pthread_attr_getstack(&a, &at, &bytes) == 0 && at;
  pthread_attr_destroy(&a);
  if (!known) return (bounds){0, 0};
  bounds b = {(uintptr_t)at, (uintptr_t)at + bytes};
  if (syscall(SYS_gettid) == getpid()) b.low = lowest_of_main(b.low, b.top);
  return b;
}
#else
static bounds stack_of_thread(void) { return (bounds){0, 0}; }
#endif

ambi_status stack_check(const char *what) {
  static _Thread_local bounds b;
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (!b.top) b = stack_of_thread();
  if (!b.top) return AMBI_OK; /* a system that does not say */
  if (here < b.low || here > b.top)
    return fail(AMBI_UNSUPPORTED, "%s: called on a stack that is not its thread's, so how much is left is unknown",
                what);
  size_t left = here - b.low, need = STACK_BYTES + HOST_BYTES;
  if (left >= need) return AMBI_OK;
  return fail(AMBI_UNSUPPORTED, "%s: this thread has %zu KiB of stack left; calling a kernel of a pack needs %zu KiB",
              what, left >> 10, need >> 10);
}
