// check.js -- `ambi check` in JavaScript: the kernels that load() takes against the reference, and the reference
// against finite differences. It keeps its thread busy until it ends: in a page, run it in a worker.
//
//   node check.js --op rmsnorm --quick
import { checkKeys, compile, hasRelaxed, readBytes } from './wasm.js';
import { runProgram } from './wasi.js';

/** With the kernels of ambi-relaxed.wasm where load() takes that, else of ambi.wasm. */
const program = (relaxed) =>
  new URL(relaxed && hasRelaxed() ? './ambi-check-relaxed.wasm' : './ambi-check.wasm', import.meta.url);

/**
 * Runs the check with the options of `ambi check` (['--op', 'rmsnorm']); `onLine` gets each line of its report.
 * vectors: {'ops.json': bytes, 'ops.safetensors': bytes} to agree with; relaxed: as load() has it.
 * Gives {passed, failed, skipped, lines, status}.
 */
export async function check(options = [], how = {}) {
  checkKeys(how, ['onLine', 'vectors', 'relaxed', 'wasm'], 'check');
  const { onLine, vectors, relaxed = true, wasm = program(relaxed) } = how;
  const lines = [];
  const take = (line) => {
    lines.push(line);
    onLine?.(line);
  };
  const files = Object.fromEntries(Object.entries(vectors ?? {}).map(([name, bytes]) => [`vectors/${name}`, bytes]));
  const args = ['ambi', 'check', ...options, ...(vectors ? ['--vectors', '/vectors'] : [])];
  const status = await runProgram(await compile(wasm), { args, files, out: take, err: take });
  const last = lines.findLast((l) => /^\d+ passed, \d+ failed/.test(l)) ?? '';
  const [passed = 0, failed = 0, skipped = 0] = (last.match(/\d+/g) ?? []).map(Number);
  return { passed, failed, skipped, lines, status };
}

/** --vectors DIR, which means a folder of this machine, is taken out of the options and read. */
async function main(options) {
  if (options[0] === 'info') {
    process.exitCode = await runProgram(await compile(program(true)), { args: ['ambi', ...options] });
    return;
  }
  const at = options.indexOf('--vectors');
  let vectors;
  if (at >= 0) {
    const { pathToFileURL } = await import('node:url');
    const folder = pathToFileURL(`${options[at + 1]}/`);
    const read = async (name) => [name, new Uint8Array(await readBytes(new URL(name, folder)))];
    vectors = Object.fromEntries(await Promise.all(['ops.json', 'ops.safetensors'].map(read)));
    options.splice(at, 2);
  }
  const { status } = await check(options, { vectors, onLine: (line) => console.log(line) });
  process.exitCode = status;
}

if (typeof process === 'object' && process.argv?.[1] && import.meta.url.endsWith('/check.js')) {
  const { realpathSync } = await import('node:fs');
  const { fileURLToPath } = await import('node:url');
  if (realpathSync(process.argv[1]) === realpathSync(fileURLToPath(import.meta.url))) await main(process.argv.slice(2));
}
