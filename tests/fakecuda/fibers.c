/* fibers.c -- runs a launch: block after block, a block's threads as fibers on this thread of the host.
 *
 * A fiber runs until it waits at a barrier, for the lanes of its warp, or leaves the kernel; whoever comes last wakes
 * the others. When nothing can run and not all have left, they wait for each other for ever: the launch fails. A fault
 * in the kernel (memory.c surrounds allocations with pages that fault) ends the launch likewise. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake.h"
#include "switch.h"

enum { STACK = 64 << 10, PAGE = 4096, BARRIERS = 16, GUARD = 256, UNSET = 0xFF };
enum { ALTERNATE = 64 << 10 };

typedef enum { READY, AT_BARRIER, AT_EXCHANGE, GONE } state;
typedef struct fiber {
  fiber_context context;
  char *stack; /* NULL until it starts */
  state state;
  unsigned index, lane;
  emu_dim at;
  int barrier, answer; /* AT_BARRIER: which; the outcome of a barrier or an exchange */
  unsigned mask;       /* AT_EXCHANGE: what it was called with */
  const void *mine;
  size_t size;
  int from;
  void *out;
} fiber;

emu_machine machine;
static fiber threads[MAX_THREADS], *now;
static fiber_context scheduler;
static unsigned count, live, queue[MAX_THREADS], head, queued; /* fibers that can run, in a ring */
static struct warp {
  unsigned waiting, gone;
} warps[MAX_THREADS / EMU_WARP]; /* lanes: AT_EXCHANGE; GONE or never there */
static struct barrier { int arrived, votes; } barriers[BARRIERS];
static char *stacks[MAX_THREADS]; /* unused ones: the last used is the next */
static unsigned stack_count;
static void (*kernel)(const void *args);
static const void *arguments;
static char dynamic[SHARED_MOST + GUARD] __attribute__((aligned(1024)));
static result failed;
static pthread_t host;
static volatile bool running;

/* ---- fibers ---- */
static void wake(fiber *f) {
  f->state = READY;
  queue[(head + queued++) % MAX_THREADS] = f->index;
}

/* The other order: last to first, and a warp that can go on does so before others have their turn. */
static bool reverse, replaying;
void machine_replays(bool yes) { replaying = yes; }

static void wake_first(fiber *f) {
  f->state = READY;
  head = (head + MAX_THREADS - 1) % MAX_THREADS, queued++;
  queue[head] = f->index;
}

static fiber *take_turn(void) {
  fiber *f = &threads[queue[head]];
  head = (head + 1) % MAX_THREADS, queued--;
  now = f, machine.thread = f->at, machine.lane = f->lane;
  return f;
}

/* Straight to the next that has begun; the scheduler begins and buries them. */
static void give_way(void) {
  fiber *from = now;
  const bool straight = queued && !failed && from->state != GONE && threads[queue[head]].stack;
  fiber *to = straight ? take_turn() : NULL;
  if (to != from) fiber_switch(&from->context, to ? &to->context : &scheduler);
}

/* Ends the launch; does not return. */
static void fail(int code, const char *sentence) {
  fprintf(stderr, "fakecuda: block (%u, %u, %u), thread (%u, %u, %u): %s\n", machine.block.x, machine.block.y,
          machine.block.z, now->at.x, now->at.y, now->at.z, sentence);
  failed = code;
  give_way();
  abort();
}

static char *stack_take(void) {
  if (stack_count) return stacks[--stack_count];
  char *s = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (s == MAP_FAILED) return NULL;
  mprotect(s, PAGE, PROT_NONE);
  return s;
}

static void stack_return(fiber *f) {
  if (f->stack) stacks[stack_count++] = f->stack;
  f->stack = NULL;
}

/* ---- barriers ---- */
static void barrier_release(int id, emu_vote vote, int expected) {
  struct barrier *b = &barriers[id];
  static unsigned met[MAX_THREADS];
  unsigned n = 0;
  const int answer = vote == EMU_COUNT ? b->votes : vote == EMU_AND ? b->votes == expected : b->votes > 0;
  *b = (struct barrier){0, 0};
  for (unsigned i = 0; i < count; i++) {
    fiber *f = &threads[reverse ? count - 1 - i : i];
    if (f->state != AT_BARRIER || f->barrier != id) continue;
    f->answer = answer, met[n++] = f->index;
    wake(f);
  }
  if (id == 0 && n == live)
    races_all_met();
  else
    races_met(met, n);
}

static emu_vote last_vote;
static int barrier(int id, int expected, emu_vote vote, int predicate) {
  if (id < 0 || id >= BARRIERS) fail(EMU_TRAP, "there is no such barrier");
  struct barrier *b = &barriers[id];
  now->state = AT_BARRIER, now->barrier = id, last_vote = vote;
  b->arrived++, b->votes += predicate != 0;
  const int want = expected ? expected : (int)live;
  if (b->arrived == want) barrier_release(id, vote, want);
  give_way();
  return now->answer;
}

/* ---- exchanges between the lanes of a warp ---- */
static struct warp *warp_of(const fiber *f) { return &warps[f->index / EMU_WARP]; }
static fiber *lanes_of(const struct warp *w) { return &threads[(w - warps) * EMU_WARP]; }

static unsigned active(void) { return ~warp_of(now)->gone; }

static void deliver(fiber *f, const fiber *lanes, unsigned came) {
  const int first = f->from == EMU_EVERYONE ? 0 : f->from, last = f->from == EMU_EVERYONE ? EMU_WARP - 1 : f->from;
  for (int i = first; i <= last; i++) {
    char *to = (char *)f->out + (size_t)(i - first) * f->size;
    if (came >> i & 1)
      memcpy(to, lanes[i].mine, f->size);
    else
      memset(to, UNSET, f->size);
  }
  f->answer = (int)came;
  if (reverse)
    wake_first(f);
  else
    wake(f);
}

/* Delivers when all of `mask` wait with this mask, those gone excepted. */
static void exchange_settle(struct warp *w, unsigned mask, size_t size) {
  const unsigned came = mask & ~w->gone;
  fiber *lanes = lanes_of(w);
  if (came & ~w->waiting) return;
  for (unsigned left = came; left; left &= left - 1) {
    const fiber *f = &lanes[__builtin_ctz(left)];
    if (f->mask != mask || f->size != size) return;
  }
  unsigned met[EMU_WARP], n = 0;
  w->waiting &= ~came;
  for (unsigned left = came; left; left &= left - 1) {
    fiber *f = &lanes[__builtin_ctz(left)];
    deliver(f, lanes, came), met[n++] = f->index;
  }
  if (!size) races_met(met, n); /* __syncwarp */
}

static unsigned exchange(unsigned mask, const void *mine, unsigned long size, int from, void *out) {
  if (!(mask >> now->lane & 1)) fail(EMU_TRAP, "a lane calls a warp operation whose mask leaves it out");
  now->state = AT_EXCHANGE, now->mask = mask, now->mine = mine, now->size = size, now->from = from, now->out = out;
  warp_of(now)->waiting |= 1u << now->lane;
  exchange_settle(warp_of(now), mask, size);
  give_way();
  return (unsigned)now->answer;
}

static void pause_thread(void) {
  wake(now);
  give_way();
}

/* ---- mbarriers: 8 bytes of shared memory ---- */
typedef struct {
  uint32_t phase;
  uint16_t count, arrived;
} mbarrier;

static void phase_init(void *at, int expected) {
  *(mbarrier *)at = (mbarrier){0, (uint16_t)expected, 0};
  races_access(now->index, at, sizeof(mbarrier), true, __builtin_return_address(0));
  races_phase(at);
}

static void phase_arrive(void *at) {
  mbarrier *b = at;
  races_access(now->index, at, sizeof *b, false, __builtin_return_address(0));
  const bool ends = ++b->arrived == b->count;
  if (ends) b->arrived = 0, b->phase ^= 1;
  races_arrive(at, now->index, ends);
}

static void phase_wait(const void *at, unsigned phase) {
  races_access(now->index, at, sizeof(mbarrier), false, __builtin_return_address(0));
  while (((const volatile mbarrier *)at)->phase == phase) pause_thread();
  races_waited(at, now->index);
}

/* ---- for races.c ---- */
static void access_memory(const void *at, unsigned long bytes, int write, const void *pc) {
  races_access(now->index, at, bytes, write, pc);
}
static void access_begun(emu_way w, void *at, unsigned long bytes, const void *pc) {
  races_begun(now->index, w, at, bytes, pc);
}
static void access_batch(emu_way w) { races_batch(now->index, w); }
static void access_ended(emu_way w, int left) { races_ended(now->index, w, left); }

/* ---- a thread ---- */
/* Leaving may be what others wait for. */
static void leave(fiber *f) {
  f->state = GONE, live--;
  if (live && barriers[0].arrived == (int)live) barrier_release(0, last_vote, (int)live);
  struct warp *w = warp_of(f);
  w->gone |= 1u << f->lane;
  for (unsigned left = w->waiting; left; left &= left - 1) {
    const fiber *other = &lanes_of(w)[__builtin_ctz(left)];
    if (other->state == AT_EXCHANGE && other->mask >> f->lane & 1) exchange_settle(w, other->mask, other->size);
  }
}

static void thread_main(void) {
  kernel(arguments);
  leave(now);
  give_way();
}

static bool resume(fiber *f) {
  if (!f->stack) {
    if (!(f->stack = stack_take())) return false;
    /* Tops 64 bytes apart, or all stacks would want the same lines of the cache. */
    fiber_prepare(&f->context, f->stack + PAGE, STACK - 64 * (f->index % 64), thread_main);
  }
  fiber_switch(&scheduler, &f->context);
  if (now->state == GONE) stack_return(now); /* `f` may have given way to it */
  return true;
}

/* ---- a block ---- */
static void block_begin(void) {
  const emu_dim d = machine.block_dim;
  count = live = d.x * d.y * d.z, head = queued = 0;
  memset(barriers, 0, sizeof barriers);
  memset(warps, 0, sizeof warps);
  for (unsigned i = 0; i < count; i++) {
    threads[i].index = i, threads[i].lane = i % EMU_WARP;
    threads[i].at = (emu_dim){i % d.x, i / d.x % d.y, i / d.x / d.y};
  }
  if (count % EMU_WARP) warps[count / EMU_WARP].gone = ~0u << count % EMU_WARP;
  for (unsigned i = 0; i < count; i++) wake(&threads[reverse ? count - 1 - i : i]);
}

static void say_deadlock(void) {
  unsigned at_barrier = 0, at_exchange = 0;
  for (unsigned i = 0; i < count; i++)
    at_barrier += threads[i].state == AT_BARRIER, at_exchange += threads[i].state == AT_EXCHANGE;
  fprintf(stderr,
          "fakecuda: block (%u, %u, %u) waits for ever: %u threads at a barrier, %u in a warp operation, %u gone\n",
          machine.block.x, machine.block.y, machine.block.z, at_barrier, at_exchange, count - live);
}

static result block_run(unsigned shared_bytes) {
  memset(dynamic, UNSET, shared_bytes + GUARD);
  block_begin();
  while (queued && !failed) {
    if (!resume(take_turn())) failed = OUT_OF_MEMORY;
  }
  if (!failed && live) say_deadlock(), failed = EMU_LAUNCH_FAILED;
  for (unsigned i = 0; i < count; i++) stack_return(&threads[i]);
  for (unsigned i = 0; i < GUARD && !failed; i++)
    if ((unsigned char)dynamic[shared_bytes + i] != UNSET) {
      fprintf(stderr, "fakecuda: byte %u of %u bytes of dynamic shared memory was written\n", shared_bytes + i,
              shared_bytes);
      failed = EMU_ILLEGAL_ADDRESS;
    }
  return failed;
}

/* ---- faults ---- */
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { SIGNALS = sizeof signals / sizeof *signals };
static struct sigaction before[SIGNALS];

/* From a kernel: as `fail`, from the stack for signals back to the scheduler. Else it is someone else's fault. */
static void on_fault(int number, siginfo_t *info, void *context) {
  (void)context;
  if (!running || !pthread_equal(pthread_self(), host)) {
    for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &before[i], NULL);
    return; /* the instruction faults again, now for whoever handled it before */
  }
  sigset_t this;
  sigemptyset(&this);
  sigaddset(&this, number);
  pthread_sigmask(SIG_UNBLOCK, &this, NULL);
  char sentence[80];
  snprintf(sentence, sizeof sentence, "signal %d at address %p", number, info->si_addr);
  fail(number == SIGSEGV || number == SIGBUS ? EMU_ILLEGAL_ADDRESS : EMU_TRAP, sentence);
}

static result grid_run(const launch_shape *s, shared_memory fixed, bool watched) {
  const uint64_t blocks = (uint64_t)s->grid.x * s->grid.y * s->grid.z;
  const char *order = getenv("FAKECUDA_ORDER");
  reverse = (order && strcmp(order, "reverse") == 0) != replaying;
  for (uint64_t i = 0; i < blocks && !failed; i++) {
    const uint64_t b = reverse ? blocks - 1 - i : i, row = b / s->grid.x;
    machine.block = (emu_dim){(unsigned)(b % s->grid.x), (unsigned)(row % s->grid.y), (unsigned)(row / s->grid.y)};
    if (fixed.bytes) memset(fixed.at, UNSET, fixed.bytes);
    races_begin(watched, (const void *)(uintptr_t)kernel, s->block.x * s->block.y * s->block.z,
                (shared_memory){dynamic, s->dynamic}, fixed);
    block_run(s->dynamic);
  }
  return failed;
}

result machine_run(void (*call)(const void *args), const void *args, const launch_shape *s, shared_memory fixed,
                   bool watched) {
  static char alternate[ALTERNATE];
  const stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
  const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  stack_t stack_before;
  kernel = call, arguments = args, failed = OK, host = pthread_self(), running = true;
  machine = (emu_machine){.block_dim = s->block,
                          .grid_dim = s->grid,
                          .dynamic = dynamic,
                          .barrier = barrier,
                          .exchange = exchange,
                          .active = active,
                          .pause = pause_thread,
                          .phase_init = phase_init,
                          .phase_arrive = phase_arrive,
                          .phase_wait = phase_wait,
                          .access = access_memory,
                          .begun = access_begun,
                          .batch = access_batch,
                          .ended = access_ended,
                          .fail = fail};
  sigaltstack(&stack, &stack_before);
  for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &action, &before[i]);
  grid_run(s, fixed, watched);
  for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &before[i], NULL);
  sigaltstack(&stack_before, NULL);
  running = false;
  return failed;
}
