/* op.h -- attention's sizes and strides, and which keys a query sees, for every backend. */
#ifndef AMBI_ATTENTION_H
#define AMBI_ATTENTION_H
#include "core/core.h"

enum { ATTENTION_WIDTH = 256 }; /* most elements in a head */

/* Element strides of a slot: of batch, head, query or key, and element. 0 along axes it does not have. */
typedef struct {
  int64_t b, h, l, d;
} attention_strides;

typedef struct {
  int64_t batches, heads, groups, queries, keys, width; /* B H G L S D                                      */
  int64_t heads_per_group;                              /* H/G: so many heads of q in a row read one head of k and v */
  double scale, softcap;                                /* softcap 0: none                                    */
  bool causal;
  int64_t window; /* 0: none */
  attention_strides stride[AMBI_SLOTS];
} attention_recipe;

static inline const attention_recipe *attention(const problem *p) {
  return (const attention_recipe *)(const void *)p->recipe;
}

static inline int64_t attention_clamp(int64_t v, int64_t most) { return v < 0 ? 0 : v < most ? v : most; }

/* Query i sees the keys [lo, hi) of n valid ones: see op.c. */
typedef struct {
  int64_t lo, hi;
} attention_keys;

static inline attention_keys attention_seen(const attention_recipe *r, int64_t i, int64_t n) {
  int64_t position = i + n - r->queries, hi = n;
  if (r->causal)
    hi = position + 1;
  else if (r->window)
    hi = position + r->window;
  int64_t lo = r->window ? position - r->window + 1 : 0;
  return (attention_keys){attention_clamp(lo, n), attention_clamp(hi, n)};
}

#endif
