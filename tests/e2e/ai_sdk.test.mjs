// The `ai` package over its OpenAI-compatible and Anthropic providers: text, streams, tools, objects, usage, errors, abort.
// A scripted engine where the bytes matter, the bundled model where the answer must make sense.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {ai, createAnthropic, createOpenAICompatible, z} from './lib/clients.mjs';
import {eventually, kModelsDir, kTinyModel, patience, startFleet, startServe} from './lib/processes.mjs';
import {kScript} from './lib/script.mjs';

const {generateObject, generateText, stepCountIs, streamText, tool} = ai;

const deployments = {
  'flotilla serve': {
    script: () => startServe({script: kScript}),
    model: () => startServe({models: kModelsDir}),
  },
  'coordinator and node': {
    script: () => startFleet({script: kScript}),
    model: () => startFleet({models: kModelsDir}),
  },
};
const providers = {
  '@ai-sdk/openai-compatible': (d) => createOpenAICompatible({
    name: 'flotilla', baseURL: `${d.url}/v1`, apiKey: d.key, includeUsage: true, supportsStructuredOutputs: true}),
  '@ai-sdk/anthropic': (d) => createAnthropic({baseURL: `${d.url}/v1`, apiKey: d.key}),
};
const weather = (execute) => ({get_weather: tool({description: 'Weather in a city', inputSchema: z.object({city: z.string()}), execute})});

for (const [surface, start] of Object.entries(deployments)) {
  describe(`ai: ${surface}`, () => {
    let scripted, tiny;
    before(async () => {
      scripted = await start.script();
      tiny = await start.model();
    });
    after(async () => {
      await scripted?.stop();
      await tiny?.stop();
    });

    for (const [name, provider] of Object.entries(providers)) {
      describe(name, () => {
        const model = () => provider(scripted)('scripted');
        const real = () => provider(tiny)(kTinyModel);
        const ask = (prompt, more = {}) => ({model: model(), prompt, maxRetries: 0, ...more});

        it('text, whole and streamed, with usage', async () => {
          const whole = await generateText(ask('hello'));
          assert.equal(whole.text, 'Hello from the script.');
          assert.equal(whole.finishReason, 'stop');
          assert.equal(whole.usage.outputTokens, 5);
          assert.ok(whole.usage.inputTokens > 0);
          const stream = streamText(ask('hello'));
          let text = '';
          for await (const piece of stream.textStream) text += piece;
          assert.equal(text, 'Hello from the script.');
          assert.equal((await stream.usage).outputTokens, 5);
          assert.equal(await stream.finishReason, 'stop');
        });

        it('thoughts', async () => {
          const answer = await generateText(ask('think'));
          assert.match(answer.reasoningText, /I should greet\./);
          assert.equal(answer.text, 'Good day.');
        });

        it('a length', async () => {
          const answer = await generateText(ask('endless', {maxOutputTokens: 5}));
          assert.equal(answer.finishReason, 'length');
        });

        it('a tool that is called, run and answered, whole and streamed', async () => {
          const asked = [];
          const tools = weather(async ({city}) => {
            asked.push(city);
            return `sunny in ${city}`;
          });
          const whole = await generateText(ask('forecast', {tools, stopWhen: stepCountIs(3)}));
          assert.equal(whole.text, 'It is sunny.');
          assert.equal(whole.steps.length, 2);
          const stream = streamText(ask('forecast', {tools, stopWhen: stepCountIs(3)}));
          const parts = [];
          for await (const part of stream.fullStream) parts.push(part);
          assert.deepEqual(parts.filter((p) => p.type === 'error'), []);
          assert.equal(await stream.text, 'It is sunny.');
          assert.deepEqual(asked, ['Paris', 'Paris']);
        });

        it('errors, before and in the middle of a stream', async () => {
          await assert.rejects(generateText(ask('fail early')), (error) => [503, 529].includes(error.statusCode));
          await assert.rejects(generateText(ask('hello', {temperature: 3, model: provider(scripted)('none')})),
                               (error) => [400, 404].includes(error.statusCode));
          const errors = [];
          const stream = streamText(ask('fail late', {onError: ({error}) => errors.push(error)}));
          let text = '';
          for await (const part of stream.fullStream) if (part.type === 'text-delta') text += part.text;
          assert.equal(text, 'half an answer');
          assert.equal(errors.length, 1);
        });

        it('abort', async () => {
          const left = () => scripted.main.log.split('outcome=client_left').length - 1;
          const begin = left();
          const controller = new AbortController();
          const stream = streamText(ask('endless', {abortSignal: controller.signal, onError: () => {}}));
          try {
            for await (const piece of stream.textStream) if (piece) controller.abort();
          } catch (error) {
            assert.equal(error.name, 'AbortError');
          }
          await eventually('the place is free', () => left() > begin, 3000);
        });

        it('an object of a schema, from the bundled model', {timeout: patience(120_000)}, async () => {
          const schema = z.object({name: z.string().max(12), legs: z.number().int().min(0).max(8)});
          const {object} = await generateObject({model: real(), schema, prompt: 'Describe a fox.', temperature: 0, maxOutputTokens: 200,
                                                 maxRetries: 0});
          assert.deepEqual(Object.keys(object), ['name', 'legs']);
          assert.ok(Number.isInteger(object.legs));
        });

        it('sense, from the bundled model', {timeout: patience(120_000)}, async () => {
          const answer = await generateText({model: real(), prompt: 'What is 12 + 30?', temperature: 0, maxOutputTokens: 60, maxRetries: 0});
          assert.match(answer.text, /42/);
        });
      });
    }
  });
}
