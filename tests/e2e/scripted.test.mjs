// The HTTP surface with a scripted engine behind it: once as `flotilla serve`, once as coordinator and node.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {OpenAI} from './lib/clients.mjs';
import {patience, sleep, startFleet, startServe, eventually} from './lib/processes.mjs';
import {ask, kScript, kTools} from './lib/script.mjs';
import {assemble, readSse} from './lib/sse.mjs';

const kOrigin = 'https://chat.example.com';
const kKey = 'serve-key-1';

const surfaces = {
  'flotilla serve': async () => {
    const d = await startServe({script: kScript, args: ['--api-keys', kKey, '--cors-allowed-origins', kOrigin]});
    d.key = kKey;
    return d;
  },
  'coordinator and node': () => startFleet({script: kScript, args: ['--cors-allowed-origins', kOrigin]}),
};

for (const [name, start] of Object.entries(surfaces)) {
  describe(name, () => {
    let d;
    let client;
    const whole = async (text, more) => {
      const response = await d.post(ask(text, more));
      const body = await response.json();
      assert.equal(response.status, 200, JSON.stringify(body));
      return body;
    };
    const stream = async (text, more) => {
      const response = await d.post(ask(text, {stream: true, ...more}));
      assert.equal(response.status, 200);
      return readSse(response);
    };
    const refused = async (body, headers) => {
      const response = await d.post(body, headers);
      return {status: response.status, headers: response.headers, ...(await response.json())};
    };
    // Streamed and whole, the same answer.
    const both = async (text, more) => {
      const {choices, usage} = await whole(text, more);
      const {frames} = await stream(text, {...more, stream_options: {include_usage: true}});
      assert.equal(frames.at(-1), '[DONE]');
      const streamed = assemble(frames.slice(0, -1));
      choices.forEach((choice, i) => {
        assert.equal(streamed[i].content, choice.message.content ?? '');
        assert.equal(streamed[i].reasoning, choice.message.reasoning_content ?? '');
        assert.equal(streamed[i].finish, choice.finish_reason);
        assert.deepEqual(streamed[i].calls.map((c) => [c.name, c.arguments]),
                         (choice.message.tool_calls ?? []).map((c) => [c.function.name, c.function.arguments]));
      });
      assert.deepEqual(frames.at(-2).usage.completion_tokens, usage.completion_tokens);
      return {choice: choices[0], choices, usage, frames};
    };

    before(async () => {
      d = await start();
      client = new OpenAI({baseURL: `${d.url}/v1`, apiKey: d.key, maxRetries: 0});
    });
    after(async () => { await d?.stop(); });

    it('answers the openai client, whole', async () => {
      const answer = await client.chat.completions.create(ask('hello'));
      assert.equal(answer.choices[0].message.content, 'Hello from the script.');
      assert.equal(answer.choices[0].finish_reason, 'stop');
      assert.equal(answer.usage.completion_tokens, 5);
      assert.ok(answer.usage.prompt_tokens > 0);
      assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 5);
      assert.match(answer.id, /^chatcmpl-/);
      assert.equal(answer.model, 'scripted');
    });

    it('answers the openai client, streamed', async () => {
      const chunks = [];
      for await (const chunk of await client.chat.completions.create(
          ask('hello', {stream: true, stream_options: {include_usage: true}}))) {
        chunks.push(chunk);
      }
      assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), 'Hello from the script.');
      assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
      assert.deepEqual(chunks.at(-1).choices, []);
      assert.equal(chunks.at(-1).usage.completion_tokens, 5);
      assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
    });

    it('lists models and finds one by name', async () => {
      const models = [];
      for await (const model of client.models.list()) models.push(model.id);
      assert.deepEqual(models, ['scripted']);
      assert.equal((await client.models.retrieve('scripted')).id, 'scripted');
      await assert.rejects(client.models.retrieve('org/none'), {status: 404});
      await assert.rejects(client.chat.completions.create({...ask('hello'), model: 'none'}),
                           {status: 404, code: 'model_not_found'});
    });

    it('B09: a usage chunk only when asked for', async () => {
      const plain = await stream('hello');
      for (const frame of plain.frames.slice(0, -1)) {
        assert.equal(frame.choices.length, 1);
        assert.ok(!('usage' in frame));
      }
      const withUsage = await stream('hello', {stream_options: {include_usage: true}});
      const extra = withUsage.frames.filter((f) => f.choices?.length === 0);
      assert.equal(extra.length, 1);
      assert.equal(withUsage.frames.at(-2), extra[0]);
      assert.equal(withUsage.frames.at(-3).choices[0].finish_reason, 'stop');
    });

    it('B08: limits, the newer name first, and the context end without any', async () => {
      for (const limit of [{max_completion_tokens: 5}, {max_tokens: 5}, {max_completion_tokens: 5, max_tokens: 9}]) {
        const {usage, choices} = await whole('endless', limit);
        assert.equal(usage.completion_tokens, 5);
        assert.equal(choices[0].finish_reason, 'length');
      }
      const {usage, choices} = await whole('fast forever');
      assert.equal(choices[0].finish_reason, 'length');
      assert.equal(usage.total_tokens, 600);
    });

    it('B24: stop strings across tokens, inside one, overlapping, with an emoji', async () => {
      const cases = [['stops', 'two three', 'one '], ['stop inside', 'STOP', 'a '],
                     ['stop overlap', ['abc', 'ab'], 'xx'], ['stop emoji', '🚀', 'go ']];
      for (const [text, stop, content] of cases) {
        const {choice} = await both(text, {stop});
        assert.equal(choice.message.content, content, text);
        assert.equal(choice.finish_reason, 'stop');
      }
      const {choice} = await both('stop inside', {stop: ['STOP'], include_stop_str_in_output: true});
      assert.equal(choice.message.content, 'a STOP');
    });

    it('B19: characters spread over tokens', async () => {
      const {choice, frames} = await both('split');
      assert.equal(choice.message.content, '😀赋 ');
      assert.ok(!JSON.stringify(frames).includes('\ufffd'));
    });

    it('B03: a call without arguments has {}', async () => {
      const {choice} = await both('time', {tools: kTools});
      assert.equal(choice.message.tool_calls[0].function.arguments, '{}');
      assert.equal(choice.message.content, null);
    });

    it('B11: finish_reason agrees with the message', async () => {
      assert.equal((await both('weather', {tools: kTools})).choice.finish_reason, 'tool_calls');
      assert.equal((await both('hello', {tools: kTools})).choice.finish_reason, 'stop');
      assert.equal((await both('cut call', {tools: kTools, max_tokens: 20})).choice.finish_reason, 'length');
      // A script says what it says; that a call can be forced is tested with a model.
      const forced = await both('weather', {tools: kTools, tool_choice: 'required'});
      assert.equal(forced.choice.finish_reason, 'tool_calls');
    });

    it('keeps text beside calls, and calls apart', async () => {
      const said = (await both('say and call', {tools: kTools})).choice.message;
      assert.equal(said.content, 'Let me look.');
      assert.equal(said.tool_calls.length, 1);
      const two = (await both('two calls', {tools: kTools})).choice.message.tool_calls;
      assert.deepEqual(two.map((c) => [c.function.name, JSON.parse(c.function.arguments)]),
                       [['get_weather', {city: 'Paris'}], ['now', {}]]);
      assert.notEqual(two[0].id, two[1].id);
      assert.equal((await both('two calls', {tools: kTools, parallel_tool_calls: false})).choice.message.tool_calls.length, 1);
    });

    it('separates thoughts', async () => {
      const {choice, usage} = await both('think', {enable_thinking: true});
      assert.equal(choice.message.content, 'Good day.');
      assert.match(choice.message.reasoning_content, /I should greet\./);
      assert.ok(usage.completion_tokens_details.reasoning_tokens > 0);
    });

    it('B29: choices know their index, and the seed reaches the engine', async () => {
      const text = async () => (await both('seed', {n: 3, seed: 7})).choices.map((c) => c.message.content);
      const triple = await text();
      assert.equal(new Set(triple).size, 3);
      assert.deepEqual(await text(), triple);
      const [a, b] = await Promise.all([whole('seed', {seed: 7}), whole('seed', {seed: 7})]);
      assert.equal(a.choices[0].message.content, triple[0]);
      assert.equal(b.choices[0].message.content, triple[0]);
      const [c, e] = [await whole('seed'), await whole('seed')];
      assert.notEqual(c.choices[0].message.content, e.choices[0].message.content);
    });

    it('B26: logprobs are strict JSON with a floor', async () => {
      const {choices} = await whole('unlikely', {logprobs: true, top_logprobs: 20, top_k: 1});
      const entries = choices[0].logprobs.content;
      assert.equal(entries[0].logprob, -9999);
      assert.deepEqual(entries[0].bytes, [97]);
      assert.equal(entries[1].logprob, -0.5);
      for (const entry of entries) {
        assert.ok(entry.top_logprobs.some((t) => t.token === entry.token));
        for (const top of entry.top_logprobs) assert.ok(Number.isFinite(top.logprob) && top.logprob >= -9999);
      }
      const {frames} = await stream('unlikely', {logprobs: true});
      assert.equal(assemble(frames.slice(0, -1))[0].logprobs.length, entries.length);
    });

    it('returns token ids when asked', async () => {
      const {choices, usage} = await whole('hello', {return_token_ids: true});
      assert.equal(choices[0].token_ids.length, usage.completion_tokens);
      const {frames} = await stream('hello', {return_token_ids: true});
      assert.deepEqual(assemble(frames.slice(0, -1))[0].ids, choices[0].token_ids);
    });

    it('B32: values out of range are refused by name while others stream on', async () => {
      const other = stream('count');
      const bad = [['repetition_penalty', 0], ['temperature', -1], ['temperature', 1e9], ['temperature', '0.5'],
                   ['top_p', 1.5], ['top_k', -5], ['min_p', 2], ['n', 0], ['max_tokens', 0], ['max_tokens', -1],
                   ['max_tokens', 1e15], ['presence_penalty', 100]];
      for (const [field, value] of bad) {
        const {status, error} = await refused(ask('hello', {[field]: value}));
        assert.equal(status, 400, field);
        assert.equal(error.param, field);
        assert.equal(error.type, 'invalid_request_error');
      }
      assert.equal((await refused(ask('hello', {stop: ['']}))).error.param, 'stop[0]');
      assert.equal((await refused(`{"seed":9223372036854775808,${JSON.stringify(ask('hello')).slice(1)}`)).error.param, 'seed');
      await whole('hello', {temperature: 1e-30});
      await whole('hello', {top_k: -1, top_p: 0});
      assert.equal(assemble((await other).frames.slice(0, -1))[0].content, 'tick '.repeat(100));
    });

    it('B06: developer is system, banana is nothing', async () => {
      const messages = (role) => [{role, content: 'Be brief.'}, {role: 'user', content: 'hello'}];
      const [a, b] = await Promise.all(['developer', 'system'].map((role) => whole('', {messages: messages(role)})));
      assert.equal(a.usage.prompt_tokens, b.usage.prompt_tokens);
      const {status, error} = await refused({model: 'scripted', messages: messages('banana')});
      assert.equal(status, 400);
      assert.equal(error.param, 'messages[0].role');
    });

    it('B04: the spellings of no content beside calls are one', async () => {
      const variants = [{content: null}, {}, {content: ''}, {content: []}];
      const tokens = [];
      for (const variant of variants) {
        const {usage} = await whole('', {messages: [
          {role: 'user', content: 'hello'},
          {role: 'assistant', ...variant, tool_calls: [{id: 'c1', type: 'function', function: {name: 'n', arguments: '{}'}}]},
          {role: 'tool', tool_call_id: 'c1', content: '42'}]});
        tokens.push(usage.prompt_tokens);
      }
      assert.equal(new Set(tokens).size, 1);
      await whole('', {messages: [{role: 'user', content: 'hello'}, {role: 'assistant', content: null}, {role: 'user', content: 'hello'}]});
    });

    it('B50: what a template refuses is a 400 with its own sentence', async () => {
      const {status, error} = await refused(ask('refuse'));
      assert.equal(status, 400);
      assert.match(error.message, /roles must alternate/);
      assert.equal((await refused({model: 'scripted', messages: []})).error.param, 'messages');
    });

    it('B59: a prompt over the context is a 400 with both numbers', async () => {
      const {status, error} = await refused(ask('hello ' + 'word '.repeat(700)));
      assert.equal(status, 400);
      assert.equal(error.code, 'context_length_exceeded');
      assert.match(error.message, /600/);
      assert.match(error.message, /70\d/);
    });

    it('B21: bodies in a wrong encoding are refused and poison nothing', async () => {
      const bytes = (...parts) => Buffer.concat(parts.map((p) => Buffer.from(p)));
      const good = JSON.stringify(ask('hello'));
      const cases = [
        bytes(Buffer.from([0xc4, 0xe3])),
        bytes('{"model":"scripted","messages":[{"role":"user","content":"', Buffer.from([0xc4, 0xe3]), '"}]}'),
        bytes('{"model":"scripted","messages":[{"role":"user","content":"\\ud83d"}]}'),
        bytes('{:'), bytes(''), bytes('[' .repeat(100_000)),
      ];
      for (const body of cases) {
        const begin = Date.now();
        const {status, error} = await refused(body);
        assert.equal(status, 400);
        assert.equal(error.type, 'invalid_request_error');
        assert.ok(!error.message.includes('\ufffd'));
        assert.ok(Date.now() - begin < patience(1000));
      }
      for (const body of [bytes(Buffer.from([0xef, 0xbb, 0xbf]), good),
                          bytes('{"model":"scripted","messages":[{"role":"user","content":"hello \\u0000"}]}')]) {
        const response = await d.post(body);
        assert.equal(response.status, 200);
        assert.equal((await response.json()).choices[0].message.content, 'Hello from the script.');
      }
      assert.equal((await whole('hello')).choices[0].message.content, 'Hello from the script.');
    });

    it('B22: a stream is sent as it comes, not to be buffered or packed', async () => {
      const response = await d.post(ask('paced', {stream: true}), {'accept-encoding': 'gzip, br'});
      assert.match(response.headers.get('content-type'), /^text\/event-stream/);
      assert.equal(response.headers.get('cache-control'), 'no-cache');
      assert.equal(response.headers.get('x-accel-buffering'), 'no');
      assert.equal(response.headers.get('content-length'), null);
      assert.equal(response.headers.get('content-encoding'), null);
      const times = [];
      for await (const chunk of response.body) times.push([Date.now(), chunk.length]);
      // Eight tokens 150 ms apart: what arrives must be spread over about a second.
      assert.ok(times.length >= 6, `${times.length} pieces`);
      assert.ok(times.at(-1)[0] - times[0][0] > 700);
    });

    it('B15: every variant of the key, on every route', async () => {
      const good = [{authorization: `Bearer ${d.key}`}, {authorization: `bearer ${d.key}`},
                    {authorization: `Bearer  ${d.key}`}, {'x-api-key': d.key}];
      const bad = [{}, {authorization: ''}, {authorization: 'Bearer'}, {authorization: 'Bearer wrong'},
                   {authorization: `Bearer ${d.key}`, 'x-api-key': 'other'}, {authorization: `Bearer ${d.key}x`}];
      const send = (headers, path, init) => fetch(d.url + path, {...init, headers});
      const chat = {method: 'POST', body: JSON.stringify(ask('hello'))};
      for (const [path, init] of [['/v1/models', {}], ['/v1/models/scripted', {}], ['/v1/chat/completions', chat]]) {
        for (const headers of good) assert.equal((await send(headers, path, init)).status, 200, path);
        for (const headers of bad) {
          const response = await send(headers, path, init);
          assert.equal(response.status, 401, path + JSON.stringify(headers));
          assert.ok(response.headers.get('www-authenticate'));
          assert.equal((await response.json()).error.code, 'invalid_api_key');
        }
      }
      assert.ok(!d.log().includes(d.key), 'the key is in a log');
    });

    it('B16: a browser may ask, and read the refusal', async () => {
      const preflight = await fetch(`${d.url}/v1/chat/completions`, {method: 'OPTIONS', headers: {
        origin: kOrigin, 'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,x-api-key,anthropic-version'}});
      assert.ok([200, 204].includes(preflight.status));
      assert.equal(preflight.headers.get('access-control-allow-origin'), kOrigin);
      assert.match(preflight.headers.get('access-control-allow-headers'), /anthropic-version/);
      assert.equal(preflight.headers.get('access-control-allow-credentials'), null);
      const refusal = await fetch(`${d.url}/v1/chat/completions`, {method: 'POST', headers: {origin: kOrigin}, body: '{}'});
      assert.equal(refusal.status, 401);
      assert.equal(refusal.headers.get('access-control-allow-origin'), kOrigin);
      const other = await fetch(`${d.url}/v1/models`, {headers: {origin: 'https://evil.example', authorization: `Bearer ${d.key}`}});
      assert.equal(other.headers.get('access-control-allow-origin'), null);
    });

    it('answers unknown routes, methods and broken HTTP in the shape of all errors', async () => {
      for (const [method, path, status] of [['GET', '/nope', 404], ['GET', '/v1/chat/completions', 405], ['POST', '/v1/models', 405]]) {
        const response = await fetch(d.url + path, {method, headers: {authorization: `Bearer ${d.key}`}});
        assert.equal(response.status, status);
        assert.equal((await response.json()).error.type, 'invalid_request_error');
      }
      const id = 'my-id:1';
      assert.equal((await d.post(ask('hello'), {'x-request-id': id})).headers.get('x-request-id'), id);
    });

    it('B18: a failure after the first content is one error event and no [DONE]', async () => {
      for (const [text, code] of [['fail late', 'unavailable'], ['nan', 'model_fault']]) {
        const {frames, text: raw} = await stream(text);
        assert.equal(frames.at(-1).error.code, code);
        assert.equal(frames.filter((f) => f.error).length, 1);
        assert.ok(!raw.includes('[DONE]'));
        assert.ok(!raw.includes('"finish_reason":"stop"'));
        const whole = await refused(ask(text));
        assert.ok(whole.status >= 500);
        await assert.rejects(async () => {
          for await (const chunk of await client.chat.completions.create(ask(text, {stream: true}))) void chunk;
        }, (error) => error instanceof OpenAI.APIError);
      }
    });

    it('a failure before the first content has its own status, streamed or not', async () => {
      for (const more of [{}, {stream: true}]) {
        const {status, headers, error} = await refused(ask('fail early', more));
        assert.equal(status, 503);
        assert.ok(Number(headers.get('retry-after')) > 0);
        assert.equal(error.code, 'unavailable');
      }
    });

    it('a client that leaves in mid-stream frees its place', async () => {
      for (const text of ['endless', 'hang']) {
        const controller = new AbortController();
        const pending = (async () => {
          const answer = await client.chat.completions.create(ask(text, {stream: true}), {signal: controller.signal});
          let count = 0;
          for await (const chunk of answer) {
            void chunk;
            if (++count === 3) controller.abort();
          }
        })();
        if (text === 'hang') setTimeout(() => controller.abort(), 300);
        await pending.catch((error) => assert.equal(error.name === 'AbortError' || error instanceof OpenAI.APIUserAbortError, true));
      }
      await eventually('the log tells that both clients left', async () => {
        return d.main.log.split('outcome=client_left').length - 1 >= 2;
      }, 3000);
      assert.equal((await whole('hello')).choices[0].message.content, 'Hello from the script.');
    });

    it('B23: comments fill the silence before the first token and inside the answer', {timeout: patience(90_000)}, async () => {
      const [before, inside] = await Promise.all([stream('silence'), stream('pause')]);
      assert.ok(before.comments >= 2, `${before.comments} comments`);
      assert.ok(before.text.startsWith(': keep-alive'));
      assert.equal(assemble(before.frames.slice(0, -1))[0].content, 'At last.');
      assert.ok(inside.comments >= 1);
      assert.equal(assemble(inside.frames.slice(0, -1))[0].content, 'Wait over.');
      const seen = [];
      for await (const chunk of await client.chat.completions.create(ask('pause', {stream: true}))) {
        seen.push(chunk.choices[0].delta.content ?? '');
      }
      assert.equal(seen.join(''), 'Wait over.');
    });

    it('64 streams at once, each its own answer', async () => {
      const answers = await Promise.all(Array.from({length: 64}, (_, i) => stream(`echo number ${i}`)));
      answers.forEach(({frames}, i) => {
        assert.equal(frames.at(-1), '[DONE]');
        assert.equal(assemble(frames.slice(0, -1))[0].content, `echo number ${i}`);
      });
    });

    it('a reader that stops does not hold up others', async () => {
      const slow = await d.post(ask('fast forever', {stream: true, n: 4}));
      const reader = slow.body.getReader();
      await reader.read();
      for (let i = 0; i < 5; ++i) assert.equal((await whole('hello')).choices[0].message.content, 'Hello from the script.');
      await sleep(100);
      await reader.cancel();
    });
  });
}
