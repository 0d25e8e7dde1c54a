// test.mjs -- tests by name; the last line counts them, as every test program's does.
import { spawnSync } from 'node:child_process';

const tests = [];
export const test = (name, body) => tests.push({ name, body });

const show = (x) => (typeof x === 'string' ? x : ArrayBuffer.isView(x) ? `[${[...x].slice(0, 8)}]` : JSON.stringify(x));

export function equal(got, wanted, what = '') {
  if (!Object.is(got, wanted)) throw new Error(`${what}: expected ${show(wanted)}, got ${show(got)}`);
}

export function ok(condition, what) {
  if (!condition) throw new Error(what);
}

/** |got - wanted| <= allowed (1 + |wanted|), everywhere. */
export function near(got, wanted, allowed, what = '') {
  equal(got.length, wanted.length, `${what}: length`);
  for (let i = 0; i < got.length; i++)
    if (!(Math.abs(Number(got[i]) - Number(wanted[i])) <= allowed * (1 + Math.abs(Number(wanted[i])))))
      throw new Error(`${what}: element ${i}: expected ${wanted[i]}, got ${got[i]}`);
}

/** The error of a call that must fail with a message that matches. */
export function throws(call, pattern, what = '') {
  let error;
  try {
    call();
  } catch (e) {
    error = e;
  }
  if (!error) throw new Error(`${what}: expected an error like ${pattern}, got none`);
  if (!pattern.test(error.message)) throw new Error(`${what}: expected an error like ${pattern}, got: ${error.message}`);
  return error;
}

export async function rejects(promise, pattern, what = '') {
  const result = await promise.then(() => null, (e) => e);
  return throws(() => { if (result) throw result; }, pattern, what);
}

/** Numbers between -1 and 1 that are the same every time. */
export function numbers(n, seed = 1) {
  let s = seed * 2654435761;
  return Float32Array.from({ length: n }, () => {
    s = (Math.imul(s, 1664525) + 1013904223) | 0;
    return (s >>> 8) / 2 ** 23 - 1;
  });
}

const relaxedFlag = '--experimental-wasm-relaxed-simd';

/** The tests of this file once more with relaxed SIMD, where node has it behind a flag. */
export function testRelaxed() {
  const node = (...args) => spawnSync(process.execPath, [relaxedFlag, ...process.execArgv, ...args], { encoding: 'utf8' });
  if (process.execArgv.includes(relaxedFlag) || node('-e', '').status !== 0) return;
  test('with relaxed SIMD', () => {
    const { stdout, status } = node(...process.argv.slice(1));
    if (status !== 0) throw new Error(stdout);
  });
}

export async function run(end = () => {}) {
  let failed = 0;
  for (const { name, body } of tests) {
    try {
      await body();
    } catch (e) {
      failed++;
      console.log(`FAIL ${name}: ${e.stack ?? e}`);
    }
  }
  await end();
  console.log(`${tests.length - failed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}
