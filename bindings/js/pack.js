// pack.js -- the host of kernel packs: compute kernels that can be run without trusting them. docs/packs.md describes
// packs; the host in C is include/ambi/pack.h.
//
//   const host = new PackHost({ trusted: ['<64 hex digits>'] });
//   const pack = await host.open('https://example.org/kernels/');     verified: nothing is compiled yet
//   const swiglu = await pack.kernel('swiglu_f32');                    compiled, started, self-tested
//   const { out } = await swiglu.run({ a: x, b: gate, out: x.byteLength, params });
import { AmbiError, fail } from './wasm.js';
import { Instance } from './pack-instance.js';
import { compareVersions, most, parseVersion, readManifest } from './pack-manifest.js';
import { prepareModule } from './pack-module.js';

export { AmbiError };

/** The version of ambi that this host belongs to. */
export const runtimeVersion = '0.1.0';

const denied = (message) => fail(message, 'denied');
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (b) => parseInt(b, 16));
const hex = (bytes) => [...bytes].map((b) => b.toString(16).padStart(2, '0')).join('');

// ---- sources: a folder's files by name -----------------------------------------------------------------------------
async function readStream(response, name, limit) {
  const parts = [];
  let size = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    size += value.length;
    if (size > limit) {
      reader.cancel();
      denied(`refused by files: ${name}: larger than this file may be`);
    }
  }
}

/** name -> bytes, from a URL of a folder, an object {name: bytes}, or a function. */
function sourceOf(source) {
  if (typeof source === 'function') return source;
  if (typeof source === 'string' || source instanceof URL) {
    const here = typeof location === 'object' ? location.href : undefined;
    const folder = new URL(String(source).replace(/\/?$/, '/'), here);
    return async (name, limit) => {
      if (folder.protocol === 'file:') return readLocal(new URL(name, folder), name, limit);
      const response = await fetch(new URL(name, folder));
      return response.ok ? readStream(response, name, limit) : undefined;
    };
  }
  if (typeof source !== 'object' || source === null)
    fail('open: expected a URL, {name: bytes}, or a function of a name');
  return async (name) => (Object.hasOwn(source, name) ? source[name] : undefined);
}

async function readLocal(url, name, limit) {
  const { open } = await import('node:fs/promises');
  const file = await open(url).catch(() => undefined);
  if (!file) return undefined;
  try {
    const { size } = await file.stat();
    if (size > limit) denied(`refused by files: ${name}: larger than this file may be`);
    return new Uint8Array(await file.readFile());
  } finally {
    await file.close();
  }
}

// ---- cryptography: the engine's own --------------------------------------------------------------------------------
async function cryptography() {
  const nodes = async () => (typeof process === 'object' ? (await import('node:crypto')).webcrypto.subtle : undefined);
  const subtle = globalThis.crypto?.subtle ?? (await nodes());
  return subtle ?? fail('kernel packs need WebCrypto, which a page has over https or on this machine', 'no device');
}

function keyBytes(key) {
  const bytes = typeof key === 'string' && /^[0-9a-f]{64}$/i.test(key.trim())
    ? fromHex(key.trim())
    : key;
  if (!(bytes instanceof Uint8Array) || bytes.length !== 32) fail('a key: expected 32 bytes, or 64 hex digits');
  return bytes.slice();
}

async function isSignedBy(key, signature, text) {
  const subtle = await cryptography();
  try {
    const imported = await subtle.importKey('raw', key, { name: 'Ed25519' }, false, ['verify']);
    return await subtle.verify({ name: 'Ed25519' }, imported, signature, text);
  } catch (e) {
    if (e.name === 'NotSupportedError') fail('this engine has no Ed25519', 'no device');
    return false; // no point of the curve
  }
}

export async function hashOf(bytes) {
  return `sha256:${hex(new Uint8Array(await (await cryptography()).digest('SHA-256', bytes)))}`;
}

// ---- the host ------------------------------------------------------------------------------------------------------
export class PackHost {
  #options;
  #newest = new Map();
  #loaded = null;
  #active = null;
  #previous = null;

  /**
   * trusted, revoked: Ed25519 public keys. allowed: [{id, hash}], the only modules a pack may have. state: {load, save}
   * of an object of names and versions, to remember what was activated. report(check, passed, sentence) is told about
   * each check.
   */
  constructor(options = {}) {
    const o = { trusted: [], revoked: [], allowed: [], state: null, report: null, ...options };
    if (o.insecure_accept_unsigned_packs_for_development && typeof o.report !== 'function')
      fail('insecure_accept_unsigned_packs_for_development: needs a report function');
    for (const list of ['trusted', 'revoked', 'allowed'])
      if (!Array.isArray(o[list])) fail(`${list}: expected an array`);
    o.trusted = o.trusted.map(keyBytes);
    o.revoked = o.revoked.map(keyBytes);
    o.allowed = o.allowed.map(({ id, hash }) => ({ id, hash }));
    this.#options = o;
  }

  #passed(check, sentence) {
    this.#options.report?.(check, true, sentence);
  }
  #refused(check, sentence) {
    this.#options.report?.(check, false, sentence);
    return denied(`refused by ${check}: ${sentence}`);
  }

  async #file(source, name, limit) {
    const data = await source(name, limit);
    if (data === undefined || data === null) return this.#refused('files', `${name} is not there`);
    const bytes = new Uint8Array(data).slice(); // a copy: nobody changes it after the check
    return bytes.length > limit ? this.#refused('files', `${name}: larger than this file may be`) : bytes;
  }

  /** Every check of docs/packs.md, in its order. Nothing is compiled. */
  async open(from) {
    const source = sourceOf(from);
    await this.#load();
    const text = await this.#file(source, 'kernels.json', most.manifest);
    await this.#checkOrigin(source, text);
    const manifest = this.#checkManifest(text);
    this.#checkVersions(manifest);
    const modules = new Map();
    for (const k of manifest.kernels.values()) modules.set(k.id, await this.#checkModule(source, k));
    return new Pack(this, manifest, modules);
  }

  async #checkOrigin(source, text) {
    const o = this.#options;
    if (o.insecure_accept_unsigned_packs_for_development) {
      this.#passed('signature', 'NOT CHECKED: insecure_accept_unsigned_packs_for_development is set');
      return;
    }
    const signature = await this.#file(source, 'kernels.json.sig', 4096);
    if (signature.length !== 64)
      this.#refused('signature', `kernels.json.sig has ${signature.length} bytes, a signature has 64`);
    for (const key of o.revoked)
      if (await isSignedBy(key, signature, text))
        this.#refused('revoked keys', `kernels.json is signed by a revoked key, ${hex(key)}`);
    for (const key of o.trusted) {
      if (!(await isSignedBy(key, signature, text))) continue;
      this.#passed('signature', `kernels.json is signed by the trusted key ${hex(key)}`);
      this.#passed('revoked keys', `that key is none of the ${o.revoked.length} revoked`);
      return;
    }
    const none = `kernels.json is not signed by any of the ${o.trusted.length} trusted keys, or was changed since`;
    this.#refused('signature', none);
  }

  #checkManifest(text) {
    let manifest;
    try {
      manifest = readManifest(text);
    } catch (e) {
      this.#refused('manifest', e.message);
    }
    this.#passed('manifest', `${manifest.name} ${manifest.versionText}, ${manifest.kernels.size} kernels`);
    return manifest;
  }

  #checkVersions(m) {
    const runtime = parseVersion(runtimeVersion);
    const fits = compareVersions(runtime, m.minRuntime) >= 0 && compareVersions(runtime, m.maxRuntime) <= 0;
    const range = `the pack is for ${m.minRuntime.join('.')} to ${m.maxRuntime.join('.')}, this is ${runtimeVersion}`;
    if (!fits) this.#refused('runtime version', range);
    this.#passed('runtime version', range);
    this.#checkDowngrade(m);
  }

  #checkDowngrade(m) {
    const newest = this.#newest.get(m.name);
    if (!newest) return void this.#passed('downgrade', `no version of ${m.name} was activated before`);
    const sentence = `${m.name} is ${m.versionText}, and ${newest.join('.')} was activated before`;
    if (compareVersions(m.version, newest) < 0) this.#refused('downgrade', sentence);
    this.#passed('downgrade', sentence);
  }

  async #checkModule(source, k) {
    const bytes = await this.#file(source, k.path, most.module);
    const hash = await hashOf(bytes);
    if (hash !== k.hash) this.#refused('hash', `${k.id}: the manifest says ${k.hash}, ${k.path} has ${hash}`);
    this.#passed('hash', `${k.id}: ${k.path} has the hash of the manifest`);
    const { allowed } = this.#options;
    if (allowed.length === 0) return bytes;
    if (!allowed.some((a) => a.id === k.id && a.hash === k.hash))
      this.#refused('allowlist', `${k.id} with hash ${k.hash} is not allowed`);
    this.#passed('allowlist', `${k.id} with this hash is allowed`);
    return bytes;
  }

  // ---- what was activated ------------------------------------------------------------------------------------------
  #load() {
    return (this.#loaded ??= this.#readState());
  }
  async #readState() {
    const state = (await this.#options.state?.load()) ?? {};
    if (typeof state !== 'object' || Array.isArray(state)) denied('the state of kernel packs: expected an object');
    for (const [name, text] of Object.entries(state)) {
      const version = typeof text === 'string' ? parseVersion(text) : null;
      if (!version) denied('the state of kernel packs: expected names of packs and their versions');
      this.#newest.set(name, version);
    }
  }
  async #activate(m) {
    const newest = this.#newest.get(m.name);
    if (newest && compareVersions(m.version, newest) < 0)
      this.#refused('downgrade', `a newer ${m.name} than ${m.versionText} was activated before`);
    const next = new Map(this.#newest).set(m.name, m.version);
    await this.#options.state?.save(Object.fromEntries([...next].map(([name, v]) => [name, v.join('.')])));
    this.#newest = next;
  }

  // ---- the active pack ---------------------------------------------------------------------------------------------
  /** Every kernel is compiled and self-tested first; calls under way finish on the old pack. */
  async swap(pack) {
    if (!(pack instanceof Pack) || pack.host !== this) fail('swap: expected a pack that this host opened');
    for (const id of pack.kernels) await pack.load(id);
    await this.#activate(pack.manifest);
    this.#previous?.rest();
    this.#previous = this.#active;
    this.#active = pack;
  }

  /** To the pack before, once. */
  rollback() {
    if (!this.#previous) fail('there is no pack to roll back to');
    this.#active.rest();
    [this.#active, this.#previous] = [this.#previous, null];
  }

  /** A call of the active pack's kernel. */
  async run(id, call) {
    if (!this.#active) fail('no pack is active');
    return (await this.#active.kernel(id)).run(call);
  }

  close() {
    this.#active?.close();
    this.#previous?.close();
    this.#active = this.#previous = null;
  }
}

class Pack {
  #modules;
  #loading = new Map();

  constructor(host, manifest, modules) {
    Object.assign(this, { host, manifest, name: manifest.name, version: manifest.versionText });
    this.kernels = [...manifest.kernels.keys()];
    this.#modules = modules;
  }

  /** A kernel of its own, compiled and self-tested once. */
  load(id) {
    const k = this.manifest.kernels.get(id);
    if (!this.#loading.has(id)) {
      const kernel = Kernel.open(k, this.#modules.get(id));
      this.#loading.set(id, kernel);
      kernel.catch(() => this.#loading.delete(id));
    }
    return this.#loading.get(id);
  }

  /** The kernel, or the one it falls back to, or that one's: each at most once, so that a ring of them ends. */
  async kernel(id) {
    let why = new AmbiError(`the pack ${this.name} has no kernel ${String(id).slice(0, 64)}`);
    for (let hops = 0; typeof id === 'string' && hops <= this.kernels.length; hops++) {
      if (this.manifest.kernels.has(id)) {
        try {
          return await this.load(id);
        } catch (e) {
          why = e;
        }
      }
      id = this.manifest.fallbacks.get(id);
    }
    throw why;
  }

  /** Gives its workers back when their calls are done. A later call begins a new one. */
  rest() {
    for (const kernel of this.#loading.values()) kernel.then((k) => k.rest(), () => {});
  }

  close() {
    for (const kernel of this.#loading.values()) kernel.then((k) => k.close(), () => {});
    this.#loading.clear();
  }
}

// ---- kernels -------------------------------------------------------------------------------------------------------
const codes = [['', 'ok'], ['invalid', 'invalid input'], ['invalid', 'invalid output'], ['invalid', 'invalid params'],
  ['no memory', 'out of memory'], ['unsupported', 'not implemented'], ['device lost', 'internal error']];
const given = ['a', 'b', 'scratch', 'params', 'weight'];

const bytesOf = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

/** Bytes of a region: a typed array's, or as many zeros as a number says. */
function regionBytes(value, where) {
  if (value === undefined) return new Uint8Array(0);
  if (Number.isSafeInteger(value) && value >= 0 && value < 2 ** 32) return value;
  if (ArrayBuffer.isView(value)) return bytesOf(value).slice();
  return fail(`${where}: expected a typed array, or a number of bytes`);
}

class Kernel {
  #module;
  #idle = null;
  #turn = Promise.resolve();
  #closed = false;

  static async open(info, bytes) {
    const k = new Kernel();
    const { bytes: limited, backward } = prepareModule(bytes, info);
    Object.assign(k, { id: info.id, info, backward });
    try {
      k.#module = await WebAssembly.compile(limited);
    } catch (e) {
      fail(`${info.id}: ${e.message}`, 'compile failed');
    }
    try {
      await k.#selfTest();
    } catch (e) {
      k.close(); // nobody else knows its worker
      throw e;
    }
    return k;
  }

  async #instance() {
    if (!this.#idle || this.#idle.ended) this.#idle = await Instance.start(this.info, this.#module);
    if (!this.#closed) return this.#idle;
    this.#idle.end(); // closed while it began
    return fail(`${this.id}: the kernel was closed`);
  }

  /**
   * One call: {pass, a, b, out, scratch, params, weight, ticks}. Inputs are typed arrays; out and scratch typed arrays,
   * or numbers of bytes. Gives {out, scratch} as Float32Arrays. Calls of one kernel wait for one another.
   */
  run(call = {}) {
    if (typeof call !== 'object' || call === null) fail(`${this.id}: run: expected an object of regions`);
    const result = this.#turn.then(() => this.#run(call));
    this.#turn = result.catch(() => {});
    return result;
  }

  async #run(call) {
    if (this.#closed) fail(`${this.id}: the kernel was closed`);
    const backward = call.pass === 'backward';
    if (!backward && call.pass !== undefined && call.pass !== 'forward')
      fail(`${this.id}: pass: expected 'forward' or 'backward'`);
    const bytes = Object.fromEntries([...given, 'out'].map((r) => [r, regionBytes(call[r], `${this.id}: ${r}`)]));
    const sizes = Object.fromEntries(Object.entries(bytes).map(([r, b]) => [r, typeof b === 'number' ? b : b.length]));
    if (backward && !this.backward) fail(`${this.id}: kernel_backward returned 5, not implemented`, 'unsupported');
    const inputs = Object.fromEntries(given.filter((r) => bytes[r].length).map((r) => [r, bytes[r]]));
    const ticks = call.ticks > 0 ? Math.min(call.ticks, this.info.ticks) : this.info.ticks;
    const { code, results } = await this.#ask({ backward, inputs, sizes }, ticks);
    if (code !== 0) this.#returned(code, backward);
    return this.#results(call, results);
  }

  /** An instance that has grown for others and cannot grow further is replaced, once. */
  async #ask(call, ticks) {
    const used = this.#idle && !this.#idle.ended;
    const answer = (await this.#instance()).ask({ call }, ticks);
    try {
      return await answer;
    } catch (e) {
      if (e.status !== 'no memory' || !used) throw e;
      return (await this.#instance()).ask({ call }, ticks);
    }
  }

  #returned(code, backward) {
    if (code === 4) this.#idle.end(); // a refused growth ends it
    const [status, name] = codes[code] ?? ['device lost', "which is none of the ABI's codes"];
    fail(`${this.id}: ${backward ? 'kernel_backward' : this.info.entry} returned ${code}, ${name}`, status);
  }

  #results(call, results) {
    for (const r of ['out', 'scratch'])
      if (ArrayBuffer.isView(call[r])) bytesOf(call[r]).set(results[r]);
    const floats = (b) => (b.length % 4 === 0 ? new Float32Array(b.buffer) : b);
    return { out: floats(results.out), scratch: floats(results.scratch) };
  }

  // ---- self-tests: {"pass", "params", "a", "b", "out", "scratch", "weight", "tolerance"} ------------------------
  async #selfTest() {
    for (const [i, t] of this.info.selfTest.entries()) {
      const trial = readTrial(t) ?? denied(`manifest: ${this.id}: self-test ${i} cannot be read`);
      const got = await this.run(trial.call);
      for (const r of ['out', 'scratch'])
        if (!trial.want[r].every((w, n) => Math.abs(got[r][n] - w) <= t.tolerance))
          denied(`refused by self-test: ${this.id}: test ${i} gives other results than the manifest says`);
    }
    if (this.info.selfTest.length === 0) await this.#instance(); // at least it begins
  }

  rest() {
    this.#turn = this.#turn.then(() => this.#idle?.end());
  }

  close() {
    this.#closed = true;
    this.#idle?.end();
  }
}

const isFloats = (v) => Array.isArray(v) && v.length <= most.testValues && v.every((x) => typeof x === 'number');

function readTrial(t) {
  if (typeof t !== 'object' || t === null || !(t.tolerance > 0)) return null;
  if (!/^([0-9a-f]{2}){0,256}$/.test(t.params)) return null;
  if (t.pass !== 'forward' && t.pass !== 'backward') return null;
  const arrays = {};
  for (const r of ['a', 'b', 'out', 'scratch', 'weight']) {
    arrays[r] = t[r] ?? [];
    if (!isFloats(arrays[r])) return null;
  }
  const floats = (r) => Float32Array.from(arrays[r]);
  const call = { pass: t.pass, a: floats('a'), b: floats('b'), weight: floats('weight'), out: 4 * arrays.out.length,
    scratch: new Float32Array(arrays.scratch.length), params: fromHex(t.params) };
  return { call, want: { out: floats('out'), scratch: floats('scratch') } };
}
