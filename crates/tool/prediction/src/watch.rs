//! `Watch`: follows a stream and counts its [`Demand`], phase by phase.
//!
//! Stores for each page whether it was touched, and when it was last used. A superpage could hold a region if all 512
//! of its pages are mapped anonymously. A heap's last region counts as if the heap had grown past it, because on
//! superpages glibc's heap grows by whole ones (glibc.malloc.hugetlb). If a region is mapped piece by piece, its
//! first touches count as the first touch of a superpage once all of it is mapped: with superpages, the library cuts
//! such pieces out of whole superpages. (Otherwise half of the first touches of CPython's arenas of 1 MiB are
//! missed.) See docs/decisions/prediction.md#1.

use std::collections::BTreeMap;

use trace::{Advice, Backing, Block, Event, Page, Pages, SLOTS, Source};

use crate::distance::octave;
use crate::{Demand, Distances};

/// Maximum number of items that each of the two [`Distances`] tracks; their trees of a megabyte stay in the
/// second-level cache.
const TRACKED: usize = 32 << 10;

/// Maximum number of records after which the use of a neighbouring page still counts as recent. Programs interleave a
/// few sequences with many other accesses. Random accesses to a thousand or more pages hit a neighbour within 64
/// records by chance less than one time in eight.
const RECENT_RECORDS: u64 = 64;

/// Distance in pages within which a sequentially used page is still in use, because programs read and write several
/// arrays in parallel. 64 pages fit every first-level TLB.
const IN_USE_PAGES: u64 = 64;

/// Minimum number of accesses between first coming to a page and coming to its neighbour, for both to count as
/// sequential: one per line of a page. With fewer, the program hops over nearby memory (the sorted neighbours of a
/// vertex), and fetches a line, not a page. (PageRank's hops were priced as pages, at 40 times their cost.)
const MIN_SEQUENTIAL_ACCESSES: u64 = 64;

/// Number of slots of the table of recent uses, a power of two.
const RECENT: usize = 1024;

#[derive(Debug, Clone, Copy)]
struct Recent {
    page: u32,
    /// Index of the record of its last use.
    at: u64,
    /// Number of accesses before the first of its consecutive recent uses.
    since: u64,
}

/// Counts the demand of a stream.
pub struct Watch {
    pages: Distances,
    regions: Distances,
    /// One bit per page that says whether it was touched.
    touched: Vec<u64>,
    /// Number of anonymously mapped pages of each region.
    anonymous: Vec<u16>,
    /// Number of first touches of each region until it was fully mapped.
    early: Vec<u16>,
    /// Mapped pages of each process.
    mapped: BTreeMap<u32, Vec<Pages>>,
    /// For each process, the last region of its heap, and the number of pages counted there beyond the heap's end.
    tails: BTreeMap<u32, (u32, u16)>,
    running: u32,
    weight: f64,
    /// Recent uses, indexed by the low bits of the page number.
    recent: Vec<Recent>,
    /// Number of records until now.
    at: u64,
    /// Number of accesses until now.
    accesses: u64,
    last_region: u32,
    phases: Vec<(String, Demand)>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            pages: Distances::new(TRACKED),
            regions: Distances::new(TRACKED),
            touched: Vec::new(),
            anonymous: Vec::new(),
            early: Vec::new(),
            mapped: BTreeMap::new(),
            tails: BTreeMap::new(),
            running: 0,
            weight: 1.0,
            recent: vec![Recent { page: u32::MAX, at: 0, since: 0 }; RECENT],
            at: 0,
            accesses: 0,
            last_region: u32::MAX,
            phases: Vec::new(),
        }
    }
}

/// Returns the demand of a whole stream by phase; repeated phases are added up. Accesses before the first phase have an
/// empty name.
pub fn demand_of<S: Source + ?Sized>(source: &mut S) -> Result<Vec<(String, Demand)>, S::Error> {
    let (mut watch, mut block) = (Watch::default(), Block::default());
    while source.next(&mut block)? {
        watch.follow(&block);
    }
    Ok(watch.finish())
}

impl Watch {
    /// Follows one block of the stream.
    pub fn follow(&mut self, block: &Block) {
        let mut events = block.events.iter().peekable();
        let mut demand = self.take();
        for (i, access) in block.accesses.iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(before, _)| *before as usize <= i) {
                demand = self.event(event, demand);
            }
            let count = block.counts.get(i).copied().unwrap_or(1);
            self.access(&mut demand, access.page(), access.writes(), count);
        }
        for (_, event) in events {
            demand = self.event(event, demand);
        }
        self.give_back(demand);
    }

    /// Returns the demands by phase, in the order of their first occurrence.
    pub fn finish(self) -> Vec<(String, Demand)> {
        let mut phases: Vec<(String, Demand)> = Vec::new();
        for (name, demand) in self.phases {
            match phases.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => sum.merge(&demand),
                None => phases.push((name, demand)),
            }
        }
        phases.retain(|(_, demand)| demand.accesses > 0.0);
        phases
    }

    fn take(&mut self) -> Demand {
        if self.phases.is_empty() {
            self.phases.push((String::new(), Demand::default()));
        }
        std::mem::take(&mut self.phases.last_mut().expect("one was just pushed").1)
    }

    fn give_back(&mut self, demand: Demand) {
        self.phases.last_mut().expect("taken from there").1 = demand;
    }

    #[inline]
    fn access(&mut self, demand: &mut Demand, page: Page, writes: bool, count: u32) {
        demand.accesses += f64::from(count) * self.weight;
        self.at += 1;
        let region = page.region().0;
        let superpage = self.anonymous.get(region as usize).is_some_and(|&n| n == SLOTS as u16);
        let first = self.touch(page);
        let sequential = self.came_in_order(page);
        self.accesses += u64::from(count);
        if first {
            self.first_touch(demand, page, superpage);
        }
        // The region's distance is used only together with the page's, but must be updated at every use.
        let region_distance = (region != self.last_region).then(|| self.region(region));
        self.last_region = region;
        if !self.pages.is_tracked(page.0) {
            return;
        }
        let stands_for = self.pages.stands_for() as f64 * self.weight;
        let Some(distance) = self.pages.touch(page.0) else { return };
        demand.add_again(octave(distance), stands_for);
        if sequential {
            // A page used alternately with others is still one sequential page: its lines are fetched once.
            if superpage && octave(distance) > octave(IN_USE_PAGES) {
                demand.add_sequential(writes, stands_for);
            }
            return;
        }
        let regions = superpage.then(|| region_distance.flatten().map_or(0, octave));
        demand.add_random(octave(distance), regions, writes, stands_for);
    }

    fn region(&mut self, region: u32) -> Option<u64> {
        self.regions.is_tracked(region).then(|| self.regions.touch(region)).flatten()
    }

    fn first_touch(&mut self, demand: &mut Demand, page: Page, superpage: bool) {
        if !superpage {
            demand.touches.others += 1.0;
            let region = page.region().0 as usize;
            if self.early.len() <= region {
                self.early.resize(region + 1, 0);
            }
            self.early[region] += 1;
            return;
        }
        demand.touches.eligible += 1.0;
        let words = page.region().0 as usize * 8;
        let touched: u32 = self.touched[words..words + 8].iter().map(|w| w.count_ones()).sum();
        if touched == 1 {
            demand.touches.superpages += 1.0;
        }
    }

    /// Marks a page as touched. Returns whether this is its first touch.
    fn touch(&mut self, page: Page) -> bool {
        let word = page.0 as usize / 64;
        if self.touched.len() <= word {
            self.touched.resize((word | 7) + 1, 0);
        }
        let bit = 1 << (page.0 % 64);
        let first = self.touched[word] & bit == 0;
        self.touched[word] |= bit;
        first
    }

    /// Records the use of a page. Returns whether a neighbour was used recently, at least `MIN_SEQUENTIAL_ACCESSES`
    /// accesses before this page was first reached.
    fn came_in_order(&mut self, page: Page) -> bool {
        let (at, accesses) = (self.at, self.accesses);
        let place = |page: u32| page as usize % RECENT;
        let before = |page: u32| {
            let recent = self.recent[place(page)];
            (recent.page == page && at - recent.at <= RECENT_RECORDS).then_some(recent.since)
        };
        let beside = [before(page.0.wrapping_sub(1)), before(page.0.wrapping_add(1))];
        let since = before(page.0).unwrap_or(accesses);
        self.recent[place(page.0)] = Recent { page: page.0, at, since };
        beside
            .into_iter()
            .flatten()
            .any(|there| since.saturating_sub(there) >= MIN_SEQUENTIAL_ACCESSES)
    }

    fn event(&mut self, event: &Event, mut demand: Demand) -> Demand {
        match event {
            Event::Spawn(process) | Event::Run(process) => self.running = process.0,
            Event::Map { pages, backing: Backing::Anonymous, .. } => {
                self.map(*pages, &mut demand);
            }
            Event::Map { pages, backing: Backing::Heap, .. } | Event::Grow { pages } => {
                self.drop_tail(self.running);
                self.map(*pages, &mut demand);
                self.add_tail(pages.first.0 + pages.count);
            }
            Event::Unmap(pages) => {
                // A heap that shrank reports its new end when it grows again.
                let end = pages.first.0 + pages.count;
                let in_tail = |&(region, _): &(u32, u16)| {
                    region * SLOTS < end && pages.first.0 < (region + 1) * SLOTS
                };
                if self.tails.get(&self.running).is_some_and(in_tail) {
                    self.drop_tail(self.running);
                }
                self.unmap(*pages);
            }
            Event::Advise(pages, Advice::DontNeed | Advice::Free) => self.forget(*pages),
            Event::Fork { child, offset } => self.fork(child.0, *offset),
            Event::Exit(process) => {
                self.drop_tail(process.0);
                for pages in self.mapped.remove(&process.0).unwrap_or_default() {
                    self.clear(pages);
                }
            }
            Event::Pace(pace) => self.weight = f64::from(pace.weight),
            Event::Phase(name) => {
                self.give_back(demand);
                self.phases.push((name.clone(), Demand::default()));
                return Demand::default();
            }
            _ => {}
        }
        demand
    }

    fn map(&mut self, pages: Pages, demand: &mut Demand) {
        self.mapped.entry(self.running).or_default().push(pages);
        self.count(pages, u16::wrapping_add);
        for region in regions(pages) {
            let Some(early) = self.early.get_mut(region) else { break };
            if self.anonymous[region] != SLOTS as u16 || *early == 0 {
                continue;
            }
            // Do not reclassify touches of an earlier phase.
            let touches = f64::from(std::mem::take(early)).min(demand.touches.others);
            demand.touches.others -= touches;
            demand.touches.eligible += touches;
            demand.touches.superpages += 1.0;
        }
    }

    /// Handles that the running process's heap ends at `end`: counts the rest of its region, if the region holds
    /// nothing else.
    fn add_tail(&mut self, end: u32) {
        let (region, used) = (end / SLOTS, (end % SLOTS) as u16);
        let Some(anonymous) = self.anonymous.get_mut(region as usize) else { return };
        if used == 0 || *anonymous != used {
            return;
        }
        *anonymous = SLOTS as u16;
        self.tails.insert(self.running, (region, SLOTS as u16 - used));
    }

    fn drop_tail(&mut self, process: u32) {
        if let Some((region, beyond)) = self.tails.remove(&process) {
            self.anonymous[region as usize] -= beyond;
        }
    }

    fn unmap(&mut self, pages: Pages) {
        // Only anonymous mappings were counted, not files.
        let (begin, end) = (pages.first.0, pages.first.0 + pages.count);
        let mut kept = Vec::new();
        for own in self.mapped.remove(&self.running).unwrap_or_default() {
            let (first, last) = (own.first.0, own.first.0 + own.count);
            let (from, to) = (begin.max(first), end.min(last));
            if from >= to {
                kept.push(own);
                continue;
            }
            self.clear(range(from, to));
            kept.extend([range(first, from), range(to, last)].into_iter().filter(|p| p.count > 0));
        }
        self.mapped.insert(self.running, kept);
        self.forget(pages);
    }

    fn clear(&mut self, pages: Pages) {
        self.count(pages, u16::wrapping_sub);
        self.forget(pages);
    }

    fn count(&mut self, pages: Pages, change: impl Fn(u16, u16) -> u16) {
        let (mut page, end) = (pages.first.0, pages.first.0 + pages.count);
        while page < end {
            let region = (page / SLOTS) as usize;
            let upto = end.min((page / SLOTS + 1) * SLOTS);
            if self.anonymous.len() <= region {
                self.anonymous.resize(region + 1, 0);
            }
            self.anonymous[region] = change(self.anonymous[region], (upto - page) as u16);
            page = upto;
        }
    }

    /// Forgets the pages' contents: their next touch counts as a first one.
    fn forget(&mut self, pages: Pages) {
        for region in regions(pages) {
            if let Some(early) = self.early.get_mut(region) {
                *early = 0;
            }
        }
        for page in pages.first.0..pages.first.0 + pages.count {
            if let Some(word) = self.touched.get_mut(page as usize / 64) {
                *word &= !(1 << (page % 64));
            }
            self.pages.forget(page);
        }
    }

    fn fork(&mut self, child: u32, offset: u32) {
        let own = self.mapped.get(&self.running).cloned().unwrap_or_default();
        for pages in &own {
            let (begin, end) = (pages.first.0 + offset, pages.first.0 + offset + pages.count);
            self.count(range(begin, end), u16::wrapping_add);
        }
        let moved = own.iter().map(|p| range(p.first.0 + offset, p.first.0 + offset + p.count));
        self.mapped.insert(child, moved.collect());
    }
}

fn regions(pages: Pages) -> std::ops::Range<usize> {
    let end = pages.first.0 + pages.count;
    (pages.first.0 / SLOTS) as usize..end.div_ceil(SLOTS) as usize
}

fn range(begin: u32, end: u32) -> Pages {
    Pages { first: Page(begin), count: end.saturating_sub(begin) }
}
