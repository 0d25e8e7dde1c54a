/* scan.c -- how much work a module asks of the compiler, counted before it is given to it.
 *
 * Compiling has no deadline. What it costs grows with the bytes of code and, much faster, with
 *
 *   depth     blocks inside blocks, of the deepest function
 *   height    values on the operand stack at once, and locals: time grows with the square of either
 *   joins     (blocks + targets of branches), each times 1 + the loops around it, x (locals + values a block may
 *             take + values on the stack there), summed over functions: every join of two ways may have to merge all
 *   branches  blocks, targets of branches, operations on whole memories and tables, divisions and the like, and, each
 *             worth a few, calls through tables and reads of them: with no locals at all time grows with their square
 *   merges    joins x branches of a function, summed: of locals that change between many branches
 *   values    what types take and give, and calls x what one may take and give: each is moved by itself, and every
 *             type is given code of its own
 *
 * At the limits compiling takes seconds; ambi's own kernels are at an eighth of them or less.
 * A few kilobytes can ask for minutes. Whatever cannot be read is refused: the engine would, and if it did not, nobody
 * would have counted. */
#include "pack/scan.h"

#include <stdlib.h>

#include "pack/opcodes.h"
#include "pack/wasmtime.h"

enum {
  MOST_CODE = 1 << 20,
  MOST_TYPES = 4096,
  MOST_FUNCTIONS = 4096,
  MOST_DEPTH = 256,
  MOST_HEIGHT = 1024,
  MOST_JOINS = 1250000,
  MOST_BRANCHES = 32768,
  MOST_MERGES = 400000000,
  MOST_VALUES = 200000,
  MOST_LOCALS = 1024
};

/* Of what is refused for its size nothing more is read. */
static bool too_large(const module_work *w) {
  return w->code > MOST_CODE || w->types > MOST_TYPES || w->functions > MOST_FUNCTIONS || w->depth > MOST_DEPTH ||
         w->height > MOST_HEIGHT || w->locals > MOST_LOCALS;
}

typedef struct {
  uint32_t params, results;
} signature;

/* What code refers to. Nothing is imported, so functions are those of the module. */
typedef struct {
  signature types[MOST_TYPES];
  uint32_t functions[MOST_FUNCTIONS]; /* their types */
  uint32_t type_count, function_count;
} names;

static signature signature_of(const names *n, uint32_t type, reader *r) {
  if (type < n->type_count) return n->types[type];
  r->bad = true;
  return (signature){0, 0};
}

static signature function_of(const names *n, uint32_t function, reader *r) {
  if (function < n->function_count) return signature_of(n, n->functions[function], r);
  r->bad = true;
  return (signature){0, 0};
}

/* ---- the operand stack ---- */
/* A block: values below `base` are not its own. */
typedef struct {
  bool loop;
  uint64_t base;
  signature type;
} frame;

typedef struct {
  frame frames[MOST_DEPTH + 1];
  uint64_t depth, loops, height, locals, joins, branches;
} place;

/* Never below what is really there. Code that is not reached may take what nobody gave, and nothing of the blocks
 * around it; that a branch there has emptied the stack is not counted. */
static void pop(place *p, uint64_t n) {
  uint64_t own = p->height - p->frames[p->depth - 1].base;
  p->height -= n < own ? n : own;
}

static void enter(place *p, bool loop, signature type) {
  pop(p, type.params);
  p->frames[p->depth++] = (frame){loop, p->height, type};
  p->height += type.params;
  p->loops += loop;
}

/* However the block was left, its results are there. */
static void leave(place *p) {
  frame f = p->frames[--p->depth];
  p->height = f.base + f.type.results;
  p->loops -= f.loop;
}

/* ---- functions ---- */
static uint64_t take_locals(reader *r) {
  uint64_t all = 0;
  uint32_t groups = take_u32(r);
  for (uint32_t i = 0; i < groups && !r->bad; i++) {
    all += take_u32(r);
    take_value_type(r);
  }
  return all;
}

/* How many targets it has, the default among them. */
static uint64_t skip_targets(reader *r) {
  uint64_t targets = (uint64_t)take_u32(r) + 1;
  for (uint64_t i = 0; i < targets && !r->bad; i++) take_u32(r);
  return targets;
}

/* Nothing, a value, or the index of a type: longer forms of the first two are not read. */
static signature take_block_type(const names *n, reader *r) {
  enum { EMPTY = 0x40 };
  uint8_t first = r->at < r->end ? *r->at : EMPTY;
  bool value = is_value_type(first);
  if (first < EMPTY || first >= 128) return signature_of(n, take_u32(r), r);
  take_byte(r);
  if (first != EMPTY && !value) r->bad = true;
  return (signature){0, value};
}

static void step_call(const names *n, kind k, reader *r, place *p, module_work *w) {
  uint32_t index = take_u32(r);
  signature s = k == CALL ? function_of(n, index, r) : signature_of(n, index, r);
  if (k == CALL_INDIRECT) take_u32(r); /* the table */
  pop(p, s.params);
  p->height += s.results;
  w->values += 1 + w->arity;
}

/* Ways that part or meet: each may have to merge every local, and every value that waits. */
static void step_ways(uint64_t ways, place *p, const module_work *w) {
  p->branches += ways;
  p->joins += ways * (1 + p->loops) * (1 + p->locals + w->arity + p->height);
}

static void step(const names *n, reader *r, place *p, module_work *w) {
  instruction i = take_instruction(r);
  pop(p, i.pops);
  if (i.kind == BLOCK || i.kind == LOOP) enter(p, i.kind == LOOP, take_block_type(n, r));
  step_ways(i.kind == TABLE ? skip_targets(r) : i.ways, p, w);
  if (i.kind == END) leave(p);
  if (i.kind == CALL || i.kind == CALL_INDIRECT) step_call(n, i.kind, r, p, w);
  skip_rest(r, i.kind);
  if (i.kind == ELSE) p->height = p->frames[p->depth - 1].base + p->frames[p->depth - 1].type.params;
  p->height += i.pushes;
  if (p->height > w->height) w->height = p->height;
  if (p->depth > w->depth) w->depth = p->depth;
}

static void scan_function(const names *n, reader r, signature type, module_work *w) {
  place p = {.depth = 1, .frames[0].type = type, .locals = take_locals(&r)};
  p.joins = 1 + p.locals + w->arity;
  if (p.locals > w->locals) w->locals = p.locals;
  while (p.depth > 0 && !too_large(w) && !r.bad) step(n, &r, &p, w);
  w->joins += p.joins;
  w->branches += p.branches;
  if (p.joins <= MOST_JOINS) w->merges += p.joins * p.branches; /* or they are refused already */
  w->readable = w->readable && !r.bad && (r.at == r.end || too_large(w));
}

/* ---- sections ---- */
/* The values that types take and give, and the most of one */
static void scan_types(reader *r, names *n, module_work *w) {
  uint32_t count = take_u32(r);
  w->types = count;
  for (uint32_t i = 0; i < count && i < MOST_TYPES && !r->bad; i++) {
    if (take_byte(r) != 0x60) r->bad = true;
    uint32_t counts[2];
    for (int side = 0; side < 2; side++) {
      counts[side] = take_u32(r);
      for (uint32_t k = 0; k < counts[side] && !r->bad; k++) take_value_type(r);
      if (counts[side] > w->arity) w->arity = counts[side];
      w->values += counts[side];
    }
    w->values++;
    n->types[n->type_count++] = (signature){counts[0], counts[1]};
  }
}

static void scan_functions(reader *r, names *n, module_work *w) {
  uint32_t count = take_u32(r);
  w->functions = count;
  while (n->function_count < count && n->function_count < MOST_FUNCTIONS && !r->bad)
    n->functions[n->function_count++] = take_u32(r);
}

static void scan_code(reader *r, const names *n, module_work *w) {
  w->code = (uint64_t)(r->end - r->at);
  if (too_large(w)) return;
  uint32_t count = take_u32(r);
  for (uint32_t i = 0; i < count && !r->bad; i++) {
    signature type = function_of(n, i, r);
    scan_function(n, take_part(r), type, w);
  }
}

/* Sections in their order, each at most once, but for custom ones: 12 lies in front of 10. */
static bool in_order(uint8_t section, uint8_t *last) {
  static const uint8_t ranks[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 10};
  if (section == 0) return true;
  if (section >= sizeof ranks || ranks[section] <= *last) return false;
  *last = ranks[section];
  return true;
}

static void scan_section(uint8_t section, reader r, names *n, module_work *w) {
  enum { TYPE = 1, IMPORT = 2, FUNCTION = 3, CODE = 10 };
  if (section == TYPE) scan_types(&r, n, w);
  if (section == IMPORT && take_u32(&r) > 0) w->import = r;
  if (section == FUNCTION) scan_functions(&r, n, w);
  if (section == CODE) scan_code(&r, n, w);
  bool whole = section == TYPE || section == FUNCTION || section == CODE;
  w->readable = w->readable && !r.bad && (!whole || r.at == r.end || too_large(w));
}

static void scan_sections(reader r, names *n, module_work *w) {
  static const uint8_t head[8] = {0, 'a', 's', 'm', 1, 0, 0, 0};
  uint8_t last = 0;
  for (size_t i = 0; i < sizeof head; i++)
    if (take_byte(&r) != head[i]) r.bad = true;
  while (!r.bad && r.at < r.end && !w->import.at) {
    uint8_t section = take_byte(&r);
    reader part = take_part(&r);
    if (!in_order(section, &last)) r.bad = true;
    scan_section(section, part, n, w);
  }
  w->readable = w->readable && !r.bad;
}

module_work scan_module(const void *bytes, size_t n) {
  module_work w = {.readable = true};
  names *all = calloc(1, sizeof *all);
  if (all)
    scan_sections((reader){bytes, (const uint8_t *)bytes + n, false}, all, &w);
  else
    w.readable = false;
  free(all);
  return w;
}

/* ---- refusals ---- */
static void take_name(reader *r, char text[64]) {
  reader name = take_part(r);
  size_t n = 0;
  for (; name.at < name.end && n < 60; n++) text[n] = (char)(*name.at++ < 128 ? name.at[-1] : '?');
  text[n] = 0;
  plain_text(text);
}

static ambi_status refuse_import(const char *id, reader r) {
  char module[64], name[64];
  take_name(&r, module), take_name(&r, name);
  return fail(AMBI_DENIED, "refused by imports: %s asks for %s.%s, and a kernel may import nothing", id, module, name);
}

#define TOO_LONG " would take too long to compile"

ambi_status scan_check(const char *id, const void *bytes, size_t n) {
  module_work w = scan_module(bytes, n);
  const struct {
    uint64_t got;
    int most;
    const char *before, *after, *last;
  } limits[] = {{w.code, MOST_CODE, "", "bytes of code", " are compiled"},
                {w.types, MOST_TYPES, "", "types", " are compiled"},
                {w.functions, MOST_FUNCTIONS, "", "functions", " are compiled"},
                {w.depth, MOST_DEPTH, "blocks ", "deep" TOO_LONG, ""},
                {w.height, MOST_HEIGHT, "", "values at once" TOO_LONG, ""},
                {w.locals, MOST_LOCALS, "", "locals of a function" TOO_LONG, ""},
                {w.joins, MOST_JOINS, "", "branches x locals and values" TOO_LONG, ""},
                {w.branches, MOST_BRANCHES, "", "branches" TOO_LONG, ""},
                {w.merges, MOST_MERGES, "", "branches x branches x locals and values" TOO_LONG, ""},
                {w.values, MOST_VALUES, "", "values of types and calls" TOO_LONG, ""}};
  if (w.import.at) return refuse_import(id, w.import);
  if (!w.readable) return fail(AMBI_COMPILE_FAILED, "%s: its code cannot be read", id);
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
    if (limits[i].got > (uint64_t)limits[i].most)
      return fail(AMBI_COMPILE_FAILED, "%s: %s%llu %s; at most %d%s", id, limits[i].before,
                  (unsigned long long)limits[i].got, limits[i].after, limits[i].most, limits[i].last);
  return AMBI_OK;
}
