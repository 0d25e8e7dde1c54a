// test_pack.mjs -- the host of kernel packs in JavaScript: what it lets through, and what it does not. PACKAGE is the folder
// that was built; PACK, if given, a folder with a pack of ambi's kernels, and KEY the public key that signed it.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { goodBody, goodTest, makeKey, makePack, module, num, tripleBody } from './forge.mjs';
import { makeGallery } from './gallery.mjs';
import { equal, near, numbers, ok, rejects, run, test, throws } from './test.mjs';

const [folder, packFolder, keyFile] = process.argv.slice(2);
const pack = await import(new URL('pack.js', pathToFileURL(`${folder}/`)));
const { PackHost } = pack;
const key = await makeKey();
const two = { a: Float32Array.of(2), out: 4 };
const swapped = async (host, options, body = goodBody) => host.swap(await host.open(await makePack(module(body), key, options)));

const gallery = await makeGallery(pack);
for (const [name, act] of gallery.entries) test(`gallery: ${name}`, async () => equal(await act(), ''));

test('a good pack: every check is reported, in order', async () => {
  const seen = [];
  const host = new PackHost({ trusted: [key.public], report: (check, passed) => seen.push(`${check} ${passed}`) });
  const opened = await host.open(await makePack(module(goodBody), key, { kernel: { self_test: [goodTest] } }));
  equal(`${seen}`, 'signature true,revoked keys true,manifest true,runtime version true,downgrade true,hash true');
  const kernel = await opened.kernel('k');
  equal((await kernel.run(two)).out[0], 4);
  const out = new Float32Array(1);
  await kernel.run({ a: Float32Array.of(5), out });
  equal(out[0], 10);
  await rejects(kernel.run({ ...two, pass: 'backward' }), /returned 5, not implemented/);
  await rejects(kernel.run({ a: [1], out: 4 }), /a: expected a typed array/);
  kernel.close();
  await rejects(kernel.run(two), /was closed/);
  await rejects(opened.kernel('q'), /has no kernel q/);
});

test('a deadline of 100 ms is kept within 120', async () => {
  const host = new PackHost({ trusted: [key.public] });
  const times = [];
  for (let i = 0; i < 3; i++) { // the best of them: this machine may have other things to do
    const kernel = await (await host.open(await makePack(module([0x03, 0x40, 0x0c, 0, 0x0b, ...num(0)]), key))).kernel('k');
    const begin = performance.now();
    await rejects(kernel.run({ ...two, ticks: 100 }), /deadline/);
    times.push(performance.now() - begin);
  }
  console.log(`stopped after ${times.map((t) => t.toFixed(1)).join(', ')} ms`);
  ok(Math.min(...times) >= 99 && Math.min(...times) < 120, `${times} ms`);
});

test('unsigned packs only with the long switch, and never in silence', async () => {
  const files = await makePack(module(goodBody), key);
  delete files['kernels.json.sig'];
  throws(() => new PackHost({ insecure_accept_unsigned_packs_for_development: true }), /needs a report function/);
  const said = [];
  const host = new PackHost({ insecure_accept_unsigned_packs_for_development: true, report: (...all) => said.push(all.join(' ')) });
  const kernel = await (await host.open(files)).kernel('k');
  ok(said.some((s) => /NOT CHECKED/.test(s)), `${said}`);
  equal((await kernel.run(two)).out[0], 4);
  kernel.close();
});

test('swap and rollback while calls are under way', async () => {
  const host = new PackHost({ trusted: [key.public] });
  await rejects(host.run('k', two), /no pack is active/);
  throws(() => host.rollback(), /no pack to roll back to/);
  await swapped(host, { version: '1.0.0' });
  const calls = Array.from({ length: 50 }, () => host.run('k', two));
  await swapped(host, { version: '1.1.0' }, tripleBody);
  for (const { out } of await Promise.all(calls)) equal(out[0], 4, 'begun before');
  equal((await host.run('k', two)).out[0], 6, 'begun after');
  host.rollback();
  equal((await host.run('k', two)).out[0], 4);
  await rejects(swapped(host, { version: '1.0.9' }), /refused by downgrade/);
  const bad = makePack(module(num(0)), key, { version: '2.0.0', kernel: { self_test: [goodTest] } });
  await rejects(bad.then((f) => host.open(f)).then((p) => host.swap(p)), /self-test/);
  equal((await host.run('k', two)).out[0], 4, 'the old pack stays');
  host.close();
});

test('a kernel that is closed while it runs ends its call', async () => {
  const host = new PackHost({ trusted: [key.public] });
  const kernel = await (await host.open(await makePack(module([0x03, 0x40, 0x0c, 0, 0x0b, ...num(0)]), key))).kernel('k');
  const call = kernel.run(two);
  setTimeout(() => kernel.close(), 30);
  const begin = performance.now();
  await rejects(call, /ended/);
  ok(performance.now() - begin < 800, 'it waited for the deadline');
});

test('a hundred swaps, each in use', async () => {
  const host = new PackHost({ trusted: [key.public] });
  const packs = await Promise.all([goodBody, tripleBody].map(async (body) => host.open(await makePack(module(body), key))));
  for (let i = 0; i < 100; i++) {
    const before = i ? host.run('k', two) : null;
    await host.swap(packs[i % 2]);
    equal((await host.run('k', two)).out[0], i % 2 ? 6 : 4);
    if (before) equal((await before).out[0], i % 2 ? 4 : 6, 'begun before');
  }
  host.close();
});

test('what was activated is remembered by the state', async () => {
  let kept = '{}';
  const state = { load: () => JSON.parse(kept), save: (s) => (kept = JSON.stringify(s)) };
  const make = () => new PackHost({ trusted: [key.public], state });
  const first = make();
  await swapped(first, { version: '3.2.1' });
  first.close();
  equal(kept, '{"forged":"3.2.1"}');
  await rejects(swapped(make(), { version: '3.2.0' }), /3\.2\.1 was activated before/);
  kept = '{"forged": 7}';
  await rejects(swapped(make(), { version: '9.0.0' }), /the state of kernel packs/);
});

test('a fallback steps in, and a ring of them ends', async () => {
  const host = new PackHost({ trusted: [key.public] });
  const wasm = module(goodBody);
  const files = await makePack(wasm, key);
  const hash = JSON.parse(new TextDecoder().decode(files['kernels.json'])).kernels[0].hash;
  const kernel = (id, more = {}) => ({ id, category: 'custom', path: 'k.wasm', hash, ...more });
  const broken = { self_test: [{ ...goodTest, out: [0] }] };
  const ring = await makePack(wasm, key, { kernels: [kernel('x', broken), kernel('y', broken), kernel('z')], fallbacks: { x: 'y', y: 'x', w: 'z' } });
  const opened = await host.open(ring);
  equal((await (await opened.kernel('w')).run(two)).out[0], 4);
  await rejects(opened.kernel('x'), /self-test/);
  opened.close();
});

test('keys and sources that are none', async () => {
  throws(() => new PackHost({ trusted: ['abc'] }), /expected 32 bytes, or 64 hex digits/);
  throws(() => new PackHost({ trusted: [new Uint8Array(31)] }), /expected 32 bytes/);
  await rejects(new PackHost().open(7), /expected a URL/);
  await rejects(new PackHost({ trusted: [key.public] }).open(new URL('file:///nowhere/at/all')), /kernels\.json is not there/);
});

if (packFolder) {
  test("ambi's own kernels: swiglu by its formula, every self-test", async () => {
    const host = new PackHost({ trusted: [readFileSync(keyFile, 'utf8')] });
    const opened = await host.open(pathToFileURL(packFolder));
    for (const id of opened.kernels) (await opened.kernel(id)).close();
    const again = await host.open(pathToFileURL(packFolder));
    const [x, gate] = [numbers(64), numbers(64, 2)];
    const params = new Uint8Array(12);
    new DataView(params.buffer).setUint32(0, 8, true);
    new DataView(params.buffer).setUint32(4, 8, true);
    new DataView(params.buffer).setFloat32(8, 1, true);
    const kernel = await again.kernel('swiglu_f32');
    const { out } = await kernel.run({ a: x, b: gate, out: 256, params });
    near(out, x.map((v, i) => (v * gate[i]) / (1 + Math.exp(-gate[i]))), 1e-6);
    const begin = performance.now();
    for (let i = 0; i < 500; i++) await kernel.run({ a: x, b: gate, out: 256, params });
    console.log(`a call takes ${((performance.now() - begin) * 2).toFixed(0)} us, to the worker and back`);
    kernel.close();
    console.log(`${opened.kernels.length} kernels`);
  });
}

await run(gallery.close);
