// B18, with a real death: the node is killed in the middle of a stream of every API.
import assert from 'node:assert/strict';
import {describe, it} from 'node:test';

import {Anthropic, OpenAI} from './lib/clients.mjs';
import {patience, registered, startFleet, startNode} from './lib/processes.mjs';

const kScript = {model: 'scripted', rules: [{delay_ms: 30, steps: [{repeat: 300, steps: [{text: 'tick '}]}, {end: true}]}]};

// Each reads a stream to its end and calls `seen` for every piece of text.
const readers = {
  '/v1/completions': async (openai, anthropic, seen) => {
    for await (const chunk of await openai.completions.create({model: 'scripted', prompt: 'go', max_tokens: 300, stream: true})) {
      seen(chunk.choices[0].text);
    }
  },
  '/v1/responses': async (openai, anthropic, seen) => {
    for await (const event of await openai.responses.create({model: 'scripted', input: 'go', stream: true})) {
      if (event.type === 'response.output_text.delta') seen(event.delta);
    }
  },
  '/v1/messages': async (openai, anthropic, seen) => {
    const stream = anthropic.messages.stream({model: 'scripted', max_tokens: 300, messages: [{role: 'user', content: 'go'}]});
    stream.on('text', seen);
    await stream.finalMessage();
  },
};

// Reads a stream of which the serving node dies on the way.
async function lose(d, read, before) {
  const openai = new OpenAI({baseURL: `${d.url}/v1`, apiKey: d.key, maxRetries: 0});
  const anthropic = new Anthropic({baseURL: d.url, apiKey: d.key, maxRetries: 0});
  let text = '';
  let killed;
  const outcome = await read(openai, anthropic, (piece) => {
    text += piece;
    if (text.length >= 50) killed ??= before().then(() => d.nodes[0].kill());
  }).then(() => null, (error) => error);
  await killed;
  return {text, error: outcome};
}

describe('the node is killed in mid-stream', () => {
  for (const [path, read] of Object.entries(readers)) {
    it(`${path}: with nobody else the client raises, and has what came before`, {timeout: patience(120_000)}, async () => {
      const d = await startFleet({script: kScript, args: ['--queue-timeout-s', '2']});
      try {
        const {text, error} = await lose(d, read, async () => {});
        assert.ok(error instanceof OpenAI.APIError || error instanceof Anthropic.APIError, String(error));
        assert.match(text, /^(tick ){10,299}$/);
      } finally {
        await d.stop();
      }
    });

    it(`${path}: another one finishes the answer`, {timeout: patience(120_000)}, async () => {
      const d = await startFleet({script: kScript});
      try {
        const {text, error} = await lose(d, read, async () => {
          startNode(d, {script: kScript});
          await registered(d, 2);
        });
        assert.equal(error, null);
        assert.equal(text, 'tick '.repeat(300));
        assert.match(await (await fetch(`${d.url}/metrics`)).text(), /answers_continued_total\{numerics="same"\} 1/);
      } finally {
        await d.stop();
      }
    });
  }
});
