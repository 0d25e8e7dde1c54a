// ops.js -- one op as a curve: an output as a function of one element of an input, and that element's gradient.

/** Small shapes to show each op with. The first floating input is the one that moves. */
export const shapes = {
  unary: { x: [1] },
  gated: { v: [1], g: [1] },
  add: { a: [1], b: [1] },
  cast: { x: [1], y: { shape: [1], dtype: 'bf16' } },
  copy: { x: [1] },
  rmsnorm: { x: [1, 4], w: [4] },
  layernorm: { x: [1, 4], w: [4], b: [4] },
  linear: { x: [1, 3], w: [2, 3], b: [2] },
  conv1d: { x: [1, 1, 4], w: [1, 4], b: [1] },
  selective_scan: { u: [1, 1, 4], delta: [1, 1, 4], a: [1, 2], b: [1, 2, 4], c: [1, 2, 4], d: [1] },
  ssd: { x: [1, 4, 1, 2], delta: [1, 4, 1], a: [1], b: [1, 4, 1, 2], c: [1, 4, 1, 2] },
  adamw: { p: [1], g: [1], m: [1], v: [1], lr: [], step: [] },
  grad_norm: { g: [3] },
  softmax: { x: [1, 3] },
  cross_entropy: { logits: [1, 3], target: [1] },
  linear_cross_entropy: { x: [1, 2], w: [3, 2], target: [1] },
  embedding: { tokens: [2], w: [3, 2] },
  rope: { x: [1, 2, 4] },
  attention: { q: [1, 1, 2, 2], k: [1, 1, 2, 2], v: [1, 1, 2, 2] },
};

const count = (shape) => shape.reduce((a, n) => a * n, 1);
const toFloats = (ambi, array, dtype) => (dtype === 'f32' ? array : ambi.convert(array, dtype, 'f32'));

/** What an input is where it may not be anything: decays are negative, a mean of squares is positive. */
const fixed = { selective_scan: { a: -0.5 }, ssd: { a: -0.5 }, adamw: { lr: 0.1, v: 0.5 } };

/** Values that are the same every time, neither large nor zero. */
function valuesOf(op, slot, name) {
  const n = count(slot.shape);
  if (slot.dtype === 'i32') return new Int32Array(n);
  if (fixed[op]?.[name] !== undefined) return new Float32Array(n).fill(fixed[op][name]);
  return Float32Array.from({ length: n }, (_, i) => 0.9 * Math.cos(1 + 1.7 * i + name.length) + 0.2);
}

export function inputNames(op) {
  return op.slots.filter((s) => !s.output && !s.integer).map((s) => s.name);
}

/** {forward, backward, measured}: points [x, y]. backward is the op's gradient, measured the slope of its forward. */
export function curve(ambi, op, { attrs = {}, input, ...range } = {}) {
  const tensors = shapes[op.name];
  if (!tensors) return null;
  const moving = input ?? inputNames(op).find((name) => name in tensors);
  const plan = ambi.plan({ op: op.name, tensors, attrs });
  let back = null;
  try {
    if (op.backward) back = ambi.plan({ op: op.name, pass: 'backward', tensors, attrs });
    return trace(ambi, op, plan, back, moving, range);
  } finally {
    plan.free();
    back?.free();
  }
}

function trace(ambi, op, plan, back, moving, { from = -4, to = 4, points = 161 }) {
  const output = op.slots.find((s) => s.output).name;
  const named = (p) => Object.entries(p.slots).filter(([, s]) => s.read);
  const arrays = Object.fromEntries(named(plan).map(([name, slot]) => [name, valuesOf(op.name, slot, name)]));
  const slot = plan.slots[output];
  const at = (x) => {
    arrays[moving][0] = x;
    return toFloats(ambi, plan.run(arrays)[output], slot.dtype)[0];
  };
  const slope = (x) => {
    arrays[moving][0] = x;
    const inputs = { ...arrays };
    for (const [name, s] of named(back)) inputs[name] ??= name === `d${output}` ? one(ambi, s) : plan.run(arrays)[name];
    return toFloats(ambi, back.run(inputs)[`d${moving}`], back.slots[`d${moving}`].dtype)[0];
  };
  const xs = Array.from({ length: points }, (_, i) => from + ((to - from) * i) / (points - 1));
  const result = { moving, output, forward: xs.map((x) => [x, at(x)]), backward: [], measured: [] };
  const differentiable = back && `d${moving}` in back.slots;
  if (differentiable) result.backward = xs.map((x) => [x, slope(x)]);
  const e = 1e-2;
  if (differentiable && slot.dtype === 'f32')
    result.measured = xs.filter((_, i) => i % 8 === 4).map((x) => [x, (at(x + e) - at(x - e)) / (2 * e)]);
  return result;
}

/** The gradient that asks for element 0 of an output, and nothing else. */
function one(ambi, slot) {
  const d = new Float32Array(count(slot.shape));
  d[0] = 1;
  return slot.dtype === 'f32' ? d : ambi.convert(d, 'f32', slot.dtype);
}
