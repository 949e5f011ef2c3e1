// What one client does to `flotilla serve` must not show in the answers of others, nor in their speed beyond the share of
// the machine that it uses. The bundled model, real sockets.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {connect} from 'node:net';
import {after, before, describe, it} from 'node:test';

import {eventually, kModelsDir, kTinyModel, patience, sleep, startFleet, startServe} from './lib/processes.mjs';
import {assemble, readSse} from './lib/sse.mjs';

const say = (text, more = {}) =>
  ({model: kTinyModel, messages: [{role: 'user', content: text}], return_token_ids: true, ignore_eos: true, max_tokens: 60, stream: true, ...more});
// Two tenants.
const kKey = 'isolation-key-1';
const kOtherKey = 'isolation-key-2';
const kLong = {max_tokens: 3000, ignore_eos: true};
const kNormal = [say('Tell me a story about a fox.', {temperature: 0.9, seed: 1}), say('Count from 1 to 20.', {temperature: 0}),
                 say('Tell me a story about an owl.', {temperature: 1, seed: 2, repetition_penalty: 1.1}),
                 say('Hello!', {temperature: 0.7, seed: 3, logprobs: true, top_logprobs: 2})];

// A client without manners: the request is written, the rest is up to the caller. Nothing is read until asked for.
const rudeClient = (d, body) => new Promise((done, failed) => {
  const text = JSON.stringify(body);
  const url = new URL(d.url);
  const socket = connect({host: url.hostname, port: Number(url.port)});
  socket.pause();
  socket.on('error', () => {});  // it will be cut
  socket.once('error', failed);
  socket.once('connect', () => {
    socket.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: ${url.host}\r\nAuthorization: Bearer ${d.key}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
                 () => done(socket));
  });
});

describe('isolation: flotilla serve', () => {
  let d;
  const stream = async (body) => {
    const response = await d.post(body);
    assert.equal(response.status, 200);
    const {frames} = await readSse(response);
    assert.equal(frames.at(-1), '[DONE]', JSON.stringify(frames.at(-1)));
    const [choice] = assemble(frames.slice(0, -1));
    return {ids: choice.ids, content: choice.content, finish: choice.finish, logprobs: choice.logprobs.map((l) => l.logprob)};
  };
  // All four at once, and how long it took.
  const normal = async () => {
    const begin = Date.now();
    const answers = await Promise.all(kNormal.map(stream));
    return {answers, ms: Date.now() - begin};
  };
  const metric = async (name) => {
    const text = await (await fetch(`${d.url}/metrics`, {headers: {authorization: `Bearer ${kKey}`}})).text();
    const line = text.split('\n').find((l) => l.startsWith(`flotilla_${name}{`));
    assert.ok(line, `no metric ${name}`);
    return Number(line.slice(line.lastIndexOf(' ')));
  };
  const idle = (ms = 10_000) => eventually('an idle engine', async () => (await metric('sequences_running')) + (await metric('sequences_waiting')) === 0, ms);
  const raw = (body) => rudeClient(d, body);

  let quiet;
  before(async () => {
    d = await startServe({models: kModelsDir, args: ['--threads', '1', '--api-keys', kKey, '--api-keys', kOtherKey]});
    d.key = kKey;
    await normal();  // warm
    quiet = [await normal(), await normal(), await normal()];
  });
  after(async () => { await d?.stop(); });

  // Bits exactly; the time within a factor that covers a busy machine and the work that neighbours really ask for.
  const unharmed = ({answers, ms}, factor, what) => {
    for (const {answers: expected} of quiet) assert.deepEqual(answers, expected, what);
    const usual = Math.max(...quiet.map((q) => q.ms));
    assert.ok(ms < factor * usual + 1000, `${what}: ${ms} ms, undisturbed ${usual} ms`);
  };

  it('a reader of one byte a second holds nobody up', {timeout: patience(120_000)}, async () => {
    const slow = await raw(say('Tell me a story about a boat.', kLong));
    let bytes = 0;
    const reading = setInterval(() => {
      const got = slow.read(1);
      bytes += got?.length ?? 0;
    }, 1000);
    // At first it decodes with the others; once its buffers are full it is paused.
    for (let round = 0; round < 4; ++round) unharmed(await normal(), 4, 'beside a slow reader');
    await eventually('a byte', () => bytes > 0);
    clearInterval(reading);
    slow.resetAndDestroy();
    await idle();
    unharmed(await normal(), 2, 'after a slow reader');
  });

  it('B69: clients that vanish leave nothing behind, whatever they wait for', {timeout: patience(180_000)}, async () => {
    const long = 'word '.repeat(1200);
    for (let round = 0; round < 3; ++round) {
      const sockets = [];
      for (let i = 0; i < 50; ++i) {
        // Queued, in their prompts, decoding; streamed and not.
        const body = say(i % 3 === 0 ? long : 'Tell me a story.', {...kLong, temperature: 1, seed: i, stream: i % 2 === 0});
        sockets.push(await raw(body));
      }
      await Promise.all(sockets.map(async (socket, i) => {
        await sleep((i * 37) % 600);
        socket.resetAndDestroy();
      }));
      await idle(5_000);
    }
    unharmed(await normal(), 2, 'after clients that vanished');
  });

  it('B66: requests with and without penalties, logprobs, stops and choices share steps', {timeout: patience(120_000)}, async () => {
    const long = 'word '.repeat(700);
    const kinds = [{}, {repetition_penalty: 1.1}, {frequency_penalty: 0.5, presence_penalty: 0.5}, {logprobs: true, top_logprobs: 5},
                   {stop: ['zebra']}, {seed: 5, temperature: 1}, {logit_bias: {300: 5}}, {max_tokens: 1}];
    const bodies = kinds.map((more, i) => say(i % 2 === 0 ? long : 'Hello!', {temperature: 0, max_tokens: 30, ...more}));
    const alone = [];
    for (const body of bodies) alone.push(await stream(body));
    const first = stream(bodies[0]);
    await sleep(20);  // its prompt is under way
    const others = bodies.slice(1).map(stream);
    assert.deepEqual(await Promise.all([first, ...others]), alone);
  });

  it('B73: short requests of one key get their first token while long jobs of another wait in line', {timeout: patience(180_000)}, async () => {
    const firstToken = async () => {
      const begin = Date.now();
      const response = await d.post(say('Hello!', {max_tokens: 2, temperature: 0}), {authorization: `Bearer ${kOtherKey}`});
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      for (let text = ''; !text.includes('token_ids":['); text += decoder.decode((await reader.read()).value)) {
        assert.equal(response.status, 200);
      }
      const ms = Date.now() - begin;
      while (!(await reader.read()).done) { /* to the end */ }
      return ms;
    };
    await firstToken();
    const long = 'word '.repeat(1500);
    const begin = Date.now();
    // Alone: what one chunk of such a job, and the whole of it, take here and now.
    await stream(say(long, {max_tokens: 1}));
    const job = Date.now() - begin;
    const sockets = await Promise.all(Array.from({length: 64}, (_, i) => raw(say(long + i, {max_tokens: 40}))));
    const times = [];
    for (let i = 0; i < 4; ++i) {
      await sleep(200);
      times.push(await firstToken());
    }
    for (const socket of sockets) socket.resetAndDestroy();
    await idle();
    // All of them first would take 64 times `job`.
    const worst = Math.max(...times);
    assert.ok(worst < 16 * job + 1000, `first token after ${worst} ms; one long job takes ${job} ms`);
  });
});

it('B74: overload is refused at once, what was accepted finishes, and then all is well', {timeout: patience(120_000)}, async () => {
  const d = await startServe({models: kModelsDir, args: ['--threads', '1', '--max-sequences', '2', '--max-queue', '8']});
  try {
    const ask = async () => {
      const begin = Date.now();
      const response = await d.post(say('Tell me a story about a fox.', {max_tokens: 400, temperature: 0.9, seed: 1}));
      if (response.status !== 200) {
        const {error} = await response.json();
        return {status: response.status, ms: Date.now() - begin, error, retry: Number(response.headers.get('retry-after'))};
      }
      const {frames} = await readSse(response);
      return {status: 200, ids: assemble(frames.slice(0, -1))[0].ids, last: frames.at(-1)};
    };
    const alone = await ask();
    const all = await Promise.all(Array.from({length: 100}, ask));
    const refused = all.filter((a) => a.status !== 200);
    assert.ok(refused.length >= 80, `${refused.length} refused`);
    for (const {status, error, retry} of refused) {
      assert.ok(status === 503 || status === 429, `${status}`);
      assert.ok(retry > 0 && error.message.length > 0, JSON.stringify(error));
    }
    // Each by itself is answered at once; here a hundred connections were opened at a time, on a busy machine.
    const times = refused.map((a) => a.ms).sort((a, b) => a - b);
    assert.ok(times[times.length >> 1] < patience(1000), `refused after ${times[times.length >> 1]} ms`);
    for (const answer of all.filter((a) => a.status === 200)) assert.deepEqual(answer, alone);
    assert.deepEqual(await ask(), alone);
  } finally {
    await d.stop();
  }
});

it('the numerics id of a node is checked at its start and reaches the coordinator', {timeout: patience(60_000)}, async () => {
  const d = await startFleet({models: kModelsDir});
  try {
    const [, node] = /kernels_checked numerics="?([0-9a-f]{64})/.exec(d.nodes[0].log) ?? [];
    assert.ok(node, d.nodes[0].log);
    const [, seen] = /provider_registered .*numerics="?([0-9a-f]{64})/.exec(d.main.log) ?? [];
    assert.equal(seen, node);
  } finally {
    await d.stop();
  }
});

const kEndless = {model: 'scripted', context_length: 1_000_000, rules: [
  {match: {user: 'short'}, steps: [{words: 'A short answer.'}, {end: true}]},
  {steps: [{text: 'x'.repeat(200)}], loop: true},
]};
for (const [name, start] of Object.entries({
  'flotilla serve': () => startServe({script: kEndless}),
  'coordinator and node': () => startFleet({script: kEndless}),
})) {
  it(`B75: fifty readers that stop take little memory and hold nobody up: ${name}`, {timeout: patience(120_000)}, async () => {
    const d = await start();
    try {
      const residentMiB = () => d.programs.map((p) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${p.child.pid}/status`, 'utf8'))[1]) / 1024)
        .reduce((sum, mib) => sum + mib, 0);
      const ask = (text) => ({model: 'scripted', stream: true, messages: [{role: 'user', content: text}]});
      const before = residentMiB();
      const stopped = await Promise.all(Array.from({length: 50}, () => rudeClient(d, ask('endless'))));
      // Until nothing moves any more.
      let last = -1;
      await eventually('they are paused', async () => {
        const now = residentMiB();
        const still = Math.abs(now - last) < 0.5;
        last = now;
        await sleep(1000);
        return still;
      }, 60_000);
      const grown = residentMiB() - before;
      // What each may hold: 1 MiB at the client's socket, and in a fleet 4 MiB at the coordinator and the node's own share.
      const each = d.nodes.length > 0 ? 8 : 3;
      assert.ok(grown < 50 * each, `${grown.toFixed(0)} MiB more for fifty streams that nobody reads`);
      const begin = Date.now();
      const answers = await Promise.all(Array.from({length: 5}, async () => (await readSse(await d.post(ask('short')))).frames));
      assert.ok(Date.now() - begin < patience(3000), `${Date.now() - begin} ms`);
      for (const frames of answers) assert.equal(assemble(frames.slice(0, -1))[0].content, 'A short answer.');
      for (const socket of stopped) socket.resetAndDestroy();
    } finally {
      await d.stop();
    }
  });
}
