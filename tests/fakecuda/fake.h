/* fake.h -- inside the stand-in for the CUDA driver: calls, objects, memory, the machine that runs kernels.
 *
 * The kernels' own text runs on the CPU: nvrtc.c compiles it with the C++ compiler, modules.c loads and launches it,
 * fibers.c runs a block's threads. Everything happens at once, inside the call. What the driver would refuse is refused
 * (dead handles, no context, another context's streams, ranges outside allocations, too many threads, too much shared
 * memory, synchronizing while capturing); a kernel that reads or writes outside allocations, waits for ever or fails an
 * assertion gets the driver's error, a sentence on stderr, and the context is lost until it is released for the last
 * time.
 *
 * Environment, looked at in every call (see also nvrtc.c):
 *   FAKECUDA_FAIL=NAME:N[:CODE[:TIMES]],..  the Nth call of NAME and those after it fail (TIMES of them, when given);
 *                                           CODE is a CUresult, 2 (out of memory) unless given. From 700 on, the
 *                                           context is lost as well. Counting starts when the value changes. NVRTC and
 *                                           cuBLASLt do the same with their own functions and codes.
 *   FAKECUDA_DEVICES=N      how many devices there are, 1 unless given, at most 8
 *   FAKECUDA_DRIVER=N       what cuDriverGetVersion says, 13000 unless given
 *   FAKECUDA_MEMORY=N       bytes of each device, 8 GiB unless given
 *   FAKECUDA_CAPABILITY=MN  the compute capability, 90 unless given
 *   FAKECUDA_MULTIPROCESSORS=N  132 unless given; with few, blocks that take more than one piece of work do so early
 *   FAKECUDA_LATE=1         a kernel's failure is not told by its launch but by the next call, as on a real device
 *   FAKECUDA_RACES=1        a kernel whose threads race for shared memory fails, with the lines that do (races.c)
 *   FAKECUDA_ORDER=reverse  blocks and threads run last to first, each warp as far as it can; replays of graphs do so
 *                           unless this is said, as `ambi check` wants the same bits of them: results that change
 *                           betray a race
 * Exported for tests: long fakecuda_live(const char *kind), how many of "memory", "stream", "event", "module",
 * "graph", "exec" or, with NULL, of all are not yet freed; and fakecuda_provoked (rules.h). */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "machine.h"

typedef int result; /* a CUresult */
typedef uint64_t pointer;
enum {
  OK = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY = 209,
  OPERATING_SYSTEM = 304,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  NOT_READY = 600,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_MERGE = 902,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
  CAPTURE_ISOLATION = 905,
  CAPTURED_EVENT = 907,
};
enum { MAX_DEVICES = 8, MAX_THREADS = 1024, SHARED_DEFAULT = 48 << 10, SHARED_MOST = 227 << 10 };

/* ---- calls (calls.c) ---- */
/* Every call begins with ENTER: one call at a time, provoked failures, and what must hold first. */
typedef enum { ANYTIME, INITIALIZED, CONTEXT, CLEANUP /* works in a lost context too */ } needs;
result fake_enter(const char *name, needs what);
void fake_leave(const result *status);
#define EXPORT __attribute__((visibility("default")))
#define ENTER(what)                                                                       \
  __attribute__((cleanup(fake_leave))) const result entered = fake_enter(__func__, what); \
  if (entered) return entered

extern result lost; /* the context's failure, that all later calls report; 0 when it is well */
result lose(result code);
bool flag_of(const char *variable);
long number_of(const char *variable, long otherwise);
int most_shared(void); /* bytes that a block may ask for, by the compute capability */

/* ---- objects: everything with a handle, so that dead ones are noticed (calls.c) ---- */
typedef enum { MEMORY, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXEC, KINDS } kind;
typedef struct object {
  kind kind;
  struct object *next;
  const void *context; /* current when it was made */
} object;
void *object_new(kind k, size_t bytes);      /* zeroed; NULL without memory */
void *object_of(kind k, const void *handle); /* NULL when it is not, or no longer, one of these */
void object_end(void *handle);
object *object_first(void);

/* ---- memory (memory.c) ---- */
bool memory_holds(pointer p, size_t bytes);            /* the range lies inside one allocation */
void memory_know(void *at, size_t bytes, void *owner); /* a module's variable */
void memory_forget(const void *owner);
result memory_check(void); /* whether a kernel wrote between allocations */
result memory_info(size_t *unused, size_t *total);

/* ---- work: done at once, or written down while a stream captures (streams.c) ---- */
typedef struct function {
  object o;
  struct module *module;
  void (*call)(const void *args);
  size_t size;
  int bounds, max_dynamic, fixed_shared;
} function;

typedef struct {
  emu_dim grid, block;
  unsigned dynamic;
} launch_shape;

typedef struct work {
  enum { COPY, FILL, LAUNCH, CALL } what;
  void *to;
  const void *from; /* COPY: bytes; LAUNCH and CALL: arguments, owned by the work */
  size_t bytes;
  bool to_device, from_device;
  unsigned value, width; /* FILL: an element and its bytes */
  function *function;
  launch_shape shape;
  void (*call)(const void *args);
} work;
result work_submit(void *stream, const work *w);
bool capturing(void);             /* calls that may wait are then refused, and end the capture */
result launch_run(const work *w); /* modules.c */

void module_line(const void *pc, char *line, size_t size); /* of the kernels' text, when it was compiled for races.c */

/* ---- the machine (fibers.c) ---- */
extern emu_machine machine;
typedef struct {
  char *at;
  size_t bytes;
} shared_memory;
void machine_replays(bool yes); /* in the other order than FAKECUDA_ORDER says: see there */
/* One launch: `call(args)` by every thread of every block. Returns OK or the failure. */
result machine_run(void (*call)(const void *args), const void *args, const launch_shape *shape, shared_memory fixed,
                   bool watched);

/* ---- races for shared memory (races.c), t: the thread ---- */
void races_begin(bool watched, const void *call, unsigned threads, shared_memory dynamic, shared_memory fixed);
void races_all_met(void);
void races_met(const unsigned *threads, unsigned n);
void races_phase(const void *mbarrier);
void races_arrive(const void *mbarrier, unsigned t, bool ends);
void races_waited(const void *mbarrier, unsigned t);
void races_access(unsigned t, const void *at, size_t bytes, bool write, const void *pc);
void races_begun(unsigned t, emu_way w, void *at, size_t bytes, const void *pc);
void races_batch(unsigned t, emu_way w);
void races_ended(unsigned t, emu_way w, int left);

#endif
