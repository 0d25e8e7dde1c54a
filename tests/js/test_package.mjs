// test_package.mjs -- the package as a stranger gets it: packed by npm, installed from the tarball, imported by name.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { equal, ok, run, test } from './test.mjs';

const built = resolve(process.argv[2]);
if (spawnSync('npm', ['--version']).status !== 0) {
  console.log('SKIPPED test_package: there is no npm');
  console.log('0 passed, 0 failed, 1 skipped');
  process.exit(0);
}
const folder = mkdtempSync(join(tmpdir(), 'ambi-package-'));
const npm = (...args) => execFileSync('npm', [...args, '--offline', '--silent', '--no-audit', '--no-fund'], { cwd: folder, encoding: 'utf8' });

test('npm pack packs everything, and nothing else', () => {
  const [{ files, filename }] = JSON.parse(npm('pack', built, '--json'));
  const names = files.map((f) => f.path);
  for (const name of ['ambi.js', 'ambi.d.ts', 'ambi.wasm', 'ambi-relaxed.wasm', 'check.js', 'ambi-check.wasm', 'package.json', 'LICENSE', 'README.md'])
    ok(names.includes(name), `${name} is missing`);
  ok(names.every((name) => /\.(js|json|d\.ts|wasm|md)$|^LICENSE$/.test(name)), `${names}`);
  ok(readdirSync(folder).includes(filename), filename);
});

test('it installs from the tarball and runs by its name', () => {
  writeFileSync(join(folder, 'package.json'), '{"type": "module", "private": true}');
  npm('install', `./${readdirSync(folder).find((f) => f.endsWith('.tgz'))}`);
  writeFileSync(join(folder, 'use.js'), `
    import { load } from 'ambi';
    import { check } from 'ambi/check';
    const ambi = await load();
    const { y } = ambi.plan({ op: 'unary', tensors: { x: [2] }, attrs: { function: 'square' } }).run({ x: Float32Array.of(3, 4) });
    const { passed, failed } = await check(['--op', 'fill', '--quick', '--elements', '8000']);
    console.log(\`\${y} \${passed > 0} \${failed}\`);`);
  equal(execFileSync('node', ['use.js'], { cwd: folder, encoding: 'utf8' }).trim(), '9,16 true 0');
});

await run(() => rmSync(folder, { recursive: true, force: true }));
