//! Cost of page walks: converts numbers of walks and the size of the page table to cycles.
//!
//! A walk reads page-table entries through the data caches. Cache hits are not simulated line by line.
//! [`Machine::load_cycles`] computes them from the number of bytes of each level in use, with Che, Tung and Wang's
//! model of a cache under independent references (JSAC 2002). For random replacement this model has a closed form.

use super::Machine;
use crate::{Hashed, Organisation, READS, Size, Tally};

/// Page-table entries in use, by level, in bytes. An entry has 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Leaves of base pages.
    pub pte_bytes: u64,
    /// One entry per region, leaf or not.
    pub pde_bytes: u64,
    /// One entry per 512 regions.
    pub pdpte_bytes: u64,
    /// Number of pages of all sizes: the entries of a hashed table.
    pub entries: u64,
    /// Bytes of memory, which determine the size of a hashed table.
    pub memory: u64,
}

/// Bytes of a page-table entry.
const ENTRY: u64 = 8;
/// Bytes of a cache line.
pub(crate) const LINE: u64 = 64;

/// Lines of data that a program brings into the caches per walk. At least one, because a look-up that misses the TLB
/// accesses a page that was not used recently (inferred; not fitted).
pub(crate) const DATA_LINES_PER_WALK: f64 = 1.0;

/// Cycles of a walk besides its loads: the only fitted number of this model. With 12 cycles, GUPS over 64 GiB on the
/// preset `cascade-lake` has the same ratio of walk cycles of base pages to superpages as vMitosis' logs: 5.3 (that
/// their table has 64 GiB is inferred; `tests/integration/walks.rs`). Values of 7 to 20 change the ratio by at most a
/// fifth.
const WALK_CYCLES: f64 = 12.0;

impl Footprint {
    /// Footprint of the page table of `base_pages` base pages in `regions` regions, on a machine with `memory` bytes.
    /// Superpages count as regions but not as base pages.
    pub fn new(base_pages: u64, regions: u64, memory: u64) -> Self {
        Self {
            pte_bytes: base_pages * ENTRY,
            pde_bytes: regions * ENTRY,
            pdpte_bytes: regions.div_ceil(512) * ENTRY,
            entries: base_pages + regions.saturating_sub(base_pages.div_ceil(512)),
            memory,
        }
    }
}

impl Machine {
    /// Total latency in cycles of `walks` (a difference of two tallies), as `dtlb_load_misses.walk_pending` counts it.
    /// This is not the time that the program waits: concurrent walks can make it exceed the elapsed time by a factor of
    /// up to [`Machine::walkers`].
    pub fn walk_cycles(&self, walks: &Tally, footprint: Footprint) -> f64 {
        self.walk_cycles_of(walks, footprint, None)
    }

    /// Cycles of a walk of random accesses to base pages over `bytes` of memory, as computed.
    pub fn random_walk(&self, bytes: u64) -> f64 {
        let pages = bytes / self.base_page.bytes();
        let regions = pages.div_ceil(1 << Size::Large.shift()).max(1);
        // The page-walk cache holds the upper entries of this many regions.
        let cached = self.walk_caches.pde.map_or(0, |pde| u64::from(pde.entries)).min(regions);
        let mut walks = Tally::default();
        walks.walks[Size::Base as usize][1] = cached;
        walks.walks[Size::Base as usize][2] = regions - cached;
        self.computed(&walks, Footprint::new(pages, regions, bytes), None) / regions as f64
    }

    /// Like [`Self::walk_cycles`]. `leaf` is the mean number of cycles of loading a base page's leaf entry, if known
    /// (see [`Machine::leaf_cycles`]; radix tables only).
    ///
    /// Where random accesses were measured ([`Machine::far`]), walks for base pages cost what was measured over as much
    /// memory, in proportion to what is computed for both. Near walks, which need no load from far, stay as computed.
    /// If the host's pages are base pages, superpages miss the TLB as often as base pages; their walks cost nothing here,
    /// because the measured costs of accesses on superpages include them, and base pages only add to them.
    pub fn walk_cycles_of(&self, walks: &Tally, footprint: Footprint, leaf: Option<f64>) -> f64 {
        if self.far.is_empty() {
            return self.computed(walks, footprint, leaf);
        }
        let of_base = walks.of_base();
        let pages = footprint.pte_bytes / ENTRY;
        let (counted, all) = match self.entry_size(Size::Large) {
            Size::Base | Size::Cont => {
                (&of_base, (footprint.pde_bytes / ENTRY) << Size::Large.shift())
            }
            Size::Large | Size::Huge => (walks, pages),
        };
        let computed = self.computed(counted, footprint, leaf);
        if of_base.all_walks() == 0 {
            return computed;
        }
        let Some(far) = self.far_at(all.max(1) * self.base_page.bytes()) else { return computed };
        let share = if all > 0 { (pages as f64 / all as f64).min(1.0) } else { 0.0 };
        let near = walks.near[Size::Base as usize] + walks.near[Size::Cont as usize];
        let nearest = f64::from(self.caches.first().map_or(self.memory_cycles, |l1| l1.cycles));
        let of_near = near as f64 * self.walk(&[nearest], footprint);
        let from_far = (self.computed(&of_base, footprint, leaf) - of_near).max(0.0);
        let measured = far.walk / self.random_walk(all.max(1) * self.base_page.bytes());
        computed + from_far * (share * measured - 1.0)
    }

    fn computed(&self, walks: &Tally, footprint: Footprint, leaf: Option<f64>) -> f64 {
        let handler = match self.organisation {
            Organisation::Radix => 0.0,
            Organisation::Linear { handler_cycles } => f64::from(handler_cycles),
            Organisation::Hashed(table) => {
                return walks.all_walks() as f64 * self.hashed_walk(table, footprint);
            }
        };
        let known = leaf.filter(|_| self.organisation == Organisation::Radix);
        let levels = [
            known.unwrap_or_else(|| self.load_cycles(footprint.pte_bytes)),
            self.load_cycles(footprint.pde_bytes),
            self.load_cycles(footprint.pdpte_bytes),
            self.load_cycles(LINE),
            self.load_cycles(LINE),
        ];
        let near = f64::from(self.caches.first().map_or(self.memory_cycles, |l1| l1.cycles));
        let mut cycles = 0.0;
        for size in Size::ALL {
            let level = match size {
                Size::Base | Size::Cont => 0,
                Size::Large => 1,
                Size::Huge => 2,
            };
            for reads in 1..READS {
                let count = walks.walks[size as usize][reads] as f64;
                if count > 0.0 {
                    let last = levels.len();
                    let loads = &levels[level.min(last)..(level + reads).min(last)];
                    // Linear table: the TLB lacked the translation of the table's own page.
                    let handler = if reads > 1 { handler } else { 0.0 };
                    cycles += count * (handler + self.walk(loads, footprint));
                }
            }
            // The given mean for base pages already includes near walks.
            if level > 0 || known.is_none() {
                cycles += walks.near[size as usize] as f64 * (near - levels[level]).min(0.0);
            }
        }
        cycles
    }

    /// Cycles of a walk of a hashed table, for any page size; entries of adjacent pages do not share cache lines.
    fn hashed_walk(&self, table: Hashed, footprint: Footprint) -> f64 {
        let group = self.load_cycles(table.bytes_in_use(footprint));
        let again = table.handler_cycles.map_or(group, |cycles| group + f64::from(cycles));
        self.walk(&[group], footprint) + table.overflow(footprint) * again
    }

    /// Cycles of one walk whose loads take these cycles.
    fn walk(&self, loads: &[f64], footprint: Footprint) -> f64 {
        let own = WALK_CYCLES + loads.iter().sum::<f64>();
        let Some(nested) = self.nested else { return own };
        // The page and each of the guest's page-table entries have guest-physical addresses, which the host's page
        // table translates. The host's upper levels are few and hit in its walk caches (Bhargava et al., ASPLOS 2008),
        // so a translation costs the load of one of the host's leaf entries. For the page this is one of the entries
        // for all memory; for a guest entry, one of the 512 times fewer entries for the guest's page table.
        let leaves = match nested.host_page {
            Size::Base | Size::Cont => footprint.pde_bytes.saturating_mul(512),
            Size::Large => footprint.pde_bytes,
            Size::Huge => footprint.pdpte_bytes,
        };
        let (page, entry) = (self.load_cycles(leaves), self.load_cycles(leaves / 512));
        own + page + loads.len() as f64 * entry
    }

    /// Mean cycles of a load from `bytes` bytes of a page-table level with uniform use.
    ///
    /// The N lines of this level share a cache of C lines with an endless stream of data, r lines per load. A line
    /// stays for a time T (in loads) after it was brought in. So data occupy r·T lines, and a line of this level is
    /// cached with probability T / (T + N). The sum is C: r·T + N·T / (T + N) = C, a quadratic equation for T.
    pub fn load_cycles(&self, bytes: u64) -> f64 {
        let lines = bytes.div_ceil(LINE).max(1) as f64;
        self.mean_cycles(|capacity| resident(capacity, lines))
    }

    /// Mean cycles of a load. `hits` returns the hit ratio of a cache with a given number of lines.
    pub(crate) fn mean_cycles(&self, hits: impl Fn(f64) -> f64) -> f64 {
        let (mut missed, mut cycles) = (1.0, 0.0);
        for cache in &self.caches {
            // Assumes inclusive caches.
            let now_missed = (1.0 - hits((cache.bytes / LINE) as f64)).min(missed);
            cycles += (missed - now_missed) * f64::from(cache.cycles);
            missed = now_missed;
        }
        cycles + missed * f64::from(self.memory_cycles)
    }
}

/// Hit ratio of `lines` uniformly used lines in a cache of `capacity` lines.
fn resident(capacity: f64, lines: f64) -> f64 {
    let r = DATA_LINES_PER_WALK;
    let b = r * lines + lines - capacity;
    let time = ((b * b + 4.0 * r * capacity * lines).sqrt() - b) / (2.0 * r);
    time / (time + lines)
}
