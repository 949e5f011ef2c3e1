// Nodes are killed and stopped under load: no request is lost, no stream is cut, no token differs. The short form of
// bench/fleet/chaos.mjs; FLOTILLA_CHAOS_SECONDS makes it longer.
import assert from 'node:assert/strict';
import {it} from 'node:test';

import {runChaos} from '../../bench/fleet/chaos.mjs';
import {patience} from './lib/processes.mjs';

const kSeconds = Number(process.env.FLOTILLA_CHAOS_SECONDS ?? 60);

it(`${kSeconds} s of faults every 2 s: every answer is complete and equal to its undisturbed text`, {timeout: patience(180_000 + kSeconds * 1000)}, async (t) => {
  const result = await runChaos({seconds: kSeconds, streams: 48, distinct: 48, quiet: true});
  t.diagnostic(JSON.stringify({...result, differences: result.differences.length}));
  assert.deepEqual(result.differences, []);
  assert.ok(result.counts.kill > 0 && result.counts.stop > 0, JSON.stringify(result.counts));
  assert.ok(result.requests > 48);
  assert.ok(result.p99WorstGap <= 10_000, `p99 of the worst gaps: ${result.p99WorstGap} ms`);
});

it('the coordinator is killed too: requests fail cleanly or are answered in full', {timeout: patience(180_000)}, async (t) => {
  const result = await runChaos({seconds: 15, streams: 24, distinct: 24, faultEveryMs: 5000, coordinatorEveryMs: 4000, quiet: true});
  t.diagnostic(JSON.stringify({...result, differences: result.differences.length}));
  assert.deepEqual(result.differences, []);
  assert.ok(result.counts.coordinator >= 2);
});
