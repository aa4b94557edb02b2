//! `Artifact`: Frag-L as the artifact of Quicksilver (ATC 2020) makes it; docs/sources/policies.md 4.1.
//!
//! Three programs one after the other. `frag_compact` provokes synchronous compaction,
//! `frag_background` background compaction; both end. `fragment_level` then leaves as many
//! superpages free as the level says and holds on to 16 pages in each of the others. All its pages
//! are movable and idle: nothing here is pinned.
//!
//! Interpretations, where the scripts leave a choice: "touch one word in each of n superpages" is a
//! fresh mapping; the fine-tuning fragments one more superpage or gives one back until the count is
//! right, and stops when a whole pass over what it holds did not bring it there.

use trace::{Access, Backing, Block, Event, Page, Pages, Process, Region, SLOTS};

use super::{Fragmenter, PhysicalMemoryView, Place};

/// Pages kept at the end of each superpage by `frag_background` and `fragment_level`: 64 KiB.
const KEPT: u32 = 16;
/// Writes of a page that is filled (memset, a word each).
const FILL: u32 = 512;
/// Where the programs' memory lies: a virtual page number.
const ADDRESS: u64 = 0x7e00_0000_0000 >> 12;

/// The artifact's sizes, in superpages. It was written for 32 GB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Filled by `frag_compact`: 30 GB.
    pub compact_fill: u32,
    /// Of these emptied but for a page: 1 GB.
    pub compact_emptied: u32,
    /// Touched then by `frag_compact`.
    pub compact_touched: u32,
    /// Filled by `frag_background` at most: 29 GB.
    pub background_fill: u32,
    /// Touched then by `frag_background`.
    pub background_touched: u32,
    /// Filled by `fragment_level`, less what is to stay free: 29 GB.
    pub level_fill: u32,
}

impl Scale {
    /// The artifact's own numbers.
    pub const ARTIFACT: Self = Self {
        compact_fill: 30 * 512,
        compact_emptied: 512,
        compact_touched: 1536,
        background_fill: 29 * 512,
        background_touched: 4000,
        level_fill: 29 * 512,
    };

    /// The same shares of a machine with this many superpage-sized blocks.
    pub fn new(blocks: u64) -> Self {
        let part = |number: u32| (u64::from(number) * blocks / (32 * 512)).max(1) as u32;
        let all = Self::ARTIFACT;
        Self {
            compact_fill: part(all.compact_fill),
            compact_emptied: part(all.compact_emptied),
            compact_touched: part(all.compact_touched),
            background_fill: part(all.background_fill),
            background_touched: part(all.background_touched),
            level_fill: part(all.level_fill),
        }
    }
}

/// The three programs.
#[derive(Debug)]
pub struct Artifact {
    scale: Scale,
    /// Superpages that shall stay free.
    target: u64,
    first_region: u32,
    first_process: u32,
    state: State,
}

/// Where the programs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// `frag_compact` has filled so many superpages.
    CompactFill(u32),
    CompactTouch(u32),
    /// `frag_background` has fragmented so many.
    Background(u32),
    BackgroundTouch {
        base: u32,
        done: u32,
    },
    LevelFill(u32),
    LevelEmpty(u32),
    /// `held` superpages are fragmented, `given` were given back again from the first on.
    Tune {
        held: u32,
        given: u32,
        last: Option<Tune>,
    },
    Done,
}

/// What the fine-tuning did last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tune {
    Fragmented,
    GaveBack,
}

impl Artifact {
    /// The programs that leave `level` percent of what the workload needs not free.
    pub fn new(level: u8, place: Place) -> Self {
        let Place { needed, blocks, first_region, first_process, .. } = place;
        let target = (100 - u64::from(level.min(100))) * needed / 100;
        let (scale, state) = (Scale::new(blocks), State::CompactFill(0));
        Self { scale, target, first_region, first_process, state }
    }

    /// The superpages it leaves free, if the memory has so many.
    pub fn target(&self) -> u64 {
        self.target
    }

    fn pages(&self, superpage: u32, from: u32, to: u32) -> Pages {
        let first = Page::new(Region(self.first_region + superpage), from);
        Pages { first, count: to - from }
    }

    fn map(&self, block: &mut Block, superpage: u32, count: u32) {
        if count == 0 {
            return;
        }
        let first = Region(self.first_region + superpage).first();
        block.event(Event::Map {
            pages: Pages { first, count: count * SLOTS },
            address: ADDRESS + u64::from(superpage) * u64::from(SLOTS),
            backing: Backing::Anonymous,
        });
    }

    fn fill(&self, block: &mut Block, superpage: u32) {
        let first = Region(self.first_region + superpage).first().0;
        for page in first..first + SLOTS {
            block.accesses.push(Access::write(Page(page)));
            block.counts.push(FILL);
        }
    }

    fn touch(&self, block: &mut Block, superpage: u32) {
        block.accesses.push(Access::write(Region(self.first_region + superpage).first()));
        block.counts.push(1);
    }

    fn empty(&self, block: &mut Block, superpage: u32, kept: u32) {
        block.event(Event::Unmap(self.pages(superpage, 0, SLOTS - kept)));
    }

    /// What the fine-tuning may number beyond what it filled.
    fn slack(&self) -> u32 {
        self.scale.level_fill / 8 + 64
    }
}

/// Superpages filled in one step: about a block of accesses.
const STEP: u32 = 32;

impl Fragmenter for Artifact {
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool {
        block.clear();
        let scale = self.scale;
        self.state = match self.state {
            State::Done => return false,
            State::CompactFill(done) => {
                if done == 0 {
                    block.event(Event::Spawn(Process(self.first_process)));
                    self.map(block, 0, scale.compact_fill);
                }
                let end = (done + STEP).min(scale.compact_fill);
                (done..end).for_each(|superpage| self.fill(block, superpage));
                if end < scale.compact_fill {
                    State::CompactFill(end)
                } else {
                    let emptied = scale.compact_emptied.min(scale.compact_fill);
                    (0..emptied).for_each(|superpage| self.empty(block, superpage, 1));
                    self.map(block, scale.compact_fill, scale.compact_touched);
                    State::CompactTouch(0)
                }
            }
            State::CompactTouch(done) => {
                let end = (done + STEP * SLOTS).min(scale.compact_touched);
                (done..end).for_each(|number| self.touch(block, scale.compact_fill + number));
                if end < scale.compact_touched {
                    State::CompactTouch(end)
                } else {
                    block.event(Event::Exit(Process(self.first_process)));
                    block.event(Event::Spawn(Process(self.first_process + 1)));
                    State::Background(0)
                }
            }
            State::Background(done) => {
                if done < scale.background_fill && memory.free_superpages() > 0 {
                    self.map(block, done, 1);
                    self.fill(block, done);
                    self.empty(block, done, KEPT);
                    State::Background(done + 1)
                } else {
                    self.map(block, done, scale.background_touched);
                    State::BackgroundTouch { base: done, done: 0 }
                }
            }
            State::BackgroundTouch { base, done } => {
                let end = (done + STEP * SLOTS).min(scale.background_touched);
                (done..end).for_each(|number| self.touch(block, base + number));
                if end < scale.background_touched {
                    State::BackgroundTouch { base, done: end }
                } else {
                    block.event(Event::Wait(15_000_000));
                    block.event(Event::Exit(Process(self.first_process + 1)));
                    block.event(Event::Spawn(Process(self.first_process + 2)));
                    State::LevelFill(0)
                }
            }
            State::LevelFill(done) => {
                let all = u64::from(scale.level_fill).saturating_sub(self.target) as u32;
                if done == 0 {
                    self.map(block, 0, all);
                }
                let end = (done + STEP).min(all);
                (done..end).for_each(|superpage| self.fill(block, superpage));
                if end < all { State::LevelFill(end) } else { State::LevelEmpty(all) }
            }
            State::LevelEmpty(all) => {
                (0..all).for_each(|superpage| self.empty(block, superpage, KEPT));
                State::Tune { held: all, given: 0, last: None }
            }
            State::Tune { held, given, last } => {
                let free = memory.free_superpages();
                let most = scale.level_fill + self.slack();
                if free > self.target && last != Some(Tune::GaveBack) && held < most {
                    self.map(block, held, 1);
                    self.fill(block, held);
                    self.empty(block, held, KEPT);
                    State::Tune { held: held + 1, given, last: Some(Tune::Fragmented) }
                } else if free < self.target && last != Some(Tune::Fragmented) && given < held {
                    block.event(Event::Unmap(self.pages(given, SLOTS - KEPT, SLOTS)));
                    State::Tune { held, given: given + 1, last: Some(Tune::GaveBack) }
                } else {
                    // The scripts sleep so long before they start the workload, which is what makes
                    // the 16 pages of each superpage inactive.
                    block.event(Event::Wait(60_000_000));
                    State::Done
                }
            }
        };
        true
    }

    fn regions(&self) -> u32 {
        let compact = self.scale.compact_fill + self.scale.compact_touched;
        let background = self.scale.background_fill + self.scale.background_touched;
        compact.max(background).max(self.scale.level_fill + self.slack())
    }

    fn processes(&self) -> u32 {
        3
    }
}
