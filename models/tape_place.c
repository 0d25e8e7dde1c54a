/* tape_place.c -- where storages lie: each lives from its first use to its last, and shares memory with those that live
 * at other times. Large ones are placed first, each at the lowest address where it disturbs none of those placed. */
#include <stdlib.h>
#include <string.h>

#include "../util/amount.h"
#include "tape_parts.h"

enum { ALIGN = 256 };

static uint64_t aligned(uint64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- what is needed ---- */

/* Whether a later step, or the caller, looks at something this step writes. */
static int is_needed(const tape *t, const step *s, const char *wanted) {
  for (int i = 0; i < AMBI_SLOTS; i++) {
    if (!(s->info.writes & AMBI_BIT(i)) || !s->slot[i]) continue;
    int32_t at = t->view[s->slot[i]].store;
    if (wanted[at] || t->store[at].kept || t->store[at].fixed) return 1;
  }
  return 0;
}

/* From the end: a step stays when what it writes is wanted, and then what it reads is wanted too. */
static ambi_status drop_useless(tape *t) {
  char *wanted = calloc((size_t)t->stores, 1), *stays = calloc((size_t)t->steps + 1, 1);
  if (!wanted || !stays) {
    free(wanted);
    free(stays);
    return tape_fail(t, AMBI_NO_MEMORY, "no memory to plan the model");
  }
  for (int64_t i = t->steps - 1; i >= 0; i--) {
    const step *s = &t->step[i];
    if (!(stays[i] = (char)is_needed(t, s, wanted))) continue;
    for (int k = 0; k < AMBI_SLOTS; k++) {
      if ((s->info.reads & AMBI_BIT(k)) && s->slot[k]) wanted[t->view[s->slot[k]].store] = 1;
    }
  }
  int64_t kept = 0;
  for (int64_t i = 0; i < t->steps; i++) {
    if (stays[i]) t->step[kept++] = t->step[i];
  }
  t->steps = kept;
  free(wanted);
  free(stays);
  return AMBI_OK;
}

static void find_lives(tape *t) {
  for (int64_t i = 0; i < t->steps; i++) {
    const step *s = &t->step[i];
    for (int k = 0; k < AMBI_SLOTS; k++) {
      if (!((s->info.reads | s->info.writes) & AMBI_BIT(k)) || !s->slot[k]) continue;
      storage *at = &t->store[t->view[s->slot[k]].store];
      if (i < at->first) at->first = i;
      if (i > at->last) at->last = at->kept ? INT64_MAX : i;
    }
  }
}

/* ---- placing ---- */

static int by_size(const void *a, const void *b) {
  const storage *x = *(storage *const *)a, *y = *(storage *const *)b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return (x > y) - (x < y); /* the same order on every machine */
}

/* The lowest gap for `s` among `placed`, which are sorted by offset. */
static uint64_t lowest_gap(const storage *s, storage *const *placed, int64_t n) {
  uint64_t at = 0;
  for (int64_t i = 0; i < n; i++) {
    const storage *p = placed[i];
    if (p->last < s->first || s->last < p->first) continue;
    if (p->offset >= at + aligned(s->bytes)) break;
    if (p->offset + aligned(p->bytes) > at) at = p->offset + aligned(p->bytes);
  }
  return at;
}

static ambi_status lay_out(tape *t) {
  storage **list = malloc((size_t)t->stores * sizeof *list), **placed = malloc((size_t)t->stores * sizeof *placed);
  int64_t n = 0, done = 0;
  if (!list || !placed) {
    free(list);
    free(placed);
    return tape_fail(t, AMBI_NO_MEMORY, "no memory to plan the model");
  }
  for (int64_t i = 1; i < t->stores; i++) {
    storage *s = &t->store[i];
    if (!s->fixed && s->first <= s->last) list[n++] = s;
  }
  qsort(list, (size_t)n, sizeof *list, by_size);
  for (int64_t i = 0; i < n; i++) {
    storage *s = list[i];
    s->offset = lowest_gap(s, placed, done);
    if (s->offset + aligned(s->bytes) > t->arena_bytes) t->arena_bytes = s->offset + aligned(s->bytes);
    int64_t k = done++;
    for (; k > 0 && placed[k - 1]->offset > s->offset; k--) placed[k] = placed[k - 1];
    placed[k] = s;
  }
  free(list);
  free(placed);
  return AMBI_OK;
}

static ambi_status allocate(tape *t) {
  for (int64_t i = 0; i < t->steps; i++) {
    if (t->step[i].info.workspace > t->workspace_bytes) t->workspace_bytes = t->step[i].info.workspace;
  }
  if ((t->arena_bytes && ambi_alloc(t->dev, t->arena_bytes, &t->arena) != AMBI_OK) ||
      (t->workspace_bytes && ambi_alloc(t->dev, t->workspace_bytes, &t->workspace) != AMBI_OK))
    return tape_fail(
        t, AMBI_NO_MEMORY,
        "the activations of this model take %s, their workspace %s: a smaller batch, a shorter sequence or "
        "recomputation needs less; %s",
        amount_bytes((double)t->arena_bytes).text, amount_bytes((double)t->workspace_bytes).text, ambi_error());
  return AMBI_OK;
}

ambi_status tape_place(tape *t) {
  if (drop_useless(t) != AMBI_OK) return t->status;
  find_lives(t);
  if (lay_out(t) != AMBI_OK || allocate(t) != AMBI_OK) return t->status;
  for (int64_t i = 0; i < t->steps; i++) {
    step *s = &t->step[i];
    for (int k = 0; k < AMBI_SLOTS; k++) {
      if (s->slot[k]) s->buf[k] = tape_buffer(t, s->slot[k]);
    }
  }
  return AMBI_OK;
}
