/* check_bits.c -- the same bits on every run, for every number of threads, wherever buffers lie, and from a graph. */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "values.h"

static exec run_dense(const target *dev, const trial *t, ambi_pass pass, int skew, int replayed) {
  exec e = {.op = trial_op(t, pass), .skew = skew, .replayed = replayed};
  for (int s = 0; s < AMBI_SLOTS; s++) e.in[s] = t->in[s];
  for (int s = 0; s < t->info->slots; s++)
    if (t->outputs & AMBI_BIT(s)) e.in[s] = t->ref[s];
  exec_run(dev, &e);
  return e;
}

/* The first element whose bits differ, and its slot; -1 when none does. */
static int64_t find_difference(const exec *a, const exec *b, int *slot) {
  for (*slot = 0; *slot < AMBI_SLOTS; ++*slot) {
    int64_t n = a->out[*slot] && b->out[*slot] ? ambi_numel(&a->t[*slot]) : 0;
    for (int64_t i = 0; i < n; i++)
      if (memcmp(&a->out[*slot][i], &b->out[*slot][i], sizeof(double))) return i;
  }
  return -1;
}

/* Elements that the second run's buffers begin later: one, but for cuBLASLt, which wants multiples of 16 bytes. */
static int skew_of(const checker *ck, ambi_kind kind) {
  const int product = kind == AMBI_LINEAR || kind == AMBI_LINEAR_CROSS_ENTROPY;
  return product && !strncmp(ck->device, "cuda", 4) ? 16 : 1;
}

static void compare_crews(group *g, const trial *t, ambi_pass pass) {
  checker *ck = g->ck;
  exec first = run_dense(&ck->crews[0], t, pass, 0, 0);
  for (int c = 0; c < ck->crew_count && first.status == AMBI_OK; c++) {
    exec again = run_dense(&ck->crews[c], t, pass, skew_of(ck, t->op.kind), 1);
    char name[48], way[64];
    int slot;
    int64_t i = find_difference(&first, &again, &slot);
    snprintf(way, sizeof way, "%s%s", ck->crews[c].name, again.replayed ? ", replayed" : "");
    if (again.status != AMBI_OK || again.damage[0])
      group_fail(g, t->text, again.kernel, "[%s] %s", way, again.status != AMBI_OK ? again.error : again.damage);
    else if (i >= 0)
      group_fail(g, t->text, again.kernel, "[%s against %s] %s element %lld is %.17g, then %.17g", ck->crews[0].name,
                 way, slot_name(&t->op, slot, name, sizeof name), (long long)i, first.out[slot][i], again.out[slot][i]);
    else
      group_pass(g, 0);
    exec_free(&again);
  }
  if (first.status == AMBI_UNSUPPORTED) group_skip(g, first.error);
  if (first.status != AMBI_OK && first.status != AMBI_UNSUPPORTED)
    group_fail(g, t->text, first.kernel, "[%s] %s", ck->crews[0].name, first.error);
  exec_free(&first);
}

void check_determinism(group *g, const char *text, const mix *m) {
  trial t;
  char err[400];
  checker *ck = g->ck;
  if (ck->crew_count == 0) return;
  if (trial_make(&ck->ref, text, m, (uint64_t)ck->seed, -1, 0, &t, err, sizeof err) == AMBI_OK)
    for (int pass = 0; pass <= (t.differentiable != 0); pass++) compare_crews(g, &t, (ambi_pass)pass);
  trial_free(&t); /* a case that cannot be made has failed in check_kernels already */
}
