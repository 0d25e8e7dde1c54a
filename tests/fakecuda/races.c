/* races.c -- finds races in a block's shared memory (FAKECUDA_RACES=1): two threads access the same bytes, one of them
 * to write, and no barrier orders the two, in whatever order the emulator happened to run them.
 *
 * Clocks: row[t][s] is how much of thread s is known to be over when thread t goes on; row[t][t] counts the times t
 * met others. An access is remembered as (thread, its count), and is over for t when row[t] has come to that count.
 * Where threads meet (__syncwarp, a barrier of some, a phase of an mbarrier), their rows become the largest of all. A
 * barrier of the whole block begins an era: whatever is older is over. A shuffle orders nothing.
 *
 * Copies and products that go on while the thread does (cp.async, wgmma) access memory when they are issued and once
 * more when they are waited for; between the two nothing may touch what a copy writes, nor write what a product reads.
 *
 * Not seen: global memory; calls of memcpy and memset; a fence between stores and wgmma that is missing; who reads a
 * copy that has arrived by an mbarrier without waiting there, behind another barrier; and of more than two threads that
 * read the same between barriers, some: run both orders. Atomics on shared memory would be reported. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { CELLS = SHARED_MOST, COUNT_BITS = 22, REGIONS = 2, PHASES = 64, WORD = 4 };

typedef struct {
  uint32_t who; /* thread << COUNT_BITS | its count, which is never 0 */
  int32_t pc;   /* from the kernel's address on */
} access_by;
typedef struct {
  uint32_t era;
  access_by wrote, read[2]; /* the first and the last that read */
} cell;
typedef struct {
  shared_memory memory;
  cell cells[CELLS];            /* of bytes; the first of a word, of all its bytes, while they are accessed together */
  uint32_t apart[CELLS / WORD]; /* the era in which bytes of a word were not */
  uint8_t on_way[EMU_WAYS][CELLS]; /* copies to it and products of it */
} region;
typedef struct {
  const void *at;
  uint32_t era, arriving[MAX_THREADS], over[MAX_THREADS]; /* of this phase, of those that ended */
} phase;
typedef struct later {
  struct later *next;
  char *at;
  size_t bytes;
  const void *pc;
  unsigned batch;
} later; /* something on its way */
typedef struct {
  later *list;
  unsigned batches;
} way;

static bool watched;
static region regions[REGIONS];
static phase phases[PHASES];
static way ways[MAX_THREADS][EMU_WAYS];
static uint32_t era, row[MAX_THREADS][MAX_THREADS], row_era[MAX_THREADS], joined[MAX_THREADS];
static unsigned threads, phase_count;
static const char *kernel;

/* ---- clocks ---- */
static uint32_t *row_of(unsigned t) {
  if (row_era[t] == era) return row[t];
  memset(row[t], 0, threads * sizeof **row);
  row[t][t] = 1, row_era[t] = era;
  return row[t];
}

static void raise(uint32_t *clocks, const uint32_t *by) {
  for (unsigned i = 0; i < threads; i++) clocks[i] = clocks[i] > by[i] ? clocks[i] : by[i];
}

/* Whether it is over for the thread t whose row this is */
static inline bool over(access_by a, unsigned t, const uint32_t *clocks) {
  const unsigned s = a.who >> COUNT_BITS;
  return !a.who || s == t || clocks[s] >= (a.who & ((1u << COUNT_BITS) - 1));
}

void races_all_met(void) { era++; }

void races_met(const unsigned *met, unsigned n) {
  if (!watched) return;
  memset(joined, 0, threads * sizeof *joined);
  for (unsigned i = 0; i < n; i++) raise(joined, row_of(met[i]));
  for (unsigned i = 0; i < n; i++) {
    memcpy(row[met[i]], joined, threads * sizeof *joined);
    row[met[i]][met[i]]++;
  }
}

/* ---- mbarriers ---- */
static void begin(phase *p, const void *at) {
  p->at = at, p->era = era;
  memset(p->arriving, 0, sizeof p->arriving), memset(p->over, 0, sizeof p->over);
}

static phase *phase_of(const void *at) {
  unsigned i = 0;
  while (i < phase_count && phases[i].at != at) i++;
  if (i == PHASES) machine.fail(EMU_TRAP, "more mbarriers in a block than races.c follows");
  if (i == phase_count || phases[i].era != era) begin(&phases[i], at);
  if (i == phase_count) phase_count++;
  return &phases[i];
}

void races_phase(const void *at) {
  if (watched) begin(phase_of(at), at);
}

void races_arrive(const void *at, unsigned t, bool ends) {
  if (!watched) return;
  phase *p = phase_of(at);
  raise(p->arriving, row_of(t));
  row[t][t]++;
  if (!ends) return;
  raise(p->over, p->arriving);
  memset(p->arriving, 0, sizeof p->arriving);
}

void races_waited(const void *at, unsigned t) {
  if (watched) raise(row_of(t), phase_of(at)->over);
}

/* ---- accesses ---- */
/* The bytes of `memory` that are shared: their region and places, or NULL */
static region *region_of(const void *memory, size_t bytes, size_t *first, size_t *end) {
  for (region *r = regions; r < regions + REGIONS; r++) {
    *first = (size_t)((const char *)memory - r->memory.at);
    if (*first >= r->memory.bytes) continue;
    *end = *first + bytes < CELLS ? *first + bytes : CELLS;
    return r;
  }
  return NULL;
}

static void complain(bool write, const void *pc, const char *what, size_t at, const region *r) {
  char sentence[400], line[120];
  module_line(pc, line, sizeof line);
  snprintf(sentence, sizeof sentence, "a race: %s byte %zu of %s shared memory (%s), %s", write ? "writes" : "reads",
           at, r == regions ? "dynamic" : "fixed", line, what);
  machine.fail(EMU_LAUNCH_FAILED, sentence);
}

static void complain_of(bool write, const void *pc, const char *had, access_by by, size_t at, const region *r) {
  char what[200], line[120];
  module_line(kernel + by.pc, line, sizeof line);
  snprintf(what, sizeof what, "which thread %u %s (%s) with no barrier between", by.who >> COUNT_BITS, had, line);
  complain(write, pc, what, at, r);
}

static bool is_on_way(const region *r, emu_way w, size_t at, size_t bytes) {
  uint32_t word;
  if (bytes == 1) return r->on_way[w][at];
  memcpy(&word, &r->on_way[w][at], WORD);
  return word;
}

/* A byte, or a word whose bytes have one cell */
static inline void touch(region *r, size_t at, size_t bytes, unsigned t, const uint32_t *clocks, bool write,
                         const void *pc) {
  cell *c = &r->cells[at];
  const access_by mine = {t << COUNT_BITS | clocks[t], (int32_t)((const char *)pc - kernel)};
  if (is_on_way(r, EMU_COPIES, at, bytes)) complain(write, pc, "to which a copy is on its way", at, r);
  if (write && is_on_way(r, EMU_PRODUCTS, at, bytes)) complain(write, pc, "which a product may still read", at, r);
  if (c->era != era) *c = (cell){.era = era};
  if (!over(c->wrote, t, clocks)) complain_of(write, pc, "wrote", c->wrote, at, r);
  if (!write) {
    const bool same = c->read[0].who >> COUNT_BITS == t;
    c->read[!same && !over(c->read[0], t, clocks)] = mine;
    return;
  }
  for (int i = 0; i < 2; i++)
    if (!over(c->read[i], t, clocks)) complain_of(write, pc, "read", c->read[i], at, r);
  *c = (cell){.era = era, .wrote = mine};
}

/* From here on, and until the era ends, each byte of a word has its own cell. */
static void part(region *r, size_t word) {
  if (r->apart[word] == era) return;
  r->apart[word] = era;
  for (size_t i = 1; i < WORD; i++) r->cells[WORD * word + i] = r->cells[WORD * word];
}

void races_access(unsigned t, const void *p, size_t bytes, bool write, const void *pc) {
  size_t first = 0, end = 0;
  region *r = watched ? region_of(p, bytes, &first, &end) : NULL;
  const uint32_t *clocks = r ? row_of(t) : NULL;
  for (size_t i = first, n; r && i < end; i += n) {
    const bool whole = i % WORD == 0 && i + WORD <= end && r->apart[i / WORD] != era;
    if (!whole) part(r, i / WORD);
    touch(r, i, n = whole ? WORD : 1, t, clocks, write, pc);
  }
}

/* ---- what is on its way ---- */
static void mark(emu_way w, const void *p, size_t bytes, int by) {
  size_t first = 0, end = 0;
  region *r = region_of(p, bytes, &first, &end);
  for (size_t i = first; r && i < end; i++) r->on_way[w][i] = (uint8_t)(r->on_way[w][i] + by);
}

void races_begun(unsigned t, emu_way w, void *at, size_t bytes, const void *pc) {
  later *l = watched ? malloc(sizeof *l) : NULL;
  if (!l) return;
  *l = (later){ways[t][w].list, at, bytes, pc, ways[t][w].batches};
  ways[t][w].list = l;
  races_access(t, at, bytes, w == EMU_COPIES, pc);
  mark(w, at, bytes, 1);
}

void races_batch(unsigned t, emu_way w) { ways[t][w].batches++; }

/* All but the last `left` batches have ended; EMU_ALL: what is in none, too. */
void races_ended(unsigned t, emu_way w, int left) {
  way *on = &ways[t][w];
  for (later **at = &on->list, *l; watched && (l = *at) != NULL;) {
    if (left != EMU_ALL && l->batch + (unsigned)left >= on->batches) {
      at = &l->next;
      continue;
    }
    *at = l->next;
    const later gone = *l;
    free(l);
    mark(w, gone.at, gone.bytes, -1);
    races_access(t, gone.at, gone.bytes, w == EMU_COPIES, gone.pc);
  }
}

/* ---- a block ---- */
static void forget_ways(void) {
  for (unsigned t = 0; t < MAX_THREADS; t++)
    for (int w = 0; w < EMU_WAYS; w++) {
      for (later *l = ways[t][w].list, *next; l; l = next) next = l->next, free(l);
      ways[t][w] = (way){NULL, 0};
    }
}

void races_begin(bool watches, const void *call, unsigned count, shared_memory dynamic, shared_memory fixed) {
  watched = watches;
  if (!watched) return;
  forget_ways();
  kernel = call, threads = count, phase_count = 0;
  regions[0].memory = dynamic, regions[1].memory = fixed;
  for (int i = 0; i < REGIONS; i++) memset(regions[i].on_way, 0, sizeof regions[i].on_way);
  era++;
}
