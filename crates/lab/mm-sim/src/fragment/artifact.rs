//! `Artifact`: makes Frag-L as the artifact of Quicksilver (ATC 2020) does; docs/sources/policies.md 4.1.
//!
//! Runs three programs in sequence. `frag_compact` provokes synchronous compaction and ends. `frag_background` provokes
//! background compaction and ends. `fragment_level` leaves the level's number of superpages free, and keeps 16 pages in
//! each other superpage. All its pages are movable and idle, none is pinned.
//!
//! The scripts leave two choices open. "Touch one word in each of n superpages" is taken as a fresh mapping. The
//! fine-tuning fragments one more superpage, or frees one, until the count is right. The fine-tuning stops after a pass
//! over all its superpages without success.

use serde::{Deserialize, Serialize};
use trace::{Access, Backing, Block, Event, Page, Pages, Process, Region, SLOTS};

use super::{FragmentError, Fragmenter, PhysicalMemoryView, Place};
use crate::memory::Mobility;

/// Pages kept at the end of each superpage by `frag_background` and `fragment_level`: 64 KiB.
const KEPT: u32 = 16;
/// Writes per page (memset, one write per word).
const FILL: u32 = 512;
/// Start of the programs' memory, as a virtual page number.
const ADDRESS: u64 = 0x7e00_0000_0000 >> 12;

/// The artifact's sizes, in superpages; written for a machine of 32 GB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Superpages that `frag_compact` fills: 30 GB.
    pub compact_fill: u32,
    /// Filled superpages that `frag_compact` then empties except for one page: 1 GB.
    pub compact_emptied: u32,
    /// Superpages that `frag_compact` touches afterwards.
    pub compact_touched: u32,
    /// Maximum number of superpages that `frag_background` fills: 29 GB.
    pub background_fill: u32,
    /// Superpages that `frag_background` touches afterwards.
    pub background_touched: u32,
    /// Superpages that `fragment_level` fills, before subtracting those to keep free: 29 GB.
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

    /// The artifact's numbers, scaled to a machine with this many superpage-sized blocks.
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
    /// Superpages to keep free.
    target: u64,
    first_region: u32,
    first_process: u32,
    state: State,
}

/// Progress of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Number of superpages that `frag_compact` has filled.
    CompactFill(u32),
    CompactTouch(u32),
    /// Number of superpages that `frag_background` has fragmented.
    Background(u32),
    BackgroundTouch {
        base: u32,
        done: u32,
    },
    LevelFill(u32),
    LevelEmpty(u32),
    /// The program has fragmented `held` superpages and freed the first `given` of them again.
    Tune {
        held: u32,
        given: u32,
        last: Option<Tune>,
    },
}

/// Last step of the fine-tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tune {
    Fragmented,
    GaveBack,
}

impl Artifact {
    /// Creates the programs, which leave all but `level` percent of the needed superpages free.
    pub fn new(level: u8, place: Place) -> Self {
        let Place { needed, blocks, first_region, first_process, .. } = place;
        let target = (100 - u64::from(level.min(100))) * needed / 100;
        let (scale, state) = (Scale::new(blocks), State::CompactFill(0));
        Self { scale, target, first_region, first_process, state }
    }

    /// Returns the number of superpages to leave free, if memory has that many.
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

    /// Regions reserved for the fine-tuning beyond the filled ones.
    fn slack(&self) -> u32 {
        self.scale.level_fill / 8 + 64
    }
}

/// Superpages filled per step: about one block of accesses.
const STEP: u32 = 32;

impl Fragmenter for Artifact {
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool {
        block.clear();
        let scale = self.scale;
        self.state = match self.state {
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
                    return false;
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

// `FreeBlocks`: free blocks from /proc/buddyinfo and /proc/pagetypeinfo, as a target. The parsers accept any text;
// errors name the line.

/// Number of orders that are distinguished; a block of a larger order counts as several blocks of the largest one.
pub const ORDERS: usize = 11;
/// Maximum number of orders that a kernel prints (MAX_ORDER of 64 KB pages on Arm is 13).
const MAX_ORDERS: usize = 32;
/// Maximum number of blocks of one order; no machine has more.
const MAX_BLOCKS: u64 = 1 << 40;

/// A machine's description of its free memory, verbatim. Everything else is computed from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeLists {
    /// The text of /proc/buddyinfo.
    pub buddyinfo: String,
    /// The text of /proc/pagetypeinfo, if readable (needs root).
    pub pagetypeinfo: Option<String>,
    /// Frames of the machine, if known.
    pub frames: Option<u64>,
}

/// Free blocks by mobility and order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeBlocks {
    /// Free blocks by [`Mobility`], in the order of [`Mobility::ALL`], and order.
    pub free: [[u64; ORDERS]; 3],
    /// Pageblocks by mobility, if the kernel reported them.
    pub pageblocks: Option<[u64; 3]>,
    /// Frames of the machine, if known.
    pub frames: Option<u64>,
}

const BUDDYINFO: &str = "/proc/buddyinfo";
const PAGETYPEINFO: &str = "/proc/pagetypeinfo";

impl FreeBlocks {
    /// Parses the two files. Without pagetypeinfo, all free blocks count as movable.
    ///
    /// # Errors
    /// [`FragmentError`]: an invalid line with its number, or no free memory at all.
    pub fn parse(
        buddyinfo: &str,
        pagetypeinfo: Option<&str>,
        frames: Option<u64>,
    ) -> Result<Self, FragmentError> {
        let mut all = [0; ORDERS];
        let mut zones = 0;
        for line in lines(BUDDYINFO, buddyinfo) {
            let (zone, rest) = line.zone()?;
            if zone.is_empty() {
                return Err(line.error("no name of a zone"));
            }
            line.add(&mut all, rest)?;
            zones += 1;
        }
        if zones == 0 {
            return Err(FragmentError::Empty { file: BUDDYINFO });
        }
        let mut target = Self { free: [[0; ORDERS]; 3], pageblocks: None, frames };
        target.free[0] = all;
        if let Some(text) = pagetypeinfo {
            target.add_types(text)?;
        }
        Ok(target)
    }

    /// Returns the number of free frames.
    pub fn frames_free(&self) -> u64 {
        let order = |(order, count): (usize, &u64)| count << order;
        self.free.iter().flat_map(|orders| orders.iter().enumerate().map(order)).sum()
    }

    /// Scales the free blocks to a machine with `frames` frames, if this machine's frames are known.
    pub fn scaled(&self, frames: u64) -> Self {
        let Some(own) = self.frames.filter(|&own| own > 0) else { return self.clone() };
        let scale = |count: u64| {
            let scaled =
                (u128::from(count) * u128::from(frames) + u128::from(own / 2)) / u128::from(own);
            scaled as u64
        };
        Self {
            free: self.free.map(|orders| orders.map(scale)),
            pageblocks: self.pageblocks.map(|counts| counts.map(scale)),
            frames: Some(frames),
        }
    }

    /// Splits buddyinfo's counts by mobility. Pagetypeinfo's counts replace buddyinfo's, up to pagetypeinfo's limit of
    /// 100000 (`>100000`). Both files are read at about the same time.
    fn add_types(&mut self, text: &str) -> Result<(), FragmentError> {
        let all = self.free[0];
        let mut free = [[0; ORDERS]; 3];
        let mut columns = Vec::new();
        let mut pageblocks = [0; 3];
        let mut found = false;
        for line in lines(PAGETYPEINFO, text) {
            if let Some(names) = line.text.strip_prefix("Number of blocks type") {
                columns = names.split_whitespace().map(mobility).collect();
            } else if line.text.starts_with("Node") && line.text.contains(", type") {
                let (_, rest) = line.zone()?;
                let rest = rest.trim_start_matches(',').trim_start();
                let rest =
                    rest.strip_prefix("type").ok_or_else(|| line.error("no type"))?.trim_start();
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                found = true;
                let mut ignored = [0; ORDERS];
                let orders = match mobility(&rest[..end]) {
                    Some(mobility) => &mut free[mobility as usize],
                    None => &mut ignored,
                };
                line.add(orders, &rest[end..])?;
            } else if line.text.starts_with("Node") && !columns.is_empty() {
                let (_, rest) = line.zone()?;
                for (number, mobility) in rest.split_whitespace().zip(&columns) {
                    let number = line.number(number)?;
                    if let Some(mobility) = mobility {
                        pageblocks[*mobility as usize] += number;
                    }
                }
            }
        }
        if !found {
            return Err(FragmentError::Empty { file: PAGETYPEINFO });
        }
        // Blocks beyond pagetypeinfo's limit count as movable.
        for order in 0..ORDERS {
            let typed = free.iter().map(|orders| orders[order]).sum::<u64>();
            free[0][order] += all[order].saturating_sub(typed);
        }
        self.free = free;
        self.pageblocks = (pageblocks != [0; 3]).then_some(pageblocks);
        Ok(())
    }
}

/// Returns the mobility of a kernel migrate type; `None` for types without allocations (Isolate).
fn mobility(name: &str) -> Option<Mobility> {
    match name {
        "Movable" | "CMA" => Some(Mobility::Movable),
        "Reclaimable" => Some(Mobility::Reclaimable),
        "Unmovable" | "HighAtomic" | "Reserve" => Some(Mobility::Unmovable),
        _ => None,
    }
}

/// A non-empty line.
struct Line<'a> {
    file: &'static str,
    number: usize,
    text: &'a str,
}

fn lines<'a>(file: &'static str, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    let lines =
        text.lines().zip(1..).map(move |(text, number)| Line { file, number, text: text.trim() });
    lines.filter(|line| !line.text.is_empty())
}

impl<'a> Line<'a> {
    fn error(&self, why: &'static str) -> FragmentError {
        let text = self.text.chars().take(120).collect();
        FragmentError::Line { file: self.file, line: self.number, text, why }
    }

    /// Splits `Node 0, zone Normal ...` into the zone's name and the rest.
    fn zone(&self) -> Result<(&'a str, &'a str), FragmentError> {
        let rest = self.text.strip_prefix("Node").ok_or_else(|| self.error("no `Node`"))?;
        let (node, rest) =
            rest.split_once(',').ok_or_else(|| self.error("no `,` after the node"))?;
        node.trim().parse::<u32>().map_err(|_| self.error("no number of a node"))?;
        let rest = rest.trim_start().strip_prefix("zone").ok_or_else(|| self.error("no `zone`"))?;
        let rest = rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
        Ok((&rest[..end], &rest[end..]))
    }

    fn number(&self, text: &str) -> Result<u64, FragmentError> {
        let digits = text.strip_prefix('>').unwrap_or(text);
        let number = digits.parse::<u64>().map_err(|_| self.error("not a number"))?;
        if number > MAX_BLOCKS {
            return Err(self.error("more blocks than any machine has"));
        }
        Ok(number)
    }

    /// Adds the counts of a line, by order.
    fn add(&self, orders: &mut [u64; ORDERS], text: &str) -> Result<(), FragmentError> {
        let mut seen = 0;
        for (order, number) in text.split_whitespace().enumerate() {
            if order >= MAX_ORDERS {
                return Err(self.error("more orders than any kernel has"));
            }
            let count = self.number(number)?;
            let kept = order.min(ORDERS - 1);
            orders[kept] = orders[kept].saturating_add(count << (order - kept).min(20));
            seen += 1;
        }
        if seen == 0 {
            return Err(self.error("no counts"));
        }
        Ok(())
    }
}
