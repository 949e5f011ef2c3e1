// Kills and stops nodes of a small fleet under load, and compares every answer with its undisturbed text.
//   FLOTILLA_BIN=build/release/bin node bench/fleet/chaos.mjs [--seconds 60] [--streams 200] ...
// Everything listens on 127.0.0.1. Exit status: 0 when every request ended complete and equal, and 99 of 100 streams
// had no gap over --max-gap-ms; else 1.
import {createWriteStream} from 'node:fs';
import {parseArgs} from 'node:util';
import {fileURLToPath} from 'node:url';

import {coordinatorCommand, eventually, kModelsDir, kTinyModel, restartCoordinator, sleep, startFleet, startNode} from '../../tests/e2e/lib/processes.mjs';
import {CleanFailure, firstDifference, makeRandom, makeRequests, runRequest} from './requests.mjs';

export const kDefaults = {
  seconds: 60, streams: 200, nodes: 3, distinct: 96, faultEveryMs: 2000, stopMs: 3000, maxGapMs: 5000, seed: 1,
  maxSequences: 4, recoverySeconds: 20, faults: 'kill,stop', coordinatorEveryMs: 0, log: '', quiet: false,
};

const quantile = (sorted, q) => (sorted.length === 0 ? 0 : sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]);
const ms = (x) => `${Math.round(x)} ms`;

class NodeUnderFault {
  constructor(fleet, index, args) {
    this.fleet = fleet;
    this.index = index;
    this.args = args;
    this.program = fleet.nodes[index];
    this.state = 'up';  // 'down' until it is registered again, 'stopped'
    this.backAfter = [];
  }
  async kill() {
    this.state = 'down';
    await this.program.kill();
    const began = performance.now();
    this.program = startNode(this.fleet, {name: `node-${this.index}`, models: kModelsDir, args: this.args, token: ''});
    while (!this.program.log.includes('link_up')) {
      this.program.alive();
      await sleep(10);
    }
    this.backAfter.push(performance.now() - began);
    this.state = 'up';
  }
  async stop(duration) {
    this.state = 'stopped';
    this.program.child.kill('SIGSTOP');
    await sleep(duration);
    this.program.child.kill('SIGCONT');
    this.state = 'up';
  }
}

// A fault every so often, on a node that has none, while another one is healthy.
async function disturb(nodes, options, random, end, counts) {
  const kinds = options.faults.split(',');
  const running = new Set();
  let due = performance.now();
  while (performance.now() < end) {
    due += options.faultEveryMs;
    await sleep(Math.max(0, due - performance.now()));
    if (performance.now() >= end) break;
    const healthy = nodes.filter((node) => node.state === 'up');
    if (healthy.length < 2) {
      ++counts.skipped;
      continue;
    }
    const node = random.pick(healthy);
    const kind = random.pick(kinds);
    ++counts[kind];
    const fault = (kind === 'kill' ? node.kill() : node.stop(options.stopMs)).finally(() => running.delete(fault));
    running.add(fault);
  }
  await Promise.all(running);
}

// The coordinator dies too: clients must hear of it, and may try again.
async function disturbCoordinator(fleet, options, end, counts) {
  while (options.coordinatorEveryMs > 0) {
    await sleep(options.coordinatorEveryMs);
    if (performance.now() >= end) return;
    ++counts.coordinator;
    await restartCoordinator(fleet);
  }
}

// A micro-unit per token, so that what was charged is a number of tokens.
async function setUpMoney(fleet) {
  coordinatorCommand(fleet, ['prices', 'set', kTinyModel, '--input', '1', '--output', '1']);
  coordinatorCommand(fleet, ['accounts', 'deposit', 'default', '1000', '--id', 'chaos']);
  await eventually('the deposit', async () => (await account(fleet)).balance_micro === 1e9);
  await sleep(1500);  // prices are noticed within a second
  return account(fleet);
}

async function account(fleet) {
  const response = await fetch(`${fleet.url}/v1/account`, {headers: {authorization: `Bearer ${fleet.key}`}});
  return response.json();
}

// When nothing runs any more, nothing is reserved; the books are right; and the client paid for what it got: no token
// twice. `spent`: the tokens of whole answers; `atMost`: those of the others, had they been whole.
async function checkMoney(fleet, before, spent, atMost, recoverySeconds) {
  const problems = [];
  let now;
  try {
    now = await eventually('nothing reserved', async () => {
      const seen = await account(fleet);
      return seen.reserved_micro === 0 && seen;
    }, (recoverySeconds + 30) * 1000);
  } catch (error) {
    problems.push(`reservations stay open: ${JSON.stringify(await account(fleet))}`);
    now = await account(fleet);
  }
  let audit = '';
  try {
    audit = coordinatorCommand(fleet, ['ledger', 'audit']);
  } catch (error) {
    audit = `${error.stdout}${error.stderr}`;
  }
  if (!audit.includes('the books are right')) problems.push(`audit: ${audit}`);
  const charged = before.balance_micro - now.balance_micro;
  if (charged > spent + atMost) problems.push(`${charged} tokens were charged, of at most ${spent + atMost}`);
  if (atMost === 0 && charged !== spent) problems.push(`${charged} tokens were charged, ${spent} were answered`);
  return {charged, spent, atMost, reserved: now.reserved_micro, audit: audit.trim().split('\n').at(-1), problems};
}

// With a mortal coordinator a clean failure is an answer too, and the client asks again.
async function askUntilAnswered(post, request, options, counts, whole) {
  for (;;) {
    try {
      return await runRequest(post, request);
    } catch (error) {
      if (options.coordinatorEveryMs === 0 || !(error instanceof CleanFailure)) throw error;
      ++counts.failedCleanly;
      counts.failedTokens += whole;
      await sleep(200);
    }
  }
}

export async function runChaos(given = {}) {
  const options = {...kDefaults, ...given};
  const say = options.quiet ? () => {} : (text) => console.log(text);
  const random = makeRandom(options.seed);
  const requests = makeRequests(options.distinct, random);
  const nodeArgs = ['--threads', '1', '--max-sequences', String(options.maxSequences)];
  // A queue of 200 is long for two cores; that is not what is tested here.
  const fleet = await startFleet({models: kModelsDir, numNodes: options.nodes, nodeArgs, args: [
    '--queue-timeout-s', '300', '--recovery-s', String(options.recoverySeconds)]});
  const log = options.log ? createWriteStream(options.log) : null;
  const differences = [];
  try {
    if (log) fleet.main.child.stderr.on('data', (text) => log.write(text));
    const post = (body) => fleet.post(body);
    say(`${options.nodes} nodes; ${requests.length} requests undisturbed...`);
    const expected = new Map(), wholes = new Map();
    const todo = [...requests];
    await Promise.all(Array.from({length: 16}, async () => {
      for (let r = todo.pop(); r; r = todo.pop()) {
        const {seen, total} = await runRequest(post, r);
        expected.set(r, seen);
        wholes.set(r, total);
      }
    }));
    const purse = await setUpMoney(fleet);

    const counts = {kill: 0, stop: 0, skipped: 0, coordinator: 0, failedCleanly: 0, failedTokens: 0};
    const nodes = fleet.nodes.map((_, i) => new NodeUnderFault(fleet, i, nodeArgs));
    const began = performance.now();
    const end = began + options.seconds * 1000;
    let ended = 0, tokens = 0, spent = 0, calls = 0, inFlight = 0, peak = 0;
    const worst = [], firsts = [], gaps = [];
    const faults = Promise.all([disturb(nodes, options, random, end, counts), disturbCoordinator(fleet, options, end, counts)]);
    const worker = async () => {
      while (performance.now() < end) {
        const request = random.pick(requests);
        peak = Math.max(peak, ++inFlight);
        try {
          const answer = await askUntilAnswered(post, request, options, counts, wholes.get(request));
          if (answer.seen !== expected.get(request)) {
            differences.push(`${request.name}: ${firstDifference(expected.get(request), answer.seen)}`);
          }
          tokens += answer.tokens;
          spent += answer.total;
          calls += answer.calls;
          firsts.push(answer.first);
          for (const gap of answer.gaps) gaps.push(gap);
          if (request.body.stream) worst.push(answer.gaps.reduce((a, b) => Math.max(a, b), 0));
        } catch (error) {
          differences.push(`${request.name}: ${error.message}${error instanceof CleanFailure ? '' : `\n${error.stack}`}`);
        }
        --inFlight;
        ++ended;
      }
    };
    await Promise.all(Array.from({length: options.streams}, worker));
    await faults;
    const seconds = (performance.now() - began) / 1000;
    const money = await checkMoney(fleet, purse, spent, counts.failedTokens, options.coordinatorEveryMs > 0 ? options.recoverySeconds : 0);
    differences.push(...money.problems);
    for (const list of [worst, firsts, gaps]) list.sort((a, b) => a - b);
    const backAfter = nodes.flatMap((node) => node.backAfter).sort((a, b) => a - b);
    const metrics = await (await fetch(`${fleet.url}/metrics`)).text();
    const metric = (name) => metrics.split('\n').filter((line) => line.startsWith(name)).join('; ') || `${name} 0`;
    const result = {
      requests: ended, tokens, calls, seconds, peak, differences, counts, money,
      worstGap: worst.at(-1) ?? 0, p99WorstGap: quantile(worst, 0.99), p99Gap: quantile(gaps, 0.99),
      p99First: quantile(firsts, 0.99), worstFirst: firsts.at(-1) ?? 0, slowestRestart: backAfter.at(-1) ?? 0,
    };
    say(`${ended} requests, ${tokens} tokens, ${calls} tool calls in ${seconds.toFixed(1)} s; at most ${peak} in flight`);
    say(`faults: ${counts.kill} killed, ${counts.stop} stopped for ${options.stopMs} ms, ${counts.skipped} left out (fewer than two healthy nodes)`);
    if (counts.coordinator > 0) say(`the coordinator was killed ${counts.coordinator} times; ${counts.failedCleanly} requests failed cleanly and were asked again`);
    say(`restarted nodes were back after ${ms(quantile(backAfter, 0.5))} (median), ${ms(result.slowestRestart)} (worst)`);
    say(`gaps between pieces: p50 ${ms(quantile(gaps, 0.5))}, p99 ${ms(result.p99Gap)}, worst ${ms(result.worstGap)}; worst gap of a stream: p50 ${ms(quantile(worst, 0.5))}, p99 ${ms(result.p99WorstGap)}`);
    say(`first piece: p50 ${ms(quantile(firsts, 0.5))}, p99 ${ms(result.p99First)}, worst ${ms(result.worstFirst)}`);
    for (const name of ['flotilla_answers_continued_total', 'flotilla_attempts_total', 'flotilla_jobs_total', 'flotilla_nodes_silent_total']) say(metric(name));
    say(`money: ${money.charged} tokens charged, ${money.spent} in whole answers, at most ${money.atMost} in others; ${money.reserved} reserved; ${money.audit}`);
    say(`${differences.length} differences`);
    for (const difference of differences.slice(0, 20)) say(`  ${difference}`);
    return result;
  } finally {
    for (const node of fleet.nodes) node.child.kill('SIGCONT');
    await fleet.stop();
    log?.end();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const names = Object.fromEntries(Object.keys(kDefaults).map((key) => [key.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`), key]));
  const {values} = parseArgs({options: Object.fromEntries(Object.entries(names).map(
    ([flag, key]) => [flag, {type: typeof kDefaults[key] === 'boolean' ? 'boolean' : 'string'}]))});
  const options = Object.fromEntries(Object.entries(values).map(
    ([flag, value]) => [names[flag], typeof kDefaults[names[flag]] === 'number' ? Number(value) : value]));
  const result = await runChaos(options);
  const slow = result.p99WorstGap > (options.maxGapMs ?? kDefaults.maxGapMs);
  if (slow) console.log(`the p99 of the streams' worst gaps is over the limit`);
  process.exitCode = result.differences.length > 0 || result.requests === 0 || slow ? 1 : 0;
}
