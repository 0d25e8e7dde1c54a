// pack-instance.js -- a kernel's instance as the host sees it: a worker with one call at a time and a deadline on each.
import { AmbiError } from './wasm.js';
import { startWorker } from './worker.js';

const patience = 60000;
const here = new URL('./pack-worker.js', import.meta.url);

/** So many milliseconds from now. */
export const deadlineIn = (ticks) => ({ ticks, at: performance.now() + ticks });
const left = (deadline) => Math.ceil(deadline.at - performance.now());

export class Instance {
  #info;
  #module;
  #worker = null;
  #waiting = null;
  #started = false;
  ended = false;

  constructor(info, module) {
    this.#info = info;
    this.#module = module;
    /** The worker is there, and none of the module's code has run. */
    this.booted = this.#boot();
    this.booted.catch(() => {}); // whoever needs it asks
  }

  #error(why, status = 'device lost') {
    return new AmbiError(`${this.#info.id}: ${why}`, status);
  }

  async #boot() {
    const worker = await startWorker(here);
    if (this.ended) {
      worker.end();
      throw this.#error('the instance was ended');
    }
    this.#worker = worker;
    worker.listen((m) => this.#settle('resolve', m), (why) => this.end(this.#error(why)));
    await this.#answer(deadlineIn(patience), 'the worker did not begin');
  }

  #settle(how, value) {
    const wait = this.#waiting;
    this.#waiting = null;
    wait?.[how](value);
  }

  /** The worker's answer to a call, the module having been started: all of it before the deadline. */
  async call(call, deadline) {
    if (this.ended) throw this.#error('the instance has ended');
    if (!this.#started) await this.start(deadline);
    return this.#ask({ call }, deadline);
  }

  /** A worker that boots slowly is not to blame: it goes on for the next call. Code of the module's is ended. */
  async start(deadline) {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(this.#late(deadline)), left(deadline));
    });
    await Promise.race([this.booted, late]).finally(() => clearTimeout(timer));
    await this.#ask({ start: { module: this.#module, entry: this.#info.entry } }, deadline);
    this.#started = true;
  }

  #late({ ticks }) {
    return this.#error(`the deadline of ${ticks} ms has passed`, 'timeout');
  }

  #ask(message, deadline) {
    if (this.ended) throw this.#error('the instance has ended');
    const answer = this.#answer(deadline);
    this.#worker.post(message);
    return answer;
  }

  /** What the worker says next, or its end: at the deadline, when it has said nothing. */
  async #answer(deadline, sentence) {
    const answer = new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
    this.#worker.hold(true);
    const expired = () => this.end(sentence ? this.#error(sentence) : this.#late(deadline));
    const timer = setTimeout(expired, left(deadline));
    try {
      const data = await answer;
      if (data.error === undefined) return data;
      this.end();
      throw this.#error(data.error, data.status);
    } finally {
      clearTimeout(timer);
      if (!this.ended) this.#worker.hold(false);
    }
  }

  end(why = this.#error('the instance was ended')) {
    if (this.ended) return;
    this.ended = true;
    this.#worker?.end();
    this.#settle('reject', why);
  }
}
