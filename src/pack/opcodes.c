/* opcodes.c -- tables of instructions. What is not in them is refused: an engine that knows it reads on elsewhere. */
#include "pack/opcodes.h"

enum { LOOKUP = 4 }; /* in a table: is it there, is it made yet, has it this type */

static const instruction plain[] = {
    {0x00, 0x00, NOTHING, 0, 0, 0},            /* unreachable */
    {0x01, 0x01, NOTHING, 0, 0, 0},            /* nop */
    {0x02, 0x02, BLOCK, 0, 0, 1},              /* block */
    {0x03, 0x03, LOOP, 0, 0, 1},               /* loop */
    {0x04, 0x04, BLOCK, 1, 0, 1},              /* if */
    {0x05, 0x05, ELSE, 0, 0, 1},               /* else */
    {0x0b, 0x0b, END, 0, 0, 0},                /* end */
    {0x0c, 0x0c, LABEL, 0, 0, 1},              /* br */
    {0x0d, 0x0d, LABEL, 1, 0, 1},              /* br_if */
    {0x0e, 0x0e, TABLE, 1, 0, 0},              /* br_table */
    {0x0f, 0x0f, NOTHING, 0, 0, 0},            /* return */
    {0x10, 0x10, CALL, 0, 0, 0},               /* call */
    {0x11, 0x11, CALL_INDIRECT, 1, 0, LOOKUP}, /* call_indirect */
    {0x1a, 0x1a, NOTHING, 1, 0, 0},            /* drop */
    {0x1b, 0x1b, NOTHING, 3, 1, 0},            /* select */
    {0x1c, 0x1c, TYPES, 3, 1, 0},              /* select of a type */
    {0x20, 0x20, ONE, 0, 1, 0},                /* local.get */
    {0x21, 0x21, ONE, 1, 0, 0},                /* local.set */
    {0x22, 0x22, ONE, 1, 1, 0},                /* local.tee */
    {0x23, 0x23, ONE, 0, 1, 0},                /* global.get */
    {0x24, 0x24, ONE, 1, 0, 0},                /* global.set */
    {0x25, 0x25, ONE, 1, 1, LOOKUP},           /* table.get */
    {0x26, 0x26, ONE, 2, 0, 0},                /* table.set */
    {0x28, 0x35, ADDRESS, 1, 1, 0},            /* loads */
    {0x36, 0x3e, ADDRESS, 2, 0, 0},            /* stores */
    {0x3f, 0x3f, ONE, 0, 1, 0},                /* memory.size */
    {0x40, 0x40, ONE, 1, 1, 1},                /* memory.grow */
    {0x41, 0x41, I32, 0, 1, 0},                /* constants */
    {0x42, 0x42, I64, 0, 1, 0},                /* i64.const */
    {0x43, 0x43, F32, 0, 1, 0},                /* f32.const */
    {0x44, 0x44, F64, 0, 1, 0},                /* f64.const */
    {0x45, 0x45, NOTHING, 1, 1, 0},            /* i32: eqz */
    {0x46, 0x4f, NOTHING, 2, 1, 0},            /* comparisons */
    {0x50, 0x50, NOTHING, 1, 1, 0},            /* i64: eqz */
    {0x51, 0x66, NOTHING, 2, 1, 0},            /* comparisons, of f too */
    {0x67, 0x69, NOTHING, 1, 1, 0},            /* i32: clz, ctz, popcnt */
    {0x6a, 0x6c, NOTHING, 2, 1, 0},            /* add, sub, mul */
    {0x6d, 0x70, NOTHING, 2, 1, 1},            /* div, rem: they may trap */
    {0x71, 0x78, NOTHING, 2, 1, 0},            /* and .. rotr */
    {0x79, 0x7b, NOTHING, 1, 1, 0},            /* i64 */
    {0x7c, 0x7e, NOTHING, 2, 1, 0},            /* add, sub, mul */
    {0x7f, 0x82, NOTHING, 2, 1, 1},            /* div, rem */
    {0x83, 0x8a, NOTHING, 2, 1, 0},            /* and .. rotr */
    {0x8b, 0x91, NOTHING, 1, 1, 0},            /* f32: abs .. sqrt */
    {0x92, 0x98, NOTHING, 2, 1, 0},            /* add .. copysign */
    {0x99, 0x9f, NOTHING, 1, 1, 0},            /* f64 */
    {0xa0, 0xa6, NOTHING, 2, 1, 0},            /* f64: add .. */
    {0xa7, 0xa7, NOTHING, 1, 1, 0},            /* conversions */
    {0xa8, 0xab, NOTHING, 1, 1, 1},            /* truncations: they may trap */
    {0xac, 0xad, NOTHING, 1, 1, 0},            /* conversions */
    {0xae, 0xb1, NOTHING, 1, 1, 1},            /* truncations */
    {0xb2, 0xc4, NOTHING, 1, 1, 0},            /* conversions */
    {0xd0, 0xd0, HEAP_TYPE, 0, 1, 0},          /* ref.null */
    {0xd1, 0xd1, NOTHING, 1, 1, 0},            /* ref.is_null */
    {0xd2, 0xd2, ONE, 0, 1, 0},                /* ref.func */
    {0xfc, 0xfc, BULK, 0, 0, 0},               /* more: bulk */
    {0xfd, 0xfd, SIMD, 0, 0, 0},               /* more: simd */
};

/* After 0xfc: conversions that saturate, then whole memories and tables */
static const instruction bulk[] = {
    {0, 7, NOTHING, 1, 1, 1}, /* conversions */
    {8, 8, TWO, 3, 0, 1},     /* memory.init */
    {9, 9, ONE, 0, 0, 1},     /* data.drop */
    {10, 10, TWO, 3, 0, 1},   /* memory.copy */
    {11, 11, ONE, 3, 0, 1},   /* memory.fill */
    {12, 12, TWO, 3, 0, 1},   /* table.init */
    {13, 13, ONE, 0, 0, 1},   /* elem.drop */
    {14, 14, TWO, 3, 0, 1},   /* table.copy */
    {15, 15, ONE, 2, 1, 1},   /* table.grow */
    {16, 16, ONE, 0, 1, 1},   /* table.size */
    {17, 17, ONE, 3, 0, 1},   /* table.fill */
};

/* After 0xfd */
static const instruction simd[] = {
    {0, 10, ADDRESS, 1, 1, 0},       /* loads */
    {11, 11, ADDRESS, 2, 0, 0},      /* store */
    {12, 12, BYTES_16, 0, 1, 0},     /* constant */
    {13, 13, BYTES_16, 2, 1, 0},     /* shuffle */
    {14, 14, NOTHING, 2, 1, 0},      /* swizzle */
    {15, 20, NOTHING, 1, 1, 0},      /* splats */
    {21, 22, LANE, 1, 1, 0},         /* i8x16: extract_lane */
    {23, 23, LANE, 2, 1, 0},         /* replace_lane */
    {24, 25, LANE, 1, 1, 0},         /* i16x8 */
    {26, 26, LANE, 2, 1, 0},         /* i16x8: replace_lane */
    {27, 27, LANE, 1, 1, 0},         /* i32x4 */
    {28, 28, LANE, 2, 1, 0},         /* i32x4: replace_lane */
    {29, 29, LANE, 1, 1, 0},         /* i64x2 */
    {30, 30, LANE, 2, 1, 0},         /* i64x2: replace_lane */
    {31, 31, LANE, 1, 1, 0},         /* f32x4 */
    {32, 32, LANE, 2, 1, 0},         /* f32x4: replace_lane */
    {33, 33, LANE, 1, 1, 0},         /* f64x2 */
    {34, 34, LANE, 2, 1, 0},         /* f64x2: replace_lane */
    {35, 76, NOTHING, 2, 1, 0},      /* comparisons */
    {77, 77, NOTHING, 1, 1, 0},      /* not */
    {78, 81, NOTHING, 2, 1, 0},      /* and, andnot, or, xor */
    {82, 82, NOTHING, 3, 1, 0},      /* bitselect */
    {83, 83, NOTHING, 1, 1, 0},      /* any_true */
    {84, 87, ADDRESS_LANE, 2, 1, 0}, /* load_lane */
    {88, 91, ADDRESS_LANE, 2, 0, 0}, /* store_lane */
    {92, 93, ADDRESS, 1, 1, 0},      /* load_zero */
    {94, 100, NOTHING, 1, 1, 0},     /* demote, promote; i8x16: abs .. */
    {101, 102, NOTHING, 2, 1, 0},    /* narrow */
    {103, 106, NOTHING, 1, 1, 0},    /* f32x4: ceil .. nearest */
    {107, 115, NOTHING, 2, 1, 0},    /* i8x16: shifts, add, sub */
    {116, 117, NOTHING, 1, 1, 0},    /* f64x2: ceil, floor */
    {118, 121, NOTHING, 2, 1, 0},    /* i8x16: min, max */
    {122, 122, NOTHING, 1, 1, 0},    /* f64x2: trunc */
    {123, 123, NOTHING, 2, 1, 0},    /* i8x16: avgr */
    {124, 129, NOTHING, 1, 1, 0},    /* sums of pairs; i16x8: abs, neg */
    {130, 130, NOTHING, 2, 1, 0},    /* q15mulr */
    {131, 132, NOTHING, 1, 1, 0},    /* all_true, bitmask */
    {133, 134, NOTHING, 2, 1, 0},    /* narrow */
    {135, 138, NOTHING, 1, 1, 0},    /* extend */
    {139, 147, NOTHING, 2, 1, 0},    /* shifts, add, sub */
    {148, 148, NOTHING, 1, 1, 0},    /* f64x2: nearest */
    {149, 153, NOTHING, 2, 1, 0},    /* i16x8: mul, min, max */
    {155, 159, NOTHING, 2, 1, 0},    /* avgr, extmul */
    {160, 161, NOTHING, 1, 1, 0},    /* i32x4: abs, neg */
    {163, 164, NOTHING, 1, 1, 0},    /* all_true, bitmask */
    {167, 170, NOTHING, 1, 1, 0},    /* extend */
    {171, 174, NOTHING, 2, 1, 0},    /* shifts, add */
    {177, 177, NOTHING, 2, 1, 0},    /* sub */
    {181, 186, NOTHING, 2, 1, 0},    /* mul, min, max, dot */
    {188, 191, NOTHING, 2, 1, 0},    /* extmul */
    {192, 193, NOTHING, 1, 1, 0},    /* i64x2: abs, neg */
    {195, 196, NOTHING, 1, 1, 0},    /* all_true, bitmask */
    {199, 202, NOTHING, 1, 1, 0},    /* extend */
    {203, 206, NOTHING, 2, 1, 0},    /* shifts, add */
    {209, 209, NOTHING, 2, 1, 0},    /* sub */
    {213, 223, NOTHING, 2, 1, 0},    /* mul, comparisons, extmul */
    {224, 225, NOTHING, 1, 1, 0},    /* f32x4: abs, neg */
    {227, 227, NOTHING, 1, 1, 0},    /* sqrt */
    {228, 235, NOTHING, 2, 1, 0},    /* add .. pmax */
    {236, 237, NOTHING, 1, 1, 0},    /* f64x2 */
    {239, 239, NOTHING, 1, 1, 0},    /* f64x2: sqrt */
    {240, 247, NOTHING, 2, 1, 0},    /* f64x2: add .. pmax */
    {248, 255, NOTHING, 1, 1, 0},    /* conversions */
};

static instruction find(const instruction *of, size_t count, uint32_t opcode) {
  for (size_t i = 0; i < count; i++)
    if (opcode >= of[i].first && opcode <= of[i].last) return of[i];
  return (instruction){.kind = BAD};
}

instruction take_instruction(reader *r) {
  uint8_t opcode = take_byte(r);
  instruction i = find(plain, sizeof plain / sizeof *plain, opcode);
  if (i.kind == BULK) i = find(bulk, sizeof bulk / sizeof *bulk, take_u32(r));
  if (i.kind == SIMD) i = find(simd, sizeof simd / sizeof *simd, take_u32(r));
  return i;
}

/* ---- what follows ---- */
bool is_value_type(uint8_t type) { return (type >= 0x7b && type <= 0x7f) || type == 0x70 || type == 0x6f; }

void take_value_type(reader *r) {
  if (!is_value_type(take_byte(r))) r->bad = true;
}

/* Alignments are exponents, 16 bytes the largest; a higher bit would say that the number of a memory follows. */
static void skip_address(reader *r) {
  enum { MOST_ALIGNMENT = 4 };
  if (take_u32(r) > MOST_ALIGNMENT) r->bad = true;
  take_u32(r); /* offset */
}

static void take_heap_type(reader *r) {
  uint8_t type = take_byte(r);
  if (type != 0x70 && type != 0x6f) r->bad = true;
}

static void skip_types(reader *r) {
  if (take_u32(r) != 1) r->bad = true; /* a select gives one value */
  take_value_type(r);
}

void skip_rest(reader *r, kind k) {
  if (k == ONE || k == TWO || k == LABEL) take_u32(r);
  if (k == TWO) take_u32(r);
  if (k == ADDRESS || k == ADDRESS_LANE) skip_address(r);
  if (k == LANE || k == ADDRESS_LANE) skip(r, 1);
  if (k == I32) take_number(r, 35);
  if (k == I64) take_number(r, 70);
  if (k == F32) skip(r, 4);
  if (k == F64) skip(r, 8);
  if (k == BYTES_16) skip(r, 16);
  if (k == TYPES) skip_types(r);
  if (k == HEAP_TYPE) take_heap_type(r);
  if (k == BAD) r->bad = true;
}
