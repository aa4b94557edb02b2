//! Random valid programs. Operations are numbers, whose meaning depends on the current mappings. So every part of a
//! list of operations is also a valid program, and proptest can shrink failures.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trace::{Access, Advice, Backing, Event, Page, Pages, Process, SLOTS};

/// Number of regions that a process may map.
const AREA: u32 = 40;
/// Number of these regions, the last ones, that are for the heap.
const HEAP: u32 = 12;
/// Maximum number of live processes.
const PROCESSES: u32 = 4;
/// Number of shared objects.
const OBJECTS: u32 = 2;

/// An operation: its kind, and three numbers for place and size.
pub(super) type Op = (u8, u32, u32, u32);

pub(super) fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec((0..100u8, any::<u32>(), any::<u32>(), any::<u32>()), most / 4..most)
}

#[derive(Debug, Clone, Copy)]
struct Area {
    end: u32,
    backing: Backing,
}

/// Current mappings.
#[derive(Debug)]
pub(super) struct Program {
    first_region: u32,
    first_process: u32,
    running: Option<u32>,
    living: BTreeMap<u32, BTreeMap<u32, Area>>,
}

impl Program {
    pub(super) fn new(first_region: u32, first_process: u32) -> Self {
        let (running, living) = (None, BTreeMap::new());
        Self { first_region, first_process, running, living }
    }

    fn base(&self, process: u32) -> u32 {
        (self.first_region + process * AREA) * SLOTS
    }

    fn name(&self, process: u32) -> Process {
        Process(self.first_process + process)
    }

    /// Decodes an operation into an event and accesses; `None` if it is invalid now.
    pub(super) fn next(&mut self, &(what, a, b, c): &Op) -> Option<(Option<Event>, Vec<Access>)> {
        let event = |event| Some((Some(event), Vec::new()));
        let Some(running) = self.running else {
            if let Some(&next) = self.living.keys().next() {
                self.running = Some(next);
                return event(Event::Run(self.name(next)));
            }
            let free = (0..PROCESSES).find(|at| !self.living.contains_key(at))?;
            self.living.insert(free, BTreeMap::new());
            self.running = Some(free);
            return event(Event::Spawn(self.name(free)));
        };
        match what {
            0..12 => self.map(running, a, b, c),
            12..18 => self.grow(running, a, b),
            18..55 => self.access(running, a, b, c).map(|accesses| (None, accesses)),
            55..62 => {
                let pages = self.range(running, a, b, c)?;
                self.forget(running, pages);
                event(Event::Unmap(pages))
            }
            62..76 => {
                let advice = [
                    Advice::DontNeed,
                    Advice::Huge,
                    Advice::NoHuge,
                    Advice::Collapse,
                    Advice::Free,
                    Advice::DontNeed,
                    Advice::Huge,
                ][a as usize % 7];
                event(Event::Advise(self.range(running, b, c, a >> 8)?, advice))
            }
            76..79 => {
                let (first, area) = self.pick(running, a)?;
                let start = first + b % (area.end - first);
                let count = (1 + c % 1500).min(area.end - start);
                let pages = Pages { first: Page(start), count };
                event(Event::Advise(pages, Advice::Populate))
            }
            79..82 => event(Event::Protect(self.range(running, a, b, c)?, c & 1 == 0)),
            82..85 => {
                let child = (running + 1..PROCESSES).find(|at| !self.living.contains_key(at))?;
                let offset = self.base(child) - self.base(running);
                let copy = self.living[&running].iter();
                let copy = copy
                    .map(|(&first, &area)| {
                        (first + offset, Area { end: area.end + offset, ..area })
                    })
                    .collect();
                self.living.insert(child, copy);
                event(Event::Fork { child: self.name(child), offset })
            }
            85..87 => {
                self.living.remove(&running);
                // The next operation runs another process.
                self.running = None;
                event(Event::Exit(self.name(running)))
            }
            87..91 => {
                let living: Vec<u32> = self.living.keys().copied().collect();
                let next = living[a as usize % living.len()];
                self.running = Some(next);
                event(Event::Run(self.name(next)))
            }
            91..94 => event(Event::Wait(u64::from(a % 1_000_000))),
            94..98 => event(Event::Wait(u64::from(a % 12_000_000))),
            98 => {
                let free = (0..PROCESSES).find(|at| !self.living.contains_key(at))?;
                self.living.insert(free, BTreeMap::new());
                self.running = Some(free);
                event(Event::Spawn(self.name(free)))
            }
            _ => event(Event::RequestBegin),
        }
    }

    fn map(
        &mut self,
        running: u32,
        a: u32,
        b: u32,
        c: u32,
    ) -> Option<(Option<Event>, Vec<Access>)> {
        let base = self.base(running);
        let heap = base + (AREA - HEAP) * SLOTS;
        let backing = match c % 16 {
            0..9 => Backing::Anonymous,
            9..12 => Backing::Heap,
            12..14 => Backing::Shared(c >> 8 & (OBJECTS - 1)),
            14 => Backing::File { file: 1, cached: true },
            _ => Backing::File { file: 2, cached: false },
        };
        let count = match b % 4 {
            0 => 1 + (b >> 2) % 40,
            1 => 1 + (b >> 2) % 1500,
            _ => (1 + (b >> 2) % 8) * SLOTS,
        };
        let own = self.living.get_mut(&running)?;
        let (start, count) = if backing == Backing::Heap {
            if own.values().any(|area| area.backing == Backing::Heap) {
                return None;
            }
            (heap + if b & 4 == 0 { 0 } else { a % SLOTS }, count.min(4 * SLOTS))
        } else {
            let mut start = base + a % ((AREA - HEAP) * SLOTS);
            if a & 1 << 30 != 0 {
                start &= !(SLOTS - 1);
            }
            (start, count.min(heap - start))
        };
        let end = start + count;
        let before = own.range(..end).next_back();
        if before.is_some_and(|(_, area)| area.end > start) {
            return None;
        }
        own.insert(start, Area { end, backing });
        let pages = Pages { first: Page(start), count };
        Some((Some(Event::Map { pages, address: u64::from(start), backing }), Vec::new()))
    }

    fn grow(&mut self, running: u32, a: u32, b: u32) -> Option<(Option<Event>, Vec<Access>)> {
        let most = self.base(running) + AREA * SLOTS;
        let own = self.living.get_mut(&running)?;
        let areas = own.iter_mut().rev();
        let (_, heap) = areas.into_iter().find(|(_, area)| area.backing == Backing::Heap)?;
        let count = (1 + a % 300).min(most - heap.end);
        if count == 0 {
            return None;
        }
        let pages = Pages { first: Page(heap.end), count };
        heap.end += count;
        let written = if b & 1 == 0 { count } else { 0 };
        let accesses = (0..written).map(|at| Access::write(Page(pages.first.0 + at))).collect();
        Some((Some(Event::Grow { pages }), accesses))
    }

    fn pick(&self, running: u32, a: u32) -> Option<(u32, Area)> {
        let own = self.living.get(&running)?;
        let at = a as usize % own.len().max(1);
        own.iter().nth(at).map(|(&first, &area)| (first, area))
    }

    fn access(&self, running: u32, a: u32, b: u32, c: u32) -> Option<Vec<Access>> {
        let (first, area) = self.pick(running, a)?;
        let step = [1, 1, 1, 3, 16, 511][b as usize % 6];
        let from = if b & 0x100 == 0 { 0 } else { c % (area.end - first) };
        let most = [1, 30, 520, 1300, 5000][(b >> 10) as usize % 5];
        let file = matches!(area.backing, Backing::File { .. });
        let write = b & 0x200 == 0 && !file;
        let pages = (first + from..area.end).step_by(step).take(most).map(Page);
        Some(
            pages
                .map(|page| if write { Access::write(page) } else { Access::read(page) })
                .collect(),
        )
    }

    /// Returns some pages of one of the process's areas, mapped or not.
    fn range(&self, running: u32, a: u32, b: u32, c: u32) -> Option<Pages> {
        let (first, area) = self.pick(running, a)?;
        let (first, end) = match c % 4 {
            0 => (first, area.end),
            1 => (first + b % (area.end - first), area.end),
            2 => (first, first + 1 + b % (area.end - first)),
            _ => {
                let start = first + b % (area.end - first);
                let most = self.base(running) + (AREA - HEAP) * SLOTS;
                (start, (start + 1 + (c >> 2) % 1200).min(most.max(area.end)))
            }
        };
        Some(Pages { first: Page(first), count: end - first })
    }

    fn forget(&mut self, running: u32, pages: Pages) {
        let own = self.living.get_mut(&running).expect("it runs");
        let (start, end) = (pages.first.0, pages.first.0 + pages.count);
        let hit: Vec<(u32, Area)> = own
            .range(..end)
            .filter(|(_, area)| area.end > start)
            .map(|(&first, &area)| (first, area))
            .collect();
        for (first, area) in hit {
            own.remove(&first);
            if first < start {
                own.insert(first, Area { end: start, ..area });
            }
            if area.end > end {
                own.insert(end, area);
            }
        }
    }
}
