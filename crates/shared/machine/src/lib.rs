//! `Machine`: a processor's translation hardware and its kernel's costs, as a value read from TOML: the shapes of its
//! TLBs and page-walk caches, the latencies of its caches, and what its kernel's work costs.
//!
//! [`Machine::walk_cycles`] turns what a TLB counted ([`Tally`]) into cycles. No I/O, no clock, nothing random; the
//! TLBs themselves are simulated by `tlb-sim`.
#![forbid(unsafe_code)]

mod costs;
mod edit;
mod geometry;
mod organisation;
mod presets;
mod read;
mod reuse;
mod size;
mod tally;
mod walk;

pub use costs::{BULKS, Costs, Nanoseconds, Stores, Zeroing};
pub use edit::{CostLine, costs_marked, with_costs};
pub use geometry::{Array, Index, Replacement, Tlb, WalkCaches};
pub use organisation::{Hashed, Organisation};
pub use presets::{UnknownMachine, names, preset, preset_of, preset_text};
pub use reuse::Reuse;
pub use size::{SIZES, Size};
pub use tally::{Level, READS, Tally};
pub use walk::Footprint;

use units::PageSize;

/// A machine, read from TOML ([`Machine::from_toml`]) or by name ([`preset`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its name, as on the command line.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// Its clock, at which its cycles are counted.
    pub mhz: u32,
    /// The base page: the smallest that the processor translates.
    pub base_page: PageSize,
    /// The kernel's base page: one of the processor's, or several that are mapped, zeroed and freed together.
    pub kernel_page: PageSize,
    /// The sizes of its superpages, if they are not those of a tree of tables; see [`Machine::superpages`].
    pub own_superpages: Option<Vec<PageSize>>,
    /// Page-table entries that a walk for a base page reads when no walk cache helps.
    pub levels: u8,
    /// First-level TLB arrays. No size is held by two, and one holds base pages.
    pub l1: Vec<Tlb>,
    /// Second-level TLB arrays, likewise; what is held here is held by the first level too.
    pub l2: Vec<Tlb>,
    /// The caches of upper page-table entries.
    pub walk_caches: WalkCaches,
    /// Walks that may be under way at once.
    pub walkers: u8,
    /// Nothing else is translated while a walk is under way: a program waits for all of it.
    pub walk_blocks: bool,
    /// How the page table is laid out.
    pub organisation: Organisation,
    /// Address spaces keep their translations over a context switch.
    pub pcid: bool,
    /// It runs in a virtual machine.
    pub nested: Option<Nested>,
    /// Data caches from the first level on, as page-table entries see them, ascending.
    pub caches: Vec<Cache>,
    /// Cycles of a load from memory.
    pub memory_cycles: u16,
    /// MB/s (10^6 bytes) that one thread streams, as McCalpin's STREAM counts them; `None`: workloads' own pace.
    pub stream_bandwidth: Option<u32>,
    /// What accesses cost that do not wait for each other; `None`: what workloads say.
    pub independent: Option<Independent>,
    /// What the kernel's work costs.
    pub costs: Costs,
}

/// Accesses to memory far beyond the caches that do not wait for each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Independent {
    /// Cycles of one, its translation being at hand.
    pub cycles: f64,
    /// The part of a walk that it waits for: 1 where no two walks overlap.
    pub walk: f64,
}

/// One data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// Its bytes, of which page tables get a part.
    pub bytes: u64,
    /// Cycles of a load that hits it.
    pub cycles: u16,
}

/// The host's side of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    /// The size of page with which the host backs the guest. No TLB entry translates more.
    pub host_page: Size,
    /// Levels of the host's page table.
    pub levels: u8,
}

impl Machine {
    /// The size of a TLB entry for a page of `size`: the largest that the first level holds and the
    /// host's pages allow. Zen keeps 1 GiB pages as pieces of 2 MiB; a guest's superpage on a host's
    /// base pages is kept as base pages.
    pub fn entry_size(&self, size: Size) -> Size {
        let mut size = match self.nested {
            Some(nested) => size.min(nested.host_page),
            None => size,
        };
        while !self.l1.iter().any(|tlb| tlb.holds[size as usize]) {
            size = size.smaller().expect("one array of the first level holds base pages");
        }
        size
    }

    /// Page-table entries that a walk for a page of `size` reads when no walk cache helps.
    pub fn full_walk(&self, size: Size) -> u8 {
        let less = match size {
            Size::Base | Size::Cont => 0,
            Size::Large => 1,
            Size::Huge => 2,
        };
        self.levels.saturating_sub(less).max(1)
    }

    /// The bytes that a TLB level's array for `size` can translate, 0 if there is none.
    pub fn reach(&self, level: &[Tlb], size: Size) -> u64 {
        let held = level.iter().find(|tlb| tlb.holds[size as usize]);
        held.map_or(0, |tlb| tlb.reach(size, self.base_page.bytes()))
    }

    /// The bytes of its superpages, ascending: where its file names none, 512 base pages, and 512 times that where the
    /// first-level TLB holds pages of that size.
    pub fn superpages(&self) -> Vec<u64> {
        if let Some(sizes) = &self.own_superpages {
            return sizes.iter().map(|size| size.bytes()).collect();
        }
        let held = |size: Size| self.l1.iter().any(|tlb| tlb.holds[size as usize]);
        let sizes = [Size::Large, Size::Huge].into_iter();
        let sizes = sizes.filter(|&size| size == Size::Large || held(size));
        sizes.map(|size| self.base_page.bytes() << size.shift()).collect()
    }

    /// Nanoseconds as cycles of this machine.
    pub fn cycles(&self, time: Nanoseconds) -> u64 {
        (time * f64::from(self.mhz) / 1000.0).round() as u64
    }
}
