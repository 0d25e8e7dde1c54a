// reflect.js -- what the library says of its ops: names, formulas, slots and attributes. No op is known here by name.
const flags = { output: 1, optional: 2, noGrad: 4, saved: 8, integer: 16, anyDtype: 32 };
const attrTypes = ['number', 'integer', 'boolean', 'enum'];

function readSlot(w, at) {
  const L = w.layout;
  const slot = {};
  for (const key of ['name', 'shape', 'doc']) slot[key] = w.string(w.u32(at + L[`ambi_slot_info.${key}`]));
  const bits = w.u32(at + L['ambi_slot_info.flags']);
  for (const [key, bit] of Object.entries(flags)) slot[key] = (bits & bit) !== 0;
  return Object.freeze(slot);
}

function readNames(w, at) {
  const names = [];
  for (; at && w.u32(at); at += 4) names.push(w.string(w.u32(at)));
  return Object.freeze(names);
}

function readAttr(w, at) {
  const L = w.layout;
  const field = (key) => at + L[`ambi_attr_info.${key}`];
  const attr = { name: w.string(w.u32(field('name'))), doc: w.string(w.u32(field('doc'))) };
  attr.type = attrTypes[w.u32(field('type'))];
  attr.offset = w.u32(field('offset'));
  attr.default = w.view.getFloat64(field('def'), true);
  attr.min = w.view.getFloat64(field('min'), true);
  attr.max = w.view.getFloat64(field('max'), true);
  if (attr.type === 'enum') {
    attr.values = readNames(w, w.u32(field('names')));
    attr.default = attr.values[attr.default];
  } else if (attr.type === 'boolean') {
    attr.default = attr.default !== 0;
  }
  return Object.freeze(attr);
}

/** Pairs of slot names that may be one array: [output, input]. */
function readPairs(w, at, slots) {
  const pairs = [];
  const name = (s) => (s < slots.length ? slots[s].name : `d${slots[s - w.layout.AMBI_MAX_PRIMALS].name}`);
  for (; at && w.view.getInt8(at) >= 0; at += 2) pairs.push([w.view.getInt8(at), w.view.getInt8(at + 1)].map(name));
  return pairs;
}

function readOp(w, kind, at) {
  const L = w.layout;
  const field = (key) => at + L[`ambi_op_info.${key}`];
  const op = { kind };
  for (const key of ['name', 'formula', 'gradient', 'doc']) op[key] = w.string(w.u32(field(key))) ?? '';
  const table = (count, list, size, read) =>
    Object.freeze(Array.from({ length: w.u32(field(count)) }, (_, i) => read(w, w.u32(field(list)) + i * L[size])));
  op.slots = table('slots', 'slot', 'ambi_slot_info', readSlot);
  op.attrs = table('attrs', 'attr', 'ambi_attr_info', readAttr);
  op.backward = w.u32(field('backward')) !== 0;
  op.inPlace = readPairs(w, w.u32(field('in_place')), op.slots);
  return Object.freeze(op);
}

/** {rmsnorm: {name, formula, gradient, doc, slots, attrs, backward, inPlace}, ..} */
export function readOps(w) {
  const ops = {};
  for (let kind = 1; kind < w.layout.AMBI_KINDS; kind++) {
    const at = w.call('ambi_op_get_info', kind);
    if (!at) continue;
    const op = readOp(w, kind, at);
    ops[op.name] = op;
  }
  return Object.freeze(ops);
}
