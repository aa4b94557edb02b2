//! `redis-cold`, `redis-warm`: a store of values of 4 KB that clients write and read at random.
//!
//! Cold: sets into an empty store. Memory grows with every new key. To overwrite a value, Redis writes the new value to
//! another place and then frees the old place, which the next value reuses. The dictionary doubles when it is full, and
//! each operation moves one bucket. Warm: the store is filled first.
//!
//! Latency: clients keep `under_way` operations queued at one server thread, so an operation waits for about as many
//! others. So each request of the stream consists of `under_way` operations.

use trace::{Block, Event, SLOTS};
use workload::rng::{SplitMix64, below, mix};

use super::tables::Redis;
use crate::emit::access;
use crate::entry::Given;
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, PAGE, Space};
use crate::{Cost, Emit, Figure, Setup, Tables};

/// Bytes per dictionary bucket.
const BUCKET: u64 = 8;
/// Number of buckets of the first modelled dictionary (Redis starts with 4).
const MIN_BUCKETS: u64 = 512;
/// Number of accesses of an operation besides those to its value: bucket, entry, key.
const SMALL_ACCESSES: u64 = 3;
/// Bytes of a value per access.
const LINE: u64 = 64;

pub(crate) fn cold(setup: &Setup, tables: &Tables) -> Built {
    build(setup, &tables.redis, false)
}

pub(crate) fn warm(setup: &Setup, tables: &Tables) -> Built {
    build(setup, &tables.redis, true)
}

fn build(setup: &Setup, table: &Redis, warm: bool) -> Built {
    let key_bytes = table.value_bytes + table.small_bytes;
    let size = setup.size_or(table.keys * key_bytes)?;
    let keys = (size / key_bytes).clamp(16, u64::from(u32::MAX));
    let default = published(table, warm) * keys / table.keys;
    let operations = setup.operations.unwrap_or(default).max(1);
    // One more place than keys, because a new value is written before the old one is freed.
    let values = (keys + 1) * table.value_bytes;
    let most_buckets = keys.next_power_of_two().max(MIN_BUCKETS);
    let mut space = Space::of(setup);
    let store = Store {
        table: table.clone(),
        values: Arena::new(space.anonymous(values), table.grow_kib),
        small: Arena::new(space.anonymous(keys * table.small_bytes), table.grow_kib),
        dictionaries: dictionaries(&mut space, most_buckets),
        tables: 0,
        moved: None,
        slots: vec![u32::MAX; keys as usize],
        stored: 0,
        free: None,
    };
    let regions = space.next_region() - setup.first_region;
    let stored = if warm { keys } else { distinct_keys(setup.seed, keys, operations) };
    let (pages, superpages) = store.reach(stored);

    let mut program = Program::new(setup);
    let lines = table.value_bytes.div_ceil(LINE) + SMALL_ACCESSES;
    let cost = Cost {
        cycles: table.operation_cycles / lines as f64,
        exposed: table.exposed,
        loads: 0.0,
        independent: false,
        instructions: None,
    };
    program.phase(if warm { "setup" } else { "run" }).pace(setup.pace(cost, 1));
    let run = Serving {
        store: Some(store),
        rng: SplitMix64::new(setup.seed),
        keys,
        load: if warm { keys } else { 0 },
        loaded: 0,
        left: operations,
        sets: if warm { table.warm_sets } else { 1.0 },
        pending: 0,
        warm,
    };
    program.step(run);
    if warm {
        // The measured run starts when the store is full.
        program.phases.push("run");
    }
    let extent = Extent { pages, superpages, regions: regions.into() };
    program.exit(setup, 1, Figure::Rate { unit: "operations/s", operations }, extent)
}

/// Number of operations of the published run.
fn published(table: &Redis, warm: bool) -> u64 {
    if warm { table.warm_operations } else { table.cold_operations }
}

/// Defaults: the size in bytes, and a number of operations in proportion to the size.
pub(super) fn defaults(table: &Redis) -> Vec<Given> {
    let size = table.keys * (table.value_bytes + table.small_bytes);
    vec![Given::Number(size), Given::Follows("as published, in proportion to size")]
}

/// The key of the next operation.
fn key(rng: &mut SplitMix64, keys: u64) -> u64 {
    below(rng.draw(), keys)
}

/// Number of distinct keys that `operations` SET commands write, drawing the same random sequence as the run.
fn distinct_keys(seed: u64, keys: u64, operations: u64) -> u64 {
    let (mut rng, mut met, mut count) =
        (SplitMix64::new(seed), vec![0u64; (keys as usize).div_ceil(64)], 0);
    for _ in 0..operations {
        let key = key(&mut rng, keys);
        let (word, bit) = (&mut met[key as usize / 64], 1 << (key % 64));
        count += u64::from(*word & bit == 0);
        *word |= bit;
        rng.draw(); // draw for set or get
    }
    count
}

/// The dictionaries, each with twice the buckets of the previous one.
fn dictionaries(space: &mut Space, most: u64) -> Vec<Area> {
    let sizes = std::iter::successors(Some(MIN_BUCKETS), |buckets| Some(buckets * 2));
    sizes
        .take_while(|&buckets| buckets <= most)
        .map(|buckets| space.anonymous(buckets * BUCKET))
        .collect()
}

/// Memory that grows in steps at its end.
struct Arena {
    area: Area,
    step: u32,
    mapped: u32,
}

impl Arena {
    fn new(area: Area, grow_kib: u32) -> Self {
        Self { area, step: (grow_kib / 4).max(1), mapped: 0 }
    }

    /// Maps the arena up to `bytes`, in steps. Each step is a separate mapping, adjacent to the one
    /// before.
    fn reach(&mut self, bytes: u64, block: &mut Block) {
        while u64::from(self.mapped) * PAGE < bytes {
            let step = self.step.min(self.area.pages - self.mapped);
            block.event(self.area.map_part(self.mapped, step));
            self.mapped += step;
        }
    }
}

struct Store {
    table: Redis,
    values: Arena,
    small: Arena,
    dictionaries: Vec<Area>,
    /// Number of dictionaries mapped so far; the last one is current.
    tables: usize,
    /// Number of buckets moved from the previous dictionary, while it exists.
    moved: Option<u64>,
    /// Place of each key's value.
    slots: Vec<u32>,
    /// Number of stored keys.
    stored: u64,
    /// Place of the value freed last.
    free: Option<u32>,
}

impl Store {
    fn buckets(&self, dictionary: usize) -> u64 {
        MIN_BUCKETS << dictionary
    }

    /// Number of pages and regions touched when `stored` keys exist. Counts one additional value place, and only the
    /// last dictionary (while keys move, the previous one exists too).
    fn reach(&self, stored: u64) -> (u64, u64) {
        let Redis { value_bytes, small_bytes, .. } = self.table;
        let bytes = [(stored + 1) * value_bytes, stored * small_bytes];
        let pages = bytes.map(|bytes| bytes.div_ceil(PAGE));
        let last = &self.dictionaries[self.dictionary(stored)];
        (
            pages.iter().sum::<u64>() + u64::from(last.pages),
            pages.iter().map(|pages| pages.div_ceil(SLOTS.into())).sum::<u64>() + last.regions(),
        )
    }

    /// The index of the dictionary that holds `stored` keys.
    fn dictionary(&self, stored: u64) -> usize {
        (0..self.dictionaries.len()).find(|&n| self.buckets(n) >= stored).unwrap_or_default()
    }

    fn bucket(&self, dictionary: usize, bucket: u64, writes: bool, block: &mut Block) {
        let page = self.dictionaries[dictionary].page(bucket * BUCKET / PAGE);
        block.run(access(page, writes), 1);
    }

    /// Looks up a key's bucket, and moves a bucket of the old dictionary.
    fn look_up(&mut self, key: u64, writes: bool, block: &mut Block) {
        if self.tables == 0 || (self.moved.is_none() && self.stored > self.buckets(self.tables - 1))
        {
            block.event(self.dictionaries[self.tables].map());
            self.tables += 1;
            self.moved = (self.tables > 1).then_some(0);
        }
        let now = self.tables - 1;
        if let Some(moved) = self.moved {
            self.bucket(now - 1, moved, false, block);
            // A bucket's keys move to two buckets of the new dictionary.
            self.bucket(now, moved, true, block);
            self.bucket(now, moved + self.buckets(now - 1), true, block);
            let done = moved + 1 == self.buckets(now - 1);
            self.moved = (!done).then_some(moved + 1);
            if done {
                block.event(self.dictionaries[now - 1].unmap());
            }
        }
        self.bucket(now, mix(key) & (self.buckets(now) - 1), writes, block);
    }

    fn set(&mut self, key: u64, block: &mut Block) {
        let Redis { value_bytes, small_bytes, .. } = self.table;
        let old = self.slots[key as usize];
        if old == u32::MAX {
            self.stored += 1;
            self.small.reach(self.stored * small_bytes, block);
        }
        self.look_up(key, true, block);
        // A new value goes to the place freed last, or to the end of the store.
        let slot = self.free.take().map_or(self.end(old == u32::MAX), u64::from);
        self.values.reach((slot + 1) * value_bytes, block);
        self.value(slot, true, block);
        self.slots[key as usize] = slot as u32;
        if old != u32::MAX {
            self.free = Some(old);
        }
        self.entry(key, true, block);
    }

    /// The first unused place at the end. All places before it hold a value or are in `free`.
    fn end(&self, new: bool) -> u64 {
        if new { self.stored - 1 } else { self.stored }
    }

    fn get(&mut self, key: u64, block: &mut Block) {
        self.look_up(key, false, block);
        self.entry(key, false, block);
        let slot = self.slots[key as usize];
        if slot != u32::MAX {
            self.value(slot.into(), false, block);
        }
    }

    /// Accesses the value in a place, once per line.
    fn value(&self, slot: u64, writes: bool, block: &mut Block) {
        let bytes = self.table.value_bytes;
        block.bytes(self.values.area, slot * bytes..(slot + 1) * bytes, LINE, writes);
    }

    /// Accesses a key's small objects. In Redis these lie in the order in which keys were stored. The model does not
    /// keep this order, because overwriting moves values; it uses a hash of the key over the used part instead.
    fn entry(&self, key: u64, writes: bool, block: &mut Block) {
        if self.stored > 0 {
            let number = if writes && self.free.is_none() {
                self.stored - 1
            } else {
                below(mix(key), self.stored)
            };
            let byte = number * self.table.small_bytes;
            block.run(access(self.small.area.page(byte / PAGE), writes), 2);
        }
    }
}

/// The server's loop.
struct Serving {
    store: Option<Store>,
    rng: SplitMix64,
    keys: u64,
    /// Number of keys to store before the run, in order.
    load: u64,
    loaded: u64,
    left: u64,
    sets: f64,
    /// Number of operations done in the current request.
    pending: u32,
    warm: bool,
}

impl Step for Serving {
    fn fill(&mut self, block: &mut Block) -> bool {
        let Some(store) = &mut self.store else { return false };
        let sets = (self.sets * 4_294_967_296.0) as u64;
        while !block.is_full() {
            if self.loaded < self.load {
                store.set(self.loaded, block);
                self.loaded += 1;
                continue;
            }
            if self.warm {
                block.event(Event::Phase("run".to_string()));
                self.warm = false;
            }
            if self.pending == 0 {
                block.event(Event::RequestBegin);
            }
            let key = key(&mut self.rng, self.keys);
            if self.rng.draw() >> 32 < sets {
                store.set(key, block)
            } else {
                store.get(key, block)
            }
            self.pending += 1;
            self.left -= 1;
            if self.pending == store.table.under_way || self.left == 0 {
                block.event(Event::RequestEnd);
                self.pending = 0;
            }
            if self.left == 0 {
                self.store = None;
                return false;
            }
        }
        true
    }

    fn records(&self) -> Option<u64> {
        let store = self.store.as_ref()?;
        // Each operation accesses a bucket, an entry and the value's pages; each bucket is moved
        // once.
        let value = store.table.value_bytes.max(1);
        // Within a page, values start at multiples of `apart`.
        let apart = PAGE.min(1 << value.trailing_zeros());
        let pages = (value - value.min(apart)) / PAGE + 1;
        let moved = (store.buckets(store.dictionary(self.keys)) - MIN_BUCKETS) * 3;
        Some((self.load + self.left) * (2 + pages) + moved)
    }
}
