// pack-scan.js -- how much work a module asks of the compiler, counted before it is given to it. The counts and limits
// of src/pack/scan.c, which says what they are for: both hosts refuse the same modules. Instructions that no kernel
// needs (relaxed SIMD, tail calls, threads, ..) cannot be read, and what cannot be read is refused.
import { skipRest, takeInstruction, takeValueType, valueTypes } from './pack-opcodes.js';
import { Reader } from './pack-reader.js';
import { AmbiError } from './wasm.js';

const most = { code: 2 ** 20, types: 4096, functions: 4096, depth: 256, height: 1024, joins: 1250000, branches: 32768, merges: 4e8,
  values: 200000, locals: 1024 };
const codeSection = 10;
const ranks = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 10]; // of sections: 12 lies in front of 10
const emptyBlock = 0x40;

const refuse = (id, why) => {
  throw new AmbiError(`${id}: ${why}`, 'compile failed');
};

class CodeReader extends Reader {
  broken() {
    return refuse(this.id, 'its code cannot be read');
  }
}

/** Of what is refused for its size nothing more is read. */
const tooLarge = (w) => w.code > most.code || w.types > most.types || w.functions > most.functions || w.depth > most.depth ||
  w.height > most.height || w.locals > most.locals;

// ---- the operand stack ----------------------------------------------------------------------------------------------
/** Where a function is being read: `frames` are the blocks around it, {loop, base, type}; values below `base` are others'. */
class Place {
  constructor(type, locals) {
    Object.assign(this, { frames: [{ loop: false, base: 0, type }], loops: 0, height: 0, locals, joins: 0, branches: 0 });
  }
  /** Never below what is really there: code that is not reached may take what nobody gave. */
  pop(n) {
    this.height = Math.max(this.height - n, this.frames.at(-1).base);
  }
  enter(loop, type) {
    this.pop(type.params);
    this.frames.push({ loop, base: this.height, type });
    this.height += type.params;
    this.loops += loop;
  }
  otherwise() {
    const { base, type } = this.frames.at(-1);
    this.height = base + type.params;
  }
  /** However the block was left, its results are there. */
  leave() {
    const { loop, base, type } = this.frames.pop();
    this.height = base + type.results;
    this.loops -= loop;
  }
}

// ---- functions -----------------------------------------------------------------------------------------------------
function takeLocals(r) {
  let all = 0;
  for (let groups = r.number(); groups > 0; groups--) {
    all += r.number();
    takeValueType(r);
  }
  return all;
}

/** How many targets it has, the default among them. */
function skipTargets(r) {
  const targets = r.number() + 1;
  for (let i = 0; i < targets; i++) r.number();
  return targets;
}

/** Nothing, a value, or the index of a type: longer forms of the first two are not read. */
function takeBlockType(r, { types }) {
  const first = r.at < r.end ? r.bytes[r.at] : emptyBlock;
  if (first < emptyBlock || first >= 128) return types[r.number()] ?? r.broken();
  r.byte();
  const value = valueTypes.includes(first);
  if (first !== emptyBlock && !value) r.broken();
  return { params: 0, results: Number(value) };
}

function stepCall(r, kind, names, place, work) {
  const index = r.number();
  const type = names.types[kind === 'call' ? names.functions[index] : index] ?? r.broken();
  if (kind === 'callIndirect') r.number(); // the table
  place.pop(type.params);
  place.height += type.results;
  work.values += 1 + work.arity;
}

/** Ways that part or meet: each may have to merge every local, and every value that waits. */
function stepWays(ways, place, work) {
  place.branches += ways;
  place.joins += ways * (1 + place.loops) * (1 + place.locals + work.arity + place.height);
}

function step(r, names, place, work) {
  const { kind, pops, pushes, ways } = takeInstruction(r);
  place.pop(pops);
  if (kind === 'block' || kind === 'loop') place.enter(kind === 'loop', takeBlockType(r, names));
  stepWays(kind === 'table' ? skipTargets(r) : ways, place, work);
  if (kind === 'end') place.leave();
  if (kind === 'call' || kind === 'callIndirect') stepCall(r, kind, names, place, work);
  skipRest[kind](r);
  if (kind === 'else') place.otherwise();
  place.height += pushes;
  work.height = Math.max(work.height, place.height);
  work.depth = Math.max(work.depth, place.frames.length);
}

function scanFunction(r, type, names, work) {
  const place = new Place(type, takeLocals(r));
  place.joins = 1 + place.locals + work.arity;
  work.locals = Math.max(work.locals, place.locals);
  while (place.frames.length > 0 && !tooLarge(work)) step(r, names, place, work);
  work.joins += place.joins;
  work.branches += place.branches;
  if (place.joins <= most.joins) work.merges += place.joins * place.branches; // or they are refused already
  if (r.at < r.end && !tooLarge(work)) r.broken();
}

function scanCode(r, names, work) {
  work.code = r.end;
  if (tooLarge(work)) return;
  const count = r.number();
  for (let i = 0; i < count && !tooLarge(work); i++)
    scanFunction(r.within(r.number()), names.types[names.functions[i]] ?? r.broken(), names, work);
  if (r.at < r.end && !tooLarge(work)) r.broken();
}

/** In their order, each at most once, but for custom ones; no others than the native host knows. */
function checkOrder(parts, broken) {
  let last = 0;
  for (const { kind } of parts) {
    if (kind === 0) continue;
    if (!(ranks[kind] > last)) broken();
    last = ranks[kind];
  }
}

const tooLong = ' would take too long to compile';
const sentences = [['code', '# bytes of code', ' are compiled'], ['types', '# types', ' are compiled'],
  ['functions', '# functions', ' are compiled'], ['depth', `blocks # deep${tooLong}`, ''], ['height', `# values at once${tooLong}`, ''],
  ['locals', `# locals of a function${tooLong}`, ''],
  ['joins', `# branches x locals and values${tooLong}`, ''], ['branches', `# branches${tooLong}`, ''],
  ['merges', `# branches x branches x locals and values${tooLong}`, ''],
  ['values', `# values of types and calls${tooLong}`, '']];

/** `types` and `functions` as pack-module.js reads them, `parts` all sections. Throws what the native host says. */
export function checkWork(id, types, functions, parts) {
  const names = { types: types.map(({ params, results }) => ({ params: params.length, results: results.length })), functions };
  const none = { code: 0, depth: 0, height: 0, locals: 0, joins: 0, merges: 0, branches: 0, values: 0, arity: 0 };
  const work = { ...none, types: types.length, functions: functions.length };
  for (const { params, results } of names.types) {
    work.values += 1 + params + results;
    work.arity = Math.max(work.arity, params, results);
  }
  checkOrder(parts, () => refuse(id, 'its code cannot be read'));
  for (const p of parts) if (p.kind === codeSection) scanCode(new CodeReader(p.body.bytes, id), names, work);
  for (const [what, sentence, end] of sentences)
    if (work[what] > most[what]) refuse(id, `${sentence.replace('#', work[what])}; at most ${most[what]}${end}`);
}
