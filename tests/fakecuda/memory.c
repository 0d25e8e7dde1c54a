/* memory.c -- device memory: each allocation between pages that cannot be touched, so that a kernel that leaves it
 * faults (fibers.c makes that an error); the bytes between its end and the page's are filled and looked at. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"

enum { ALIGNMENT = 256, PAGE = 4096, UNTOUCHED = 0xA5 };
typedef struct allocation {
  object o;
  pointer at;
  size_t bytes;
  char *map; /* NULL: a module's variable */
  size_t mapped;
  void *owner;
} allocation;
static size_t used;

#define EACH_ALLOCATION(a)                                                           \
  for (allocation *a = (allocation *)object_first(); a; a = (allocation *)a->o.next) \
    if (a->o.kind == MEMORY)

bool memory_holds(pointer p, size_t bytes) {
  EACH_ALLOCATION(a) if (p >= a->at && p - a->at <= a->bytes && bytes <= a->bytes - (p - a->at)) return true;
  return false;
}

result memory_info(size_t *unused, size_t *total) {
  *total = (size_t)number_of("FAKECUDA_MEMORY", 8L << 30);
  *unused = used < *total ? *total - used : 0;
  return OK;
}

EXPORT result cuMemGetInfo_v2(size_t *unused, size_t *total) {
  ENTER(CONTEXT);
  return unused && total ? memory_info(unused, total) : INVALID_VALUE;
}

static char *slack(const allocation *a) { return (char *)(uintptr_t)(a->at + a->bytes); }
static size_t slack_bytes(const allocation *a) { return (size_t)(a->map + a->mapped - PAGE - slack(a)); }

/* The end as near to the page that cannot be touched as the alignment allows. */
EXPORT result cuMemAlloc_v2(pointer *p, size_t bytes) {
  ENTER(CONTEXT);
  size_t unused, total;
  if (!p || !bytes) return INVALID_VALUE;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  memory_info(&unused, &total);
  if (bytes > unused) return OUT_OF_MEMORY;
  const size_t aligned = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const size_t mapped = (aligned + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
  char *map = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return OUT_OF_MEMORY;
  allocation *a = NULL;
  if (mprotect(map + PAGE, mapped - 2 * PAGE, PROT_READ | PROT_WRITE) == 0) a = object_new(MEMORY, sizeof *a);
  if (!a) return munmap(map, mapped), OUT_OF_MEMORY;
  a->map = map, a->mapped = mapped, a->bytes = bytes;
  a->at = (pointer)(uintptr_t)(map + mapped - PAGE - aligned);
  memset(slack(a), UNTOUCHED, slack_bytes(a));
  used += bytes;
  *p = a->at;
  return OK;
}

EXPORT result cuMemFree_v2(pointer p) {
  ENTER(CLEANUP);
  if (!p) return OK;
  EACH_ALLOCATION(a) {
    if (a->at != p || !a->map) continue;
    const result overrun = memory_check();
    used -= a->bytes;
    munmap(a->map, a->mapped);
    object_end(a);
    return overrun ? overrun : lost;
  }
  return INVALID_VALUE;
}

result memory_check(void) {
  EACH_ALLOCATION(a) {
    if (!a->map) continue;
    for (size_t i = 0; i < slack_bytes(a); i++)
      if ((unsigned char)slack(a)[i] != UNTOUCHED) {
        memset(slack(a), UNTOUCHED, slack_bytes(a)); /* said once */
        fprintf(stderr, "fakecuda: byte %zu was written of an allocation of %zu bytes\n", a->bytes + i, a->bytes);
        return lose(EMU_ILLEGAL_ADDRESS);
      }
  }
  return OK;
}

void memory_know(void *at, size_t bytes, void *owner) {
  EACH_ALLOCATION(a) if (a->at == (pointer)(uintptr_t)at) return;
  allocation *a = object_new(MEMORY, sizeof *a);
  if (a) a->at = (pointer)(uintptr_t)at, a->bytes = bytes, a->owner = owner;
}

void memory_forget(const void *owner) {
  for (allocation *a = (allocation *)object_first(), *next; a; a = next) {
    next = (allocation *)a->o.next;
    if (a->o.kind == MEMORY && a->owner && a->owner == owner) object_end(a);
  }
}

/* ---- host memory that a device may read ---- */
EXPORT result cuMemAllocHost_v2(void **p, size_t bytes) {
  ENTER(CONTEXT);
  if (!p || !bytes) return INVALID_VALUE;
  *p = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);
  return *p ? OK : OUT_OF_MEMORY;
}

EXPORT result cuMemFreeHost(void *p) {
  ENTER(CLEANUP);
  free(p);
  return lost;
}
