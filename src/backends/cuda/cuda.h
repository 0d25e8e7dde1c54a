/* cuda.h -- the CUDA device, and what an op's cuda.c is written with.
 *
 * A plan is a list of launches and a text, or several, which are compiled side by side (texts.c). Its own text is
 *   what plan() says below as #defines  +  prelude.cu  +  the parts it asks for (rows.cu, ..)  +  the op's cuda.cu
 * compiled for this GPU on first use and kept (compile.c, cache.c). Its kernels have one parameter, `args`:
 *   extern "C" __global__ void __launch_bounds__(THREADS) rmsnorm_forward(const __grid_constant__ args a)
 * An op's cuda.c only says numbers: sizes that help as constants, the others as fields of args.                     */
#ifndef AMBI_CUDA_H
#define AMBI_CUDA_H
#include "backends/cuda/api.h"
#include "core/sha256.h"

enum { OLDEST_ARCH = 80 }; /* conversions of bf16, asynchronous copies */

typedef struct module_cache module_cache;
typedef enum {
  SPECIAL_LARGE,
  SPECIAL_ALWAYS,
  SPECIAL_NEVER
} specialising; /* options.max_isa: "", "special", "general" */

typedef struct {
  cuda_api api;
  int device;
  int process;            /* that opened it */
  void *context, *stream; /* stream: of calls that name none */
  bool retained;          /* the context is the device's primary one, and ours to release */
  int arch;               /* 90: compute capability 9.0 */
  int multiprocessors;
  int64_t shared_bytes; /* the most one block may have */
  uint64_t l2_bytes;
  char isa[16], features[1200], cache_dir[512];
  bool keeps; /* cache_dir can be written */
  specialising special;
  void *blas; /* a cuBLASLt handle, or NULL */
  module_cache *modules;
  void (*notify)(void *context, const char *what);
  void *notify_context;
} cuda_device;

static inline cuda_device *cuda_of(const ambi_device *dev) { return dev->impl; }

/* Whether this process opened it: of one that it was forked from only the host's side is left. */
bool cuda_is_ours(const cuda_device *d);
/* Makes the device's context the thread's until cuda_leave. */
ambi_status cuda_enter(const cuda_device *d);
void cuda_leave(const cuda_device *d);

/* A driver call inside the context. */
#define INSIDE(d, call, what)                               \
  do {                                                      \
    TRY(cuda_enter(d));                                     \
    ambi_status inside_ = api_check(&(d)->api, call, what); \
    cuda_leave(d);                                          \
    TRY(inside_);                                           \
  } while (0)

/* ---- texts ---- */
typedef struct {
  void *handle;
  char *source;
} cuda_module;

typedef struct {
  char *source; /* the module's, once there is one */
  bool hopper;  /* compile for sm_90a: wgmma */
  sha256 begun; /* with the source */
  unsigned char key[32];
  const cuda_module *module;
} cuda_text;

/* ---- a plan in the making ---- */
enum { ARGS_REALS = 16, ARGS_NUMBERS = 256, MAX_STEPS = 40, MAX_PARTS = 10 };
/* The texts of a plan. Six are of products: linear_cross_entropy has three, each for whole blocks and for the last. */
enum { OWN_TEXT, APART_TEXT, PRODUCT_TEXTS, MAX_TEXTS = PRODUCT_TEXTS + 6 };

/* As prelude.cu declares it, but for the length of n. */
typedef struct {
  uint64_t at[AMBI_SLOTS];
  uint64_t work;
  uint64_t dtypes[2]; /* 4 bits a slot: primals, gradients */
  uint32_t used, adds;
  uint32_t aligned, unused; /* 1: every slot begins at a multiple of 16 bytes */
  double f[ARGS_REALS];
  int64_t n[ARGS_NUMBERS];
} cuda_args;

typedef struct cuda_plan cuda_plan;

/* A step that is no launch: called in order with the rest. */
typedef ambi_status cuda_call(const cuda_plan *plan, void *context, const cuda_args *args, void *stream);

typedef struct {
  const char *kernel; /* its name in the text; NULL: a call */
  int text;
  void *function;
  uint32_t grid[3], block[2], shared;
  bool held; /* launched by a call only */
  cuda_call *call;
  void *context;
  void (*release)(const cuda_device *d, void *context);
} cuda_step;

struct cuda_plan {
  cuda_device *dev;
  const problem *p;
  cuda_text text[MAX_TEXTS];
  int texts;
  char *shown; /* all of them, joined; NULL: there is at most one */
  cuda_args args;
  int numbers, reals, steps, parts;
  cuda_step step[MAX_STEPS];
  const char *part[MAX_PARTS];
  const char *last, *more; /* parts after the op's own text */
  const char *apart;       /* a kernel of a text of its own: KERNEL_APART. Said before it is launched */
  const char *variant;     /* what the kernel's name ends in: "rows", "strided" */
  uint64_t workspace;
  char *defines; /* "#define ROWS (a.n[0])\n.." */
  size_t defined, room;
  bool failed;    /* a call below ran out of room or memory */
  char huge[128]; /* .. or a launch would take more than there can be: of what; else empty */
  bool special;   /* has a text of its own: see cuda_specialise */
  bool general;   /* may have none: the last try's asked for more than this GPU has */
  bool hopper;    /* compile for sm_90a: wgmma */
};

/* A value of the text: compiled in, or a field of args. */
void cuda_fix(cuda_plan *k, const char *name, int64_t value);
void cuda_define(cuda_plan *k, const char *name, const char *text, const char *more); /* two halves of a word */
void cuda_number(cuda_plan *k, const char *name, int64_t value);
/* NAME(i): `count` numbers, which a call fills in; returns where they begin. */
int cuda_numbers(cuda_plan *k, const char *name, int count);
void cuda_real(cuda_plan *k, const char *name, double value);
void cuda_wide(cuda_plan *k, const char *name, double value); /* a double in every kernel */
/* NAME_DIMS as a constant; NAME_OFFSET(s, i): element offset of point i in slot s. */
void cuda_grid(cuda_plan *k, const char *name, const grid *g);
/* NAME_STRIDE(s) for every slot in use: a number each, or the constant 1 when all are. */
void cuda_strides(cuda_plan *k, const char *name, const int64_t *stride);
/* NAME(s, i): number i of slot s, `columns` to a slot. Numbers said after it move with the slots in use: say it last.
 */
void cuda_table(cuda_plan *k, const char *name, int columns, const int64_t *rows);
/* First of all: whether this plan gets a text of its own (`possible`: there is a faster kernel for it), with dtypes,
 * slots in use and slots added to as constants. Otherwise they are read from args, and k->special is false. */
bool cuda_specialise(cuda_plan *k, bool possible);
/* The m_* functions (cpu/math.h), in the precision that the outputs need. */
void cuda_math(cuda_plan *k);
/* A part of the text before the op's own. */
void cuda_part(cuda_plan *k, const char *text);
/* NAME: a char * into the workspace, as aligned as that is (64). */
void cuda_workspace(cuda_plan *k, const char *name, uint64_t bytes);
/* Launches of nothing are left out. */
void cuda_launch(cuda_plan *k, const char *kernel, int64_t grid_x, int64_t grid_y, int block_x, int block_y,
                 int64_t shared);
/* A kernel that a call launches, as often as it likes, with args of its own making; -1: of nothing, or the plan failed.
 */
int cuda_held(cuda_plan *k, const char *kernel, int64_t grid_x, int64_t grid_y, int block_x, int block_y);
/* .. of another text, whose args are of its own kind */
int cuda_held_in(cuda_plan *k, int text, const char *kernel, int64_t grid_x, int64_t grid_y, int block_x, int block_y,
                 int64_t shared);
ambi_status cuda_launch_held(const cuda_plan *k, int step, void *args, void *stream);
void cuda_then(cuda_plan *k, cuda_call *call, void *context, void (*release)(const cuda_device *d, void *context));

/* Elements in 16 bytes of the smallest dtype (16 bits at least), if all `slots` are dense along their last axis;
 * else 1. Rows may still begin at any multiple of an element: see cuda_rows_are_even. */
int64_t cuda_vector(const cuda_plan *k, uint32_t slots);
/* Whether that many elements fill words of 16 bytes; unsigned, as strides of tensors without elements may be anything
 */
static inline bool whole_words(int64_t elements, ambi_dtype t) {
  return (uint64_t)elements * (uint64_t)dtype_bytes(t) % 16 == 0;
}
static inline int64_t cuda_blocks(const cuda_plan *k, int64_t wanted,
                                  int64_t each) { /* at most `each` a multiprocessor */
  int64_t most = (int64_t)k->dev->multiprocessors * each;
  return wanted < most ? wanted : most;
}
static inline uint64_t real_bytes(const problem *p) {
  return p->compute == AMBI_F64 ? 8 : 4;
} /* of sums in workspace */
static inline void *cuda_pointer(uint64_t at) { return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */ }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

typedef struct {
  const char *text;                  /* cuda.cu */
  ambi_status (*plan)(cuda_plan *k); /* says the numbers and the launches */
} cuda_kernel;

extern const backend cuda_backend;
extern const event_calls cuda_events; /* events.c */

/* ---- texts.c ---- */
/* A text of some pieces, each with an end of line; the caller's to free. NULL: no memory. */
char *cuda_join(const char *const *pieces, int n);
/* Another text of the plan, which takes source; the same one again is one. */
ambi_status cuda_add_text(cuda_plan *k, char *source, bool hopper, int *text);
/* All of the plan's texts become modules: those that are not in memory side by side. */
ambi_status cuda_get_texts(cuda_plan *k);
void cuda_free_texts(cuda_plan *k);
/* What ambi_plan_source gives: NULL, there is none. Several are joined by cuda_show_texts. */
ambi_status cuda_show_texts(cuda_plan *k);
const char *cuda_texts_shown(const cuda_plan *k);

/* ---- compile.c, cache.c ---- */
/* Whether the module of that text is in memory: then the text has it. Its key is known afterwards. */
bool module_find(cuda_device *d, cuda_text *t);
/* The module of a text that module_find did not find: from memory all the same, from disk, or compiled now. */
ambi_status module_get(cuda_device *d, cuda_text *t);
module_cache *modules_new(void);
void modules_free(cuda_device *d, bool inside); /* inside: its context, which is to unload them */
void modules_lock(module_cache *c);             /* for whatever a device makes once, when first needed */
void modules_unlock(module_cache *c);

typedef struct {
  unsigned char *bytes;
  size_t size;
} image;

/* Text to machine code, or AMBI_COMPILE_FAILED and the compiler's first complaint. */
ambi_status compile_text(const cuda_device *d, const char *source, bool hopper, image *out);
/* Whether GPU and compiler have wgmma: cuda_plan's hopper may be set. */
bool compile_hopper(const cuda_device *d);
/* What else the machine code depends on: the target (what compile_target says), and a version of the compiler. */
void compile_key(const cuda_device *d, int arch, bool hopper, int version, char *out, size_t n);
/* The newest architecture the compiler knows that this GPU can run; an older one than its own is given as PTX, which
 * the driver translates. Without a compiler: the GPU's own. */
int compile_target(const cuda_device *d);
int compiler_version(const cuda_device *d); /* 1000 major + minor; 0: there is none */

/* Disk: makes the folder; whether it can be written. */
bool disk_prepare(const char *dir);
/* False when there is no such file, or it is not what was written. */
bool disk_read(const char *dir, const unsigned char key[32], image *out);
void disk_write(const char *dir, const unsigned char key[32], const image *in);
/* Deletes what was of no use for longest until `most` bytes are left, and drafts of processes that were killed. */
void disk_tidy(const char *dir, int64_t most);

#endif
