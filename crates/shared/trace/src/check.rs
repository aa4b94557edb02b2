//! Checks the consistency of a whole stream: processes exist when they run, and pages are mapped when they are
//! accessed. Neither the writer nor the reader of traces checks this.

use std::collections::BTreeMap;

use crate::{Block, Event, Page, Pages, Process, Region};

/// State of the check.
#[derive(Default)]
pub struct Checker {
    /// Bitmap of mapped pages, by region.
    mapped: Vec<[u64; 8]>,
    /// Owner of each region: process number plus one.
    owner: Vec<u32>,
    /// Live processes with their regions.
    living: BTreeMap<u32, Vec<Region>>,
    running: Option<u32>,
}

impl Checker {
    /// The state before the stream's first block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the next block.
    ///
    /// # Errors
    /// The index of the first inconsistent record in the block, and the reason.
    pub fn block(&mut self, block: &Block) -> Result<(), (usize, String)> {
        let mut at = 0;
        for (position, event) in &block.events {
            let position = (*position as usize).min(block.accesses.len());
            self.accesses(block, at, position)?;
            at = position;
            self.event(event).map_err(|what| (at, what))?;
        }
        self.accesses(block, at, block.accesses.len())
    }

    fn accesses(&self, block: &Block, begin: usize, end: usize) -> Result<(), (usize, String)> {
        if begin == end {
            return Ok(());
        }
        let Some(running) = self.running else {
            return Err((begin, "an access before a process was spawned".to_string()));
        };
        for (access, at) in block.accesses[begin..end].iter().zip(begin..) {
            let page = access.page();
            if !self.is_mapped(page) || self.owner_of(page.region()) != Some(running) {
                return Err((
                    at,
                    format!(
                        "page {} of region {} is accessed, but process {running} has not mapped it",
                        page.slot(),
                        page.region().0
                    ),
                ));
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Spawn(Process(process)) => {
                if self.living.insert(*process, Vec::new()).is_some() {
                    return Err(format!("process {process} is spawned, and lives already"));
                }
                self.running = Some(*process);
            }
            Event::Run(Process(process)) => {
                self.alive(*process)?;
                self.running = Some(*process);
            }
            Event::Map { pages, .. } => self.map(*pages)?,
            Event::Grow { pages } => {
                let before = pages.first.0.checked_sub(1).map(Page);
                if !before.is_some_and(|page| self.is_mapped(page)) {
                    return Err("a mapping grows where none ends".to_string());
                }
                self.map(*pages)?;
            }
            Event::Unmap(pages) => words(*pages, |region, word, bits| {
                if let Some(mapped) = self.mapped.get_mut(region) {
                    mapped[word] &= !bits;
                }
            }),
            Event::Fork { child, offset } => self.fork(child.0, offset >> 9)?,
            Event::Exit(Process(process)) => {
                self.alive(*process)?;
                for region in self.living.remove(process).unwrap_or_default() {
                    self.mapped[region.0 as usize] = [0; 8];
                    self.owner[region.0 as usize] = 0;
                }
                self.running = self.running.filter(|running| running != process);
            }
            Event::Advise(..)
            | Event::Protect(..)
            | Event::Pace(_)
            | Event::Wait(_)
            | Event::Phase(_)
            | Event::RequestBegin
            | Event::RequestEnd => {}
        }
        Ok(())
    }

    fn alive(&self, process: u32) -> Result<(), String> {
        let lives = self.living.contains_key(&process);
        lives.then_some(()).ok_or_else(|| format!("process {process} is not there"))
    }

    fn map(&mut self, pages: Pages) -> Result<(), String> {
        let Some(running) = self.running else {
            return Err("a mapping before a process was spawned".to_string());
        };
        let last = pages.first.0 + (pages.count - 1);
        for region in pages.first.0 >> 9..=last >> 9 {
            self.own(Region(region), running)?;
        }
        let mut twice = None;
        words(pages, |region, word, bits| {
            let mapped = &mut self.mapped[region][word];
            if *mapped & bits != 0 {
                twice.get_or_insert(region);
            }
            *mapped |= bits;
        });
        twice.map_or(Ok(()), |region| Err(format!("pages of region {region} are mapped twice")))
    }

    fn fork(&mut self, child: u32, by: u32) -> Result<(), String> {
        let Some(running) = self.running else {
            return Err("a fork before a process was spawned".to_string());
        };
        if self.living.insert(child, Vec::new()).is_some() {
            return Err(format!("process {child} is forked, and lives already"));
        }
        for region in self.living.get(&running).cloned().unwrap_or_default() {
            let copy = Region(region.0 + by);
            if copy.0 >= 1 << 22 {
                return Err(format!("process {child} is forked beyond the last region"));
            }
            self.own(copy, child)?;
            self.mapped[copy.0 as usize] = self.mapped[region.0 as usize];
        }
        Ok(())
    }

    fn own(&mut self, region: Region, process: u32) -> Result<(), String> {
        let index = region.0 as usize;
        if self.owner.len() <= index {
            self.owner.resize(index + 1, 0);
            self.mapped.resize(index + 1, [0; 8]);
        }
        match self.owner[index] {
            0 => {
                self.owner[index] = process + 1;
                self.living.entry(process).or_default().push(region);
                Ok(())
            }
            owner if owner == process + 1 => Ok(()),
            owner => Err(format!("region {} belongs to process {}", region.0, owner - 1)),
        }
    }

    fn owner_of(&self, region: Region) -> Option<u32> {
        self.owner.get(region.0 as usize)?.checked_sub(1)
    }

    fn is_mapped(&self, page: Page) -> bool {
        let slot = page.slot();
        let region = self.mapped.get(page.region().0 as usize);
        region.is_some_and(|bits| bits[(slot / 64) as usize] >> (slot % 64) & 1 == 1)
    }
}

/// Calls `what` for every group of 64 pages that overlaps the span: passes the region, the index of the group in the
/// region, and a bit for each page.
fn words(pages: Pages, mut what: impl FnMut(usize, usize, u64)) {
    // This cannot overflow, because page numbers of valid events are at most 2^31.
    let (mut page, end) = (pages.first.0, pages.first.0 + pages.count);
    while page < end {
        let next = end.min((page | 63) + 1);
        let bits = u64::MAX >> (64 - (next - page)) << (page % 64);
        let slot = Page(page).slot();
        what(Page(page).region().0 as usize, (slot / 64) as usize, bits);
        page = next;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Backing;

    fn one(event: Event) -> Block {
        Block { events: vec![(0, event)], ..Block::default() }
    }

    fn map(first: u32, count: u32) -> Block {
        let pages = Pages { first: Page(first), count };
        one(Event::Map { pages, address: first.into(), backing: Backing::Heap })
    }

    proptest! {
        #[test]
        fn exactly_the_mapped_pages_can_be_accessed(first in 0u32..2000, count in 1u32..2000, page in 0u32..4500) {
            let mut checker = Checker::new();
            checker.block(&one(Event::Spawn(Process(0)))).unwrap();
            checker.block(&map(first, count)).unwrap();
            let access = Block { accesses: vec![crate::Access::read(Page(page))], ..Block::default() };
            let inside = (first..first + count).contains(&page);
            prop_assert_eq!(checker.block(&access).is_ok(), inside);
            prop_assert_eq!(checker.block(&map(page, 1)).is_err(), inside);
        }
    }

    #[test]
    fn processes_and_mappings_that_make_no_sense() {
        let process = Process(0);
        let spawned = one(Event::Spawn(process));
        let grow = |first| one(Event::Grow { pages: Pages { first: Page(first), count: 3 } });
        let access =
            |page| Block { accesses: vec![crate::Access::read(Page(page))], ..Block::default() };
        let fork = one(Event::Fork { child: Process(1), offset: 1024 });
        let run = |process| one(Event::Run(Process(process)));
        let good = [
            vec![spawned.clone(), map(0, 10), grow(10), access(12)],
            vec![spawned.clone(), map(0, 10), fork.clone(), run(1), access(1024 + 9)],
            vec![
                spawned.clone(),
                map(0, 10),
                one(Event::Exit(process)),
                spawned.clone(),
                map(3, 4),
            ],
        ];
        for blocks in good {
            let mut checker = Checker::new();
            blocks.iter().for_each(|block| checker.block(block).unwrap());
        }
        let bad = [
            (vec![access(1)], "before a process"),
            (vec![map(0, 1)], "before a process"),
            (vec![spawned.clone(), spawned.clone()], "lives already"),
            (vec![spawned.clone(), run(1)], "is not there"),
            (vec![spawned.clone(), grow(10)], "where none ends"),
            (vec![spawned.clone(), map(0, 10), fork.clone(), access(1024)], "has not mapped it"),
            (vec![spawned.clone(), map(0, 10), map(9, 1)], "mapped twice"),
            (vec![spawned, map(0, 10), fork, run(1), map(20, 1)], "belongs to process 0"),
        ];
        for (blocks, part) in bad {
            let mut checker = Checker::new();
            let (last, first) = blocks.split_last().unwrap();
            first.iter().for_each(|block| checker.block(block).unwrap());
            let (_, what) = checker.block(last).unwrap_err();
            assert!(what.contains(part), "{what}");
        }
    }
}
