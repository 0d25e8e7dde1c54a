// pack-kernel.js -- a kernel of a pack: compiled and self-tested once, one worker for all its handles, calls in turn.
import { bytesAt } from './dtypes.js';
import { checkKeys, fail } from './wasm.js';
import { deadlineIn, Instance } from './pack-instance.js';
import { fromHex } from './pack-keys.js';
import { most } from './pack-manifest.js';
import { prepareModule } from './pack-module.js';

const denied = (message) => fail(message, 'denied');

// ---- calls ---------------------------------------------------------------------------------------------------------
const codes = [['', 'ok'], ['invalid', 'invalid input'], ['invalid', 'invalid output'], ['invalid', 'invalid params'],
  ['no memory', 'out of memory'], ['unsupported', 'not implemented'], ['device lost', 'internal error']];
const given = ['a', 'b', 'scratch', 'params', 'weight'];
const taken = ['out', 'scratch'];
const callKeys = ['pass', 'a', 'b', 'out', 'scratch', 'params', 'weight', 'ticks'];

/** Bytes of a region: a copy of a typed array's, or as many zeros as a number says. */
function regionBytes(value, where) {
  if (value === undefined) return 0;
  if (Number.isSafeInteger(value) && value >= 0 && value < 2 ** 32) return value;
  if (ArrayBuffer.isView(value)) return bytesAt(value, where).slice();
  return fail(`${where}: expected a typed array, or a number of bytes`);
}

/** The words of params by name, in the order and with the defaults of the manifest. */
function paramBytes(k, values) {
  const view = new DataView(new ArrayBuffer(4 * k.info.params.length));
  checkKeys(values, k.info.params.map((p) => p.name), `${k.id}: params`);
  for (const [i, { name, type, absent, min, max }] of k.info.params.entries()) {
    const value = Object.hasOwn(values, name) ? values[name] : absent;
    const where = `${k.id}: params: ${name}`;
    if (typeof value !== 'number') fail(`${where}: expected a number`);
    if (value < min || value > max) fail(`${where}: ${value} is not from ${min} to ${max}`);
    if (type === 'f32') view.setFloat32(4 * i, value, true);
    else if (!Number.isInteger(value) || value < 0 || value >= 2 ** 32) fail(`${where}: expected a whole number of 32 bits`);
    else view.setUint32(4 * i, value, true);
  }
  return new Uint8Array(view.buffer);
}

const isPlain = (v) => typeof v === 'object' && v !== null && !ArrayBuffer.isView(v) && [Object.prototype, null].includes(Object.getPrototypeOf(v));

/** A call as it is now, whatever becomes of the caller's arrays: {backward, inputs, sizes, to, ticks}. */
function readCall(k, call = {}) {
  checkKeys(call, callKeys, `${k.id}: run`);
  const { pass = 'forward', ticks } = call;
  if (pass !== 'forward' && pass !== 'backward') fail(`${k.id}: pass: expected 'forward' or 'backward'`);
  const backward = pass === 'backward';
  if (backward && !k.backward) fail(`${k.id}: kernel_backward returned 5, not implemented`, 'unsupported');
  if (ticks !== undefined && !(Number.isSafeInteger(ticks) && ticks >= 0))
    fail(`${k.id}: ticks: expected a number of milliseconds`);
  const params = isPlain(call.params) ? paramBytes(k, call.params) : call.params;
  const bytes = given.map((r) => [r, regionBytes(r === 'params' ? params : call[r], `${k.id}: ${r}`)]);
  const out = ArrayBuffer.isView(call.out) ? bytesAt(call.out, `${k.id}: out`).length : regionBytes(call.out, `${k.id}: out`);
  const sizes = Object.fromEntries(bytes.map(([r, b]) => [r, typeof b === 'number' ? b : b.length]));
  const inputs = Object.fromEntries(bytes.filter(([, b]) => typeof b !== 'number'));
  const to = taken.map((r) => [r, call[r]]).filter(([, v]) => ArrayBuffer.isView(v));
  const limit = ticks > 0 ? Math.min(ticks, k.info.ticks) : k.info.ticks;
  return { backward, inputs, sizes: { ...sizes, out }, to, ticks: limit };
}

function readResults(id, results, to) {
  for (const [r, view] of to) {
    const room = bytesAt(view, `${id}: ${r}`);
    if (room.length < results[r].length) fail(`${id}: ${r}: the array has shrunk to ${room.length} bytes during the call`);
    room.set(results[r]);
  }
  const floats = (b) => (b.length % 4 === 0 ? new Float32Array(b.buffer) : b);
  return { out: floats(results.out), scratch: floats(results.scratch) };
}

// ---- kernels -------------------------------------------------------------------------------------------------------
/** What the handles of one kernel share. Its worker lives as long as there are any. */
class Compiled {
  #module;
  #instance = null;
  #turn = Promise.resolve();
  #running = null;
  #users = 1; // whoever opens it; the first handle takes that over
  #taken = false;

  static async open(info, bytes) {
    const k = new Compiled();
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
      k.#instance?.end(); // nobody else knows its worker
      throw e;
    }
    return k;
  }

  take() {
    if (this.#taken) this.#users++;
    this.#taken = true;
  }
  /** Ends that handle's call, and with the last handle the worker. */
  release(handle) {
    if (--this.#users === 0 || this.#running === handle) this.#instance?.end();
  }
  /** Released when the calls that wait now are done. */
  releaseLater(handle) {
    this.#turn = this.#turn.then(() => this.release(handle));
  }

  #fresh() {
    if (!this.#instance || this.#instance.ended) this.#instance = new Instance(this.info, this.#module);
    return this.#instance;
  }

  /** Calls of one kernel wait for one another; the deadline counts from a call's turn. */
  queue(call, handle) {
    const result = this.#turn.then(() => this.#run(call, handle));
    this.#turn = result.then(() => {}, () => {});
    return result;
  }

  async #run(call, handle) {
    if (handle?.closed) fail(`${this.id}: the kernel was closed`);
    this.#running = handle;
    try {
      const { code, results } = await this.#ask(call, handle);
      if (code !== 0) this.#returned(code, call.backward);
      return readResults(this.id, results, call.to);
    } finally {
      this.#running = null;
    }
  }

  /** An instance that has grown for others and cannot grow further is replaced, once. */
  async #ask({ backward, inputs, sizes, ticks }, handle) {
    const deadline = deadlineIn(ticks);
    const used = this.#instance && !this.#instance.ended;
    try {
      return await this.#fresh().call({ backward, inputs, sizes }, deadline);
    } catch (e) {
      if (e.status !== 'no memory' || !used || handle?.closed) throw e;
      return this.#fresh().call({ backward, inputs, sizes }, deadline);
    }
  }

  #returned(code, backward) {
    if (code === 4) this.#instance.end(); // a refused growth ends it
    const [status, name] = codes[code] ?? ['device lost', "which is none of the ABI's codes"];
    fail(`${this.id}: ${backward ? 'kernel_backward' : this.info.entry} returned ${code}, ${name}`, status);
  }

  // ---- self-tests: {"pass", "params", "a", "b", "out", "scratch", "weight", "tolerance"} ------------------------
  async #selfTest() {
    await this.#fresh().booted; // no call waits for that
    await this.#instance.start(deadlineIn(this.info.ticks));
    for (const [i, t] of this.info.selfTest.entries()) {
      const trial = readTrial(t) ?? denied(`manifest: ${this.id}: self-test ${i} cannot be read`);
      const got = await this.queue(readCall(this, trial.call), null);
      for (const r of taken)
        if (!trial.want[r].every((w, n) => Math.abs(got[r][n] - w) <= t.tolerance))
          denied(`refused by self-test: ${this.id}: test ${i} gives other results than the manifest says`);
    }
  }
}

export const compileKernel = Compiled.open;

/** A handle: closing it closes no other. */
export class Kernel {
  #of;
  closed = false;

  constructor(compiled) {
    compiled.take();
    this.#of = compiled;
    this.id = compiled.id;
    this.backward = compiled.backward;
    this.params = compiled.info.params;
  }

  /**
   * One call: {pass, a, b, out, scratch, params, weight, ticks}. Inputs are typed arrays, copied before this returns;
   * out and scratch typed arrays, or numbers of bytes. Gives {out, scratch} as Float32Arrays.
   */
  async run(call) {
    if (this.closed) fail(`${this.id}: the kernel was closed`);
    return this.#of.queue(readCall(this.#of, call), this);
  }

  /** When the calls under way are done. */
  retire() {
    this.#of.releaseLater(this);
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    this.#of.release(this);
  }
}

// ---- trials --------------------------------------------------------------------------------------------------------
const isFloats = (v) => Array.isArray(v) && v.length <= most.testValues && v.every((x) => typeof x === 'number');
const isHex = (v) => typeof v === 'string' && /^([0-9a-f]{2}){0,256}$/.test(v);

function readTrial(t) {
  if (typeof t !== 'object' || t === null || typeof t.tolerance !== 'number' || !(t.tolerance > 0)) return null;
  if (!isHex(t.params)) return null;
  if (t.pass !== 'forward' && t.pass !== 'backward') return null;
  const arrays = {};
  for (const r of ['a', 'b', 'out', 'scratch', 'weight']) {
    arrays[r] = t[r] === undefined ? [] : t[r];
    if (!isFloats(arrays[r])) return null;
  }
  const floats = (r) => Float32Array.from(arrays[r]);
  const call = { pass: t.pass, a: floats('a'), b: floats('b'), weight: floats('weight'), out: 4 * arrays.out.length,
    scratch: new Float32Array(arrays.scratch.length), params: fromHex(t.params) };
  return { call, want: { out: floats('out'), scratch: floats('scratch') } };
}
