// worker.js -- a worker of the browser's or of node's, behind one face.

/** {post, listen, end, hold}: hold says whether an idle worker keeps node alive. */
export async function startWorker(url) {
  if (typeof Worker === 'function') {
    const w = new Worker(url, { type: 'module' });
    return {
      post: (m) => w.postMessage(m),
      listen(take, fail) {
        w.onmessage = ({ data }) => take(data);
        w.onerror = (e) => fail(e.message ?? 'the worker failed');
      },
      end: () => w.terminate(),
      hold() {},
    };
  }
  const { Worker: Thread } = await import('node:worker_threads');
  const w = new Thread(url, { execArgv: [] }); // node's own flags may be none of a file's
  return {
    post: (m) => w.postMessage(m),
    listen(take, fail) {
      w.on('message', take);
      w.on('error', (e) => fail(e.message));
      w.on('exit', () => fail('the worker ended'));
    },
    end: () => w.terminate(),
    hold: (on) => (on ? w.ref() : w.unref()),
  };
}

/** In the worker: answers each message with what `answer` makes of it, having said once that it has begun. */
export async function answerMessages(answer) {
  if (typeof self === 'object' && typeof postMessage === 'function') {
    onmessage = ({ data }) => postMessage(answer(data));
    postMessage({});
    return;
  }
  const { parentPort } = await import('node:worker_threads');
  parentPort.on('message', (data) => parentPort.postMessage(answer(data)));
  parentPort.postMessage({});
}
