/* scan.c -- how much work a module asks of the compiler, counted before it is given to it.
 *
 * Compiling has no deadline. What it costs grows with the bytes of code and, much faster, with
 *
 *   depth     blocks inside blocks, of the deepest function
 *   joins     (blocks + targets of branches), each times 1 + the loops around it, x (locals + values a block may
 *             take), summed over functions: every join of two ways may have to merge every local
 *   branches  blocks, targets of branches, operations on whole memories and tables, and, each worth a few, calls
 *             through tables and reads of them: with no locals at all time grows with their square
 *   values    what types take and give, and calls x what one may take and give: each is moved by itself, and every
 *             type is given code of its own
 *
 * At the limits compiling takes seconds; ambi's own kernels are at an eighth of them or less.
 * A few kilobytes can ask for minutes. Whatever cannot be read is refused: the engine would, and if it did not, nobody
 * would have counted. */
#include "pack/scan.h"

enum {
  MOST_CODE = 1 << 20,
  MOST_FUNCTIONS = 4096,
  MOST_DEPTH = 256,
  MOST_JOINS = 1000000,
  MOST_BRANCHES = 32768,
  MOST_VALUES = 200000,
  MOST_LOCALS = 50000,
  LOOKUP_BRANCHES = 4, /* a call through a table: is it there, is it made yet, has it this type */
  LOOP = 3
};

/* ---- bytes ---- */
typedef struct {
  const uint8_t *at, *end;
  bool bad; /* it ended, or made no sense, before it should have */
} reader;

static uint8_t take_byte(reader *r) {
  if (r->at < r->end) return *r->at++;
  r->bad = true;
  return 0;
}

/* LEB128 of at most `bits` bits; signed ones come out as their bits. */
static uint64_t take_number(reader *r, int bits) {
  uint64_t v = 0;
  for (int shift = 0; shift < bits; shift += 7) {
    uint8_t b = take_byte(r);
    v |= (uint64_t)(b & 127) << shift;
    if (b < 128) return v;
  }
  r->bad = true;
  return 0;
}

static uint32_t take_u32(reader *r) {
  uint64_t v = take_number(r, 32);
  if (v > UINT32_MAX) r->bad = true;
  return (uint32_t)v;
}

static void skip(reader *r, uint64_t n) {
  if (n > (uint64_t)(r->end - r->at)) {
    r->bad = true;
    r->at = r->end;
  } else {
    r->at += n;
  }
}

static reader take_part(reader *r) {
  uint32_t n = take_u32(r);
  reader part = {r->at, r->at, r->bad};
  skip(r, n);
  part.end = r->at;
  part.bad = r->bad;
  return part;
}

/* ---- instructions: what follows each opcode ---- */
typedef enum {
  NOTHING,
  BLOCK,
  ELSE,
  END,
  LABEL,
  TABLE,
  ONE,
  TWO,
  ADDRESS,
  I32,
  I64,
  F32,
  F64,
  TYPES,
  BULK,
  SIMD,
  BAD
} kind;

static const struct {
  uint8_t first, last, kind;
} opcodes[] = {{0x00, 0x01, NOTHING}, {0x02, 0x04, BLOCK},   {0x05, 0x05, ELSE},    {0x0b, 0x0b, END},
               {0x0c, 0x0d, LABEL},   {0x0e, 0x0e, TABLE},   {0x0f, 0x0f, NOTHING}, {0x10, 0x10, ONE},
               {0x11, 0x11, TWO},     {0x1a, 0x1b, NOTHING}, {0x1c, 0x1c, TYPES},   {0x20, 0x26, ONE},
               {0x28, 0x3e, ADDRESS}, {0x3f, 0x40, ONE},     {0x41, 0x41, I32},     {0x42, 0x42, I64},
               {0x43, 0x43, F32},     {0x44, 0x44, F64},     {0x45, 0xc4, NOTHING}, {0xd0, 0xd0, ONE},
               {0xd1, 0xd1, NOTHING}, {0xd2, 0xd2, ONE},     {0xfc, 0xfc, BULK},    {0xfd, 0xfd, SIMD}};

static kind kind_of(uint8_t opcode) {
  for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
    if (opcode >= opcodes[i].first && opcode <= opcodes[i].last) return opcodes[i].kind;
  return BAD;
}

static void skip_address(reader *r) {
  take_u32(r); /* alignment */
  take_u32(r); /* offset    */
}

/* 0xfc: saturating conversions, then operations on whole memories and tables with one or two indices */
static void skip_bulk(reader *r) {
  static const uint8_t indices[] = {0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1};
  uint32_t n = take_u32(r);
  if (n >= sizeof indices) r->bad = true;
  for (int i = 0; !r->bad && i < indices[n]; i++) take_u32(r);
}

/* 0xfd: loads and stores, constants and shuffles of 16 bytes, lanes; everything else is its opcode alone */
static void skip_simd(reader *r) {
  uint32_t n = take_u32(r);
  if (n <= 11 || (n >= 84 && n <= 93)) skip_address(r);
  if (n == 12 || n == 13) skip(r, 16);
  if ((n >= 21 && n <= 34) || (n >= 84 && n <= 91)) skip(r, 1);
  if (n > 255) r->bad = true;
}

static void skip_rest(reader *r, kind k) {
  if (k == ONE || k == TWO || k == LABEL) take_u32(r);
  if (k == TWO) take_u32(r);
  if (k == ADDRESS) skip_address(r);
  if (k == I32) take_number(r, 35);
  if (k == I64) take_number(r, 70);
  if (k == F32) skip(r, 4);
  if (k == F64) skip(r, 8);
  if (k == TYPES) skip(r, take_u32(r));
  if (k == BLOCK) take_number(r, 35); /* a type: one byte, or the index of one */
  if (k == BULK) skip_bulk(r);
  if (k == SIMD) skip_simd(r);
  if (k == BAD) r->bad = true;
}

/* ---- functions and types ---- */
static uint64_t take_locals(reader *r) {
  uint64_t all = 0;
  uint32_t groups = take_u32(r);
  for (uint32_t i = 0; i < groups && !r->bad; i++) {
    all += take_u32(r);
    take_byte(r); /* their type */
    if (all > MOST_LOCALS) r->bad = true;
  }
  return all;
}

/* How many targets it has, the default among them. */
static uint64_t skip_targets(reader *r) {
  uint64_t targets = (uint64_t)take_u32(r) + 1;
  for (uint64_t i = 0; i < targets && !r->bad; i++) take_u32(r);
  return targets;
}

/* The ways that part or meet at an instruction, but for those of a table of targets. */
static uint64_t joins_of(kind k) { return k == BLOCK || k == LABEL || k == ELSE; }

/* What it is to the compiler besides: branches that nobody wrote, values that move. */
static void weigh(uint8_t opcode, kind k, module_work *w) {
  enum { CALL = 0x10, CALL_INDIRECT = 0x11, TABLE_GET = 0x25 };
  if (opcode == CALL_INDIRECT || opcode == TABLE_GET) w->branches += LOOKUP_BRANCHES;
  if (opcode == CALL || opcode == CALL_INDIRECT) w->values += 1 + w->arity;
  if (k == BULK) w->branches++;
}

static void scan_function(reader r, module_work *w) {
  bool loop[MOST_DEPTH + 1] = {false}; /* of the blocks around this place */
  uint64_t locals = take_locals(&r), joins = 1, depth = 1, loops = 0;
  while (depth > 0 && depth <= MOST_DEPTH && !r.bad) {
    uint8_t opcode = take_byte(&r);
    kind k = kind_of(opcode);
    if (k == BLOCK) loop[depth++] = opcode == LOOP, loops += opcode == LOOP;
    if (k == END) loops -= loop[--depth];
    uint64_t here = k == TABLE ? skip_targets(&r) : joins_of(k);
    joins += here * (1 + loops);
    w->branches += here;
    weigh(opcode, k, w);
    skip_rest(&r, k);
    if (depth > w->depth) w->depth = depth;
  }
  w->joins += joins * (1 + locals + w->arity);
  w->readable = w->readable && !r.bad && (r.at == r.end || depth > MOST_DEPTH);
}

/* The values that types take and give, and the most of one */
static void scan_types(reader r, module_work *w) {
  uint32_t count = take_u32(&r);
  for (uint32_t i = 0; i < count && !r.bad; i++) {
    if (take_byte(&r) != 0x60) r.bad = true;
    for (int side = 0; side < 2; side++) {
      uint32_t n = take_u32(&r);
      skip(&r, n);
      if (n > w->arity) w->arity = n;
      w->values += n;
    }
    w->values++;
  }
  w->readable = w->readable && !r.bad;
}

static void scan_code(reader r, module_work *w) {
  w->code += (uint64_t)(r.end - r.at);
  uint32_t count = take_u32(&r);
  w->functions += count;
  for (uint32_t i = 0; i < count && !r.bad; i++) scan_function(take_part(&r), w);
  w->readable = w->readable && !r.bad;
}

module_work scan_module(const void *bytes, size_t n) {
  enum { TYPE_SECTION = 1, CODE_SECTION = 10 };
  static const uint8_t head[8] = {0, 'a', 's', 'm', 1, 0, 0, 0};
  module_work w = {.readable = true};
  reader r = {bytes, (const uint8_t *)bytes + n, false};
  for (size_t i = 0; i < sizeof head; i++)
    if (take_byte(&r) != head[i]) r.bad = true;
  while (!r.bad && r.at < r.end) {
    uint8_t section = take_byte(&r);
    reader part = take_part(&r);
    if (section == TYPE_SECTION) scan_types(part, &w);
    if (section == CODE_SECTION) scan_code(part, &w);
  }
  w.readable = w.readable && !r.bad;
  return w;
}

ambi_status scan_check(const char *id, const void *bytes, size_t n) {
  module_work w = scan_module(bytes, n);
  if (!w.readable) return fail(AMBI_COMPILE_FAILED, "%s: its code cannot be read", id);
  if (w.code > MOST_CODE)
    return fail(AMBI_COMPILE_FAILED, "%s: %llu bytes of code; at most %d are compiled", id, (unsigned long long)w.code,
                MOST_CODE);
  if (w.functions > MOST_FUNCTIONS)
    return fail(AMBI_COMPILE_FAILED, "%s: %llu functions; at most %d are compiled", id, (unsigned long long)w.functions,
                MOST_FUNCTIONS);
  if (w.depth > MOST_DEPTH)
    return fail(AMBI_COMPILE_FAILED, "%s: blocks %llu deep would take too long to compile; at most %d", id,
                (unsigned long long)w.depth, MOST_DEPTH);
  if (w.joins > MOST_JOINS)
    return fail(AMBI_COMPILE_FAILED, "%s: %llu branches x locals would take too long to compile; at most %d", id,
                (unsigned long long)w.joins, MOST_JOINS);
  if (w.branches > MOST_BRANCHES)
    return fail(AMBI_COMPILE_FAILED, "%s: %llu branches would take too long to compile; at most %d", id,
                (unsigned long long)w.branches, MOST_BRANCHES);
  if (w.values > MOST_VALUES)
    return fail(AMBI_COMPILE_FAILED, "%s: %llu values of types and calls would take too long to compile; at most %d",
                id, (unsigned long long)w.values, MOST_VALUES);
  return AMBI_OK;
}
