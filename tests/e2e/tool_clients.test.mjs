// B01: one tool call whose arguments arrive in pieces, rebuilt by the clients that people use.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {ChatOpenAI, createOpenAICompatible, HumanMessage, OpenAI} from './lib/clients.mjs';
import {startServe} from './lib/processes.mjs';
import {ask, kScript, kTools} from './lib/script.mjs';
import {readSse} from './lib/sse.mjs';

describe('a streamed tool call', () => {
  let d;
  before(async () => { d = await startServe({script: kScript}); });
  after(async () => { await d?.stop(); });

  it('has id, type and name once and never null', async () => {
    const {frames} = await readSse(await d.post(ask('weather', {tools: kTools, stream: true})));
    const pieces = frames.flatMap((f) => f.choices?.[0]?.delta.tool_calls ?? []);
    assert.ok(pieces.length >= 3, 'the arguments come in pieces');
    const [first, ...rest] = pieces;
    assert.equal(first.index, 0);
    assert.ok(first.id.length > 0);
    assert.equal(first.type, 'function');
    assert.equal(first.function.name, 'get_weather');
    for (const piece of rest) {
      assert.deepEqual(Object.keys(piece).sort(), ['function', 'index']);
      assert.deepEqual(Object.keys(piece.function), ['arguments']);
      assert.ok(piece.function.arguments.length > 0);
    }
    assert.deepEqual(JSON.parse(pieces.map((p) => p.function.arguments).join('')), {city: 'Paris'});
  });

  it('is rebuilt by openai', async () => {
    const client = new OpenAI({baseURL: `${d.url}/v1`, apiKey: 'none', maxRetries: 0});
    const message = await client.beta.chat.completions.stream(ask('weather', {tools: kTools})).finalMessage();
    assert.equal(message.tool_calls.length, 1);
    assert.equal(message.tool_calls[0].function.name, 'get_weather');
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), {city: 'Paris'});
    const none = await client.beta.chat.completions.stream(ask('time', {tools: kTools})).finalMessage();
    assert.equal(none.tool_calls[0].function.arguments, '{}');
  });

  it('is rebuilt by @ai-sdk/openai-compatible', async () => {
    const model = createOpenAICompatible({name: 'flotilla', baseURL: `${d.url}/v1`}).chatModel('scripted');
    for (const [text, name, input] of [['weather', 'get_weather', {city: 'Paris'}], ['time', 'now', {}]]) {
      const {stream} = await model.doStream({
        prompt: [{role: 'user', content: [{type: 'text', text}]}],
        tools: kTools.map((t) => ({type: 'function', name: t.function.name, description: t.function.description,
                                   inputSchema: t.function.parameters})),
      });
      const parts = [];
      for await (const part of stream) parts.push(part);
      assert.deepEqual(parts.filter((p) => p.type === 'error'), []);
      const calls = parts.filter((p) => p.type === 'tool-call');
      assert.deepEqual(calls.map((c) => [c.toolName, JSON.parse(c.input)]), [[name, input]]);
      assert.equal(parts.find((p) => p.type === 'finish').finishReason, 'tool-calls');
    }
  });

  it('is rebuilt by LangChain', async () => {
    const model = new ChatOpenAI({model: 'scripted', apiKey: 'none', maxRetries: 0, configuration: {baseURL: `${d.url}/v1`}})
                      .bindTools(kTools);
    for (const [text, name, args] of [['weather', 'get_weather', {city: 'Paris'}], ['time', 'now', {}]]) {
      let sum;
      for await (const chunk of await model.stream([new HumanMessage(text)])) sum = sum ? sum.concat(chunk) : chunk;
      assert.deepEqual(sum.tool_calls.map((c) => [c.name, c.args]), [[name, args]]);
      const whole = await model.invoke([new HumanMessage(text)]);
      assert.deepEqual(whole.tool_calls.map((c) => [c.name, c.args]), [[name, args]]);
    }
  });

  it('goes round: the server takes its own call turn back', async () => {
    const client = new OpenAI({baseURL: `${d.url}/v1`, apiKey: 'none', maxRetries: 0});
    const first = await client.chat.completions.create(ask('weather', {tools: kTools}));
    const {message} = first.choices[0];
    const second = await client.chat.completions.create({model: 'scripted', tools: kTools, messages: [
      {role: 'user', content: 'hello'}, message,
      {role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'sunny'}]});
    assert.equal(second.choices[0].message.content, 'Hello from the script.');
  });
});
