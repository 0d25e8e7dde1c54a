// forge.mjs -- makes packs, good and bad: modules from bytes, manifests, signatures. Runs in node and in a browser.
const subtle = globalThis.crypto?.subtle ?? (await import('node:crypto')).webcrypto.subtle;

// ---- modules -------------------------------------------------------------------------------------------------------
export const leb = (n) => {
  const out = [];
  for (; n >= 128; n = Math.floor(n / 128)) out.push((n % 128) | 128);
  return [...out, n];
};
const signed = (n) => {
  const out = [];
  for (;;) {
    const b = n & 127;
    n >>= 7;
    if ((n === 0 && !(b & 64)) || (n === -1 && b & 64)) return [...out, b];
    out.push(b | 128);
  }
};
const list = (items) => [...leb(items.length), ...items.flat()];
const name = (text) => list([...new TextEncoder().encode(text)].map((b) => [b]));
const section = (id, body) => (body ? [id, ...leb(body.length), ...body] : []);
const limits = ([min, max]) => (max === undefined ? [0, ...leb(min)] : [1, ...leb(min), ...leb(max)]);

export const num = (n) => [0x41, ...signed(n | 0)];
/** Types 0: (i32) -> i32, 1: (i32, i32) -> i32, 2: () -> i32, 3: () -> (), 4: (i64) -> i32 */
const types = [[1, 1], [2, 1], [0, 1], [0, 0]].map(([p, r]) => [0x60, p, ...Array(p).fill(0x7f), r, ...Array(r).fill(0x7f)]);
types.push([0x60, 1, 0x7e, 1, 0x7f]);

/** A module with the ABI's exports whose kernel_forward does `body`; the rest says what is unusual about it. */
export function module(body, { memory = [1], tables, functions = [], start, imports, forwardType = 0, exports = {}, drop = [], locals = 0, declared = locals ? [1, ...leb(locals), 0x7f] : [0],
  extra = [] } = {}) {
  const first = imports ? imports.filter((i) => i.kind === 0).length : 0;
  const all = [[forwardType, body], [1, num(0)], [0, num(0)], [2, num(0)], ...functions];
  const names = { kernel_forward: [0, first], kernel_init: [0, first + 1], kernel_info: [0, first + 2], kernel_cleanup: [0, first + 3],
    memory: [2, 0], ...exports };
  const code = all.map(([, b]) => { const f = [...declared, ...b, 0x0b]; return [...leb(f.length), ...f]; });
  return Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...section(1, list(types)),
    ...section(2, imports && list(imports.map((i) => [...name(i.from), ...name(i.name), i.kind, ...i.type]))),
    ...section(3, list(all.map(([t]) => [t]))),
    ...section(4, tables && list(tables.map((t) => [0x70, ...limits(t)]))),
    ...section(5, memory && list([limits(memory)])), ...extra,
    ...section(7, list(Object.entries(names).filter(([n]) => !drop.includes(n)).map(([n, [kind, index]]) => [...name(n), kind, ...leb(index)]))),
    ...section(8, start === undefined ? undefined : leb(start + first)),
    ...section(10, list(code))]);
}

/** out[0] = 2 a[0] */
export const load = (offset) => [0x20, 0, 0x28, 2, offset];
const a0 = [...load(0), 0x2a, 2, 0];
export const goodBody = [...load(16), ...a0, ...a0, 0x92, 0x38, 2, 0, ...num(0)];
/** out[0] = 3 a[0] */
export const tripleBody = [...load(16), ...a0, ...a0, 0x92, ...a0, 0x92, 0x38, 2, 0, ...num(0)];
export const goodTest = { pass: 'forward', params: '', a: [3], out: [6], tolerance: 1e-6 };

// ---- keys and packs ------------------------------------------------------------------------------------------------
export async function makeKey() {
  const pair = await subtle.generateKey({ name: 'Ed25519' }, true, ['sign', 'verify']);
  return { secret: pair.privateKey, public: new Uint8Array(await subtle.exportKey('raw', pair.publicKey)) };
}

const hex = (bytes) => [...new Uint8Array(bytes)].map((b) => b.toString(16).padStart(2, '0')).join('');
export const sha256 = async (bytes) => `sha256:${hex(await subtle.digest('SHA-256', bytes))}`;

export async function sign(files, key) {
  files['kernels.json.sig'] = new Uint8Array(await subtle.sign({ name: 'Ed25519' }, key.secret, files['kernels.json']));
  return files;
}

/** A signed pack of one kernel k, as {name: bytes}. */
export async function makePack(wasm, key, { kernel = {}, ...pack } = {}) {
  const one = { id: 'k', category: 'custom', path: 'k.wasm', hash: await sha256(wasm), ...kernel };
  const manifest = { name: 'forged', version: '1.0.0', min_runtime_version: '0.0.0', max_runtime_version: '9.0.0', kernels: [one], ...pack };
  return sign({ 'kernels.json': new TextEncoder().encode(JSON.stringify(manifest)), 'k.wasm': wasm }, key);
}

export const textPack = (text, key) => sign({ 'kernels.json': new TextEncoder().encode(text) }, key);
