// Values of random keys in a map of two million objects, for scripts/advise-check: SECONDS [COUNTER], as programs.c.
const fs = require("fs");
const seconds = Number(process.argv[2]);
const counter = process.argv[3] ? fs.openSync(process.argv[3], "r+") : null;
const map = new Map();
for (let key = 0; key < 2_000_000; key++) map.set(key * 7, { key, name: `object ${key}` });
function work() {
  let sum = 0;
  for (let i = 0; i < 1 << 17; i++) sum += map.get(Math.floor(Math.random() * 2_000_000) * 7).key;
  return sum >= 0 ? 1 << 17 : 0;
}
const cpu = () => { const used = process.cpuUsage(); return (used.user + used.system) * 1000; };
for (let i = 0; i < 20; i++) work();
console.log("ready");
const begun = cpu();
let done = 0, now = begun;
const words = Buffer.alloc(16);
while (seconds === 0 || now - begun < seconds * 1e9) {
  done += work();
  now = cpu();
  if (counter !== null) {
    words.writeBigUInt64LE(BigInt(done), 0);
    words.writeBigUInt64LE(BigInt(now - begun), 8);
    fs.writeSync(counter, words, 0, 16, 0);
  }
}
console.log(`rate ${done / (now - begun) * 1e9}`);
