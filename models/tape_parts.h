/* tape_parts.h -- what the files of the tape share. */
#ifndef MODELS_TAPE_PARTS_H
#define MODELS_TAPE_PARTS_H
#include "../util/sentence.h"
#include "tape.h"

/* Memory of its own: the caller's, or a part of the arena while first <= step <= last. */
typedef struct {
  int32_t twin; /* storage of the gradient; 0: none yet */
  int32_t fixed, kept;
  ambi_buf at;         /* fixed */
  uint64_t bytes;      /* otherwise */
  uint64_t offset;     /* in the arena */
  int64_t first, last; /* steps; first > last: never used */
  int32_t copy;        /* of a storage, inside the segment that is being done again */
} storage;

typedef struct {
  int32_t store;
  uint64_t offset;         /* bytes */
  ambi_tensor shape, grad; /* grad: dtype and strides of the gradient */
  int32_t needs_grad;
} view;

/* A forward op as it was written. */
typedef struct {
  ambi_op op;
  value io[AMBI_MAX_PRIMALS];
  int32_t segment; /* 0: none */
} record;

typedef struct {
  const ambi_plan *plan;
  ambi_plan_info info;
  ambi_op op;
  value slot[AMBI_SLOTS];
  ambi_buf buf[AMBI_SLOTS]; /* after tape_finish */
} step;

/* A gradient that some step has written. */
typedef struct {
  int32_t store;
  uint64_t offset;
  ambi_tensor region;
} written;

struct tape {
  ambi_device *dev;
  storage *store; /* [0] is not used, nor is view[0] */
  view *view;
  record *record;
  step *step;
  written *grad;
  ambi_plan **plan;
  ambi_op *planned; /* the op of each plan: equal ones share it */
  int64_t stores, views, records, steps, grads, plans;
  int64_t room_stores, room_views, room_records, room_steps, room_grads, room_plans, room_planned;
  int32_t segment, segments, accumulate;
  ambi_buf arena, workspace;
  uint64_t arena_bytes, workspace_bytes;
  ambi_status status;
  char why[SENTENCE_BYTES];
};

/* Keeps the first failure; returns it. */
ambi_status tape_fail(tape *t, ambi_status s, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Space for one more of `size` bytes behind `count` of them; 0 after a failure. */
int tape_grow(tape *t, void **list, int64_t count, int64_t *room, size_t size);
value tape_add_view(tape *t, view v);
int32_t tape_add_store(tape *t, storage s);
/* The plan of an op, one for all equal ones; NULL after a failure. */
const ambi_plan *tape_plan(tape *t, const ambi_op *op);
void tape_add_step(tape *t, const ambi_plan *plan, const ambi_op *op, const value slot[AMBI_SLOTS]);
/* Drops steps that nothing needs, gives every storage its place, and allocates. */
ambi_status tape_place(tape *t);

#endif
