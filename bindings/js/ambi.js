// ambi.js -- neural-network kernels that run forwards and backwards, in JavaScript.
//
//   const ambi = await load();
//   const plan = ambi.plan({ op: 'rmsnorm', pass: 'backward', tensors: { x: [4, 8], w: [8] } });
//   const { dx, dw } = plan.run({ x, w, dy });     // Float32Arrays; outputs that are not given are made
//   plan.free();
import { Buffer, Handle } from './buffers.js';
import { dtypeNames, dtypeOf, dtypes, expectArray } from './dtypes.js';
import { Plan } from './plan.js';
import { readOps } from './reflect.js';
import { AmbiError, checkKeys, fail, hasRelaxed, Wasm } from './wasm.js';

export { AmbiError, Buffer, dtypeNames, Plan };

/** A device of the module. It is closed when it was freed and the last plan on it is gone. */
class Device {
  #w;
  #at;
  #plans = 0;
  #freed = false;

  constructor(w, name, threads) {
    const L = w.layout;
    const text = new TextEncoder().encode(`${name}\0`);
    this.#w = w;
    w.scratch(L.ambi_device_options + 8 + text.length, (options) => {
      const out = options + L.ambi_device_options;
      w.view.setInt32(options + L['ambi_device_options.threads'], threads, true);
      w.bytes(out + 8, text.length).set(text);
      w.attempt('ambi_device_open', out + 8, options, out);
      this.#at = w.u32(out);
    });
  }

  address() {
    return this.#freed ? fail('the device was freed', 'no device') : this.#at;
  }

  info() {
    const [w, L] = [this.#w, this.#w.layout];
    return w.scratch(L.ambi_device_info, (at) => {
      w.attempt('ambi_device_get_info', this.address(), at);
      const text = (key) => w.string(w.u32(at + L[`ambi_device_info.${key}`]));
      return { name: text('name'), isa: text('isa'), threads: w.u32(at + L['ambi_device_info.threads']) };
    });
  }

  hold() {
    this.#plans++;
  }
  drop() {
    this.#plans--;
    this.#closeIfUnused();
  }
  free() {
    this.#freed = true;
    this.#w.endThreads();
    this.#closeIfUnused();
  }
  #closeIfUnused() {
    if (!this.#freed || this.#plans > 0 || this.#at === 0 || this.#w.lost) return;
    this.#w.call('ambi_device_close', this.#at);
    this.#at = 0;
  }
}

const freeing = (device) => () => device.free();

/** Plans keep it, so it is forgotten after the last of them. */
class Ambi extends Handle {
  #w;
  #device;

  constructor(w, name, threads, module) {
    super();
    this.#w = w;
    this.#device = new Device(w, name, threads);
    Handle.own(this, w, freeing(this.#device));
    const version = w.call('ambi_version');
    this.version = [version / 10000, (version / 100) % 100, version % 100].map(Math.floor).join('.');
    this.device = Object.freeze({ ...this.#device.info(), module });
    this.ops = readOps(w);
  }

  /** Checks the description, chooses the kernel and the memory. Throws the library's sentence. */
  plan(description) {
    return new Plan(this, this.#w, this.#device, description);
  }

  /** Elements that live in the module, so that runs need not copy them: of a length, or with an array's contents. */
  buffer(dtype, contents) {
    this.#device.address();
    dtypeOf(dtype, 'buffer');
    if (typeof contents === 'number') return new Buffer(this.#w, dtype, contents);
    expectArray(contents, dtype, 'buffer');
    return new Buffer(this.#w, dtype, contents.length).write(contents);
  }

  /** An array of one floating dtype as another: convert(bits, 'bf16', 'f32'). */
  convert(array, from, to) {
    const n = expectArray(array, from, 'convert').length;
    const plan = this.plan({ op: 'cast', tensors: { x: { dtype: from, shape: [n] }, y: { dtype: to, shape: [n] } } });
    try {
      return plan.run({ x: array }).y;
    } finally {
      plan.free();
    }
  }

  /** Bytes of memory the module has taken. It grows and never shrinks: what is freed is used again. */
  get memoryBytes() {
    return this.#w.memory.buffer.byteLength;
  }
}

/** How many threads there shall be: a number, or 'all' for as many as there are cores and memory can be shared with. */
function countThreads(threads) {
  const shared = typeof SharedArrayBuffer === 'function' && (globalThis.crossOriginIsolated ?? true);
  if (threads === 'all') return shared ? Math.min(globalThis.navigator?.hardwareConcurrency ?? 4, 64) : 1;
  if (!Number.isInteger(threads) || threads < 1 || threads > 64) fail("load: threads: expected 1 to 64, or 'all'");
  if (threads > 1 && !shared)
    fail('load: threads: this page may not share memory: it is not cross-origin isolated', 'unsupported');
  return threads;
}

function moduleFor(relaxed) {
  if (typeof relaxed !== 'boolean') fail('load: relaxed: expected true or false');
  return relaxed && hasRelaxed() ? 'ambi-relaxed.wasm' : 'ambi.wasm';
}

/**
 * Loads the module and opens a device: 'cpu', or 'ref', the f64 reference.
 * threads: how many in all (1), or 'all'; results are the same bits for any number.
 * relaxed: false leaves relaxed SIMD alone, which is taken where the engine has it: a product and its sum are then
 * rounded once where the processor does so, which is faster, and last bits depend on the processor.
 * wasm: a URL, bytes or a WebAssembly.Module, where the module is not beside this file: ambi.wasm or ambi-relaxed.wasm.
 * free() of what it gives closes the device and ends its threads: no plan on it can be used any longer.
 */
export async function load(options = {}) {
  checkKeys(options, ['device', 'threads', 'relaxed', 'wasm'], 'load');
  const { device = 'cpu', threads = 1, relaxed = true, wasm } = options;
  if (typeof device !== 'string') fail('load: device: expected a name');
  const count = countThreads(threads);
  const name = moduleFor(relaxed);
  const w = await Wasm.instantiate(wasm ?? new URL(`./${name}`, import.meta.url), count);
  try {
    return new Ambi(w, device, count, wasm == null ? name : 'given');
  } catch (e) {
    w.endThreads();
    throw e;
  }
}

/** Bytes of one element of a dtype. */
export const dtypeBytes = (name) => dtypeOf(name, 'dtypeBytes') && dtypes[name].bytes;
