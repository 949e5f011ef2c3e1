// A web server of a folder of files, or a hub with one repository, for tests of downloads.
import {readdirSync, readFileSync, statSync} from 'node:fs';
import {createServer} from 'node:http';
import {join} from 'node:path';

import {sleep} from './processes.mjs';

// Sends slowly when it is told to.
export async function serveFolder(folder, {hub = false} = {}) {
  const state = {bytesPerTick: Infinity, requests: []};
  const names = readdirSync(folder).filter((name) => statSync(join(folder, name)).isFile());
  const server = createServer(async (request, response) => {
    state.requests.push({url: request.url, range: request.headers.range, authorization: request.headers.authorization});
    const url = new URL(request.url, 'http://x');
    if (hub && url.pathname === '/api/models/org/tiny/revision/main') return response.end('{"sha":"0123abcd"}');
    if (hub && url.pathname === '/api/models/org/tiny/tree/0123abcd') {
      return response.end(JSON.stringify(names.map((path) => ({type: 'file', path, size: statSync(join(folder, path)).size, oid: 'x'}))));
    }
    const name = decodeURIComponent(url.pathname.split('/').pop());
    if (!names.includes(name)) { response.statusCode = 404; return response.end(); }
    const body = readFileSync(join(folder, name));
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    response.writeHead(from > 0 ? 206 : 200, {
      etag: `"${name}"`, 'content-length': body.length - from,
      ...(from > 0 ? {'content-range': `bytes ${from}-${body.length - 1}/${body.length}`} : {}),
    });
    if (request.method === 'HEAD') return response.end();
    for (let at = from; at < body.length && !response.destroyed;) {
      const next = Math.min(body.length, at + state.bytesPerTick);
      response.write(body.subarray(at, next));
      at = next;
      if (state.bytesPerTick !== Infinity) await sleep(20);
    }
    response.end();
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  state.url = `http://127.0.0.1:${server.address().port}`;
  state.close = () => { server.closeAllConnections(); server.close(); };
  return state;
}
