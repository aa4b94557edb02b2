//! Fragments memory before a workload runs.
//!
//! Fragmenters are programs: they map, touch and unmap, under one policy for all designs (`super::system`). Frag-L depends on the free memory after each step, so the caller asks a [`Fragmenter`] for one step at a time and
//! passes it the [`PhysicalMemoryView`]. The view also takes frames for the kernel, which no program can do.

mod artifact;
#[cfg(test)]
mod tests;

pub use crate::memory::Mobility;
pub use artifact::{Artifact, FreeBlocks, FreeLists, ORDERS, Scale};

use std::fmt;
use std::str::FromStr;

use trace::{Access, Advice, Backing, Block, Event, Page, Pages, Process, Region, SLOTS};
use workload::rng::{SplitMix64, below};

/// The physical memory under a fragmenter.
pub trait PhysicalMemoryView {
    /// Returns the number of superpage-sized, aligned blocks of the machine.
    fn blocks(&self) -> u64;
    /// Returns the number of superpages that could be allocated now: order 9 + 2 x order 10 of buddyinfo, as the
    /// artifact counts, or the count of the design's own allocator.
    fn free_superpages(&self) -> u64;
    /// Returns the number of free frames.
    fn free_frames(&self) -> u64;
    /// Returns whether a block is wholly free.
    fn is_whole(&self, block: u64) -> bool;
    /// Takes the free frames in `from..to` of a block for the kernel, permanently. Takes no unmovable frames from
    /// movable-only memory. Returns the number of frames taken.
    fn occupy(&mut self, block: u64, from: u16, to: u16, mobility: Mobility) -> u64;
}

/// A program that fragments memory.
pub trait Fragmenter: Send {
    /// Replaces `block` by the program's next piece, which the caller executes before the next call. `false`: the
    /// program is done and keeps its memory; the block is empty.
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool;

    /// Returns the number of regions used. The workload's regions follow.
    fn regions(&self) -> u32 {
        0
    }

    /// Returns the number of processes used.
    fn processes(&self) -> u32 {
        0
    }
}

// `Fragmentation`: the choice of a fragmenter, parsed from text.

/// How memory is fragmented.
#[derive(Debug, Clone, PartialEq)]
pub enum Fragmentation {
    /// Not fragmented: a freshly booted machine.
    None,
    /// Frag-L of Quicksilver's artifact: `L` percent of the superpages that the workload needs are not free.
    Level(u8),
    /// This percentage of the machine's superpage-sized blocks holds an unmovable frame.
    Pinned(u8),
    /// Ingens' `frag_normal`.
    IngensNormal,
    /// Ingens' `frag_severe`.
    IngensSevere,
    /// The free lists of a real machine, and their original text if captured.
    Machine(Box<FreeBlocks>, Option<Box<FreeLists>>),
}

/// Facts about the machine and the workload that fragmenters need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Superpages that the workload needs.
    pub needed: u64,
    /// Superpage-sized blocks of the machine.
    pub blocks: u64,
    /// First region number available to the fragmenter.
    pub first_region: u32,
    /// First process number available to the fragmenter.
    pub first_process: u32,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// A fragmentation that could not be parsed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FragmentError {
    /// Unknown fragmentation.
    #[error(
        "unknown fragmentation `{0}`: expected none, frag-L or pinned-L with L from 0 to 100, \
         ingens-normal or ingens-severe"
    )]
    Unknown(String),
    /// A malformed line in a file of /proc.
    #[error("{file}, line {line}: {why}: `{text}`; expected the file as Linux writes it")]
    Line {
        /// The file.
        file: &'static str,
        /// Line number, from 1.
        line: usize,
        /// The line.
        text: String,
        /// What is wrong with the line.
        why: &'static str,
    },
    /// A file of /proc without any free memory.
    #[error("{file}: no line about a zone; expected the file as Linux writes it")]
    Empty {
        /// The file.
        file: &'static str,
    },
}

impl FromStr for Fragmentation {
    type Err = FragmentError;

    fn from_str(text: &str) -> Result<Self, FragmentError> {
        let percent = |prefix: &str| {
            let level = text.strip_prefix(prefix)?;
            let digits = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
            level.parse::<u8>().ok().filter(|&level| digits && level <= 100)
        };
        match text {
            "none" => Ok(Self::None),
            "ingens-normal" => Ok(Self::IngensNormal),
            "ingens-severe" => Ok(Self::IngensSevere),
            _ => (percent("frag-").map(Self::Level))
                .or_else(|| percent("pinned-").map(Self::Pinned))
                .ok_or_else(|| FragmentError::Unknown(text.to_string())),
        }
    }
}

impl fmt::Display for Fragmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Level(level) => write!(f, "frag-{level}"),
            Self::Pinned(percent) => write!(f, "pinned-{percent}"),
            Self::IngensNormal => f.write_str("ingens-normal"),
            Self::IngensSevere => f.write_str("ingens-severe"),
            Self::Machine(..) => f.write_str("as this machine"),
        }
    }
}

impl Fragmentation {
    /// Creates the fragmentation of a real machine.
    ///
    /// # Errors
    /// [`FragmentError`]: the free lists cannot be read.
    pub fn from_machine(lists: &FreeLists) -> Result<Self, FragmentError> {
        let FreeLists { buddyinfo, pagetypeinfo, frames } = lists;
        let free = FreeBlocks::parse(buddyinfo, pagetypeinfo.as_deref(), *frames)?;
        Ok(Self::Machine(Box::new(free), Some(Box::new(lists.clone()))))
    }

    /// Returns the captured free lists that memory is made to match, if any.
    pub fn free_lists(&self) -> Option<&FreeLists> {
        match self {
            Self::Machine(_, lists) => lists.as_deref(),
            _ => None,
        }
    }

    /// Returns the fragmenting program; `None` if none is needed.
    pub fn program(&self, place: Place) -> Option<Box<dyn Fragmenter>> {
        match self {
            Self::None => None,
            // The scripts run `frag_compact` and `frag_background` before `fragment_level 0` too. The slides call this
            // level a fresh boot, so no program runs.
            Self::Level(0) | Self::Pinned(0) => None,
            Self::Level(level) => Some(Box::new(Artifact::new(*level, place))),
            Self::Pinned(percent) => Some(Box::new(Pinned::new(*percent, place.seed))),
            Self::IngensNormal => Some(Box::new(Holes::normal(place))),
            Self::IngensSevere => Some(Box::new(Holes::severe(place))),
            Self::Machine(free, _) => Some(Box::new(Machine::new(free, place.seed))),
        }
    }
}

// `Machine`: gives the simulated memory the free blocks of a real machine.
//
// A free block keeps its order only while its buddy is not free. So a superpage-sized block is a binary tree: of the
// two halves of a partly free block at most one is wholly free. [`pattern`] walks down that tree and leaves needed
// blocks free, as many as fit into one superpage-sized block. All other frames are taken.

/// The order of a superpage.
const SUPERPAGE: usize = 9;

/// A fragmenter that runs no program and occupies frames directly.
#[derive(Debug)]
pub struct Machine {
    target: FreeBlocks,
    seed: u64,
    done: bool,
}

impl Machine {
    /// Creates the fragmenter. The seed assigns patterns to physical blocks.
    pub fn new(target: &FreeBlocks, seed: u64) -> Self {
        Self { target: target.clone(), seed, done: false }
    }
}

/// Leaves the `needed` blocks of orders below `order` free within the frames from `first` on. Appends runs of used
/// frames to `used`. At least one frame is used.
fn pattern(order: usize, first: u16, needed: &mut [u64], used: &mut Vec<(u16, u16)>) {
    if needed[..order].iter().all(|&count| count == 0) {
        match used.last_mut() {
            Some((_, end)) if *end == first => *end = first + (1 << order),
            _ => used.push((first, first + (1 << order))),
        }
        return;
    }
    let half = order - 1;
    if needed[half] > 0 {
        needed[half] -= 1;
    } else {
        pattern(half, first, needed, used);
    }
    pattern(half, first + (1 << half), needed, used);
}

impl Fragmenter for Machine {
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool {
        block.clear();
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        let mut target = self.target.scaled(memory.blocks() << SUPERPAGE);
        // Wholly free superpages are adjacent, so they can form order 10.
        let whole: u64 = (target.free.iter())
            .flat_map(|orders| {
                (SUPERPAGE..ORDERS).map(|order| orders[order] << (order - SUPERPAGE))
            })
            .sum();
        // The kernel's boot memory is already full.
        let (fragmented, full): (Vec<u64>, Vec<u64>) =
            scattered(memory.blocks().saturating_sub(whole), self.seed)
                .into_iter()
                .partition(|&block| memory.is_whole(block));
        for &number in &full {
            memory.occupy(number, 0, 1 << SUPERPAGE, Mobility::Unmovable); // what is left of its last one
        }
        let mut blocks = fragmented.into_iter();
        let mut made = [0u64; 3];
        made[Mobility::Unmovable as usize] = full.len() as u64;
        for mobility in Mobility::ALL {
            let needed = &mut target.free[mobility as usize][..SUPERPAGE];
            while needed.iter().any(|&count| count > 0) {
                let Some(number) = blocks.next() else { return true };
                let mut used = Vec::new();
                pattern(SUPERPAGE, 0, needed, &mut used);
                for (from, to) in used {
                    memory.occupy(number, from, to, mobility);
                }
                made[mobility as usize] += 1;
            }
        }
        // The remaining blocks are full. Unmovable and reclaimable ones match the kernel's pageblock counts. The others
        // are movable; without counts all are.
        let pageblocks = target.pageblocks.unwrap_or_default();
        for mobility in [Mobility::Unmovable, Mobility::Reclaimable] {
            let count = pageblocks[mobility as usize].saturating_sub(made[mobility as usize]);
            for number in blocks.by_ref().take(count as usize) {
                memory.occupy(number, 0, 1 << SUPERPAGE, mobility);
            }
        }
        for number in blocks {
            memory.occupy(number, 0, 1 << SUPERPAGE, Mobility::Movable);
        }
        true
    }
}

// `Pinned`: scatters unmovable frames, which compaction cannot move. Grouping by mobility affects later fragmentation,
// not these frames.

/// Takes one frame in each of a percentage of all blocks.
#[derive(Debug)]
pub struct Pinned {
    percent: u8,
    seed: u64,
    done: bool,
}

impl Pinned {
    /// Creates the fragmenter. The seed selects the blocks and the frame in each.
    pub fn new(percent: u8, seed: u64) -> Self {
        Self { percent, seed, done: false }
    }
}

/// Returns the block numbers, shuffled by the seed.
fn scattered(blocks: u64, seed: u64) -> Vec<u64> {
    let mut order = (0..blocks).collect::<Vec<_>>();
    let mut rng = SplitMix64::new(seed);
    for place in (1..order.len()).rev() {
        order.swap(place, below(rng.draw(), place as u64 + 1) as usize);
    }
    order
}

impl Fragmenter for Pinned {
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool {
        block.clear();
        if std::mem::replace(&mut self.done, true) {
            return false;
        }
        let blocks = memory.blocks();
        let mut left = blocks * u64::from(self.percent) / 100;
        // Skip blocks whose drawn frame is in use already.
        for number in scattered(blocks, self.seed) {
            if left == 0 {
                break;
            }
            let slot = below(SplitMix64::stream(self.seed, number).draw(), SLOTS.into()) as u16;
            left -= memory.occupy(number, slot, slot + 1, Mobility::Unmovable);
        }
        true
    }
}

// `Holes`: models Ingens' fragmenters (OSDI 2016). A process fills memory, releases pieces with MADV_DONTNEED, and
// stays. docs/sources/policies.md 4.2 lists the differences to the released programs.
//
// `frag_normal` works on chunks of 24 MB with pieces of chunk/2^j. Here a chunk is cut into halves, quarters,
// eighths..., and every second piece is released. `frag_severe` makes a hole of random size, 4 KB to 1 MB, in each 1
// MB. How much memory the programs fill is not known. Here they leave a tenth more than the workload needs.

/// Pages in a chunk of `frag_normal`, 24 MB.
const CHUNK: u32 = 24 << 8;
/// Pages in a part of `frag_severe`, 1 MB.
const PART: u32 = 256;
/// Superpages filled per step.
const STEP: u32 = 32;
/// Start of the memory, as a virtual page number.
const ADDRESS: u64 = 0x7e00_0000_0000 >> 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Severe,
}

/// A process with holes.
#[derive(Debug)]
pub struct Holes {
    kind: Kind,
    place: Place,
    /// Superpages to fill; `None` before the first step.
    fill: Option<u32>,
    /// Number of superpages filled.
    filled: u32,
    /// Number of pages in which the holes were already made.
    holed: u32,
}

impl Holes {
    /// Creates `frag_normal`.
    pub fn normal(place: Place) -> Self {
        Self { kind: Kind::Normal, place, fill: None, filled: 0, holed: 0 }
    }

    /// Creates `frag_severe`.
    pub fn severe(place: Place) -> Self {
        Self { kind: Kind::Severe, ..Self::normal(place) }
    }

    /// Returns the share of the filled memory that is released, in 1/1024. `frag_normal` halves what is left of a chunk
    /// again and again and releases every second piece, which adds up to a third. `frag_severe` releases a hole of
    /// uniformly distributed size, on average half of each part.
    fn given_back(&self) -> u64 {
        match self.kind {
            Kind::Normal => 341,
            Kind::Severe => 514,
        }
    }

    fn choose(&self, free_frames: u64) -> u32 {
        let free = free_frames / u64::from(SLOTS);
        let wanted = self.place.needed * 11 / 10;
        let most = free * 95 / 100;
        let fits = free.saturating_sub(wanted) * 1024 / (1024 - self.given_back());
        fits.min(most).min(self.place.blocks) as u32
    }

    fn pages(&self, from: u32, count: u32) -> Pages {
        Pages { first: Page(Region(self.place.first_region).first().0 + from), count }
    }

    /// Makes the holes of the next chunk or part.
    fn holes(&mut self, all: u32, block: &mut Block) {
        let at = self.holed;
        match self.kind {
            Kind::Normal => {
                let (mut start, mut piece, mut drop) = (at, CHUNK / 2, false);
                while piece > 0 && start < all {
                    let count = piece.min(all - start);
                    if drop {
                        block.event(Event::Advise(self.pages(start, count), Advice::DontNeed));
                    }
                    (start, piece, drop) = (start + piece, piece / 2, !drop);
                }
                self.holed += CHUNK;
            }
            Kind::Severe => {
                let mut rng = SplitMix64::stream(self.place.seed, at.into());
                let count = 1 + below(rng.draw(), PART.into()) as u32;
                let start = at + below(rng.draw(), u64::from(PART - count) + 1) as u32;
                if start + count <= all {
                    block.event(Event::Advise(self.pages(start, count), Advice::DontNeed));
                }
                self.holed += PART;
            }
        }
    }
}

impl Fragmenter for Holes {
    fn step(&mut self, memory: &mut dyn PhysicalMemoryView, block: &mut Block) -> bool {
        block.clear();
        let Some(fill) = self.fill else {
            let fill = self.choose(memory.free_frames());
            self.fill = Some(fill);
            block.event(Event::Spawn(Process(self.place.first_process)));
            if fill > 0 {
                let pages = self.pages(0, fill * SLOTS);
                block.event(Event::Map { pages, address: ADDRESS, backing: Backing::Anonymous });
            }
            return true;
        };
        if self.filled < fill {
            let end = (self.filled + STEP).min(fill);
            for page in self.filled * SLOTS..end * SLOTS {
                block.accesses.push(Access::write(self.pages(page, 1).first));
                block.counts.push(SLOTS);
            }
            self.filled = end;
            return true;
        }
        while self.holed < fill * SLOTS && block.events.len() < 4096 {
            self.holes(fill * SLOTS, block);
        }
        !block.events.is_empty()
    }

    fn regions(&self) -> u32 {
        self.place.blocks as u32
    }

    fn processes(&self) -> u32 {
        1
    }
}
