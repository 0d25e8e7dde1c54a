// test_threads.mjs -- the same bits as without threads, for any number of them, with the module that the engine gets: once
// more with relaxed SIMD where node has that behind a flag. PACKAGE is the folder built.
import { spawnSync } from 'node:child_process';
import { pathToFileURL } from 'node:url';
import { equal, numbers, ok, rejects, run, test, testRelaxed, throws } from './test.mjs';

const root = pathToFileURL(`${process.argv[2]}/`);
const { load } = await import(new URL('ambi.js', root));
const alone = await load();
console.log(`threads: ${alone.device.module}`);
const crews = await Promise.all([2, 3, 7].map((threads) => load({ threads })));

// Large enough to be cut into several tasks.
const shapes = {
  unary: { x: [70, 1111] },
  gated: { v: [70, 1111], g: [70, 1111] },
  rmsnorm: { x: [300, 257], w: [257] },
  layernorm: { x: [300, 257], w: [257], b: [257] },
  linear: { x: [130, 140], w: [150, 140], b: [150] },
  conv1d: { x: [3, 40, 300], w: [40, 4], b: [40] },
  selective_scan: { u: [2, 40, 200], delta: [2, 40, 200], a: [40, 5], b: [2, 5, 200], c: [2, 5, 200], d: [40] },
  softmax: { x: [300, 257] },
  cross_entropy: { logits: [200, 300], target: [200] },
  linear_cross_entropy: { x: [100, 60], w: [300, 60], target: [100] },
  embedding: { tokens: [500], w: [70, 90] },
  rope: { x: [4, 8, 100, 32] },
  attention: { q: [2, 4, 90, 32], k: [2, 2, 90, 32], v: [2, 2, 90, 32] },
};

function inputsOf(plan) {
  const arrays = {};
  for (const [name, s] of Object.entries(plan.slots)) {
    const n = s.shape.reduce((a, k) => a * k, 1);
    if (s.read) arrays[name] = s.dtype === 'i32' ? new Int32Array(n).map((_, i) => (i * 7) % 60) : numbers(n, name.length);
  }
  return arrays;
}

const bits = (outputs) => Object.entries(outputs).map(([name, a]) => `${name} ${new Uint32Array(a.buffer).join()}`).join('\n');

for (const [op, tensors] of Object.entries(shapes))
  test(`${op}: the same bits with 1, 2, 3 and 7 threads`, () => {
    for (const pass of ['forward', 'backward']) {
      const plan = alone.plan({ op, pass, tensors });
      const inputs = inputsOf(plan);
      const wanted = bits(plan.run(inputs));
      for (const crew of crews) {
        const other = crew.plan({ op, pass, tensors });
        for (let i = 0; i < 3; i++) ok(bits(other.run(inputs)) === wanted, `${op} ${pass}, ${crew.device.threads} threads`);
        other.free();
      }
      plan.free();
    }
  });

test('many short jobs, one after another', () => {
  const plan = crews[1].plan({ op: 'unary', tensors: { x: [40000] }, attrs: { function: 'square' } });
  const [x, y] = [crews[1].buffer('f32', numbers(40000)), crews[1].buffer('f32', 40000)];
  const wanted = x.read().map((v) => v * v);
  for (let i = 0; i < 2000; i++) plan.run({ x, y });
  equal(`${y.read()}`, `${wanted}`);
});

test('memory grows under the threads', () => {
  const n = 3e6;
  const { y } = crews[0].plan({ op: 'unary', tensors: { x: [n] }, attrs: { function: 'square' } }).run({ x: new Float32Array(n).fill(3) });
  ok(y.every((v) => v === 9), 'every element');
});

test('mistakes', async () => {
  await rejects(load({ threads: 0 }), /expected 1 to 64/);
  await rejects(load({ threads: 2.5 }), /expected 1 to 64/);
  throws(() => crews[0].plan({ op: 'unary', tensors: { q: [1] } }), /no slot q/);
  equal((await load({ threads: 'all' })).device.threads > 0, true);
});

test('every crew has the module of the one without, and each module runs with threads', async () => {
  for (const crew of crews) equal(crew.device.module, alone.device.module);
  const plain = await load({ relaxed: false, threads: 2 });
  equal(plain.device.module, 'ambi.wasm');
  const both = [plain, await load({ relaxed: false })].map((a) => a.plan({ op: 'linear', tensors: shapes.linear }));
  const inputs = inputsOf(both[0]);
  ok(bits(both[0].run(inputs)) === bits(both[1].run(inputs)), 'linear without relaxed SIMD');
  plain.free();
});

test('threads do not keep node alive', () => {
  const code = `import { load } from ${JSON.stringify(String(new URL('ambi.js', root)))}; console.log((await load({ threads: 3 })).device.threads);`;
  const { stdout, status } = spawnSync(process.execPath, ['--input-type=module', '-e', code], { timeout: 20000, encoding: 'utf8' });
  equal(stdout.trim(), '3');
  equal(status, 0);
});

testRelaxed();
await run(() => crews.forEach((c) => c.free()));
