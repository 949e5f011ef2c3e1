// The bundled model through every API: the same prompt gives the same answer, and each API's own features work.
import assert from 'node:assert/strict';
import {after, before, describe, it} from 'node:test';

import {kCases, kTextCases, parseCompletion} from './lib/cases.mjs';
import {Anthropic, OpenAI} from './lib/clients.mjs';
import {kModelsDir, kTinyModel, patience, startFleet, startServe} from './lib/processes.mjs';

const surfaces = {
  'flotilla serve': () => startServe({models: kModelsDir}),
  'coordinator and node': () => startFleet({models: kModelsDir}),
};
const kSchema = {type: 'object', properties: {name: {type: 'string', maxLength: 12}, legs: {type: 'integer', minimum: 0, maximum: 8}},
                 required: ['name', 'legs'], additionalProperties: false};
const kRawCases = kCases.filter((c) => c.robust && c.raw && !c.image && !c.images);
// Plain questions without a history.
const kPlain = kTextCases.filter((c) => !c.tools && c.messages.length === 1 && c.messages[0].role === 'user').slice(0, 6);
const kWithTools = kTextCases.filter((c) => c.tools && c.messages.every((m) => ['user', 'system'].includes(m.role)) &&
                                            parseCompletion(c.completion).calls.length > 0).slice(0, 4);

for (const [name, start] of Object.entries(surfaces)) {
  describe(`every API on the bundled model: ${name}`, () => {
    let d, openai, anthropic;
    const model = kTinyModel;
    before(async () => {
      d = await start();
      openai = new OpenAI({baseURL: `${d.url}/v1`, apiKey: d.key, maxRetries: 0});
      anthropic = new Anthropic({baseURL: d.url, apiKey: d.key, maxRetries: 0});
    });
    after(async () => { await d?.stop(); });

    it('plain questions have the reference answer in every API', {timeout: patience(120_000)}, async () => {
      assert.ok(kPlain.length >= 3);
      for (const c of kPlain) {
        const {content} = parseCompletion(c.completion);
        const question = c.messages[0].content;
        const thinking = c.enable_thinking;
        const message = await anthropic.messages.create({
          model, max_tokens: 300, temperature: 0, messages: c.messages,
          thinking: thinking ? {type: 'enabled', budget_tokens: 1024} : {type: 'disabled'}});
        assert.equal(message.content.find((block) => block.type === 'text')?.text ?? '', content, c.id);
        assert.equal(message.usage.input_tokens + message.usage.cache_read_input_tokens, c.prompt_ids.length, c.id);
        assert.equal(message.usage.output_tokens, c.completion_ids.length, c.id);
        const counted = await anthropic.messages.countTokens({
          model, messages: c.messages, thinking: thinking ? {type: 'enabled', budget_tokens: 1024} : {type: 'disabled'}});
        assert.equal(counted.input_tokens, c.prompt_ids.length, c.id);
        if (thinking) continue;  // an effort would be a part of the prompt
        const response = await openai.responses.create({model, input: question, temperature: 0, reasoning: {effort: 'none'}});
        assert.equal(response.output_text, content, c.id);
        assert.equal(response.usage.input_tokens, c.prompt_ids.length, c.id);
        // The prompt's own tokens make the same answer, control tokens left out.
        const completion = await openai.completions.create({model, prompt: c.prompt_ids, max_tokens: 300, temperature: 0});
        assert.equal(completion.choices[0].text, content, c.id);
      }
    });

    it('raw prompts have the reference answer', async () => {
      for (const c of kRawCases) {
        const {choices: [choice], usage} = await openai.completions.create(
          {model, prompt: c.prompt, max_tokens: c.completion_ids.length, temperature: 0, return_token_ids: true});
        assert.deepEqual(choice.token_ids, c.completion_ids, c.id);
        assert.equal(usage.prompt_tokens, c.prompt_ids.length, c.id);
      }
    });

    it('calls are the same in every API', {timeout: patience(120_000)}, async () => {
      assert.ok(kWithTools.length >= 1);
      for (const c of kWithTools) {
        const expected = parseCompletion(c.completion).calls;
        const system = c.messages.find((m) => m.role === 'system')?.content;
        const message = await anthropic.messages.stream({
          model, max_tokens: 300, temperature: 0, messages: c.messages.filter((m) => m.role === 'user'), ...(system ? {system} : {}),
          tools: c.tools.map(({function: f}) => ({name: f.name, description: f.description, input_schema: f.parameters})),
          thinking: c.enable_thinking ? {type: 'enabled', budget_tokens: 1024} : {type: 'disabled'}}).finalMessage();
        assert.deepEqual(message.content.filter((b) => b.type === 'tool_use').map((b) => ({name: b.name, args: b.input})), expected, c.id);
        assert.equal(message.stop_reason, 'tool_use');
      }
    });

    it('a schema is kept in every API', {timeout: patience(120_000)}, async () => {
      const question = 'Describe a fox.';
      const answers = {
        responses: (await openai.responses.create({
          model, input: question, temperature: 0, max_output_tokens: 200,
          text: {format: {type: 'json_schema', name: 'animal', strict: true, schema: kSchema}}})).output_text,
        messages: (await anthropic.messages.create({
          model, max_tokens: 200, temperature: 0, messages: [{role: 'user', content: question}],
          output_config: {format: {type: 'json_schema', schema: kSchema}}})).content[0].text,
        completions: (await openai.completions.create({
          model, prompt: question, max_tokens: 200, temperature: 0,
          response_format: {type: 'json_schema', json_schema: {name: 'animal', schema: kSchema}}})).choices[0].text,
      };
      for (const [api, text] of Object.entries(answers)) {
        const value = JSON.parse(text);
        assert.deepEqual(Object.keys(value), ['name', 'legs'], api);
        assert.ok(Number.isInteger(value.legs) && value.legs >= 0 && value.legs <= 8, api);
      }
    });

    it('B11: a call can be forced in every API', {timeout: patience(120_000)}, async () => {
      const parameters = {type: 'object', properties: {legs: {type: 'integer', minimum: 0, maximum: 8}}, required: ['legs']};
      const message = await anthropic.messages.create({
        model, max_tokens: 200, temperature: 0, messages: [{role: 'user', content: 'Hello!'}],
        tools: [{name: 'count_legs', input_schema: parameters}], tool_choice: {type: 'tool', name: 'count_legs'}});
      assert.equal(message.stop_reason, 'tool_use');
      assert.equal(message.content.at(-1).name, 'count_legs');
      assert.ok(Number.isInteger(message.content.at(-1).input.legs));
      const response = await openai.responses.create({
        model, input: 'Hello!', temperature: 0, max_output_tokens: 200, tool_choice: 'required',
        tools: [{type: 'function', name: 'count_legs', parameters, strict: true}]});
      assert.equal(response.output.at(-1).type, 'function_call');
      assert.ok(Number.isInteger(JSON.parse(response.output.at(-1).arguments).legs));
    });

    it('an answer goes on where the last turn ends', async () => {
      const messages = [{role: 'user', content: 'What is the capital of France?'}];
      const whole = await anthropic.messages.create({model, max_tokens: 60, temperature: 0, messages, thinking: {type: 'disabled'}});
      const text = whole.content[0].text;
      const begun = text.slice(0, Math.max(1, text.lastIndexOf(' ', Math.floor(text.length / 2))));
      const prefilled = [...messages, {role: 'assistant', content: begun}];
      const rest = await anthropic.messages.create({model, max_tokens: 60, temperature: 0, messages: prefilled});
      assert.equal(begun + rest.content[0].text, text);
      const chat = await openai.chat.completions.create({model, max_tokens: 60, temperature: 0, messages: prefilled,
                                                         continue_final_message: true});
      assert.equal(chat.choices[0].message.content, rest.content[0].text);
      assert.ok(rest.usage.input_tokens + rest.usage.cache_read_input_tokens > 0);
    });

    it('B29: choices of a prompt differ, seeds repeat', async () => {
      const ask = () => openai.completions.create({model, prompt: 'The', n: 3, seed: 7, temperature: 2, top_k: 0, top_p: 1,
                                                   max_tokens: 24, ignore_eos: true});
      const texts = (await ask()).choices.map((c) => c.text);
      assert.equal(new Set(texts).size, 3);
      assert.deepEqual((await ask()).choices.map((c) => c.text), texts);
    });
  });
}
