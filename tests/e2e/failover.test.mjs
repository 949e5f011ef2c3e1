// Nodes that die, and nodes that nobody invited.
import assert from 'node:assert/strict';
import {join} from 'node:path';
import {after, before, describe, it} from 'node:test';

import {OpenAI} from './lib/clients.mjs';
import {coordinatorCommand, eventually, invite, patience, registered, startCoordinator, startFleet,
        startNode} from './lib/processes.mjs';
import {ask} from './lib/script.mjs';
import {assemble, readSse} from './lib/sse.mjs';

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

  it('after the first content: one error event, no [DONE], no made-up stop', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript});
    try {
      const response = await d.post(ask('long', {stream: true}));
      const reader = response.body.getReader();
      let text = '';
      let killed = false;
      for (;;) {
        const {done, value} = await reader.read();
        if (done) break;
        text += Buffer.from(value).toString();
        if (!killed && text.split('tick').length > 10) {
          killed = true;
          await d.nodes[0].kill();
        }
      }
      const frames = text.split('\n\n').filter((f) => f.startsWith('data: ')).map((f) => f.slice(6));
      assert.ok(!frames.includes('[DONE]'));
      const parsed = frames.map((f) => JSON.parse(f));
      assert.equal(parsed.filter((f) => f.error).length, 1);
      assert.ok(parsed.at(-1).error);
      assert.ok(parsed.every((f) => !f.choices || f.choices.every((c) => c.finish_reason === null)));
    } finally {
      await d.stop();
    }
  });

  it('after the first content: the openai client raises', {timeout: patience(60_000)}, async () => {
    const d = await startFleet({script: kFleetScript});
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
    const d = await startFleet({script: kFleetScript});
    try {
      await d.nodes[0].kill();
      const response = await eventually('a refusal', async () => {
        const r = await d.post(ask('hello'));
        return r.status >= 400 ? r : null;
      }, 40_000);
      assert.ok([404, 503].includes(response.status), String(response.status));
      assert.ok((await response.json()).error.message.length > 0);
      assert.notEqual((await fetch(`${d.url}/readyz`)).status, 200);
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
    const token = coordinatorCommand(d, ['nodes', 'invite', 'stranger', '--url', d.link, '--quiet', '--identity-file', `${d.database}.key`], other);
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
