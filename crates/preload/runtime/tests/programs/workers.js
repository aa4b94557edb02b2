// Code that the JIT compiles, in the main thread and in workers, and what it leaves in the process: how much
// of the program's code is private memory. In how many mappings it lies differs from run to run.
const { Worker, isMainThread, parentPort } = require('worker_threads');
const fs = require('fs');

function hot(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum = (sum * 31 + i) | 0;
  return sum;
}
function warm() {
  let all = 0;
  for (let i = 1; i <= 300; i++) all = (all + hot(20000 + i)) | 0;
  return all;
}
function code() {
  const own = fs.readlinkSync('/proc/self/exe');
  let anonymous = 0, inside = false;
  for (const line of fs.readFileSync('/proc/self/smaps', 'utf8').split('\n')) {
    if (/^[0-9a-f]+-/.test(line)) {
      inside = line.endsWith(own) && line.includes(' r-xp ');
    } else if (inside && line.startsWith('Anonymous:')) {
      anonymous += parseInt(line.split(/\s+/)[1]);
    }
  }
  return `${anonymous} kB of code private`;
}
if (isMainThread) {
  let all = warm(), left = 3;
  for (let i = 0; i < 3; i++) {
    const worker = new Worker(__filename);
    worker.on('message', (message) => { all = (all + message) | 0; });
    worker.on('error', (error) => { console.log(error); process.exit(3); });
    worker.on('exit', () => { if (--left == 0) console.log('done', all, code()); });
  }
} else {
  parentPort.postMessage(warm());
}
