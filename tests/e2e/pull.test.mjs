// Models that come over HTTP: from a folder, from a hub, in more than one try.
import assert from 'node:assert/strict';
import {execFileSync, spawn} from 'node:child_process';
import {existsSync, mkdtempSync, readdirSync, rmSync, statSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, before, describe, it} from 'node:test';

import {serveFolder} from './lib/file_server.mjs';
import {eventually, kModelsDir, kTinyModel, patience} from './lib/processes.mjs';

const kFlotilla = join(process.env.FLOTILLA_BIN, 'flotilla');
const kEnvironment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('FLOTILLA_') && !name.startsWith('HF_')));

describe('models pull', () => {
  const source = join(kModelsDir, kTinyModel);
  const run = (args, extra = {}) => execFileSync(kFlotilla, args, {env: {...kEnvironment, ...extra}, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe']});
  const pull = (from, dir, args = [], extra = {}) => new Promise((done, failed) => {
    const child = spawn(kFlotilla, ['models', 'pull', from, '--models-dir', dir, ...args], {env: {...kEnvironment, ...extra}});
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => { text += piece; });
    child.on('exit', (code) => (code === 0 ? done(text) : failed(new Error(text))));
  });
  let dir, digest;

  before(() => {
    dir = mkdtempSync(join(tmpdir(), 'flotilla-pull-'));
    digest = /model digest ([0-9a-f]{64})/.exec(run(['models', 'verify', source]))[1];
  });
  after(() => rmSync(dir, {recursive: true, force: true}));

  it('goes on after kill -9 in the middle', {timeout: patience(90_000)}, async () => {
    const server = await serveFolder(source);
    const models = join(dir, 'killed');
    const part = join(models, '.tiny.pull', 'model.safetensors.part');
    server.bytesPerTick = 65_536;
    const child = spawn(kFlotilla, ['models', 'pull', `${server.url}/models/tiny`, '--models-dir', models], {env: kEnvironment, stdio: 'ignore'});
    const gone = new Promise((done) => child.on('exit', done));
    await eventually('a part', () => existsSync(part) && statSync(part).size > 500_000, 30_000);
    await assert.rejects(pull(`${server.url}/models/tiny`, models), /another pull/);
    child.kill('SIGKILL');
    await gone;
    const kept = statSync(part).size;
    assert.ok(!existsSync(join(models, 'tiny')));
    assert.match(run(['models', 'list', '--models-dir', models]), /No models/);
    server.bytesPerTick = Infinity;
    assert.match(await pull(`${server.url}/models/tiny`, models), new RegExp(`digest ${digest}`));
    const resumed = server.requests.filter((request) => request.range).map((request) => Number(request.range.slice(6, -1)));
    assert.ok(resumed.some((from) => from >= kept), `${resumed} against ${kept}`);
    assert.deepEqual(readdirSync(models), ['tiny']);
    assert.match(run(['models', 'verify', join(models, 'tiny')]), new RegExp(digest));
    server.close();
  });

  it('stops when it is asked to, and keeps what it has', {timeout: patience(60_000)}, async () => {
    const server = await serveFolder(source);
    const models = join(dir, 'stopped');
    const part = join(models, '.tiny.pull', 'model.safetensors.part');
    server.bytesPerTick = 65_536;
    const child = spawn(kFlotilla, ['models', 'pull', `${server.url}/models/tiny`, '--models-dir', models], {env: kEnvironment, stdio: 'ignore'});
    const gone = new Promise((done) => child.on('exit', (code) => done(code)));
    await eventually('a part', () => existsSync(part) && statSync(part).size > 100_000, 30_000);
    child.kill('SIGINT');
    assert.notEqual(await gone, 0);
    assert.ok(statSync(part).size > 100_000);
    server.close();
  });

  it('takes one commit of a hub, with a token that it shows nobody', {timeout: patience(60_000)}, async () => {
    const hub = await serveFolder(source, {hub: true});
    const out = await pull('hf:org/tiny', join(dir, 'hub'), ['--hub', hub.url], {HF_TOKEN: 'hf_a-secret-token'});
    assert.match(out, new RegExp(`digest ${digest}`));
    assert.ok(!out.includes('hf_a-secret'));
    assert.ok(hub.requests.every((request) => request.authorization === 'Bearer hf_a-secret-token'));
    assert.ok(hub.requests.some((request) => request.url.startsWith('/org/tiny/resolve/0123abcd/')));
    hub.close();
  });

  it('says what is wrong with a source', {timeout: patience(60_000)}, async () => {
    const server = await serveFolder(source);
    await assert.rejects(pull('some-name', join(dir, 'x')), /--coordinator/);
    await assert.rejects(pull('hf:no-owner', join(dir, 'x')), /hf:OWNER/);
    await assert.rejects(pull('hf:org/other', join(dir, 'x'), ['--hub', server.url]), /answered 404/);
    await assert.rejects(pull('http://127.0.0.1:1/m', join(dir, 'x')), /127.0.0.1/);
    server.close();
  });
});
