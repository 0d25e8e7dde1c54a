// pack-scan.js -- how much work a module asks of the compiler, counted before it is given to it. The counts and limits
// of src/pack/scan.c, which says what they are for: both hosts refuse the same modules. Instructions that no kernel
// needs (relaxed SIMD, tail calls, threads, ..) cannot be read, and what cannot be read is refused.
import { Reader } from './pack-reader.js';
import { AmbiError } from './wasm.js';

const most = { code: 2 ** 20, functions: 4096, depth: 256, joins: 1e6, locals: 50000 };
const codeSection = 10;
const loopCode = 0x03;

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

function scanFunction(r, arity, work) {
  const locals = takeLocals(r);
  const loop = [false]; // of the blocks around this place
  let [joins, loops] = [1, 0];
  while (loop.length > 0 && loop.length <= most.depth) {
    const opcode = r.byte();
    const kind = kinds[opcode];
    if (kind === 'block') {
      loop.push(opcode === loopCode);
      loops += opcode === loopCode;
    }
    if (kind === 'end') loops -= loop.pop();
    if (kind === 'block' || kind === 'label' || kind === 'else') joins += 1 + loops;
    if (kind === 'table') joins += skipTargets(r) * (1 + loops);
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
  const work = { code: 0, functions: 0, depth: 0, joins: 0 };
  const arity = types.reduce((most, t) => Math.max(most, t.params.length, t.results.length), 0);
  for (const p of parts) if (p.kind === codeSection) scanCode(new CodeReader(p.body.bytes, id), arity, work);
  if (work.code > most.code) refuse(id, `${work.code} bytes of code; at most ${most.code} are compiled`);
  if (work.functions > most.functions) refuse(id, `${work.functions} functions; at most ${most.functions} are compiled`);
  if (work.depth > most.depth) refuse(id, `blocks ${work.depth} deep would take too long to compile; at most ${most.depth}`);
  if (work.joins > most.joins) refuse(id, `${work.joins} branches x locals would take too long to compile; at most ${most.joins}`);
}
