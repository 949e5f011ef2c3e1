// Time to first token over a conversation, with the prefix cache and without, over HTTP.
//
//   FLOTILLA_BIN=build/release/bin node bench/conversation/conversation.mjs [--turns 30] [--prompts 40] [--threads 0]
//
// 1. One conversation: every turn is sent twice, to a server with the cache and to one without.
// 2. The same while other conversations of the tenant fill a small cache.
// 3. Two tenants ask the same prompts: is the second asker served any sooner?
// Fails when an answer differs from the one without cache, or a tenant profits from another; times are reported, not judged.
import {parseArgs} from 'node:util';

import {kModelsDir, kTinyModel, startServe} from '../../tests/e2e/lib/processes.mjs';

const {values: options} = parseArgs({options: {
  turns: {type: 'string', default: '30'}, prompts: {type: 'string', default: '40'}, threads: {type: 'string', default: '0'},
}});
const kTurns = Number(options.turns), kPrompts = Number(options.prompts);
const kKeys = ['conversation-key-a', 'conversation-key-b'];
const kAnswerTokens = 40;

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
const summary = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  return {median: at(sorted, 0.5), p10: at(sorted, 0.1), p90: at(sorted, 0.9)};
};
const ms = ({median, p10, p90}) => `${median.toFixed(1)} (${p10.toFixed(1)}, ${p90.toFixed(1)})`;

const problems = [];
const check = (condition, what) => { if (!condition) problems.push(what); };

const start = (...args) => startServe({models: kModelsDir, args: [
  '--threads', options.threads, '--log-level', 'warn', ...kKeys.flatMap((key) => ['--api-keys', key]), ...args]});

async function ask(server, messages, {key = kKeys[0], tokens = kAnswerTokens} = {}) {
  const begin = performance.now();
  let first;
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {authorization: `Bearer ${key}`, 'content-type': 'application/json'},
    body: JSON.stringify({model: kTinyModel, messages, stream: true, max_tokens: tokens, ignore_eos: true, temperature: 0.8,
                          seed: messages.length, return_token_ids: true, stream_options: {include_usage: true}}),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  const ids = [];
  let text = '', usage;
  const decoder = new TextDecoder();
  let rest = '';
  for await (const piece of response.body) {
    rest += decoder.decode(piece, {stream: true});
    const frames = rest.split('\n\n');
    rest = frames.pop();
    for (const frame of frames) {
      if (!frame.startsWith('data: {')) continue;
      const chunk = JSON.parse(frame.slice(6));
      if (chunk.error) throw new Error(JSON.stringify(chunk.error));
      usage = chunk.usage ?? usage;
      const choice = chunk.choices[0];
      if (choice?.token_ids?.length) first ??= performance.now() - begin;
      ids.push(...(choice?.token_ids ?? []));
      text += choice?.delta.content ?? '';
    }
  }
  return {first, ids, text, prompt: usage.prompt_tokens, cached: usage.prompt_tokens_details.cached_tokens};
}

const say = (topic, turn) => ({role: 'user', content:
  `Turn ${turn}: tell me a story about ${topic} number ${turn}, and what it did on day ${turn} of the long journey to the sea.`});

// Goes through a conversation on `warm`; each turn again on `cold`. `between` runs before each turn.
async function converse(warm, cold, topic, between = async () => {}) {
  const messages = [];
  const turns = [];
  for (let turn = 1; turn <= kTurns; ++turn) {
    await between(turn);
    messages.push(say(topic, turn));
    const a = await ask(warm, messages);
    const b = await ask(cold, messages);
    check(a.ids.join() === b.ids.join(), `${topic}, turn ${turn}: the answer is not the one without cache`);
    check(b.cached === 0, 'a server without cache took something over');
    turns.push({prompt: a.prompt, cached: a.cached, warm: a.first, cold: b.first});
    messages.push({role: 'assistant', content: a.text});
  }
  return {turns, messages};
}

function report(title, turns) {
  console.log(`\n${title}\n\n| turn | prompt tokens | taken over | first token warm, ms | cold, ms | warm / cold |\n|---|---|---|---|---|---|`);
  const rows = turns.map((t, i) => ({...t, turn: i + 1}));
  for (const t of rows.filter((r) => r.turn === 1 || r.turn % 5 === 0)) {
    console.log(`| ${t.turn} | ${t.prompt} | ${t.cached} | ${t.warm.toFixed(1)} | ${t.cold.toFixed(1)} | ${(t.warm / t.cold).toFixed(2)} |`);
  }
  const last = turns.slice(-10);
  console.log(`\nlast ${last.length} turns, median (p10, p90): warm ${ms(summary(last.map((t) => t.warm)))}, cold ` +
    `${ms(summary(last.map((t) => t.cold)))}, ratio ${summary(last.map((t) => t.warm / t.cold)).median.toFixed(2)}`);
}

async function evictions(server) {
  const text = await (await fetch(`${server.url}/metrics`, {headers: {authorization: `Bearer ${kKeys[0]}`}})).text();
  return Number(/^flotilla_prefix_cache_evictions\w*\{[^}]*\} (\S+)/m.exec(text)?.[1] ?? NaN);
}

const cold = await start('--no-prefix-cache');
const warm = await start();
const tight = await start('--prefix-cache-mib', '6');
try {
  await ask(warm, [say('warm-up', 0)]);
  await ask(cold, [say('warm-up', 0)]);
  const {turns} = await converse(warm, cold, 'fox');
  report('One conversation; windows wrap from the second turn on.', turns);
  check(turns.slice(1).every((t) => t.cached > 0), 'a later turn found nothing in the cache');

  const others = Array.from({length: 3}, () => []);
  const before = await evictions(tight);
  const pressed = await converse(tight, cold, 'owl', async (turn) => {
    const other = others[turn % others.length];
    other.push(say(`badger ${turn % others.length}`, turn));
    const answer = await ask(tight, other);
    other.push({role: 'assistant', content: answer.text});
  });
  report('The same beside three other conversations, in a cache of 6 MiB.', pressed.turns);
  const evicted = (await evictions(tight)) - before;
  console.log(`${evicted} evictions`);
  check(evicted > 0, 'nothing was evicted: no pressure');

  // The order of the tenants alternates; each prompt begins with words of its own.
  const first = [], second = [], again = [];
  for (let i = 0; i < kPrompts; ++i) {
    const [a, b] = i % 2 === 0 ? kKeys : [...kKeys].reverse();
    const prompt = [{role: 'user', content: `${i} ${'and then a fox met an owl, a badger and a bear. '.repeat(60)}`}];
    const asked = async (key) => ask(warm, prompt, {key, tokens: 2});
    const one = await asked(a), two = await asked(b), three = await asked(a);
    check(two.cached === 0, `prompt ${i}: ${two.cached} tokens of another tenant were taken over`);
    check(three.cached > 0, `prompt ${i}: the tenant's own state was not found`);
    first.push(one.first);
    second.push(two.first);
    again.push(three.first);
  }
  console.log(`\nTwo tenants, ${kPrompts} prompts, first token in ms, median (p10, p90): who asks first ${ms(summary(first))}, the other one ` +
    `${ms(summary(second))}, the first one again ${ms(summary(again))}`);
} finally {
  for (const server of [warm, cold, tight]) await server.stop();
}
for (const problem of problems) console.log(`PROBLEM: ${problem}`);
process.exit(problems.length > 0 ? 1 : 0);
