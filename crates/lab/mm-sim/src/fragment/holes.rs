//! `Holes`: after Ingens' fragmenters (OSDI 2016). A process fills memory, then gives pieces of it back with
//! MADV_DONTNEED, and stays. How the released programs differ: docs/sources/policies.md 4.2.
//!
//! `frag_normal` works on chunks of 24 MB with pieces of chunk/2^j; taken here as: the chunk is cut
//! into halves, quarters, eighths..., and every second piece is given back. `frag_severe` makes a hole
//! of random size, 4 KB to 1 MB, in each 1 MB. How much of the memory they fill is not known; here as
//! much as leaves a tenth more than the workload needs.

use trace::{Access, Advice, Backing, Block, Event, Page, Pages, Process, Region, SLOTS};
use workload::rng::{SplitMix64, below};

use super::{Fragmenter, PhysicalMemoryView, Place};

/// Pages in a chunk of `frag_normal`, 24 MB.
const CHUNK: u32 = 24 << 8;
/// Pages in a part of `frag_severe`, 1 MB.
const PART: u32 = 256;
/// Superpages filled in a step.
const STEP: u32 = 32;
/// Where the memory lies: a virtual page number.
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
    /// Superpages it fills; `None` before it has looked at the memory.
    fill: Option<u32>,
    /// Superpages filled, then pages that holes were made in.
    filled: u32,
    holed: u32,
}

impl Holes {
    /// `frag_normal`.
    pub fn normal(place: Place) -> Self {
        Self { kind: Kind::Normal, place, fill: None, filled: 0, holed: 0 }
    }

    /// `frag_severe`.
    pub fn severe(place: Place) -> Self {
        Self { kind: Kind::Severe, ..Self::normal(place) }
    }

    /// The share that is given back, in 1/1024: of halves, quarters... every second is a third; a hole
    /// of uniform size is half of its part.
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

    /// The holes of the next chunk or part.
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
