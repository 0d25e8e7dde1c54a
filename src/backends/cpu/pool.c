/* pool.c -- workers sleep until a job is posted; whoever wakes in time helps; the caller never waits for a sleeper. */
#include "backends/cpu/pool.h"

#include <stdlib.h>

#if defined(__wasm__)

/* The threads of a module are workers that its host starts on the same memory; each calls ambi_worker and stays in it.
 * One thread makes all calls, so there is one job at a time, for all pools. It may be a page's own thread, which must
 * not sleep: it spins, and only for tasks that a worker is at. */
#include <stdatomic.h>

struct pool {
  int threads;
};

static struct {
  atomic_int lock; /* guards what follows                    */
  task_fn *fn;
  void *context;
  int64_t tasks;
  int places;        /* how many more workers may join the job */
  atomic_llong next; /* the next task nobody has taken         */
  atomic_int joined; /* workers inside the job                 */
  int job;           /* grows with each job; workers sleep on it */
} work;

static void lock(void) {
  while (atomic_exchange(&work.lock, 1)) {
  }
}
static void unlock(void) { atomic_store(&work.lock, 0); }

static void take_tasks(void) {
  for (;;) {
    int64_t i = atomic_fetch_add(&work.next, 1);
    if (i >= work.tasks) return;
    work.fn(work.context, i);
  }
}

__attribute__((visibility("default"))) void ambi_worker(void);
void ambi_worker(void) {
  for (int seen = 0;;) {
    __builtin_wasm_memory_atomic_wait32(&work.job, seen, -1);
    lock();
    seen = work.job;
    bool join = work.places > 0;
    if (join) work.places--, atomic_fetch_add(&work.joined, 1);
    unlock();
    if (!join) continue;
    take_tasks();
    atomic_fetch_sub(&work.joined, 1);
  }
}

pool *pool_create(int threads) {
  pool *p = malloc(sizeof *p);
  if (p) p->threads = threads;
  return p;
}
void pool_destroy(pool *p) { free(p); }
int pool_threads(const pool *p) { return p->threads; }

void pool_run(pool *p, int64_t tasks, task_fn *fn, void *context) {
  if (tasks <= 1 || p->threads == 1) {
    for (int64_t i = 0; i < tasks; i++) fn(context, i);
    return;
  }
  lock();
  work.fn = fn, work.context = context, work.tasks = tasks;
  atomic_store(&work.next, 0);
  work.places = p->threads - 1;
  work.job++;
  unlock();
  __builtin_wasm_memory_atomic_notify(&work.job, (unsigned)(p->threads - 1));
  take_tasks();
  lock();
  work.places = 0;
  unlock();
  while (atomic_load(&work.joined) > 0) {
  }
}

#else

#include <pthread.h>
#include <stdatomic.h>

struct pool {
  pthread_mutex_t in_use; /* held by the caller whose job the workers see      */
  pthread_mutex_t lock;   /* guards what follows                               */
  pthread_cond_t posted, left;
  task_fn *fn;
  void *context;
  int64_t tasks;
  atomic_llong next; /* the next task nobody has taken                     */
  atomic_ullong job; /* grows with each job; watched by spinning workers   */
  bool open, stop;   /* open: workers may still join the job               */
  int joined;        /* workers inside the job                             */
  int workers;
  unsigned born; /* how many forks came before it */
  pthread_t thread[];
};

enum { STACK_BYTES = 2 << 20 }; /* kernels keep their tiles on the stack; some systems give threads very little */
enum { SPINS = 4000 };          /* some tens of microseconds: about what waking a sleeper costs */

/* A child of fork() has a pool's memory, none of its threads, and locks that nobody may ever open. Counting forks costs
 * runs nothing; asking for the process each time took a tenth of small ones. */
static atomic_uint forks;
static void count_fork(void) { atomic_fetch_add(&forks, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }
static bool is_inherited(const pool *p) { return p->born != atomic_load_explicit(&forks, memory_order_relaxed); }

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void take_tasks(pool *p) {
  for (;;) {
    int64_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
    if (i >= p->tasks) return;
    p->fn(p->context, i);
  }
}

static void *work(void *argument) {
  pool *p = argument;
  unsigned long long seen = 0;
  for (;;) {
    for (int i = 0; i < SPINS && atomic_load_explicit(&p->job, memory_order_relaxed) == seen; i++) relax();
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->job) == seen && !p->stop) pthread_cond_wait(&p->posted, &p->lock);
    seen = atomic_load(&p->job);
    bool join = p->open, stop = p->stop;
    if (join) p->joined++;
    pthread_mutex_unlock(&p->lock);
    if (stop) return NULL;
    if (!join) continue;
    take_tasks(p);
    pthread_mutex_lock(&p->lock);
    if (--p->joined == 0) pthread_cond_signal(&p->left);
    pthread_mutex_unlock(&p->lock);
  }
}

pool *pool_create(int threads) {
  static pthread_once_t watched = PTHREAD_ONCE_INIT;
  pool *p = calloc(1, sizeof *p + (size_t)(threads - 1) * sizeof p->thread[0]);
  if (!p) return NULL;
  pthread_once(&watched, watch_forks);
  p->born = atomic_load(&forks);
  pthread_mutex_init(&p->in_use, NULL);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->posted, NULL);
  pthread_cond_init(&p->left, NULL);
  pthread_attr_t large;
  pthread_attr_init(&large);
  pthread_attr_setstacksize(&large, STACK_BYTES);
  while (p->workers < threads - 1 && pthread_create(&p->thread[p->workers], &large, work, p) == 0) p->workers++;
  pthread_attr_destroy(&large);
  if (p->workers == threads - 1) return p;
  pool_destroy(p);
  return NULL;
}

void pool_destroy(pool *p) {
  if (!p) return;
  if (is_inherited(p)) {
    free(p);
    return;
  }
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_broadcast(&p->posted);
  pthread_mutex_unlock(&p->lock);
  for (int i = 0; i < p->workers; i++) pthread_join(p->thread[i], NULL);
  pthread_cond_destroy(&p->left);
  pthread_cond_destroy(&p->posted);
  pthread_mutex_destroy(&p->lock);
  pthread_mutex_destroy(&p->in_use);
  free(p);
}

int pool_threads(const pool *p) { return p->workers + 1; }

void pool_run(pool *p, int64_t tasks, task_fn *fn, void *context) {
  const bool alone = tasks <= 1 || p->workers == 0 || is_inherited(p);
  if (alone || pthread_mutex_trylock(&p->in_use) != 0) {
    for (int64_t i = 0; i < tasks; i++) fn(context, i);
    return;
  }
  pthread_mutex_lock(&p->lock);
  p->fn = fn;
  p->context = context;
  p->tasks = tasks;
  atomic_store(&p->next, 0);
  p->open = true;
  atomic_fetch_add(&p->job, 1);
  pthread_cond_broadcast(&p->posted);
  pthread_mutex_unlock(&p->lock);
  take_tasks(p);
  pthread_mutex_lock(&p->lock);
  p->open = false;
  while (p->joined > 0) pthread_cond_wait(&p->left, &p->lock);
  pthread_mutex_unlock(&p->lock);
  pthread_mutex_unlock(&p->in_use);
}

#endif
