// test_browser.mjs -- the library, `ambi check` and the host of kernel packs in a real browser. WEB is the built folder,
// VECTORS a folder or '', PACK a folder with a pack, KEY the public key that signed it.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Browser, findChromium, serve } from './chromium.mjs';
import { equal, ok, run, test } from './test.mjs';

const [web, vectors, packFolder, keyFile] = process.argv.slice(2);
const binary = findChromium();
if (!binary) {
  console.log('SKIPPED test_browser: there is no chromium');
  console.log('0 passed, 0 failed, 1 skipped');
  process.exit(0);
}
const server = await serve({ '/': web, '/built/': join(web, '..'), '/tests/': fileURLToPath(new URL('.', import.meta.url)), 
  ...(vectors ? { '/vectors/': vectors } : {}), ...(packFolder ? { '/pack/': packFolder } : {}) });
const browser = await Browser.start(binary);
const page = await browser.page(server.url);
await page.until("document.body.dataset.ready === 'yes'");

test('plans run, and mistakes are sentences', async () => {
  const result = await page.value(`(async () => {
    const { load } = await import('./ambi/ambi.js');
    const ambi = await load();
    const plan = ambi.plan({ op: 'softmax', tensors: { x: [1, 3] } });
    let message;
    try { plan.run({ x: new Float32Array(2) }); } catch (e) { message = e.name + ': ' + e.message; }
    return { y: [...plan.run({ x: Float32Array.of(0, Math.log(2), 0) }).y], message };
  })()`);
  ok(Math.abs(result.y[1] - 0.5) < 1e-6, `${result.y}`);
  equal(result.message, 'AmbiError: x: expected 3 elements at least, got 2');
});

test('threads, where a page may share memory: the same bits', async () => {
  const isolated = await serve({ '/': web }, { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' });
  const other = await browser.page(isolated.url);
  await other.until("document.body.dataset.ready === 'yes'");
  const same = await other.value(`(async () => {
    const { load } = await import('./ambi/ambi.js');
    const x = Float32Array.from({ length: 300 * 257 }, (_, i) => Math.sin(i));
    const bits = async (threads) => {
      const ambi = await load({ threads });
      const { y } = ambi.plan({ op: 'softmax', tensors: { x: [300, 257] } }).run({ x });
      ambi.free();
      return ambi.device.threads + ' ' + new Uint32Array(y.buffer).join();
    };
    const [one, three] = [await bits(1), await bits(3)];
    return one.slice(2) === three.slice(2) && three.startsWith('3 ');
  })()`);
  equal(same, true);
  await other.close();
  isolated.close();
  const refusal = "import('./ambi/ambi.js').then((m) => m.load({ threads: 2 })).catch((e) => e.message)";
  ok(/not cross-origin isolated/.test(await page.value(refusal)), 'a page that may not share memory is told so');
});

const read = vectors ? `Object.fromEntries(await Promise.all(['ops.json', 'ops.safetensors'].map(async (name) =>
  [name, new Uint8Array(await (await fetch('/vectors/' + name)).arrayBuffer())])))` : 'undefined';
const names = await page.value("[...document.querySelectorAll('#check-op option')].map((o) => o.value).filter(Boolean)");
for (const name of names) {
  test(`check of ${name}, every dtype`, async () => {
    const r = await page.value(`(async () => {
      const { check } = await import('./ambi/check.js');
      const { lines, ...counts } = await check(['--op', '${name}', '--elements', '8000', '--kernels'], { vectors: ${read} });
      return { ...counts, bad: lines.filter((l) => /FAIL/.test(l)).slice(0, 5) };
    })()`);
    ok(r.passed > 10 && r.failed === 0 && r.status === 0, JSON.stringify(r));
  });
}

test('relaxed SIMD: check of every op in f32 and bf16', async () => {
  const r = await page.value(`(async () => {
    const { load } = await import('./ambi/ambi.js');
    const { check } = await import('./ambi/check.js');
    const { module } = (await load({ relaxed: true })).device;
    const { lines, ...counts } = await check(['--elements', '8000', '--quick', '--kernels'], { wasm: '/built/check-relaxed.wasm' });
    return { module, ...counts, bad: lines.filter((l) => /FAIL/.test(l)).slice(0, 5) };
  })()`);
  equal(r.module, 'ambi-relaxed.wasm');
  ok(r.passed > 10000 && r.failed === 0, JSON.stringify(r));
});

// ---- packs: the gallery, each entry by its name --------------------------------------------------------------------
const entries = await page.value(`(async () => {
  const { makeGallery } = await import('/tests/gallery.mjs');
  globalThis.gallery = await makeGallery(await import('/ambi/pack.js'));
  return [...gallery.entries.keys()];
})()`);
for (const name of entries)
  test(`gallery: ${name}`, async () => equal(await page.value(`gallery.entries.get(${JSON.stringify(name)})()`), ''));

if (packFolder) {
  test("ambi's own kernels, from a server: every self-test", async () => {
    const trusted = JSON.stringify(readFileSync(keyFile, 'utf8').trim());
    const count = await page.value(`(async () => {
      const { PackHost } = await import('/ambi/pack.js');
      const pack = await new PackHost({ trusted: [${trusted}] }).open('/pack/');
      for (const id of pack.kernels) (await pack.kernel(id)).close();
      pack.close();
      return pack.kernels.length;
    })()`);
    ok(count >= 11, `${count} kernels`);
  });
}

await run(async () => {
  await browser.stop();
  server.close();
});
