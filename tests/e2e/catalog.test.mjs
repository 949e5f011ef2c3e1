// A model's way through a fleet: published, pulled, served under an alias, retired.
import assert from 'node:assert/strict';
import {execFileSync, spawn} from 'node:child_process';
import {cpSync, mkdirSync, readdirSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, it} from 'node:test';

import {serveFolder} from './lib/file_server.mjs';
import {invite, kModelsDir, kTinyModel, patience, startCoordinator, startNode} from './lib/processes.mjs';

const kKey = 'admin-key-of-the-e2e-tests';
const kFlotilla = join(process.env.FLOTILLA_BIN, 'flotilla');
const kEnvironment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('FLOTILLA_') && !name.startsWith('HF_')));

describe('the catalog', () => {
  let d, models, digest;
  const run = (program, args, environment = {}) => new Promise((done, failed) => {
    const child = spawn(join(process.env.FLOTILLA_BIN, program), args, {env: {...kEnvironment, ...environment}});
    let text = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => { text += piece; });
    child.on('exit', (code) => (code === 0 ? done(text) : failed(new Error(text))));
  });
  const pull = (args, folder = models, environment = {}) => run('flotilla', ['models', 'pull', ...args, '--models-dir', folder], environment);
  const admin = (args) => run('flotilla-coordinator', [...args, '--url', d.url], {FLOTILLA_ADMIN_KEY: kKey});
  const ask = async (model) => {
    const response = await d.post({model, messages: [{role: 'user', content: 'Hello!'}], max_tokens: 8, temperature: 0});
    return {status: response.status, body: await response.json()};
  };
  const coordinator = () => ['--coordinator', d.url, '--api-key', d.key];
  const explain = async () => (await fetch(`${d.url}/v1/admin/explain?model=${kTinyModel}`, {headers: {authorization: `Bearer ${kKey}`}})).json();

  before(async () => {
    d = await startCoordinator({args: ['--admin-key', kKey]});
    models = join(d.dir, 'second machine');
  }, {timeout: patience(60_000)});
  after(async () => { await d?.stop(); });

  it('publishes a folder, and says which parameters it ignores', async () => {
    const out = await admin(['models', 'publish', join(kModelsDir, kTinyModel), '--capability', 'tools', '--context-length', '512', '--min-memory-gib', '1', '--runtime', '{"resident_gb":-1}', '--activate']);
    assert.match(out, /version 1 \(active\)/);
    digest = /digest ([0-9a-f]{64})/.exec(out)[1];
    const [entry] = JSON.parse(await admin(['models', 'show', kTinyModel, '--json'])).data;
    assert.equal(entry.digest, digest);
    assert.match(entry.ignored[0], /resident_gb/);
    assert.match(d.main.log, /runtime_parameter_ignored/);
    assert.match(d.main.log, /admin_model_published/);
    assert.match(await admin(['models', 'list']), /flotilla-tiny +1 +active/);
  });

  it('is pulled onto another machine', async () => {
    await assert.rejects(pull([kTinyModel, '--coordinator', d.url, '--api-key', 'wrong']), /answered 401/);
    assert.match(await pull([kTinyModel, ...coordinator()]), new RegExp(`digest ${digest}`));
    assert.deepEqual(readdirSync(models), [kTinyModel]);
    assert.match(execFileSync(kFlotilla, ['models', 'verify', join(models, kTinyModel)], {env: kEnvironment, encoding: 'utf8'}), new RegExp(`model digest ${digest}`));
    assert.match(await pull([kTinyModel, ...coordinator()]), /up to date/);
  });

  it('is served, also under an alias, and the answer has the name that was asked for', {timeout: patience(60_000)}, async () => {
    startNode(d, {models, name: 'second', token: invite(d, 'second')});
    await d.ready();
    assert.match(await admin(['models', 'alias', 'fast', kTinyModel]), /means/);
    assert.deepEqual(await d.models(), ['fast', kTinyModel]);
    const {status, body} = await ask('fast');
    assert.equal(status, 200);
    assert.equal(body.model, 'fast');
    const listed = await (await fetch(`${d.url}/v1/models/fast`, {headers: {authorization: `Bearer ${d.key}`}})).json();
    assert.ok(listed.context_length <= 512, `${listed.context_length}`);
    assert.deepEqual(listed.capabilities, ['tools']);
    const why = await explain();
    assert.equal(why.catalog.version, 1);
    assert.equal(why.nodes[0].version, 1);
    assert.match(why.catalog.ignored[0], /resident_gb/);
  });

  it('calls other files of the same name another version', {timeout: patience(60_000)}, async () => {
    const folder = join(d.dir, 'changed', kTinyModel);
    mkdirSync(join(d.dir, 'changed'));
    cpSync(join(kModelsDir, kTinyModel), folder, {recursive: true});
    writeFileSync(join(folder, 'generation_config.json'), '{"max_new_tokens": 7}');
    assert.match(await admin(['models', 'publish', folder]), /version 2 \(published\)/);
    assert.equal((await ask('fast')).status, 200);  // nothing has changed yet
    await admin(['models', 'activate', kTinyModel, '2']);
    const why = await explain();
    assert.deepEqual(why.counts, {other_version: 1});
    assert.equal(why.nodes[0].version, 1);
    assert.deepEqual(await d.models(), []);
    await admin(['models', 'activate', kTinyModel, '1']);
    assert.equal((await ask('fast')).status, 200);
  });

  it('is pulled from a hub, with a token that no log shows', {timeout: patience(60_000)}, async () => {
    const hub = await serveFolder(join(kModelsDir, kTinyModel), {hub: true});
    const out = await pull(['hf:org/tiny', '--hub', hub.url], join(d.dir, 'fourth'), {HF_TOKEN: 'hf_a-secret-token'});
    assert.match(out, new RegExp(`digest ${digest}`));
    assert.ok(!out.includes('hf_a-secret'));
    assert.ok(hub.requests.every((request) => request.authorization === 'Bearer hf_a-secret-token'));
    // The catalog can point there too: nodes fetch from the hub what the coordinator vouches for.
    assert.match(await admin(['models', 'publish', 'hf:org/tiny', '--hub', hub.url, '--name', 'from-hub']), new RegExp(digest));
    assert.match(await pull(['from-hub', ...coordinator(), '--hub', hub.url], join(d.dir, 'fifth')), new RegExp(`digest ${digest}`));
    hub.close();
  });

  it('is retired', {timeout: patience(60_000)}, async () => {
    await admin(['models', 'retire', kTinyModel]);
    const {status, body} = await ask('fast');
    assert.equal(status, 404);
    assert.match(body.error.message, /no version .* is active/);
    assert.deepEqual(await d.models(), []);
    await assert.rejects(pull([kTinyModel, ...coordinator()], join(d.dir, 'sixth')));
    assert.match(await admin(['models', 'list']), /flotilla-tiny +1 +retired/);
  });
});
