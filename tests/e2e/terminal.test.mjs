// What people do at a terminal: paste, and close the window.
import assert from 'node:assert/strict';
import {execFile, spawn} from 'node:child_process';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {after, before, describe, it} from 'node:test';

import {eventually, invite, kModelsDir, kTinyModel, patience, startFleet} from './lib/processes.mjs';
import {kScript} from './lib/script.mjs';

const kFlotilla = join(process.env.FLOTILLA_BIN, 'flotilla');
const kHelper = fileURLToPath(new URL('lib/terminal.py', import.meta.url));
const kEnvironment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('FLOTILLA_')));

const onTerminal = (mode, args, more) => new Promise((done) => {
  const env = {...kEnvironment, TERM: 'xterm', SECONDS_LEFT: String(patience(30_000) / 1000), ...more};
  execFile('python3', [kHelper, mode, kFlotilla, ...args], {env, timeout: patience(60_000)},
           (error, stdout, stderr) => done({code: error ? error.code ?? error.signal : 0, stdout, stderr}));
});

describe('flotilla run', () => {
  it('takes pasted lines for one message', {timeout: patience(90_000)}, async () => {
    const {code, stdout, stderr} = await onTerminal(
      'paste', ['run', kTinyModel, '--models-dir', kModelsDir, '--max-tokens', '4'],
      {TEXT: 'first line\n\tsecond, "naïve" ☃\nthird', READY: 'tokens/s'});
    assert.equal(code, 0, stderr);
    assert.equal(stdout.split('tokens/s').length - 1, 1, `one answer to one message:\n${stdout}`);
    assert.match(stdout, /third/);
    assert.match(stdout, /☃/);
  });
});

describe('flotilla provider', () => {
  let d;
  before(async () => { d = await startFleet({script: kScript}); });
  after(async () => { await d?.stop(); });

  const provider = (name) => ['provider', '--join', invite(d, name), '--state-dir', join(d.dir, name),
                              '--scripted', d.writeScript(kScript)];

  it('stops when its terminal is closed', {timeout: patience(90_000)}, async () => {
    const {code, stdout, stderr} = await onTerminal('hangup', provider('windowed'), {READY: 'link_up'});
    assert.equal(code, 0, stderr);
    assert.equal(stdout.trim(), '0', 'a clean exit');
  });
  it('goes on without a terminal', {timeout: patience(90_000)}, async () => {
    const child = spawn(kFlotilla, provider('daemon'), {env: kEnvironment, detached: true, stdio: ['ignore', 'pipe', 'pipe']});
    let log = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => { log += text; });
    const exited = new Promise((done) => child.on('exit', done));
    await eventually('the node', () => { assert.equal(child.exitCode, null, log); return log.includes('link_up'); });
    child.kill('SIGHUP');
    const ended = await Promise.race([exited, new Promise((done) => setTimeout(() => done('still there'), 500))]);
    assert.equal(ended, 'still there', log);
    child.kill('SIGTERM');
    assert.equal(await exited, 0, log);
  });
});
