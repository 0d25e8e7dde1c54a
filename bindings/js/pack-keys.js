// pack-keys.js -- keys, signatures and hashes of kernel packs, by the engine's own Ed25519 and SHA-256.
import { fail } from './wasm.js';

export const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (b) => parseInt(b, 16));
export const hex = (bytes) => [...bytes].map((b) => b.toString(16).padStart(2, '0')).join('');

async function cryptography() {
  const nodes = async () => (typeof process === 'object' ? (await import('node:crypto')).webcrypto.subtle : undefined);
  const subtle = globalThis.crypto?.subtle ?? (await nodes());
  return subtle ?? fail('kernel packs need WebCrypto, which a page has over https or on this machine', 'no device');
}

// ---- keys ----------------------------------------------------------------------------------------------------------
/** y of the points of order 1, 2, 4 and 8, little-endian, without the sign of x. Their other encodings are p or more. */
const smallOrders = new Set([`01${'0'.repeat(62)}`, `ec${'f'.repeat(60)}7f`, '0'.repeat(64),
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a']);

/** Engines take signatures for these that anyone can make; or it is a second spelling of another key. */
function isWeak(key) {
  const y = key.slice();
  y[31] &= 127;
  const beyond = y[0] >= 0xed && y[31] === 127 && y.subarray(1, 31).every((b) => b === 255); // p = 2^255 - 19 or more
  return beyond || smallOrders.has(hex(y));
}

/** The 32 bytes of a key that is given as them, or as hex digits. libsodium refuses the weak ones for the host in C. */
export function keyBytes(key) {
  const bytes = typeof key === 'string' && /^[0-9a-f]{64}$/i.test(key.trim()) ? fromHex(key.trim()) : key;
  if (!(bytes instanceof Uint8Array) || bytes.length !== 32) fail('a key: expected 32 bytes, or 64 hex digits');
  const copy = bytes.slice();
  return isWeak(copy) ? fail(`a key: ${hex(copy)} is of small order or not canonical: no secret belongs to it`) : copy;
}

export async function isSignedBy(key, signature, text) {
  const subtle = await cryptography();
  try {
    const imported = await subtle.importKey('raw', key, { name: 'Ed25519' }, false, ['verify']);
    return await subtle.verify({ name: 'Ed25519' }, imported, signature, text);
  } catch (e) {
    if (e.name === 'NotSupportedError') fail('this engine has no Ed25519', 'no device');
    return false; // no point of the curve
  }
}

/** 'sha256:<hex>' */
export async function hashOf(bytes) {
  return `sha256:${hex(new Uint8Array(await (await cryptography()).digest('SHA-256', bytes)))}`;
}
