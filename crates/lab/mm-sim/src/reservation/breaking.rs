//! Taking reservations apart: by age, for a contiguous run, by obtainable size.

use crate::memory::Frame;

use super::record::Record;
use super::{Flags, Key, Population, ReservationId, Reservations, SUPERPAGE_ORDER, clear_runs};

/// Pages of a superpage.
const SUPERPAGE: u32 = 1 << SUPERPAGE_ORDER;

/// A reservation that is no more. Its populated pages are ordinary pages now; its clear runs go back to
/// the allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The extent it served.
    pub key: Key,
    /// Its block's first frame.
    pub base: Frame,
    /// The pages that were populated, of 512 at a time.
    pub maps: Vec<Population>,
    /// How many that were.
    pub count: u32,
}

impl Broken {
    /// The runs of frames to free, ascending: the first, and how many, up to 512.
    pub fn free_runs(&self) -> impl Iterator<Item = (Frame, u16)> + '_ {
        let capacity = SUPERPAGE.min(1 << self.key.order) as u16;
        let bases = (self.base.0..).step_by(SUPERPAGE as usize);
        bases.zip(&self.maps).flat_map(move |(base, map)| {
            let runs = clear_runs(map, capacity);
            runs.map(move |(start, pages)| (Frame(base + u32::from(start)), pages))
        })
    }
}

/// What preempting yielded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preempted {
    /// The runs of frames to free: the first, and how many. At least one run holds an aligned extent of
    /// the wanted order.
    pub free_runs: Vec<(Frame, u16)>,
    /// Reservations that were taken apart on the way.
    pub broken: u32,
}

impl Reservations {
    /// Breaks a reservation (its object's destruction, memory pressure).
    pub fn break_reservation(&mut self, id: ReservationId) -> Broken {
        let record = &self.records[id.at()];
        let broken = Broken {
            key: self.key(id),
            base: Frame(record.base),
            maps: self.maps(id).to_vec(),
            count: record.count,
        };
        self.remove(id);
        broken
    }

    /// Breaks the least recently changed of the partly populated (base pages ran out:
    /// `vm_reserv_reclaim_inactive`).
    pub fn break_oldest(&mut self, queue: u8) -> Option<Broken> {
        let oldest = self.newer(queue, None)?;
        Some(self.break_reservation(oldest))
    }

    /// The least recently changed reservation with `pages` clear pages in a row (fewer than a
    /// superpage) from a multiple of `align` on, and the slot where they start. The caller breaks it
    /// (`vm_reserv_reclaim_contig`). `align` is a power of two.
    pub fn oldest_for_run(
        &self,
        queue: u8,
        pages: u16,
        align: u16,
    ) -> Option<(ReservationId, u32)> {
        debug_assert!(align.is_power_of_two());
        let mut at = None;
        while let Some(id) = self.newer(queue, at) {
            let capacity = self.records[id.at()].capacity().min(SUPERPAGE) as u16;
            let parts = (0..).step_by(SUPERPAGE as usize).zip(self.maps(id));
            let mut runs =
                parts.flat_map(|(at, map)| clear_runs(map, capacity).map(move |run| (at, run)));
            let suitable = runs.find_map(|(at, (start, length))| {
                let first = start.next_multiple_of(align);
                (first + pages <= start + length).then_some(at + u32::from(first))
            });
            if let Some(slot) = suitable {
                return Some((id, slot));
            }
            at = Some(id);
        }
        None
    }

    /// Takes free frames for an extent of 2^`order` pages from the reservation whose last allocation
    /// is oldest, among those whose largest obtainable extent is the smallest that suffices (Navarro et
    /// al., OSDI 2002, docs/sources/policies.md 3.6).
    ///
    /// It is split into extents of the next smaller size: clear ones are freed, the others become
    /// reservations of that size with its last allocation's time, so that they are next, if the extent
    /// needs more. The smallest size is split into base pages.
    pub fn preempt(&mut self, order: u8) -> Option<Preempted> {
        let mut yielded = Preempted { free_runs: Vec::new(), broken: 0 };
        loop {
            let base = self.obtainable.as_ref()?.oldest(order)?;
            let id = self.at(Frame(base)).expect("a listed reservation is live");
            self.split(id, &mut yielded.free_runs);
            yielded.broken += 1;
            let suffices = |&(first, pages): &(Frame, u16)| {
                let start = first.0.next_multiple_of(1 << order);
                start + (1 << order) <= first.0 + u32::from(pages)
            };
            if yielded.free_runs.iter().any(suffices) {
                return Some(yielded);
            }
        }
    }

    /// Splits a reservation into extents of the next smaller size.
    fn split(&mut self, id: ReservationId, free: &mut Vec<(Frame, u16)>) {
        let lists = self.obtainable.as_ref().expect("only a listed reservation is split");
        let (stamp, smaller) = (lists.stamp(id.at()), lists.below(self.key(id).order));
        let (queue, changed) = (self.records[id.at()].queue, self.last_change(id));
        let displaced = self.flags(id).has(Flags::DISPLACED);
        let broken = self.break_reservation(id);
        let Some(order) = smaller else {
            free.extend(broken.free_runs());
            return;
        };
        for start in (0..1u16 << broken.key.order).step_by(1 << order) {
            let base = Frame(broken.base.0 + u32::from(start));
            let key = Key { page: broken.key.page + u32::from(start), order };
            let part = part(&broken.maps[0], start, order);
            if part == [0; 8] {
                match free.last_mut() {
                    Some((first, pages)) if first.0 + u32::from(*pages) == base.0 => {
                        *pages += 1 << order;
                    }
                    _ => free.push((base, 1 << order)),
                }
                continue;
            }
            let mut record = Record::new(key, base, queue, changed);
            record.population = part;
            record.count = part.iter().map(|word| word.count_ones()).sum();
            if displaced {
                record.flags.set(Flags::DISPLACED);
            }
            let partly = record.count < record.capacity();
            let id = self.insert(record);
            if !displaced {
                self.by_page.insert(key.page, order, id);
            }
            if partly {
                self.queues.push_newest(&mut self.records, id);
            }
            if let Some(lists) = &mut self.obtainable {
                lists.inherit(id.at(), &self.records[id.at()], stamp);
            }
        }
    }
}

/// The 2^`order` bits from `start` on, moved to the front.
fn part(map: &Population, start: u16, order: u8) -> Population {
    let mut part = [0; 8];
    for slot in 0..1u16 << order {
        if super::population::is_set(map, start + slot) {
            part[usize::from(slot >> 6)] |= 1 << (slot & 63);
        }
    }
    part
}
