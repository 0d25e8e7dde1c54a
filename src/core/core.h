/* core.h -- what the core, the ops and the backends share. The core knows no op by name, no device and no math.
 *
 * A call becomes a `problem`: the caller's ambi_op, checked and completed. An op (op_def) supplies two functions:
 *   shapes(p)  checks its shapes and says what its outputs look like            (before the core completes slots)
 *   recipe(p)  lays out the loops every backend will run, in the op's own struct (after)
 * A backend turns a problem into a plan and runs it.                                                              */
#ifndef AMBI_CORE_H
#define AMBI_CORE_H
#include <stdbool.h>

#include "ambi/ambi.h"

typedef struct problem problem;

typedef struct op_def {
  ambi_op_info info;
  uint32_t backward_reads; /* inputs that backward looks at when they are present             */
  bool sums_gradients;     /* a stride of 0 in a gradient is a sum over that axis             */
  ambi_dtype sums;         /* what sums are kept in; AMBI_NONE: what the arithmetic is in     */
  ambi_status (*shapes)(problem *p);
  ambi_status (*recipe)(problem *p);
} op_def;

enum { RECIPE_BYTES = 3072 };

struct problem {
  const op_def *def;
  ambi_op op;                /* attributes, with defaults filled in                             */
  uint32_t has;              /* primal slots that take part                                     */
  uint32_t reads, writes;    /* slots that run looks at                                         */
  uint32_t accumulates;      /* gradient slots that are added to                                */
  ambi_tensor t[AMBI_SLOTS]; /* of every slot in reads | writes; primals in `has` too           */
  ambi_dtype compute;        /* AMBI_F64 when any floating slot is f64, else AMBI_F32           */
  uint64_t flops, bytes;
  _Alignas(16) unsigned char recipe[RECIPE_BYTES];
};

static inline ambi_dtype sums_of(const problem *p) { return p->def->sums ? p->def->sums : p->compute; }
static inline bool has_slot(const problem *p, int slot) { return (p->has & AMBI_BIT(slot)) != 0; }
static inline bool reads_slot(const problem *p, int slot) { return (p->reads & AMBI_BIT(slot)) != 0; }
static inline bool writes_slot(const problem *p, int slot) { return (p->writes & AMBI_BIT(slot)) != 0; }
static inline bool is_backward(const problem *p) { return p->op.pass == AMBI_BACKWARD; }

#define TRY(call)                 \
  do {                            \
    ambi_status s_ = (call);      \
    if (s_ != AMBI_OK) return s_; \
  } while (0)

/* ---- status.c: the thread's error sentence ---- */
enum { ERROR_BYTES = 640 };
ambi_status fail(ambi_status s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "rmsnorm: slot dw: ..." */
ambi_status fail_slot(ambi_status s, const problem *p, int slot, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ambi_dtype_size for inner loops, where t is known to be a dtype */
static inline int64_t dtype_bytes(ambi_dtype t) {
  static const uint8_t bytes[] = {
      [AMBI_F32] = 4, [AMBI_F16] = 2, [AMBI_BF16] = 2, [AMBI_F64] = 8, [AMBI_I32] = 4, [AMBI_I64] = 8, [AMBI_U8] = 1};
  return bytes[t];
}

/* ---- tensor.c ---- */
bool is_float(ambi_dtype t);
bool mul_overflows(int64_t a, int64_t b, int64_t *out); /* also true for a negative product      */
bool same_shape(const ambi_tensor *a, const ambi_tensor *b);
bool same_view(const ambi_tensor *a, const ambi_tensor *b); /* dtype, shape and strides of axes longer than 1 */
bool self_overlaps(const ambi_tensor *t);                   /* two indices may name one element   */
bool tensor_range(const ambi_tensor *t, int64_t *low, int64_t *high); /* bytes from element 0; false: overflow */
bool views_overlap(const ambi_tensor *a, intptr_t at_a, const ambi_tensor *b, intptr_t at_b);
void shape_text(const ambi_tensor *t, char *out, size_t n); /* "(4, 33)"                           */

/* ---- shapes.c: what an op's shapes() is written with ---- */
/* Slot s must be (shape): checked when described, filled in as dense of `dtype` when not; AMBI_OK when absent. */
ambi_status expect(problem *p, int slot, ambi_dtype dtype, int ndim, const int64_t *shape);
ambi_status expect_like(problem *p, int slot, int other);       /* the shape and, by default, dtype of `other` */
ambi_status expect_one(problem *p, int slot, ambi_dtype dtype); /* one element, of any rank; by default without axes */
ambi_status expect_rank(const problem *p, int slot, int min, int max);
ambi_status expect_dtype(const problem *p, int slot, ambi_dtype dtype);
/* In recipe(): an attribute that the arithmetic of this problem can hold, neither infinite there nor 0 */
ambi_status expect_number(const problem *p, const char *name, double value);

/* ---- grid.c: an index space that several slots share ---- */
typedef struct {
  int32_t ndim;  /* 0: one point */
  int64_t count; /* points       */
  int64_t shape[AMBI_MAX_DIMS];
  int64_t stride[AMBI_SLOTS][AMBI_MAX_DIMS]; /* in elements */
} grid;

/* Axes [first, last) of every slot in `slots` (which must agree there), merged where all strides allow it.
 * With `sorted`, axes are reordered by the strides of `slots`' highest slot, so the last is the densest.  */
void grid_make(grid *g, const problem *p, uint32_t slots, int first, int last, bool sorted);
int64_t grid_offset(const grid *g, int slot, int64_t index); /* element offset of point `index` */

/* ---- registry.c, plan.c, backend.c ---- */
const op_def *find_op(ambi_kind kind);
ambi_status make_problem(const ambi_op *op, problem *p);
/* "rmsnorm.backward bf16 cpu/avx512 rows": the dtype is that of the first floating slot */
void name_kernel(ambi_plan *plan, const char *device, const char *isa, const char *variant);
/* What ambi_run asks of its arguments; all: AMBI_SLOTS buffers, the absent ones zero */
ambi_status check_run(const ambi_plan *plan, const ambi_stream *s, const ambi_buf *slots, size_t n, ambi_buf workspace,
                      ambi_buf *all);

/* Events: what core/event.c leaves to a backend. A stream of NULL is the device's own. */
typedef struct {
  ambi_status (*open)(ambi_event *e);
  void (*close)(ambi_event *e);
  ambi_status (*record)(ambi_event *e, ambi_stream *s); /* sets e->in_graph */
  ambi_status (*hold)(ambi_stream *s, ambi_event *e);   /* the stream waits */
  ambi_status (*wait)(ambi_event *e);
  ambi_status (*query)(ambi_event *e, int32_t *passed);
  ambi_status (*elapsed)(ambi_event *from, ambi_event *to, double *ms); /* both have passed */
} event_calls;

typedef struct backend {
  const char *name; /* what comes before ':' in a device's name */
  bool flat;        /* buf.data + offset is an address          */
  ambi_status (*open)(ambi_device *dev, const char *which, const ambi_device_options *o);
  void (*close)(ambi_device *dev);
  void (*info)(const ambi_device *dev, ambi_device_info *info);
  ambi_status (*alloc)(ambi_device *dev, size_t bytes, ambi_buf *out);
  void (*free)(ambi_device *dev, ambi_buf b);
  ambi_status (*stream_open)(ambi_stream *s, void *native);
  void (*stream_close)(ambi_stream *s);
  ambi_status (*upload)(ambi_stream *s, ambi_buf dst, const void *src, size_t bytes);
  ambi_status (*download)(ambi_stream *s, void *dst, ambi_buf src, size_t bytes);
  ambi_status (*copy)(ambi_stream *s, ambi_buf dst, ambi_buf src, size_t bytes);
  ambi_status (*wait)(ambi_stream *s);
  ambi_status (*record)(ambi_stream *s);                  /* NULL: the device records no graphs */
  ambi_status (*recorded)(ambi_stream *s, ambi_graph *g); /* g NULL: it is dropped */
  ambi_status (*replay)(const ambi_graph *g, ambi_stream *s);
  void (*forget)(ambi_graph *g);
  const event_calls *events; /* NULL: this build has none */
  bool queues;               /* work given to two streams may be under way at once */
  bool (*has_kernel)(const ambi_device *dev, const problem *p);
  ambi_status (*plan)(ambi_device *dev, ambi_plan *plan); /* plan->p is set: choose, name, size    */
  void (*unplan)(ambi_plan *plan);
  const char *(*source)(const ambi_plan *plan); /* NULL: nothing here compiles text */
  ambi_status (*run)(const ambi_plan *plan, ambi_stream *s, const ambi_buf *slots, ambi_buf workspace);
  bool (*kernel)(const ambi_device *dev, int32_t index, ambi_kernel_info *info); /* false past the last */
} backend;

extern const backend *const backends[]; /* ends in NULL */

struct ambi_device {
  const backend *be;
  char name[64];
  void *impl;
};
struct ambi_stream {
  ambi_device *dev;
  void *impl;
  bool adopted;              /* the caller's own                                       */
  struct side_streams *side; /* together.c's, which not every build has; NULL: none yet */
  void (*close_side)(ambi_stream *s);
};
struct ambi_graph {
  ambi_device *dev;
  void *impl;
};
struct ambi_event {
  ambi_device *dev;
  void *impl;
  uint64_t when; /* the backend's: nanoseconds, where the host's clock is what counts */
  bool recorded, in_graph;
};
struct ambi_plan {
  ambi_device *dev;
  problem p;
  uint64_t workspace;
  ambi_dtype accumulator;
  bool deterministic;
  char kernel[96];
  const void *code; /* the backend's: what run will call */
  uint64_t choice;  /* the backend's: how               */
};

#endif
