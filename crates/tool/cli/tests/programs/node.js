// Buffers, typed arrays, many objects, workers that share memory, and a child process.
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
const { createHash } = require('crypto');
const { execFileSync } = require('child_process');

const digest = (data) => createHash('sha256').update(data).digest('hex').slice(0, 16);

if (isMainThread) {
  const scale = Number(process.argv[2]);
  const buffers = [];
  for (let i = 0; i < 60 * scale; i++) buffers.push(Buffer.alloc(1 << 20, i));
  for (let i = 0; i < buffers.length; i += 3) buffers[i] = null;
  console.log('buffers', digest(Buffer.concat(buffers.filter((it) => it))));
  const objects = [];
  for (let i = 0; i < 200000 * scale; i++) objects.push({ id: i, name: `n${(i * 7919) % 100003}` });
  objects.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id));
  console.log('objects', digest(JSON.stringify(objects)));
  console.log('child', digest(execFileSync('cat', { input: Buffer.alloc(3 << 20, 'y'), maxBuffer: 1 << 24 })));
  const shared = new SharedArrayBuffer(8 << 20);
  let left = 4;
  const results = [];
  for (let id = 0; id < 4; id++) {
    const worker = new Worker(__filename, { workerData: { id, shared, scale } });
    worker.on('message', (text) => { results[id] = text; });
    worker.on('exit', () => {
      if (--left > 0) return;
      console.log('workers', results.join(' '), digest(Buffer.from(shared)));
      process.exitCode = 8;
    });
  }
} else {
  const { id, shared, scale } = workerData;
  const words = new Uint32Array(shared, id * (2 << 20), (2 << 20) / 4);
  const own = [];
  for (let i = 0; i < 20000 * scale; i++) own.push(new Uint8Array(200 + (i % 300)).fill(i));
  for (let i = 0; i < words.length; i++) words[i] = i * (id + 1) + own[i % own.length][3];
  parentPort.postMessage(digest(Buffer.from(words)));
}
