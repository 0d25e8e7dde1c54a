// pack-instance.js -- a kernel's instance as the host sees it: a worker with one call at a time and a deadline on each.
import { AmbiError } from './wasm.js';
import { startWorker } from './worker.js';

const patience = 60000;
const here = new URL('./pack-worker.js', import.meta.url);

export class Instance {
  #worker;
  #waiting = null;
  ended = false;

  static async start(k, module) {
    const i = new Instance();
    i.id = k.id;
    i.#worker = await startWorker(here);
    const lost = (why) => i.#settle('reject', new AmbiError(`${k.id}: ${why}`, 'device lost'));
    i.#worker.listen((m) => i.#settle('resolve', m), lost);
    try {
      await i.#answer(patience); // the worker says that it has begun: that takes time which is not the module's
      await i.ask({ start: { module, entry: k.entry } }, k.ticks);
    } catch (e) {
      i.end();
      throw e;
    }
    return i;
  }

  #settle(how, value) {
    const wait = this.#waiting;
    this.#waiting = null;
    wait?.[how](value);
  }

  /** The worker's answer to a message. */
  ask(message, ticks) {
    if (this.ended) throw new AmbiError(`${this.id}: the instance has ended`, 'device lost');
    const answer = this.#answer(ticks);
    this.#worker.post(message);
    return answer;
  }

  /** What the worker says next, or its end: `ticks` milliseconds from now, when it has said nothing. */
  async #answer(ticks) {
    const answer = new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
    this.#worker.hold(true);
    const late = setTimeout(() => {
      this.#settle('reject', new AmbiError(`${this.id}: the deadline of ${ticks} ms has passed`, 'timeout'));
      this.end();
    }, ticks);
    try {
      const data = await answer;
      if (data.error === undefined) return data;
      this.end();
      throw new AmbiError(`${this.id}: ${data.error}`, data.status);
    } finally {
      clearTimeout(late);
      if (!this.ended) this.#worker.hold(false);
    }
  }

  end() {
    if (this.ended) return;
    this.ended = true;
    this.#worker.end();
    this.#settle('reject', new AmbiError(`${this.id}: the instance was ended`, 'device lost'));
  }
}
