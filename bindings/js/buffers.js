// buffers.js -- arrays on their way into and out of the module's memory.
//
// A run stages the typed arrays it is given: parts of one ArrayBuffer that overlap share one block, so that views which
// interleave, or are in place, mean the same inside as outside. Which overlaps are allowed is the library's to say.
import { arrayTag, bytesAt, dtypeOf, dtypes, expectArray, place } from './dtypes.js';
import { fail, shown } from './wasm.js';

const dispose = Symbol.dispose ?? Symbol.for('Symbol.dispose');

/** Frees what handles owned that were forgotten. What it is told must not lead back to the handle. */
const net = new FinalizationRegistry((owned) => owned.free());

/** What is to be done once. */
class Owned {
  constructor(w, release) {
    Object.assign(this, { w, release });
  }
  free() {
    const release = this.release;
    this.release = null;
    release?.(this.w);
  }
}

/** Something that is freed once: by free(), by `using`, or when it is forgotten. */
export class Handle {
  #owned = null;

  /** release(w) frees it; a function from outside the handle's methods, which would keep the handle alive. */
  static own(handle, w, release) {
    handle.#owned = new Owned(w, release);
    net.register(handle, handle.#owned, handle);
  }
  get freed() {
    return this.#owned?.release == null;
  }
  free() {
    net.unregister(this);
    this.#owned?.free();
  }
  [dispose]() {
    this.free();
  }
}

const freeing = (at) => (w) => w.free(at);

/** Elements of one dtype that live in the module: given to a run, they are not copied. */
export class Buffer extends Handle {
  #w;
  #at;
  constructor(w, dtype, length) {
    super();
    const { bytes } = dtypeOf(dtype, 'buffer');
    if (!Number.isSafeInteger(length) || length < 0) fail(`buffer: expected a length, got ${shown(length)}`);
    Object.defineProperties(this, {
      dtype: { value: dtype, enumerable: true },
      length: { value: length, enumerable: true },
      byteLength: { value: length * bytes, enumerable: true },
    });
    this.#w = w;
    this.#at = w.alloc(this.byteLength, 256);
    w.bytes(this.#at, this.byteLength).fill(0);
    Handle.own(this, w, freeing(this.#at));
  }

  /** Its address, for a run in the same module. */
  addressIn(w, where) {
    if (this.freed) fail(`${where}: the buffer was freed`);
    if (this.#w !== w) fail(`${where}: the buffer belongs to another module`);
    return this.#at;
  }

  /** Copies an array in, from element `at` on. */
  write(array, at = 0) {
    const from = place(expectArray(array, this.dtype, 'buffer.write'));
    this.#check(from.length, at, 'buffer.write');
    const bytes = bytesAt(from, 'buffer.write');
    this.#w.bytes(this.#at + at * dtypes[this.dtype].bytes, from.byteLength).set(bytes);
    return this;
  }

  /** Copies elements out, from `at` on: as many as `into` holds, or all into a new array. */
  read(into, at = 0) {
    this.#check(0, at, 'buffer.read');
    const target = into ?? new dtypes[this.dtype].Array(this.length - at);
    const to = place(expectArray(target, this.dtype, 'buffer.read'));
    this.#check(to.length, at, 'buffer.read');
    const from = this.#w.bytes(this.#at + at * dtypes[this.dtype].bytes, to.byteLength);
    bytesAt(to, 'buffer.read').set(from);
    return target;
  }

  #check(count, at, where) {
    if (this.freed) fail(`${where}: the buffer was freed`);
    if (!Number.isSafeInteger(at) || at < 0) fail(`${where}: expected an element to begin at, got ${shown(at)}`);
    if (at + count > this.length) fail(`${where}: elements ${at} to ${at + count} of ${this.length}`);
  }
}

/** The bytes of `array` that a slot's elements span. */
function spanOf(slot, array) {
  const bytes = dtypes[slot.dtype].bytes;
  const at = (element) => array.byteOffset + element * bytes;
  return { buffer: array.buffer, begin: at(slot.first), end: at(slot.end) };
}

function checkLength(slot, length, where) {
  if (length < slot.end) fail(`${where}: expected ${slot.end} elements at least, got ${length}`);
}

/** One block of memory for parts of one ArrayBuffer that touch. */
const newBlock = ({ buffer, begin, end }) => ({ buffer, begin, end, at: 0, slots: [] });

function blocksOf(spans) {
  const blocks = [];
  for (const buffer of new Set(spans.map((s) => s.buffer))) {
    const mine = spans.filter((s) => s.buffer === buffer).sort((a, b) => a.begin - b.begin);
    let block;
    for (const span of mine) {
      if (!block || span.begin >= block.end) blocks.push((block = newBlock(span)));
      block.end = Math.max(block.end, span.end);
      block.slots.push(span.slot);
      span.block = block;
    }
  }
  return blocks;
}

/** What a run is given, in the module's memory: address(slot) for the call, then copyOut(). */
export class Staged {
  #w;
  #blocks;
  #address = new Map();

  /** values: slot -> typed array or Buffer. `memory` keeps the room between runs. */
  constructor(w, values, memory) {
    const spans = [];
    this.#w = w;
    for (const [slot, value] of values) {
      if (value instanceof Buffer) this.#addBuffer(slot, value);
      else spans.push(this.#spanOfArray(slot, value));
    }
    this.#blocks = blocksOf(spans.filter((s) => s.begin < s.end));
    this.#place(memory);
    for (const { slot, block, begin } of spans)
      if (block) this.#setAddress(slot, block.at + (begin - block.begin), slot.offset - slot.first);
    for (const b of this.#blocks) if (b.slots.length > 1 || b.slots[0].copyIn) this.#bytes(b).set(this.#outside(b));
  }

  #addBuffer(slot, buffer) {
    if (buffer.dtype !== slot.dtype) fail(`${slot.name}: expected a buffer of ${slot.dtype}, got ${buffer.dtype}`);
    checkLength(slot, buffer.length, slot.name);
    this.#setAddress(slot, buffer.addressIn(this.#w, slot.name), slot.offset);
  }

  #setAddress(slot, at, elements) {
    if (slot.end > 0) this.#address.set(slot, at + elements * dtypes[slot.dtype].bytes);
  }

  #spanOfArray(slot, value) {
    if (arrayTag(value) === undefined) fail(`${slot.name}: expected a typed array or a buffer of ${slot.dtype}`);
    expectArray(value, slot.dtype, slot.name);
    const array = place(value);
    checkLength(slot, array.length, slot.name);
    return { ...spanOf(slot, array), slot };
  }

  /** Blocks one after another, each as far from a multiple of 256 as it is outside: alignment is kept. */
  #place(memory) {
    let bytes = 0;
    for (const b of this.#blocks) {
      b.at = bytes + (b.begin % 256);
      bytes = Math.ceil((b.at + b.end - b.begin) / 256) * 256;
    }
    const base = memory.room(bytes);
    for (const b of this.#blocks) b.at += base;
  }

  #bytes(b) {
    return this.#w.bytes(b.at, b.end - b.begin);
  }
  #outside(b) {
    return new Uint8Array(b.buffer, b.begin, b.end - b.begin);
  }

  /** Of the slot's element 0; 0 where it is empty and has none. */
  address(slot) {
    return this.#address.get(slot) ?? 0;
  }

  copyOut() {
    for (const b of this.#blocks) if (b.slots.some((s) => s.written)) this.#outside(b).set(this.#bytes(b));
  }
}

/** Memory of a plan that is kept between its runs and grows when one needs more. */
export class Room {
  #w;
  #bytes = 0;
  #at = 0;
  constructor(w) {
    this.#w = w;
  }
  room(bytes) {
    if (bytes <= this.#bytes) return this.#at;
    this.free();
    this.#at = this.#w.alloc(bytes, 256);
    this.#bytes = bytes;
    return this.#at;
  }
  free() {
    this.#w.free(this.#at);
    this.#at = this.#bytes = 0;
  }
}
