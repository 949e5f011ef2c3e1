// The requests of the chaos driver: fixed seeds, 16 to 256 tokens, every kind of output. And what a client
// sees of an answer, in a form that can be compared.
import {assemble, parseSse} from '../../tests/e2e/lib/sse.mjs';
import {kTextCases, caseBody} from '../../tests/e2e/lib/cases.mjs';

// Small and good enough (mulberry32): the same seed gives the same run of requests and faults.
export function makeRandom(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return {
    below: (n) => Math.floor(next() * n),
    between: (low, high) => low + Math.floor(next() * (high - low + 1)),
    pick: (list) => list[Math.floor(next() * list.length)],
    chance: (p) => next() < p,
  };
}

// Most are sampled and run to an exact length; some end by themselves, by a stop string, or are not streamed.
export function makeRequests(count, random) {
  const requests = [];
  for (let i = 0; i < count; ++i) {
    const c = kTextCases[i % kTextCases.length];
    const body = caseBody(c, {
      temperature: 1, seed: 1000 + i, max_tokens: random.between(16, 256), ignore_eos: true,
      stream: true, stream_options: {include_usage: true},
    });
    if (i % 4 === 1) Object.assign(body, {logprobs: true, top_logprobs: 2});
    if (i % 5 === 2) Object.assign(body, {stop: ['e t', 'qu', 'ing']});
    if (i % 6 === 3) Object.assign(body, {n: 2});
    if (i % 6 === 4) Object.assign(body, {presence_penalty: 0.5, repetition_penalty: 1.1});
    // Sampled, the small model forgets its tools.
    if (c.tools) Object.assign(body, {temperature: 0, ignore_eos: false});
    if (i % 7 === 5) Object.assign(body, {temperature: 0, ignore_eos: false, max_tokens: 256});
    if (i % 8 === 6) {
      body.stream = false;
      delete body.stream_options;
    }
    requests.push({name: `${i}:${c.id}`, body});
  }
  return requests;
}

const kUsage = ['prompt_tokens', 'completion_tokens', 'total_tokens'];

function comparable(choices, usage) {
  return JSON.stringify({choices, usage: Object.fromEntries(kUsage.map((name) => [name, usage?.[name]]))});
}

function ofMessage(choice) {
  const {message} = choice;
  return {
    content: message.content ?? '', reasoning: message.reasoning_content ?? '',
    calls: (message.tool_calls ?? []).map((t) => ({name: t.function.name, arguments: t.function.arguments})),
    ids: choice.token_ids, logprobs: choice.logprobs?.content ?? [], finish: choice.finish_reason,
  };
}

function ofStream(choice) {
  return {
    content: choice.content, reasoning: choice.reasoning,
    calls: choice.calls.map((t) => ({name: t.name, arguments: t.arguments})),
    ids: choice.ids, logprobs: choice.logprobs, finish: choice.finish,
  };
}

// Every call is named once, with one id, also where its stream went over from one node to another.
function checkCalls(frames) {
  const seen = new Set();
  for (const frame of frames) {
    for (const choice of frame.choices ?? []) {
      for (const piece of choice.delta.tool_calls ?? []) {
        const call = `${choice.index}.${piece.index}`;
        const named = Boolean(piece.id && piece.function.name);
        if (named === seen.has(call) || Boolean(piece.id) !== named) throw new Error(`call ${call} is named twice, or not at all`);
        seen.add(call);
      }
    }
  }
  return seen.size;
}

// A failure that a client can act upon: no half answer was passed off as a whole one.
export class CleanFailure extends Error {}

// Runs one request. Gives what can be compared, the tokens it took, and its gaps in ms: from the start to the first
// piece, then between pieces. Throws on everything that is not a complete answer.
export async function runRequest(post, request) {
  const started = performance.now();
  let response;
  try {
    response = await post(request.body);
  } catch (error) {
    throw new CleanFailure(`no connection: ${error.cause?.code ?? error.message}`);
  }
  if (response.status !== 200) {
    const text = await response.text().catch(() => '');
    const Kind = [429, 503].includes(response.status) && response.headers.get('retry-after') ? CleanFailure : Error;
    throw new Kind(`status ${response.status}: ${text}`);
  }
  if (!request.body.stream) {
    let answer;
    try {
      answer = await response.json();
    } catch (error) {
      throw new CleanFailure(`cut: ${error.cause?.code ?? error.message}`);
    }
    const seen = comparable(answer.choices.map(ofMessage), answer.usage);
    return {calls: 0, seen, first: performance.now() - started, gaps: [], tokens: answer.usage.completion_tokens, total: answer.usage.total_tokens};
  }
  const decoder = new TextDecoder('utf-8', {fatal: true});
  const gaps = [];
  let text = '', first, last = started;
  try {
    for await (const chunk of response.body) {
      text += decoder.decode(chunk, {stream: true});
      if (chunk[0] === 0x3a) continue;  // a comment is no answer
      const now = performance.now();
      if (first === undefined) {
        first = now - started;
      } else {
        gaps.push(now - last);
      }
      last = now;
    }
  } catch (error) {
    throw new CleanFailure(`cut: ${error.cause?.code ?? error.message}`);
  }
  const {frames} = parseSse(text);
  if (frames.at(-1)?.error) throw new CleanFailure(`error event: ${frames.at(-1).error.message}`);
  if (frames.at(-1) !== '[DONE]') throw new CleanFailure('cut: no [DONE]');
  frames.pop();
  const usage = frames.findLast((frame) => frame.usage)?.usage;
  const calls = checkCalls(frames);
  return {calls, seen: comparable(assemble(frames).map(ofStream), usage), first, gaps, tokens: usage?.completion_tokens ?? 0, total: usage?.total_tokens ?? NaN};
}

export function firstDifference(a, b) {
  let at = 0;
  while (at < a.length && a[at] === b[at]) ++at;
  const from = Math.max(0, at - 60);
  return `at byte ${at}: expected ...${a.slice(from, at + 60)}..., got ...${b.slice(from, at + 60)}...`;
}
