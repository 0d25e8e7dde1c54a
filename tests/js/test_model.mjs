// test_model.mjs -- the page's small Mamba: its gradients against finite differences of its loss, and that it learns.
import { pathToFileURL } from 'node:url';
import { ok, run, test } from './test.mjs';

const root = pathToFileURL(`${process.argv[2]}/`);
const { load } = await import(new URL('ambi/ambi.js', root));
const { defaults, makeParameters, Model, Optimizer } = await import(new URL('model.js', root));
const ambi = await load();
const text = 'a man a plan a canal panama. ';
const letters = [...new Set(text)];
const ids = Int32Array.from(text.repeat(20), (c) => letters.indexOf(c));
const [batch, length] = [2, 24];
const tokens = Int32Array.from({ length: batch * length }, (_, i) => ids[i + 3 * Math.floor(i / length)]);
const targets = Int32Array.from({ length: batch * length }, (_, i) => ids[i + 1 + 3 * Math.floor(i / length)]);

// The loss is rounded to f32, so a slope over 2e has an error of about 2^-24 loss / e, beside that of the difference.
test('the gradient of every parameter, along the gradient itself', () => {
  const parameters = makeParameters(ambi, letters.length, defaults);
  const model = new Model(ambi, parameters, letters.length, { batch, length });
  model.gradients(tokens, targets);
  for (const [name, p] of Object.entries(parameters)) {
    const [value, grad] = [p.value.read(), p.grad.read()];
    const norm = Math.hypot(...grad);
    ok(norm > 0, `${name} has no gradient`);
    const e = 0.02 / Math.max(norm, 0.1);
    const lossAt = (t) => {
      p.value.write(value.map((v, i) => v + (t * grad[i]) / norm));
      model.forward(tokens);
      return model.loss.value.read()[0];
    };
    const slope = (lossAt(e) - lossAt(-e)) / (2 * e);
    p.value.write(value);
    ok(Math.abs(slope - norm) < 0.02 * norm + (4 * 2 ** -24 * 3) / e, `${name}: gradient ${norm}, slope ${slope}`);
  }
  model.free();
});

test('it learns, and the same every time', () => {
  const losses = [0, 1].map(() => {
    const parameters = makeParameters(ambi, letters.length, defaults);
    const model = new Model(ambi, parameters, letters.length, { batch, length });
    const optimizer = new Optimizer(ambi, parameters);
    const all = Array.from({ length: 60 }, () => [model.gradients(tokens, targets), optimizer.update()][0]);
    model.free();
    return all;
  });
  ok(losses[0][0] > 2 && losses[0].at(-1) < 0.3, `${losses[0][0]} to ${losses[0].at(-1)}`);
  ok(losses[0].every((l, i) => Object.is(l, losses[1][i])), 'the second run has other losses');
});

await run();
