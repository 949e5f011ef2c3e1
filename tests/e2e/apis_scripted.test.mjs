// Text completions, responses and messages, with a scripted engine behind them: once as `flotilla serve`, once as coordinator
// and node. Chat completions are in scripted.test.mjs.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, describe, it} from 'node:test';

import {Anthropic, OpenAI} from './lib/clients.mjs';
import {eventually, kRoot, patience, startFleet, startServe} from './lib/processes.mjs';
import {kScript} from './lib/script.mjs';
import {readEvents, readSse} from './lib/sse.mjs';

const kKey = 'serve-key-1';
const kOrigin = 'https://chat.example.com';
const kFlatTools = [
  {type: 'function', name: 'get_weather', description: 'Weather in a city', strict: false,
   parameters: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']}},
  {type: 'function', name: 'now', strict: false, parameters: {type: 'object', properties: {}}},
];
const kAnthropicTools = kFlatTools.map((t) => ({name: t.name, description: t.description ?? '', input_schema: t.parameters}));

// A body of every API that asks the same thing.
const kBodies = {
  '/v1/chat/completions': (text, more) => ({model: 'scripted', messages: [{role: 'user', content: text}], ...more}),
  '/v1/completions': (text, more) => ({model: 'scripted', prompt: text, max_tokens: 500, ...more}),
  '/v1/responses': (text, more) => ({model: 'scripted', input: text, ...more}),
  '/v1/messages': (text, more) => ({model: 'scripted', max_tokens: 500, messages: [{role: 'user', content: text}], ...more}),
};

// What the client adds to a response that is not streamed.
const outputText = (response) => response.output.filter((item) => item.type === 'message')
  .flatMap((item) => item.content.map((part) => part.text)).join('');

// The text of an answer, whole or streamed.
const wholeText = {
  '/v1/chat/completions': (body) => body.choices[0].message.content,
  '/v1/completions': (body) => body.choices[0].text,
  '/v1/responses': outputText,
  '/v1/messages': (body) => body.content.map((block) => block.text).join(''),
};
async function streamText(path, response) {
  if (path.endsWith('completions')) {
    const {frames} = await readSse(response);
    return frames.slice(0, -1).map((f) => f.choices[0].delta?.content ?? f.choices[0].text ?? '').join('');
  }
  const {events} = await readEvents(response);
  return events.filter((e) => /^(content_block_delta|response.output_text.delta)$/.test(e.event))
    .map((e) => e.delta.text ?? e.delta).join('');
}

const surfaces = {
  'flotilla serve': async () => {
    const d = await startServe({script: kScript, args: ['--api-keys', kKey, '--cors-allowed-origins', kOrigin]});
    d.key = kKey;
    return d;
  },
  'coordinator and node': () => startFleet({script: kScript, args: ['--cors-allowed-origins', kOrigin]}),
};

for (const [name, start] of Object.entries(surfaces)) {
  describe(`every API: ${name}`, () => {
    let d, openai, anthropic;
    before(async () => {
      d = await start();
      openai = new OpenAI({baseURL: `${d.url}/v1`, apiKey: d.key, maxRetries: 0});
      anthropic = new Anthropic({baseURL: d.url, apiKey: d.key, maxRetries: 0});
    });
    after(async () => { await d?.stop(); });
    const failure = async (path, body, headers) => {
      const response = await d.send(path, body, headers);
      return {status: response.status, headers: response.headers, body: await response.json()};
    };

    describe('text completions', () => {
      it('answer the openai client, whole and streamed', async () => {
        const answer = await openai.completions.create({model: 'scripted', prompt: 'hello', max_tokens: 50});
        assert.equal(answer.choices[0].text, 'Hello from the script.');
        assert.equal(answer.choices[0].finish_reason, 'stop');
        assert.equal(answer.usage.completion_tokens, 5);
        assert.match(answer.id, /^cmpl-/);
        let text = '', finish, usage;
        for await (const chunk of await openai.completions.create(
            {model: 'scripted', prompt: 'hello', stream: true, stream_options: {include_usage: true}})) {
          text += chunk.choices[0]?.text ?? '';
          finish ??= chunk.choices[0]?.finish_reason;
          usage = chunk.usage;
        }
        assert.equal(text, 'Hello from the script.');
        assert.equal(finish, 'stop');
        assert.equal(usage.completion_tokens, 5);
      });

      it('have 16 tokens unless more are asked for', async () => {
        const {choices: [choice], usage} = await openai.completions.create({model: 'scripted', prompt: 'endless'});
        assert.equal(usage.completion_tokens, 16);
        assert.equal(choice.finish_reason, 'length');
      });

      it('number the choices prompt by prompt', async () => {
        const {choices} = await openai.completions.create({model: 'scripted', prompt: ['seed a', 'seed b'], n: 2, seed: 7});
        assert.deepEqual(choices.map((c) => c.index), [0, 1, 2, 3]);
        assert.deepEqual(choices.map((c) => c.text), ['7/0', '7/1', '7/0', '7/1']);
        const {frames} = await readSse(await d.send('/v1/completions', {
          model: 'scripted', prompt: ['seed a', 'seed b'], n: 2, seed: 7, stream: true}));
        const texts = ['', '', '', ''];
        for (const f of frames.slice(0, -1)) texts[f.choices[0].index] += f.choices[0].text;
        assert.deepEqual(texts, choices.map((c) => c.text));
        assert.equal(frames.at(-1), '[DONE]');
        assert.equal(frames.filter((f) => f.choices?.[0].finish_reason).length, 4);
      });

      it('keep the likeliest of several', async () => {
        const {choices, usage} = await openai.completions.create({model: 'scripted', prompt: 'seed', n: 1, best_of: 3, seed: 7});
        assert.equal(choices.length, 1);
        assert.match(choices[0].text, /^7\/[012]$/);
        assert.equal(usage.completion_tokens % 3, 0);
        assert.equal(choices[0].logprobs, null);
      });

      it('echo their prompt, and count it', async () => {
        const echoed = await openai.completions.create({model: 'scripted', prompt: 'hello', echo: true});
        assert.equal(echoed.choices[0].text, 'helloHello from the script.');
        const counted = await openai.completions.create({model: 'scripted', prompt: 'a b c', echo: true, max_tokens: 0});
        assert.equal(counted.choices[0].text, 'a b c');
        assert.equal(counted.usage.prompt_tokens, 3);
        assert.equal(counted.usage.completion_tokens, 0);
      });

      it('take token ids', async () => {
        const {usage} = await openai.completions.create({model: 'scripted', prompt: [5, 6, 7], max_tokens: 0});
        assert.equal(usage.prompt_tokens, 3);
      });

      it('B26: have logprobs in lists, with a floor', async () => {
        const {choices: [{logprobs}]} = await openai.completions.create({model: 'scripted', prompt: 'unlikely', logprobs: 5});
        assert.deepEqual(logprobs.tokens.slice(0, 2), ['a', 'b']);
        assert.deepEqual(logprobs.token_logprobs.slice(0, 2), [-9999, -0.5]);
        assert.deepEqual(logprobs.text_offset.slice(0, 2), [0, 1]);
        assert.equal(logprobs.top_logprobs[1].b, -0.5);
      });

      it('B24: stop at stop strings', async () => {
        const {choices: [choice]} = await openai.completions.create({model: 'scripted', prompt: 'stops', stop: 'two three'});
        assert.equal(choice.text, 'one ');
        assert.equal(choice.finish_reason, 'stop');
      });
    });

    describe('responses', () => {
      it('answer the openai client, whole', async () => {
        const answer = await openai.responses.create({model: 'scripted', input: 'hello', instructions: 'be brief', store: false});
        assert.equal(answer.output_text, 'Hello from the script.');
        assert.equal(answer.status, 'completed');
        assert.equal(answer.usage.output_tokens, 5);
        assert.equal(answer.usage.total_tokens, answer.usage.input_tokens + 5);
        assert.equal(answer.usage.input_tokens_details.cached_tokens, 0);
        assert.equal(answer.instructions, 'be brief');
        const cut = await openai.responses.create({model: 'scripted', input: 'endless', max_output_tokens: 5});
        assert.equal(cut.status, 'incomplete');
        assert.equal(cut.incomplete_details.reason, 'max_output_tokens');
      });

      it('B12: stream every event in order, for a text and for a call', async () => {
        const {events} = await readEvents(await d.send('/v1/responses', {model: 'scripted', input: 'hello', stream: true}));
        const names = events.map((e) => e.event.replace('response.', ''));
        const deltas = names.filter((n) => n === 'output_text.delta').length;
        assert.ok(deltas >= 2);
        assert.deepEqual(names, ['created', 'in_progress', 'output_item.added', 'content_part.added',
                                 ...Array(deltas).fill('output_text.delta'), 'output_text.done', 'content_part.done',
                                 'output_item.done', 'completed']);
        events.forEach((e, i) => {
          assert.equal(e.sequence_number, i);
          assert.equal(e.type, e.event);
        });
        assert.equal(new Set(events.filter((e) => e.item_id).map((e) => e.item_id)).size, 1);
        assert.equal(events.at(-1).response.usage.output_tokens_details.reasoning_tokens, 0);
        const call = await readEvents(await d.send('/v1/responses', {model: 'scripted', input: 'weather', stream: true, tools: kFlatTools}));
        const added = call.events.find((e) => e.event === 'response.output_item.added').item;
        assert.equal(added.type, 'function_call');
        assert.notEqual(added.id, added.call_id);
        const pieces = call.events.filter((e) => e.event === 'response.function_call_arguments.delta');
        assert.ok(pieces.every((e) => e.item_id === added.id));
        const done = call.events.find((e) => e.event === 'response.function_call_arguments.done');
        assert.equal(pieces.map((e) => e.delta).join(''), done.arguments);
        assert.deepEqual(JSON.parse(done.arguments), {city: 'Paris'});
        assert.equal(call.events.at(-1).response.output[0].status, 'completed');
      });

      it('stream to the openai client, with tools, and take their own items back', async () => {
        const stream = openai.responses.stream({model: 'scripted', input: 'say and call', tools: kFlatTools});
        const first = await stream.finalResponse();
        assert.equal(outputText(first), 'Let me look.');
        const call = first.output.find((item) => item.type === 'function_call');
        assert.equal(call.name, 'get_weather');
        assert.deepEqual(JSON.parse(call.arguments), {city: 'Paris'});
        const none = await openai.responses.create({model: 'scripted', input: 'time', tools: kFlatTools});
        assert.equal(none.output[0].arguments, '{}');
        const second = await openai.responses.create({model: 'scripted', tools: kFlatTools, input: [
          {role: 'user', content: 'hello'}, ...first.output, {type: 'function_call_output', call_id: call.call_id, output: 'sunny'}]});
        assert.equal(second.output_text, 'Hello from the script.');
      });

      it('show thoughts as items', async () => {
        const answer = await openai.responses.create({model: 'scripted', input: 'think', reasoning: {effort: 'low'}});
        assert.deepEqual(answer.output.map((item) => item.type), ['reasoning', 'message']);
        assert.match(answer.output[0].content[0].text, /I should greet\./);
        assert.equal(answer.output_text, 'Good day.');
        assert.ok(answer.usage.output_tokens_details.reasoning_tokens > 0);
      });

      it('B13: a replayed turn as clients send it', async () => {
        const answer = await openai.responses.create({model: 'scripted', input: [
          {role: 'user', content: 'one'}, {type: 'reasoning', summary: [], content: null},
          {type: 'message', role: 'assistant', content: [{type: 'output_text', text: 'two'}]},
          {role: 'user', content: [{type: 'input_text', text: 'echo three'}]}],
          tools: [{type: 'web_search'}, {type: 'function', name: 'f', parameters: {}}]});
        assert.equal(answer.output_text, 'echo three');
        for (const more of [{previous_response_id: 'resp_1'}, {store: true}, {conversation: 'c'}, {background: true}]) {
          const {status, body} = await failure('/v1/responses', kBodies['/v1/responses']('hello', more));
          assert.equal(status, 400);
          assert.equal(body.error.param, Object.keys(more)[0]);
          assert.match(body.error.message, /not stored/);
        }
      });
    });

    describe('messages', () => {
      const say = (text, more) => kBodies['/v1/messages'](text, more);

      it('B14: answer the Anthropic client, whole', async () => {
        const answer = await anthropic.messages.create(say('hello'));
        assert.deepEqual(answer.content, [{type: 'text', text: 'Hello from the script.'}]);
        assert.equal(answer.stop_reason, 'end_turn');
        assert.equal(answer.stop_sequence, null);
        assert.equal(answer.usage.output_tokens, 5);
        assert.match(answer.id, /^msg_/);
        assert.match(answer._request_id, /^req_/);
        const stopped = await anthropic.messages.create(say('stops', {stop_sequences: ['two three']}));
        assert.equal(stopped.content[0].text, 'one ');
        assert.equal(stopped.stop_reason, 'stop_sequence');
        assert.equal(stopped.stop_sequence, 'two three');
        const cut = await anthropic.messages.create(say('endless', {max_tokens: 5}));
        assert.equal(cut.stop_reason, 'max_tokens');
      });

      it('B14: stream thoughts, text and calls to the Anthropic client, one block at a time', async () => {
        const {events} = await readEvents(await d.send('/v1/messages', say('think', {stream: true})));
        assert.equal(events[0].event, 'message_start');
        assert.ok(events[0].message.usage.input_tokens > 0);
        assert.equal(events.at(-1).event, 'message_stop');
        assert.deepEqual(events.filter((e) => e.event === 'content_block_start').map((e) => [e.index, e.content_block.type]),
                         [[0, 'thinking'], [1, 'text']]);
        let open = null;
        for (const e of events) {
          if (e.event === 'content_block_start') {
            assert.equal(open, null);
            open = e.index;
          } else if (e.event === 'content_block_delta') {
            assert.equal(e.index, open);
          } else if (e.event === 'content_block_stop') {
            assert.equal(e.index, open);
            open = null;
          }
        }
        const thought = await anthropic.messages.stream(say('think', {thinking: {type: 'enabled', budget_tokens: 1024}})).finalMessage();
        assert.deepEqual(thought.content.map((block) => block.type), ['thinking', 'text']);
        assert.match(thought.content[0].thinking, /I should greet\./);
        assert.ok(thought.content[0].signature.length > 0);
        const message = await anthropic.messages.stream(say('say and call', {tools: kAnthropicTools})).finalMessage();
        assert.deepEqual(message.content.map((block) => block.type), ['text', 'tool_use']);
        assert.deepEqual(message.content[1].input, {city: 'Paris'});
        assert.match(message.content[1].id, /^toolu_/);
        assert.equal(message.stop_reason, 'tool_use');
        assert.equal(message.stop_sequence, null);
        const two = await anthropic.messages.stream(say('two calls', {tools: kAnthropicTools})).finalMessage();
        assert.deepEqual(two.content.map((block) => [block.name, block.input]), [['get_weather', {city: 'Paris'}], ['now', {}]]);
        const one = await anthropic.messages.create(say('two calls', {
          tools: kAnthropicTools, tool_choice: {type: 'auto', disable_parallel_tool_use: true}}));
        assert.equal(one.content.length, 1);
      });

      it('take their own turns back, with thoughts and results', async () => {
        const first = await anthropic.messages.create(say('say and call', {tools: kAnthropicTools}));
        const use = first.content.find((block) => block.type === 'tool_use');
        const second = await anthropic.messages.create({model: 'scripted', max_tokens: 50, tools: kAnthropicTools, messages: [
          {role: 'user', content: 'say and call'},
          {role: 'assistant', content: [{type: 'thinking', thinking: 'hm', signature: 'x'}, ...first.content]},
          {role: 'user', content: [{type: 'tool_result', tool_use_id: use.id, content: [{type: 'text', text: 'sunny'}]},
                                   {type: 'text', text: 'hello', cache_control: {type: 'ephemeral'}}]}]});
        assert.equal(second.content[0].text, 'Hello from the script.');
      });

      it('count_tokens agrees with the usage', async () => {
        const body = say('hello', {system: [{type: 'text', text: 'be brief'}], tools: kAnthropicTools});
        const {usage} = await anthropic.messages.create(body);
        const {max_tokens, ...rest} = body;
        const {input_tokens} = await anthropic.messages.countTokens(rest);
        assert.ok(max_tokens > 0 && input_tokens > 0);
        assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
      });

      it('errors are those of the Anthropic client', async () => {
        const kinds = [[say('hello', {model: 'none'}), 404, 'not_found_error', Anthropic.NotFoundError],
                       [say('hello', {temperature: 2}), 400, 'invalid_request_error', Anthropic.BadRequestError],
                       [say('hello ' + 'word '.repeat(700)), 400, 'invalid_request_error', Anthropic.BadRequestError],
                       [say('fail early'), 529, 'overloaded_error', Anthropic.InternalServerError]];
        for (const [body, status, type, kind] of kinds) {
          await assert.rejects(anthropic.messages.create(body), (error) => {
            assert.ok(error instanceof kind, `${error}`);
            assert.equal(error.status, status);
            assert.equal(error.error.error.type, type);
            return true;
          });
        }
        await assert.rejects(new Anthropic({baseURL: d.url, apiKey: 'wrong', maxRetries: 0}).messages.create(say('hello')),
                             (error) => error instanceof Anthropic.AuthenticationError);
        const missing = await failure('/v1/messages', {model: 'scripted', messages: [{role: 'user', content: 'a'}]});
        assert.equal(missing.status, 400);
        assert.match(missing.body.error.message, /max_tokens/);
      });

      it('lists models as the Anthropic client reads them', async () => {
        const models = [];
        for await (const model of anthropic.models.list()) models.push([model.id, model.type, model.display_name]);
        assert.deepEqual(models, [['scripted', 'model', 'scripted']]);
        assert.equal((await anthropic.models.retrieve('scripted')).id, 'scripted');
      });
    });

    describe('all', () => {
      it('B15: take every variant of the key, and refuse in their own shape', async () => {
        const good = [{authorization: `Bearer ${d.key}`}, {authorization: `bearer ${d.key}`},
                      {authorization: `Bearer  ${d.key}`}, {'x-api-key': d.key}];
        const bad = [{}, {authorization: ''}, {authorization: 'Bearer'}, {authorization: 'Bearer wrong'},
                     {authorization: `Bearer ${d.key}`, 'x-api-key': 'other'}];
        for (const [path, body] of Object.entries(kBodies)) {
          const send = (headers) => fetch(d.url + path, {method: 'POST', body: JSON.stringify(body('hello')), headers});
          for (const headers of good) assert.equal((await send(headers)).status, 200, path);
          for (const headers of bad) {
            const response = await send(headers);
            assert.equal(response.status, 401, path + JSON.stringify(headers));
            assert.ok(response.headers.get('www-authenticate'));
            const {error, type} = await response.json();
            assert.equal(error.type, 'authentication_error');
            assert.equal(type, path === '/v1/messages' ? 'error' : undefined);
          }
        }
        assert.ok(!d.log().includes(d.key), 'the key is in a log');
      });

      it('B16: a browser may ask, and read the refusal', async () => {
        for (const path of Object.keys(kBodies)) {
          const preflight = await fetch(d.url + path, {method: 'OPTIONS', headers: {
            origin: kOrigin, 'access-control-request-method': 'POST',
            'access-control-request-headers': 'authorization,content-type,x-api-key,anthropic-version'}});
          assert.ok([200, 204].includes(preflight.status));
          assert.equal(preflight.headers.get('access-control-allow-origin'), kOrigin);
          const refusal = await fetch(d.url + path, {method: 'POST', headers: {origin: kOrigin}, body: '{}'});
          assert.equal(refusal.status, 401);
          assert.equal(refusal.headers.get('access-control-allow-origin'), kOrigin);
        }
      });

      it('B18: a failure in mid-stream is an error in the form of each API, which its client raises', async () => {
        const text = 'fail late';
        const clients = {
          '/v1/completions': async () => {
            for await (const chunk of await openai.completions.create(kBodies['/v1/completions'](text, {stream: true}))) void chunk;
          },
          '/v1/responses': async () => {
            for await (const event of await openai.responses.create(kBodies['/v1/responses'](text, {stream: true}))) void event;
          },
          '/v1/messages': async () => { await anthropic.messages.stream(kBodies['/v1/messages'](text)).finalMessage(); },
        };
        for (const [path, run] of Object.entries(clients)) {
          await assert.rejects(run, (error) => error instanceof OpenAI.APIError || error instanceof Anthropic.APIError, path);
          const response = await d.send(path, kBodies[path](text, {stream: true}));
          assert.equal(response.status, 200);
          const raw = await response.text();
          assert.ok(raw.includes('half'), path);
          assert.ok(raw.includes('"error"'), path);
          for (const end of ['[DONE]', 'message_stop', 'response.completed', '"finish_reason":"stop"']) {
            assert.ok(!raw.includes(end), `${path}: ${end}`);
          }
          const whole = await failure(path, kBodies[path](text));
          assert.ok(whole.status >= 500, path);
        }
      });

      it('a failure before the first content has its own status, streamed or not', async () => {
        for (const [path, body] of Object.entries(kBodies)) {
          for (const more of [{}, {stream: true}]) {
            const {status, headers} = await failure(path, body('fail early', more));
            assert.equal(status, path === '/v1/messages' ? 529 : 503);
            assert.ok(Number(headers.get('retry-after')) > 0);
          }
        }
      });

      it('B23: fill the silence with what their clients skip', {timeout: patience(90_000)}, async () => {
        const silence = async (path) => {
          const response = await d.send(path, kBodies[path]('silence', {stream: true}));
          return path === '/v1/completions' ? readSse(response) : readEvents(response);
        };
        const [completion, response, message] = await Promise.all(
          ['/v1/completions', '/v1/responses', '/v1/messages'].map(silence));
        assert.ok(completion.comments >= 2);
        assert.ok(response.comments >= 2);
        assert.ok(message.events.filter((e) => e.event === 'ping').length >= 2);
        assert.equal(message.events[0].event, 'ping');
        const [streamed, final] = await Promise.all([
          anthropic.messages.stream(kBodies['/v1/messages']('pause')).finalMessage(),
          openai.responses.stream(kBodies['/v1/responses']('pause')).finalResponse()]);
        assert.equal(streamed.content[0].text, 'Wait over.');
        assert.equal(outputText(final), 'Wait over.');
      });

      it('a client that leaves in mid-stream frees its place', async () => {
        const left = () => d.main.log.split('outcome=client_left').length - 1;
        const begin = left();
        const message = anthropic.messages.stream(kBodies['/v1/messages']('endless'));
        message.once('text', () => message.abort());
        await assert.rejects(message.finalMessage(), (error) => error instanceof Anthropic.APIUserAbortError);
        const response = await openai.responses.create(kBodies['/v1/responses']('endless', {stream: true}));
        let count = 0;
        for await (const event of response) {
          void event;
          if (++count === 6) response.controller.abort();
        }
        await eventually('both left', () => left() - begin >= 2, 3000);
        assert.equal((await openai.responses.create(kBodies['/v1/responses']('hello'))).output_text, 'Hello from the script.');
      });

      it('B19, B24: the text is the same in every API, whole and streamed', async () => {
        const cases = [['hello', {}, 'Hello from the script.'], ['split', {}, '😀赋 '], ['echo 👩‍🚀', {}, 'echo 👩‍🚀'],
                       ['stops', 'two three', 'one '], ['stop overlap', ['abc', 'ab'], 'xx'], ['stop emoji', '🚀', 'go ']];
        for (const [path, body] of Object.entries(kBodies)) {
          for (const [text, stop, expected] of cases) {
            if (path === '/v1/responses' && stop.length) continue;  // it knows no stops
            const more = stop.length ? {[path === '/v1/messages' ? 'stop_sequences' : 'stop']: [stop].flat()} : {};
            const whole = await d.send(path, body(text, more));
            assert.equal(wholeText[path](await whole.json()), expected, path + text);
            assert.equal(await streamText(path, await d.send(path, body(text, {...more, stream: true}))), expected, path + text);
          }
        }
      });

      it('B09: what a client that left was sent is counted', async () => {
        for (const [path, body] of Object.entries(kBodies)) {
          const id = `left-${path.replaceAll('/', '-')}`;
          const response = await d.send(path, body('endless', {stream: true}), {'x-request-id': id});
          const reader = response.body.getReader();
          let text = '';
          while (text.split('tick').length <= 5) text += Buffer.from((await reader.read()).value).toString();
          await reader.cancel();
          const line = await eventually(`the log of ${id}`, () => d.main.log.split('\n').find(
            (l) => l.includes(id) && l.includes('outcome=client_left')), 5000);
          assert.ok(Number(/completion_tokens=(\d+)/.exec(line)[1]) >= 5, line);
        }
      });

      it('B21: bodies in a wrong encoding are refused in their own shape', async () => {
        for (const path of Object.keys(kBodies)) {
          for (const body of [Buffer.from([0xc4, 0xe3]), Buffer.from('{:'), Buffer.from(''), Buffer.from('['.repeat(100_000)), Buffer.from('7')]) {
            const {status, body: answer} = await failure(path, body);
            assert.equal(status, 400, path);
            assert.equal(answer.error.type, 'invalid_request_error');
          }
        }
      });

      it('serve the description of themselves', async () => {
        const response = await fetch(`${d.url}/openapi.json`);
        assert.deepEqual(await response.json(), JSON.parse(readFileSync(join(kRoot, 'docs/openapi.json'), 'utf8')));
      });
    });
  });
}
