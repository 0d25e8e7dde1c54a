/* opcodes.h -- the instructions that a kernel may have: what follows each, how many values it takes and gives. */
#ifndef AMBI_PACK_OPCODES_H
#define AMBI_PACK_OPCODES_H
#include "pack/bytes.h"

typedef enum {
  NOTHING,
  BLOCK, /* a type */
  LOOP,
  ELSE,
  END,
  LABEL,
  TABLE, /* labels */
  CALL,  /* a function */
  CALL_INDIRECT,
  ONE, /* an index */
  TWO,
  ADDRESS,
  I32,
  I64,
  F32,
  F64,
  TYPES,
  HEAP_TYPE,
  LANE,
  ADDRESS_LANE,
  BYTES_16,
  BULK, /* more opcodes */
  SIMD,
  BAD
} kind;

typedef struct {
  uint8_t first, last, kind;
  uint8_t pops, pushes; /* but for what the types of blocks and calls say                          */
  uint8_t ways;         /* that part or meet there, also where nobody wrote a branch; not of TABLE */
} instruction;

/* The next one; BAD: none that a kernel may have. */
instruction take_instruction(reader *r);
/* What follows it, where nobody counts it: not of BLOCK, LOOP, TABLE and calls. */
void skip_rest(reader *r, kind k);

/* A type of one byte: a number, a vector or a plain reference. Others take more bytes, and no kernel needs them. */
bool is_value_type(uint8_t type);
void take_value_type(reader *r);

#endif
