// describe.js -- a plan's description as an ambi_op in the module's memory. All is checked by name, by reflection.
import { dtypeOf } from './dtypes.js';
import { checkKeys, fail, shown } from './wasm.js';

const own = (object, key) => Object.hasOwn(object, key);
const keys = ['op', 'pass', 'dtype', 'tensors', 'grads', 'want', 'accumulate', 'attrs'];

/** An object's entries; a sentence if it is none. Absent is empty. */
function entries(object, where) {
  if (object === undefined || object === null) return [];
  if (typeof object !== 'object' || Array.isArray(object)) fail(`${where}: expected an object of names and values`);
  return Object.entries(object);
}

function findSlot(op, name, where) {
  const index = op.slots.findIndex((s) => s.name === name);
  if (index >= 0) return index;
  return fail(`${where}: ${op.name} has no slot ${name}; it has ${op.slots.map((s) => s.name).join(', ')}`);
}

function checkNumbers(list, where, least) {
  if (!Array.isArray(list)) fail(`${where}: expected an array of whole numbers`);
  for (const n of list)
    if (!Number.isSafeInteger(n) || n < least) fail(`${where}: expected whole numbers, got ${shown(n)}`);
  return list;
}

function denseStrides(shape) {
  const stride = new Array(shape.length);
  for (let k = shape.length - 1, n = 1; k >= 0; k--) {
    stride[k] = n;
    n *= Math.max(shape[k], 1);
  }
  return stride;
}

/** [4, 8] or {shape, dtype, stride, offset}: a tensor of `slot`, with what was left out filled in. */
function readTensor(op, slot, given, dtype, most, where) {
  const whole = Array.isArray(given) ? { shape: given } : given;
  if (typeof whole !== 'object' || whole === null)
    fail(`${where}: expected a shape, or {shape, dtype, stride, offset}`);
  checkKeys(whole, ['shape', 'dtype', 'stride', 'offset'], where);
  const shape = checkNumbers(whole.shape, `${where}: shape`, 0);
  const stride = checkNumbers(whole.stride ?? denseStrides(shape), `${where}: stride`, -Infinity);
  if (shape.length > most) fail(`${where}: expected at most ${most} axes, got ${shape.length}`);
  if (stride.length !== shape.length) fail(`${where}: ${shape.length} axes, but ${stride.length} strides`);
  const name = whole.dtype ?? (op.slots[slot].integer ? 'i32' : dtype);
  const [offset] = checkNumbers([whole.offset ?? 0], `${where}: offset`, 0);
  return { dtype: dtypeOf(name, where), shape, stride, offset };
}

function writeTensor(w, at, t) {
  const L = w.layout;
  w.view.setInt32(at + L['ambi_tensor.dtype'], t.dtype.code, true);
  w.view.setInt32(at + L['ambi_tensor.ndim'], t.shape.length, true);
  t.shape.forEach((n, k) => {
    w.view.setBigInt64(at + L['ambi_tensor.shape'] + 8 * k, BigInt(n), true);
    w.view.setBigInt64(at + L['ambi_tensor.stride'] + 8 * k, BigInt(t.stride[k]), true);
  });
}

function slotBits(op, names, where) {
  if (names === undefined) return 0;
  if (!Array.isArray(names)) fail(`${where}: expected an array of slot names`);
  return names.reduce((bits, name) => bits | (1 << findSlot(op, name, where)), 0) >>> 0;
}

/** In C a zero means the default, so no other zero can be said. */
function refuseZero(attr, number, where) {
  const zero = { enum: attr.values?.[0], boolean: false }[attr.type] ?? 0;
  if (number === 0 && attr.default !== zero) fail(`${where}: 0 means the default, ${attr.default}; leave it out`);
}

/** Where both a and b of unary are 0 they are the function's own. A lone a counts beside any b: 1 is hardtanh's own. */
function countZeros(op, list) {
  const { a, b } = Object.fromEntries(list);
  if (op.name !== 'unary' || (a !== 0 && b !== 0) || a || b) return list;
  if (b === undefined) return [...list, ['b', 1]];
  return fail('unary: a, b: where both are 0 they are those of the function itself; leave both out');
}

function writeAttr(w, at, op, name, value) {
  const attr = op.attrs.find((a) => a.name === name);
  const where = `${op.name}: ${name}`;
  if (!attr) fail(`${where}: no such attribute; there are ${op.attrs.map((a) => a.name).join(', ') || 'none'}`);
  let number = value;
  if (attr.type === 'enum') number = attr.values.indexOf(value);
  if (attr.type === 'boolean') number = typeof value === 'boolean' ? Number(value) : NaN;
  if (attr.type === 'enum' && number < 0)
    fail(`${where}: expected one of ${attr.values.join(', ')}, got ${shown(value)}`);
  if (typeof number !== 'number' || Number.isNaN(number) || (attr.type === 'integer' && number !== (number | 0)))
    fail(`${where}: expected ${attr.type === 'integer' ? 'an' : 'a'} ${attr.type}, got ${shown(value)}`);
  refuseZero(attr, number, where);
  if (attr.type === 'number') w.view.setFloat64(at + attr.offset, number, true);
  else w.view.setInt32(at + attr.offset, number, true);
}

function findOp(ops, d) {
  checkKeys(d, keys, 'plan');
  if (typeof d.op !== 'string' || !own(ops, d.op))
    fail(`plan: there is no op ${shown(d.op)}; there are ${Object.keys(ops).join(', ')}`);
  if (d.pass !== undefined && d.pass !== 'forward' && d.pass !== 'backward')
    fail(`${d.op}: pass: expected 'forward' or 'backward', got ${shown(d.pass)}`);
  return ops[d.op];
}

/** Fills the zeroed ambi_op at `at`. Gives the op and, by slot number, where each tensor begins in its array. */
export function writeDescription(w, ops, d, at) {
  const L = w.layout;
  const op = findOp(ops, d);
  const offsets = {};
  dtypeOf(d.dtype ?? 'f32', `${op.name}: dtype`);
  const put = (list, field, first, where) => {
    for (const [name, given] of list) {
      const slot = findSlot(op, name, where);
      const t = readTensor(op, slot, given, d.dtype ?? 'f32', L.AMBI_MAX_DIMS, `${op.name}: ${where}: ${name}`);
      writeTensor(w, at + L[field] + slot * L.ambi_tensor, t);
      offsets[first + slot] = t.offset;
    }
  };
  w.view.setInt32(at + L['ambi_op.kind'], op.kind, true);
  w.view.setInt32(at + L['ambi_op.pass'], d.pass === 'backward' ? 1 : 0, true);
  w.view.setUint32(at + L['ambi_op.want'], slotBits(op, d.want, 'want'), true);
  w.view.setUint32(at + L['ambi_op.accumulate'], slotBits(op, d.accumulate, 'accumulate'), true);
  put(entries(d.tensors, 'tensors'), 'ambi_op.t', 0, 'tensors');
  put(entries(d.grads, 'grads'), 'ambi_op.grad', L.AMBI_MAX_PRIMALS, 'grads');
  for (const [name, value] of countZeros(op, entries(d.attrs, 'attrs'))) writeAttr(w, at, op, name, value);
  return { op, offsets };
}
