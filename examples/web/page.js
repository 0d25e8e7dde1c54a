// page.js -- the page: tabs, the op explorer, and the three tasks that the worker does.
import { load } from './ambi/ambi.js';
import { curve, inputNames, shapes } from './ops.js';
import { plot } from './plot.js';

const $ = (id) => document.getElementById(id);
const make = (name, properties = {}, ...children) => {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
};

function showFailure(error) {
  $('failure').hidden = false;
  $('failure').textContent = error.message ?? String(error);
}

// ---- tabs: arrows move between them, as in any tab list ------------------------------------------------------------
const tabs = [...document.querySelectorAll('[role=tab]')];

function select(tab, focus) {
  for (const t of tabs) {
    const chosen = t === tab;
    t.setAttribute('aria-selected', chosen);
    t.tabIndex = chosen ? 0 : -1;
    $(t.getAttribute('aria-controls')).hidden = !chosen;
  }
  if (focus) tab.focus();
  history.replaceState(null, '', `#${tab.getAttribute('aria-controls')}`);
  dispatchEvent(new Event('resize')); // plots were hidden, and had no size
}

for (const [i, tab] of tabs.entries()) {
  tab.addEventListener('click', () => select(tab));
  tab.addEventListener('keydown', (e) => {
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    select(tabs[(to + tabs.length) % tabs.length], true);
  });
}
select(tabs.find((t) => `#${t.getAttribute('aria-controls')}` === location.hash) ?? tabs[0]);

// ---- ops -----------------------------------------------------------------------------------------------------------
function field(attr) {
  const id = `attr-${attr.name}`;
  let input;
  if (attr.type === 'enum') {
    input = make('select', { id }, ...attr.values.map((v) => make('option', { value: v, textContent: v })));
  } else if (attr.type === 'boolean') {
    input = make('input', { id, type: 'checkbox', checked: attr.default });
  } else {
    input = make('input', { id, type: 'number', step: attr.type === 'integer' ? 1 : 'any', value: attr.default });
  }
  input.title = attr.doc;
  return make('label', {}, `${attr.name} `, input);
}

/** Those that were changed: 0 says the default to the library, and so does an empty field. */
function attrsOf(op) {
  const value = (attr) => {
    const input = $(`attr-${attr.name}`);
    if (attr.type === 'boolean') return input.checked;
    return attr.type === 'enum' ? input.value : input.value === '' ? attr.default : Number(input.value);
  };
  const all = op.attrs.map((attr) => [attr, value(attr)]);
  return Object.fromEntries(all.filter(([attr, v]) => v !== attr.default).map(([attr, v]) => [attr.name, v]));
}

function slotRows(op) {
  const head = make('tr', {}, ...['slot', 'shape', 'what it is'].map((t) => make('th', { textContent: t })));
  const kind = (s) => [s.output ? 'output' : 'input', s.optional && 'optional', s.saved && 'saved'].filter(Boolean).join(', ');
  return [head, ...op.slots.map((s) => make('tr', {}, make('td', {}, make('code', { textContent: s.name })),
    make('td', { textContent: s.shape }), make('td', { className: 'wide', textContent: `${s.doc} (${kind(s)})` })))];
}

/** The largest difference between gradient and measured slope, as a part of the largest slope. */
function disagreement(c) {
  const exact = new Map(c.backward.map(([x, y]) => [x, y]));
  const most = Math.max(...c.backward.map(([, y]) => Math.abs(y)), 1e-9);
  return Math.max(0, ...c.measured.map(([x, y]) => Math.abs(y - exact.get(x)) / most));
}

function showCurve(ambi, op) {
  const c = curve(ambi, op, { attrs: attrsOf(op), input: $('input').value || undefined });
  const series = [{ points: c.forward }, { points: c.backward }, { points: c.measured, dots: true }];
  plot($('curve'), series, `${c.output} of ${op.name} as one element of ${c.moving} goes from -4 to 4, and its gradient`);
  $('agree').textContent = c.measured.length
    ? `they differ by at most ${(100 * disagreement(c)).toFixed(2)}% of the steepest slope`
    : op.backward ? '' : 'this op has no backward pass';
}

function showOp(ambi) {
  const op = ambi.ops[$('op').value];
  $('formula').textContent = op.formula;
  $('gradient').textContent = op.backward ? op.gradient : 'none';
  $('doc').textContent = op.doc;
  $('slots').replaceChildren(...slotRows(op));
  $('attrs').replaceChildren(...op.attrs.map(field));
  const names = inputNames(op).filter((name) => name in shapes[op.name]);
  $('input').replaceChildren(...names.map((name) => make('option', { value: name, textContent: name })));
  refresh(ambi);
}

function refresh(ambi) {
  try {
    $('failure').hidden = true;
    showCurve(ambi, ambi.ops[$('op').value]);
  } catch (e) {
    showFailure(e);
  }
}

// ---- tasks: one worker each, with a button that starts it and one that stops it ------------------------------------
function task(name, { begin, message, end }) {
  const [run, stop, progress, result] = ['run', 'stop', 'progress', 'result'].map((part) => $(`${name}-${part}`));
  let patience;
  const finish = (worker, text, bad) => {
    clearTimeout(patience);
    worker.terminate();
    run.disabled = false;
    stop.disabled = true;
    result.className = bad ? 'bad' : 'good';
    result.textContent = text;
    result.dataset.done = bad ? 'failed' : 'yes';
  };
  run.addEventListener('click', () => {
    const worker = new Worker(new URL('./work.js', import.meta.url), { type: 'module' });
    run.disabled = true;
    stop.disabled = false;
    progress.value = 0;
    result.className = '';
    result.textContent = 'working ..';
    delete result.dataset.done;
    const seen = { passed: 0, failed: 0, stopped: true };
    stop.onclick = () => {
      worker.postMessage('stop');
      patience = setTimeout(() => finish(worker, ...end(seen)), 700); // a check looks up between ops alone
    };
    worker.onerror = (e) => finish(worker, e.message ?? 'the worker failed', true);
    worker.onmessage = ({ data }) => {
      if (data.progress !== undefined) progress.value = data.progress;
      if (data.passed !== undefined) Object.assign(seen, { passed: data.passed, failed: data.failed });
      if (data.error) finish(worker, data.error, true);
      else if (data.done) finish(worker, ...end(data));
      else message(data, result);
    };
    worker.postMessage({ task: name, ...begin() });
  });
}

function startCheck(ambi) {
  const all = Object.keys(ambi.ops);
  task('check', {
    begin() {
      $('check-log').textContent = '';
      return { ops: $('check-op').value ? [$('check-op').value] : all, quick: $('quick').checked };
    },
    message({ line, passed, failed }, result) {
      if (line) $('check-log').append(`${line}\n`);
      if (passed !== undefined) result.textContent = `${passed} passed, ${failed} failed`;
      $('check-log').scrollTop = $('check-log').scrollHeight;
    },
    end: (d) => [`${d.passed} passed, ${d.failed} failed${d.stopped ? ', stopped' : ''}`, d.failed > 0],
  });
}

function startBench() {
  const table = $('bench-table');
  const cell = (text, number) => make('td', { textContent: text, className: number ? 'number' : '' });
  task('bench', {
    begin() {
      const heads = ['op', 'pass', 'ms', 'GFLOP/s', 'GB/s'];
      table.replaceChildren(make('tr', {}, ...heads.map((t, i) => make('th', { textContent: t, className: i > 1 ? 'number' : '' }))));
      return {};
    },
    message({ row }, result) {
      const numbers = [row.ms.toFixed(3), row.gflops.toFixed(2), row.gbps.toFixed(2)];
      table.append(make('tr', {}, cell(row.op), cell(row.pass), ...numbers.map((t) => cell(t, true))));
      result.textContent = `${row.op} ${row.pass}`;
    },
    end: (d) => [d.stopped ? 'stopped' : `${table.rows.length - 1} kernels timed`, false],
  });
}

function startTrain() {
  let points = [];
  task('train', {
    begin() {
      points = [];
      $('sample').textContent = '';
      return { text: $('text').value, steps: Number($('steps').value), rate: Number($('rate').value) };
    },
    message({ step, loss, tokens, sample, parameters, vocabulary }, result) {
      if (parameters) return void ($('sample').textContent = `${parameters} parameters, ${vocabulary} characters\n`);
      points.push([step, loss]);
      if (sample) $('sample').textContent = sample;
      if (step % 5 && !sample) return;
      plot($('loss'), [{ points }], `the loss after ${step + 1} steps is ${loss.toFixed(3)}`);
      result.textContent = `step ${step + 1}: loss ${loss.toFixed(3)}, ${Math.round(tokens)} tokens a second`;
      result.dataset.loss = loss;
    },
    end(d) {
      const [first, last] = [points[0]?.[1], points.at(-1)?.[1]];
      const text = first === undefined ? 'no steps' : `${points.length} steps: loss ${first.toFixed(3)} to ${last.toFixed(3)}`;
      return [`${text}${d.stopped ? ', stopped' : ''}`, false];
    },
  });
  addEventListener('resize', () => $('train').hidden || plot($('loss'), [{ points }], `${points.length} steps`));
}

const poem = `Two roads there were, and both ran through the wood;
one ran ahead, the other ran behind.
I took the first as far as it was good,
and took the second home, with what to find.
`;

async function start() {
  const ambi = await load();
  const { module, name } = ambi.device;
  $('about').textContent += ` ambi ${ambi.version}, device ${name} (${module}), ${Object.keys(ambi.ops).length} ops.`;
  for (const op of Object.keys(ambi.ops)) {
    if (op in shapes) $('op').append(make('option', { value: op, textContent: op }));
    $('check-op').append(make('option', { value: op, textContent: op }));
  }
  $('check-op').prepend(make('option', { value: '', textContent: 'all of them', selected: true }));
  $('op').addEventListener('change', () => showOp(ambi));
  $('input').addEventListener('change', () => refresh(ambi));
  $('attrs').addEventListener('input', () => refresh(ambi));
  addEventListener('resize', () => $('ops').hidden || refresh(ambi));
  $('attrs').addEventListener('submit', (e) => e.preventDefault());
  $('text').value = poem.repeat(3);
  showOp(ambi);
  startCheck(ambi);
  startBench();
  startTrain();
  document.body.dataset.ready = 'yes';
}

start().catch(showFailure);
