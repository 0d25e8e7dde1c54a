/* ahead.c -- see ahead.h. */
#include "ahead.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tape_parts.h"

enum { MOST_THREADS = 8 }; /* NVRTC takes some 40 to 60 MB of memory for a text, of which a plan has one to four */

typedef struct {
  ambi_device *dev;
  const ambi_op *op;
  int64_t count, next;
  pthread_mutex_t lock;
} list;

static void *make_plans(void *context) {
  list *l = context;
  for (;;) {
    pthread_mutex_lock(&l->lock);
    const int64_t i = l->next < l->count ? l->next++ : -1;
    pthread_mutex_unlock(&l->lock);
    if (i < 0) return NULL;
    ambi_plan *plan = NULL;
    if (ambi_plan_create(l->dev, &l->op[i], &plan) == AMBI_OK) ambi_plan_destroy(plan);
  }
}

static int64_t thread_count(void) {
  const int64_t processors = sysconf(_SC_NPROCESSORS_ONLN);
  return processors < MOST_THREADS ? processors : MOST_THREADS;
}

static void make_all(list *l) {
  pthread_t id[MOST_THREADS];
  const int64_t most = thread_count() < l->count ? thread_count() : l->count;
  int started = 0;
  pthread_mutex_init(&l->lock, NULL);
  while (started < most && pthread_create(&id[started], NULL, make_plans, l) == 0) started++;
  for (int i = 0; i < started; i++) pthread_join(id[i], NULL);
  pthread_mutex_destroy(&l->lock);
}

void compile_ahead(ambi_device *dev, void (*write)(tape *t, void *context), void *context) {
  ambi_device_info info;
  ambi_device *ref = NULL;
  if (ambi_device_get_info(dev, &info) != AMBI_OK || strncmp(info.name, "cuda", 4) != 0 || thread_count() < 2) return;
  if (ambi_device_open("ref", NULL, &ref) != AMBI_OK) return; /* its plans compile nothing */
  tape *t = tape_create(ref);
  if (t) {
    write(t, context);
    make_all(&(list){.dev = dev, .op = t->planned, .count = t->plans});
    tape_destroy(t);
  }
  ambi_device_close(ref);
}
