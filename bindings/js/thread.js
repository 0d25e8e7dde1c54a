// thread.js -- a further thread of the module: the module once more, on the same memory, with a stack of its own. It
// never answers its message: it stays in the module until it is ended.
import { answerMessages } from './worker.js';

await answerMessages(({ module, memory, stack, tls }) => {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.__stack_pointer.value = stack;
  exports.__wasm_init_tls(tls);
  exports.ambi_worker();
});
