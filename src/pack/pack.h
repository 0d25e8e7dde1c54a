/* pack.h -- what a host of kernel packs is made of.
 *
 *   trust.c     a folder, verified: signature, versions, hashes, allowlist
 *   scan.c      what compiling a module would cost
 *   code.c      bytes compiled, imports and exports checked; kept by hash while packs use them
 *   stack.c     how much stack the calling thread has left
 *   instance.c  a module's linear memory, its limits, one call
 *   kernel.c    instances that wait for calls; self-tests
 *   host.c      the ticker of deadlines; swap and rollback */
#ifndef AMBI_PACK_INTERNAL_H
#define AMBI_PACK_INTERNAL_H
#include <ambi/pack.h>
#include <pthread.h>
#include <stdatomic.h>

#include "pack/manifest.h"
#include "pack/sodium.h"
#include "pack/wasmtime.h"

enum { WASM_PAGE = 65536, MOST_IDLE = 16, MOST_UNUSED_MODULES = 32, MOST_NAMES = 1024, MOST_SENTENCE = 400 };

/* The newest version of each pack that was ever activated. */
typedef struct {
  char name[MOST_TEXT + 1];
  pack_version version;
} activated;

/* A compiled module; those of one hash are one. */
typedef struct compiled {
  struct compiled *next;
  char hash[72], entry[MOST_TEXT + 1];
  wasmtime_module *module;
  bool has_backward;
  int64_t users;
} compiled;

/* Epochs pass while calls are under way, one each millisecond. */
typedef struct {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  atomic_llong calls; /* under way */
  atomic_llong last;  /* the tick up to which epochs have passed */
  atomic_bool asleep;
  bool started, stop;
} ticker;

struct ambi_pack_host {
  wasmtime_api w;
  sodium_api sodium;
  wasm_engine *engine;
  ambi_pack_options o;  /* with copies of its arrays */
  pthread_mutex_t lock; /* guards what follows, and the host's references to packs */
  ambi_pack *active, *previous;
  compiled *modules;
  activated *names; /* MOST_NAMES */
  int named;
  ticker ticker;
};

typedef struct instance {
  struct instance *next;
  ambi_pack_kernel *kernel;
  wasmtime_store *store;
  wasmtime_context *context;
  wasmtime_extern memory, forward, backward;
  uint64_t base, room;                /* the host's part of the memory: where, and how many bytes */
  uint32_t offset[AMBI_PACK_REGIONS]; /* of the regions of the call in hand                       */
  size_t bytes[AMBI_PACK_REGIONS];
  uint32_t spent; /* ticks that its beginning took from the first call */
} instance;

struct ambi_pack_kernel {
  ambi_pack *pack;
  const manifest_kernel *m;
  pthread_mutex_t lock; /* guards what follows */
  compiled *code;       /* NULL: not yet       */
  bool tested;
  instance *idle;
  int waiting;
};

struct ambi_pack {
  ambi_pack_host *host;
  atomic_llong users; /* whoever opened it, its open kernels, leases, the host */
  char *text;         /* kernels.json */
  size_t text_bytes;
  manifest m;
  ambi_pack_kernel kernels[MOST_KERNELS];
  ambi_pack_kernel *used[MOST_KERNELS]; /* by the active pack: each, or what stepped in for it; the host's lock */
  void *bytes[MOST_KERNELS];            /* of modules, until they are compiled */
  size_t sizes[MOST_KERNELS];
};

/* trust.c */
ambi_status trust_verify(ambi_pack_host *h, const char *folder, ambi_pack *p);
ambi_status trust_load_names(ambi_pack_host *h);
/* Under the host's lock, so it tells nobody: *why is empty, or what the check of downgrades shall say. */
ambi_status trust_activate(ambi_pack_host *h, const manifest *m, char why[MOST_SENTENCE]);
/* Tells of a check; what did not pass is refused. */
ambi_status trust_tell(const ambi_pack_host *h, const char *check, bool passed, const char *sentence);

/* code.c */
ambi_status code_get(ambi_pack_host *h, const manifest_kernel *m, const void *bytes, size_t n, compiled **out);
void code_release(ambi_pack_host *h, compiled *c);
void code_free_all(ambi_pack_host *h);

/* instance.c */
/* Its start function and kernel_init end within `ticks`. */
ambi_status instance_new(ambi_pack_kernel *k, uint32_t ticks, instance **out);
void instance_free(ambi_pack_host *h, instance *i);
/* Room for regions of these sizes: sets offset and bytes. */
ambi_status instance_place(ambi_pack_kernel *k, instance *i, const size_t bytes[AMBI_PACK_REGIONS]);
void *instance_at(ambi_pack_host *h, const instance *i, int region);
uint32_t ticks_of(const ambi_pack_kernel *k, const ambi_pack_call *call); /* its deadline, never the kernel's more */
/* *alive: whether the instance can be called again. */
ambi_status instance_call(ambi_pack_kernel *k, instance *i, ambi_pack_call *call, bool *alive);

/* stack.c */
enum { STACK_BYTES = 512 << 10 };          /* what a module may use */
ambi_status stack_check(const char *what); /* whether this thread has that much, and some for the host */

/* kernel.c */
ambi_status kernel_load(ambi_pack_kernel *k); /* compiled and self-tested, once */
void kernel_unload(ambi_pack_kernel *k);

/* host.c */
void pack_release(ambi_pack *p);
void ticker_begin(ambi_pack_host *h); /* around each call into a module */
void ticker_end(ambi_pack_host *h);
int64_t ticks_now(void);
/* The next calls into that store end `ticks` from now. */
void ticker_limit(ambi_pack_host *h, wasmtime_context *c, uint32_t ticks);

#endif
