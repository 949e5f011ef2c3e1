// Constrained output of the bundled model, through `flotilla serve` and through coordinator and node.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {kModelsDir, kTinyModel, patience, startFleet, startServe} from './lib/processes.mjs';
import {assemble, readSse} from './lib/sse.mjs';

const say = (text, more = {}) =>
  ({model: kTinyModel, messages: [{role: 'user', content: text}], max_tokens: 200, ...more});
const kTools = [
  {type: 'function', function: {name: 'find_rows', description: 'Finds rows.', parameters: {
    type: 'object', required: ['q'], properties: {q: {type: 'string', minLength: 1, maxLength: 20},
      limit: {type: 'integer', minimum: 1, maximum: 50}, order: {enum: ['up', 'down']}}}}},
  {type: 'function', function: {name: 'now', description: 'The time.'}},
];
const kSchema = {type: 'object', required: ['city', 'days'], additionalProperties: false,
  properties: {city: {type: 'string', maxLength: 12}, days: {type: 'integer', minimum: 1, maximum: 14}}};
const format = (schema) => ({response_format: {type: 'json_schema', json_schema: {name: 'x', schema}}});

function checkCall(call) {
  assert.equal(call.function.name, 'find_rows');
  const args = JSON.parse(call.function.arguments);
  assert.ok(typeof args.q === 'string' && args.q.length >= 1, call.function.arguments);
  if ('limit' in args) assert.ok(Number.isInteger(args.limit) && args.limit >= 1 && args.limit <= 50);
  if ('order' in args) assert.ok(['up', 'down'].includes(args.order));
  assert.deepEqual(Object.keys(args).filter((key) => !['q', 'limit', 'order'].includes(key)), []);
}

const surfaces = {
  'flotilla serve': () => startServe({models: kModelsDir}),
  'coordinator and node': () => startFleet({models: kModelsDir}),
};

for (const [name, start] of Object.entries(surfaces)) {
  describe(`constrained output: ${name}`, {timeout: patience(300_000)}, () => {
    let d;
    before(async () => { d = await start(); });
    after(async () => { await d?.stop(); });
    const choiceOf = async (body) => {
      const response = await d.post(body);
      const answer = await response.json();
      assert.equal(response.status, 200, JSON.stringify(answer));
      return answer.choices[0];
    };
    const streamed = async (body) => {
      const response = await d.post({...body, stream: true});
      assert.equal(response.status, 200);
      const {frames} = await readSse(response);
      assert.equal(frames.at(-1), '[DONE]');
      return assemble(frames.slice(0, -1))[0];
    };
    const refused = async (body) => {
      const begin = Date.now();
      const response = await d.post(body);
      assert.equal(response.status, 400);
      assert.ok(Date.now() - begin < patience(1000), 'a refusal takes no time');
      return (await response.json()).error;
    };

    it('answers with JSON of the schema, streamed and whole alike', async () => {
      for (let seed = 0; seed < 6; seed++) {
        const body = say('Where to?', {...format(kSchema), seed, max_tokens: 60});
        const choice = await choiceOf(body);
        assert.equal(choice.finish_reason, 'stop');
        const value = JSON.parse(choice.message.content);
        assert.ok(typeof value.city === 'string' && [...value.city].length <= 12);
        assert.ok(Number.isInteger(value.days) && value.days >= 1 && value.days <= 14);
        assert.equal((await streamed(body)).content, choice.message.content);
      }
    });

    it('closes in time, or ends with length when there is no time', async () => {
      const long = {type: 'object', required: ['a'], properties: {a: {type: 'array', minItems: 1, items: {type: 'string', minLength: 3}}}};
      for (const max_tokens of [24, 40, 64]) {
        const choice = await choiceOf(say('List words.', {...format(long), max_tokens, seed: max_tokens}));
        assert.equal(choice.finish_reason, 'stop');
        assert.ok(JSON.parse(choice.message.content).a.length >= 1);
      }
      const cut = await choiceOf(say('List words.', {...format(long), max_tokens: 3}));
      assert.equal(cut.finish_reason, 'length');
    });

    it('knows json_object, regular expressions, choices and grammars', async () => {
      const object = await choiceOf(say('JSON please', {response_format: {type: 'json_object'}, max_tokens: 40, seed: 2}));
      assert.equal(typeof JSON.parse(object.message.content), 'object');
      const date = await choiceOf(say('When?', {structured_outputs: {regex: '20\\d\\d-(0[1-9]|1[0-2])'}}));
      assert.match(date.message.content, /^20\d\d-(0[1-9]|1[0-2])$/);
      const choice = await choiceOf(say('Fox or owl?', {guided_choice: ['fox', 'owl', 'foxes']}));
      assert.ok(['fox', 'owl', 'foxes'].includes(choice.message.content));
      const sum = await choiceOf(say('A sum', {grammar: 'root ::= n ("+" n){1,3}\nn ::= [1-9] [0-9]?'}));
      assert.match(sum.message.content, /^[1-9]\d?(\+[1-9]\d?){1,3}$/);
    });

    it('thinks freely first when thinking is on', async () => {
      const choice = await choiceOf(say('What is 12 + 30?', {...format(kSchema), enable_thinking: true, max_tokens: 120}));
      assert.equal(choice.finish_reason, 'stop');
      assert.ok('city' in JSON.parse(choice.message.content));
    });

    it('B11, B43: a forced call is a call, exactly one when named', async () => {
      for (let seed = 0; seed < 20; seed++) {
        const more = {tools: kTools, tool_choice: {type: 'function', function: {name: 'find_rows'}}, temperature: 0.7, seed};
        const choice = await choiceOf(say('Rows about owls, please.', more));
        assert.equal(choice.finish_reason, 'tool_calls');
        assert.equal(choice.message.tool_calls.length, 1);
        assert.equal(choice.message.content, null);
        checkCall(choice.message.tool_calls[0]);
        if (seed < 3) {
          const other = await streamed(say('Rows about owls, please.', more));
          assert.equal(other.finish, 'tool_calls');
          assert.equal(other.calls[0].arguments, choice.message.tool_calls[0].function.arguments);
        }
      }
      for (const [parallel, most] of [[true, 32], [false, 1]]) {
        const choice = await choiceOf(say('Hello!', {tools: kTools, tool_choice: 'required', parallel_tool_calls: parallel, seed: 5}));
        assert.equal(choice.finish_reason, 'tool_calls');
        assert.ok(choice.message.tool_calls.length >= 1 && choice.message.tool_calls.length <= most);
        for (const call of choice.message.tool_calls) {
          assert.ok(['find_rows', 'now'].includes(call.function.name));
          JSON.parse(call.function.arguments);
        }
      }
      // Cut inside the call: no room for its end.
      const cut = await choiceOf(say('Hello!', {tools: kTools, tool_choice: 'required', max_tokens: 3}));
      assert.equal(cut.finish_reason, 'length');
    });

    it('B44: with strict tools, only tools of this request are called', async () => {
      const strict = kTools.map((tool) => ({...tool, function: {...tool.function, strict: true}}));
      const messages = [
        {role: 'user', content: 'Look it up.'},
        {role: 'assistant', content: null, tool_calls: [{id: 'a', type: 'function', function: {name: 'old_tool', arguments: '{"x":1}'}}]},
        {role: 'tool', tool_call_id: 'a', content: 'nothing'}, {role: 'user', content: 'Again.'},
      ];
      for (let seed = 0; seed < 5; seed++) {
        const choice = await choiceOf({model: kTinyModel, messages, tools: strict, seed, max_tokens: 80});
        for (const call of choice.message.tool_calls ?? []) assert.ok(['find_rows', 'now'].includes(call.function.name));
        assert.equal(choice.finish_reason === 'tool_calls', (choice.message.tool_calls ?? []).length > 0);
      }
    });

    it('B26: logprobs are finite where nearly everything is impossible', async () => {
      const choice = await choiceOf(say('Yes?', {structured_outputs: {regex: '(a|b){6}'}, logprobs: true, top_logprobs: 20, top_k: 1}));
      assert.match(choice.message.content, /^[ab]{6}$/);
      for (const item of choice.logprobs.content) {
        assert.ok(Number.isFinite(item.logprob) && item.top_logprobs.every((t) => Number.isFinite(t.logprob)));
      }
    });

    it('B76: what is wrong with a constraint is said at its place, at once', async () => {
      const unsupported = await refused(say('x', format({type: 'object', properties: {a: {not: {}}}})));
      assert.equal(unsupported.param, 'response_format.json_schema.schema.properties.a.not');
      assert.equal(unsupported.code, 'unsupported');
      assert.equal((await refused(say('x', format({$ref: '#'})))).param, 'response_format.json_schema.schema');
      assert.equal((await refused(say('x', format({properties: {['k'.repeat(3 << 20)]: {}}})))).code, 'invalid_value');
      let deep = {type: 'null'};
      for (let i = 0; i < 2000; i++) deep = {type: 'array', items: deep};
      await refused(say('x', format(deep)));
      assert.equal((await refused(say('x', {guided_regex: '(?=a)b'}))).param, 'guided_regex');
      assert.equal((await refused(say('x', {guided_grammar: 'root ::= root "a"'}))).param, 'guided_grammar');
      assert.equal((await choiceOf(say('Still there?', {max_tokens: 4}))).finish_reason, 'length');
    });
  });
}
