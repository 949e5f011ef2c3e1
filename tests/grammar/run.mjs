// Asks the bundled model for answers under many generated schemas, and lets ajv, which knows nothing of us, judge
// them. The model knows none of these schemas: what is right about the answers is the constraint's work.
//
//   FLOTILLA_BIN=build/release/bin node tests/grammar/run.mjs [--count N] [--seed N] [--only INDEX]
//
// At least 95 % must finish within 1,024 tokens, and every finished answer must be valid. Then grammar_masks goes
// through the same answers with the bundled vocabulary and with one of 262,144 tokens, and prints its times.
import {spawnSync} from 'node:child_process';
import {existsSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {kModelsDir, kRoot, kTinyModel, startServe} from '../e2e/lib/processes.mjs';
import {makeSchema} from './schemas.mjs';

const npm = join(kRoot, 'tests', 'npm');
const require = createRequire(join(npm, 'package.json'));
const Ajv = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;

const options = {count: 60, seed: 1, only: -1};
for (let i = 2; i < process.argv.length; i++) {
  if (process.argv[i] === '--count') options.count = Number(process.argv[++i]);
  else if (process.argv[i] === '--seed') options.seed = Number(process.argv[++i]);
  else if (process.argv[i] === '--only') options.only = Number(process.argv[++i]);
  else throw new Error(`unknown argument ${process.argv[i]}`);
}
const kMaxTokens = 1024, kClients = 16, kFinishedShare = 0.95;

function judge(schema, text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return `no JSON: ${error.message}`;
  }
  const ajv = new Ajv({strict: false, allErrors: false});
  addFormats(ajv);
  const validate = ajv.compile(schema);
  return validate(value) ? '' : ajv.errorsText(validate.errors);
}

const deployment = await startServe({models: kModelsDir});
const problems = [], finished = [];
let cut = 0, tokens = 0;
const indices = options.only >= 0 ? [options.only] : Array.from({length: options.count}, (_, i) => i);
const begin = Date.now();
let next = 0;
await Promise.all(Array.from({length: kClients}, async () => {
  while (next < indices.length) {
    const index = indices[next++];
    const schema = makeSchema(options.seed, index);
    const response = await fetch(`${deployment.url}/v1/chat/completions`, {
      method: 'POST', headers: {'content-type': 'application/json'},
      body: JSON.stringify({
        model: kTinyModel, max_tokens: kMaxTokens, seed: index, temperature: 1,
        messages: [{role: 'user', content: `Give me an example, number ${index}.`}],
        response_format: {type: 'json_schema', json_schema: {name: 'answer', schema, strict: true}},
      }),
    });
    const body = await response.json();
    if (!response.ok) {
      problems.push(`${index}: ${response.status} ${JSON.stringify(body)}\n   ${JSON.stringify(schema)}`);
      continue;
    }
    const choice = body.choices[0];
    tokens += body.usage.completion_tokens;
    if (choice.finish_reason !== 'stop') {
      cut++;
      console.log(`${index}: ${choice.finish_reason} after ${body.usage.completion_tokens} tokens`);
      continue;
    }
    const complaint = judge(schema, choice.message.content);
    if (complaint) problems.push(`${index}: ${complaint}\n   ${JSON.stringify(schema)}\n   ${choice.message.content}`);
    else finished.push({schema, answer: choice.message.content});
  }
}));
await deployment.stop();

const seconds = (Date.now() - begin) / 1000;
const share = 1 - cut / indices.length;
console.log(`${indices.length} schemas (seed ${options.seed}): ${finished.length} valid, ${problems.length} wrong, ${cut} cut at ` +
  `${kMaxTokens} tokens; ${tokens} tokens in ${seconds.toFixed(1)} s`);
for (const problem of problems) console.log(problem);

let failed = problems.length > 0 || share < kFinishedShare;
const large = join(npm, 'node_modules', '@lenml', 'tokenizer-gemma3', 'models', 'tokenizer.json');
for (const file of [join(kModelsDir, kTinyModel, 'tokenizer.json'), large]) {
  if (!existsSync(file)) throw new Error(`${file} is missing: run tests/npm/install.sh`);
  const lines = finished.map((line) => JSON.stringify(line) + '\n').join('');
  const run = spawnSync(join(process.env.FLOTILLA_BIN, 'grammar_masks'), [file], {input: lines, encoding: 'utf8', maxBuffer: 1 << 26});
  if (run.status !== 0) {
    failed = true;
    console.log(`grammar_masks failed: ${run.stderr}`);
  }
  if (!run.stdout) continue;
  const times = JSON.parse(run.stdout);
  const show = (t) => `mean ${t.mean.toFixed(1)}, p50 ${t.p50.toFixed(1)}, p99 ${t.p99.toFixed(1)}, p99.9 ${t.p999.toFixed(1)}, max ${t.max.toFixed(0)}`;
  console.log(`vocabulary of ${times.vocabulary}: ${times.mask_us.count} masks, microseconds: ${show(times.mask_us)}`);
  console.log(`  of those, known before (${times.ready_us.count}): ${show(times.ready_us)}`);
  console.log(`  taking a token: ${show(times.accept_us)}; compiling: ${show(times.compile_us)}`);
}
process.exit(failed ? 1 : 0);
