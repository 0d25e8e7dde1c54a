// work.js -- the worker: whatever takes long is done here, and reported as it goes.
import { load } from './ambi/ambi.js';
import { check } from './ambi/check.js';
import { defaults, makeParameters, Model, Optimizer } from './model.js';

let stopped = false;
const pause = () => new Promise((r) => setTimeout(r)); // lets messages in

// ---- check ---------------------------------------------------------------------------------------------------------
async function runCheck({ ops, quick }) {
  const total = { passed: 0, failed: 0 };
  for (const [i, op] of ops.entries()) {
    if (stopped) break;
    const onLine = (line) => postMessage({ line });
    const options = ['--op', op, '--elements', '8000', '--kernels', ...(quick ? ['--quick'] : [])];
    const r = await check(options, { onLine: (line) => /^vectors:|^\d+ passed/.test(line) || onLine(line) });
    total.passed += r.passed;
    total.failed += r.failed + (r.status > 1 ? 1 : 0);
    postMessage({ progress: (i + 1) / ops.length, ...total });
    await pause();
  }
  postMessage({ done: true, stopped, ...total });
}

// ---- bench ---------------------------------------------------------------------------------------------------------
const cases = [
  ['unary', { x: [1 << 20] }, { function: 'silu' }],
  ['gated', { v: [1 << 20], g: [1 << 20] }, {}],
  ['rmsnorm', { x: [1024, 1024], w: [1024] }, {}],
  ['layernorm', { x: [1024, 1024], w: [1024], b: [1024] }, {}],
  ['softmax', { x: [1024, 1024] }, {}],
  ['linear', { x: [256, 512], w: [512, 512] }, {}],
  ['attention', { q: [1, 4, 256, 64], k: [1, 4, 256, 64], v: [1, 4, 256, 64] }, { causal: true }],
  ['conv1d', { x: [1, 512, 1024], w: [512, 4] }, { silu: true }],
  ['selective_scan', { u: [1, 256, 256], delta: [1, 256, 256], a: [256, 16], b: [1, 16, 256], c: [1, 16, 256] }, { softplus: true }],
  ['cross_entropy', { logits: [256, 4096], target: [256] }, {}],
];

function bufferFor(ambi, name, slot) {
  const n = slot.shape.reduce((a, k) => a * k, 1);
  const buffer = ambi.buffer(slot.dtype, n);
  const value = (i) => (name === 'a' ? -1 - (i % 8) / 8 : Math.sin(i) / 2);
  if (slot.read && slot.dtype === 'f32') buffer.write(Float32Array.from({ length: n }, (_, i) => value(i)));
  return buffer;
}

/** The best of the timings that fit into `seconds`. A page's clock may step by 0.1 ms, so each is of 5 ms at least. */
function time(ambi, description, seconds = 0.15) {
  const plan = ambi.plan(description);
  const buffers = Object.fromEntries(Object.entries(plan.slots).map(([name, s]) => [name, bufferFor(ambi, name, s)]));
  plan.run(buffers);
  let best = Infinity;
  for (let runs = 1, begin = performance.now(); best === Infinity || performance.now() - begin < 1000 * seconds; ) {
    const t = performance.now();
    for (let i = 0; i < runs; i++) plan.run(buffers);
    const ms = performance.now() - t;
    if (ms < 5) runs *= 2;
    else best = Math.min(best, ms / runs);
  }
  for (const b of Object.values(buffers)) b.free();
  plan.free();
  return { ms: best, gflops: plan.info.flops / best / 1e6, gbps: plan.info.bytes / best / 1e6 };
}

async function runBench() {
  const ambi = await load();
  for (const [i, [op, tensors, attrs]] of cases.entries()) {
    for (const pass of ['forward', 'backward']) {
      if (stopped) break;
      postMessage({ row: { op, pass, ...time(ambi, { op, pass, tensors, attrs }) }, progress: (i + (pass === 'backward' ? 1 : 0.5)) / cases.length });
      await pause();
    }
  }
  ambi.free();
  postMessage({ done: true, stopped });
}

// ---- train ---------------------------------------------------------------------------------------------------------
/** Characters as numbers, and back. */
function vocabularyOf(text) {
  const letters = [...new Set(text)].sort();
  const index = new Map(letters.map((c, i) => [c, i]));
  return { letters, ids: Int32Array.from(text, (c) => index.get(c)) };
}

function batches(ids, batch, length, seed = 7) {
  let s = seed;
  const [x, y] = [new Int32Array(batch * length), new Int32Array(batch * length)];
  return () => {
    for (let b = 0; b < batch; b++) {
      s = (Math.imul(s, 1664525) + 1013904223) >>> 0;
      const at = Math.floor((s / 2 ** 32) * (ids.length - length));
      x.set(ids.subarray(at, at + length), b * length);
      y.set(ids.subarray(at + 1, at + 1 + length), b * length);
    }
    return [x, y];
  };
}

/** Continues the beginning of the text with the likeliest characters. */
function sample(model, letters, begin, count) {
  const [L, V] = [model.length, model.vocabulary];
  const text = [...begin];
  for (let i = 0; i < count; i++) {
    const seen = text.slice(-L);
    const tokens = new Int32Array(L);
    tokens.set(seen);
    model.forward(tokens);
    const row = model.logits.value.read(new Float32Array(V), (seen.length - 1) * V);
    text.push(row.indexOf(Math.max(...row)));
  }
  return text.map((t) => letters[t]).join('');
}

async function runTrain({ text, steps, rate }) {
  if (!(steps >= 1)) throw new Error('steps: expected a number of at least 1');
  if (!(rate > 0)) throw new Error('rate: expected a number above 0');
  const { letters, ids } = vocabularyOf(text);
  const length = Math.min(64, ids.length - 1);
  if (length < 8) throw new Error('the text is too short: give it at least 9 characters');
  const ambi = await load();
  const parameters = makeParameters(ambi, letters.length, defaults);
  const model = new Model(ambi, parameters, letters.length, { batch: 8, length });
  const reader = new Model(ambi, parameters, letters.length, { batch: 1, length, training: false });
  const optimizer = new Optimizer(ambi, parameters, { rate });
  const next = batches(ids, 8, length);
  const size = Object.values(parameters).reduce((n, p) => n + p.length, 0);
  postMessage({ parameters: size, vocabulary: letters.length });
  const began = performance.now();
  for (let step = 0; step < steps && !stopped; step++) {
    const loss = model.gradients(...next());
    const norm = optimizer.update();
    const rateOfTokens = (1000 * (step + 1) * model.rows) / (performance.now() - began);
    const last = step + 1 === steps;
    const words = step % 50 === 0 || last ? { sample: sample(reader, letters, ids.slice(0, 8), 60) } : {};
    postMessage({ step, loss, norm, tokens: rateOfTokens, progress: (step + 1) / steps, ...words });
    await pause();
  }
  ambi.free();
  postMessage({ done: true, stopped });
}

const tasks = { check: runCheck, bench: runBench, train: runTrain };
onmessage = async ({ data }) => {
  if (data === 'stop') return void (stopped = true);
  try {
    await tasks[data.task](data);
  } catch (e) {
    postMessage({ error: e.message });
  }
};
