// pack-scan.js -- how much work a module asks of the compiler, counted before it is given to it. The counts and limits
// of src/pack/scan.c, which says what they are for: both hosts refuse the same modules. Instructions that no kernel
// needs (relaxed SIMD, tail calls, threads, ..) cannot be read, and what cannot be read is refused.
import { Reader } from './pack-reader.js';
import { AmbiError } from './wasm.js';

const most = { code: 2 ** 20, functions: 4096, depth: 256, joins: 1e6, branches: 32768, values: 200000, locals: 50000 };
const lookupBranches = 4; // a call through a table: is it there, is it made yet, has it this type
const codeSection = 10;
const code = { loop: 0x03, call: 0x10, callIndirect: 0x11, tableGet: 0x25 };

const refuse = (id, why) => {
  throw new AmbiError(`${id}: ${why}`, 'compile failed');
};

class CodeReader extends Reader {
  broken() {
    return refuse(this.id, 'its code cannot be read');
  }
}

// ---- instructions: what follows each opcode -------------------------------------------------------------------------
const opcodes = [[0x00, 0x01, 'nothing'], [0x02, 0x04, 'block'], [0x05, 0x05, 'else'], [0x0b, 0x0b, 'end'], [0x0c, 0x0d, 'label'],
  [0x0e, 0x0e, 'table'], [0x0f, 0x0f, 'nothing'], [0x10, 0x10, 'one'], [0x11, 0x11, 'two'], [0x1a, 0x1b, 'nothing'],
  [0x1c, 0x1c, 'types'], [0x20, 0x26, 'one'], [0x28, 0x3e, 'address'], [0x3f, 0x40, 'one'], [0x41, 0x41, 'i32'],
  [0x42, 0x42, 'i64'], [0x43, 0x43, 'f32'], [0x44, 0x44, 'f64'], [0x45, 0xc4, 'nothing'], [0xd0, 0xd0, 'one'],
  [0xd1, 0xd1, 'nothing'], [0xd2, 0xd2, 'one'], [0xfc, 0xfc, 'bulk'], [0xfd, 0xfd, 'simd']];
const kinds = Array(256).fill('bad');
for (const [first, last, kind] of opcodes) kinds.fill(kind, first, last + 1);

function skipAddress(r) {
  r.number(); // alignment
  r.number(); // offset
}

/** 0xfc: saturating conversions, then operations on whole memories and tables with one or two indices */
const bulkIndices = [0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1];
function skipBulk(r) {
  const n = r.number();
  if (n >= bulkIndices.length) r.broken();
  for (let i = 0; i < bulkIndices[n]; i++) r.number();
}

/** 0xfd: loads and stores, constants and shuffles of 16 bytes, lanes; everything else is its opcode alone */
function skipSimd(r) {
  const n = r.number();
  if (n > 255) r.broken();
  if (n <= 11 || (n >= 84 && n <= 93)) skipAddress(r);
  if (n === 12 || n === 13) r.take(16);
  if ((n >= 21 && n <= 34) || (n >= 84 && n <= 91)) r.take(1);
}

const skipRest = {
  nothing() {},
  else() {},
  end() {},
  table() {}, // its targets are counted
  label: (r) => r.number(),
  one: (r) => r.number(),
  two: (r) => [r.number(), r.number()],
  address: skipAddress,
  block: (r) => r.skipNumber(35), // a type: one byte, or the index of one
  i32: (r) => r.skipNumber(35),
  i64: (r) => r.skipNumber(70),
  f32: (r) => r.take(4),
  f64: (r) => r.take(8),
  types: (r) => r.take(r.number()),
  bulk: skipBulk,
  simd: skipSimd,
  bad: (r) => r.broken(),
};

// ---- functions -----------------------------------------------------------------------------------------------------
function takeLocals(r) {
  let all = 0;
  for (let groups = r.number(); groups > 0; groups--) {
    all += r.number();
    r.byte(); // their type
    if (all > most.locals) r.broken();
  }
  return all;
}

/** How many targets it has, the default among them. */
function skipTargets(r) {
  const targets = r.number() + 1;
  for (let i = 0; i < targets; i++) r.number();
  return targets;
}

/** The ways that part or meet at an instruction. */
const joinsOf = (r, kind) => (kind === 'table' ? skipTargets(r) : Number(['block', 'label', 'else'].includes(kind)));

/** What it is to the compiler besides: branches that nobody wrote, values that move. */
function weigh(opcode, kind, arity, work) {
  if (opcode === code.callIndirect || opcode === code.tableGet) work.branches += lookupBranches;
  if (opcode === code.call || opcode === code.callIndirect) work.values += 1 + arity;
  if (kind === 'bulk') work.branches++;
}

function scanFunction(r, arity, work) {
  const locals = takeLocals(r);
  const loop = [false]; // of the blocks around this place
  let [joins, loops] = [1, 0];
  while (loop.length > 0 && loop.length <= most.depth) {
    const opcode = r.byte();
    const kind = kinds[opcode];
    if (kind === 'block') {
      loop.push(opcode === code.loop);
      loops += opcode === code.loop;
    }
    if (kind === 'end') loops -= loop.pop();
    const here = joinsOf(r, kind);
    joins += here * (1 + loops);
    work.branches += here;
    weigh(opcode, kind, arity, work);
    skipRest[kind](r);
    work.depth = Math.max(work.depth, loop.length);
  }
  work.joins += joins * (1 + locals + arity);
  if (r.at < r.end && loop.length === 0) r.broken();
}

function scanCode(r, arity, work) {
  work.code += r.end;
  const count = r.number();
  work.functions += count;
  for (let i = 0; i < count; i++) scanFunction(r.within(r.number()), arity, work);
}

/** `types` as pack-module.js reads them, `parts` all sections. Throws what the native host says. */
export function checkWork(id, types, parts) {
  const work = { code: 0, functions: 0, depth: 0, joins: 0, branches: 0, values: 0 };
  let arity = 0;
  for (const { params, results } of types) {
    work.values += 1 + params.length + results.length;
    arity = Math.max(arity, params.length, results.length);
  }
  for (const p of parts) if (p.kind === codeSection) scanCode(new CodeReader(p.body.bytes, id), arity, work);
  if (work.code > most.code) refuse(id, `${work.code} bytes of code; at most ${most.code} are compiled`);
  if (work.functions > most.functions) refuse(id, `${work.functions} functions; at most ${most.functions} are compiled`);
  if (work.depth > most.depth) refuse(id, `blocks ${work.depth} deep would take too long to compile; at most ${most.depth}`);
  if (work.joins > most.joins) refuse(id, `${work.joins} branches x locals would take too long to compile; at most ${most.joins}`);
  if (work.branches > most.branches) refuse(id, `${work.branches} branches would take too long to compile; at most ${most.branches}`);
  if (work.values > most.values) refuse(id, `${work.values} values of types and calls would take too long to compile; at most ${most.values}`);
}
