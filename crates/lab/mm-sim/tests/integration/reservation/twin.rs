//! The slow reference model of the reservation table: a list of structs, sets of pages, linear search.

use std::collections::BTreeSet;

use superpage_mm_sim::memory::Frame;
use superpage_mm_sim::reservation::{
    Broken, Config, Depopulated, Flags, Key, Populated, Renamed, ReservationId,
};

#[derive(Debug, Clone)]
pub struct One {
    /// The table's id. Unknown for reservations that preemption creates, until the table is asked for them.
    pub id: Option<ReservationId>,
    pub key: Key,
    pub base: u32,
    pub queue: u8,
    pub pages: BTreeSet<u32>,
    pub changed: u64,
    /// Position in the queue, and the tick in which the reservation got it.
    pub turn: Option<u64>,
    pub stamp: u64,
    pub bad: bool,
    pub needs_migration: bool,
    pub transferred: bool,
    pub displaced: bool,
}

impl One {
    pub fn capacity(&self) -> u32 {
        1 << self.key.order
    }
    pub fn full(&self) -> bool {
        self.pages.len() == self.capacity() as usize
    }
    fn covers(&self, page: u32) -> bool {
        !self.displaced && page >> self.key.order == self.key.page >> self.key.order
    }
    fn clear(&self, start: u32, pages: u32) -> bool {
        (start..start + pages).all(|slot| slot < self.capacity() && !self.pages.contains(&slot))
    }
    pub fn flags(&self) -> [bool; 5] {
        let queued = self.turn.is_some();
        [queued, self.transferred, self.needs_migration, self.bad, self.displaced]
    }
    /// Returns the maximal runs of free pages as frames, each within one superpage.
    pub fn free_runs(&self) -> Vec<(Frame, u16)> {
        let mut runs: Vec<(Frame, u16)> = Vec::new();
        for slot in (0..self.capacity()).filter(|slot| !self.pages.contains(slot)) {
            let frame = self.base + slot;
            match runs.last_mut() {
                Some((first, pages)) if slot % 512 > 0 && first.0 + u32::from(*pages) == frame => {
                    *pages += 1;
                }
                _ => runs.push((Frame(frame), 1)),
            }
        }
        runs
    }
}

pub fn flags(flags: Flags) -> [bool; 5] {
    let all =
        [Flags::QUEUED, Flags::TRANSFERRED, Flags::NEEDS_MIGRATION, Flags::BAD, Flags::DISPLACED];
    all.map(|flag| flags.has(flag))
}

#[derive(Debug)]
pub struct Twin {
    pub all: Vec<One>,
    config: Config,
    turns: u64,
    allocations: u64,
}

impl Twin {
    pub fn new(config: &Config) -> Self {
        Self { all: Vec::new(), config: config.clone(), turns: 0, allocations: 0 }
    }

    pub fn page_is_taken(&self, key: Key) -> bool {
        let pages = 0..1 << key.order;
        pages.into_iter().any(|page| self.all.iter().any(|one| one.covers(key.page + page)))
    }

    pub fn frame_is_taken(&self, base: u32, order: u8) -> bool {
        let end = base + (1 << order);
        self.all.iter().any(|one| one.base < end && base < one.base + one.capacity())
    }

    pub fn create(&mut self, id: ReservationId, key: Key, base: u32, queue: u8, now: u64) {
        self.all.push(One {
            id: Some(id),
            key,
            base,
            queue,
            pages: BTreeSet::new(),
            changed: now,
            turn: None,
            stamp: 0,
            bad: false,
            needs_migration: false,
            transferred: false,
            displaced: false,
        });
    }

    pub fn find(&self, page: u32) -> Option<&One> {
        self.all.iter().find(|one| one.covers(page))
    }

    pub fn at(&self, frame: u32) -> Option<&One> {
        self.all.iter().find(|one| (one.base..one.base + one.capacity()).contains(&frame))
    }

    /// Returns the queue, oldest first.
    pub fn queue(&self, queue: u8) -> Vec<&One> {
        let mut all: Vec<&One> =
            self.all.iter().filter(|one| one.queue == queue && one.turn.is_some()).collect();
        all.sort_by_key(|one| one.turn);
        all
    }

    fn changed(&mut self, at: usize, now: u64) {
        self.turns += 1;
        let one = &mut self.all[at];
        let same_tick = one.changed / self.config.tick == now / self.config.tick;
        one.changed = now;
        if one.full() {
            one.turn = None;
        } else if one.turn.is_none() || !same_tick {
            one.turn = Some(self.turns);
        }
    }

    pub fn populate(&mut self, at: usize, start: u32, pages: u32, now: u64) -> Populated {
        self.all[at].pages.extend(start..start + pages);
        self.changed(at, now);
        self.allocations += 1;
        self.all[at].stamp = self.allocations;
        match &self.all[at] {
            one if one.full() => Populated::Full,
            one if one.pages.len() == pages as usize => Populated::First,
            one => Populated::Partly(one.pages.len() as u32),
        }
    }

    pub fn depopulate(&mut self, at: usize, start: u32, pages: u32, now: u64) -> Depopulated {
        self.all[at].pages.retain(|slot| !(start..start + pages).contains(slot));
        if self.all[at].pages.is_empty() {
            let one = self.all.remove(at);
            return Depopulated::Empty { base: Frame(one.base), order: one.key.order };
        }
        self.changed(at, now);
        Depopulated::Partly(self.all[at].pages.len() as u32)
    }

    pub fn rename(&mut self, at: usize, page: u32) -> Renamed {
        let mut one = self.all.remove(at);
        one.key.page = page;
        let taken = self.page_is_taken(one.key);
        one.displaced = taken;
        one.needs_migration |= taken;
        one.transferred |= !taken;
        self.all.insert(at, one);
        if taken { Renamed::Displaced } else { Renamed::Moved }
    }

    pub fn same_broken(&mut self, base: u32, broken: &Broken) -> bool {
        let at = self.all.iter().position(|one| one.base == base).unwrap();
        let one = self.all.remove(at);
        let runs: Vec<_> = broken.free_runs().collect();
        (one.key, Frame(one.base), one.pages.len() as u32, one.free_runs())
            == (broken.key, broken.base, broken.count, runs)
    }

    pub fn oldest_for_run(&self, queue: u8, pages: u16, align: u16) -> Option<(u32, u32)> {
        self.queue(queue).into_iter().find_map(|one| {
            let pages = u32::from(pages);
            let mut starts = (0..one.capacity()).step_by(usize::from(align));
            let start =
                starts.find(|&start| start % 512 + pages <= 512 && one.clear(start, pages))?;
            Some((one.base, start))
        })
    }

    /// Returns the order of the list for the largest extent that the reservation could yield.
    fn obtainable(&self, one: &One) -> Option<u8> {
        let sizes = self.config.preemption_sizes.iter().rev().copied().chain([0]);
        let mut smaller = sizes.filter(|&size| size < one.key.order);
        smaller.find(|&size| {
            (0..one.capacity()).step_by(1 << size).any(|start| one.clear(start, 1 << size))
        })
    }

    pub fn preempt(&mut self, order: u8) -> Option<(Vec<(Frame, u16)>, u32)> {
        let mut broken = 0;
        let mut free: BTreeSet<u32> = BTreeSet::new();
        loop {
            let listed = |one: &One| {
                let list = self.obtainable(one).filter(|&list| list >= order && one.stamp > 0)?;
                Some((list, one.stamp, one.base))
            };
            let (.., base) = self.all.iter().filter_map(listed).min()?;
            let at = self.all.iter().position(|one| one.base == base).unwrap();
            let one = self.all.remove(at);
            broken += 1;
            let sizes = self.config.preemption_sizes.iter().rev().copied();
            let size = sizes.into_iter().find(|&size| size < one.key.order).unwrap_or(0);
            for start in (0..one.capacity()).step_by(1 << size) {
                let slots = start..start + (1 << size);
                let base = one.base + start;
                if one.clear(start, 1 << size) {
                    free.extend(base..base + (1 << size));
                } else if size > 0 {
                    self.turns += 1;
                    let mut part = One {
                        id: None,
                        key: Key { page: one.key.page + start, order: size },
                        base,
                        pages: one.pages.range(slots).map(|slot| slot - start).collect(),
                        turn: None,
                        bad: false,
                        needs_migration: false,
                        transferred: false,
                        ..one
                    };
                    part.turn = (!part.full()).then_some(self.turns);
                    self.all.push(part);
                }
            }
            let mut starts = free.iter().filter(|&&first| first % (1 << order) == 0);
            if starts.any(|&first| (first..first + (1 << order)).all(|f| free.contains(&f))) {
                break;
            }
        }
        let frames = free.into_iter().map(|frame| (Frame(frame), 1)).collect();
        Some((frames, broken))
    }
}
