// What the owner of a fleet sees and orders: the admin API and its commands.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {adminCommand, eventually, invite, kModelsDir, kTinyModel, patience, startCoordinator, startNode} from './lib/processes.mjs';
import {caseBody, kTextCases} from './lib/cases.mjs';

const kKey = 'admin-key-of-the-e2e-tests';

describe('the admin API', () => {
  let d;
  const admin = (path, method = 'GET', key = kKey) => fetch(d.url + path, {method, headers: {authorization: `Bearer ${key}`}});
  const explain = async () => (await admin(`/v1/admin/explain?model=${kTinyModel}`)).json();
  const isLoaded = async () => {
    const {data} = await (await admin('/v1/admin/nodes')).json();
    return data.some((node) => node.models.some((model) => model.model === kTinyModel && model.loaded));
  };
  const request = () => d.post(caseBody(kTextCases[0], {max_tokens: 8}));

  before(async () => {
    d = await startCoordinator({args: ['--admin-key', kKey]});
    startNode(d, {models: kModelsDir, name: 'lazy', token: invite(d, 'lazy'), args: ['--lazy']});
    await eventually('the node', async () => (await (await admin('/v1/admin/nodes')).json()).data.length === 1, 30_000);
  }, {timeout: patience(60_000)});
  after(async () => { await d?.stop(); });

  it('is closed to clients and strangers', async () => {
    for (const key of [d.key, 'wrong-key-of-some-length']) {
      assert.equal((await admin('/v1/admin/nodes', 'GET', key)).status, 401);
      assert.equal((await admin(`/v1/admin/unload?node=lazy&model=${kTinyModel}`, 'POST', key)).status, 401);
    }
    assert.throws(() => adminCommand(d, ['explain', kTinyModel], 'wrong-key-of-some-length'), /admin key/);
  });

  it('explains a model that could be loaded', async () => {
    const answer = await explain();
    assert.deepEqual(answer.counts, {not_loaded: 1});
    const [node] = answer.nodes;
    assert.equal(node.chosen, false);
    assert.equal(node.permanent, false);
    assert.ok(node.needed > 1e6, `need ${node.needed}`);
    assert.ok(node.changes_in_ms > 0);
    assert.ok(node.expected.load.ms > 0);
    assert.match(adminCommand(d, ['explain', kTinyModel], kKey), /lazy +not_loaded/);
  });

  it('a request loads it, and then the node is chosen by what was measured', {timeout: patience(60_000)}, async () => {
    assert.deepEqual(await d.models(), [kTinyModel]);
    assert.equal((await request()).status, 200);
    assert.match(d.main.log, /load_ordered.*why=demand/);
    const [node] = (await explain()).nodes;
    assert.equal(node.chosen, true);
    assert.equal(node.reason, null);
    assert.equal(node.expected.prefill.source, 'measured');
    await eventually('a round trip', async () => (await explain()).nodes[0].expected.network.source === 'measured', 15_000);
    assert.match(adminCommand(d, ['explain', kTinyModel, '--node', 'lazy'], kKey), /lazy +chosen/);
    assert.equal(JSON.parse(adminCommand(d, ['explain', kTinyModel, '--json'], kKey)).nodes.length, 1);
  });

  it('unloads and loads by order', {timeout: patience(60_000)}, async () => {
    adminCommand(d, ['unload', 'lazy', kTinyModel], kKey);
    await eventually('the unload', async () => !(await isLoaded()));
    adminCommand(d, ['load', 'lazy', kTinyModel], kKey);
    await eventually('the load', isLoaded, 30_000);
    assert.equal((await request()).status, 200);
    assert.throws(() => adminCommand(d, ['load', 'nobody', kTinyModel], kKey), /no node of the name/);
  });
});
