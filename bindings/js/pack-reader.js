// pack-reader.js -- the bytes of a WebAssembly module, read one thing after another.
import { AmbiError } from './wasm.js';

export const denied = (message) => {
  throw new AmbiError(message, 'denied');
};

/** Of sections, and of entries in one: engines take no more exports, and reading them keeps the page's thread busy. */
export const mostItems = 100000;

export class Reader {
  constructor(bytes, id) {
    Object.assign(this, { bytes, id, at: 0, end: bytes.length });
  }
  broken() {
    return denied(`${this.id}: the module is not well formed`);
  }
  tooMany() {
    return denied(`${this.id}: the module has more than ${mostItems} sections, functions or exports`);
  }
  byte() {
    return this.at < this.end ? this.bytes[this.at++] : this.broken();
  }
  number() {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const b = this.byte();
      value += (b & 127) * 2 ** shift;
      if (b < 128) return value < 2 ** 32 ? value : this.broken();
    }
    return this.broken();
  }
  /** Of at most so many bits, with or without a sign; nobody asks which. */
  skipNumber(bits) {
    for (let shift = 0; shift < bits; shift += 7) if (this.byte() < 128) return;
    this.broken();
  }
  take(count) {
    if (count > this.end - this.at) this.broken();
    this.at += count;
    return this.bytes.subarray(this.at - count, this.at);
  }
  name() {
    return new TextDecoder().decode(this.take(this.number()));
  }
  /** At most as many as there are bytes left: each is at least one. */
  list(read) {
    const count = this.number();
    if (count > this.end - this.at) this.broken();
    if (count > mostItems) this.tooMany();
    return Array.from({ length: count }, () => read());
  }
  within(size) {
    return new this.constructor(this.take(size), this.id);
  }
}
