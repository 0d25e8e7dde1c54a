// chromium.mjs -- a real browser without a screen, driven over its debugging pipe; and a server of static files.
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { extname, join, normalize } from 'node:path';

const mime = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css',
  '.wasm': 'application/wasm', '.json': 'application/json' };

/** Serves folders on this machine only: {'/': folder, '/packs/': folder}. */
export async function serve(folders, headers = {}) {
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url, 'http://x').pathname);
    const base = Object.keys(folders).sort((a, b) => b.length - a.length).find((b) => path.startsWith(b));
    const file = join(folders[base], normalize(`/${path.slice(base.length)}`), path.endsWith('/') ? 'index.html' : '');
    const data = await readFile(file).catch(() => null);
    response.writeHead(data ? 200 : 404, { 'content-type': mime[extname(file)] ?? 'application/octet-stream', ...headers });
    response.end(data ?? '');
  });
  await new Promise((r) => server.listen(0, '127.0.0.1', r));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

export const findChromium = () =>
  ['chromium', 'chromium-browser', 'google-chrome'].find((name) => spawnSync(name, ['--version']).status === 0);

export class Browser {
  #next = 1;
  #waiting = new Map();
  #rest = '';

  static async start(binary) {
    const b = new Browser();
    b.folder = mkdtempSync(join(tmpdir(), 'ambi-chromium-'));
    const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-extensions',
      '--disable-background-networking', '--remote-debugging-pipe', `--user-data-dir=${b.folder}`, 'about:blank'];
    b.process = spawn(binary, flags, { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    b.process.stdio[4].setEncoding('utf8');
    b.process.stdio[4].on('data', (text) => b.#receive(text));
    b.process.on('exit', () => b.#waiting.forEach(({ reject }) => reject(new Error('the browser ended'))));
    await b.send('Browser.getVersion');
    return b;
  }

  #receive(text) {
    const parts = (this.#rest + text).split('\0');
    this.#rest = parts.pop();
    for (const part of parts) {
      const { id, result, error, method, params } = JSON.parse(part);
      if (id === undefined) this.onEvent?.(method, params);
      const wait = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (wait) error ? wait.reject(new Error(error.message)) : wait.resolve(result);
    }
  }

  send(method, params = {}, sessionId) {
    const id = this.#next++;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  async page(url, { width = 800, height = 900, dark = false } = {}) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(this, sessionId, targetId);
    this.onEvent = (method, params) => page.event(method, params);
    for (const domain of ['Page', 'Runtime', 'Log']) await page.send(`${domain}.enable`);
    await page.look({ width, height, dark });
    await page.send('Page.navigate', { url });
    return page;
  }

  async stop() {
    const ended = new Promise((r) => this.process.once('exit', r));
    await this.send('Browser.close').catch(() => {});
    await Promise.race([ended, new Promise((r) => setTimeout(r, 5000))]);
    this.process.kill('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

class Page {
  constructor(browser, session, target) {
    Object.assign(this, { browser, session, target, errors: [] });
  }
  send(method, params) {
    return this.browser.send(method, params, this.session);
  }
  event(method, params) {
    if (method === 'Runtime.exceptionThrown') this.errors.push(params.exceptionDetails.exception?.description ?? 'exception');
    if (method === 'Log.entryAdded' && params.entry.level === 'error') this.errors.push(`${params.entry.text} ${params.entry.url}`);
  }
  async look({ width, height, dark = false }) {
    await this.send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    await this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: dark ? 'dark' : 'light' }] });
  }

  /** The value of an expression in the page; promises are waited for. */
  async value(expression) {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }
  async until(expression, seconds = 30) {
    for (const end = Date.now() + 1000 * seconds; ; await new Promise((r) => setTimeout(r, 50))) {
      const value = await this.value(expression).catch(() => undefined);
      if (value) return value;
      if (Date.now() > end) throw new Error(`${expression} was not so within ${seconds} s; errors: ${this.errors.join('; ')}`);
    }
  }

  /** A click of the mouse in the middle of an element. */
  async click(selector) {
    const query = `document.querySelector(${JSON.stringify(selector)})`;
    const box = await this.value(`(() => { const e = ${query}; e.scrollIntoView({ block: 'center' });
      const r = e.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 }; })()`);
    for (const type of ['mousePressed', 'mouseReleased'])
      await this.send('Input.dispatchMouseEvent', { type, ...box, button: 'left', clickCount: 1 });
  }
  async key(key, code = key) {
    const windowsVirtualKeyCode = { Tab: 9, ArrowRight: 39, ArrowLeft: 37, ArrowDown: 40, Enter: 13 }[key];
    const text = key === 'Enter' ? '\r' : undefined; // without it no button is pressed
    for (const type of ['keyDown', 'keyUp']) await this.send('Input.dispatchKeyEvent', { type, key, code, text, windowsVirtualKeyCode });
  }
  /** Goes on with Tab until the selector has the focus, visibly. */
  async tabTo(selector, most = 20) {
    const focused = `document.activeElement.matches(${JSON.stringify(`${selector}:focus-visible`)})`;
    for (let i = 0; i < most; i++) {
      await this.key('Tab');
      if (await this.value(focused)) return;
    }
    throw new Error(`Tab does not reach ${selector}`);
  }
  /** Types into whatever has the focus, in place of what is there. */
  async type(text) {
    await this.value('document.activeElement.select()');
    await this.send('Input.insertText', { text });
  }
  async choose(selector, value) {
    await this.value(`(() => { const e = document.querySelector(${JSON.stringify(selector)}); e.value = ${JSON.stringify(value)};
      e.dispatchEvent(new Event('change', { bubbles: true })); e.dispatchEvent(new Event('input', { bubbles: true })); })()`);
  }
  text(selector) {
    return this.value(`document.querySelector(${JSON.stringify(selector)}).textContent`);
  }
  async picture(path) {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png' });
    writeFileSync(path, Buffer.from(data, 'base64'));
  }
  close() {
    return this.browser.send('Target.closeTarget', { targetId: this.target });
  }
}
