// Not one byte of a prompt or an answer may stand in a log, a database, a metric, a state folder or what a crash leaves
// behind. Every text of the requests below carries a word that occurs nowhere else; afterwards everything is searched.
import assert from 'node:assert/strict';
import {readdirSync, readFileSync, statSync} from 'node:fs';
import {join} from 'node:path';
import {describe, it} from 'node:test';

import {coordinatorCommand, eventually, kModelsDir, kTinyModel, patience, registered, startFleet, startNode} from './lib/processes.mjs';

const kPrompt = 'zebrafinkkanarie';  // in what clients send
const kAnswer = 'quastenflosserpirol';  // in what models write
const kSecretWords = [kPrompt, kAnswer];

// As it may be written down: as it is, in base64 at each of its three places, or in hexadecimal.
function spellings(word) {
  const found = [word, word.toUpperCase(), Buffer.from(word).toString('hex')];
  for (let i = 0; i < 3; ++i) {
    const text = Buffer.from('x'.repeat(i) + word).toString('base64');
    found.push(text.slice(i === 0 ? 0 : i + 1, -4));
  }
  return found;
}

const kScript = {
  model: 'scripted',
  context_length: 400,
  rules: [
    {match: {user: 'call'}, steps: [`<|tool_call>call:find{what:<|"|>${kAnswer}<|"|>}<tool_call|>`, {end: true}]},
    {match: {user: 'think'}, steps: ['<|channel>', 'thought\n', {words: `about ${kAnswer}`}, '\n<channel|>', {words: kAnswer}, {end: true}]},
    {match: {user: 'cut'}, steps: [`<|tool_call>call:find{what:<|"|>${kAnswer} and`]},
    {match: {user: 'fail'}, steps: [{words: `half of ${kAnswer}`}, {fail: 'unavailable'}]},
    {match: {user: 'nan'}, steps: [{words: kAnswer}, {nan: true}]},
    {match: {user: 'long'}, delay_ms: 20, steps: [{repeat: 300, steps: [{text: `${kAnswer} `}]}, {end: true}]},
    {steps: [{words: `It is ${kAnswer}.`}, {end: true}]},
  ],
};

const chat = (text, more = {}) => ({model: 'scripted', messages: [{role: 'system', content: `You know ${kPrompt}.`},
                                                                   {role: 'user', content: `${text} ${kPrompt}`}], ...more});
const kTools = [{type: 'function', function: {name: 'find', description: kPrompt, parameters: {type: 'object', properties: {what: {type: 'string', enum: [kPrompt, kAnswer]}}}}}];
// [path, body, headers]: answers of every kind, and mistakes of every kind.
const kRequests = [
  ['/v1/chat/completions', chat('hello')],
  ['/v1/chat/completions', chat('hello', {stream: true, logprobs: true, top_logprobs: 2, return_token_ids: true, stream_options: {include_usage: true}})],
  ['/v1/chat/completions', chat('think', {stream: true})],
  ['/v1/chat/completions', chat('call', {tools: kTools})],
  ['/v1/chat/completions', chat('cut', {tools: kTools})],
  ['/v1/chat/completions', chat('fail', {stream: true})],
  ['/v1/chat/completions', chat('nan')],
  ['/v1/chat/completions', chat('hello', {stop: [kPrompt], user: kPrompt, metadata: {note: kPrompt}})],
  ['/v1/chat/completions', chat('hello', {n: 3, stream: true})],
  ['/v1/chat/completions', chat(`too long ${`${kPrompt} `.repeat(500)}`)],
  ['/v1/chat/completions', chat('hello', {temperature: kPrompt})],
  ['/v1/chat/completions', chat('hello', {response_format: {type: 'json_schema', json_schema: {name: 'x', schema: {type: 'object', properties: {[kPrompt]: {type: 'oddity'}}}}}})],
  ['/v1/chat/completions', chat('hello', {response_format: {type: 'regex', regex: `${kPrompt}(`}})],
  ['/v1/chat/completions', {model: 'scripted', messages: [{role: kPrompt, content: kPrompt}]}],
  ['/v1/chat/completions', {model: 'scripted', messages: [{role: 'user', content: {text: kPrompt}}]}],
  ['/v1/chat/completions', `{"model": "scripted", "messages": [{"role": "user", "content": "${kPrompt}`],
  ['/v1/chat/completions', `{"${kPrompt}": 1, "${kPrompt}": 2}`],
  ['/v1/completions', {model: 'scripted', prompt: [`one ${kPrompt}`, `two ${kPrompt}`], echo: true, suffix: ''}],
  ['/v1/responses', {model: 'scripted', input: `hello ${kPrompt}`, instructions: kPrompt, stream: true}],
  ['/v1/messages', {model: 'scripted', max_tokens: 50, system: kPrompt, messages: [{role: 'user', content: kPrompt}]}],
  ['/v1/messages/count_tokens', {model: 'scripted', messages: [{role: 'user', content: kPrompt}]}],
  ['/v1/messages', {model: 'scripted', max_tokens: -1, messages: [{role: 'user', content: kPrompt}]}],
];

function* filesOf(folder) {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) yield* filesOf(path);
    else if (!/^script-\d+\.json$/.test(name)) yield path;  // what the test itself wrote
  }
}

function search(where, bytes, words = kSecretWords) {
  for (const word of words) {
    for (const spelling of spellings(word)) {
      const at = bytes.indexOf(spelling);
      assert.equal(at, -1, `${where} has '${spelling}': ...${bytes.subarray(Math.max(0, at - 120), at + 60)}...`);
    }
  }
}

async function searchAll(d) {
  const metrics = await (await fetch(`${d.url}/metrics`, {headers: {authorization: `Bearer ${d.key}`}})).text();
  assert.match(metrics, /flotilla_/);
  search('/metrics', Buffer.from(metrics));
  for (const program of d.programs) {
    assert.ok(program.log.length > 0);
    search(`the log of ${program.name}`, Buffer.from(program.log));
  }
  let numFiles = 0;
  for (const path of filesOf(d.dir)) {
    search(path, readFileSync(path));
    ++numFiles;
  }
  assert.ok(numFiles >= 2, 'there is a database and a state folder');
}

describe('the canary', () => {
  it('is found where it is', () => {
    for (const word of kSecretWords) {
      for (const before of ['', 'a', 'ab']) {
        const text = Buffer.from(`${before}${word} and more`).toString('base64');
        assert.throws(() => search('a text', Buffer.from(text)), /a text has/);
      }
      assert.throws(() => search('a text', Buffer.from(`x${word}y`)), /a text has/);
    }
  });

  it('is nowhere after answers, errors, a lost node and crashes', {timeout: patience(120_000)}, async () => {
    const debug = ['--log-level', 'debug'];
    const d = await startFleet({script: kScript, args: debug, nodeArgs: debug, numNodes: 2});
    try {
      coordinatorCommand(d, ['prices', 'set', 'scripted', '--input', '1', '--output', '1']);
      coordinatorCommand(d, ['accounts', 'deposit', 'default', '1', '--id', 'canary']);
      let told = 0;
      for (const [path, body] of kRequests) {
        const response = await d.send(path, body);
        told += (await response.text()).includes(kAnswer);
      }
      assert.ok(told >= 10, `the answers were given (${told})`);
      assert.equal((await d.send('/v1/chat/completions', chat('hello'), {authorization: 'Bearer wrong'})).status, 401);

      // A client that leaves, and nodes that crash in the middle of answers.
      const left = await d.post(chat('long', {stream: true}));
      await left.body.cancel();
      for (const signal of ['SIGSEGV', 'SIGABRT']) {
        const streams = await Promise.all([1, 2].map(() => d.post(chat('long', {stream: true}))));
        for (const node of d.nodes.splice(0, 2)) {
          node.expectKilled = true;
          node.child.kill(signal);
          await node.exited;
        }
        startNode(d, {script: kScript, args: debug, name: `after-${signal}-0`});
        startNode(d, {script: kScript, args: debug, name: `after-${signal}-1`});
        for (const stream of streams) await stream.text();
      }
      await eventually('an answer', async () => (await d.post(chat('hello'))).ok, 30_000);
      await searchAll(d);
    } finally {
      await d.stop();
    }
    for (const program of d.programs) search(`the log of ${program.name} at its end`, Buffer.from(program.log));
  });

  it('is nowhere after answers of a real model', {timeout: patience(60_000)}, async () => {
    const debug = ['--log-level', 'debug'];
    const d = await startFleet({models: kModelsDir, args: debug, nodeArgs: debug});
    try {
      for (const stream of [true, false]) {
        const response = await d.post({model: kTinyModel, messages: [{role: 'user', content: `Say ${kPrompt}.`}], max_tokens: 20, stream});
        assert.equal(response.status, 200);
        await response.text();
      }
      await searchAll(d);
    } finally {
      await d.stop();
    }
  });
});
