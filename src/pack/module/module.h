/* module.h -- what a kernel of a pack is written with: the ABI of docs/packs.md, and how a call becomes an ambi_op.
 *
 * A module is one op's cpu.c, compiled for wasm32 and f32, and the file of its family beside this one. The family says
 * how many elements each region must have and which slot lies where; module.c checks all of it and runs the op. */
#ifndef AMBI_PACK_MODULE_H
#define AMBI_PACK_MODULE_H
#include "backends/cpu/kernel.h"

enum { DONE, BAD_INPUT, BAD_OUTPUT, BAD_PARAMS, NO_ROOM, NOT_IMPLEMENTED, INTERNAL }; /* return codes of the ABI */

typedef struct {
  uint32_t offset, size; /* bytes, from the start of linear memory */
} region;

typedef struct {
  region a, b, out, scratch, params;
} descriptor;
_Static_assert(sizeof(descriptor) == 40, "the ABI");

typedef struct {
  uint32_t name, name_length;
  uint16_t major, minor, patch;
  uint8_t supports_backward, pad;
} information;
_Static_assert(sizeof(information) == 16, "the ABI");

enum { MOST_PARAMS_WORDS = 8 };
typedef union {
  uint32_t u;
  float f;
} word;

typedef struct {
  descriptor d;
  word params[MOST_PARAMS_WORDS];
  uint32_t words; /* of params */
  ambi_op op;
  region at[AMBI_SLOTS]; /* where the slots that take part lie */
} call;

typedef struct {
  const char *name; /* "swiglu_f32" */
  ambi_kind kind;
  const op_def *op;
  const cpu_kernel *kernel;
  uint32_t sizes[2];                         /* of params, in words: without and with what may be left out */
  int (*plan)(call *c);                      /* fills op and at; a return code                              */
  void (*adjust)(const call *c, problem *p); /* attributes whose zero is not a default; may be NULL         */
  void (*finish)(const call *c);             /* after forward; may be NULL                                  */
} family;

extern const family module; /* the one of this module */

/* ---- what a plan is written with ---- */
#define CHECK(code_of)               \
  do {                               \
    int code_ = (code_of);           \
    if (code_ != DONE) return code_; \
  } while (0)

static inline bool backward_of(const call *c) { return c->op.pass == AMBI_BACKWARD; }

/* `elements` floats of a region, from element `first` on */
static inline region part(region r, uint64_t first, uint64_t elements) {
  return (region){r.offset + (uint32_t)(4 * first), (uint32_t)(4 * elements)};
}

static inline bool holds(region r, uint64_t elements) { return elements == r.size / 4 && r.size % 4 == 0; }
static inline bool has_room(region r, uint64_t elements) { return elements > 0 && elements <= r.size / 4; }

static inline void describe(call *c, int slot, uint32_t rows, uint32_t cols) {
  c->op.t[slot] = ambi_dense(AMBI_F32, 2, (int64_t[]){rows, cols});
}
static inline void describe_vector(call *c, int slot, uint32_t n) {
  c->op.t[slot] = ambi_dense(AMBI_F32, 1, (int64_t[]){n});
}

char *address(uint32_t offset); /* in linear memory */

/* The region lies in memory, outside what is the module's own, and is aligned. */
bool in_memory(region r);

/* How many rows of `hidden` the call has. num_elements counts them, as a is (num_elements, hidden_dim); some count
 * single elements, and the size of a tells which. */
int count_rows(const call *c, uint32_t num_elements, uint32_t hidden, uint32_t *rows);

static inline bool finite_word(word w) { return (w.u & 0x7f800000) != 0x7f800000; }

#endif
