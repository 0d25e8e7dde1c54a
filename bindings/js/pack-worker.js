// pack-worker.js -- one instance of a kernel, in a thread that the host can end at any moment.
//
// What the memory is when the instance begins belongs to the module. The rest is grown here, and holds, each at a
// multiple of 64 bytes: the descriptor, then the regions of a call.
import { answerMessages } from './worker.js';

const page = 65536;
const regions = ['a', 'b', 'out', 'scratch', 'params', 'weight'];
const described = ['a', 'b', 'out', 'scratch', 'params'];
const aligned = (n) => Math.ceil(n / 64) * 64;

let instance;
let base = 0;
let room = 0;

/** An error that says how it ended: a refused growth, or a trap. */
const failure = (status, message) => Object.assign(new Error(message), { status });

function start({ module, entry }) {
  const { exports } = new WebAssembly.Instance(module, {});
  instance = { exports, entry };
  const code = exports.kernel_init(0, 0);
  if (code !== 0) throw failure('denied', `kernel_init returned ${code}`);
  return {};
}

/** Pages behind the memory as it is, or more behind those the host has already. */
function grow(bytes) {
  const { memory } = instance.exports;
  const size = memory.buffer.byteLength;
  const last = room > 0 && base + room === size;
  const from = last ? base : size;
  const pages = Math.ceil((bytes - (last ? room : 0)) / page);
  try {
    memory.grow(pages);
  } catch {
    throw failure('no memory', `its memory cannot grow by ${pages} pages`);
  }
  base = from;
  room = size + pages * page - from;
}

function place(sizes) {
  const at = {};
  let need = 64; // the descriptor's 40 bytes
  for (const r of regions) {
    at[r] = need;
    need += aligned(sizes[r] + (r === 'params' ? 8 : 0)); // where the weight is, if there is one
  }
  if (need > room) grow(need);
  for (const r of regions) at[r] += base;
  return at;
}

function describe(at, sizes) {
  const view = new DataView(instance.exports.memory.buffer);
  const weighted = sizes.weight > 0;
  described.forEach((r, i) => {
    view.setUint32(base + 8 * i, at[r], true);
    view.setUint32(base + 8 * i + 4, sizes[r] + (weighted && r === 'params' ? 8 : 0), true);
  });
  if (!weighted) return;
  view.setUint32(at.params + sizes.params, at.weight, true);
  view.setUint32(at.params + sizes.params + 4, sizes.weight, true);
}

function call({ backward, inputs, sizes }) {
  const { exports, entry } = instance;
  const at = place(sizes);
  const memory = () => new Uint8Array(exports.memory.buffer);
  for (const r of regions) {
    if (inputs[r]) memory().set(inputs[r], at[r]);
    else memory().fill(0, at[r], at[r] + sizes[r]); // nothing of the call before
  }
  describe(at, sizes);
  const code = exports[backward ? 'kernel_backward' : entry](base);
  const results = {};
  if (code === 0) for (const r of ['out', 'scratch']) results[r] = memory().slice(at[r], at[r] + sizes[r]);
  return { code, results };
}

function answer(message) {
  try {
    return (message.start ? start : call)(message.start ?? message.call);
  } catch (e) {
    return { error: e.message, status: e.status ?? 'device lost' };
  }
}

await answerMessages(answer);
