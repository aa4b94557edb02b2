//! `Machine`: a CPU's translation hardware and its kernel's costs, read from TOML: geometry of TLBs and page-walk
//! caches, latencies of data caches, and costs of kernel operations.
//!
//! [`Machine::walk_cycles`] converts the counts of a TLB ([`Tally`]) to cycles. No I/O, no clock, no randomness;
//! `tlb-sim` simulates the TLBs themselves.
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
    /// Name on the command line.
    pub name: String,
    /// One-line summary.
    pub summary: String,
    /// Clock in MHz, for cycles.
    pub mhz: u32,
    /// Base page size: the smallest page that the CPU translates.
    pub base_page: PageSize,
    /// The kernel's base page size: the CPU's, or a multiple of it. The kernel maps, zeroes and frees all CPU pages of
    /// one kernel page together.
    pub kernel_page: PageSize,
    /// Superpage sizes, if they differ from those of a radix tree; see [`Machine::superpages`].
    pub own_superpages: Option<Vec<PageSize>>,
    /// Number of page-table entries that a walk for a base page reads without walk caches.
    pub levels: u8,
    /// First-level TLB arrays. Each page size is in at most one array. Base pages are in one.
    pub l1: Vec<Tlb>,
    /// Second-level TLB arrays, with the same rules. The first level holds all their page sizes.
    pub l2: Vec<Tlb>,
    /// Page-walk caches.
    pub walk_caches: WalkCaches,
    /// Maximum number of concurrent walks.
    pub walkers: u8,
    /// Whether a walk blocks all other translations, so that the program waits for the whole walk.
    pub walk_blocks: bool,
    /// Organisation of the page table.
    pub organisation: Organisation,
    /// Whether TLB entries survive a context switch (PCID).
    pub pcid: bool,
    /// Nested paging, in a virtual machine.
    pub nested: Option<Nested>,
    /// Data caches, ascending, with the latencies of page-table loads.
    pub caches: Vec<Cache>,
    /// Cycles of a load from memory.
    pub memory_cycles: u16,
    /// Streaming bandwidth of one thread in MB/s (10^6 bytes), counted as McCalpin's STREAM does; `None`: use the value
    /// of the workload.
    pub stream_bandwidth: Option<u32>,
    /// Cost of independent accesses; `None`: use the values of the workload.
    pub independent: Option<Independent>,
    /// Instructions in flight: the size of the reorder buffer. Accesses of as many instructions overlap. `None`: use the
    /// values of the workload.
    pub window: Option<u16>,
    /// Measured costs of random accesses by the size of the memory, ascending; empty: all walks are computed.
    pub far: Vec<Far>,
    /// Costs of kernel operations.
    pub costs: Costs,
}

/// Measured costs of random accesses to memory of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Far {
    /// Size of the memory in bytes.
    pub bytes: u64,
    /// Cycles that base pages add to a dependent load.
    pub walk: f64,
    /// Cost of independent accesses; its share is of `walk`.
    pub independent: Independent,
}

/// Cost of independent accesses to memory far larger than the caches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Independent {
    /// Cycles per access with a TLB hit.
    pub cycles: f64,
    /// Share of the walk time by which the access is delayed, from 0 to 1; 1 if walks do not
    /// overlap.
    pub walk: f64,
}

/// One data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// Size in bytes, of which page tables use a part.
    pub bytes: u64,
    /// Cycles of a hit.
    pub cycles: u16,
}

/// Nested paging of a virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    /// Size of the host pages that back the guest: no TLB entry covers more.
    pub host_page: Size,
    /// Number of levels of the host's page table.
    pub levels: u8,
}

impl Machine {
    /// The size of the TLB entries for a page of `size`: the largest that the first-level TLB and the host's pages
    /// permit. For example, Zen splits 1 GiB pages into 2 MiB entries, and a guest's superpage on the host's base pages
    /// gets base-page entries.
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

    /// Returns the measured costs for memory of `bytes`: between two measured sizes linearly in the logarithm of the size,
    /// beyond them those of the nearest.
    pub fn far_at(&self, bytes: u64) -> Option<Far> {
        let after = self.far.partition_point(|far| far.bytes < bytes);
        let (Some(low), Some(high)) = (self.far.get(after.saturating_sub(1)), self.far.get(after))
        else {
            return self.far.last().copied();
        };
        if after == 0 {
            return Some(*high);
        }
        let log = |bytes: u64| (bytes as f64).log2();
        let part = (log(bytes) - log(low.bytes)) / (log(high.bytes) - log(low.bytes));
        let between = |low: f64, high: f64| low + part * (high - low);
        Some(Far {
            bytes,
            walk: between(low.walk, high.walk),
            independent: Independent {
                cycles: between(low.independent.cycles, high.independent.cycles),
                walk: between(low.independent.walk, high.independent.walk),
            },
        })
    }

    /// Returns the cost of independent accesses to memory of `bytes`, if known.
    pub fn independent_at(&self, bytes: u64) -> Option<Independent> {
        self.far_at(bytes).map(|far| far.independent).or(self.independent)
    }

    /// Number of page-table entries that a walk for a page of `size` reads without walk caches.
    pub fn full_walk(&self, size: Size) -> u8 {
        let less = match size {
            Size::Base | Size::Cont => 0,
            Size::Large => 1,
            Size::Huge => 2,
        };
        self.levels.saturating_sub(less).max(1)
    }

    /// Number of bytes that a TLB level can translate with pages of `size`; 0 if no array holds
    /// that size.
    pub fn reach(&self, level: &[Tlb], size: Size) -> u64 {
        let held = level.iter().find(|tlb| tlb.holds[size as usize]);
        held.map_or(0, |tlb| tlb.reach(size, self.base_page.bytes()))
    }

    /// Superpage sizes in bytes, ascending. If the file names none: 512 base pages, and also 512 × 512 base pages if
    /// the first-level TLB holds such pages.
    pub fn superpages(&self) -> Vec<u64> {
        if let Some(sizes) = &self.own_superpages {
            return sizes.iter().map(|size| size.bytes()).collect();
        }
        let held = |size: Size| self.l1.iter().any(|tlb| tlb.holds[size as usize]);
        let sizes = [Size::Large, Size::Huge].into_iter();
        let sizes = sizes.filter(|&size| size == Size::Large || held(size));
        sizes.map(|size| self.base_page.bytes() << size.shift()).collect()
    }

    /// Converts nanoseconds to a number of cycles of this machine, rounded.
    pub fn cycles(&self, time: Nanoseconds) -> u64 {
        (time * f64::from(self.mhz) / 1000.0).round() as u64
    }
}
