// Starts the real programs on free loopback ports, waits until they are ready, and stops them.
import {spawn, execFileSync} from 'node:child_process';
import {randomInt} from 'node:crypto';
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs';
import {createServer} from 'node:net';
import {tmpdir} from 'node:os';
import {join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';

export const kRoot = resolve(fileURLToPath(new URL('../../..', import.meta.url)));
export const kModelsDir = join(kRoot, 'models');
export const kTinyModel = 'flotilla-tiny';
const kSlow = process.env.FLOTILLA_E2E_SLOW ? 5 : 1;
export const patience = (ms) => ms * kSlow;
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Without this script's own FLOTILLA_ variables: the programs refuse settings that they do not know.
const kProgramEnvironment = Object.fromEntries(
  Object.entries(process.env).filter(([name]) => !name.startsWith('FLOTILLA_')));

function binary(name) {
  if (!process.env.FLOTILLA_BIN) throw new Error('set FLOTILLA_BIN to the folder of the programs');
  return join(process.env.FLOTILLA_BIN, name);
}

// Settings of the person who runs the tests must not reach the programs.
const kEnvironment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('FLOTILLA_')));

// Below the range that outgoing connections take theirs from: what is free now is not handed to one of them before the
// program listens.
async function freePort() {
  for (;;) {
    const port = 10_000 + randomInt(20_000);
    const server = createServer();
    const free = await new Promise((done) => {
      server.once('error', () => done(false));
      server.listen(port, '127.0.0.1', () => done(true));
    });
    if (!free) continue;
    await new Promise((done) => server.close(done));
    return port;
  }
}

// No use in waiting any longer.
class Hopeless extends Error {}

// Retries `attempt` until it returns something true.
export async function eventually(what, attempt, ms = 10_000) {
  const end = Date.now() + patience(ms);
  let last;
  for (;;) {
    try {
      last = await attempt();
      if (last) return last;
    } catch (error) {
      if (error instanceof Hopeless) throw error;
      last = error;
    }
    if (Date.now() > end) throw new Error(`${what}: not within ${patience(ms)} ms (last: ${last})`);
    await sleep(20);
  }
}

class Program {
  constructor(name, args) {
    this.name = name;
    this.log = '';
    this.expectKilled = false;
    this.child = spawn(binary(name), args, {stdio: ['ignore', 'pipe', 'pipe'], env: kProgramEnvironment});
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.setEncoding('utf8');
      stream.on('data', (text) => { this.log += text; });
    }
    this.exited = new Promise((done) => {
      this.child.on('error', (error) => done(`cannot start: ${error.message}`));
      this.child.on('exit', (code, signal) => done(signal ?? code));
    });
    this.exited.then((how) => { this.how = how; });
  }
  alive() {
    if (this.how !== undefined) throw new Hopeless(`${this.name} ended (${this.how}):\n${this.log.slice(-4000)}`);
  }
  // As when the machine loses power.
  async kill() {
    this.expectKilled = true;
    this.child.kill('SIGKILL');
    await this.exited;
  }
  // Asks once: a second signal, which means hurry, could meet a process that is all but gone.
  terminate() {
    if (this.how === undefined && !this.terminated) this.child.kill('SIGTERM');
    this.terminated = true;
  }
  // A polite stop must end the process cleanly; a sanitizer's report shows as another status.
  async stop() {
    if (this.expectKilled) return;
    this.terminate();
    const timer = setTimeout(() => this.child.kill('SIGKILL'), patience(15_000));
    const how = await this.exited;
    clearTimeout(timer);
    if (how !== 0) throw new Error(`${this.name} ended with ${how} at stop:\n${this.log.slice(-4000)}`);
  }
}

// One surface under test: a base URL, a key, and the processes behind it.
export class Deployment {
  constructor() {
    this.dir = mkdtempSync(join(tmpdir(), 'flotilla-e2e-'));
    this.programs = [];
    this.nodes = [];
    this.key = 'none';
  }
  start(name, args) {
    const program = new Program(name, args);
    this.programs.push(program);
    return program;
  }
  writeScript(script) {
    const path = join(this.dir, `script-${this.programs.length}.json`);
    writeFileSync(path, JSON.stringify(script));
    return path;
  }
  async ready(ms = 30_000) {
    await eventually(`${this.url}/readyz`, async () => {
      for (const program of this.programs) if (!program.expectKilled) program.alive();
      return (await fetch(`${this.url}/readyz`)).ok;
    }, ms);
  }
  async models() {
    const response = await fetch(`${this.url}/v1/models`, {headers: {authorization: `Bearer ${this.key}`}});
    return (await response.json()).data.map((model) => model.id);
  }
  post(body, headers = {}, options = {}) { return this.send('/v1/chat/completions', body, headers, options); }
  send(path, body, headers = {}, options = {}) {
    return fetch(this.url + path, {
      method: 'POST',
      headers: {authorization: `Bearer ${this.key}`, 'content-type': 'application/json', ...headers},
      body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
      ...options,
    });
  }
  log() { return this.programs.map((p) => `--- ${p.name}\n${p.log}`).join('\n'); }
  async stop() {
    const problems = [];
    // Nodes first, as they were started last.
    for (const program of [...this.programs].reverse()) await program.stop().catch((error) => problems.push(error));
    rmSync(this.dir, {recursive: true, force: true});
    if (problems.length > 0) throw problems[0];
  }
}

function source(deployment, {script, models}) {
  return script ? ['--scripted', deployment.writeScript(script)] : ['--models-dir', models];
}

// Sets a deployment up; what was started does not outlive a failure.
async function setUp(steps) {
  const d = new Deployment();
  try {
    await steps(d);
    return d;
  } catch (error) {
    await d.stop().catch(() => {});
    throw error;
  }
}

// `flotilla serve`, with a script or a folder of models.
export const startServe = ({script, models, args = []}) => setUp(async (d) => {
  const port = await freePort();
  d.url = `http://127.0.0.1:${port}`;
  d.main = d.start('flotilla', ['serve', '--listen', `127.0.0.1:${port}`, ...source(d, {script, models}), ...args]);
  await d.ready();
});

export function coordinatorCommand(deployment, args, database = deployment.database) {
  return execFileSync(binary('flotilla-coordinator'), [...args, '--database', database],
                      {encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], env: kEnvironment}).trim();
}

// Asks the running coordinator through its admin API.
export function adminCommand(deployment, args, key) {
  return execFileSync(binary('flotilla-coordinator'), [...args, '--url', deployment.url],
                      {encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], env: {...kEnvironment, FLOTILLA_ADMIN_KEY: key}}).trim();
}

async function runCoordinator(d) {
  d.main = d.start('flotilla-coordinator', d.coordinatorArgs);
  await eventually('the coordinator', async () => {
    d.main.alive();
    return (await fetch(`${d.url}/healthz`)).ok;
  });
}

// As after a power failure: the same database, the same address.
export async function restartCoordinator(d) {
  await d.main.kill();
  await runCoordinator(d);
}

// A file, or a fresh database of the PostgreSQL server that tests/postgres/with_server.sh started.
function newDatabase(d) {
  const server = process.env.FLOTILLA_TEST_POSTGRES;
  if (!server) return join(d.dir, 'fleet.sqlite');
  const name = `e2e_${process.pid}_${++numDatabases}`;
  execFileSync('psql', ['-q', '-d', server, '-c', `CREATE DATABASE ${name}`]);
  return server.replace('@/flotilla?', `@/${name}?`);
}
let numDatabases = 0;
export const identityArgs = (d) => process.env.FLOTILLA_TEST_POSTGRES ? ['--identity-file', join(d.dir, 'identity.key')] : [];

async function addCoordinator(d, args) {
  d.port = await freePort();
  d.url = `http://127.0.0.1:${d.port}`;
  d.link = `ws://127.0.0.1:${d.port}/v1/link`;
  d.database = newDatabase(d);
  d.coordinatorArgs = ['serve', '--database', d.database, ...identityArgs(d), '--listen', `127.0.0.1:${d.port}`, ...args];
  await runCoordinator(d);
  d.key = coordinatorCommand(d, ['keys', 'create', '--name', 'e2e', '--quiet']);
  await eventually('the new key', async () => {
    d.main.alive();
    return (await fetch(`${d.url}/v1/models`, {headers: {authorization: `Bearer ${d.key}`}})).ok;
  });
}

// A coordinator without nodes, and one API key.
export const startCoordinator = ({args = []} = {}) => setUp((d) => addCoordinator(d, args));

export function invite(deployment, name) {
  return coordinatorCommand(deployment, ['nodes', 'invite', name, '--url', deployment.link, '--quiet', ...identityArgs(deployment)]);
}

// `name` of an earlier node and an empty token: it starts again with the key it had.
export function startNode(deployment, {script, models, token, link, name = `node-${deployment.nodes.length}`, args = []}) {
  token ??= invite(deployment, name);
  const node = deployment.start('flotilla', [
    'provider', ...(token ? ['--join', token] : []), ...(link ? ['--coordinator', link] : []),
    '--state-dir', join(deployment.dir, name), ...source(deployment, {script, models}), ...args,
  ]);
  deployment.nodes.push(node);
  return node;
}

// Waits until so many nodes have registered since the start.
export async function registered(deployment, numNodes) {
  await eventually(`${numNodes} nodes`, async () => {
    for (const program of deployment.programs) if (!program.expectKilled) program.alive();
    return deployment.main.log.split('provider_registered').length - 1 >= numNodes;
  }, 30_000);
  await eventually('a model', async () => (await deployment.models()).length > 0);
}

// A coordinator with nodes, ready to answer.
export const startFleet = ({script, models, numNodes = 1, args = [], nodeArgs = []}) => setUp(async (d) => {
  await addCoordinator(d, args);
  for (let i = 0; i < numNodes; ++i) startNode(d, {script, models, args: nodeArgs});
  await d.ready();
  await registered(d, numNodes);
});
