// opcodes.mjs -- the tables of instructions that a pack's code is counted by, beside what the engine says of each.
import { leb } from './forge.mjs';

const rest = { nothing: [], one: [0], two: [0, 0], address: [0, 0], lane: [0], addressLane: [0, 0, 0], bytes16: Array(16).fill(0), i32: [0], i64: [0],
  f32: Array(4).fill(0), f64: Array(8).fill(0), types: [1, 0x7f], heapType: [0x70] };
const values = [[0x41, 0], [0x42, 0], [0x43, ...rest.f32], [0x44, ...rest.f64], [0xfd, 12, ...rest.bytes16], [0xd0, 0x70], [0xd0, 0x6f]];
const drop = 0x1a;

/** Of each instruction but branches, blocks and calls: {bytes, pops, pushes}, and of those that the tables have not {bytes}. */
function* each({ instructions, more }) {
  for (const [front, table] of [[[], instructions], [[0xfc], more.bulk], [[0xfd], more.simd]])
    for (const [opcode, { kind, pops, pushes }] of table.entries()) {
      const bytes = [...front, ...(front.length ? leb(opcode) : [opcode])];
      if (kind === 'bad') yield { bytes };
      else if (rest[kind]) yield { bytes: [...bytes, ...rest[kind]], pops, pushes };
    }
}

/** A module with a local, a table, a memory, a global, a segment of each kind, and this in its function. */
function around(body) {
  const section = (id, bytes) => [id, ...leb(bytes.length), ...bytes];
  const f = [1, 1, 0x7f, ...body, 0x0b];
  return Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...section(1, [1, 0x60, 0, 0]), ...section(3, [1, 0]), ...section(4, [1, 0x70, 0, 1]),
    ...section(5, [1, 0, 1]), ...section(6, [1, 0x7f, 1, 0x41, 0, 0x0b]), ...section(7, [1, 1, 0x66, 0, 0]), ...section(9, [1, 1, 0, 1, 0]),
    ...section(12, [1]), ...section(10, [1, ...leb(f.length), ...f]), ...section(11, [1, 1, 0])]);
}

/** The shortest operands, of any types, that the engine takes: [how many, results]; null: none. */
function effect(bytes) {
  for (let lists = [[]], count = 0; count <= 3; lists = lists.flatMap((l) => values.map((v) => [...l, ...v])), count++)
    for (const list of lists)
      for (const results of [0, 1]) if (WebAssembly.validate(around([...list, ...bytes, ...Array(results).fill(drop)]))) return [count, results];
  return null;
}

/** {count, wrong}: how many instructions the engine knows, and where the tables say otherwise. */
export function compareOpcodes(opcodes) {
  const wrong = [];
  let count = 0;
  for (const { bytes, pops, pushes } of each(opcodes)) {
    const real = effect(bytes);
    if (real) count++;
    if (`${real ?? ''}` !== (pops === undefined ? '' : `${[pops, pushes]}`)) wrong.push(`${bytes.slice(0, 3)}: ${real}, expected ${pops},${pushes}`);
  }
  return { count, wrong };
}

/** Every instruction, its results left on the stack, and after each a block: a sum of how high the stack is everywhere. */
export function everyInstruction(opcodes) {
  const known = [...each(opcodes)].filter((i) => i.pops !== undefined);
  return known.flatMap(({ bytes, pops }) => [...Array(pops).fill([0x41, 0]).flat(), ...bytes, 0x02, 0x40, 0x0b]);
}
