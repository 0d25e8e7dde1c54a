// schema.mjs -- as much of JSON Schema as docs/kernels.schema.json uses: what is wrong with a value, or ''. A word of the
// schema that is not known here is an error, not a pass.
const typeOf = (v) => (v === null ? 'null' : Array.isArray(v) ? 'array' : typeof v);
const isA = (v, type) => (type === 'integer' ? Number.isInteger(v) : typeOf(v) === type);
const first = (list) => list.find(Boolean) ?? '';
const isObject = (v) => typeOf(v) === 'object';

const words = {
  $schema: () => '', $comment: () => '', $defs: () => '', title: () => '', default: () => '',
  type: (want, v) => (isA(v, want) ? '' : `expected ${want}`),
  enum: (list, v) => (list.includes(v) ? '' : `none of ${list}`),
  pattern: (p, v) => (typeof v !== 'string' || new RegExp(p, 'u').test(v) ? '' : `does not match ${p}`),
  maxLength: (n, v) => (typeof v !== 'string' || [...v].length <= n ? '' : `longer than ${n}`),
  maxItems: (n, v) => (!Array.isArray(v) || v.length <= n ? '' : `more than ${n}`),
  minimum: (n, v) => (typeof v !== 'number' || v >= n ? '' : `below ${n}`),
  maximum: (n, v) => (typeof v !== 'number' || v <= n ? '' : `above ${n}`),
  exclusiveMinimum: (n, v) => (typeof v !== 'number' || v > n ? '' : `not above ${n}`),
  exclusiveMaximum: (n, v) => (typeof v !== 'number' || v < n ? '' : `not below ${n}`),
  required: (names, v) => (isObject(v) ? first(names.map((n) => (Object.hasOwn(v, n) ? '' : `${n} is missing`))) : ''),
  properties: (fields, v, root) => (isObject(v)
    ? first(Object.keys(fields).map((n) => (Object.hasOwn(v, n) ? within(n, mistake(v[n], fields[n], root)) : ''))) : ''),
  additionalProperties: (s, v, root) => (isObject(v)
    ? first(Object.keys(v).map((n) => within(n, mistake(v[n], s, root)))) : ''), // only used where `properties` is not
  items: (s, v, root) => (Array.isArray(v) ? first(v.map((x, i) => within(i, mistake(x, s, root)))) : ''),
  anyOf: (list, v, root) => (list.some((s) => mistake(v, s, root) === '') ? '' : 'none of its kinds'),
  $ref: (to, v, root) => mistake(v, to.slice(2).split('/').reduce((s, n) => s[n], root), root),
};
const within = (name, why) => (why ? `${name}: ${why}` : '');

export function mistake(value, schema, root = schema) {
  return first(Object.entries(schema).map(([word, what]) => {
    if (!words[word]) throw new Error(`the schema says ${word}, which this reader does not know`);
    return words[word](what, value, root);
  }));
}
