// The load and fault tools do what they say: a generator against a coordinator with scripted nodes and against the mock
// upstream, open streams, and a replay of routing policies. What is checked is that everything succeeds, not speed.
import assert from 'node:assert/strict';
import {execFile, spawn} from 'node:child_process';
import {randomInt} from 'node:crypto';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, it} from 'node:test';

import {eventually, patience, startCoordinator} from './lib/processes.mjs';

const kProgram = join(process.env.FLOTILLA_BIN, 'fleet_bench');

// Runs the program; gives its status and what it said.
const run = (...args) => new Promise((done) => {
  execFile(kProgram, args.map(String), {encoding: 'utf8'}, (error, stdout, stderr) => done({code: error?.code ?? 0, stdout, stderr}));
});

// Starts it and waits for the words that say it works.
async function start(ready, ...args) {
  const child = spawn(kProgram, args.map(String), {stdio: ['ignore', 'pipe', 'pipe']});
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => { text += piece; });
  await eventually(`fleet_bench ${args[0]}: ${ready}`, async () => {
    assert.equal(child.exitCode, null, text);
    return text.includes(ready);
  }, 30_000);
  const stop = () => new Promise((done) => {
    child.on('exit', (code) => done({code, text}));
    child.kill('SIGTERM');
  });
  return {stop};
}

describe('fleet_bench', {timeout: patience(120_000)}, () => {
  let d, url;
  before(async () => {
    d = await startCoordinator();
    url = `${d.url}/v1/chat/completions`;
  });
  after(() => d?.stop());
  const nodes = (...args) => start('ready', 'nodes', '--database', d.database, '--url', d.link, ...args);
  const pid = () => d.main.child.pid;

  it('load: every request to 60 scripted nodes is answered, streamed or not', async () => {
    const fleet = await nodes('--nodes', 60, '--slots', 4, '--tokens', 12);
    const {code, stdout} = await run('load', '--url', url, '--key', d.key, '--rate', 100, '--poisson', '--streamed', 0.5,
      '--warmup', 0.2, '--seconds', 2, '--server-pid', pid(), '--json');
    assert.equal(code, 0, stdout);
    const result = JSON.parse(stdout);
    assert.equal(result.answered, result.requests);
    assert.equal(result.failed, 0);
    assert.ok(result.requests > 100, stdout);
    // A role, the tokens, the end: for each stream.
    assert.equal(result.events % 14, 0, stdout);
    assert.ok(result.whole_ms.p50 > 0 && result.whole_ms.p50 <= result.whole_ms.max && result.cpu_s > 0, stdout);
    const {code: ended, text} = await fleet.stop();
    assert.equal(ended, 0, text);
    assert.match(text, /60 up, 0 links lost/);
  });

  it('load: failures are counted by kind, and are failures', async () => {
    const {code, stdout} = await run('load', '--url', url, '--key', 'wrong', '--rate', 50, '--warmup', 0, '--seconds', 0.5);
    assert.equal(code, 1);
    assert.match(stdout, /25 requests .* 0 answered, 25 failed\n {2}25: status 401/);
    assert.equal((await run('load', '--url', 'http://127.0.0.1:1/', '--rate', 20, '--warmup', 0, '--seconds', 0.5)).code, 1);
    assert.equal((await run('load', '--url', 'somewhere')).code, 2);
  });

  it('streams: 300 are open at once, and have their price in memory', async () => {
    const fleet = await nodes('--nodes', 3, '--slots', 200, '--tokens', 1_000_000, '--interval-ms', 300);
    const {code, stdout} = await run('streams', '--url', url, '--key', d.key, '--streams', 300, '--hold', 1, '--server-pid', pid(), '--json');
    assert.equal(code, 0, stdout);
    const result = JSON.parse(stdout);
    assert.deepEqual([result.begun, result.open], [300, 300]);
    assert.ok(Number.isFinite(result.bytes_per_stream));
    await fleet.stop();
  });

  it('mock: says what the nodes say', async () => {
    const mock = `http://127.0.0.1:${10_000 + randomInt(20_000)}`;
    const server = await start('serving', 'mock', '--listen', mock, '--tokens', 12);
    const {code, stdout} = await run('load', '--url', `${mock}/v1/chat/completions`, '--rate', 200, '--warmup', 0, '--seconds', 1, '--json');
    assert.equal(code, 0, stdout);
    const result = JSON.parse(stdout);
    assert.equal(result.events, result.requests * 14);
    assert.equal((await server.stop()).code, 0);
  });

  it('replay: the router answers all, and finds more in caches than chance does', async () => {
    const {code, stdout} = await run('replay', '--seconds', 200, '--nodes', 10, '--conversations-per-s', 1, '--json');
    assert.equal(code, 0, stdout);
    const by = Object.fromEntries(stdout.trim().split('\n').map(JSON.parse).map((line) => [line.policy, line]));
    assert.deepEqual(Object.keys(by), ['router', 'random', 'round_robin', 'least_connections']);
    for (const line of Object.values(by)) assert.equal(line.done, line.arrivals);
    assert.ok(by.router.cached_share > 2 * by.random.cached_share, stdout);
    assert.ok(by.router.first_p50_s < by.random.first_p50_s, stdout);
    // The same seed gives the same trace, and a trace from a file is the same whatever its form.
    assert.equal((await run('replay', '--seconds', 200, '--nodes', 10, '--conversations-per-s', 1, '--json')).stdout, stdout);
    const rows = [[0, 'a', 8000, 0, 10], [30, 'a', 16000, 8000, 10], [31, 'b', 50, 0, 5]];
    const names = ['time', 'conversation', 'prompt_tokens', 'cached_prefix', 'output_tokens'];
    const csv = join(d.dir, 'trace.csv'), lines = join(d.dir, 'trace.jsonl');
    writeFileSync(csv, [names, ...rows].map((row) => row.join(',')).join('\n'));
    writeFileSync(lines, rows.map((row) => JSON.stringify(Object.fromEntries(row.map((v, i) => [names[i], v])))).join('\n'));
    const [one, two] = [await run('replay', '--trace', csv, '--spread', 1, '--json'), await run('replay', '--trace', lines, '--spread', 1, '--json')];
    assert.equal(one.code, 0, one.stderr);
    assert.equal(one.stdout, two.stdout);
    assert.equal(JSON.parse(one.stdout.split('\n')[0]).cached_share, 1);
    writeFileSync(csv, 'time\n1,a,10,20,5\n');
    assert.match((await run('replay', '--trace', csv)).stderr, /trace\.csv:2: /);
  });
});
