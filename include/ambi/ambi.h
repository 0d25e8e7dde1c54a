/* ambi.h -- neural-network kernels that run forwards and backwards, behind one Plan API.
 *
 *   ambi_device *dev;   ambi_device_open("cpu", NULL, &dev);           or "cuda:0", "ref" (the f64 reference)
 *   ambi_op op = { .kind = AMBI_RMSNORM, .pass = AMBI_BACKWARD };
 *   op.t[AMBI_RMSNORM_X] = ambi_dense(AMBI_BF16, 2, (int64_t[]){4096, 1024});
 *   op.t[AMBI_RMSNORM_W] = ambi_dense(AMBI_BF16, 1, (int64_t[]){1024});
 *   op.want = AMBI_BIT(AMBI_RMSNORM_X) | AMBI_BIT(AMBI_RMSNORM_W);     which gradients to write (0: all)
 *   op.accumulate = AMBI_BIT(AMBI_RMSNORM_W);                          dW += instead of =
 *   op.u.rmsnorm.eps = 1e-6;
 *   ambi_plan *plan;    ambi_plan_create(dev, &op, &plan);             once: check, choose, compile
 *   ambi_run(plan, stream, bufs, AMBI_SLOTS, workspace);               many times: launch only
 *
 * Rules that hold everywhere
 *  - A zeroed struct means "all defaults". A zeroed ambi_buf or ambi_tensor means "absent". So where an attribute's
 *    default is not 0, as of softmax's scale, 0 cannot be asked for: `ambi info OP` names defaults.
 *  - The caller owns every buffer, workspace included; a plan owns only code. A buffer begins at element (0, .., 0),
 *    also where strides are negative, at a multiple of the element's size.
 *  - ambi_run allocates nothing, compiles nothing and never waits for the device.
 *  - A plan is immutable: any threads may run it at once on different buffers. A stream belongs to one thread,
 *    and a graph to one at a time. Threads share a device: they may make plans, allocate, open streams and
 *    run on the device's own stream (NULL) at once.
 *  - After fork(), a child may go on using cpu and ref, in one thread; it may use nothing of cuda.
 *  - Same inputs, same plan, same device: same bits, for any number of threads. (cuda: in buffers aligned to 16
 *    bytes, as ambi_alloc's are; matrix products of other buffers are computed another way.)
 *  - An output may not overlap an input, unless the op names the pair as in-place and both are the same view.
 *  - A tensor has at most 2^56 elements, axes of 0 counted as 1.
 *  - Every failure says why: ambi_error() (this thread, until its next failing call).
 *  - Storage is f32, f16, bf16 or f64, mixed freely between slots. Arithmetic is in f64 when any floating slot
 *    is f64 (single numbers, such as a learning rate, and grad_norm's partial aside), in f32 otherwise. Conversions
 *    round to nearest even and keep NaN.
 *
 * ambi does not: own tensors, build graphs, differentiate for you, print, or exit. Its state is in devices; the only
 * other state is each thread's last error, and a fork() handler once a cpu device has been opened.           */
/* Enums of slots and attributes read best as lines. */
/* clang-format off */
#ifndef AMBI_H
#define AMBI_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define AMBI_API
#else
#define AMBI_API __attribute__((visibility("default")))
#endif

#define AMBI_VERSION 100                       /* major*10000 + minor*100 + patch                    */
#define AMBI_MAX_DIMS 8
#define AMBI_MAX_PRIMALS 16                    /* tensors of one op: inputs, then outputs            */
#define AMBI_GRAD(s) ((s) + AMBI_MAX_PRIMALS)  /* slot of the gradient of slot s                     */
#define AMBI_SLOTS (2 * AMBI_MAX_PRIMALS)
#define AMBI_BIT(s) (UINT32_C(1) << (s))

typedef enum {
  AMBI_OK = 0,
  AMBI_INVALID,        /* the call is wrong: ambi_error() says where                                 */
  AMBI_UNSUPPORTED,    /* the call is right, but no kernel here does it                              */
  AMBI_NO_MEMORY,
  AMBI_NO_DEVICE,
  AMBI_COMPILE_FAILED,
  AMBI_DEVICE_LOST,
  AMBI_DENIED,
  AMBI_TIMEOUT
} ambi_status;

typedef enum { AMBI_NONE = 0, AMBI_F32, AMBI_F16, AMBI_BF16, AMBI_F64, AMBI_I32, AMBI_I64, AMBI_U8 } ambi_dtype;
typedef enum { AMBI_FORWARD = 0, AMBI_BACKWARD } ambi_pass;

typedef struct ambi_device ambi_device; /* opaque; _open/_create make, _close/_destroy free          */
typedef struct ambi_stream ambi_stream;
typedef struct ambi_event ambi_event;
typedef struct ambi_plan ambi_plan;
typedef struct ambi_graph ambi_graph;

AMBI_API uint32_t ambi_version(void);          /* of the library at run time                         */
AMBI_API const char *ambi_error(void);         /* a sentence: slot, expected, actual. Never NULL     */
AMBI_API const char *ambi_status_name(ambi_status s);
AMBI_API const char *ambi_dtype_name(ambi_dtype t);
AMBI_API size_t ambi_dtype_size(ambi_dtype t); /* bytes; 0 for AMBI_NONE                             */

/* ---- tensors: shape without memory, memory without shape (element strides, as in DLPack) ----
 * A stride of 0 repeats an input along that axis. In a gradient it means "sum over that axis" (elementwise ops). */
typedef struct {
  ambi_dtype dtype;
  int32_t ndim;
  int64_t shape[AMBI_MAX_DIMS], stride[AMBI_MAX_DIMS];
} ambi_tensor;

typedef struct {
  void *data;      /* pointer or CUdeviceptr */
  uint64_t offset; /* bytes                  */
} ambi_buf;

AMBI_API ambi_tensor ambi_dense(ambi_dtype t, int32_t ndim, const int64_t *shape); /* row-major        */
/* Half 0 or 1 of a packed [.., 2D, ..] tensor along `axis`, and where it starts in bytes; zeroed if there is none. */
AMBI_API ambi_tensor ambi_split(const ambi_tensor *packed, int axis, int half, uint64_t *offset);
AMBI_API int64_t ambi_numel(const ambi_tensor *t); /* elements; -1 when it overflows                  */
/* Bytes from the first byte of the lowest element to the last of the highest; -1 when it overflows.   */
AMBI_API int64_t ambi_span(const ambi_tensor *t);

/* ---- devices, memory, streams ---- */
typedef struct {
  void *native;          /* cuda: adopt a CUcontext; NULL: the device's primary one                  */
  int32_t threads;       /* CPU: 0 = all cores                                                       */
  const char *max_isa;   /* for tests. CPU: cap dispatch ("baseline", "avx2", "avx512", ..); CUDA: kernels
                            made for each plan ("special"), or a few that serve all ("general")       */
  const char *cache_dir; /* compiled kernels; NULL = the user's cache folder, "" = keep none         */
  void (*notify)(void *context, const char *what); /* called before each compilation, by the thread that does
                            it: maybe by several at once, some of them ambi's own, while the thread that makes the plan
                            waits for them. It must not wait for anything that thread holds           */
  void *notify_context;
} ambi_device_options;

typedef struct {
  const char *name;     /* "cpu"                                                                     */
  const char *isa;      /* "avx512"                                                                  */
  const char *features; /* what else was found, for `ambi info`                                      */
  int32_t threads;
  uint64_t cache_bytes; /* what a process can count on: CPU last level, at most 32 MiB; CUDA L2      */
} ambi_device_info;

AMBI_API ambi_status ambi_device_open(const char *name, const ambi_device_options *o, ambi_device **out);
AMBI_API void ambi_device_close(ambi_device *dev); /* after its plans, graphs, streams, events, buffers */
AMBI_API ambi_status ambi_device_get_info(const ambi_device *dev, ambi_device_info *info);
AMBI_API ambi_status ambi_alloc(ambi_device *dev, size_t bytes, ambi_buf *out); /* 256-aligned        */
AMBI_API void ambi_free(ambi_device *dev, ambi_buf b);
/* Host memory must stay valid and unchanged until the stream has been waited for; if recorded, for every replay.
 * Only ambi_run and the calls of events accept a stream of NULL, the device's own. To wait for that one, record an
 * event on it and wait for the event: ambi_event_record(e, NULL), ambi_event_wait(e).                          */
AMBI_API ambi_status ambi_upload(ambi_stream *s, ambi_buf dst, const void *src, size_t bytes);
AMBI_API ambi_status ambi_download(ambi_stream *s, void *dst, ambi_buf src, size_t bytes);
AMBI_API ambi_status ambi_copy(ambi_stream *s, ambi_buf dst, ambi_buf src, size_t bytes); /* inside the device */
AMBI_API ambi_status ambi_stream_create(ambi_device *dev, void *native, ambi_stream **out);
AMBI_API void ambi_stream_destroy(ambi_stream *s);
AMBI_API ambi_status ambi_stream_wait(ambi_stream *s);

/* ---- events: a point in the work of a stream, to wait for and to measure from ----
 * An event stands for where it was last recorded; before that, it can only be recorded. One thread uses it at a time.
 * On cpu and ref all work is finished when a call returns, so an event has passed as soon as it is recorded; its time
 * is the host's clock at that moment.
 * While a stream records a graph, events order the work inside it: a second stream joins the recording when it waits
 * for an event of the first, and leaves it when the first waits for an event of the second. Such events have no time,
 * and the host cannot wait for them. stream NULL: the device's own, as in ambi_run.                             */
AMBI_API ambi_status ambi_event_create(ambi_device *dev, ambi_event **out);
AMBI_API void ambi_event_destroy(ambi_event *e);
AMBI_API ambi_status ambi_event_record(ambi_event *e, ambi_stream *s);      /* after all that was given to s so far */
AMBI_API ambi_status ambi_stream_wait_event(ambi_stream *s, ambi_event *e); /* what s is given next comes after e   */
AMBI_API ambi_status ambi_event_wait(ambi_event *e);                        /* the host waits                       */
AMBI_API ambi_status ambi_event_query(ambi_event *e, int32_t *passed);      /* 1: waiting would take no time        */
AMBI_API ambi_status ambi_event_elapsed(ambi_event *from, ambi_event *to, double *ms); /* waits for both            */

/* ---- operations ----
 * op.t[s] describes primal slot s. An absent optional input is left out of the formula.
 * Forward writes every required output, and each optional one that is described or in `want`;
 *   outputs may be left zero and are then inferred.
 * Backward reads the primals its formula needs (an optional saved output that is described is read instead of
 *   recomputed), the gradient of every required output, and that of each optional output whose grad[s] is described.
 *   It writes AMBI_GRAD(s) for every input s in `want`; want = 0 means every differentiable input that is described.
 * AMBI_GRAD(s) has the dtype, shape and strides of s unless grad[s] is given (f32 gradients of bf16 weights).
 * `ambi info OP`, or ambi_op_get_info, gives formula, slots and attributes of each.                           */
typedef enum {
  AMBI_OP_NONE = 0,
  AMBI_UNARY,
  AMBI_GATED,
  AMBI_ADD,
  AMBI_CAST,
  AMBI_COPY,
  AMBI_FILL,
  AMBI_RMSNORM,
  AMBI_LAYERNORM,
  AMBI_LINEAR,
  AMBI_CONV1D,
  AMBI_SELECTIVE_SCAN,
  AMBI_ADAMW,
  AMBI_GRAD_NORM,
  AMBI_SOFTMAX,
  AMBI_CROSS_ENTROPY,
  AMBI_LINEAR_CROSS_ENTROPY,
  AMBI_EMBEDDING,
  AMBI_ROPE,
  AMBI_ATTENTION,
  AMBI_SSD,
  AMBI_KINDS /* one past the last */
} ambi_kind;

/* Slots, and their shapes as `ambi info OP` has them */
/* unary: x (..), y (..) */
enum { AMBI_UNARY_X, AMBI_UNARY_Y };
/* gated: v (..), g (..), y (..) */
enum { AMBI_GATED_V, AMBI_GATED_G, AMBI_GATED_Y };
/* add: a (..), b (..), y (..) */
enum { AMBI_ADD_A, AMBI_ADD_B, AMBI_ADD_Y };
/* cast: x (..), y (..) */
enum { AMBI_CAST_X, AMBI_CAST_Y };
/* copy: x (..), y (..) */
enum { AMBI_COPY_X, AMBI_COPY_Y };
/* fill: y (..) */
enum { AMBI_FILL_Y };
/* rmsnorm: x (.., C), w (C), residual (.., C), y (.., C), sum (.., C), rstd (..) */
enum { AMBI_RMSNORM_X, AMBI_RMSNORM_W, AMBI_RMSNORM_RESIDUAL, AMBI_RMSNORM_Y, AMBI_RMSNORM_SUM, AMBI_RMSNORM_RSTD };
/* layernorm: x (.., C), w (C), b (C), residual (.., C), y (.., C), sum (.., C), mean (..), rstd (..) */
enum {
  AMBI_LAYERNORM_X, AMBI_LAYERNORM_W, AMBI_LAYERNORM_B, AMBI_LAYERNORM_RESIDUAL,
  AMBI_LAYERNORM_Y, AMBI_LAYERNORM_SUM, AMBI_LAYERNORM_MEAN, AMBI_LAYERNORM_RSTD
};
/* linear: x (.., K), w (N, K), b (N), y (.., N) */
enum { AMBI_LINEAR_X, AMBI_LINEAR_W, AMBI_LINEAR_B, AMBI_LINEAR_Y };
/* conv1d: x (B, D, L), w (D, W), b (D), x0 (B, D, W-1), y (B, D, L), x_last (B, D, W-1) */
enum { AMBI_CONV1D_X, AMBI_CONV1D_W, AMBI_CONV1D_B, AMBI_CONV1D_X0, AMBI_CONV1D_Y, AMBI_CONV1D_X_LAST };
/* selective_scan: u (B, D, L), delta (B, D, L), a (D, N), b (B, G, N, L), (B, N, L) or (D, N),
 *   c (B, G, N, L), (B, N, L) or (D, N), d (D), z (B, D, L), delta_bias (D), h0 (B, D, N), seq_idx (B, L),
 *   y (B, D, L), h_last (B, D, N), chunk_state (B, ceil(L/64), D, N) */
enum {
  AMBI_SCAN_U, AMBI_SCAN_DELTA, AMBI_SCAN_A, AMBI_SCAN_B, AMBI_SCAN_C, AMBI_SCAN_D, AMBI_SCAN_Z,
  AMBI_SCAN_DELTA_BIAS, AMBI_SCAN_H0, AMBI_SCAN_SEQ_IDX, AMBI_SCAN_Y, AMBI_SCAN_H_LAST, AMBI_SCAN_CHUNK_STATE
};
/* adamw: p (..), g (..), m (..), v (..), lr (), step (), scale (), skip (), p_out (..), m_out (..), v_out (..),
 *   p_copy (..), step_out () */
enum {
  AMBI_ADAMW_P, AMBI_ADAMW_G, AMBI_ADAMW_M, AMBI_ADAMW_V, AMBI_ADAMW_LR, AMBI_ADAMW_STEP, AMBI_ADAMW_SCALE,
  AMBI_ADAMW_SKIP, AMBI_ADAMW_P_OUT, AMBI_ADAMW_M_OUT, AMBI_ADAMW_V_OUT, AMBI_ADAMW_P_COPY, AMBI_ADAMW_STEP_OUT
};
/* grad_norm: g (..), partial () or (P), norm (), sumsq (), scale (), nonfinite () */
enum {
  AMBI_GRAD_NORM_G, AMBI_GRAD_NORM_PARTIAL, AMBI_GRAD_NORM_NORM, AMBI_GRAD_NORM_SUMSQ, AMBI_GRAD_NORM_SCALE,
  AMBI_GRAD_NORM_NONFINITE
};
/* softmax: x (.., C), y (.., C) */
enum { AMBI_SOFTMAX_X, AMBI_SOFTMAX_Y };
/* cross_entropy: logits (.., C), target (..), loss () or (..), lse (..), grad (.., C) */
enum { AMBI_CE_LOGITS, AMBI_CE_TARGET, AMBI_CE_LOSS, AMBI_CE_LSE, AMBI_CE_GRAD };
/* linear_cross_entropy: x (.., K), w (C, K), b (C), target (..), loss () or (..), lse (..) */
enum { AMBI_LINEAR_CE_X, AMBI_LINEAR_CE_W, AMBI_LINEAR_CE_B, AMBI_LINEAR_CE_TARGET, AMBI_LINEAR_CE_LOSS, AMBI_LINEAR_CE_LSE };
/* embedding: tokens (..), w (V, C), y (.., C) */
enum { AMBI_EMBEDDING_TOKENS, AMBI_EMBEDDING_W, AMBI_EMBEDDING_Y };
/* rope: x (.., L, D), positions (L) or (B, L), frequencies (dims/2), y (.., L, D) */
enum { AMBI_ROPE_X, AMBI_ROPE_POSITIONS, AMBI_ROPE_FREQUENCIES, AMBI_ROPE_Y };
/* attention: q (B, H, L, D), k (B, G, S, D), v (B, G, S, D), lengths (B), o (B, H, L, D), lse (B, H, L) */
enum { AMBI_ATTENTION_Q, AMBI_ATTENTION_K, AMBI_ATTENTION_V, AMBI_ATTENTION_LENGTHS, AMBI_ATTENTION_O, AMBI_ATTENTION_LSE };
/* ssd: x (B, L, H, P), delta (B, L, H), a (H), b (B, L, G, N), c (B, L, G, N), d (H), delta_bias (H),
 *   h0 (B, H, P, N), seq_idx (B, L), y (B, L, H, P), h_last (B, H, P, N) */
enum {
  AMBI_SSD_X, AMBI_SSD_DELTA, AMBI_SSD_A, AMBI_SSD_B, AMBI_SSD_C, AMBI_SSD_D, AMBI_SSD_DELTA_BIAS, AMBI_SSD_H0,
  AMBI_SSD_SEQ_IDX, AMBI_SSD_Y, AMBI_SSD_H_LAST
};

/* Names of unary functions and gates, in the order of their numbers: `ambi info unary`, `ambi info gated`. */
typedef enum {
  AMBI_SILU = 0, AMBI_GELU, AMBI_GELU_TANH, AMBI_RELU, AMBI_RELU6, AMBI_LEAKY_RELU, AMBI_ELU, AMBI_SELU, AMBI_SIGMOID,
  AMBI_LOGSIGMOID, AMBI_TANH, AMBI_SOFTPLUS, AMBI_SOFTSIGN, AMBI_MISH, AMBI_HARDSWISH, AMBI_HARDSIGMOID, AMBI_HARDTANH,
  AMBI_RELU_SQUARED, AMBI_EXP, AMBI_LOG, AMBI_SQRT, AMBI_RSQRT, AMBI_SQUARE, AMBI_ABS, AMBI_NEG, AMBI_RECIPROCAL,
  AMBI_SIN, AMBI_COS, AMBI_ERF, AMBI_IDENTITY, AMBI_FUNCTIONS
} ambi_function;
typedef enum { AMBI_SWIGLU = 0, AMBI_GLU, AMBI_REGLU, AMBI_GEGLU, AMBI_GEGLU_TANH, AMBI_BILINEAR, AMBI_GATES } ambi_gate;
typedef enum { AMBI_MEAN = 0, AMBI_SUM, AMBI_EACH } ambi_reduction; /* of a loss: over the rows that count, or none */

typedef struct {
  ambi_kind kind;
  ambi_pass pass;
  uint32_t want, accumulate; /* bit sets of primal slots */
  ambi_tensor t[AMBI_MAX_PRIMALS], grad[AMBI_MAX_PRIMALS];
  union {
    uint64_t reserved[16];                                /* first, so that {0} zeroes all of it        */
    struct { double a, b; int32_t function; } unary;      /* a, b: both 0 = the function's own defaults */
    struct { double beta; int32_t gate; } gated;
    struct { double alpha, beta; } add;                   /* 0 = 1: y = alpha a + beta b                */
    struct { double value; } fill;
    struct { double eps, offset; int32_t cast; } rmsnorm; /* cast 1: round x r to the dtype of x first  */
    struct { double eps; } layernorm;
    struct { int32_t silu; } conv1d;
    struct { int32_t softplus, zoh, a_log; } selective_scan;
    struct { double beta1, beta2, eps, weight_decay; } adamw;
    struct { double max_norm; } grad_norm;
    struct { int32_t tf32; } linear;                      /* 1: f32 products may round to 10 bits       */
    struct { double scale; int32_t log; } softmax;        /* scale 0 = 1                                */
    struct { double label_smoothing, z_loss, softcap; int32_t ignore_index, reduction; } cross_entropy;
    struct { double label_smoothing, z_loss, softcap; int32_t ignore_index, reduction; } linear_cross_entropy;
    struct { double theta; int32_t interleaved, dims, offset; } rope; /* dims 0 = all                    */
    struct { double scale, softcap; int32_t causal, window; } attention; /* scale 0 = 1/sqrt(D)         */
    struct { int32_t softplus, a_log; } ssd;
  } u;
} ambi_op;

/* ---- plans ---- */
typedef struct {
  const char *kernel;     /* "rmsnorm.backward bf16 cpu/avx512 rows": the first floating dtype     */
  uint64_t workspace;     /* bytes, may be 0; of a buffer aligned to 64 that overlaps no slot        */
  uint32_t reads, writes; /* slots ambi_run looks at: each must have a buffer, unless it is empty    */
  uint64_t flops, bytes;  /* useful work, for rooflines                                              */
  ambi_dtype accumulator; /* what sums are kept in                                                   */
  int32_t deterministic;  /* 1: same bits every run                                                  */
} ambi_plan_info;

AMBI_API ambi_status ambi_check(ambi_device *dev, const ambi_op *op); /* would it plan? compiles nothing */
AMBI_API ambi_status ambi_plan_create(ambi_device *dev, const ambi_op *op, ambi_plan **out);
AMBI_API void ambi_plan_destroy(ambi_plan *p);
AMBI_API ambi_status ambi_plan_get_info(const ambi_plan *p, ambi_plan_info *info);
AMBI_API ambi_tensor ambi_plan_tensor(const ambi_plan *p, int slot); /* as described or inferred; zero: not used */
AMBI_API const char *ambi_plan_source(const ambi_plan *p);          /* all its CUDA text, or NULL              */
/* stream NULL: the device's own. slots: n buffers by slot number; those past n are absent. */
AMBI_API ambi_status ambi_run(const ambi_plan *p, ambi_stream *s, const ambi_buf *slots, size_t n, ambi_buf workspace);

/* Runs that do not depend on each other, such as an optimizer's over its tensors, in any order and side by side where
 * the device can: small ones fill it only together. All of them come after earlier work on s, and later work on s comes
 * after all of them. They may share what they read; no other may touch what one writes or has as workspace (AdamW's
 * step_out over a step that others read belongs in a later run): that is not checked. If one is refused, none has run;
 * after any other failure some may have. The stream is one of the caller's, not NULL: its first call may create a few
 * more, to spread the runs over.                                                                                  */
typedef struct {
  const ambi_plan *plan;
  const ambi_buf *slots; /* n of them, as for ambi_run */
  size_t n;
  ambi_buf workspace;
} ambi_task;
AMBI_API ambi_status ambi_run_all(const ambi_task *tasks, size_t count, ambi_stream *s);

/* ---- graphs: what runs on a stream between record and recorded is kept instead of run, and replayed as one ----
 * Buffers are those of the recording, so what changes from step to step (a learning rate) lives in device memory.
 * AMBI_UNSUPPORTED on devices that have none. After a run that failed, ambi_recorded with out NULL ends the recording
 * and drops it; ambi_error() still says what failed.                                                            */
AMBI_API ambi_status ambi_record(ambi_stream *s);
AMBI_API ambi_status ambi_recorded(ambi_stream *s, ambi_graph **out);
AMBI_API ambi_status ambi_replay(const ambi_graph *g, ambi_stream *s);
AMBI_API void ambi_graph_destroy(ambi_graph *g);

/* ---- reflection: what drives bindings, docs, `ambi info` and the test harness ---- */
enum {
  AMBI_SLOT_OUTPUT = 1,   /* otherwise an input                                                      */
  AMBI_SLOT_OPTIONAL = 2, /* may be absent                                                           */
  AMBI_SLOT_NO_GRAD = 4,  /* no gradient flows into it (input) or arrives on it (output)             */
  AMBI_SLOT_SAVED = 8,    /* an output of forward that backward reads when it is described           */
  AMBI_SLOT_INTEGER = 16, /* i32, i64 or u8; otherwise f32, f16, bf16 or f64                         */
  AMBI_SLOT_ANY_DTYPE = 32
};
enum { AMBI_ATTR_F64 = 0, AMBI_ATTR_I32, AMBI_ATTR_BOOL, AMBI_ATTR_ENUM };

typedef struct {
  const char *name, *shape, *doc; /* shape in the op's own symbols: "(B, D, L)"                      */
  uint32_t flags;
} ambi_slot_info;

typedef struct {
  const char *name, *doc;
  int32_t type;
  size_t offset; /* in ambi_op */
  double def, min, max;
  const char *const *names; /* AMBI_ATTR_ENUM: NULL-terminated                                       */
} ambi_attr_info;

typedef struct {
  const char *name, *formula, *gradient, *doc;
  int32_t slots, attrs;
  const ambi_slot_info *slot;
  const ambi_attr_info *attr;
  int32_t backward;            /* 0: the op has no backward pass                                     */
  const int8_t (*in_place)[2]; /* {output slot, input slot} pairs that may be one view; ends in {-1} */
} ambi_op_info;

AMBI_API const ambi_op_info *ambi_op_get_info(ambi_kind kind); /* NULL for no such op                 */

typedef struct {
  ambi_kind kind;
  ambi_pass pass;
  ambi_dtype accumulator;
  const char *isa, *name;
  int32_t deterministic;
} ambi_kernel_info;
/* The kernels a device would choose from, best first within an op; AMBI_INVALID past the last. */
AMBI_API ambi_status ambi_device_kernel(const ambi_device *dev, int32_t index, ambi_kernel_info *info);

#ifdef __cplusplus
}
#endif
#endif
