/* exec.c -- run one op on one device between guard zones. */
#include "exec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "print.h"
#include "values.h"

enum { GUARD = 256, WORKSPACE_ALIGNMENT = 64 };

int target_open(const char *device, const char *isa, int threads, target *t) {
  memset(t, 0, sizeof *t);
  ambi_device_options o = {.max_isa = isa, .threads = threads, .notify = notify_once};
  ambi_device_info info = {0};
  if (ambi_device_open(device, &o, &t->dev) != AMBI_OK) return -1;
  if (ambi_stream_create(t->dev, NULL, &t->stream) != AMBI_OK || ambi_device_get_info(t->dev, &info) != AMBI_OK) {
    target_close(t);
    return -1;
  }
  snprintf(t->name, sizeof t->name, "%s%s%s", device, info.isa ? "/" : "", info.isa ? info.isa : "");
  return 0;
}

void target_close(target *t) {
  if (t->stream) ambi_stream_destroy(t->stream);
  if (t->dev) ambi_device_close(t->dev);
  memset(t, 0, sizeof *t);
}

char *slot_name(const ambi_op *op, int slot, char *out, size_t n) {
  const ambi_op_info *info = ambi_op_get_info(op->kind);
  int primal = slot % AMBI_MAX_PRIMALS;
  snprintf(out, n, "%s%s", slot >= AMBI_MAX_PRIMALS ? "d" : "", primal < info->slots ? info->slot[primal].name : "?");
  return out;
}

/* ---- one allocation: what was uploaded, what came back, and which bytes were to change ---- */
typedef struct {
  ambi_buf buf;
  size_t bytes, origin; /* origin: where element 0 of the slot it belongs to lies */
  unsigned char *before, *after, *owned;
} block;

typedef struct {
  exec *e;
  const target *t;
  ambi_plan *plan;
  block blocks[AMBI_SLOTS + 1]; /* by slot; the last is the workspace */
} session;

static int home(const exec *e, int slot) { return e->share[slot] ? e->share[slot] - 1 : slot; }
static int used(const exec *e, int slot) {
  return ((e->reads | e->writes) & AMBI_BIT(slot)) && ambi_numel(&e->t[slot]) > 0;
}
static int is_read(const exec *e, int slot) {
  int added = slot >= AMBI_MAX_PRIMALS && (e->op.accumulate & AMBI_BIT(slot - AMBI_MAX_PRIMALS));
  return (e->reads & AMBI_BIT(slot)) || added;
}

static unsigned char *new_bytes(size_t n) {
  unsigned char *p = malloc(n ? n : 1);
  if (p) return p;
  fprintf(stderr, "ambi: no memory for %zu bytes\n", n);
  exit(2);
}

/* Guards and gaps: NaN in what is only read; finite and different from byte to byte in what is written, because an
 * all-ones NaN survives arithmetic and would hide a write. */
static void block_new(block *b, size_t bytes, int written) {
  b->bytes = bytes;
  b->before = new_bytes(bytes);
  b->after = new_bytes(bytes);
  b->owned = new_bytes(bytes);
  memset(b->owned, 0, bytes);
  memset(b->before, 0xff, bytes);
  unsigned char pattern[64];
  for (unsigned i = 0; i < sizeof pattern; i++) pattern[i] = (unsigned char)(0x21 + i);
  for (size_t i = 0; written && i < bytes; i += sizeof pattern)
    memcpy(b->before + i, pattern, bytes - i < sizeof pattern ? bytes - i : sizeof pattern);
}

/* Sets every byte of the elements of a view to `byte`. */
typedef struct {
  unsigned char *at, byte;
  int64_t size;
} stain;

static void stain_run(void *context, int64_t index, int64_t offset, int64_t count, int64_t step) {
  const stain *x = context;
  (void)index;
  if (step == x->size) {
    memset(x->at + offset, x->byte, (size_t)(count * step));
    return;
  }
  for (int64_t i = 0; i < count; i++) memset(x->at + offset + i * step, x->byte, (size_t)x->size);
}

static void stain_view(const ambi_tensor *t, unsigned char *at, unsigned char byte) {
  values_each(t, stain_run, &(stain){at, byte, (int64_t)ambi_dtype_size(t->dtype)});
}

/* Bytes a slot needs before and after element 0 of its home. */
static void slot_extent(const exec *e, int slot, size_t *front, size_t *back) {
  size_t origin = (size_t)values_origin(&e->t[slot]), span = (size_t)ambi_span(&e->t[slot]);
  size_t end = (size_t)e->offset[slot] + span - origin;
  if (origin > *front) *front = origin;
  if (end > *back) *back = end;
}

/* Makes the allocation of every slot that has its own, large enough for those that share it. */
static void make_blocks(session *x) {
  exec *e = x->e;
  for (int h = 0; h < AMBI_SLOTS; h++) {
    size_t front = 0, back = 0, size = 0;
    int written = 0;
    for (int s = 0; s < AMBI_SLOTS; s++) {
      if (!used(e, s) || home(e, s) != h) continue;
      slot_extent(e, s, &front, &back);
      size = ambi_dtype_size(e->t[s].dtype);
      written |= (e->writes & AMBI_BIT(s)) != 0;
    }
    if (back == 0) continue;
    size_t lead = GUARD + (front + GUARD - 1) / GUARD * GUARD + (size_t)e->skew * size;
    block_new(&x->blocks[h], lead + back + GUARD, written);
    x->blocks[h].origin = lead;
  }
}

/* Outputs first, then inputs: an output that shares memory with an input starts as that input. */
static void fill_blocks(session *x) {
  exec *e = x->e;
  for (int writes = 1; writes >= 0; writes--)
    for (int s = 0; s < AMBI_SLOTS; s++) {
      if (!used(e, s)) continue;
      block *b = &x->blocks[home(e, s)];
      unsigned char *at = b->before + b->origin + e->offset[s], *own = b->owned + b->origin + e->offset[s];
      if (writes && (e->writes & AMBI_BIT(s))) {
        stain_view(&e->t[s], at, 0xff); /* NaN in every floating dtype */
        stain_view(&e->t[s], own, 1);
      }
      if (!writes && is_read(e, s)) values_load(&e->t[s], e->in[s], at);
    }
}

static int give_up(session *x, ambi_status s, const char *why) {
  x->e->status = s;
  snprintf(x->e->error, sizeof x->e->error, "%s", why);
  return -1;
}

/* Where slots begin at odd addresses, it is no better aligned than a caller's has to be. */
static void make_workspace(session *x, size_t bytes) {
  block *w = &x->blocks[AMBI_SLOTS];
  w->origin = GUARD + (x->e->skew ? WORKSPACE_ALIGNMENT : 0);
  block_new(w, w->origin + bytes + GUARD, 1);
  memset(w->before + w->origin, 0xff, bytes); /* NaN: nothing may be read before it is written */
  memset(w->owned + w->origin, 1, bytes);
}

static int plan_op(session *x) {
  exec *e = x->e;
  ambi_plan_info info;
  char name[64], why[160];
  ambi_status s = ambi_plan_create(x->t->dev, &e->op, &x->plan);
  if (s == AMBI_OK) s = ambi_plan_get_info(x->plan, &info);
  if (s != AMBI_OK) return give_up(x, s, ambi_error());
  snprintf(e->kernel, sizeof e->kernel, "%s", info.kernel);
  e->reads = info.reads;
  e->writes = info.writes;
  e->accumulator = info.accumulator;
  for (int i = 0; i < AMBI_SLOTS; i++) e->t[i] = ambi_plan_tensor(x->plan, i);
  for (int i = 0; i < AMBI_SLOTS; i++) {
    if (!used(e, i) || !is_read(e, i) || e->in[i]) continue;
    snprintf(why, sizeof why, "the plan reads %s, of which the case knows no values",
             slot_name(&e->op, i, name, sizeof name));
    return give_up(x, AMBI_INVALID, why);
  }
  make_workspace(x, (size_t)info.workspace);
  return 0;
}

/* The run itself, or a graph of it. */
static ambi_status run_plan(session *x, const ambi_buf *slots, ambi_buf workspace) {
  ambi_stream *stream = x->t->stream;
  ambi_graph *graph = NULL;
  ambi_status s = x->e->replayed ? ambi_record(stream) : AMBI_UNSUPPORTED;
  x->e->replayed = s != AMBI_UNSUPPORTED;
  if (s == AMBI_UNSUPPORTED) return ambi_run(x->plan, stream, slots, AMBI_SLOTS, workspace);
  if (s != AMBI_OK) return s;
  s = ambi_run(x->plan, stream, slots, AMBI_SLOTS, workspace);
  const ambi_status ended = ambi_recorded(stream, s == AMBI_OK ? &graph : NULL);
  if (s == AMBI_OK) s = ended;
  if (s == AMBI_OK) s = ambi_replay(graph, stream);
  if (s == AMBI_OK) s = ambi_stream_wait(stream);
  ambi_graph_destroy(graph);
  return s;
}

static int launch(session *x) {
  ambi_buf slots[AMBI_SLOTS] = {{0}}, workspace = {0};
  ambi_status s = AMBI_OK;
  for (int i = 0; i <= AMBI_SLOTS && s == AMBI_OK; i++) {
    block *b = &x->blocks[i];
    if (b->bytes == 0) continue;
    s = ambi_alloc(x->t->dev, b->bytes, &b->buf);
    if (s == AMBI_OK) s = ambi_upload(x->t->stream, b->buf, b->before, b->bytes);
  }
  for (int i = 0; i < AMBI_SLOTS && s == AMBI_OK; i++) {
    const block *b = &x->blocks[home(x->e, i)];
    if (used(x->e, i)) slots[i] = (ambi_buf){b->buf.data, b->buf.offset + b->origin + x->e->offset[i]};
  }
  const block *w = &x->blocks[AMBI_SLOTS];
  workspace = (ambi_buf){w->buf.data, w->buf.offset + w->origin};
  if (s == AMBI_OK) s = run_plan(x, slots, workspace);
  for (int i = 0; i <= AMBI_SLOTS && s == AMBI_OK; i++)
    if (x->blocks[i].bytes) s = ambi_download(x->t->stream, x->blocks[i].after, x->blocks[i].buf, x->blocks[i].bytes);
  if (s == AMBI_OK) s = ambi_stream_wait(x->t->stream);
  return s == AMBI_OK ? 0 : give_up(x, s, ambi_error());
}

/* 64 bytes that are as they were, or all an output's: most are, and need no look at each. */
static int is_clean(const block *b, size_t at) {
  return !memcmp(b->before + at, b->after + at, 64) || !memchr(b->owned + at, 0, 64);
}

/* Names the first byte that changed and belongs to no output. */
static void find_damage(session *x) {
  exec *e = x->e;
  char name[64];
  for (int i = 0; i <= AMBI_SLOTS; i++) {
    const block *b = &x->blocks[i];
    for (size_t k = 0; k < b->bytes; k++) {
      if (k % 64 == 0 && k + 64 <= b->bytes && is_clean(b, k)) k += 63;
      if (b->before[k] == b->after[k] || b->owned[k]) continue;
      snprintf(e->damage, sizeof e->damage, "byte %lld from the start of %s was overwritten and is no output element",
               (long long)k - (long long)b->origin,
               i == AMBI_SLOTS ? "the workspace" : slot_name(&e->op, i, name, sizeof name));
      return;
    }
  }
}

static void read_outputs(session *x) {
  exec *e = x->e;
  for (int s = 0; s < AMBI_SLOTS; s++) {
    if (!(e->writes & AMBI_BIT(s))) continue;
    const block *b = &x->blocks[home(e, s)];
    e->out[s] = values_new(ambi_numel(&e->t[s]));
    if (used(e, s)) values_store(&e->t[s], b->after + b->origin + e->offset[s], e->out[s]);
  }
}

void exec_run(const target *t, exec *e) {
  session x = {.e = e, .t = t};
  e->status = AMBI_OK;
  e->error[0] = e->damage[0] = e->kernel[0] = 0;
  e->reads = e->writes = 0;
  memset(e->out, 0, sizeof e->out);
  if (plan_op(&x) == 0) {
    make_blocks(&x);
    fill_blocks(&x);
    if (launch(&x) == 0) {
      find_damage(&x);
      read_outputs(&x);
    }
  }
  for (int i = 0; i <= AMBI_SLOTS; i++) {
    block *b = &x.blocks[i];
    if (b->buf.data) ambi_free(t->dev, b->buf);
    free(b->before);
    free(b->after);
    free(b->owned);
  }
  if (x.plan) ambi_plan_destroy(x.plan);
}

void exec_free(exec *e) {
  for (int s = 0; s < AMBI_SLOTS; s++) {
    free(e->out[s]);
    e->out[s] = NULL;
  }
}
