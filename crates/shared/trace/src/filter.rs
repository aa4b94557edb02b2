//! Filters that omit accesses that have no effect on a TLB, which shortens recorded streams.
//!
//! The **same-page** filter combines consecutive accesses to one page into one record with a count. Programs alternate
//! between stack, heap and globals, so this filter at most halves a stream. The **set-MRU** filter divides pages into
//! classes (page number modulo `base`) and regions into classes (region number modulo `superpage`). It also omits an
//! access if its page and its region were both the last ones accessed in their classes. In an LRU array whose number of
//! sets is a multiple of the number of classes, each set lies within one class. So the omitted access would hit the
//! most recently used entry of its set: the LRU order does not change, and later TLB levels do not see the access. The
//! misses of every such array are therefore exact, whichever of the two sizes backs the page.
//! (docs/sources/simulators.md 3.4; tests/integration/filter.rs compares with a naive LRU.)
//!
//! The set-MRU filter is *not* exact for hashed sets, for replacement other than LRU, or for page sizes between or
//! above the two. It is also not exact if something outside the stream acts between accesses, such as a daemon that
//! flushes an entry or samples accessed bits. The header records the filter. Every event of the stream and every new
//! chunk restarts the filter.

use crate::{Access, SLOTS};

/// Numbers of classes of a set-MRU filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MruSets {
    /// Number of classes of base pages.
    pub base: u32,
    /// Number of classes of regions.
    pub superpage: u32,
}

impl MruSets {
    /// Exact for first-level TLBs with 16 sets for base pages (64 entries, 4 ways) and 8 sets for superpages (32
    /// entries, 4 ways), or multiples of these numbers of sets. Intel's cores since Sandy Bridge have such TLBs.
    pub const INTEL: Self = Self { base: 16, superpage: 8 };

    /// Whether both are powers of two up to 4096.
    pub fn is_valid(self) -> bool {
        [self.base, self.superpage].iter().all(|sets| sets.is_power_of_two() && *sets <= 4096)
    }

    /// Whether a trace with this filter gives exact misses for LRU arrays with these numbers of sets.
    pub fn is_exact_for(self, base_sets: u32, superpage_sets: u32) -> bool {
        base_sets.is_multiple_of(self.base) && superpage_sets.is_multiple_of(self.superpage)
    }
}

/// Which accesses a trace omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Omits no accesses.
    None,
    /// Combines consecutive accesses to one page. Exact for every TLB.
    SamePage,
    /// Also omits accesses to the most recently used page and region of their classes. Exact for LRU arrays whose
    /// numbers of sets are multiples of these numbers.
    SetMru(MruSets),
}

/// Stands for no page and no region.
const NO_PAGE: u32 = u32::MAX;

/// Combines accesses into the records of a chunk.
pub(crate) struct Recorder {
    filter: Filter,
    /// The records: accesses and their counts.
    pub accesses: Vec<Access>,
    pub counts: Vec<u32>,
    /// Accesses are not combined with records before this index.
    barrier: usize,
    /// For each class, the most recently used page, with the write bit of its record.
    pages: Vec<Access>,
    /// For each class, the most recently used region.
    regions: Vec<u64>,
}

impl Recorder {
    /// Makes a recorder without records.
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
            pages: vec![Access(NO_PAGE); base as usize],
            regions: vec![u64::MAX; superpage as usize],
        }
    }

    /// Restarts the filter: does not combine later accesses with earlier records.
    pub fn fence(&mut self) {
        self.barrier = self.accesses.len();
        self.pages.fill(Access(NO_PAGE));
        self.regions.fill(u64::MAX);
    }

    /// Clears the records but keeps their memory.
    pub fn clear(&mut self) {
        self.accesses.clear();
        self.counts.clear();
        self.fence();
    }

    /// Adds `count` accesses. `region` returns the access's region address (virtual page number / 512), which selects
    /// the TLB sets of superpages.
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

    /// Adds to the count of the last record, unless it would overflow.
    fn count_on(&mut self, count: u32) -> bool {
        let sum = self.counts.last_mut().and_then(|last| {
            *last = last.checked_add(count)?;
            Some(())
        });
        sum.is_some()
    }

    /// Whether the last record covers `access`. A first write after reads is not covered, because it breaks
    /// copy-on-write and sets the dirty bit. A read after a write is covered.
    fn in_last(&self, access: Access) -> bool {
        let fresh = self.accesses.len() > self.barrier;
        fresh && self.accesses.last().is_some_and(|&last| covers(last, access))
    }

    /// Whether page and region are the most recently used of their classes; updates the classes. (Always true if
    /// `in_last` is true.)
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

/// Whether `last` had all effects that `next` would have.
fn covers(last: Access, next: Access) -> bool {
    last.page() == next.page() && (last.writes() || !next.writes())
}
