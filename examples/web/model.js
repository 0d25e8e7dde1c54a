// model.js -- a small Mamba over ambi's plans: forward, backward and AdamW, all in the module's memory.
//
//   h = embedding(tokens)
//   for each layer   h = h + out(scan(conv(x), ..) silu(z))      where (x, z) = in(rmsnorm(h))
//   loss = cross entropy of head(rmsnorm(h)) against the next token
//
// Tensors are (B L, channels) in memory; conv1d and selective_scan see them as (B, channels, L) through strides, so that
// nothing is ever transposed, split or joined.

/** Numbers with mean 0 and variance 1 that are the same every time. */
function normals(seed) {
  let s = seed >>> 0;
  const uniform = () => {
    s = (Math.imul(s, 1664525) + 1013904223) >>> 0;
    return (s + 0.5) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}

export const defaults = { layers: 2, width: 48, inner: 96, states: 8, rank: 4, taps: 4, seed: 1 };

const fill = (n, f) => Float32Array.from({ length: n }, (_, i) => f(i));

/** Parameters, with their gradients and moments: {name: {value, grad, m, v, length}}. */
export function makeParameters(ambi, vocabulary, config) {
  const { layers, width: D, inner: E, states: N, rank: R, taps: W, seed } = config;
  const normal = normals(seed);
  const all = {};
  const add = (name, values) => {
    const zero = () => ambi.buffer('f32', values.length);
    all[name] = { value: ambi.buffer('f32', values), grad: zero(), m: zero(), v: zero(), length: values.length };
  };
  const matrix = (name, rows, columns) => add(name, fill(rows * columns, () => normal() / Math.sqrt(columns)));
  add('embedding', fill(vocabulary * D, () => 0.5 * normal()));
  for (let i = 0; i < layers; i++) {
    add(`${i}.norm`, fill(D, () => 1));
    matrix(`${i}.in`, 2 * E, D);
    matrix(`${i}.conv`, E, W);
    add(`${i}.conv_bias`, fill(E, () => 0));
    matrix(`${i}.x`, R + 2 * N, E);
    matrix(`${i}.dt`, E, R);
    add(`${i}.dt_bias`, fill(E, () => Math.log(Math.expm1(0.02))));
    add(`${i}.a_log`, fill(E * N, (k) => Math.log((k % N) + 1)));
    add(`${i}.d`, fill(E, () => 1));
    matrix(`${i}.out`, D, E);
  }
  add('norm', fill(D, () => 1));
  matrix('head', vocabulary, D);
  return all;
}

/** The forward and backward plan of one op, over buffers. `pairs` says which buffer each slot has. */
class Step {
  constructor(model, description, buffers, { grads = {}, accumulate = [], forward = true } = {}) {
    this.forwardPlan = forward ? model.ambi.plan(description) : null;
    const back = model.training && { ...description, pass: 'backward', grads, accumulate, want: description.want ?? [] };
    if (back && back.want.length === 0) delete back.want;
    this.backwardPlan = back ? model.ambi.plan(back) : null;
    this.buffers = buffers;
  }
  forward() {
    this.forwardPlan?.run(this.buffers);
  }
  backward() {
    this.backwardPlan?.run(this.buffers);
  }
  free() {
    this.forwardPlan?.free();
    this.backwardPlan?.free();
  }
}

export class Model {
  /** For `batch` texts of `length` tokens. Without training there are no gradients, and no loss. */
  constructor(ambi, parameters, vocabulary, { batch, length, training = true, ...config }) {
    Object.assign(this, { ambi, parameters, vocabulary, batch, length, training, config: { ...defaults, ...config } });
    this.rows = batch * length;
    this.steps = [];
    this.made = [];
    this.tokens = this.make(this.rows, 'i32');
    this.target = this.make(this.rows, 'i32');
    const { width: D, layers } = this.config;
    let h = this.pair(this.rows * D);
    this.op('embedding', { tokens: { shape: [this.rows] }, w: [vocabulary, D] },
      { tokens: this.tokens, y: h.value, dy: h.grad, ...this.weight('w', 'embedding') });
    for (let i = 0; i < layers; i++) h = this.layer(i, h);
    this.headOf(h);
  }

  make(n, dtype = 'f32') {
    const buffer = this.ambi.buffer(dtype, n);
    this.made.push(buffer);
    return buffer;
  }
  /** A tensor on the way, and its gradient. */
  pair(n) {
    return { value: this.make(n), grad: this.training ? this.make(n) : undefined };
  }
  /** A parameter and its gradient as slots: {w: .., dw: ..}. */
  weight(slot, name) {
    const { value, grad } = this.parameters[name];
    return { [slot]: value, [`d${slot}`]: grad };
  }
  op(op, tensors, buffers, { attrs, ...how } = {}) {
    this.steps.push(new Step(this, { op, tensors, attrs }, buffers, how));
  }

  /** y = x w', rows of x `stride` apart and beginning at `offset`. */
  linear(x, y, name, [outputs, inputs], { stride = inputs, offset = 0, accumulate = [] } = {}) {
    const view = { shape: [this.rows, inputs], stride: [stride, 1], offset };
    this.op('linear', { x: view, w: [outputs, inputs] },
      { x: x.value, dx: x.grad, y: y.value, dy: y.grad, ...this.weight('w', name) },
      { grads: { x: view }, accumulate });
  }

  rmsnorm(x, y, name, accumulate = []) {
    const D = this.config.width;
    this.op('rmsnorm', { x: [this.rows, D], w: [D] },
      { x: x.value, dx: x.grad, y: y.value, dy: y.grad, ...this.weight('w', name) }, { accumulate });
  }

  /** (B, channels, L) of rows that are `pitch` wide, from channel `offset` on. */
  view(channels, pitch, offset = 0) {
    return { shape: [this.batch, channels, this.length], stride: [this.length * pitch, 1, pitch], offset };
  }

  layer(i, h) {
    const { width: D, inner: E, states: N, rank: R, taps: W } = this.config;
    const P = R + 2 * N;
    const [normed, xz, u, p, delta, y, out] = [D, 2 * E, E, P, E, E, D].map((n) => this.pair(this.rows * n));
    this.rmsnorm(h, normed, `${i}.norm`, ['x']); // after the residual's part, which is first in backward
    this.linear(normed, xz, `${i}.in`, [2 * E, D]);
    this.op('conv1d', { x: this.view(E, 2 * E), w: [E, W], b: [E], y: this.view(E, E) },
      { x: xz.value, dx: xz.grad, y: u.value, dy: u.grad, ...this.weight('w', `${i}.conv`), ...this.weight('b', `${i}.conv_bias`) },
      { attrs: { silu: true }, grads: { x: this.view(E, 2 * E), y: this.view(E, E) } });
    // u's gradient comes from two places: the scan, which runs last and is first in backward, and from here.
    this.linear(u, p, `${i}.x`, [P, E], { accumulate: ['x'] });
    this.linear(p, delta, `${i}.dt`, [E, R], { stride: P });
    this.scan(i, { u, delta, p, xz, y }, E, N, R, P);
    this.linear(y, out, `${i}.out`, [D, E]);
    return this.residual(h, out);
  }

  scan(i, { u, delta, p, xz, y }, E, N, R, P) {
    const tensors = { u: this.view(E, E), delta: this.view(E, E), a: [E, N], b: this.view(N, P, R), c: this.view(N, P, R + N),
      d: [E], z: this.view(E, 2 * E, E), delta_bias: [E], y: this.view(E, E) };
    const { u: gu, delta: gdelta, b, c, z, y: gy } = tensors;
    this.op('selective_scan', tensors, {
      u: u.value, du: u.grad, delta: delta.value, ddelta: delta.grad, b: p.value, db: p.grad, c: p.value, dc: p.grad,
      z: xz.value, dz: xz.grad, y: y.value, dy: y.grad,
      ...this.weight('a', `${i}.a_log`), ...this.weight('d', `${i}.d`), ...this.weight('delta_bias', `${i}.dt_bias`),
    }, { attrs: { softplus: true, a_log: true }, grads: { u: gu, delta: gdelta, b, c, z, y: gy } });
  }

  /** h + out: both get the gradient of the sum, and h then that of its norm too. */
  residual(h, out) {
    const sum = this.pair(h.value.length);
    const shape = [sum.value.length];
    this.op('add', { a: shape, b: shape }, { a: h.value, da: h.grad, b: out.value, db: out.grad, y: sum.value, dy: sum.grad });
    return sum;
  }

  headOf(h) {
    const { width: D } = this.config;
    const normed = this.pair(this.rows * D);
    this.rmsnorm(h, normed, 'norm');
    if (!this.training) {
      this.logits = this.pair(this.rows * this.vocabulary);
      this.linear(normed, this.logits, 'head', [this.vocabulary, D]);
      return;
    }
    this.loss = this.pair(1);
    this.loss.grad.write(Float32Array.of(1));
    const shape = { x: [this.rows, D], w: [this.vocabulary, D], target: { shape: [this.rows] } };
    this.op('linear_cross_entropy', shape, { x: normed.value, dx: normed.grad, target: this.target, loss: this.loss.value,
      dloss: this.loss.grad, ...this.weight('w', 'head') });
  }

  forward(tokens) {
    this.tokens.write(tokens);
    for (const step of this.steps) step.forward();
  }

  /** One step's gradients, in the parameters; the loss. */
  gradients(tokens, targets) {
    this.target.write(targets);
    this.forward(tokens);
    for (const step of [...this.steps].reverse()) step.backward();
    return this.loss.value.read()[0];
  }

  free() {
    for (const thing of [...this.steps, ...this.made]) thing.free();
  }
}

/** AdamW over all parameters, with the gradient's norm held below `most`. */
export class Optimizer {
  constructor(ambi, parameters, { rate = 3e-3, most = 1, decay = 0.01 } = {}) {
    this.count = 0;
    this.rate = ambi.buffer('f32', Float32Array.of(rate));
    this.step = ambi.buffer('i32', 1);
    this.norm = ambi.buffer('f32', 1);
    this.scale = ambi.buffer('f32', 1);
    const sums = [ambi.buffer('f64', 1), ambi.buffer('f64', 1)];
    this.norms = [];
    this.updates = [];
    for (const { value, grad, m, v, length } of Object.values(parameters)) {
      const [partial, sumsq] = this.norms.length % 2 ? sums : [...sums].reverse();
      this.norms.push(this.normOf(ambi, { g: grad, partial, sumsq }, length, this.norms.length === 0, most));
      const plan = ambi.plan({ op: 'adamw', tensors: { p: [length], g: [length], m: [length], v: [length], lr: [], step: [],
        scale: [] }, attrs: { weight_decay: decay, beta2: 0.99 } });
      const buffers = { p: value, g: grad, m, v, lr: this.rate, step: this.step, scale: this.scale,
        p_out: value, m_out: m, v_out: v };
      this.updates.push(() => plan.run(buffers));
    }
  }

  /** Each parameter's sum of squares joins those before it; the last call's norm and scale are of all. */
  normOf(ambi, buffers, length, first, most) {
    const tensors = { g: [length], ...(first ? {} : { partial: { shape: [], dtype: 'f64' } }) };
    const plan = ambi.plan({ op: 'grad_norm', tensors, want: ['sumsq', 'scale'], attrs: { max_norm: most } });
    return () => plan.run({ ...buffers, norm: this.norm, scale: this.scale });
  }

  update() {
    for (const norm of this.norms) norm();
    this.step.write(Int32Array.of(this.count++));
    for (const update of this.updates) update();
    return this.norm.read()[0];
  }
}
