// Models in processes of their own, as they run on a card: what ends one of these ends its requests and nothing else.
import assert from 'node:assert/strict';
import {readdirSync, readFileSync} from 'node:fs';
import {describe, it} from 'node:test';

import {eventually, kModelsDir, kTinyModel, patience, startFleet, startServe} from './lib/processes.mjs';
import {assemble, parseSse, readSse} from './lib/sse.mjs';

const kIsolated = ['--device', 'cpu', '--isolate', 'on'];
const say = (more = {}) => ({model: kTinyModel, messages: [{role: 'user', content: 'Tell me a story about a fox.'}], return_token_ids: true,
                             ignore_eos: true, max_tokens: 60, temperature: 0.8, seed: 4, stream: true, ...more});

// The workers that `program` started and that have not ended.
function workersOf(program) {
  const found = [];
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      if (Number(parent) === program.child.pid && state !== 'Z') found.push(Number(name));
    } catch {
      // It ended meanwhile.
    }
  }
  return found;
}
const lives = (pid) => {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1][0] !== 'Z';
  } catch {
    return false;
  }
};

async function answer(d, more) {
  const response = await d.post(say(more));
  assert.equal(response.status, 200, await response.clone().text());
  const {frames} = await readSse(response);
  assert.equal(frames.at(-1), '[DONE]', JSON.stringify(frames.at(-1)));
  return assemble(frames.slice(0, -1))[0];
}

// Reads a stream; once some of it has come, `act` is called.
async function readAndAct(response, act) {
  let text = '';
  let acted;
  for await (const chunk of response.body) {
    text += Buffer.from(chunk).toString();
    if (text.length > 2000) acted ??= act();
  }
  await acted;
  assert.ok(acted, 'the answer was too short');
  return text;
}

describe('a model in a process of its own: flotilla serve', () => {
  it('answers as in the same process, comes back after its death, and goes when told', {timeout: patience(120_000)}, async () => {
    const plain = await startServe({models: kModelsDir, args: ['--device', 'cpu']});
    const expected = await answer(plain).finally(() => plain.stop());
    const d = await startServe({models: kModelsDir, args: kIsolated});
    let worker;
    try {
      [worker] = workersOf(d.main);
      assert.ok(worker, 'there is a worker');
      assert.deepEqual(await answer(d), expected);

      const response = await d.post(say({max_tokens: 2000}));
      const text = await readAndAct(response, () => process.kill(worker, 'SIGKILL'));
      const {frames} = parseSse(text);
      const last = frames.at(-1);
      assert.ok(last.error, JSON.stringify(last));
      assert.match(last.error.message, /flotilla-tiny/);
      assert.ok((await fetch(`${d.url}/healthz`)).ok, 'the server lives');

      // Refused by name while it is loaded again, and then as before.
      await eventually('the model again', async () => {
        const again = await d.post(say());
        if (again.status === 200) {
          await again.text();
          return true;
        }
        assert.equal(again.status, 503);
        assert.match(JSON.stringify(await again.json()), /flotilla-tiny/);
        return false;
      });
      assert.deepEqual(await answer(d), expected);
      for (const event of ['worker_lost', 'engine_reloading', 'engine_reloaded']) assert.ok(d.log().includes(event), event);
      const [second] = workersOf(d.main);
      assert.notEqual(second, worker);
      worker = second;
    } finally {
      await d.stop();
    }
    assert.ok(!lives(worker), 'the worker ended with its program');
  });

  it('ends by itself when its program is killed', {timeout: patience(60_000)}, async () => {
    const d = await startServe({models: kModelsDir, args: kIsolated});
    try {
      const [worker] = workersOf(d.main);
      await d.main.kill();
      await eventually('the end of the worker', () => !lives(worker));
    } finally {
      await d.stop();
    }
  });

  it('a wrong value is refused by name', {timeout: patience(60_000)}, async () => {
    await assert.rejects(startServe({models: kModelsDir, args: ['--isolate', 'perhaps']}), /isolate 'perhaps' is none of auto, on, off/);
  });
});

describe('a model in a process of its own: a fleet', () => {
  it('another node goes on with the answer, and the client sees nothing', {timeout: patience(120_000)}, async () => {
    const d = await startFleet({models: kModelsDir, numNodes: 2, nodeArgs: kIsolated});
    try {
      const expected = await answer(d, {max_tokens: 1000});
      // The node that runs it is the one whose worker uses the processor.
      const time = (pid) => Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')[11]);
      const workers = d.nodes.flatMap(workersOf);
      const before = workers.map(time);
      const used = (i) => time(workers[i]) - before[i];
      const response = await d.post(say({max_tokens: 1000}));
      const text = await readAndAct(response, () => process.kill(workers[used(0) > used(1) ? 0 : 1], 'SIGKILL'));
      const {frames} = parseSse(text);
      assert.equal(frames.at(-1), '[DONE]', JSON.stringify(frames.at(-1)));
      assert.deepEqual(assemble(frames.slice(0, -1))[0], expected);
      assert.ok(d.log().includes('worker_lost'));
    } finally {
      await d.stop();
    }
  });
});
