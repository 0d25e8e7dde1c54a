// pack-module.js -- a kernel's module before it is compiled: its imports, its exports, what it asks of the compiler, and
// its memory and table held to the limits of the manifest. Engines have no limiter of their own, so the limits are
// written into the module.
import { valueTypes } from './pack-opcodes.js';
import { denied, mostItems, Reader } from './pack-reader.js';
import { checkWork } from './pack-scan.js';

const functionTag = 0x60;
const i32 = 0x7f;
const mostValues = 200000; // of types, in all; src/pack/scan.c
const sections = { type: 1, import: 2, function: 3, table: 4, memory: 5, export: 7 };

/** Functions of numbers, vectors and plain references; newer types take more than a byte, and no kernel needs them. */
function readTypes(r) {
  const strange = () => denied(`refused by exports: ${r.id} has types that kernels have no use for`);
  let values = 0;
  const value = () => {
    if (++values > mostValues) strange();
    const type = r.byte();
    return valueTypes.includes(type) ? type : strange();
  };
  return r.list(() => {
    if (r.byte() !== functionTag) strange();
    return { params: r.list(value), results: r.list(value) };
  });
}

/** {flags, min, max}; shared and 64-bit memories have other flags. */
function readLimits(r, what) {
  const flags = r.byte();
  if (flags > 1) denied(`refused by limits: ${r.id}: its ${what} is shared, or of 64 bits`);
  const min = r.number();
  return { min, max: flags ? r.number() : Infinity };
}

function readTable(r) {
  const type = r.byte();
  if (type !== 0x70 && type !== 0x6f) denied(`refused by limits: ${r.id}: a table that is not of funcref or externref`);
  return { type, ...readLimits(r, 'table') };
}

/** The sections of a module as they lie: [{id, from, to, body}]. */
function readSections(bytes, id) {
  const r = new Reader(bytes, id);
  const magic = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  if (r.take(8).some((b, i) => b !== magic[i])) r.broken();
  const found = [];
  while (r.at < r.end) {
    const from = r.at;
    const kind = r.byte();
    const body = r.within(r.number());
    if (found.push({ kind, from, to: r.at, body }) > mostItems) r.tooMany();
  }
  return found;
}

function checkImports(part, id) {
  if (!part || part.number() === 0) return;
  const [from, name] = [part.name(), part.name()];
  const what = `${from.slice(0, 60)}.${name.slice(0, 60)}`;
  denied(`refused by imports: ${id} asks for ${what}, and a kernel may import nothing`);
}

/** What the ABI asks for: (i32 ..) -> i32 with so many parameters. */
function checkExports(k, types, functions, exports) {
  const wanted = [[k.entry, 1, true], ['kernel_backward', 1, false], ['kernel_init', 2, true], ['kernel_info', 1, true],
    ['kernel_cleanup', 0, true]];
  const fits = (e, count) => {
    const type = e.kind === 0 ? types[functions[e.index]] : undefined;
    const numbers = [...(type?.params ?? []), ...(type?.results ?? [])];
    return type?.params.length === count && type.results.length === 1 && numbers.every((t) => t === i32);
  };
  const missing = (name) => denied(`refused by exports: ${k.id} has no ${name}, or one of another type than the ABI's`);
  for (const [name, count, required] of wanted) {
    const e = exports.get(name);
    if (e ? !fits(e, count) : required) missing(name);
  }
  if (exports.get('memory')?.kind !== 2) missing('memory');
}

// ---- limits --------------------------------------------------------------------------------------------------------
function leb(n) {
  const bytes = [];
  do {
    bytes.push((n % 128) + (n >= 128 ? 128 : 0));
    n = Math.floor(n / 128);
  } while (n > 0);
  return bytes;
}

function lowered(k, limits, most, what) {
  if (limits.min > most)
    denied(`refused by limits: ${k.id}: its ${what} begins with ${limits.min}, and ${most} are allowed`);
  return [1, ...leb(limits.min), ...leb(Math.min(limits.max, most))];
}

function rewrite(bytes, parts, replacements) {
  const out = [bytes.subarray(0, 8)];
  for (const p of parts) {
    const body = replacements.get(p.kind);
    out.push(body ? Uint8Array.from([p.kind, ...leb(body.length), ...body]) : bytes.subarray(p.from, p.to));
  }
  const all = new Uint8Array(out.reduce((n, b) => n + b.length, 0));
  let at = 0;
  for (const b of out) {
    all.set(b, at);
    at += b.length;
  }
  return all;
}

/** The module with its memory and tables held to the kernel's limits, and whether it has a backward pass. */
export function prepareModule(bytes, k) {
  const parts = readSections(bytes, k.id);
  const of = (name) => parts.find((p) => p.kind === sections[name])?.body;
  const list = (name, read) => (of(name) ? of(name).list(() => read(of(name))) : []);
  checkImports(of('import'), k.id);
  const types = of('type') ? readTypes(of('type')) : [];
  const functions = list('function', (r) => r.number());
  const tables = list('table', readTable);
  const memories = list('memory', (r) => readLimits(r, 'memory'));
  const exports = new Map(list('export', (r) => [r.name(), { kind: r.byte(), index: r.number() }]));
  checkExports(k, types, functions, exports);
  if (memories.length !== 1) denied(`refused by limits: ${k.id}: expected one memory, got ${memories.length}`);
  if (tables.length > 8) denied(`refused by limits: ${k.id}: more than 8 tables`);
  checkWork(k.id, types, functions, parts);
  const replacements = new Map([[sections.memory, [1, ...lowered(k, memories[0], k.pages, 'memory')]]]);
  const held = tables.map((t) => [t.type, ...lowered(k, t, k.table, 'table')]);
  if (tables.length) replacements.set(sections.table, [...leb(tables.length), ...held.flat()]);
  return { bytes: rewrite(bytes, parts, replacements), backward: exports.has('kernel_backward') };
}
