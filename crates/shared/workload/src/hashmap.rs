//! `hashmap`: lookups in an open-addressing hash table with linear probing.
//!
//! A slot has 16 bytes: key and value. Five of eight slots are full, so a successful lookup reads about two adjacent
//! slots, and an unsuccessful lookup about four (Knuth, TAOCP 3, 6.4: 1.8 and 4.1). These are one or two cache lines,
//! anywhere in the table.

use crate::lookup::{self, Index, value};
use crate::memory::Zeroed;
use crate::outcome::Run;
use crate::rng::{GOLDEN, below, mix};
use crate::{Settings, Workload, WorkloadError};

/// Key of an empty slot; no key is 0.
const EMPTY: u64 = 0;

type Slot = [u64; 2];

/// The settings of a run, with defaults applied.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of slots in the table.
    pub slots: u64,
    /// Number of keys in the table.
    pub keys: u64,
    /// The seed.
    pub seed: u64,
}

impl Plan {
    /// Applies the defaults: as many slots as fit in the given size.
    pub fn new(settings: &Settings) -> Self {
        let slots = settings.size.bytes() / size_of::<Slot>() as u64;
        Self { slots, keys: slots / 8 * 5, seed: settings.seed }
    }

    pub(crate) fn footprint(&self) -> u64 {
        self.slots * size_of::<Slot>() as u64
    }

    /// Returns key `number`. Keys with numbers below [`Self::keys`] are in the table. Two bijections (mix, and
    /// multiplication by an odd number) convert a nonzero number to the key, so different numbers have different keys,
    /// and no key is EMPTY.
    #[inline]
    pub fn key(&self, number: u64) -> u64 {
        mix(number + 1).wrapping_mul(mix(self.seed) | 1)
    }

    /// The slot where the search for a key starts.
    #[inline]
    pub fn home(&self, key: u64) -> u64 {
        below(key.wrapping_mul(GOLDEN), self.slots)
    }
}

pub(crate) fn run(settings: &Settings) -> Result<Run, WorkloadError> {
    let plan = Plan::new(settings);
    lookup::run(Workload::Hashmap, settings, plan.footprint(), || Table::build(&plan))
}

/// The table.
#[derive(Debug)]
pub struct Table {
    plan: Plan,
    slots: Zeroed<Slot>,
}

impl Table {
    /// Builds the table of a plan with more slots than keys.
    pub fn build(plan: &Plan) -> Result<Self, WorkloadError> {
        let slots = Zeroed::<Slot>::new("the hash table", plan.slots as usize)?;
        let mut table = Self { plan: *plan, slots };
        for number in 0..plan.keys {
            let key = table.present(number);
            let place = table.probe(key, |_| ());
            table.slots[place] = [key, value(key)];
        }
        Ok(table)
    }

    /// Returns the slot that holds `key`, or the empty slot where the search ends. Calls `visit(slot)` for each slot
    /// that it reads, including the last.
    #[inline]
    pub fn probe(&self, key: u64, mut visit: impl FnMut(usize)) -> usize {
        let mut place = self.plan.home(key) as usize;
        loop {
            visit(place);
            let found = self.slots[place][0];
            if found == key || found == EMPTY {
                return place;
            }
            place += 1;
            if place == self.slots.len() {
                place = 0;
            }
        }
    }
}

impl Index for Table {
    fn keys(&self) -> u64 {
        self.plan.keys
    }
    #[inline]
    fn present(&self, number: u64) -> u64 {
        self.plan.key(number)
    }
    #[inline]
    fn absent(&self, number: u64) -> u64 {
        self.plan.key(self.plan.keys + number)
    }
    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        let [found, value] = self.slots[self.probe(key, |_| ())];
        (found == key).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn finds_what_a_hashmap_finds(slots in 2u64..5000, seed: u64, keys: [u64; 32]) {
            let plan = Plan { slots, keys: (slots - 1) * 5 / 8, seed };
            let table = Table::build(&plan).unwrap();
            let map = (0..plan.keys).map(|n| (table.present(n), value(table.present(n))));
            let map = map.collect::<HashMap<_, _>>();
            prop_assert_eq!(map.len() as u64, plan.keys);
            for number in 0..plan.keys {
                let (present, absent) = (table.present(number), table.absent(number));
                prop_assert_eq!(table.get(present), map.get(&present).copied());
                prop_assert_eq!(table.get(absent), None);
            }
            for key in keys.into_iter().filter(|&key| key != EMPTY) {
                prop_assert_eq!(table.get(key), map.get(&key).copied());
            }
        }
    }

    #[test]
    fn probes_are_as_short_as_knuth_says() {
        let table = Table::build(&Plan { slots: 80_000, keys: 50_000, seed: 1 }).unwrap();
        let average = |key: &dyn Fn(u64) -> u64| {
            let mut visits = 0;
            (0..50_000).for_each(|number| {
                table.probe(key(number), |_| visits += 1);
            });
            f64::from(visits) / 50_000.0
        };
        let (hit, miss) = (average(&|n| table.present(n)), average(&|n| table.absent(n)));
        assert!((1.7..1.95).contains(&hit) && (3.8..4.4).contains(&miss), "{hit} {miss}");
    }

    #[test]
    fn corruption_fails_the_check() {
        let settings =
            &Settings { size: units::ByteSize::kib(64), ..Settings::new(Workload::Hashmap) };
        let fails = |corrupt: fn(&mut [Slot])| {
            let mut table = Table::build(&Plan::new(settings)).unwrap();
            corrupt(&mut table.slots);
            let (found, _) = lookup::look_up(&table, settings, 50_000).unwrap();
            lookup::check(Workload::Hashmap, &table, settings, 50_000, found).is_err()
        };
        let full = |slots: &[Slot]| slots.iter().position(|slot| slot[0] != EMPTY).unwrap();
        assert_eq!(full(&[[EMPTY, 0], [1, 1]]), 1);
        assert!(!fails(|_| ()));
        assert!(fails(|slots| slots.iter_mut().find(|s| s[0] != EMPTY).unwrap()[1] ^= 1));
        assert!(fails(|slots| slots.iter_mut().find(|s| s[0] != EMPTY).unwrap()[0] ^= 1));
    }
}
