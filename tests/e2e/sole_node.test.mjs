// The only node of a fleet drops its socket under load: every request succeeds, with the text it would have had.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {firstDifference, makeRandom, makeRequests, runRequest} from '../../bench/fleet/requests.mjs';
import {kModelsDir, eventually, invite, patience, registered, sleep, startCoordinator,
        startNode} from './lib/processes.mjs';
import {startProxy} from './lib/tcp_proxy.mjs';

describe('the only node', () => {
  let d, proxy, node;
  const requests = makeRequests(40, makeRandom(7)).map((r) => ({...r, body: {...r.body, max_tokens: Math.min(r.body.max_tokens, 120)}}));
  const expected = new Map();
  const nodeArgs = ['--max-sequences', '64'];
  const startIt = (token) => startNode(d, {models: kModelsDir, name: 'only', token, link: `ws://127.0.0.1:${proxy.port}/v1/link`, args: nodeArgs});
  // All at once while `disturb` runs.
  const all = async (disturb) => {
    const answers = requests.map(async (r) => {
      const {seen} = await runRequest((body) => d.post(body), r);
      assert.ok(seen === expected.get(r), `${r.name}: ${firstDifference(expected.get(r), seen)}`);
    });
    const results = await Promise.allSettled([disturb(), ...answers]);
    const failed = results.filter((r) => r.status === 'rejected').map((r) => r.reason.message);
    assert.deepEqual(failed, []);
  };

  before(async () => {
    d = await startCoordinator();
    proxy = await startProxy(d.port);
    node = startIt(invite(d, 'only'));
    await registered(d, 1);
    for (const r of requests) expected.set(r, (await runRequest((body) => d.post(body), r)).seen);
  }, {timeout: patience(120_000)});
  after(async () => {
    await d?.stop();
    await proxy?.stop();
  });

  it('drops its socket under concurrent load: all requests succeed', {timeout: patience(120_000)}, async () => {
    await all(async () => {
      await sleep(300);
      assert.ok(proxy.cut() > 0, 'no connection to cut');
    });
  });

  it('drops it before the first content of anything, and comes back after two seconds', {timeout: patience(120_000)}, async () => {
    await all(async () => { assert.ok(proxy.cut(2000) > 0); });
  });

  it('is killed and started again: all requests succeed', {timeout: patience(120_000)}, async () => {
    await all(async () => {
      await sleep(300);
      await node.kill();
      node = startIt('');
    });
  });

  it('is away when a request comes: it waits', {timeout: patience(60_000)}, async () => {
    await node.kill();
    await eventually('the loss', async () => d.main.log.split('provider_lost').length > 3);
    const pending = runRequest((body) => d.post(body), requests[0]);
    await sleep(1000);
    node = startIt('');
    assert.equal((await pending).seen, expected.get(requests[0]));
  });

  it('leaves for good: what it runs is finished first', {timeout: patience(120_000)}, async () => {
    const one = runRequest((body) => d.post(body), requests[4]);
    await sleep(100);
    await node.stop();
    assert.equal((await one).seen, expected.get(requests[4]));
  });
});
