//! Leaving out accesses that change nothing in a TLB: what makes recorded programs short.
//!
//! Two accesses to one page in a row are one record that counts two. Programs alternate between stack,
//! heap and globals, so that halves them at most. The **set-MRU** filter also leaves out an access whose
//! page was the last one in its class (page number modulo `base`) and whose region was the last one in
//! its own (modulo `superpage`). In an LRU array whose set count is a multiple of the class count, a
//! set lies within one class: the access hits the entry that was used last there, and the order in the
//! set stays as it is. Nothing behind the first level sees it. So the misses of every such array are
//! the same, whichever of the two sizes backs the page. (docs/sources/simulators.md 3.4; the property is
//! tested against a naive LRU in tests/integration/filter.rs.)
//!
//! It is *not* exact for hashed sets, for other replacement than LRU, for sizes between the two or above
//! them, and where something happens between accesses that the stream does not tell (a daemon that
//! flushes an entry or samples accessed bits). The header says so to who reads the trace. Every event
//! of the stream itself, and every new chunk, begins afresh.

use crate::{Access, SLOTS};

/// The class counts of a set-MRU filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MruSets {
    /// Classes of base pages.
    pub base: u32,
    /// Classes of regions.
    pub superpage: u32,
}

impl MruSets {
    /// First levels with 16 sets for base pages (64 entries, 4 ways) and 8 for superpages (32 entries,
    /// 4 ways): those of Intel's cores from Sandy Bridge on, and every multiple.
    pub const INTEL: Self = Self { base: 16, superpage: 8 };

    /// Whether both are powers of two up to 4096.
    pub fn is_valid(self) -> bool {
        [self.base, self.superpage].iter().all(|sets| sets.is_power_of_two() && *sets <= 4096)
    }

    /// Whether a trace filtered so gives exact misses for LRU arrays with these set counts.
    pub fn is_exact_for(self, base_sets: u32, superpage_sets: u32) -> bool {
        base_sets.is_multiple_of(self.base) && superpage_sets.is_multiple_of(self.superpage)
    }
}

/// Which accesses a trace leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// None; every record is as its source gave it.
    None,
    /// Accesses to the page of the one before are counted in its record. Exact for every TLB.
    SamePage,
    /// Also accesses to the page used last in its class. Exact for LRU arrays with multiples of these
    /// set counts.
    SetMru(MruSets),
}

/// No page, no region.
const NOBODY: u32 = u32::MAX;

/// Turns accesses into records: what the writer fills a chunk with.
pub(crate) struct Recorder {
    filter: Filter,
    /// The records: accesses and how many each stands for.
    pub accesses: Vec<Access>,
    pub counts: Vec<u32>,
    /// Records before this one take no more accesses.
    barrier: usize,
    /// By class: the page used last, as the access that its record made it (written or not yet).
    pages: Vec<Access>,
    /// By class: the region used last.
    regions: Vec<u64>,
}

impl Recorder {
    /// An empty one.
    pub fn new(filter: Filter) -> Self {
        let MruSets { base, superpage } = match filter {
            Filter::SetMru(sets) => sets,
            _ => MruSets { base: 1, superpage: 1 },
        };
        Self {
            filter,
            accesses: Vec::new(),
            counts: Vec::new(),
            barrier: 0,
            pages: vec![Access(NOBODY); base as usize],
            regions: vec![u64::MAX; superpage as usize],
        }
    }

    /// Something happens here: nothing after it may be counted to a record before it.
    pub fn fence(&mut self) {
        self.barrier = self.accesses.len();
        self.pages.fill(Access(NOBODY));
        self.regions.fill(u64::MAX);
    }

    /// Forgets the records, keeping the memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.counts.clear();
        self.fence();
    }

    /// Adds `count` accesses. `region` is the number of its region in the address space, which is what
    /// superpages' sets are chosen by.
    pub fn add(&mut self, access: Access, count: u32, region: impl FnOnce() -> u64) {
        let merged = match self.filter {
            Filter::None => false,
            Filter::SamePage => self.in_last(access),
            Filter::SetMru(_) => self.in_class(access, region()),
        };
        if merged && self.count_on(count) {
            return;
        }
        self.accesses.push(access);
        self.counts.push(count);
    }

    /// Counts to the last record, if its count has room.
    fn count_on(&mut self, count: u32) -> bool {
        let sum = self.counts.last_mut().and_then(|last| {
            *last = last.checked_add(count)?;
            Some(())
        });
        sum.is_some()
    }

    /// Whether the last record already did what `access` does. A first write after reads is something
    /// new (it breaks a copy, it makes the page dirty); a read after a write is not.
    fn in_last(&self, access: Access) -> bool {
        let fresh = self.accesses.len() > self.barrier;
        fresh && self.accesses.last().is_some_and(|&last| covers(last, access))
    }

    /// Whether the access is to the page and region used last in their classes; if not, it becomes so.
    /// (The last record's access is one of them, so this holds wherever `in_last` does.)
    fn in_class(&mut self, access: Access, region: u64) -> bool {
        let page = access.page();
        let address = region * u64::from(SLOTS) + u64::from(page.slot());
        let (pages, regions) = (self.pages.len() as u64, self.regions.len() as u64);
        let class = &mut self.pages[(address % pages) as usize];
        let of_region = &mut self.regions[(region % regions) as usize];
        let hit = *of_region == region && covers(*class, access);
        *of_region = region;
        if !hit {
            *class = access;
        }
        hit
    }
}

/// Whether an access to a page says all that `next` would say.
fn covers(last: Access, next: Access) -> bool {
    last.page() == next.page() && (last.writes() || !next.writes())
}
