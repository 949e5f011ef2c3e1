// The programs themselves: wrong command lines, files that are not what they should be, shutting down with work in hand.
import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, before, describe, it} from 'node:test';

import {coordinatorCommand, eventually, kModelsDir, kTinyModel, patience, registered, startCoordinator, startFleet,
        startNode, startServe} from './lib/processes.mjs';
import {ask, kScript} from './lib/script.mjs';
import {parseSse} from './lib/sse.mjs';

const kBin = process.env.FLOTILLA_BIN;
const kEnvironment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('FLOTILLA_')));

const run = (program, args, options = {}) => new Promise((done) => {
  execFile(join(kBin, program), args, {env: kEnvironment, timeout: patience(30_000), ...options}, (error, stdout, stderr) =>
    done({code: error ? error.code ?? error.signal : 0, stdout, stderr}));
});
const refused = async (program, args, what) => {
  const {code, stderr, stdout} = await run(program, args);
  assert.ok(code === 1 || code === 2, `${program} ${args.join(' ')}: ${code} ${stderr}`);
  assert.match(stderr + stdout, what);
};

describe('wrong command lines', () => {
  let dir;
  before(() => { dir = mkdtempSync(join(tmpdir(), 'flotilla-programs-')); });
  after(() => { rmSync(dir, {recursive: true, force: true}); });

  it('name the nearest flag and command', async () => {
    await refused('flotilla', ['serve', '--lisen=1'], /unknown option '--lisen'; did you mean '--listen'/);
    await refused('flotilla', ['serv'], /unknown command 'serv'; did you mean 'serve'/);
    await refused('flotilla-coordinator', ['keys', 'revok', '1'], /did you mean 'revoke'/);
  });
  it('name the file that is a folder or missing', async () => {
    await refused('flotilla', ['serve', '--scripted', dir], /directory/);
    await refused('flotilla', ['serve', '--config', dir], /directory/);
    await refused('flotilla-coordinator', ['serve', '--config', join(dir, 'none.toml')], /none\.toml.*No such file/);
  });
  it('do not make databases or keys by accident', async () => {
    const database = join(dir, 'mistyped.sqlite');
    await refused('flotilla-coordinator', ['keys', 'list', '--database', database], /mistyped\.sqlite/);
    await refused('flotilla-coordinator', ['nodes', 'revoke', 'x', '--database', database], /mistyped\.sqlite/);
    assert.ok(!existsSync(database));
    const unusable = join(dir, 'folder');
    mkdirSync(unusable);
    await refused('flotilla-coordinator', ['serve', '--database', unusable, '--listen', '127.0.0.1:0'], /folder/);
    assert.ok(!existsSync(`${unusable}.key`));
  });
  it('name an API key that can never match', async () => {
    await refused('flotilla', ['serve', '--api-keys', ''], /api_keys/);
  });
  it('refuse negative seeds and two questions at once', async () => {
    const ask = ['run', kTinyModel, '--models-dir', kModelsDir, '--prompt', 'x'];
    await refused('flotilla', [...ask, '--seed', '-1'], /seed/);
    await refused('flotilla', [...ask, '--text', 'y'], /--text/);
  });
});

describe('flotilla models', () => {
  it('name a tensor that the index lacks', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'flotilla-models-'));
    const model = join(dir, 'lacking');
    cpSync(join(kModelsDir, kTinyModel), model, {recursive: true});
    const file = readFileSync(join(model, 'model.safetensors'));
    const header = JSON.parse(file.subarray(8, 8 + Number(file.readBigUInt64LE(0))).toString());
    const missing = Object.keys(header).find((name) => name.endsWith('layers.1.mlp.down_proj.weight'));
    assert.ok(missing);
    const names = Object.keys(header).filter((name) => name !== '__metadata__' && name !== missing);
    writeFileSync(join(model, 'model.safetensors.index.json'),
                  JSON.stringify({weight_map: Object.fromEntries(names.map((name) => [name, 'model.safetensors']))}));
    try {
      for (const args of [['list'], ['inspect', 'lacking']]) {
        const {code, stdout, stderr} = await run('flotilla', ['models', ...args, '--models-dir', dir]);
        assert.equal(code, 1, stdout);
        assert.match(stdout + stderr, /layers\.1\.mlp\.down_proj/, args[0]);
      }
      const sound = await run('flotilla', ['models', 'list', '--models-dir', kModelsDir]);
      assert.equal(sound.code, 0, sound.stdout);
    } finally {
      rmSync(dir, {recursive: true, force: true});
    }
  });
});

describe('flotilla run', () => {
  it('fails when the answer cannot be written', async () => {
    const {code, stderr} = await new Promise((done) => execFile('/bin/sh',
      ['-c', `exec '${kBin}/flotilla' run ${kTinyModel} --models-dir '${kModelsDir}' --prompt hello > /dev/full`],
      {env: kEnvironment}, (error, stdout, stderr) => done({code: error?.code ?? 0, stderr})));
    assert.equal(code, 1, stderr);
    assert.match(stderr, /cannot write the answer/);
  });
});

for (const [name, start] of Object.entries({
  'flotilla serve': () => startServe({script: kScript, args: ['--drain-timeout-s', '0']}),
  'flotilla-coordinator': () => startFleet({script: kScript, args: ['--drain-timeout-s', '0']}),
})) {
  describe(`${name}, stopped while it works`, () => {
    it('ends streams with an error event and others with a status', {timeout: patience(60_000)}, async () => {
      const d = await start();
      try {
        const streamed = await d.post(ask('endless', {stream: true}));
        const text = streamed.text();
        const whole = d.post(ask('endless'));
        await new Promise((done) => setTimeout(done, 300));
        d.main.terminate();
        const {frames} = parseSse(await text);
        assert.ok(frames.at(-1).error, JSON.stringify(frames.at(-1)));
        const answer = await whole;
        assert.equal(answer.status, 503);
        assert.ok((await answer.json()).error.message);
      } finally {
        await d.stop();
      }
    });
  });
}

describe('a node', () => {
  it('keeps its state folder to itself, and a bad token does not replace a good one', {timeout: patience(60_000)}, async () => {
    const d = await startCoordinator();
    try {
      startNode(d, {script: kScript});
      await registered(d, 1);
      const state = join(d.dir, 'node-0');
      const token = await eventually('the kept token', async () => readFileSync(join(state, 'join-token'), 'utf8'));
      const second = await run('flotilla', ['provider', '--scripted', d.writeScript(kScript), '--state-dir', state]);
      assert.equal(second.code, 1);
      assert.match(second.stderr, /another flotilla provider/);
      await d.nodes[0].stop();
      const stranger = coordinatorCommand(d, ['nodes', 'invite', 'stranger', '--url', d.link, '--quiet']);
      coordinatorCommand(d, ['nodes', 'revoke', 'stranger']);
      const turned = await run('flotilla', ['provider', '--scripted', d.writeScript(kScript), '--state-dir', state, '--join', stranger]);
      assert.equal(turned.code, 1, turned.stderr);
      assert.equal(readFileSync(join(state, 'join-token'), 'utf8'), token);
    } finally {
      await d.stop();
    }
  });
});
