// pack-source.js -- the files of a pack by name, from wherever they are. Nobody has vouched for them yet: no more is
// read than a file may hold.
import { fail } from './wasm.js';

const refused = (sentence) => fail(sentence, 'denied');
const tooLarge = (name) => refused(`${name}: larger than this file may be`);

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
      tooLarge(name);
    }
  }
}

// ---- local files: pipes and devices have no size, and may never end ------------------------------------------------
function checkFile(stat, name, limit) {
  if (!stat.isFile()) refused(`${name}: not a plain file`);
  if (stat.size > limit) tooLarge(name);
}

/** All of it, or limit + 1 bytes: it may have grown since. */
async function readUpTo(file, limit) {
  const parts = [];
  for (let left = limit + 1; left > 0; ) {
    const { bytesRead, buffer } = await file.read(new Uint8Array(Math.min(left, 65536)), 0);
    if (bytesRead === 0) break;
    parts.push(buffer.subarray(0, bytesRead));
    left -= bytesRead;
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function readLocal(url, name, limit) {
  const { constants, open, stat } = await import('node:fs/promises');
  const found = await stat(url).catch(() => undefined);
  if (!found) return undefined;
  checkFile(found, name, limit);
  const file = await open(url, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)); // if it is a pipe by now: no waiting
  try {
    checkFile(await file.stat(), name, limit);
    const bytes = await readUpTo(file, limit);
    return bytes.length > limit ? tooLarge(name) : bytes;
  } finally {
    await file.close();
  }
}

/** A URL, or in node a path: one without a scheme is a page's own, or a folder's beside the process's. */
async function folderOf(source) {
  const text = String(source).replace(/\/?$/, '/');
  try {
    if (typeof location === 'object') return new URL(text, location.href);
    if (/^[a-z][a-z0-9+.-]+:/i.test(text)) return new URL(text);
  } catch {
    return fail(`open: ${text.slice(0, 200)} is no URL`);
  }
  return (await import('node:url')).pathToFileURL(text);
}

async function fetched(url, name, limit) {
  const response = await fetch(url).catch((e) => refused(`${name}: ${e.message}`));
  return response.ok ? readStream(response, name, limit) : undefined;
}

/** (name, limit) -> bytes or undefined, from a URL of a folder, an object {name: bytes}, or a function. */
export function sourceOf(source) {
  if (typeof source === 'function') return async (name, limit) => source(name, limit);
  if ((typeof source === 'string' && source !== '') || source instanceof URL) {
    return async (name, limit) => {
      const url = new URL(name, await folderOf(source));
      return (url.protocol === 'file:' ? readLocal : fetched)(url, name, limit);
    };
  }
  if (typeof source !== 'object' || source === null)
    fail('open: expected a URL, {name: bytes}, or a function of a name');
  return async (name) => (Object.hasOwn(source, name) ? source[name] : undefined);
}
