// test_browser.mjs -- the library, `ambi check` and the host of kernel packs in a real browser. WEB is the built folder,
// VECTORS a folder or '', PACK a folder with a pack, KEY the public key that signed it.
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Browser, findChromium, serve } from './chromium.mjs';
import { equal, numbers, ok, run, test } from './test.mjs';

const [web, vectors, packFolder, keyFile] = process.argv.slice(2);
const binary = findChromium();
if (!binary) {
  console.log('SKIPPED test_browser: there is no chromium');
  console.log('0 passed, 0 failed, 1 skipped');
  process.exit(0);
}
const server = await serve({ '/': web, '/tests/': fileURLToPath(new URL('.', import.meta.url)), 
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
    const bits = async (threads, relaxed) => {
      const ambi = await load({ threads, relaxed });
      const { y } = ambi.plan({ op: 'softmax', tensors: { x: [300, 257] } }).run({ x });
      ambi.free();
      return [ambi.device.threads, ambi.device.module, new Uint32Array(y.buffer).join()];
    };
    const same = [];
    for (const relaxed of [true, false]) {
      const [one, three] = [await bits(1, relaxed), await bits(3, relaxed)];
      same.push([one[0], three[0], three[1], one[2] === three[2]].join(' '));
    }
    return same.join();
  })()`);
  equal(same, '1 3 ambi-relaxed.wasm true,1 3 ambi.wasm true');
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

test('the module that was checked is the one that load takes; without relaxed SIMD, check of every op in f32 and bf16', async () => {
  const r = await page.value(`(async () => {
    const { load } = await import('./ambi/ambi.js');
    const { check } = await import('./ambi/check.js');
    const { module } = (await load()).device;
    const { lines, ...counts } = await check(['--elements', '8000', '--quick', '--kernels'], { relaxed: false });
    return { module, ...counts, bad: lines.filter((l) => /FAIL/.test(l)).slice(0, 5),
      fetched: performance.getEntriesByType('resource').map((e) => e.name.split('/').pop()).filter((n) => /check.*wasm/.test(n)).join() };
  })()`);
  equal(r.module, 'ambi-relaxed.wasm');
  ok(/ambi-check-relaxed\.wasm/.test(r.fetched) && /ambi-check\.wasm/.test(r.fetched), r.fetched);
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

  test('the page of packs: the bits that node gives; another key, a bad number and a bad param are refused', async () => {
    const key = readFileSync(keyFile, 'utf8').trim();
    const [a, b] = [numbers(35, 3), numbers(35, 4)];
    const { PackHost } = await import(pathToFileURL(join(web, 'ambi/pack.js')));
    const kernel = await (await new PackHost({ trusted: [key] }).open(packFolder)).kernel('swiglu_f32');
    const { out } = await kernel.run({ a, b, out: a.byteLength, params: { num_elements: 5, hidden_dim: 7, beta: 1.5 } });
    kernel.close();
    const there = await browser.page(`${server.url}pack.html`, { width: 390, height: 800, dark: true });
    await there.until("document.body.dataset.ready === 'yes'");
    const says = (id, what) => there.until(`${what}.test(document.getElementById('${id}').textContent)`);
    await there.choose('#key', `${'0'.repeat(63)}7`);
    await there.choose('#address', '/pack/');
    await there.click('#open button');
    await says('verdict', '/refused by signature/');
    await there.choose('#key', key);
    await there.click('#open button');
    await says('verdict', '/kernels, signed by the key you trust/');
    ok(/^ok {3}signature/.test(await there.text('#checks')), await there.text('#checks'));
    for (const [name, value] of [['num_elements', 5], ['hidden_dim', 7], ['beta', 1.5]]) await there.choose(`[data-param=${name}]`, String(value));
    await there.choose('#a', 'x');
    await there.click('#call button');
    await says('result', "/a: 'x' is no number/");
    await there.choose('#a', a.join(' '));
    await there.choose('#b', b.join(', '));
    await there.click('#call button');
    await says('result', '/swiglu_f32 took/');
    const got = Float32Array.from((await there.text('#out')).split(', '), Number);
    equal(new Uint32Array(got.buffer).join(), new Uint32Array(out.buffer).join());
    ok(await there.value('document.documentElement.scrollWidth <= innerWidth'), 'it is wider than a phone');
    if (process.env.AMBI_PICTURES) await there.picture(join(process.env.AMBI_PICTURES, 'pack.png'));
    await there.choose('[data-param=hidden_dim]', '1.5');
    await there.value("document.getElementById('call').noValidate = true");
    await there.click('#call button');
    await says('result', '/hidden_dim: expected a whole number/');
    await there.choose('#address', '/nowhere/');
    const { result } = await there.send('Runtime.evaluate', { expression: "document.getElementById('folder')" });
    await there.send('DOM.setFileInputFiles', { files: [resolve(packFolder)], objectId: result.objectId });
    await there.until("[...document.getElementById('folder').files].some((f) => f.name === 'kernels.json')");
    await there.choose('#key', key.toUpperCase());
    await there.click('#open button');
    await says('verdict', '/kernels, signed by the key you trust/');
    await there.close();
  });

  test('the page of packs: a norm backward, with its weight', async () => {
    const key = readFileSync(keyFile, 'utf8').trim();
    const [dy, x, weight] = [numbers(12, 5), numbers(12, 6), numbers(4, 7)];
    const { PackHost } = await import(pathToFileURL(join(web, 'ambi/pack.js')));
    const kernel = await (await new PackHost({ trusted: [key] }).open(packFolder)).kernel('rmsnorm_f32');
    const params = { eps: 1e-5, hidden_dim: 4, num_elements: 3 };
    const want = await kernel.run({ pass: 'backward', a: dy, b: x, weight, out: 48, scratch: 16, params });
    kernel.close();
    const there = await browser.page(`${server.url}pack.html`);
    await there.until("document.body.dataset.ready === 'yes'");
    await there.choose('#key', key);
    await there.choose('#address', '/pack/');
    await there.click('#open button');
    await there.until("/signed by the key you trust/.test(document.getElementById('verdict').textContent)");
    await there.choose('#kernel', 'rmsnorm_f32');
    await there.until("document.querySelector('[data-param=eps]')");
    ok(await there.value("document.getElementById('weighted').hidden"), 'forward has the weight in b');
    await there.choose('#pass', 'backward');
    for (const [name, value] of Object.entries(params)) await there.choose(`[data-param=${name}]`, String(value));
    for (const [id, value] of Object.entries({ a: dy, b: x, weight })) await there.choose(`#${id}`, value.join(' '));
    await there.choose('#room', '4');
    await there.click('#call button');
    await there.until("/rmsnorm_f32 took/.test(document.getElementById('result').textContent)");
    const got = (await there.text('#out')).split('scratch').map((part) => Float32Array.from(part.split(','), Number));
    equal(new Uint32Array(got[0].buffer).join(), new Uint32Array(want.out.buffer).join());
    equal(new Uint32Array(got[1].buffer).join(), new Uint32Array(want.scratch.buffer).join());
    await there.close();
  });

  test('the page of packs: kernels chosen in a hurry leave no worker behind; .npy of both formats', async () => {
    const there = await browser.page(`${server.url}pack.html`);
    await there.until("document.body.dataset.ready === 'yes'");
    await there.value(`(() => { const Real = Worker; globalThis.alive = 0;
      globalThis.Worker = class extends Real { constructor(...all) { super(...all); alive++; } terminate() { alive--; super.terminate(); } }; })()`);
    await there.choose('#key', readFileSync(keyFile, 'utf8').trim());
    await there.choose('#address', '/pack/');
    await there.click('#open button');
    await there.until("/signed by the key you trust/.test(document.getElementById('verdict').textContent)");
    await there.value(`(() => { const e = document.getElementById('kernel');
      for (const id of ['glu_f32', 'rmsnorm_f32', 'linear_f32', 'gelu_f32']) { e.value = id; e.dispatchEvent(new Event('change')); } })()`);
    await there.until("alive <= 1 && document.getElementById('result').className === 'good'", 10);
    const params = "[...document.querySelectorAll('[data-param]')].map((i) => i.dataset.param).join()";
    equal(await there.value(params), 'num_elements');
    for (const version of [1, 2]) {
      const read = await there.value(`(async () => {
        const text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }".padEnd(63) + '\\n';
        const head = [0x93, ...new TextEncoder().encode('NUMPY'), ${version}, 0, 64, 0, ...(${version} === 2 ? [0, 0] : [])];
        const files = new DataTransfer();
        files.items.add(new File([Uint8Array.from(head), text, Float32Array.of(1.5, -2)], 'a.npy'));
        const input = document.querySelector('[data-for=a]');
        document.getElementById('a').value = '';
        input.files = files.files;
        input.dispatchEvent(new Event('change'));
        for (let i = 0; i < 50 && !document.getElementById('a').value; i++) await new Promise((r) => setTimeout(r, 20));
        return document.getElementById('a').value;
      })()`);
      equal(read, '1.5, -2', `format ${version}`);
    }
    await there.value(`(() => { const files = new DataTransfer(); files.items.add(new File(['not one'], 'b.npy'));
      const input = document.querySelector('[data-for=b]'); input.files = files.files; input.dispatchEvent(new Event('change')); })()`);
    await there.until("/b.npy: not an .npy file/.test(document.getElementById('result').textContent)");
    await there.close();
  });
}

await run(async () => {
  await browser.stop();
  server.close();
});
