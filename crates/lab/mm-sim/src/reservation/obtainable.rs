//! The reservation lists of Navarro et al. (OSDI 2002): one per size but the largest, a reservation is
//! in the list of the largest extent that it could yield, ordered by its last allocation.

use std::collections::BTreeSet;

use super::SUPERPAGE_ORDER;
use super::population::has_clear;
use super::record::Record;

/// Not in a list.
const NOWHERE: u8 = u8::MAX;

/// Where a reservation stands. One per record of the slab.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// When its last allocation was, in allocations of the table.
    stamp: u64,
    /// Its list.
    list: u8,
}

/// The lists. A reservation is named by its first frame, which is the same on every computer.
#[derive(Debug)]
pub(super) struct Obtainable {
    /// Order 0 and the orders of all sizes, ascending.
    orders: Vec<u8>,
    /// By place in `orders`.
    lists: Vec<BTreeSet<(u64, u32)>>,
    places: Vec<Place>,
    clock: u64,
}

impl Obtainable {
    pub fn new(sizes: &[u8]) -> Self {
        let mut orders: Vec<u8> = sizes.iter().copied().chain([0]).collect();
        orders.sort_unstable();
        orders.dedup();
        let lists = vec![BTreeSet::new(); orders.len()];
        Self { orders, lists, places: Vec::new(), clock: 0 }
    }

    /// Pages of `record` were populated.
    pub fn allocated(&mut self, at: usize, record: &Record) {
        self.clock += 1;
        let list = self.list_of(record);
        let stamp = self.clock;
        self.put(at, record.base, Place { stamp, list });
    }

    /// Pages of `record` were freed, some are left.
    pub fn freed(&mut self, at: usize, record: &Record) {
        let list = self.list_of(record);
        self.put(at, record.base, Place { stamp: self.stamp(at), list });
    }

    /// `record` is new and a part of one whose stamp is given.
    pub fn inherit(&mut self, at: usize, record: &Record, stamp: u64) {
        let list = self.list_of(record);
        self.put(at, record.base, Place { stamp, list });
    }

    /// `record` is gone.
    pub fn forget(&mut self, at: usize, record: &Record) {
        self.put(at, record.base, Place { stamp: 0, list: NOWHERE });
    }

    /// When its last allocation was.
    pub fn stamp(&self, at: usize) -> u64 {
        self.places.get(at).map_or(0, |place| place.stamp)
    }

    /// The size below `order`, if it is not base pages.
    pub fn below(&self, order: u8) -> Option<u8> {
        self.orders.iter().copied().rev().find(|&size| size < order).filter(|&size| size > 0)
    }

    /// The first frame of the reservation to preempt for an extent of this order.
    pub fn oldest(&self, order: u8) -> Option<u32> {
        let mut lists = self.orders.iter().zip(&self.lists).filter(|&(&size, _)| size >= order);
        lists.find_map(|(_, list)| list.first()).map(|&(_, base)| base)
    }

    /// The list of the largest extent that is clear in `record`.
    fn list_of(&self, record: &Record) -> u8 {
        let smaller = self.orders.iter().rposition(|&size| match record.order > SUPERPAGE_ORDER {
            // It is of the only size.
            true => size == 0 && record.count < record.capacity(),
            false => size < record.order && has_clear(&record.population, size, record.order),
        });
        smaller.map_or(NOWHERE, |list| list as u8)
    }

    fn put(&mut self, at: usize, base: u32, new: Place) {
        if at >= self.places.len() {
            self.places.resize(at + 1, Place { stamp: 0, list: NOWHERE });
        }
        let old = std::mem::replace(&mut self.places[at], new);
        if old.list != NOWHERE {
            self.lists[usize::from(old.list)].remove(&(old.stamp, base));
        }
        if new.list != NOWHERE {
            self.lists[usize::from(new.list)].insert((new.stamp, base));
        }
    }
}
