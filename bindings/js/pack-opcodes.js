// pack-opcodes.js -- the instructions that a kernel may have: the tables of src/pack/opcodes.c, where each row has its name.
// What is not in them is refused: an engine that knows it reads on elsewhere.
const lookup = 4; // in a table: is it there, is it made yet, has it this type

// [first, last, what follows, values it takes, values it gives, ways that part or meet there]
const plain = [
  [0x00, 0x00, 'nothing', 0, 0, 0], [0x01, 0x01, 'nothing', 0, 0, 0], [0x02, 0x02, 'block', 0, 0, 1],
  [0x03, 0x03, 'loop', 0, 0, 1], [0x04, 0x04, 'block', 1, 0, 1], [0x05, 0x05, 'else', 0, 0, 1],
  [0x0b, 0x0b, 'end', 0, 0, 0], [0x0c, 0x0c, 'label', 0, 0, 1], [0x0d, 0x0d, 'label', 1, 0, 1],
  [0x0e, 0x0e, 'table', 1, 0, 0], [0x0f, 0x0f, 'nothing', 0, 0, 0], [0x10, 0x10, 'call', 0, 0, 0],
  [0x11, 0x11, 'callIndirect', 1, 0, lookup], [0x1a, 0x1a, 'nothing', 1, 0, 0], [0x1b, 0x1b, 'nothing', 3, 1, 0],
  [0x1c, 0x1c, 'types', 3, 1, 0], [0x20, 0x20, 'one', 0, 1, 0], [0x21, 0x21, 'one', 1, 0, 0],
  [0x22, 0x22, 'one', 1, 1, 0], [0x23, 0x23, 'one', 0, 1, 0], [0x24, 0x24, 'one', 1, 0, 0],
  [0x25, 0x25, 'one', 1, 1, lookup], [0x26, 0x26, 'one', 2, 0, 0], [0x28, 0x35, 'address', 1, 1, 0],
  [0x36, 0x3e, 'address', 2, 0, 0], [0x3f, 0x3f, 'one', 0, 1, 0], [0x40, 0x40, 'one', 1, 1, 1],
  [0x41, 0x41, 'i32', 0, 1, 0], [0x42, 0x42, 'i64', 0, 1, 0], [0x43, 0x43, 'f32', 0, 1, 0],
  [0x44, 0x44, 'f64', 0, 1, 0], [0x45, 0x45, 'nothing', 1, 1, 0], [0x46, 0x4f, 'nothing', 2, 1, 0],
  [0x50, 0x50, 'nothing', 1, 1, 0], [0x51, 0x66, 'nothing', 2, 1, 0], [0x67, 0x69, 'nothing', 1, 1, 0],
  [0x6a, 0x6c, 'nothing', 2, 1, 0], [0x6d, 0x70, 'nothing', 2, 1, 1],
  [0x71, 0x78, 'nothing', 2, 1, 0], [0x79, 0x7b, 'nothing', 1, 1, 0], [0x7c, 0x7e, 'nothing', 2, 1, 0], [0x7f, 0x82, 'nothing', 2, 1, 1],
  [0x83, 0x8a, 'nothing', 2, 1, 0],
  [0x8b, 0x91, 'nothing', 1, 1, 0], [0x92, 0x98, 'nothing', 2, 1, 0], [0x99, 0x9f, 'nothing', 1, 1, 0],
  [0xa0, 0xa6, 'nothing', 2, 1, 0], [0xa7, 0xa7, 'nothing', 1, 1, 0], [0xa8, 0xab, 'nothing', 1, 1, 1],
  [0xac, 0xad, 'nothing', 1, 1, 0], [0xae, 0xb1, 'nothing', 1, 1, 1], [0xb2, 0xc4, 'nothing', 1, 1, 0], [0xd0, 0xd0, 'heapType', 0, 1, 0],
  [0xd1, 0xd1, 'nothing', 1, 1, 0], [0xd2, 0xd2, 'one', 0, 1, 0], [0xfc, 0xfc, 'bulk', 0, 0, 0],
  [0xfd, 0xfd, 'simd', 0, 0, 0],
];
const bulk = [ // after 0xfc
  [0, 7, 'nothing', 1, 1, 1], [8, 8, 'two', 3, 0, 1], [9, 9, 'one', 0, 0, 1], [10, 10, 'two', 3, 0, 1],
  [11, 11, 'one', 3, 0, 1], [12, 12, 'two', 3, 0, 1], [13, 13, 'one', 0, 0, 1], [14, 14, 'two', 3, 0, 1],
  [15, 15, 'one', 2, 1, 1], [16, 16, 'one', 0, 1, 1], [17, 17, 'one', 3, 0, 1],
];
const simd = [ // after 0xfd
  [0, 10, 'address', 1, 1, 0], [11, 11, 'address', 2, 0, 0], [12, 12, 'bytes16', 0, 1, 0],
  [13, 13, 'bytes16', 2, 1, 0], [14, 14, 'nothing', 2, 1, 0], [15, 20, 'nothing', 1, 1, 0],
  [21, 22, 'lane', 1, 1, 0], [23, 23, 'lane', 2, 1, 0], [24, 25, 'lane', 1, 1, 0], [26, 26, 'lane', 2, 1, 0],
  [27, 27, 'lane', 1, 1, 0], [28, 28, 'lane', 2, 1, 0], [29, 29, 'lane', 1, 1, 0], [30, 30, 'lane', 2, 1, 0],
  [31, 31, 'lane', 1, 1, 0], [32, 32, 'lane', 2, 1, 0], [33, 33, 'lane', 1, 1, 0], [34, 34, 'lane', 2, 1, 0],
  [35, 76, 'nothing', 2, 1, 0], [77, 77, 'nothing', 1, 1, 0], [78, 81, 'nothing', 2, 1, 0],
  [82, 82, 'nothing', 3, 1, 0], [83, 83, 'nothing', 1, 1, 0], [84, 87, 'addressLane', 2, 1, 0],
  [88, 91, 'addressLane', 2, 0, 0], [92, 93, 'address', 1, 1, 0], [94, 100, 'nothing', 1, 1, 0],
  [101, 102, 'nothing', 2, 1, 0], [103, 106, 'nothing', 1, 1, 0], [107, 115, 'nothing', 2, 1, 0],
  [116, 117, 'nothing', 1, 1, 0], [118, 121, 'nothing', 2, 1, 0], [122, 122, 'nothing', 1, 1, 0],
  [123, 123, 'nothing', 2, 1, 0], [124, 129, 'nothing', 1, 1, 0], [130, 130, 'nothing', 2, 1, 0],
  [131, 132, 'nothing', 1, 1, 0], [133, 134, 'nothing', 2, 1, 0], [135, 138, 'nothing', 1, 1, 0],
  [139, 147, 'nothing', 2, 1, 0], [148, 148, 'nothing', 1, 1, 0], [149, 153, 'nothing', 2, 1, 0],
  [155, 159, 'nothing', 2, 1, 0], [160, 161, 'nothing', 1, 1, 0], [163, 164, 'nothing', 1, 1, 0],
  [167, 170, 'nothing', 1, 1, 0], [171, 174, 'nothing', 2, 1, 0], [177, 177, 'nothing', 2, 1, 0],
  [181, 186, 'nothing', 2, 1, 0], [188, 191, 'nothing', 2, 1, 0], [192, 193, 'nothing', 1, 1, 0],
  [195, 196, 'nothing', 1, 1, 0], [199, 202, 'nothing', 1, 1, 0], [203, 206, 'nothing', 2, 1, 0],
  [209, 209, 'nothing', 2, 1, 0], [213, 223, 'nothing', 2, 1, 0], [224, 225, 'nothing', 1, 1, 0],
  [227, 227, 'nothing', 1, 1, 0], [228, 235, 'nothing', 2, 1, 0], [236, 237, 'nothing', 1, 1, 0],
  [239, 239, 'nothing', 1, 1, 0], [240, 247, 'nothing', 2, 1, 0], [248, 255, 'nothing', 1, 1, 0],
];

const bad = { kind: 'bad', pops: 0, pushes: 0, ways: 0 };
const spread = (rows) => {
  const all = Array(256).fill(bad);
  for (const [first, last, kind, pops, pushes, ways] of rows) all.fill({ kind, pops, pushes, ways }, first, last + 1);
  return all;
};
/** By opcode; by prefix, then opcode. */
export const instructions = spread(plain);
export const more = { bulk: spread(bulk), simd: spread(simd) };

export function takeInstruction(r) {
  const i = instructions[r.byte()];
  return more[i.kind] ? more[i.kind][r.number()] ?? bad : i;
}

// ---- what follows --------------------------------------------------------------------------------------------------
/** Types of one byte: numbers, vectors, plain references. Others take more bytes, and no kernel needs them. */
export const valueTypes = [0x7f, 0x7e, 0x7d, 0x7c, 0x7b, 0x70, 0x6f];
export const takeValueType = (r) => valueTypes.includes(r.byte()) || r.broken();

/** Alignments are exponents, 16 bytes the largest; a higher bit would say that the number of a memory follows. */
function skipAddress(r) {
  if (r.number() > 4) r.broken();
  r.number(); // offset
}

const nothing = () => {};
export const skipRest = {
  nothing,
  block: nothing, // these are counted
  loop: nothing,
  else: nothing,
  end: nothing,
  table: nothing,
  call: nothing,
  callIndirect: nothing,
  label: (r) => r.number(),
  one: (r) => r.number(),
  two: (r) => [r.number(), r.number()],
  address: skipAddress,
  lane: (r) => r.take(1),
  addressLane: (r) => [skipAddress(r), r.take(1)],
  i32: (r) => r.skipNumber(35),
  i64: (r) => r.skipNumber(70),
  f32: (r) => r.take(4),
  f64: (r) => r.take(8),
  bytes16: (r) => r.take(16),
  types: (r) => (r.number() === 1 ? takeValueType(r) : r.broken()), // a select gives one value
  heapType: (r) => [0x70, 0x6f].includes(r.byte()) || r.broken(),
  bad: (r) => r.broken(),
};
