// test_ambi.mjs -- the library in JavaScript. PACKAGE names the folder that was built.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { equal, near, numbers, ok, rejects, run, test, testRelaxed, throws } from './test.mjs';

const root = pathToFileURL(`${process.argv[2]}/`);
const { AmbiError, dtypeBytes, dtypeNames, load, Plan } = await import(new URL('ambi.js', root));
const { check } = await import(new URL('check.js', root));
const ambi = await load();
const reference = await load({ device: 'ref' });
const product = (shape) => shape.reduce((a, n) => a * n, 1);

// ---- reflection ----------------------------------------------------------------------------------------------------
// Shapes for every op the library has: one that is missing here fails, so that a new op is tried.
const shapes = {
  unary: { x: [3, 5] },
  gated: { v: [3, 5], g: [3, 5] },
  add: { a: [3, 5], b: [3, 5] },
  cast: { x: [3, 5] },
  copy: { x: [3, 5] },
  fill: { y: [3, 5] },
  rmsnorm: { x: [4, 9], w: [9] },
  layernorm: { x: [4, 9], w: [9], b: [9] },
  linear: { x: [4, 9], w: [5, 9], b: [5] },
  conv1d: { x: [2, 3, 11], w: [3, 4], b: [3] },
  selective_scan: { u: [1, 4, 9], delta: [1, 4, 9], a: [4, 3], b: [1, 3, 9], c: [1, 3, 9], d: [4] },
  adamw: { p: [7], g: [7], m: [7], v: [7], lr: [], step: [] },
  grad_norm: { g: [11] },
  softmax: { x: [4, 9] },
  cross_entropy: { logits: [4, 9], target: [4] },
  linear_cross_entropy: { x: [4, 6], w: [9, 6], target: [4] },
  embedding: { tokens: [5], w: [7, 3] },
  rope: { x: [2, 5, 8] },
  ssd: { x: [1, 9, 2, 3], delta: [1, 9, 2], a: [2], b: [1, 9, 1, 3], c: [1, 9, 1, 3] },
  attention: { q: [1, 2, 5, 8], k: [1, 2, 5, 8], v: [1, 2, 5, 8] },
};

function inputsOf(plan, seed = 1) {
  const arrays = {};
  for (const [name, slot] of Object.entries(plan.slots)) {
    const n = product(slot.shape);
    if (!slot.read) continue;
    if (slot.dtype === 'i32') arrays[name] = new Int32Array(n).map((_, i) => i % 3);
    else arrays[name] = numbers(n, seed + name.length).map((v) => (name === 'v' && plan.op === 'adamw' ? v * v : v));
  }
  return arrays;
}

for (const [name, op] of Object.entries(ambi.ops)) {
  test(`${name}: as the reference, forward and backward`, () => {
    ok(op.formula && op.slots.length, 'its reflection is empty');
    const tensors = shapes[name];
    ok(tensors, 'this test has no shapes for it');
    for (const pass of op.backward ? ['forward', 'backward'] : ['forward']) {
      const [plan, ref] = [ambi, reference].map((a) => a.plan({ op: name, pass, tensors }));
      const inputs = inputsOf(plan);
      const [got, wanted] = [plan.run(inputs), ref.run(inputs)];
      ok(Object.keys(got).length > 0, 'nothing was written');
      for (const out of Object.keys(wanted)) near(got[out], wanted[out], 2e-5, `${name} ${pass} ${out}`);
      plan.free();
      ref.free();
    }
  });
}

test('gradient names are no other slot', () => {
  for (const op of Object.values(ambi.ops)) {
    const names = op.slots.flatMap((s) => [s.name, `d${s.name}`]);
    equal(new Set(names).size, names.length, op.name);
  }
});

test('reflection: enums, defaults, in-place pairs', () => {
  const gate = ambi.ops.gated.attrs.find((a) => a.name === 'gate');
  equal(gate.type, 'enum');
  equal(gate.default, 'swiglu');
  ok(gate.values.includes('geglu'), 'geglu');
  equal(ambi.ops.unary.attrs.find((a) => a.name === 'function').values.length, 30);
  ok(ambi.ops.add.inPlace.some(([out, input]) => out === 'y' && input === 'a'), 'y over a');
  ok(Object.isFrozen(ambi.ops.add.slots[0]), 'it is frozen');
});

// ---- running -------------------------------------------------------------------------------------------------------
test('rmsnorm by its formula, in f64', () => {
  const x = numbers(12);
  const w = numbers(4, 2);
  const { y } = ambi.plan({ op: 'rmsnorm', tensors: { x: [3, 4], w: [4] }, attrs: { eps: 1e-3 } }).run({ x, w });
  const wanted = x.map((v, i) => {
    const row = x.subarray(i - (i % 4), i - (i % 4) + 4);
    return (v / Math.sqrt(row.reduce((s, a) => s + a * a, 0) / 4 + 1e-3)) * w[i % 4];
  });
  near(y, wanted, 1e-6);
});

test('outputs go where they are asked to, and are returned', () => {
  const plan = ambi.plan({ op: 'unary', tensors: { x: [4] }, attrs: { function: 'square' } });
  const y = new Float32Array(6);
  const out = plan.run({ x: Float32Array.of(1, 2, 3, 4), y });
  equal(out.y, y);
  equal(`${y}`, '1,4,9,16,0,0');
});

test('every dtype', () => {
  for (const dtype of ['f32', 'f16', 'bf16', 'f64']) {
    const x = ambi.convert(Float32Array.of(1.5, -2, 0.25), 'f32', dtype);
    const { y } = ambi.plan({ op: 'unary', dtype, tensors: { x: [3] }, attrs: { function: 'square' } }).run({ x });
    equal(`${ambi.convert(y, dtype, 'f32')}`, '2.25,4,0.0625', dtype);
  }
  for (const dtype of ['i32', 'i64', 'u8']) {
    const plan = ambi.plan({ op: 'copy', tensors: { x: { dtype, shape: [2] } } });
    const Array = { i32: Int32Array, i64: BigInt64Array, u8: Uint8Array }[dtype];
    equal(`${plan.run({ x: Array.of(...(dtype === 'i64' ? [7n, 9n] : [7, 9])) }).y}`, '7,9', dtype);
  }
  equal(dtypeNames.map(dtypeBytes).join(), '4,2,2,8,4,8,1');
});

test('in place', () => {
  const a = Float32Array.of(1, 2, 3);
  ambi.plan({ op: 'add', tensors: { a: [3], b: [3] } }).run({ a, b: Float32Array.of(10, 20, 30), y: a });
  equal(`${a}`, '11,22,33');
});

test('interleaved halves of one array, in and out', () => {
  const half = (offset) => ({ shape: [2, 2], stride: [4, 1], offset });
  const tensors = { v: half(0), g: half(2) };
  const description = { op: 'gated', pass: 'backward', tensors, grads: { v: half(0), g: half(2) }, attrs: { gate: 'bilinear' } };
  const packed = Float32Array.of(1, 2, 10, 20, 3, 4, 30, 40);
  const d = new Float32Array(8).fill(-1);
  ambi.plan(description).run({ v: packed, g: packed, dy: Float32Array.of(1, 1, 1, 1), dv: d, dg: d });
  equal(`${d}`, '10,20,1,2,30,40,3,4');
});

test('gaps between strided outputs stay as they were', () => {
  const plan = ambi.plan({ op: 'copy', tensors: { x: [2], y: { shape: [2], stride: [3], offset: 1 } } });
  const y = Float32Array.of(9, 9, 9, 9, 9, 9);
  plan.run({ x: Float32Array.of(1, 2), y });
  equal(`${y}`, '9,1,9,9,2,9');
});

test('and so do gaps of a gradient that is summed over an axis', () => {
  const dx = { shape: [2, 2], stride: [0, 3] };
  const plan = ambi.plan({ op: 'cast', pass: 'backward', tensors: { x: [2, 2] }, grads: { x: dx } });
  const out = Float32Array.of(10, 20, 30, 40);
  plan.run({ dy: Float32Array.of(1, 2, 3, 4), dx: out });
  equal(`${out}`, '4,20,30,6');
});

test('a negative stride reads backwards', () => {
  const plan = ambi.plan({ op: 'copy', tensors: { x: { shape: [3], stride: [-1], offset: 2 }, y: [3] } });
  equal(`${plan.run({ x: Float32Array.of(1, 2, 3) }).y}`, '3,2,1');
  throws(() => ambi.plan({ op: 'copy', tensors: { x: { shape: [3], stride: [-1] }, y: [3] } }), /offset of 2 would do/);
});

test('accumulate adds, want chooses', () => {
  const tensors = { x: [2, 4], w: [4] };
  const plan = ambi.plan({ op: 'rmsnorm', pass: 'backward', tensors, want: ['w'], accumulate: ['w'] });
  const [x, w, dy] = [numbers(8), numbers(4, 2), numbers(8, 3)];
  const { dw: once } = ambi.plan({ op: 'rmsnorm', pass: 'backward', tensors, want: ['w'] }).run({ x, w, dy });
  const dw = new Float32Array(4).fill(5);
  equal(Object.keys(plan.run({ x, w, dy, dw })).join(), 'dw');
  near(dw, once.map((v) => v + 5), 1e-6);
  throws(() => plan.run({ x, w, dy }), /dw: what to add to is missing/);
});

test('empty tensors', () => {
  const { y } = ambi.plan({ op: 'unary', tensors: { x: [0, 5] } }).run({ x: new Float32Array(0) });
  equal(y.length, 0);
});

test('buffers are not copied, and keep what a run wrote', () => {
  const x = ambi.buffer('f32', Float32Array.of(1, 2, 3));
  const y = ambi.buffer('f32', 3);
  const plan = ambi.plan({ op: 'unary', tensors: { x: [3] }, attrs: { function: 'square' } });
  equal(plan.run({ x, y }).y, y);
  equal(`${y.read()}`, '1,4,9');
  plan.run({ x: y, y: x });
  equal(`${x.read(new Float32Array(2), 1)}`, '16,81');
  x.write(Float32Array.of(7), 2);
  equal(`${x.read()}`, '1,16,7');
  x.free();
  throws(() => plan.run({ x, y }), /the buffer was freed/);
  throws(() => x.read(), /the buffer was freed/);
  throws(() => plan.run({ x: reference.buffer('f32', 3), y }), /belongs to another module/);
});

test('memory grows while arrays are staged', () => {
  const n = 5e6;
  const x = new Float32Array(n).fill(3);
  const plan = ambi.plan({ op: 'unary', tensors: { x: [n] }, attrs: { function: 'square' } });
  const { y } = plan.run({ x });
  ok(y.every((v) => v === 9), 'every element');
  plan.free();
});

test('the same bits every time', () => {
  const plan = ambi.plan({ op: 'attention', pass: 'backward', tensors: shapes.attention, attrs: { causal: true } });
  const inputs = inputsOf(plan);
  const bits = () => Object.values(plan.run(inputs)).map((a) => `${new Uint32Array(a.buffer)}`).join();
  equal(bits(), bits());
});

test('a plan says what it is', () => {
  const plan = ambi.plan({ op: 'linear', pass: 'backward', tensors: { x: [2, 3], w: [4, 3] } });
  ok(/^linear\.backward f32 cpu\/wasm/.test(plan.info.kernel), plan.info.kernel);
  equal(plan.info.deterministic, true);
  equal(Object.keys(plan.slots).join(), 'x,w,dx,dw,dy');
  equal(`${plan.slots.dy.shape}`, '2,4');
});

// ---- mistakes ------------------------------------------------------------------------------------------------------
const plan3 = () => ambi.plan({ op: 'unary', tensors: { x: [3] } });
const f3 = () => new Float32Array(3);

test('descriptions that are wrong', () => {
  const e = throws(() => ambi.plan({ op: 'rmsnorm', tensors: { x: [4, 8], w: [9] } }), /w: expected shape \(8\), got \(9\)/);
  ok(e instanceof AmbiError && e.status === 'invalid', 'an AmbiError');
  throws(() => ambi.plan(), /expected \{op/);
  throws(() => ambi.plan({ op: 'nothing' }), /no op nothing; there are unary, /);
  throws(() => ambi.plan({ op: 'toString' }), /no op toString/);
  throws(() => ambi.plan({ op: 'unary', tensor: {} }), /there is no tensor; there are/);
  throws(() => ambi.plan({ op: 'unary', pass: 'up', tensors: { x: [3] } }), /pass: expected 'forward'/);
  throws(() => ambi.plan({ op: 'unary', tensors: { q: [3] } }), /no slot q; it has x, y/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: 3 } }), /expected a shape/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: [1.5] } }), /whole numbers, got 1.5/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: [-1] } }), /whole numbers, got -1/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: [2 ** 60] } }), /whole numbers/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: new Array(9).fill(1) } }), /at most 8 axes, got 9/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: { shape: [2, 2], stride: [1] } } }), /2 axes, but 1 strides/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: { shape: [2], dtype: 'f8' } } }), /no dtype f8; there are/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: { shape: [2], size: 1 } } }), /x: there is no size; there are shape, dtype/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: [2] }, attrs: { function: 'q' } }), /one of silu, gelu/);
  throws(() => ambi.plan({ op: 'unary', tensors: { x: [2] }, attrs: { beta: 1 } }), /no such attribute/);
  throws(() => ambi.plan({ op: 'conv1d', tensors: shapes.conv1d, attrs: { silu: 1 } }), /expected a boolean, got 1/);
  throws(() => ambi.plan({ op: 'rmsnorm', tensors: shapes.rmsnorm, attrs: { eps: '1' } }), /expected a number/);
  throws(() => ambi.plan({ op: 'rope', tensors: shapes.rope, attrs: { dims: 1.5 } }), /dims: expected an integer, got 1.5/);
  throws(() => ambi.plan({ op: 'rmsnorm', tensors: shapes.rmsnorm, attrs: { eps: 7 } }), /expected 0 to 1, got 7/);
  throws(() => ambi.plan({ op: 'rmsnorm', pass: 'backward', tensors: shapes.rmsnorm, want: 'x' }), /array of slot names/);
  throws(() => ambi.plan({ op: 'adamw', pass: 'backward', tensors: shapes.adamw }), /adamw/);
});

test('a zero that C takes for the default is refused', () => {
  const refused = (op, attrs, pattern) => throws(() => ambi.plan({ op, tensors: shapes[op], attrs }), pattern, op);
  refused('add', { alpha: 0, beta: 1 }, /add: alpha: 0 means the default, 1; leave it out/);
  refused('rmsnorm', { eps: 0 }, /eps: 0 means the default, 0.000001; leave/);
  refused('adamw', { beta1: -0 }, /beta1: 0 means the default, 0.9; leave/);
  refused('cross_entropy', { ignore_index: 0 }, /ignore_index: 0 means the default, -100; leave/);
  refused('unary', { function: 'leaky_relu', a: 0, b: 0 }, /unary: a, b: where both are 0/);
  refused('unary', { function: 'hardtanh', b: 0 }, /unary: a, b: where both are 0/);
  for (const [op, attrs] of [['fill', { value: 0 }], ['adamw', { weight_decay: 0 }], ['attention', { scale: 0, window: 0 }],
    ['softmax', { log: false }], ['gated', { gate: 'swiglu' }]]) ambi.plan({ op, tensors: shapes[op], attrs }).free();
});

test("unary's a may be 0", () => {
  const y = (attrs) => ambi.plan({ op: 'unary', tensors: { x: [3] }, attrs }).run({ x: Float32Array.of(-2, 0.5, 2) }).y.map((v) => v + 0);
  equal(`${y({ function: 'leaky_relu', a: 0 })}`, '0,0.5,2');
  equal(`${y({ function: 'silu', a: 0 })}`, '-1,0.25,1');
  equal(`${y({ function: 'hardtanh', a: 0 })}`, '0,0.5,1');
  equal(`${y({ function: 'hardtanh', a: 0, b: 2 })}`, '0,0.5,2');
  equal(`${y({ function: 'hardtanh', a: -1, b: 0 })}`, '-1,0,0');
});

test('arrays that are wrong', () => {
  const plan = plan3();
  throws(() => plan.run(), /x: an array of f32 is missing/);
  throws(() => plan.run({ x: null }), /expected a typed array/);
  throws(() => plan.run({ x: [1, 2, 3] }), /expected a typed array/);
  throws(() => plan.run({ x: new Float64Array(3) }), /expected a Float32Array for f32, got Float64Array/);
  throws(() => plan.run({ x: new DataView(new ArrayBuffer(12)) }), /expected a typed array/);
  throws(() => plan.run({ x: new Float32Array(2) }), /expected 3 elements at least, got 2/);
  throws(() => plan.run({ x: f3(), y: new Float32Array(2) }), /y: expected 3 elements/);
  throws(() => plan.run({ x: f3(), z: f3() }), /no slot z; this plan has x,y/);
  throws(() => plan.run({ x: ambi.buffer('f64', 3) }), /expected a buffer of f32, got f64/);
  const x = f3();
  structuredClone(x.buffer, { transfer: [x.buffer] });
  throws(() => plan.run({ x }), /expected 3 elements at least, got 0/);
  const liar = Object.defineProperty(f3(), 'length', { value: 1 });
  throws(() => ambi.buffer('f32', 2).write(liar), /elements 0 to 3 of 2/);
  const trap = { get x() { return plan.free(), f3(); } };
  throws(() => plan.run(trap), /the plan was freed/);
  const fake = Object.create(Float32Array.prototype);
  throws(() => plan3().run({ x: fake }), /expected a typed array/);
  throws(() => ambi.buffer('f32', -1), /expected a length/);
  throws(() => ambi.buffer('f32', 2 ** 40), /no memory/);
});

test('overlaps that no formula allows', () => {
  const all = new Float32Array(4);
  throws(() => plan3().run({ x: all.subarray(0, 3), y: all.subarray(1, 4) }), /overlap/);
});

test('a failing run leaves outputs alone', () => {
  const y = Float32Array.of(1, 2, 3);
  throws(() => plan3().run({ x: new Float32Array(1), y }), /at least/);
  equal(`${y}`, '1,2,3');
});

test('too much memory is refused, and what is there still works', () => {
  const plan = ambi.plan({ op: 'unary', tensors: { x: [2 ** 31] } });
  throws(() => plan.run({ x: new Float32Array(4) }), /elements at least/);
  throws(() => ambi.buffer('f64', 2 ** 29 - 1e6), /no memory/);
  near(plan3().run({ x: f3() }).y, f3(), 0);
});

// ---- lifetime ------------------------------------------------------------------------------------------------------
test('freed plans refuse', () => {
  const plan = plan3();
  plan.free();
  plan.free();
  equal(plan.freed, true);
  throws(() => plan.run({ x: f3() }), /the plan was freed/);
});

test('Symbol.dispose frees', () => {
  const plan = plan3();
  const buffer = ambi.buffer('f32', 3);
  for (const thing of [plan, buffer]) thing[Symbol.dispose ?? Symbol.for('Symbol.dispose')]();
  ok(plan.freed && buffer.freed, 'both');
});

test('a freed device refuses, plans on it too', async () => {
  const other = await load();
  const plan = other.plan({ op: 'unary', tensors: { x: [3] } });
  other.free();
  throws(() => plan.run({ x: f3() }), /the device was freed/);
  throws(() => other.plan({ op: 'unary', tensors: { x: [3] } }), /the device was freed/);
  throws(() => other.buffer('f32', 3), /the device was freed/);
  plan.free();
});

test('memory is used again', async () => {
  const other = await load();
  const once = () => {
    const plan = other.plan({ op: 'linear', tensors: { x: [64, 64], w: [64, 64] } });
    const b = other.buffer('f32', 4096);
    plan.run({ x: b, w: b });
    b.free();
    plan.free();
  };
  once();
  const before = other.memoryBytes;
  for (let i = 0; i < 2000; i++) once();
  equal(other.memoryBytes, before);
});

/** Makes things, twenty at a time, and forgets them: the module's memory must not grow by all of them. */
async function forget(make) {
  ok(globalThis.gc, 'run with --expose-gc');
  const other = await load();
  const before = other.memoryBytes;
  for (let round = 0; round < 40; round++) {
    for (let i = 0; i < 20; i++) make(other); // 1 MiB each, 800 in all
    for (let k = 0; k < 3; k++) {
      globalThis.gc();
      await new Promise((r) => setTimeout(r, 1));
    }
  }
  ok(other.memoryBytes < before + 200 * 2 ** 20, `${other.memoryBytes} bytes`);
}

test('buffers are read and written where they are, into what is there', () => {
  const b = ambi.buffer('f32', 4);
  const gone = new Float32Array(2);
  structuredClone(gone, { transfer: [gone.buffer] });
  const tries = [...[-(2 ** 40), -1, 1.5, 1n, Symbol('x'), 'a', Object.create(null)].map((at) => [() => b.read(undefined, at), /expected an element to begin at/]),
    [() => b.read(undefined, 5), /elements 5 to 5 of 4/], [() => b.write(new Float32Array(4), 1), /elements 1 to 5 of 4/],
    [() => b.read(gone), /detached/], [() => b.write(gone), /detached/], [() => ambi.buffer(Object.create(null), 1), /there is no dtype object/]];
  for (const [act, why] of tries) ok(throws(act, why) instanceof AmbiError, `${why}: no AmbiError`);
  equal(b.read(undefined, 4).length, 0);
  b.free();
});

test('buffers that are forgotten are freed', () => forget((other) => other.buffer('f32', 1 << 18)));

test('plans that are forgotten are freed', () => {
  const x = new Float32Array(1 << 17);
  return forget((other) => other.plan({ op: 'unary', tensors: { x: [x.length] } }).run({ x }));
});

test('an ambi that is forgotten is kept by its plans', async () => {
  const plan = (await load()).plan({ op: 'unary', attrs: { function: 'neg' }, tensors: { x: [3] } });
  for (let k = 0; k < 3; k++) {
    globalThis.gc();
    await new Promise((r) => setTimeout(r, 1));
  }
  equal(plan.run({ x: Float32Array.of(1, 2, 3) }).y.join(), '-1,-2,-3');
});

// ---- loading -------------------------------------------------------------------------------------------------------
const read = (name) => readFileSync(new URL(name, root));

test('load takes bytes, a module, a URL', async () => {
  const bytes = read('ambi.wasm');
  const before = bytes.toString('latin1');
  for (const wasm of [bytes, new Uint8Array(bytes).buffer, new WebAssembly.Module(bytes), new URL('ambi.wasm', root)])
    for (const threads of [1, 2]) {
      const other = await load({ wasm, threads });
      equal(other.version, ambi.version);
      equal(other.device.module, 'given');
      const { y } = other.plan({ op: 'unary', attrs: { function: 'neg' }, tensors: { x: [3] } }).run({ x: Float32Array.of(1, 2, 3) });
      equal(y.join(), '-1,-2,-3');
      other.free();
    }
  ok(bytes.toString('latin1') === before, 'the bytes that were given are as they were');
  for (const options of [null, 7, 'cpu']) await rejects(load(options), /load: expected \{device, threads, relaxed, wasm\}/);
  await rejects(load({ thread: 2 }), /load: there is no thread; there are device, threads/);
  await rejects(check([], { relax: false }), /check: there is no relax; there are onLine/);
  throws(() => new Plan(), /plans are made by plan\(\) of what load\(\) gives/);
  await rejects(load({ wasm: 7 }), /expected a URL, bytes or a module/);
  const strange = [bytes.subarray(0, 1000), Uint8Array.of(1), Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0), read('ambi-check.wasm')];
  for (const wasm of strange) ok((await rejects(load({ wasm }), /^wasm: /)) instanceof AmbiError, 'an AmbiError');
  await rejects(load({ wasm: new URL('absent.wasm', root) }), /absent.wasm cannot be read/);
  for (const [wasm, why] of [['http://127.0.0.1:1/x.wasm', /x\.wasm cannot be fetched/], ['http://[', /is no URL/]])
    ok((await rejects(load({ wasm }), why)) instanceof AmbiError, `${wasm}: no AmbiError`);
  await rejects(load({ device: 'gpu' }), /no device is called gpu; this build has cpu, ref/);
});

test('relaxed SIMD where the engine has it, unless it is not wanted', async () => {
  const [given, plain] = [await load(), await load({ relaxed: false })];
  console.log(`module: ${given.device.module}`);
  equal(plain.device.module, 'ambi.wasm');
  const inputs = inputsOf(reference.plan({ op: 'linear', tensors: shapes.linear }));
  const [y, other, wanted] = [given, plain, reference].map((a) => a.plan({ op: 'linear', tensors: shapes.linear }).run(inputs).y);
  near(y, wanted, 1e-5);
  near(other, wanted, 1e-5);
  if (given.device.module === 'ambi.wasm') equal(`${y}`, `${other}`);
  await rejects(load({ relaxed: 1 }), /expected true or false/);
});

test('the modules import their memory and nothing else', () => {
  for (const name of ['ambi.wasm', 'ambi-relaxed.wasm']) {
    const module = WebAssembly.validate(read(name)) ? new WebAssembly.Module(read(name)) : null;
    if (module) equal(WebAssembly.Module.imports(module).map((i) => `${i.module}.${i.name} ${i.kind}`).join(), 'env.memory memory');
  }
});

test("format.c knows every conversion of the library's sentences", () => {
  const src = fileURLToPath(new URL('../../src', import.meta.url));
  const files = readdirSync(src, { recursive: true }).filter((f) => /\.[ch]$/.test(f) && !/cuda|pack/.test(f));
  let seen = 0;
  for (const file of files)
    for (const [text] of readFileSync(join(src, file), 'utf8').matchAll(/(fail|fail_slot|snprintf)\([^;]*?;/gs))
      for (const [conversion] of text.matchAll(/%(?![ ])[^a-zA-Z%"]*(ll|l|z)?[a-zA-Z%]/g)) {
        ok(/^%(\.(\d+|\*))?s$|^%(ll|l|z)?[dux]$|^%[cg%]$/.test(conversion), `${file}: ${conversion}`);
        seen++;
      }
  ok(seen > 80, `${seen} conversions`);
});

test('the modules are small', () => {
  for (const name of ['ambi.wasm', 'ambi-relaxed.wasm']) {
    const bytes = read(name);
    const sizes = `${name}: ${bytes.length} bytes, ${gzipSync(bytes, { level: 9 }).length} with gzip`;
    console.log(`${sizes}, ${brotliCompressSync(bytes).length} with brotli`);
    ok(bytes.length < 400e3 && gzipSync(bytes, { level: 9 }).length < 150e3, sizes);
  }
});

testRelaxed();
await run();
