// pack-manifest.js -- kernels.json: tables of what each object may hold. docs/packs.md describes it;
// src/pack/manifest.c is the same in C.
import { AmbiError } from './wasm.js';

export const most = Object.freeze({ manifest: 4 << 20, module: 16 << 20, kernels: 256, text: 256, depth: 64,
  testValues: 65536 });

const wrong = (message) => {
  throw new AmbiError(`manifest: ${message}`, 'denied');
};

// ---- text: as strict as util/json.c, so that both hosts read the same packs ----------------------------------------
const wholes = new WeakMap(); // of an object or array: its members that are written as integers, and fit 64 bits
const orders = new WeakMap(); // of an object: its names as they are written
const words = { true: true, false: false, null: null };

const isWhole = (token) => /^-?\d{1,19}$/.test(token) && BigInt.asIntN(64, BigInt(token)) === BigInt(token);

function textOf(token) {
  const text = JSON.parse(token);
  return /\p{Surrogate}/u.test(text) ? wrong('half of a surrogate pair without the other') : text;
}

/** The value of valid JSON. Of an object with two fields of one name, readers may believe either: none is taken. */
function build(text) {
  const tokens = text.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\]]|[^\s,:"{}[\]]+/gs);
  const next = () => tokens.next().value[0];
  const put = (to, key, token, depth) => {
    to[key] = value(token, depth);
    if (isWhole(token)) wholes.get(to).add(key);
  };
  const fill = (to, depth) => {
    if (depth > most.depth) wrong(`nested deeper than ${most.depth}`);
    wholes.set(to, new Set());
    orders.set(to, []);
    for (let token = next(); token !== '}' && token !== ']'; token = next()) {
      if (Array.isArray(to)) {
        put(to, to.length, token, depth);
        continue;
      }
      const name = textOf(token);
      if (Object.hasOwn(to, name)) wrong(`two fields of one object are called ${name.slice(0, 40)}`);
      orders.get(to).push(name);
      put(to, name, next(), depth);
    }
    return to;
  };
  const value = (token, depth) => {
    if (token === '{' || token === '[') return fill(token === '{' ? Object.create(null) : [], depth + 1);
    if (token[0] === '"') return textOf(token);
    if (Object.hasOwn(words, token)) return words[token];
    return Number.isFinite(Number(token)) ? Number(token) : wrong('a number beyond the range of f64');
  };
  return value(next(), 0);
}

function parse(bytes) {
  if (bytes.length > most.manifest) wrong(`larger than ${most.manifest} bytes`);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    JSON.parse(text);
  } catch (e) {
    wrong(e.message);
  }
  return build(text);
}

// ---- objects by table ----------------------------------------------------------------------------------------------
const typeOf = (v) => (v === null ? 'null' : Array.isArray(v) ? 'array' : typeof v);
const get = (o, name) => (o !== undefined && Object.hasOwn(o, name) ? o[name] : undefined);

/** fields: 'name:type' or 'name:type!' where it is required. */
function checkFields(o, where, fields) {
  if (typeOf(o) !== 'object') wrong(`${where}: expected an object, got ${typeOf(o)}`);
  for (const field of fields.split(' ')) {
    const [, name, type, required] = field.match(/^(\w+):(\w+)(!?)$/);
    const value = get(o, name);
    if (value === undefined && required) wrong(`${where}: ${name} is missing`);
    if (value === undefined) continue;
    if (typeOf(value) !== type) wrong(`${where}: ${name}: expected ${type}, got ${typeOf(value)}`);
    if (type === 'string' && (new TextEncoder().encode(value).length > most.text || value.includes('\0')))
      wrong(`${where}: ${name}: longer than ${most.text} bytes, or with a NUL inside`);
  }
}

function integer(o, where, name, low, high, absent) {
  const v = get(o, name);
  if (v === undefined) return absent;
  return wholes.get(o).has(name) && v >= low && v <= high ? v : wrong(`${where}: ${name}: expected an integer from ${low} to ${high}`);
}

// ---- versions ------------------------------------------------------------------------------------------------------
export function parseVersion(text) {
  const parts = /^(\d{1,9})\.(\d{1,9})\.(\d{1,9})$/.exec(text);
  return parts ? parts.slice(1).map(Number) : null;
}

export function compareVersions(a, b) {
  for (let i = 0; i < 3; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

const version = (o, name) =>
  parseVersion(o[name]) ?? wrong(`${name}: expected a version such as 1.2.3, got ${o[name].slice(0, 40)}`);

// ---- kernels -------------------------------------------------------------------------------------------------------
const categories = ['positional_encoding', 'normalization', 'activation', 'kv_cache', 'adapter', 'attention', 'custom'];
const isPath = (s) => /^[\w-][\w.-]*(\/[\w-][\w.-]*)*$/.test(s);

function checkTensors(list, where) {
  for (const t of list ?? []) {
    checkFields(t, where, 'name:string! dtype:string! shape:array!');
    for (const [i, n] of t.shape.entries())
      if (typeof n !== 'string' && !(wholes.get(t.shape).has(i) && n >= 0))
        wrong(`${where}: shape: expected symbols and sizes`);
  }
}

function checkWords(k, ids) {
  if (!/^[\w.-]+$/.test(k.id)) wrong("a kernel's id is not a plain word");
  if (ids.has(k.id)) wrong(`two kernels are called ${k.id}`);
  if (!isPath(k.path)) wrong(`${k.id}: path: not a plain path inside the pack`);
  if (!/^sha256:[0-9a-f]{64}$/.test(k.hash)) wrong(`${k.id}: hash: expected sha256:<64 hex digits>`);
  if (!categories.includes(k.category)) wrong(`${k.id}: category: unknown`);
  if (!/^\w+$/.test(k.entry)) wrong(`${k.id}: entry_point: not a plain word`);
}

function readKernel(o, ids) {
  checkFields(o, 'a kernel', 'id:string! name:string category:string! path:string! hash:string! entry_point:string ' +
    'inputs:array outputs:array params:object resource_limits:object platforms:array benchmarks:object self_test:array');
  const k = { id: o.id, name: get(o, 'name') ?? o.id, category: o.category, path: o.path, hash: o.hash };
  k.entry = get(o, 'entry_point') ?? 'kernel_forward';
  checkWords(k, ids);
  checkTensors(get(o, 'inputs'), k.id);
  checkTensors(get(o, 'outputs'), k.id);
  k.params = (orders.get(get(o, 'params')) ?? []).map((name) => {
    const p = o.params[name];
    checkFields(p, k.id, 'type:string! default:number min:number max:number');
    if (p.type !== 'u32' && p.type !== 'f32') wrong(`${k.id}: params: expected types u32 and f32`);
    return Object.freeze({ name, type: p.type, absent: get(p, 'default') ?? 0,
      min: get(p, 'min') ?? -Infinity, max: get(p, 'max') ?? Infinity });
  });
  Object.freeze(k.params);
  if ((get(o, 'platforms') ?? []).some((p) => typeof p !== 'string')) wrong(`${k.id}: platforms: expected strings`);
  const limits = get(o, 'resource_limits');
  k.pages = integer(limits, k.id, 'max_memory_pages', 1, 65536, 256);
  k.ticks = integer(limits, k.id, 'max_epoch_ticks', 1, 3600000, 1000);
  k.table = integer(limits, k.id, 'max_table_elements', 0, 1 << 20, 1024);
  k.selfTest = get(o, 'self_test') ?? [];
  return Object.freeze(k);
}

/** kernels.json, checked; throws what is wrong with it. */
export function readManifest(bytes) {
  const o = parse(bytes);
  checkFields(o, 'the pack', 'version:string! name:string! description:string min_runtime_version:string! ' +
    'max_runtime_version:string! created_at:string author:object kernels:array! fallbacks:object');
  if (get(o, 'author')) checkFields(o.author, 'author', 'name:string email:string signing_key:string');
  if (!/^[\w.-]+$/.test(o.name)) wrong('name: not a plain word');
  const m = { name: o.name, versionText: o.version, description: get(o, 'description') ?? '' };
  m.version = version(o, 'version');
  m.minRuntime = version(o, 'min_runtime_version');
  m.maxRuntime = version(o, 'max_runtime_version');
  if (o.kernels.length > most.kernels) wrong(`more than ${most.kernels} kernels`);
  m.kernels = new Map();
  for (const k of o.kernels) {
    const kernel = readKernel(k, m.kernels);
    m.kernels.set(kernel.id, kernel);
  }
  m.fallbacks = new Map(Object.entries(get(o, 'fallbacks') ?? {}));
  for (const to of m.fallbacks.values()) if (!m.kernels.has(to)) wrong('fallbacks: expected ids of kernels');
  return m;
}
