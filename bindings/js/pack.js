// pack.js -- the host of kernel packs: compute kernels that can be run without trusting them. docs/packs.md describes
// packs; the host in C is include/ambi/pack.h.
//
//   const host = new PackHost({ trusted: ['<64 hex digits>'] });
//   const pack = await host.open('https://example.org/kernels/');     verified: nothing is compiled yet
//   const swiglu = await pack.kernel('swiglu_f32');                    compiled, started, self-tested
//   const { out } = await swiglu.run({ a: x, b: gate, out: x.byteLength, params });
import { AmbiError, checkKeys, fail, plain, shown } from './wasm.js';
import { compileKernel, Kernel } from './pack-kernel.js';
import { hashOf, hex, isSignedBy, keyBytes } from './pack-keys.js';
import { compareVersions, most, parseVersion, readManifest } from './pack-manifest.js';
import { sourceOf } from './pack-source.js';

export { AmbiError, hashOf };

/** The version of ambi that this host belongs to. */
export const runtimeVersion = '0.1.0';

const denied = (message) => fail(message, 'denied');

/** Of what someone else threw, which may be anything. */
const sentenceOf = (e) => (typeof e?.message === 'string' ? plain(e.message) : 'what was thrown is no error');

// ---- turns ---------------------------------------------------------------------------------------------------------
const turns = new WeakMap(); // of a state: the end of the last step over it

/** One step after another over what hosts of this thread share: none saves what another has not seen. */
function inTurn(shared, step) {
  const result = (turns.get(shared) ?? Promise.resolve()).then(step);
  turns.set(shared, result.catch(() => {}));
  return result;
}

const insecure = 'insecure_accept_unsigned_packs_for_development';
const hostKeys = ['trusted', 'revoked', 'allowed', 'state', 'report', 'most_ticks', 'most_pages', insecure];
/** What a host allows a kernel at most, where it says nothing else. */
const mostTicks = 60000;
const mostPages = 65536;

/** The smaller of what the manifest asks for and the host allows. */
const held = (k, o) => Object.freeze({ ...k, ticks: Math.min(k.ticks, o.most_ticks), pages: Math.min(k.pages, o.most_pages) });

// ---- the host ------------------------------------------------------------------------------------------------------
export class PackHost {
  #options;
  #newest = new Map();
  #active = null;
  #previous = null;
  #closed = false;

  /**
   * trusted, revoked: Ed25519 public keys. allowed: [{id, hash}], the only modules a pack may have. state: {load, save}
   * of an object of names and versions, to remember what was activated. report(check, passed, sentence) is told about
   * each check. most_ticks, most_pages: what a kernel may have at most, whatever its manifest asks for.
   */
  constructor(options = {}) {
    checkKeys(options, hostKeys, 'PackHost'); // a misspelt `revoked` would leave its keys trusted
    const o = { trusted: [], revoked: [], allowed: [], state: null, report: null, ...options };
    if (o.report && typeof o.report !== 'function') fail('report: expected a function');
    if (o.state && ['load', 'save'].some((f) => typeof o.state[f] !== 'function'))
      fail('state: expected an object with the functions load and save');
    if (o[insecure] && typeof o.report !== 'function') fail(`${insecure}: needs a report function`);
    for (const list of ['trusted', 'revoked', 'allowed'])
      if (!Array.isArray(o[list])) fail(`${list}: expected an array`);
    for (const [name, usual] of [['most_ticks', mostTicks], ['most_pages', mostPages]]) {
      if (!Number.isSafeInteger(o[name] ?? 0) || o[name] < 0) fail(`${name}: expected a whole number`);
      o[name] = o[name] || usual; // 0 too
    }
    o.trusted = o.trusted.map(keyBytes);
    o.revoked = o.revoked.map(keyBytes);
    o.allowed = o.allowed.map((a, i) => {
      for (const part of ['id', 'hash']) if (typeof a?.[part] !== 'string') fail(`allowed[${i}] has no ${part}`);
      return { id: a.id, hash: a.hash };
    });
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
    const data = await source(name, limit).catch((e) => {
      if (e instanceof AmbiError && e.status !== 'denied') throw e;
      this.#refused('files', e instanceof AmbiError ? e.message : `${name} cannot be read: ${sentenceOf(e)}`);
    });
    if (data === undefined || data === null) return this.#refused('files', `${name} is not there`);
    if (!(data instanceof Uint8Array) && !(data instanceof ArrayBuffer))
      return this.#refused('files', `${name}: expected a Uint8Array of its bytes`);
    const bytes = new Uint8Array(data).slice(); // a copy: nobody changes it after the check
    return bytes.length > limit ? this.#refused('files', `${name}: larger than this file may be`) : bytes;
  }

  /** A kernel that cannot be used is told of, even where another steps in for it. */
  tellOfKernel(sentence) {
    this.#options.report?.('kernel', false, sentence);
  }

  /** Every check of docs/packs.md, in its order. Nothing is compiled. */
  async open(from) {
    const source = sourceOf(from);
    await this.#readState();
    const text = await this.#file(source, 'kernels.json', most.manifest);
    await this.#checkOrigin(source, text);
    const manifest = this.#checkManifest(text);
    this.#checkVersions(manifest);
    for (const [id, k] of manifest.kernels) manifest.kernels.set(id, held(k, this.#options));
    const modules = new Map();
    for (const k of manifest.kernels.values()) modules.set(k.id, await this.#checkModule(source, k));
    return new Pack(this, manifest, modules);
  }

  async #checkOrigin(source, text) {
    const o = this.#options;
    if (o[insecure]) {
      this.#passed('signature', `NOT CHECKED: ${insecure} is set`);
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
  /** Again each time: others may have activated more since. What is known is never forgotten for it. */
  async #readState() {
    const state = (await this.#options.state?.load()) ?? {};
    if (typeof state !== 'object' || Array.isArray(state)) denied('the state of kernel packs: expected an object');
    for (const [name, text] of Object.entries(state)) {
      const version = typeof text === 'string' ? parseVersion(text) : null;
      if (!version) denied('the state of kernel packs: expected names of packs and their versions');
      const known = this.#newest.get(name);
      if (!known || compareVersions(version, known) > 0) this.#newest.set(name, version);
    }
  }
  /** One swap after another: what one has activated, the next is compared with. */
  #activate(m, kernels) {
    return inTurn(this.#options.state ?? this, async () => {
      await this.#readState();
      const newest = this.#newest.get(m.name);
      if (newest && compareVersions(m.version, newest) < 0)
        this.#refused('downgrade', `a newer ${m.name} than ${m.versionText} was activated before`);
      if (this.#closed) fail('the host was closed'); // a swap that is refused raises no floor
      const next = new Map(this.#newest).set(m.name, m.version);
      await this.#options.state?.save(Object.fromEntries([...next].map(([name, v]) => [name, v.join('.')])));
      this.#newest = next;
      if (this.#closed) fail('the host was closed');
      retire(this.#previous);
      this.#previous = this.#active;
      this.#active = { name: m.name, fallbacks: m.fallbacks, kernels };
    });
  }

  // ---- the active pack ---------------------------------------------------------------------------------------------
  /** Every kernel, or its fallback, is compiled and self-tested first; calls under way finish on the old pack. */
  async swap(pack) {
    if (!(pack instanceof Pack) || pack.host !== this) fail('swap: expected a pack that this host opened');
    const kernels = new Map(); // handles of the host's own
    try {
      for (const id of pack.kernels) kernels.set(id, await pack.kernel(id));
      await this.#activate(pack.manifest, kernels);
    } catch (e) {
      for (const k of kernels.values()) k.close();
      throw e;
    }
  }

  /** To the pack before, once. */
  rollback() {
    if (!this.#previous) fail('there is no pack to roll back to');
    retire(this.#active);
    [this.#active, this.#previous] = [this.#previous, null];
  }

  /** A call of the active pack's kernel. */
  async run(id, call) {
    const active = this.#active ?? fail('no pack is active');
    const kernel = active.kernels.get(id) ?? active.kernels.get(active.fallbacks.get(id));
    return kernel ? kernel.run(call) : fail(`the pack ${active.name} has no kernel ${shown(id).slice(0, 64)}`);
  }

  /** The active pack ends with it, and no other becomes active; what else was opened stays. */
  close() {
    this.#closed = true;
    for (const pack of [this.#active, this.#previous]) for (const k of pack?.kernels.values() ?? []) k.close();
    this.#active = this.#previous = null;
  }
}

/** Gives a pack's kernels back when the calls under way are done. */
const retire = (pack) => {
  for (const k of pack?.kernels.values() ?? []) k.retire();
};

class Pack {
  #modules;
  #loading = new Map();
  #closed = false;

  constructor(host, manifest, modules) {
    Object.assign(this, { host, manifest, name: manifest.name, version: manifest.versionText });
    this.kernels = [...manifest.kernels.keys()];
    this.#modules = modules;
  }

  /** Compiled and self-tested once. */
  #load(id) {
    if (!this.#loading.has(id)) {
      const compiled = compileKernel(this.manifest.kernels.get(id), this.#modules.get(id));
      this.#loading.set(id, compiled);
      compiled.catch(() => this.#loading.delete(id));
    }
    return this.#loading.get(id);
  }

  /**
   * A handle of its own of the kernel, or of the one it falls back to, or of that one's: each at most once, so that a
   * ring of them ends.
   */
  async kernel(id) {
    if (this.#closed) fail(`the pack ${this.name} was closed`);
    let why = new AmbiError(`the pack ${this.name} has no kernel ${shown(id).slice(0, 64)}`);
    const tried = new Set();
    for (; typeof id === 'string' && !tried.has(id); id = this.manifest.fallbacks.get(id)) {
      tried.add(id);
      if (this.manifest.kernels.has(id)) {
        try {
          return new Kernel(await this.#load(id));
        } catch (e) {
          this.host.tellOfKernel(e.message);
          why = e;
        }
      }
    }
    throw why;
  }

  /** What was opened from it, or made active, stays. */
  close() {
    this.#closed = true;
    this.#loading.clear();
  }
}
