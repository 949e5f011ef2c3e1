// Requests at the same time: every one of them succeeds, with the text that it has alone. On one node that works on four at a
// time, on three nodes, and when the only node's socket drops under the load.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {firstDifference, makeRandom, makeRequests, runRequest} from '../../bench/fleet/requests.mjs';
import {eventually, invite, kModelsDir, patience, registered, sleep, startCoordinator, startFleet,
        startNode} from './lib/processes.mjs';
import {startProxy} from './lib/tcp_proxy.mjs';

const kRequests = makeRequests(50, makeRandom(5)).map((r) => ({...r, body: {...r.body, max_tokens: 20}}));

async function undisturbed(d) {
  const expected = new Map();
  for (const r of kRequests) expected.set(r, (await runRequest((body) => d.post(body), r)).seen);
  return expected;
}

async function allAtOnce(d, requests, expected, disturb = async () => {}) {
  const answers = requests.map(async (r) => {
    const {seen} = await runRequest((body) => d.post(body), r);
    assert.ok(seen === expected.get(r), `${r.name}: ${firstDifference(expected.get(r), seen)}`);
  });
  const failed = (await Promise.allSettled([disturb(), ...answers])).filter((r) => r.status === 'rejected');
  assert.deepEqual(failed.map((r) => r.reason.message), []);
}

for (const numNodes of [1, 3]) {
  describe(`${numNodes} node${numNodes > 1 ? 's' : ''} of four slots`, () => {
    let d, expected;
    before(async () => {
      d = await startFleet({models: kModelsDir, numNodes, nodeArgs: ['--max-sequences', '4', '--threads', '1']});
      expected = await undisturbed(d);
    }, {timeout: patience(120_000)});
    after(async () => { await d?.stop(); });

    it('5 parallel requests: all succeed', {timeout: patience(60_000)}, () => allAtOnce(d, kRequests.slice(0, 5), expected));
    it('50 parallel requests: all succeed', {timeout: patience(120_000)}, () => allAtOnce(d, kRequests, expected));
  });
}

describe('the only node drops its socket whenever it is loaded', () => {
  let d, proxy, expected;
  before(async () => {
    d = await startCoordinator();
    proxy = await startProxy(d.port);
    startNode(d, {models: kModelsDir, name: 'only', token: invite(d, 'only'), link: `ws://127.0.0.1:${proxy.port}/v1/link`,
                  args: ['--max-sequences', '4']});
    await registered(d, 1);
    expected = await undisturbed(d);
  }, {timeout: patience(120_000)});
  after(async () => {
    await d?.stop();
    await proxy?.stop();
  });

  it('three drops within 50 parallel requests: all succeed', {timeout: patience(120_000)}, async () => {
    await allAtOnce(d, kRequests, expected, async () => {
      for (let i = 1; i <= 3; ++i) {
        await sleep(200);
        proxy.cut();
        await eventually('the node to be back', async () => d.main.log.split('provider_registered').length > i + 1);
      }
    });
  });
});
