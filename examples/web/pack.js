// pack.js -- the page of kernel packs: a folder or an address is opened with the key of whom one trusts, a kernel is run.
import { PackHost } from './ambi/pack.js';

const $ = (id) => document.getElementById(id);
let host = null;
let pack = null;
let kernel = null;

let turn = Promise.resolve();

async function take(line, work) {
  $(line).className = '';
  $(line).textContent = '..';
  try {
    $(line).textContent = await work();
    $(line).className = 'good';
  } catch (e) {
    $(line).textContent = e.message;
    $(line).className = 'bad';
  }
}

/** What a step does, and in its line what went wrong. One after another: each finds the kernel the last has left. */
const step = (line, work) => (event) => {
  event?.preventDefault();
  turn = turn.then(() => take(line, work));
};

// ---- the pack ------------------------------------------------------------------------------------------------------
/** Chosen files by their path below the folder; each is read when the host asks for it, if it is not too large. */
function chosen(files) {
  const named = new Map([...files].map((f) => [f.webkitRelativePath.split('/').slice(1).join('/'), f]));
  return async (name, most) => {
    const file = named.get(name);
    return file && new Uint8Array(await file.slice(0, most + 1).arrayBuffer());
  };
}

const open = async () => {
  kernel?.close();
  pack?.close();
  pack = kernel = null;
  $('call').hidden = true;
  $('checks').textContent = '';
  $('checks-of').hidden = false;
  const report = (check, passed, sentence) => $('checks').append(`${passed ? 'ok  ' : 'FAIL'} ${check}: ${sentence}\n`);
  host = new PackHost({ trusted: [$('key').value], report });
  const { files } = $('folder');
  pack = await host.open(files.length ? chosen(files) : $('address').value);
  $('kernel').replaceChildren(...pack.kernels.map((id) => new Option(id)));
  $('call').hidden = false;
  await choose();
  return `${pack.name} ${pack.version}: ${pack.kernels.length} kernels, signed by the key you trust`;
};

/** Compiled, started and self-tested; a field for each param. */
async function choose() {
  kernel?.close();
  kernel = await pack.kernel($('kernel').value);
  $('params').replaceChildren(...kernel.params.map(({ name, absent, type }) => {
    const input = Object.assign(document.createElement('input'), { type: 'number', step: type === 'u32' ? 1 : 'any', value: absent });
    input.dataset.param = name;
    const label = document.createElement('label');
    label.append(`${name} `, input);
    return label;
  }));
}

// ---- numbers -------------------------------------------------------------------------------------------------------
function numbers(text, what) {
  const words = text.split(/[\s,]+/).filter(Boolean);
  const bad = words.find((w) => Number.isNaN(Number(w)) && w.toLowerCase() !== 'nan');
  if (bad) throw new Error(`${what}: '${bad}' is no number`);
  return Float32Array.from(words, Number);
}

/** The head of an .npy file and where its numbers begin. Its length has two bytes in format 1.0, four in 2.0. */
function headOf(bytes) {
  const view = new DataView(bytes);
  const magic = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
  if (bytes.byteLength < 12 || magic.some((b, i) => view.getUint8(i) !== b)) return { text: '', from: 0 };
  const from = [0, 10 + view.getUint16(8, true), 12 + view.getUint32(8, true)][view.getUint8(6)] ?? 0;
  return { text: new TextDecoder().decode(bytes.slice(0, Math.min(from, 4096))), from };
}

/** The numbers of an .npy file of little-endian f32 in C order. */
async function readNpy(file) {
  const bytes = await file.arrayBuffer();
  const { text, from } = headOf(bytes);
  if (!/'descr': '<f4', 'fortran_order': False/.test(text))
    throw new Error(`${file.name}: not an .npy file of little-endian f32 in C order`);
  return new Float32Array(bytes.slice(from, from + 4 * Math.floor((bytes.byteLength - from) / 4)));
}

const show = (floats) => Array.from(floats, (x) => Number(x.toPrecision(9))).join(', ');

const run = async () => {
  const pass = $('pass').value;
  const [a, b, w] = ['a', 'b', 'weight'].map((id) => numbers($(id).value, id));
  const weight = pass === 'backward' && w.length ? w : undefined; // norms have it in b forward
  const params = Object.fromEntries([...$('params').querySelectorAll('input')].map((i) => [i.dataset.param, Number(i.value)]));
  const out = 4 * Number($('count').value === '' ? a.length : $('count').value);
  const begin = performance.now();
  const got = await kernel.run({ pass, a, b, weight, out, scratch: 4 * Number($('room').value), params });
  const took = performance.now() - begin;
  $('out').hidden = false;
  $('out').textContent = show(got.out) + (got.scratch.length ? `\n\nscratch\n${show(got.scratch)}` : '');
  return `${kernel.id} took ${took.toFixed(1)} ms`;
};

// ---- the page ------------------------------------------------------------------------------------------------------
$('open').addEventListener('submit', step('verdict', open));
$('kernel').addEventListener('change', step('result', async () => (await choose(), '')));
$('pass').addEventListener('change', () => { $('weighted').hidden = $('pass').value === 'forward'; });
$('call').addEventListener('submit', step('result', run));
for (const input of document.querySelectorAll('[data-for]'))
  input.addEventListener('change', step('result', async () => {
    if (input.files.length) $(input.dataset.for).value = show(await readNpy(input.files[0]));
    return '';
  }));
document.body.dataset.ready = 'yes';
