//! Whether a stream makes sense as a whole, which neither its writer nor its reader looks at: do processes
//! exist when they run, are pages mapped when they are accessed.

use std::collections::BTreeMap;

use crate::{Block, Event, Page, Pages, Process, Region};

/// Follows a stream.
#[derive(Default)]
pub struct Checker {
    /// By region: which of its pages are mapped.
    mapped: Vec<[u64; 8]>,
    /// By region: whose it is, plus one.
    owner: Vec<u32>,
    /// The processes that live, and their regions.
    living: BTreeMap<u32, Vec<Region>>,
    running: Option<u32>,
}

impl Checker {
    /// Before the stream's first block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at the next block: the record (of the block) at which the stream is wrong, and why.
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
            Event::Unmap(pages) => each(*pages, |page| self.set(page, false)),
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
        let mut taken = None;
        each(pages, |page| {
            if self.is_mapped(page) {
                taken = Some(page);
            }
            self.set(page, true);
        });
        taken.map_or(Ok(()), |page: Page| Err(format!("page {} is mapped twice", page.0)))
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

    fn set(&mut self, page: Page, mapped: bool) {
        let slot = page.slot();
        if let Some(bits) = self.mapped.get_mut(page.region().0 as usize) {
            let word = &mut bits[(slot / 64) as usize];
            let bit = 1 << (slot % 64);
            *word = if mapped { *word | bit } else { *word & !bit };
        }
    }
}

fn each(pages: Pages, mut what: impl FnMut(Page)) {
    // Without overflow: a valid event's pages end at 2^31 at most.
    (pages.first.0..pages.first.0 + pages.count).for_each(|page| what(Page(page)));
}
