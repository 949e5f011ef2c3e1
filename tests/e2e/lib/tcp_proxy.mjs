// A wire between a node and its coordinator that tests can cut.
import {connect, createServer} from 'node:net';

export async function startProxy(targetPort) {
  const pairs = new Set();
  let refusing = false;
  const server = createServer((near) => {
    if (refusing) return near.destroy();
    const far = connect(targetPort, '127.0.0.1');
    const pair = {near, far};
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      near.destroy();
      far.destroy();
    };
    for (const [from, to] of [[near, far], [far, near]]) {
      from.on('data', (data) => { if (!to.write(data)) from.pause(); });
      to.on('drain', () => from.resume());
      from.on('error', end);
      from.on('close', end);
    }
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return {
    port: server.address().port,
    // Every connection dies as if the network had gone; new ones are taken again after `ms`.
    cut(ms = 0) {
      refusing = ms > 0;
      const n = pairs.size;
      for (const {near, far} of [...pairs]) {
        near.resetAndDestroy();
        far.resetAndDestroy();
      }
      if (ms > 0) setTimeout(() => { refusing = false; }, ms);
      return n;
    },
    async stop() {
      for (const {near, far} of [...pairs]) {
        near.destroy();
        far.destroy();
      }
      await new Promise((done) => server.close(done));
    },
  };
}
