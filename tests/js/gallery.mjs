// gallery.mjs -- packs that mean harm, and what must become of each: [name, status, pattern, seconds]. Runs in node and in a
// browser. After each one a good kernel must still give the right answer.
import { goodBody, goodTest, leb, makeKey, makePack, module, num, sha256, sign, textPack } from './forge.mjs';

const loop = [0x03, 0x40, 0x0c, 0, 0x0b];
const again = [...num(-1), 0x47, 0x0d, 0, 0x0b]; // .. != -1: once more

const repeat = (count, ...bytes) => Array.from({ length: count }, () => bytes).flat();
/** So many values on the stack, none of them known to the compiler. */
const loads = (count) => Array.from({ length: count }, (_, i) => [0x20, 0, 0x28, 2, ...leb(4 * i)]).flat();
const unread = /its code cannot be read/; // instructions that no kernel needs

/** Modules that are signed as they should be, by someone who is trusted and should not be. */
export const modules = [
  ['endless loop', [...loop, ...num(0)], {}, {}, 'timeout', /deadline of 100 ms/],
  ['load out of bounds', [...num(-16), 0x28, 2, 0], {}, {}, 'device lost', /out of bounds/],
  ['store out of bounds', [...num(0x7ffffff0), ...num(1), 0x36, 2, 0, ...num(0)], {}, {}, 'device lost', /out of bounds/],
  ['copy out of bounds', [...num(0), ...num(0), ...num(0x7fffffff), 0xfc, 0x0a, 0, 0, ...num(0)], {}, {}, 'device lost', /out of bounds/],
  ['memory bomb', [0x03, 0x40, ...num(64), 0x40, 0, ...again, ...num(4)], {}, {}, 'no memory', /out of memory/],
  ['memory of 4 GiB', num(0), { memory: [65536] }, {}, 'denied', /memory begins with 65536, and 256 are allowed/],
  ['memory past its limit', num(0), { memory: [3] }, { resource_limits: { max_memory_pages: 2 } }, 'denied', /memory begins with 3/],
  ['table bomb', [0x03, 0x40, 0xd0, 0x70, ...num(100), 0xfc, 0x0f, 0, ...again, ...num(4)], { tables: [[1]] }, {}, 'no memory', /out of memory/],
  ['table of 10 million', num(0), { tables: [[1e7]] }, {}, 'denied', /table begins with 10000000/],
  ['nine tables', num(0), { tables: Array(9).fill([1]) }, {}, 'denied', /more than 8 tables/],
  ['deep recursion', [...num(0), 0x10, 4], { functions: [[0, [0x20, 0, 0x10, 4, ...num(1), 0x6a]]] }, {}, 'device lost', /stack/],
  ['import of a function', num(0), { imports: [{ from: 'env', name: 'system', kind: 0, type: [0] }] }, {}, 'denied', /asks for env\.system/],
  ['import of memory', num(0), { imports: [{ from: 'env', name: 'memory', kind: 2, type: [0, 1] }], memory: null }, {}, 'denied', /asks for env\.memory/],
  ['start that loops', num(0), { functions: [[3, loop]], start: 4 }, { resource_limits: { max_epoch_ticks: 100 } }, 'timeout', /deadline/],
  ['start that traps', num(0), { functions: [[3, [0]]], start: 4 }, {}, 'device lost', /unreachable/],
  ['unreachable', [0], {}, {}, 'device lost', /unreachable/],
  ['division by zero', [...num(1), ...num(0), 0x6e], {}, {}, 'device lost', /divi/],
  ['a code that does not exist', num(99), {}, {}, 'device lost', /returned 99, which is none/],
  ['no memory', num(0), { memory: null, drop: ['memory'] }, {}, 'denied', /no memory/],
  ['a function called memory', num(0), { exports: { memory: [0, 0] } }, {}, 'denied', /no memory/],
  ['an entry of another type', num(0), { forwardType: 4 }, {}, 'denied', /no kernel_forward, or one of another type/],
  ['an entry that is not there', num(0), {}, { entry_point: 'kernel_other' }, 'denied', /no kernel_other/],
  ['no kernel_cleanup', num(0), { drop: ['kernel_cleanup'] }, {}, 'denied', /no kernel_cleanup/],
  ['relaxed SIMD', [0xfd, 12, ...Array(16).fill(0), 0xfd, 12, ...Array(16).fill(0), 0xfd, 0x80, 2, 0x1a, ...num(0)], {}, {}, 'compile failed', unread],
  ['a tail call', [0x20, 0, 0x12, 0], {}, {}, 'compile failed', unread],
  ['an atomic fence', [0xfe, 3, 0, ...num(0)], {}, {}, 'compile failed', unread],
  ['blocks 257 deep', [...repeat(256, 0x02, 0x40), ...repeat(256, 0x0b), ...num(0)], {}, {}, 'compile failed', /blocks 257 deep/],
  ['a branch to 400,000 places', [0x02, 0x40, ...num(0), 0x0e, 0x80, 0xb5, 0x18, ...repeat(400001, 0), 0x0b, ...num(0)], {}, {}, 'compile failed', /400002 branches/],
  ['33,000 ifs', [...repeat(33000, 0x20, 0, 0x04, 0x40, 0x0b), ...num(0)], {}, {}, 'compile failed', /33000 branches/],
  ['70,000 calls', [...repeat(70000, ...num(0), 0x10, 2, 0x1a), ...num(0)], {}, {}, 'compile failed', /values of types and calls/],
  ['4101 functions', num(0), { functions: repeat(4097, [3, []]) }, {}, 'compile failed', /4101 functions/],
  ['2 MiB of code', [...repeat(2 ** 21, 0x01), ...num(0)], {}, {}, 'compile failed', /bytes of code; at most 1048576/],
  ['1025 locals', num(0), { locals: 1025 }, {}, 'compile failed', /1025 locals of a function/],
  ['1000 values under 1000 branches', [...loads(1000), ...repeat(1000, 0x02, 0x40, 0x20, 0, 0x0d, 0, 0x0b), ...repeat(999, 0x6a)], {}, {}, 'compile failed', /branches x locals and values/],
  ['20,000 values under 20,000 branches', [...loads(20000), ...repeat(20000, 0x02, 0x40, 0x20, 0, 0x0d, 0, 0x0b), ...repeat(19999, 0x6a)], {}, {}, 'compile failed', /1025 values at once/],
  ['1025 values, in code that is not reached', [0, ...repeat(1025, ...num(0)), ...repeat(1024, 0x1a)], {}, {}, 'compile failed', /1025 values at once/],
  ['90 locals that change in 10,000 ifs', [...repeat(10000, 0x20, 0, 0x04, 0x40, 0x20, 0, 0x21, 7, 0x0b), ...num(0)], { locals: 90 }, {}, 'compile failed', /branches x branches x locals and values/],
  ['30,000 divisions', [...repeat(30000, 0x20, 0, 0x20, 0, 0x6e, 0x21, 0), ...num(0)], {}, {}, 'compile failed', /branches x branches/],
  ['a local of a type of two bytes', num(0), { declared: [2, 1, 0x63, 0x70, 0xff, 0xc4, 1, 0x7f] }, {}, 'compile failed', unread],
  ['a block of a type of two bytes', [0x02, 0x63, 0x70, 0xd0, 0x70, 0x0b, 0x1a, ...num(0)], {}, {}, 'compile failed', unread],
  ['a block of nothing, in two bytes', [0x02, 0xc0, 0x7f, 0x0b, ...num(0)], {}, {}, 'compile failed', unread],
  ['a select of a type of two bytes', [0xd0, 0x70, 0xd0, 0x70, ...num(0), 0x1c, 1, 0x63, 0x70, 0x1a, ...num(0)], {}, {}, 'compile failed', unread],
  ['a null of another type', [0xd0, 0x6e, 0x1a, ...num(0)], {}, {}, 'compile failed', unread],
  ['an address that names a memory', [...num(0), 0x28, 0x42, 0, 0], {}, {}, 'compile failed', unread],
  ['relaxed SIMD behind such an address', [...num(0), 0x28, 0x42, 0, 0x1c, 0xfd, 12, ...Array(16).fill(0), 0x1a, 0xfd, 12, ...Array(16).fill(0), 0xfd, 12,
    ...Array(16).fill(0), 0xfd, 0x80, 2, 0x1a, ...repeat(1606, 1), 0x1a, ...num(0)], {}, {}, 'compile failed', unread],
  ['an alignment of 32 bytes', [...num(0), 0x28, 5, 0], {}, {}, 'compile failed', unread],
  ['a section of tags', num(0), { extra: [13, 3, 1, 0, 3] }, {}, 'compile failed', unread],
  ['a section nobody knows', num(0), { extra: [14, 1, 0] }, {}, 'compile failed', unread],
  ['one section twice', num(0), { extra: [5, 3, 1, 0, 1] }, {}, 'compile failed', unread],
  ['sections in another order', num(0), { extra: [3, 1, 0] }, {}, 'compile failed', unread],
  ['a self-test it does not pass', num(0), {}, { self_test: [{ ...goodTest, out: [7] }] }, 'denied', /refused by self-test/],
  ['a self-test that cannot be read', num(0), {}, { self_test: [{ pass: 'sideways' }] }, 'denied', /self-test 0 cannot be read/],
];

const head = '{"name": "n", "version": "1.0.0", "min_runtime_version": "0.0.0", "max_runtime_version": "9.0.0", ';
const one = (more) => `${head}"kernels": [{"id": "k", "category": "custom", "hash": "sha256:${'0'.repeat(64)}", ${more}}]}`;

const plain = (id) => `{"id": "${id}", "category": "custom", "path": "a", "hash": "sha256:${'0'.repeat(64)}"}`;

/** Signed, and wrong. */
export const manifests = [
  ['nothing', '', /manifest/],
  ['a list', '[]', /expected an object/],
  ['no fields', '{}', /version is missing/],
  ['kernels of another type', `${head}"kernels": {}}`, /kernels: expected array/],
  ['a kernel that is a number', `${head}"kernels": [3]}`, /a kernel: expected an object/],
  ['a path upwards', one('"path": "../../etc/passwd"'), /path/],
  ['a path from the root', one('"path": "/etc/passwd"'), /path/],
  ['a path through the parent', one('"path": "a/../b"'), /path/],
  ['a path with two slashes', one('"path": "a//b"'), /path/],
  ['a path that is a number', one('"path": 7'), /path/],
  ['a path with a NUL', one('"path": "a\\u0000b"'), /path/],
  ['a description with a NUL', `${head}"kernels": [], "description": "a\\u0000b"}`, /description: longer than 256 bytes, or with a NUL/],
  ['an address', one('"path": "https:x"'), /path/],
  ['too many pages', one('"path": "a", "resource_limits": {"max_memory_pages": 70000}'), /max_memory_pages/],
  ['half a page', one('"path": "a", "resource_limits": {"max_memory_pages": 1.5}'), /max_memory_pages/],
  ['a negative deadline', one('"path": "a", "resource_limits": {"max_epoch_ticks": -1}'), /max_epoch_ticks/],
  ['an input without a name', one('"path": "a", "inputs": [{"name": 1}]'), /name/],
  ['a param that is a number', one('"path": "a", "params": {"n": 3}'), /expected an object/],
  ['one id twice in an object', one('"path": "a", "id": "k"'), /two fields of one object/],
  ['fallbacks to nothing', `${head}"kernels": [], "fallbacks": {"a": "b"}}`, /fallbacks/],
  ['half a version', head.replace('1.0.0', '1.0') + '"kernels": []}', /version/],
  ['a runtime to come', head.replace('0.0.0', '7.0.0') + '"kernels": []}', /refused by runtime version/],
  ['a runtime gone by', head.replace('9.0.0', '0.0.9') + '"kernels": []}', /refused by runtime version/],
  ['257 kernels', `${head}"kernels": [${Array.from({ length: 257 }, (_, i) => plain(`k${i}`))}]}`, /manifest: more than 256 kernels/],
  ['pages written as 256.0', one('"path": "a", "resource_limits": {"max_memory_pages": 256.0}'), /max_memory_pages: expected an integer/],
  ['a deadline written as 1e3', one('"path": "a", "resource_limits": {"max_epoch_ticks": 1e3}'), /max_epoch_ticks: expected an integer/],
  ['a size written as 4.0', one('"path": "a", "inputs": [{"name": "x", "dtype": "f32", "shape": [4.0]}]'), /expected symbols and sizes/],
  ['a size of 2 to the 63', one('"path": "a", "inputs": [{"name": "x", "dtype": "f32", "shape": [9223372036854775808]}]'), /expected symbols and sizes/],
  ['1e999', one('"path": "a", "more": 1e999'), /beyond the range of f64/],
  ['a lone surrogate', one('"path": "a", "more": "\\ud800"'), /surrogate/],
  ['a lone surrogate as a name', one('"path": "a", "\\udc00": 1'), /surrogate/],
  ['65 levels', `${head}"kernels": [], "more": ${'['.repeat(64)}${']'.repeat(64)}}`, /nested deeper than 64/],
  ['258 bytes of 129 letters', `${head}"kernels": [], "description": "${'\u00e4'.repeat(129)}"}`, /longer than 256 bytes/],
  ['a million kernels', `${head}"kernels": [${'{"id":"k"},'.repeat(1e6)}{}]}`, /larger than/],
  ['deep nesting', `${head}"kernels": ${'['.repeat(1e5)}`, /manifest/],
];

/** Files that were changed after they were signed. */
const damages = [
  ['a module cut in half', (f) => (f['k.wasm'] = f['k.wasm'].slice(0, f['k.wasm'].length / 2)), /refused by hash/],
  ['a module with one bit flipped', (f) => (f['k.wasm'][60] ^= 4), /refused by hash/],
  ['an empty module', (f) => (f['k.wasm'] = new Uint8Array(0)), /refused by hash/],
  ['a module that is gone', (f) => delete f['k.wasm'], /refused by files: k\.wasm/],
  ['a manifest with one bit flipped', (f) => (f['kernels.json'][30] ^= 1), /refused by signature/],
  ['a manifest with a space more', (f) => (f['kernels.json'] = Uint8Array.from([...f['kernels.json'], 32])), /refused by signature/],
  ['a signature cut short', (f) => (f['kernels.json.sig'] = f['kernels.json.sig'].slice(1)), /63 bytes, a signature has 64/],
  ['a signature with one bit flipped', (f) => (f['kernels.json.sig'][5] ^= 1), /refused by signature/],
  ['no signature', (f) => delete f['kernels.json.sig'], /refused by files: kernels\.json\.sig/],
  ['no manifest', (f) => delete f['kernels.json'], /refused by files: kernels\.json/],
];

/** {name: async () => what went wrong, or ''}: every entry of the gallery. */
export async function makeGallery({ PackHost }) {
  const [key, stranger] = [await makeKey(), await makeKey()];
  const host = new PackHost({ trusted: [key.public] });
  const good = await (await host.open(await makePack(module(goodBody), key, { kernel: { self_test: [goodTest] } }))).kernel('k');
  const entries = new Map();

  /** Fails with that status and sentence, in time; and the good kernel runs afterwards. */
  const add = (name, status, pattern, act) =>
    entries.set(name, async () => {
      const begin = performance.now();
      const error = await act().then(() => null, (e) => e);
      const seconds = (performance.now() - begin) / 1000;
      const { out } = await good.run({ a: Float32Array.of(21), out: 4 });
      if (out[0] !== 42) return `afterwards the good kernel gives ${out[0]}`;
      if (!error) return 'it was let through';
      if (error.status !== status || !pattern.test(error.message)) return `expected ${status} and ${pattern}, got ${error.status}: ${error.message}`;
      return seconds < 5 ? '' : `it took ${seconds} s`;
    });
  const run = async (files, h = host) => {
    const kernel = await (await h.open(files)).kernel('k');
    try {
      await kernel.run({ a: Float32Array.of(1), out: 64, ticks: 100 });
    } finally {
      kernel.close();
    }
  };

  for (const [name, body, how, kernel, status, pattern] of modules)
    add(name, status, pattern, async () => run(await makePack(module(body, how), key, { kernel })));
  for (const [name, text, pattern] of manifests) add(`manifest: ${name}`, 'denied', pattern, async () => run(await textPack(text, key)));
  for (const [name, damage, pattern] of damages)
    add(name, 'denied', pattern, async () => {
      const files = await makePack(module(goodBody), key);
      damage(files);
      await run(files);
    });
  add('a key nobody trusts', 'denied', /refused by signature/, async () => run(await makePack(module(goodBody), stranger)));
  add('the key inside the file', 'denied', /refused by signature/, async () =>
    run(await makePack(module(goodBody), stranger, { author: { signing_key: [...stranger.public].map((b) => b.toString(16).padStart(2, '0')).join('') } })));
  add("another pack's signature", 'denied', /refused by signature/, async () => {
    const [first, second] = [await makePack(module(goodBody), key), await makePack(module(goodBody), key, { version: '1.0.1' })];
    await run({ ...second, 'kernels.json.sig': first['kernels.json.sig'] });
  });
  add('a revoked key', 'denied', /refused by revoked keys/, async () =>
    run(await makePack(module(goodBody), key), new PackHost({ trusted: [key.public], revoked: [key.public] })));
  add('a module that is not allowed', 'denied', /refused by allowlist/, async () =>
    run(await makePack(module(goodBody), key), new PackHost({ trusted: [key.public], allowed: [{ id: 'k', hash: await sha256(module(num(0))) }] })));
  add('an old version replayed', 'denied', /refused by downgrade: forged is 1\.9\.0, and 1\.10\.0/, async () => {
    const h = new PackHost({ trusted: [key.public] });
    await h.swap(await h.open(await makePack(module(goodBody), key, { version: '1.10.0' })));
    await run(await makePack(module(goodBody), key, { version: '1.9.0' }), h);
  });
  const greedy = { resource_limits: { max_epoch_ticks: 3600000, max_memory_pages: 65536 } };
  const strict = new PackHost({ trusted: [key.public], most_ticks: 200, most_pages: 4 });
  add('a start that loops for the hour it asks for', 'timeout', /deadline of 200 ms/, async () =>
    run(await makePack(module(num(0), { functions: [[3, loop]], start: 4 }), key, { kernel: greedy }), strict));
  add('a self-test that loops for the hour it asks for', 'timeout', /deadline of 200 ms/, async () =>
    run(await makePack(module([...loop, ...num(0)]), key, { kernel: { ...greedy, self_test: [goodTest] } }), strict));
  add('5 pages where the host allows 4', 'denied', /memory begins with 5, and 4 are allowed/, async () =>
    run(await makePack(module(num(0), { memory: [5] }), key, { kernel: greedy }), strict));
  add('a memory bomb where the host allows 4 pages', 'no memory', /out of memory/, async () =>
    run(await makePack(module([0x03, 0x40, ...num(1), 0x40, 0, ...again, 0x3f, 0, ...num(4), 0x46, 0x04, 0x40, ...num(4), 0x0f, 0x0b, ...num(6)]), key, { kernel: greedy }), strict));
  add('a truncated module, signed', 'denied', /not well formed/, async () => run(await makePack(module(goodBody).slice(0, 70), key)));
  add('code that does not validate', 'compile failed', /k: /, async () => run(await makePack(module([0x92]), key)));
  add('a section longer than the file', 'denied', /not well formed/, async () =>
    run(await makePack(Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 1, 255, 255, 255, 255, 15, 0]), key)));
  add('buffers of 2 GB', 'no memory', /cannot grow/, async () => {
    const kernel = await (await host.open(await makePack(module(goodBody), key))).kernel('k');
    await kernel.run({ a: Float32Array.of(1), out: 2 ** 31 }).finally(() => kernel.close());
  });
  return { entries, close: () => host.close() ?? good.close() };
}

export { sign };
