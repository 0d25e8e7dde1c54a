// dtypes.js -- storage types: their numbers in C, and the typed arrays they are passed in.
import { fail, shown } from './wasm.js';

const row = (code, bytes, Array, ...others) => ({ code, bytes, Array, tags: [Array.name, ...others] });

/** f16 and bf16 travel as their bits. Float16Array is taken for f16 where the engine has it. */
export const dtypes = Object.freeze({
  f32: row(1, 4, Float32Array),
  f16: row(2, 2, Uint16Array, 'Float16Array'),
  bf16: row(3, 2, Uint16Array),
  f64: row(4, 8, Float64Array),
  i32: row(5, 4, Int32Array),
  i64: row(6, 8, BigInt64Array),
  u8: row(7, 1, Uint8Array, 'Uint8ClampedArray'),
});

export const dtypeNames = Object.freeze(Object.keys(dtypes));
export const dtypeOfCode = (code) => dtypeNames.find((name) => dtypes[name].code === code);

export function dtypeOf(name, where) {
  if (typeof name === 'string' && Object.hasOwn(dtypes, name)) return dtypes[name];
  return fail(`${where}: there is no dtype ${shown(name)}; there are ${dtypeNames.join(', ')}`);
}

const typedArray = Object.getPrototypeOf(Uint8Array.prototype);
const getter = (key) => Object.getOwnPropertyDescriptor(typedArray, key).get;
const tagOf = getter(Symbol.toStringTag);
const [bufferOf, offsetOf, bytesOf, lengthOf] = ['buffer', 'byteOffset', 'byteLength', 'length'].map(getter);

/** The name of a typed array's class, whatever realm it comes from; undefined for anything else. */
export const arrayTag = (value) => tagOf.call(value);

/** Where a typed array lies, whatever properties it was given over its own. */
export const place = (array) => ({
  buffer: bufferOf.call(array),
  byteOffset: offsetOf.call(array),
  byteLength: bytesOf.call(array),
  length: lengthOf.call(array),
});

/** The bytes of a view as they are now: what it looks at can be taken from it, or shrink. */
export function bytesAt(view, where) {
  try {
    return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  } catch {
    return fail(`${where}: the array's buffer was detached, or has shrunk`);
  }
}

/** The value, if it is a typed array that holds this dtype; otherwise a sentence. */
export function expectArray(value, dtype, where) {
  const tag = arrayTag(value);
  if (tag && dtypes[dtype].tags.includes(tag)) return value;
  const got = tag ?? (value === null ? 'null' : Array.isArray(value) ? 'an array' : typeof value);
  return fail(`${where}: expected a ${dtypes[dtype].tags.join(' or ')} for ${dtype}, got ${got}`);
}
