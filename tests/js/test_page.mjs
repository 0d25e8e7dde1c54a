// test_page.mjs -- the page of examples/web in a real browser: WEB is the built folder, PICTURES where screenshots go.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Browser, findChromium, serve } from './chromium.mjs';
import { goodBody, makeKey, makePack, module, sha256, tripleBody } from './forge.mjs';
import { equal, ok, run, test } from './test.mjs';

const [web, pictures] = process.argv.slice(2);
const binary = findChromium();
if (!binary) {
  console.log('SKIPPED test_page: there is no chromium');
  console.log('0 passed, 0 failed, 1 skipped');
  process.exit(0);
}
mkdirSync(pictures, { recursive: true });

/** A folder with a pack of two kernels, the first of which doubles and the second triples a number. */
async function writePack(folder, key) {
  const params = Object.fromEntries(['num_elements', 'hidden_dim', 'weight_offset'].map((name) => [name, { type: 'u32', default: 1 }]));
  const [k, triple] = [module(goodBody), module(tripleBody)];
  const kernel = async (id, wasm) => ({ id, category: 'custom', path: `${id}.wasm`, hash: await sha256(wasm), params });
  const files = await makePack(k, key, { kernels: [await kernel('k', k), await kernel('triple', triple)] });
  for (const [name, bytes] of Object.entries({ ...files, 'triple.wasm': triple })) writeFileSync(join(folder, name), bytes);
}

const packFolder = mkdtempSync(join(tmpdir(), 'ambi-page-'));
const key = await makeKey();
const trusted = Buffer.from(key.public).toString('hex');
await writePack(packFolder, key);
const server = await serve({ '/': web, '/pack/': packFolder });
const browser = await Browser.start(binary);
const page = await browser.page(server.url);
const picture = (name) => page.picture(`${pictures}/${name}.png`);

test('it loads, without a word on the console', async () => {
  await page.until("document.body.dataset.ready === 'yes'");
  ok(/\d+ ops\.$/.test(await page.text('#about')), 'it says how many ops there are');
  equal(page.errors.join('; '), '');
  await picture('ops-light');
});

test('every op has a formula, a curve and a gradient that agrees with the measured slope', async () => {
  const names = await page.value("[...document.querySelectorAll('#op option')].map((o) => o.value)");
  ok(names.length >= 18, `${names.length} ops`);
  equal(names.length + 1, await page.value("document.querySelectorAll('#check-op option').length - 1"), 'all but fill');
  for (const name of names) {
    await page.choose('#op', name);
    ok(await page.text('#formula'), `${name} has a formula`);
    equal(await page.value("document.querySelector('#failure').hidden"), true, `${name}: ${await page.text('#failure')}`);
    ok((await page.value("document.querySelector('#curve polyline.s0').points.length")) > 100, `${name} has a curve`);
    const agree = await page.text('#agree');
    const percent = agree.match(/([\d.]+)%/)?.[1];
    if (percent !== undefined) ok(Number(percent) < 2, `${name}: ${agree}`); // differences over 0.02 of a smooth function
    else ok(/no backward/.test(agree) || name === 'cast', `${name}: ${agree}`);
  }
});

test('attributes change the curve', async () => {
  await page.choose('#op', 'unary');
  const points = () => page.value("document.querySelector('#curve polyline.s0').getAttribute('points')");
  const before = await points();
  await page.choose('#attr-function', 'tanh');
  ok((await points()) !== before, 'the curve is the same');
  await page.choose('#op', 'gated');
  await page.choose('#input', 'g');
  await picture('gated-light');
});

test('the keyboard reaches every tab', async () => {
  await page.value("document.querySelector('#tab-ops').focus()");
  for (const id of ['check', 'bench', 'train', 'ops']) {
    await page.key('ArrowRight');
    equal(await page.value('document.activeElement.id'), `tab-${id}`);
    equal(await page.value(`document.querySelector('#${id}').hidden`), false);
  }
  await page.key('Tab');
  equal(await page.value('document.activeElement.id'), 'op');
});

test('check runs in the browser, with progress', async () => {
  await page.click('#tab-check');
  await page.choose('#check-op', 'rmsnorm');
  await page.click('#check-run');
  await page.until("document.querySelector('#check-log').textContent.includes('forward')", 60);
  await page.until("document.querySelector('#check-result').dataset.done === 'yes'", 60);
  const [passed, failed] = (await page.text('#check-result')).match(/\d+/g).map(Number);
  ok(passed > 500 && failed === 0, await page.text('#check-result'));
  equal(await page.value("document.querySelector('#check-progress').value"), 1);
  await picture('check-light');
});

test('bench fills its table', async () => {
  await page.click('#tab-bench');
  await page.click('#bench-run');
  await page.until("document.querySelector('#bench-result').dataset.done === 'yes'", 60);
  const times = await page.value("[...document.querySelectorAll('#bench-table tr')].slice(1).map((r) => Number(r.cells[2].textContent))");
  equal(times.length, 20);
  ok(times.every((t) => t > 0 && t < 5000), `${times}`);
  await picture('bench-light');
});

test('training lowers the loss of pasted text, dark and as small as a phone', async () => {
  await page.look({ width: 390, height: 844, dark: true });
  await page.click('#tab-train');
  await page.choose('#text', 'she sells sea shells by the sea shore. '.repeat(12));
  await page.choose('#steps', '120');
  await page.click('#train-run');
  await page.until("document.querySelector('#loss polyline')", 30);
  await page.until("document.querySelector('#train-result').dataset.done === 'yes'", 120);
  const [steps, first, last] = (await page.text('#train-result')).match(/[\d.]+/g).map(Number);
  equal(steps, 120);
  ok(first > 2 && last < 0.4, `loss ${first} to ${last}`);
  ok(/sea sh/.test(await page.text('#sample')), await page.text('#sample'));
  equal(await page.value('document.documentElement.scrollWidth <= innerWidth'), true, 'nothing is wider than the screen');
  await page.value('scrollTo(0, 0)');
  await picture('train-phone-dark');
});

test('a task can be stopped', async () => {
  await page.choose('#steps', '5000');
  await page.click('#train-run');
  await page.until("document.querySelector('#train-result').dataset.loss > 0 && !document.querySelector('#train-stop').disabled");
  await page.click('#train-stop');
  await page.until("/stopped/.test(document.querySelector('#train-result').textContent)", 20);
});

test('a text that is too short is refused with a sentence', async () => {
  await page.choose('#text', 'short');
  await page.click('#train-run');
  await page.until("/too short/.test(document.querySelector('#train-result').textContent)", 20);
  await page.look({ width: 390, height: 844, dark: true });
  await page.click('#tab-ops');
  await page.choose('#op', 'attention');
  equal(await page.value('document.documentElement.scrollWidth <= innerWidth'), true, 'the ops fit a phone too');
  await picture('ops-phone-dark');
  equal(page.errors.join('; '), '');
});

test('a check is stopped within a second or so, in the middle of an op too', async () => {
  await page.click('#tab-check');
  await page.choose('#check-op', 'unary');
  await page.value("document.querySelector('#quick').checked = false");
  await page.click('#check-run');
  await page.until("document.querySelector('#check-log').textContent.includes('forward')", 60);
  const begin = performance.now();
  await page.click('#check-stop');
  await page.until("document.querySelector('#check-result').dataset.done", 60);
  const took = performance.now() - begin;
  ok(/stopped/.test(await page.text('#check-result')), `it was done after ${took} ms: ${await page.text('#check-result')}`);
  ok(took < 1500, `it took ${took} ms`);
  equal(await page.value("document.querySelector('#check-run').disabled"), false);
});

// ---- the page of packs ---------------------------------------------------------------------------------------------
const says = (there, id, what) => there.until(`${what}.test(document.getElementById('${id}').textContent)`);
/** What is wider than the screen; innerWidth is no measure, it grows with what does not fit. */
const tooWide = (there, width) => there.value(`[...document.querySelectorAll('body *')].filter((e) => !e.closest('.scroll, pre') &&
  e.getBoundingClientRect().right > ${width} + 0.5).map((e) => e.id || e.tagName).join() + (document.documentElement.scrollWidth > ${width} ? ' scrolls' : '')`);

test('both pages fit screens of 320 and 360', async () => {
  for (const width of [320, 360]) {
    await page.look({ width, height: 700 });
    for (const tab of ['ops', 'check', 'bench', 'train']) {
      await page.click(`#tab-${tab}`);
      equal(await tooWide(page, width), '', `${tab} at ${width}`);
    }
    const there = await browser.page(`${server.url}pack.html`, { width, height: 700 });
    await there.until("document.body.dataset.ready === 'yes'");
    equal(await tooWide(there, width), '', `pack.html at ${width}`);
    await there.choose('#key', trusted);
    await there.choose('#address', '/pack/');
    await there.click('#open button');
    await says(there, 'verdict', '/2 kernels, signed/');
    await there.choose('#pass', 'backward');
    equal(await tooWide(there, width), '', `a kernel of pack.html at ${width}`);
    await there.picture(`${pictures}/pack-${width}.png`);
    await there.close();
  }
});

test('the page of packs by keyboard alone: open, choose, run', async () => {
  const there = await browser.page(`${server.url}pack.html`);
  await there.until("document.body.dataset.ready === 'yes'");
  await there.tabTo('#key');
  await there.type(trusted);
  await there.tabTo('#address');
  await there.type('/pack/');
  await there.tabTo('#open button');
  await there.key('Enter');
  await says(there, 'verdict', '/2 kernels, signed/');
  await there.tabTo('summary');
  await there.key('Enter');
  ok(await there.value("document.getElementById('checks-of').open"), 'the checks are shown');
  await there.tabTo('#kernel');
  await there.key('ArrowDown');
  await there.until("document.getElementById('kernel').value === 'triple' && document.getElementById('result').className === 'good'");
  await there.tabTo('[data-param=hidden_dim]');
  await there.type('2');
  await there.tabTo('#a');
  await there.type('1.5');
  await there.tabTo('#call button');
  await there.key('Enter');
  await says(there, 'result', '/triple took/');
  equal(await there.text('#out'), '4.5');
  equal(there.errors.join('; '), '');
  await there.close();
});

await run(async () => {
  await browser.stop();
  server.close();
  rmSync(packFolder, { recursive: true });
});
