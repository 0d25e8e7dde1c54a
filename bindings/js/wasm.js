// wasm.js -- the module, ambi.wasm or ambi-relaxed.wasm: instance, memory, strings, the layout of its structs, and its
// error sentences.

import { startWorker } from './worker.js';

/** Names that manifests and modules give reach terminals and logs in sentences: control characters become spaces. */
export const plain = (text) => text.replace(/[\0-\x1f\x7f-\x9f]/g, ' ');

/** A failure, with the library's sentence: what was expected, what was given. */
export class AmbiError extends Error {
  /** @param {string} message @param {string} [status] the library's name of it: 'invalid', 'unsupported', .. */
  constructor(message, status = 'invalid') {
    super(plain(`${message}`));
    this.name = 'AmbiError';
    this.status = status;
  }
}

export const fail = (message, status) => {
  throw new AmbiError(message, status);
};

/** A value in a sentence: objects may have no text, or run code to have one. */
export const shown = (v) => (['object', 'function'].includes(typeof v) ? typeof v : String(v));

/** Refuses what is no object, and keys of other names: a misspelt one would be a wish that nobody hears. */
export function checkKeys(object, keys, where) {
  if (typeof object !== 'object' || object === null) fail(`${where}: expected {${keys.join(', ')}}`);
  for (const key of Object.keys(object))
    if (!keys.includes(key)) fail(`${where}: there is no ${key.slice(0, 64)}; there are ${keys.join(', ') || 'none'}`);
}

/** (v128, v128, v128) -> v128: f32x4.relaxed_madd. An engine that takes it has relaxed SIMD. */
const relaxedMadd = Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 8, 1, 0x60, 3, 0x7b, 0x7b, 0x7b, 1, 0x7b, 3, 2,
  1, 0, 10, 13, 1, 11, 0, 0x20, 0, 0x20, 1, 0x20, 2, 0xfd, 0x85, 2, 0x0b);

export const hasRelaxed = () => WebAssembly.validate(relaxedMadd);

const isURL = (x) => x instanceof URL || typeof x === 'string';

function urlOf(text) {
  try {
    return new URL(text, typeof location === 'object' ? location.href : import.meta.url);
  } catch {
    return fail(`${text} is no URL`);
  }
}

/** The bytes behind a URL. Node's fetch reads no files, so those are read by its own module. */
export async function readBytes(url) {
  const at = urlOf(url);
  if (at.protocol === 'file:' && typeof process === 'object') {
    const { readFile } = await import('node:fs/promises');
    return readFile(at).catch((e) => fail(`${at.href} cannot be read: ${e.message}`, 'no device'));
  }
  const unfetched = (why) => fail(`${at.href} cannot be fetched: ${why}`, 'no device');
  const response = await fetch(at).catch((e) => unfetched(e.message));
  return response.ok ? response.arrayBuffer().catch((e) => unfetched(e.message)) : unfetched(response.status);
}

const refuse = (e) => fail(`wasm: ${e.message}`);

/** A WebAssembly.Module from what load() accepts: a URL, bytes, or a module. `adapt` may change bytes. */
export async function compile(source, adapt = (bytes) => bytes) {
  const given = await source;
  if (given instanceof WebAssembly.Module) return given;
  const bytes = isURL(given) ? await readBytes(given) : given;
  if (!ArrayBuffer.isView(bytes) && !(bytes instanceof ArrayBuffer)) fail('wasm: expected a URL, bytes or a module');
  return WebAssembly.compile(adapt(bytes)).catch(refuse);
}

/** The memory that the modules import: env.memory, a memory, with limits, shared. */
const sharedImport = Uint8Array.of(3, 0x65, 0x6e, 0x76, 6, 0x6d, 0x65, 0x6d, 0x6f, 0x72, 0x79, 2, 3);

/** Where the code begins: after the imports, so that nothing in it is taken for one. */
function beforeCode(bytes) {
  let at = 8; // after the magic number and the version: sections, each an id, its length in LEB128, its bytes
  while (at < bytes.length && bytes[at] !== 10) {
    let length = 0, shift = 0, b;
    at++;
    do {
      b = bytes[at++];
      length += (b & 127) * 2 ** shift;
      shift += 7;
    } while (b & 128);
    at += length;
  }
  return Math.min(at, bytes.length);
}

/** The module for memory that is not shared, which is in its import alone: not every page may have the other. */
function unshare(bytes) {
  const copy = ArrayBuffer.isView(bytes)
    ? Uint8Array.from(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength))
    : new Uint8Array(bytes.slice(0));
  const at = copy.subarray(0, beforeCode(copy)).findIndex((_, i) => sharedImport.every((b, k) => copy[i + k] === b));
  if (at >= 0) copy[at + sharedImport.length - 1] = 1;
  return copy;
}

/** In pages of 64 KiB. Engines reserve what shared memory may grow to. */
function newMemory(shared) {
  try {
    return new WebAssembly.Memory({ initial: 64, maximum: shared ? 32768 : 65536, shared });
  } catch (e) {
    const hint = shared ? '; a compiled module has it shared, a URL or bytes with one thread do not' : '';
    return fail(`wasm: no memory: ${e.message}${hint}`, 'unsupported');
  }
}

const text = new TextDecoder();

export class Wasm {
  #view;
  #dead = '';
  #threads = [];

  constructor(instance, memory) {
    this.exports = instance.exports;
    this.memory = memory;
    this.exports._initialize();
    this.layout = this.#readLayout();
  }

  /** With `threads` of them in all. A module that was compiled already has its memory shared, with one as well. */
  static async instantiate(source, threads = 1) {
    const given = await source;
    const module = await compile(given, threads === 1 ? unshare : undefined);
    const memory = newMemory(threads > 1 || given instanceof WebAssembly.Module);
    const instance = await WebAssembly.instantiate(module, { env: { memory } }).catch(refuse);
    if (!instance.exports.ambi_js_layout) fail('wasm: expected ambi.wasm or ambi-relaxed.wasm');
    const w = new Wasm(instance, memory);
    const starting = Array.from({ length: threads - 1 }, () => w.#startThread(module));
    try {
      await Promise.all(starting);
    } catch (e) {
      await Promise.allSettled(starting);
      w.endThreads();
      throw e;
    }
    return w;
  }

  async #startThread(module) {
    const stackBytes = 2 ** 21;
    const thread = await startWorker(new URL('./thread.js', import.meta.url));
    this.#threads.push(thread);
    await new Promise((begun, failed) =>
      thread.listen(begun, (why) => failed(new AmbiError(`a thread: ${why}`, 'no device'))));
    const stack = this.alloc(stackBytes) + stackBytes;
    thread.post({ module, memory: this.memory, stack, tls: this.alloc(this.exports.__tls_size.value + 16) });
    thread.hold(false);
  }

  /** Ends the threads. Runs go on without them. */
  endThreads() {
    for (const thread of this.#threads.splice(0)) thread.end();
  }

  /** The memory as it is now: growing it detaches older views. */
  get view() {
    if (this.#view?.buffer !== this.memory.buffer) this.#view = new DataView(this.memory.buffer);
    return this.#view;
  }

  bytes(at, length) {
    return new Uint8Array(this.memory.buffer, at, length);
  }

  u32(at) {
    return this.view.getUint32(at, true);
  }

  /** A C string; null for a null pointer. */
  string(at) {
    if (at === 0) return null;
    const all = new Uint8Array(this.memory.buffer);
    return text.decode(all.slice(at, all.indexOf(0, at))); // a copy: shared memory is not decoded
  }

  /** Whether a call has trapped. */
  get lost() {
    return this.#dead !== '';
  }

  /** A C function by name. Pointers come back unsigned. A trap is a defect: nothing can be trusted after it. */
  call(name, ...args) {
    if (this.#dead) fail(this.#dead, 'device lost');
    try {
      const result = this.exports[name](...args);
      return typeof result === 'number' ? result >>> 0 : result;
    } catch (e) {
      this.#dead = `${name}: the module trapped (${e.message}); this instance can no longer be used`;
      return fail(this.#dead, 'device lost');
    }
  }

  /** A C function that returns an ambi_status; throws its sentence. */
  attempt(name, ...args) {
    const status = this.call(name, ...args);
    if (status !== 0) fail(this.string(this.call('ambi_error')), this.string(this.call('ambi_status_name', status)));
  }

  alloc(bytes, alignment = 16) {
    const most = 2 ** 32 - 2 ** 17;
    const rounded = Math.max(1, Math.ceil(bytes / alignment)) * alignment;
    const at = rounded < most ? this.call('aligned_alloc', alignment, rounded) : 0;
    return at || fail(`no memory for ${bytes} bytes: the module has ${this.memory.buffer.byteLength}`, 'no memory');
  }

  free(at) {
    if (at && !this.lost) this.call('free', at);
  }

  /** Calls use(pointer) with `bytes` zeroed bytes that are freed afterwards. */
  scratch(bytes, use) {
    const at = this.alloc(bytes);
    try {
      this.bytes(at, bytes).fill(0);
      return use(at);
    } finally {
      this.free(at);
    }
  }

  /** {'ambi_op.kind': 0, ..}: surface.c lists it. */
  #readLayout() {
    const layout = {};
    let at = this.exports.ambi_js_layout() >>> 0;
    for (; this.u32(at); at += 8) layout[this.string(this.u32(at))] = this.u32(at + 4);
    return layout;
  }
}
