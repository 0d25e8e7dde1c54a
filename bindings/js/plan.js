// plan.js -- a plan: made once from a description, run many times over typed arrays.
import { Handle, Room, Staged } from './buffers.js';
import { writeDescription } from './describe.js';
import { dtypeOfCode, dtypes } from './dtypes.js';
import { fail, Wasm } from './wasm.js';

/** A slot that a run looks at: what is in it, and which elements of its array: [first, end). */
function readSlot(w, plan, op, index, bits, offset, accumulates) {
  const L = w.layout;
  const primals = L.AMBI_MAX_PRIMALS;
  return w.scratch(L.ambi_tensor, (at) => {
    w.call('ambi_plan_tensor', at, plan, index);
    const ndim = w.u32(at + L['ambi_tensor.ndim']);
    const number = (field, k) => Number(w.view.getBigInt64(at + L[field] + 8 * k, true));
    const list = (field) => Array.from({ length: ndim }, (_, k) => number(field, k));
    const slot = { index, dtype: dtypeOfCode(w.u32(at + L['ambi_tensor.dtype'])) };
    slot.name = index < primals ? op.slots[index].name : `d${op.slots[index - primals].name}`;
    slot.shape = list('ambi_tensor.shape');
    slot.stride = list('ambi_tensor.stride');
    slot.read = (bits.reads & (1 << index)) !== 0;
    slot.written = (bits.writes & (1 << index)) !== 0;
    return measure(slot, offset, accumulates);
  });
}

function measure(slot, offset, accumulates) {
  const empty = slot.shape.includes(0);
  const reach = slot.shape.map((n, k) => (empty ? 0 : (n - 1) * slot.stride[k]));
  const low = reach.reduce((sum, r) => sum + Math.min(r, 0), 0);
  const high = reach.reduce((sum, r) => sum + Math.max(r, 0), 0);
  const elements = slot.shape.reduce((product, n, k) => product * (slot.stride[k] === 0 ? Math.min(n, 1) : n), 1);
  if (offset + low < 0)
    fail(`${slot.name}: its strides lead to element ${offset + low}; an offset of ${-low} would do`);
  slot.offset = offset;
  slot.accumulates = accumulates;
  slot.first = empty ? 0 : offset + low;
  slot.end = empty ? 0 : offset + high + 1;
  // Gaps between what is written stay as they are, so they travel too.
  slot.copyIn = slot.read || accumulates || high - low + 1 !== elements;
  return Object.freeze(slot);
}

function readInfo(w, plan) {
  const L = w.layout;
  return w.scratch(L.ambi_plan_info, (at) => {
    w.attempt('ambi_plan_get_info', plan, at);
    const field = (key) => at + L[`ambi_plan_info.${key}`];
    const u64 = (key) => Number(w.view.getBigUint64(field(key), true));
    const bits = { reads: w.u32(field('reads')), writes: w.u32(field('writes')) };
    const info = { kernel: w.string(w.u32(field('kernel'))), workspace: u64('workspace') };
    Object.assign(info, { flops: u64('flops'), bytes: u64('bytes') });
    info.accumulator = dtypeOfCode(w.u32(field('accumulator')));
    info.deterministic = w.u32(field('deterministic')) !== 0;
    return { bits, info: Object.freeze(info) };
  });
}

/** Outside of Plan: a function made in its constructor would keep the plan alive. */
const destroying = (kept, room, device) => (w) => {
  room.free();
  w.free(kept.workspace);
  w.free(kept.bufs);
  if (!w.lost) w.call('ambi_plan_destroy', kept.plan); // a net has nobody to throw to
  device.drop();
};

export class Plan extends Handle {
  #ambi; // kept as long as its plans are
  #w;
  #device;
  #plan;
  #slots;
  #known;
  #room;
  #workspace = 0;
  #bufs = 0;

  constructor(ambi, w, device, description) {
    super();
    if (!(w instanceof Wasm)) fail('plans are made by plan() of what load() gives');
    const L = w.layout;
    this.#ambi = ambi;
    this.#w = w;
    this.#device = device;
    const { op, offsets } = w.scratch(L.ambi_op + 16, (at) => {
      const described = writeDescription(w, this.#ambi.ops, description, at);
      w.attempt('ambi_plan_create', device.address(), at, at + L.ambi_op);
      this.#plan = w.u32(at + L.ambi_op);
      return described;
    });
    this.#room = new Room(w);
    const kept = { plan: this.#plan, workspace: 0, bufs: 0 };
    Handle.own(this, w, destroying(kept, this.#room, device));
    device.hold();
    try {
      this.#complete(op, offsets, description, kept);
    } catch (e) {
      this.free();
      throw e;
    }
  }

  #complete(op, offsets, description, kept) {
    const w = this.#w;
    const { bits, info } = readInfo(w, this.#plan);
    this.op = op.name;
    this.pass = description.pass ?? 'forward';
    this.info = info;
    this.#slots = [];
    for (let i = 0; i < 2 * w.layout.AMBI_MAX_PRIMALS; i++) {
      if (!((bits.reads | bits.writes) & (1 << i))) continue;
      const primal = op.slots[i % w.layout.AMBI_MAX_PRIMALS].name;
      const adds = i >= w.layout.AMBI_MAX_PRIMALS && (description.accumulate ?? []).includes(primal);
      const offset = offsets[i] ?? 0;
      this.#slots.push(readSlot(w, this.#plan, op, i, bits, offset, adds));
    }
    this.#known = new Set(op.slots.flatMap((s) => [s.name, `d${s.name}`])); // those a plan has no use for are let be
    this.#workspace = kept.workspace = info.workspace ? w.alloc(info.workspace, 256) : 0;
    this.#bufs = kept.bufs = w.alloc(2 * w.layout.AMBI_MAX_PRIMALS * w.layout.ambi_buf + w.layout.ambi_buf);
  }

  /** What a run reads and writes, by name: {x: {dtype, shape, stride, offset, read, written}, ..}. */
  get slots() {
    const pick = ({ dtype, shape, stride, offset, read, written }) => ({ dtype, shape, stride, offset, read, written });
    return Object.fromEntries(this.#slots.map((s) => [s.name, pick(s)]));
  }

  /** Runs over typed arrays or buffers, by slot name. Outputs that are not given are made. Returns all outputs. */
  run(given = {}) {
    const values = this.#values(given); // what is given may run code of its own: no more of that from here on
    if (this.freed) fail(`${this.op}: the plan was freed`);
    this.#device.address(); // throws when the device was freed
    const staged = new Staged(this.#w, values, this.#room);
    this.#launch(staged, values);
    staged.copyOut();
    const written = [...values].filter(([slot]) => slot.written);
    return Object.fromEntries(written.map(([slot, value]) => [slot.name, value]));
  }

  #values(given) {
    if (typeof given !== 'object' || given === null) fail(`${this.op}: run: expected an object of arrays by slot`);
    const values = new Map();
    for (const name of Object.keys(given))
      if (!this.#known.has(name))
        fail(`${this.op}: there is no slot ${name}; this plan has ${Object.keys(this.slots)}`);
    for (const slot of this.#slots) {
      let value = given[slot.name];
      if (value === undefined && slot.read) fail(`${this.op}: ${slot.name}: an array of ${slot.dtype} is missing`);
      if (value === undefined && slot.accumulates) fail(`${this.op}: ${slot.name}: what to add to is missing`);
      if (value === undefined) value = new dtypes[slot.dtype].Array(slot.end);
      values.set(slot, value);
    }
    return values;
  }

  #launch(staged, values) {
    const w = this.#w;
    const L = w.layout;
    const n = 2 * L.AMBI_MAX_PRIMALS;
    const put = (i, data) => {
      w.view.setUint32(this.#bufs + i * L.ambi_buf + L['ambi_buf.data'], data, true);
      w.view.setBigUint64(this.#bufs + i * L.ambi_buf + L['ambi_buf.offset'], 0n, true);
    };
    for (let i = 0; i < n; i++) put(i, 0);
    for (const slot of values.keys()) put(slot.index, staged.address(slot));
    put(n, this.#workspace);
    w.attempt('ambi_run', this.#plan, 0, this.#bufs, n, this.#bufs + n * L.ambi_buf);
  }
}
