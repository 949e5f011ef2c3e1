// B18, with a real death: the only node is killed in the middle of a stream of every API.
import assert from 'node:assert/strict';
import {describe, it} from 'node:test';

import {Anthropic, OpenAI} from './lib/clients.mjs';
import {patience, startFleet} from './lib/processes.mjs';

const kScript = {model: 'scripted', rules: [{delay_ms: 30, steps: [{repeat: 300, steps: [{text: 'tick '}]}, {end: true}]}]};

// Each reads a stream to its end and calls `seen` for every piece of text.
const readers = {
  '/v1/completions': async (openai, anthropic, seen) => {
    for await (const chunk of await openai.completions.create({model: 'scripted', prompt: 'go', max_tokens: 300, stream: true})) {
      assert.notEqual(chunk.choices[0].finish_reason, 'stop');
      seen(chunk.choices[0].text);
    }
  },
  '/v1/responses': async (openai, anthropic, seen) => {
    for await (const event of await openai.responses.create({model: 'scripted', input: 'go', stream: true})) {
      assert.notEqual(event.type, 'response.completed');
      if (event.type === 'response.output_text.delta') seen(event.delta);
    }
  },
  '/v1/messages': async (openai, anthropic, seen) => {
    const stream = anthropic.messages.stream({model: 'scripted', max_tokens: 300, messages: [{role: 'user', content: 'go'}]});
    stream.on('text', seen);
    await stream.finalMessage();
  },
};

describe('the only node is killed in mid-stream', () => {
  for (const [path, read] of Object.entries(readers)) {
    it(`${path}: the client raises, and has what came before`, {timeout: patience(120_000)}, async () => {
      const d = await startFleet({script: kScript});
      try {
        const openai = new OpenAI({baseURL: `${d.url}/v1`, apiKey: d.key, maxRetries: 0});
        const anthropic = new Anthropic({baseURL: d.url, apiKey: d.key, maxRetries: 0});
        let text = '';
        let killed;
        await assert.rejects(read(openai, anthropic, (piece) => {
          text += piece;
          if (text.length >= 50) killed ??= d.nodes[0].kill();
        }), (error) => error instanceof OpenAI.APIError || error instanceof Anthropic.APIError);
        await killed;
        assert.match(text, /^(tick ){10,299}$/);
      } finally {
        await d.stop();
      }
    });
  }
});
