// What requests cost: held before they run, settled to the token, right after every kind of end.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {after, before, describe, it} from 'node:test';

import {OpenAI} from './lib/clients.mjs';
import {coordinatorCommand, eventually, identityArgs, patience, registered, restartCoordinator, sleep, startCoordinator, startFleet, startNode}
  from './lib/processes.mjs';
import {ask} from './lib/script.mjs';
import {parseSse, readSse} from './lib/sse.mjs';

const kMoneyScript = {
  model: 'scripted',
  context_length: 600,
  rules: [
    {match: {user: 'long'}, delay_ms: 30, steps: [{repeat: 200, steps: [{text: 'tick '}]}, {end: true}]},
    {match: {user: 'fail'}, steps: [{fail: 'invalid_argument'}]},
    {steps: [{words: 'Hello from the script.'}, {end: true}]},
  ],
};

const kAdminKey = 'an-admin-key-of-the-tests';

const money = (d, path, options = {}) => fetch(d.url + path, {
  ...options, headers: {authorization: `Bearer ${d.admin ?? d.key}`, 'content-type': 'application/json'},
  body: options.body && JSON.stringify(options.body),
});
const account = async (d, key = d.key) =>
  (await fetch(`${d.url}/v1/account`, {headers: {authorization: `Bearer ${key}`}})).json();
const audit = (d) => coordinatorCommand(d, ['ledger', 'audit']);
const makeKey = (d, ...args) => coordinatorCommand(d, ['keys', 'create', '--name', 'k', '--quiet', ...args]);
// A micro-unit per token, whatever kind.
const setPrice = (d) => coordinatorCommand(d, ['prices', 'set', 'scripted', '--input', '1', '--output', '1']);
let numDeposits = 0;
const deposit = (d, micro, name = 'default') => coordinatorCommand(
  d, ['accounts', 'deposit', name, (micro / 1e6).toFixed(6), '--id', `deposit-${++numDeposits}`]);
const known = (d, key) => eventually('the new key', async () =>
  (await fetch(`${d.url}/v1/models`, {headers: {authorization: `Bearer ${key}`}})).ok);
// Commands are noticed within a second.
const priced = (d) => eventually('the price', async () => (await d.post(ask('hello'))).status === 402);
const settled = (d, key = d.key) => eventually('nothing reserved', async () => {
  const now = await account(d, key);
  return now.reserved_micro === 0 && now;
}, 20_000);

describe('money', () => {
  let d;
  before(async () => {
    d = await startFleet({script: kMoneyScript, args: ['--admin-key', kAdminKey]});
    d.admin = kAdminKey;
  });
  after(() => d?.stop());

  it('is no matter without prices, and use is counted all the same', async () => {
    const response = await d.post(ask('hello'));
    assert.equal(response.status, 200);
    const {usage} = await response.json();
    const line = await eventually('the usage', async () =>
      (await (await money({...d, admin: d.key}, '/v1/usage')).json()).data[0]);
    assert.deepEqual([line.model, line.requests, line.input_tokens, line.output_tokens, line.charged_micro],
                     ['scripted', 1, usage.prompt_tokens, usage.completion_tokens, 0]);
    assert.match(audit(d), /the books are right/);
  });

  it('is refused with the numbers when there is none', async () => {
    setPrice(d);
    await priced(d);
    const response = await d.post(ask('hello', {max_tokens: 10}));
    assert.equal(response.status, 402);
    const {error} = await response.json();
    assert.equal(error.code, 'insufficient_quota');
    assert.match(error.message, /may cost up to 0\.0000\d\d, available are 0\.00 /);
    // A client does not take it for something to try again.
    const client = new OpenAI({baseURL: `${d.url}/v1`, apiKey: d.key, maxRetries: 2});
    await assert.rejects(client.chat.completions.create(ask('hello')), (e) => e.status === 402);
  });

  it('is charged to the token, streamed or whole', async () => {
    deposit(d, 10_000);
    const before = (await account(d)).balance_micro;
    const whole = await (await d.post(ask('hello'))).json();
    const {frames} = await readSse(await d.post(ask('hello', {stream: true, stream_options: {include_usage: true}})));
    const streamed = frames.at(-2);
    const now = await settled(d);
    assert.equal(before - now.balance_micro, whole.usage.total_tokens + streamed.usage.total_tokens);
    audit(d);
  });

  it('goes back when nothing was delivered', async () => {
    const before = (await settled(d)).balance_micro;
    assert.equal((await d.post(ask('fail'))).status, 400);
    assert.equal((await d.post(ask('hello', {model: 'nothing'}))).status, 404);
    assert.equal((await settled(d)).balance_micro, before);
    audit(d);
  });

  it('is charged for what a client got that left', async () => {
    const before = (await settled(d)).balance_micro;
    const abort = new AbortController();
    const response = await d.post(ask('long', {stream: true}), {}, {signal: abort.signal});
    let seen = 0;
    try {
      for await (const chunk of response.body) {
        seen += Buffer.from(chunk).toString().split('tick').length - 1;
        if (seen >= 5) abort.abort();
      }
    } catch { /* aborted */ }
    const charged = before - (await settled(d)).balance_micro;
    assert.ok(charged >= seen && charged < 100, `${seen} tokens seen, ${charged} charged`);
    audit(d);
  });

  it('never falls below zero, however many ask at once', async () => {
    coordinatorCommand(d, ['accounts', 'create', 'small']);
    const key = makeKey(d, '--account', 'small');
    await known(d, key);
    deposit(d, 120, 'small');
    const statuses = await Promise.all(Array.from({length: 50}, async () => {
      const response = await fetch(`${d.url}/v1/chat/completions`, {
        method: 'POST', headers: {authorization: `Bearer ${key}`, 'content-type': 'application/json'},
        body: JSON.stringify(ask('hello', {max_tokens: 8})),
      });
      await response.text();
      assert.ok((await account(d, key)).available_micro >= 0);
      return response.status;
    }));
    const ok = statuses.filter((s) => s === 200).length;
    assert.equal(ok + statuses.filter((s) => s === 402).length, 50, String(statuses));
    assert.ok(ok >= 1 && ok < 50, `${ok} succeeded`);
    const now = await settled(d, key);
    assert.ok(now.balance_micro >= 0 && now.balance_micro < 120);
    audit(d);
  });

  it('B101: a balance of a few tokens starts nothing that may cost more', async () => {
    coordinatorCommand(d, ['accounts', 'create', 'tiny']);
    const key = makeKey(d, '--account', 'tiny');
    await known(d, key);
    deposit(d, 10, 'tiny');
    const post = (body) => fetch(`${d.url}/v1/chat/completions`, {
      method: 'POST', headers: {authorization: `Bearer ${key}`, 'content-type': 'application/json'}, body: JSON.stringify(body),
    }).then(async (response) => { await response.text(); return response.status; });
    const statuses = await Promise.all(Array.from({length: 20}, (_, i) =>
      post(ask(i % 2 ? 'hello' : 'word '.repeat(60), {stream: true, max_tokens: i % 2 ? 500 : 1}))));
    assert.deepEqual([...new Set(statuses)], [402]);
    const now = await settled(d, key);
    assert.equal(now.balance_micro, 10);
    // To the last token, and not beyond it.
    deposit(d, 1_000, 'tiny');
    const abort = new AbortController();
    const response = await fetch(`${d.url}/v1/chat/completions`, {
      method: 'POST', headers: {authorization: `Bearer ${key}`, 'content-type': 'application/json'}, signal: abort.signal,
      body: JSON.stringify(ask('hello', {stream: true, stream_options: {include_usage: true}})),
    });
    const {frames} = await readSse(response);
    abort.abort();
    assert.equal(1_010 - (await settled(d, key)).balance_micro, frames.at(-2).usage.total_tokens);
    audit(d);
  });

  it('has limits per key: spending, time and rate', async () => {
    const post = (key) => fetch(`${d.url}/v1/chat/completions`, {
      method: 'POST', headers: {authorization: `Bearer ${key}`, 'content-type': 'application/json'},
      body: JSON.stringify(ask('hello', {max_tokens: 8})),
    });
    const [poor, slow] = [makeKey(d, '--spend-limit', '0.000040'), makeKey(d, '--requests-per-minute', '2')];
    await known(d, slow);
    let last;
    for (let i = 0; i < 10 && last?.status !== 402; ++i) last = await post(poor);
    assert.equal(last.status, 402);
    assert.match((await last.json()).error.message, /spend limit of 0\.00004/);
    assert.deepEqual([(await post(slow)).status, (await post(slow)).status], [200, 200]);
    const refused = await post(slow);
    assert.equal(refused.status, 429);
    assert.ok(Number(refused.headers.get('retry-after')) >= 20);
    assert.match((await refused.json()).error.message, /limit of 2 requests per minute/);
    assert.throws(() => makeKey(d, '--expires', '2020-01-01'));
  });

  it('is for admins to change, and once per idempotency key', async () => {
    const order = {account: 'default', amount_micro: 1000, idempotency_key: 'invoice-1'};
    const {balance_micro: before} = await settled(d);
    const own = {...d, admin: d.key};
    assert.equal((await money(own, '/v1/admin/deposits', {method: 'POST', body: order})).status, 401);
    assert.equal((await fetch(`${d.url}/v1/admin/accounts`)).status, 401);
    for (const repeated of [false, true]) {
      const done = await (await money(d, '/v1/admin/deposits', {method: 'POST', body: order})).json();
      assert.deepEqual([done.balance_micro, done.repeated], [before + 1000, repeated]);
    }
    const made = await (await money(own, '/v1/keys', {method: 'POST', body: {name: 'mine'}})).json();
    await known(d, made.key);
    assert.equal((await money(own, `/v1/keys/${made.id}`, {method: 'DELETE'})).status, 200);
    await eventually('the key is void', async () =>
      (await fetch(`${d.url}/v1/models`, {headers: {authorization: `Bearer ${made.key}`}})).status === 401);
    const csv = await (await money(own, '/v1/usage?format=csv&group_by=key')).text();
    assert.match(csv, /^key_id,key_name,requests,/);
    assert.ok(!d.log().includes(made.key));
  });
});

describe('money and nodes', () => {
  it('a stream of two nodes is charged once, and each owner gets its part', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kMoneyScript});
    const owned = (i, owner) => {
      coordinatorCommand(d, ['accounts', 'create', owner]);
      coordinatorCommand(d, ['nodes', 'owner', `node-${i}`, owner]);
    };
    try {
      owned(0, 'ann');
      setPrice(d);
      await priced(d);
      deposit(d, 10_000);
      const response = await d.post(ask('long', {stream: true, stream_options: {include_usage: true}}));
      let text = '', killed = false;
      for await (const chunk of response.body) {
        text += Buffer.from(chunk).toString();
        if (!killed && text.split('tick').length > 20) {
          killed = true;
          startNode(d, {script: kMoneyScript});
          owned(1, 'ben');
          await registered(d, 2);
          await d.nodes[0].kill();
        }
      }
      const {frames} = parseSse(text);
      assert.equal(frames.at(-1), '[DONE]');
      const {usage} = frames.at(-2);
      assert.equal(text.split('tick').length - 1, 200);
      assert.equal(10_000 - (await settled(d)).balance_micro, usage.total_tokens);
      const list = coordinatorCommand(d, ['accounts', 'list', '--quiet']);
      const of = (name) => Math.round(Number(list.match(new RegExp(`^${name} +(\\S+)`, 'm'))[1]) * 1e6);
      assert.equal(of('ann') + of('ben') + of('@platform'), usage.total_tokens);
      assert.ok(of('ann') > 10 && of('ben') > 10, list);
      assert.ok(of('@platform') <= 1, list);
      audit(d);
    } finally {
      await d.stop();
    }
  });

  it('one\'s own node is free', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kMoneyScript});
    try {
      setPrice(d);
      await priced(d);
      coordinatorCommand(d, ['nodes', 'owner', 'node-0', 'default']);
      await eventually('the owner is known', async () => (await d.post(ask('hello'))).status === 200);
      assert.equal((await account(d)).balance_micro, 0);
      audit(d);
    } finally {
      await d.stop();
    }
  });
});

describe('money and a coordinator that is killed', () => {
  it('is exact after the restart', {timeout: patience(120_000)}, async () => {
    const d = await startFleet({script: kMoneyScript, numNodes: 2, args: ['--recovery-s', '6']});
    try {
      setPrice(d);
      await priced(d);
      deposit(d, 100_000);
      const streams = Array.from({length: 6}, async () => {
        let text = '';
        try {
          const response = await d.post(ask('long', {stream: true}));
          for await (const chunk of response.body) text += Buffer.from(chunk).toString();
        } catch { /* cut */ }
        return text.split('tick').length - 1;
      });
      const whole = Array.from({length: 4}, () => d.post(ask('long')).then((r) => r.status, () => 'cut'));
      const short = await (await d.post(ask('hello'))).json();
      await eventually('all of them run', async () => (await account(d)).reserved_micro > 6 * 100);
      await sleep(1_000);
      await restartCoordinator(d);
      const seen = (await Promise.all(streams)).reduce((a, b) => a + b, 0);
      assert.ok(seen > 6 && seen < 6 * 200, `${seen} tokens arrived`);
      for (const status of await Promise.all(whole)) assert.ok(status === 'cut' || status >= 500, `${status}`);
      // What was not streamed went back at the start.
      assert.match(audit(d), /6 open\): the books are right/);
      const now = await settled(d);
      const charged = 100_000 - now.balance_micro - short.usage.total_tokens;
      const prompts = 6 * short.usage.prompt_tokens;
      // Streams pay for what was marked as handed over: never more than arrived, and less by what a second brings.
      assert.ok(charged <= seen + prompts && charged >= seen + prompts - 6 * 60 && charged > prompts,
                `${seen} tokens arrived, ${charged} micro charged`);
      assert.match(audit(d), /0 open\): the books are right/);
      await registered(d, 2);
      assert.equal((await d.post(ask('hello'))).status, 200);
      await settled(d);
      audit(d);
    } finally {
      await d.stop();
    }
  });

  it('has one server: a second one is told who has the database', async () => {
    const d = await startCoordinator();
    try {
      assert.throws(() => coordinatorCommand(d, ['serve', '--listen', '127.0.0.1:0', ...identityArgs(d)]),
                    (error) => error.status === 1 &&
                      new RegExp(`in use by another coordinator: flotilla-coordinator .* pid ${d.main.child.pid};`).test(error.stderr));
      assert.equal((await fetch(`${d.url}/healthz`)).status, 200);
    } finally {
      await d.stop();
    }
  });

  it('paid requests get 503 while PostgreSQL is stopped, others go on', {
    skip: !process.env.FLOTILLA_TEST_POSTGRES_PID && 'no PostgreSQL', timeout: patience(90_000),
  }, async () => {
    const free = {...kMoneyScript, model: 'free'};
    const d = await startFleet({script: kMoneyScript});
    const all = [Number(process.env.FLOTILLA_TEST_POSTGRES_PID)];
    all.push(...readFileSync(`/proc/${all[0]}/task/${all[0]}/children`, 'utf8').trim().split(' ').map(Number));
    try {
      startNode(d, {script: free});
      setPrice(d);
      await priced(d);
      deposit(d, 10_000);
      await eventually('the money', async () => (await d.post(ask('hello'))).status === 200);
      for (const pid of all) process.kill(pid, 'SIGSTOP');
      const began = Date.now();
      const refused = await Promise.all([d.post(ask('hello')), d.post(ask('hello', {stream: true}))]);
      for (const response of refused) {
        assert.equal(response.status, 503);
        assert.ok(Number(response.headers.get('retry-after')) >= 1);
        assert.match(await response.text(), /accounts cannot be reached/);
      }
      assert.ok(Date.now() - began < patience(15_000));
      const start = Date.now();
      assert.equal((await d.post(ask('hello', {model: 'free'}))).status, 200);
      assert.deepEqual((await d.models()).sort(), ['free', 'scripted']);
      assert.ok(Date.now() - start < patience(2_000));
      for (const pid of all) process.kill(pid, 'SIGCONT');
      await eventually('the accounts', async () => (await d.post(ask('hello'))).status === 200, 30_000);
      await settled(d);
      assert.match(audit(d), /0 open\): the books are right/);
    } finally {
      for (const pid of all) { try { process.kill(pid, 'SIGCONT'); } catch { /* gone */ } }
      await d.stop();
    }
  });

  it('an answer that is not streamed and fails in one prompt costs nothing', async () => {
    const d = await startFleet({script: kMoneyScript});
    try {
      setPrice(d);
      await priced(d);
      deposit(d, 10_000);
      const response = await d.send('/v1/completions', {model: 'scripted', prompt: ['hello', 'x '.repeat(5000)], max_tokens: 8});
      assert.equal(response.status, 400, await response.text());
      assert.equal((await settled(d)).balance_micro, 10_000);
      audit(d);
    } finally {
      await d.stop();
    }
  });

  it('is given back when no node knows', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kMoneyScript, args: ['--recovery-s', '3']});
    try {
      setPrice(d);
      await priced(d);
      deposit(d, 10_000);
      const cut = d.post(ask('long', {stream: true})).then((r) => r.text()).catch(() => 'cut');
      await eventually('it runs', async () => (await account(d)).reserved_micro > 0);
      await d.main.kill();
      await d.nodes[0].kill();
      await cut;
      await restartCoordinator(d);
      assert.equal((await settled(d)).balance_micro, 10_000);
      audit(d);
      startNode(d, {script: kMoneyScript});
      await d.ready();
    } finally {
      await d.stop();
    }
  });
});
