// Objects in a map, replaced in random order, and an array of them sorted.
let seed = 1;
const random = (most) => (seed = (seed * 48271) % 2147483647) % most;
const map = new Map();
for (let i = 0; i < 600000; i++) map.set(random(150000), { i, text: 'value ' + i });
const sorted = [...map.values()].sort((a, b) => (a.text < b.text ? -1 : 1));
console.log(sorted.length, sorted[1000].i);
