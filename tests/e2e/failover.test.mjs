// Nodes that die, and nodes that nobody invited.
import assert from 'node:assert/strict';
import {join} from 'node:path';
import {after, before, describe, it} from 'node:test';

import {OpenAI} from './lib/clients.mjs';
import {coordinatorCommand, eventually, invite, patience, registered, restartCoordinator, sleep,
        startCoordinator, startFleet, startNode} from './lib/processes.mjs';
import {ask} from './lib/script.mjs';
import {assemble, parseSse, readSse} from './lib/sse.mjs';

const kFleetScript = {
  model: 'scripted',
  rules: [
    {match: {user: 'slow start'}, start_ms: 5000, steps: [{words: 'A normal answer.'}, {end: true}]},
    {match: {user: 'long'}, delay_ms: 30, steps: [{repeat: 300, steps: [{text: 'tick '}]}, {end: true}]},
    {steps: [{words: 'Hello.'}, {end: true}]},
  ],
};

describe('a node is killed', () => {
  for (const streamed of [true, false]) {
    it(`before the first content: the other one answers, ${streamed ? 'streamed' : 'whole'}`, {timeout: patience(60_000)}, async () => {
      const d = await startFleet({script: kFleetScript});
      try {
        // The only node has the request before the second one exists.
        let answered = false;
        const pending = d.post(ask('slow start', {stream: streamed})).finally(() => { answered = true; });
        startNode(d, {script: kFleetScript});
        await registered(d, 2);
        assert.equal(answered, false, 'the first node was too fast, or the second too slow');
        await d.nodes[0].kill();
        const response = await pending;
        assert.equal(response.status, 200);
        if (streamed) {
          const {frames, text} = await readSse(response);
          assert.equal(frames.at(-1), '[DONE]');
          assert.ok(!text.includes('"error"'));
          const [choice] = assemble(frames.slice(0, -1));
          assert.deepEqual([choice.content, choice.finish, choice.roles], ['A normal answer.', 'stop', 1]);
        } else {
          const answer = await response.json();
          assert.equal(answer.choices[0].message.content, 'A normal answer.');
          assert.equal(answer.usage.completion_tokens, 4);
        }
      } finally {
        await d.stop();
      }
    });
  }

  // Reads until `after` pieces have come, then kills the node that serves the stream.
  const cut = async (d, response, after) => {
    const reader = response.body.getReader();
    let text = '';
    let killed = false;
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return text;
      text += Buffer.from(value).toString();
      if (!killed && text.split('data: ').length > after) {
        killed = true;
        await d.nodes[0].kill();
      }
    }
  };

  it('after the first content: another one goes on with the same stream', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript});
    try {
      const response = await d.post(ask('long', {stream: true, logprobs: true, stream_options: {include_usage: true}}));
      const second = d.nodes.length;
      startNode(d, {script: kFleetScript});
      await eventually('the second node', async () => d.nodes[second].log.includes('link_up'));
      const {frames} = parseSse(await cut(d, response, 40));
      assert.equal(frames.at(-1), '[DONE]');
      const [choice] = assemble(frames.slice(0, -1));
      assert.equal(choice.content, 'tick '.repeat(300));
      assert.equal(choice.finish, 'stop');
      assert.equal(choice.roles, 1);
      assert.equal(choice.logprobs.length, 301);  // the end token has one too
      assert.equal(frames.findLast((f) => f.usage)?.usage.completion_tokens, 301);
    } finally {
      await d.stop();
    }
  });

  it('after the first content, with nobody to go on: one error event, no [DONE], no made-up stop', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript, args: ['--queue-timeout-s', '2']});
    try {
      const text = await cut(d, await d.post(ask('long', {stream: true})), 10);
      const {frames} = parseSse(text);
      assert.ok(!frames.includes('[DONE]'));
      assert.equal(frames.filter((f) => f.error).length, 1);
      assert.ok(frames.at(-1).error);
      assert.ok(frames.every((f) => !f.choices || f.choices.every((c) => c.finish_reason === null)));
    } finally {
      await d.stop();
    }
  });

  it('after the first content, with nobody to go on: the openai client raises', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript, args: ['--queue-timeout-s', '2']});
    try {
      const client = new OpenAI({baseURL: `${d.url}/v1`, apiKey: d.key, maxRetries: 0});
      let pieces = 0;
      await assert.rejects(async () => {
        for await (const chunk of await client.chat.completions.create(ask('long', {stream: true}))) {
          void chunk;
          if (++pieces === 10) await d.nodes[0].kill();
        }
      }, (error) => error instanceof OpenAI.APIError);
      assert.ok(pieces >= 10);
    } finally {
      await d.stop();
    }
  });

  it('with nobody left: 503 and Retry-After in bounded time', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript, args: ['--queue-timeout-s', '2']});
    try {
      await d.nodes[0].kill();
      const response = await d.post(ask('hello'));
      assert.equal(response.status, 503);
      assert.ok(Number(response.headers.get('retry-after')) > 0);
      assert.ok((await response.json()).error.message.length > 0);
      assert.notEqual((await fetch(`${d.url}/readyz`)).status, 200);
    } finally {
      await d.stop();
    }
  });
});

describe('the coordinator is restarted', () => {
  it('a model whose node is not back yet is unavailable, not unknown', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript, args: ['--queue-timeout-s', '1']});
    try {
      await eventually('the model is noted', async () => (await d.models()).length > 0);
      await sleep(500);
      await d.nodes[0].kill();
      await restartCoordinator(d);
      const known = await d.post(ask('hello'));
      assert.equal(known.status, 503);
      assert.ok(Number(known.headers.get('retry-after')) > 0);
      startNode(d, {script: kFleetScript, name: 'node-0', token: ''});
      await eventually('the node', async () => (await d.models()).length > 0);
      assert.equal((await d.post(ask('hello'))).status, 200);
      assert.equal((await d.post({...ask('hello'), model: 'never-seen'})).status, 404);
    } finally {
      await d.stop();
    }
  });
});

describe('the coordinator is stopped and goes on', () => {
  it('blames nobody for its own pause', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript, numNodes: 2});
    try {
      const response = await d.post(ask('long', {stream: true}));
      d.main.child.kill('SIGSTOP');
      await sleep(5000);
      d.main.child.kill('SIGCONT');
      const {frames} = await readSse(response);
      assert.equal(assemble(frames.slice(0, -1))[0].content, 'tick '.repeat(300));
      const metrics = await (await fetch(`${d.url}/metrics`)).text();
      assert.match(metrics, /flotilla_nodes_silent_total 0/);
      assert.ok(!metrics.includes('flotilla_nodes_lost_total{'), metrics);
    } finally {
      await d.stop();
    }
  });
});

describe('a node that is stopped', () => {
  it('is replaced within seconds, and its late frames are nobody\'s', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript});
    try {
      const response = await d.post(ask('long', {stream: true}));
      startNode(d, {script: kFleetScript});
      await registered(d, 2);
      const began = Date.now();
      d.nodes[0].child.kill('SIGSTOP');
      await eventually('the continuation', async () => d.main.log.includes('job_continued'), 3000);
      assert.ok(Date.now() - began < patience(3000));
      d.nodes[0].child.kill('SIGCONT');
      const {frames} = await readSse(response);
      assert.equal(assemble(frames.slice(0, -1))[0].content, 'tick '.repeat(300));
      assert.ok(!d.main.log.includes('provider_lost'));
    } finally {
      d.nodes[0].child.kill('SIGCONT');
      await d.stop();
    }
  });
});

// B94: what naps is not dead; what is stopped for long is, and comes back by itself.
describe('a node that naps', () => {
  it('keeps its stream and its place through short pauses', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript, numNodes: 2});
    try {
      const response = await d.post(ask('long', {stream: true}));
      const napping = (async () => {
        for (let i = 0; i < 8; ++i) {
          for (const node of d.nodes) node.child.kill('SIGSTOP');
          await sleep(300);
          for (const node of d.nodes) node.child.kill('SIGCONT');
          await sleep(500);
        }
      })();
      const {frames} = await readSse(response);
      await napping;
      assert.equal(assemble(frames.slice(0, -1))[0].content, 'tick '.repeat(300));
      assert.ok(!d.main.log.includes('provider_lost'));
    } finally {
      for (const node of d.nodes) node.child.kill('SIGCONT');
      await d.stop();
    }
  });

  it('is gone after twice the time to live, and rejoins when it wakes', {timeout: patience(120_000)}, async () => {
    const d = await startFleet({script: kFleetScript, numNodes: 2});
    try {
      d.nodes[0].child.kill('SIGSTOP');
      await eventually('the loss', async () => /provider_lost node=node-0 .*why=silent/.test(d.main.log), 25_000);
      await sleep(15_000);
      assert.equal((await d.post(ask('hello'))).status, 200);
      assert.ok(!/provider_lost node=node-1/.test(d.main.log));
      d.nodes[0].child.kill('SIGCONT');
      await registered(d, 3);
      // Alone, it serves again.
      await d.nodes[1].kill();
      const {frames} = await readSse(await d.post(ask('long', {stream: true})));
      assert.equal(assemble(frames.slice(0, -1))[0].content, 'tick '.repeat(300));
    } finally {
      d.nodes[0].child.kill('SIGCONT');
      await d.stop();
    }
  });
});

describe('a node that stops politely', () => {
  it('hands over what it cannot finish in its time', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript, nodeArgs: ['--drain-timeout-s', '3']});
    try {
      const response = await d.post(ask('long', {stream: true}));
      startNode(d, {script: kFleetScript});
      await registered(d, 2);
      const stopped = d.nodes[0].stop();
      const {frames} = await readSse(response);
      assert.equal(frames.at(-1), '[DONE]');
      assert.equal(assemble(frames.slice(0, -1))[0].content, 'tick '.repeat(300));
      await stopped;
      const metrics = await (await fetch(`${d.url}/metrics`)).text();
      assert.match(metrics, /attempts_total\{how="handed_over"\} 1/);
    } finally {
      await d.stop();
    }
  });
});

describe('the coordinator turns away', () => {
  let d;
  before(async () => { d = await startCoordinator(); });
  after(async () => { await d?.stop(); });

  // Starts a node that must not get in; gives what it and the coordinator said.
  const rejected = async (token, fault) => {
    const node = startNode(d, {script: kFleetScript, token});
    node.expectKilled = true;  // whether it gives up or keeps trying is its own affair
    await eventually(fault, async () => (node.log + d.main.log).includes(fault), 15_000);
    if (node.how === undefined) await node.kill();
    assert.notEqual((await fetch(`${d.url}/readyz`)).status, 200);
    assert.deepEqual(await d.models(), []);
  };

  it('a node that was not invited', async () => {
    const other = join(d.dir, 'other.sqlite');
    const token = coordinatorCommand(d, ['nodes', 'invite', 'stranger', '--url', d.link, '--quiet', '--identity-file', process.env.FLOTILLA_TEST_POSTGRES ? join(d.dir, 'identity.key') : `${d.database}.key`], other);
    await rejected(token, 'uninvited_node');
  });

  it('by the node: a coordinator whose key is not the one of the invitation', async () => {
    const other = join(d.dir, 'another.sqlite');
    invite(d, 'misled');  // known here too: only the key is another one
    const token = coordinatorCommand(d, ['nodes', 'invite', 'misled', '--url', d.link, '--quiet'], other);
    await rejected(token, 'wrong_coordinator_key');
  });

  it('a node whose invitation was revoked', async () => {
    const token = invite(d, 'former');
    coordinatorCommand(d, ['nodes', 'revoke', 'former']);
    await rejected(token, 'revoked_node');
  });
});

describe('a client that leaves', () => {
  it('cancels its job on the node within a second', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript});
    try {
      const controller = new AbortController();
      const response = await d.post(ask('long', {stream: true}), {}, {signal: controller.signal});
      const reader = response.body.getReader();
      await reader.read();
      controller.abort();
      await eventually('the coordinator forgets it', async () => d.main.log.includes('outcome=client_left'), 1000);
    } finally {
      await d.stop();
    }
  });
});
