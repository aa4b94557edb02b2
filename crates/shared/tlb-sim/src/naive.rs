//! `Naive`: the reference model of a TLB, with one struct per entry and time stamps. Tests compare
//! [`crate::Fast`] with it, and it simulates the geometries that `Fast` cannot. 5 to 130 M
//! look-ups/s.

use machine::{Array, Index, Level, Machine, Organisation, Replacement, SIZES, Size, Tally, Tlb};

use crate::Translate;
use crate::near::Near;

/// A TLB hierarchy of any geometry.
#[derive(Debug, Clone)]
pub struct Naive {
    l1: Vec<Store>,
    l2: Vec<Store>,
    pde: Option<Store>,
    pdpte: Option<Store>,
    pml4e: Option<Store>,
    /// For each page size, the size of its TLB entries.
    entry: [Size; SIZES],
    /// For each page size, the number of page-table entries that a walk reads without walk caches.
    full_walk: [u8; SIZES],
    /// For a linear page table, log2 of the number of leaf entries per base page.
    linear: Option<u32>,
    near: Near,
    tally: Tally,
}

/// Set in the page numbers of a linear table's own pages. Page numbers of programs have 31 bits.
const TABLE: u32 = 1 << 31;
/// log2 of the bytes per entry of a linear table.
const ENTRY: u32 = 3;

impl Naive {
    /// Makes an empty TLB of `machine`.
    pub fn new(machine: &Machine) -> Self {
        let walk = |array: Option<Array>| {
            array.map(|array| {
                let (index, replacement) = (Index::Modulo, Replacement::Lru);
                Store::new(Tlb { array, holds: [true; SIZES], index, replacement, cycles: 0 })
            })
        };
        Self {
            l1: machine.l1.iter().copied().map(Store::new).collect(),
            l2: machine.l2.iter().copied().map(Store::new).collect(),
            pde: walk(machine.walk_caches.pde),
            pdpte: walk(machine.walk_caches.pdpte),
            pml4e: walk(machine.walk_caches.pml4e),
            entry: Size::ALL.map(|size| machine.entry_size(size)),
            full_walk: Size::ALL.map(|size| machine.full_walk(size)),
            linear: matches!(machine.organisation, Organisation::Linear { .. })
                .then(|| machine.base_page.bytes().ilog2() - ENTRY),
            near: Near::default(),
            tally: Tally::default(),
        }
    }

    /// Number of page-table entries that a walk reads. A walk cache is looked up only after the
    /// cache of the level below missed. Entries read are put into the caches.
    fn walk(&mut self, page: u32, size: Size) -> u8 {
        let full = self.full_walk[size as usize];
        if let Some(leaves) = self.linear {
            return if self.finds_table(page >> size.shift() >> leaves, size) { 1 } else { full };
        }
        let asked = [(&mut self.pde, 9), (&mut self.pdpte, 18), (&mut self.pml4e, 27)];
        let leaf = match size {
            Size::Base | Size::Cont => 0,
            Size::Large => 1,
            Size::Huge => 2,
        };
        for (reads, (cache, shift)) in (1..full).zip(asked.into_iter().skip(leaf)) {
            // A missing cache never hits.
            if cache.as_mut().is_some_and(|cache| cache.look_up(Size::Base, page >> shift)) {
                return reads;
            }
        }
        full
    }

    /// Whether the second-level TLB holds the translation of a linear table's page. Each page size has its own table.
    fn finds_table(&mut self, number: u32, size: Size) -> bool {
        let level = if self.l2.is_empty() { &mut self.l1 } else { &mut self.l2 };
        let store = level.iter_mut().find(|store| store.tlb.holds[Size::Base as usize]);
        let number = TABLE | (size as u32) << 28 | number;
        store.is_some_and(|store| store.look_up(Size::Base, number))
    }
}

impl Translate for Naive {
    fn look_up(&mut self, page: u32, size: Size) -> Level {
        self.tally.lookups[size as usize] += 1;
        let entry = self.entry[size as usize];
        let number = page >> entry.shift();
        let holder = |level: &mut [Store]| {
            level.iter_mut().find(|store| store.tlb.holds[entry as usize]).map(|store| {
                // `look_up` also enters a missing translation.
                store.look_up(entry, number)
            })
        };
        if holder(&mut self.l1) == Some(true) {
            return Level::L1;
        }
        if holder(&mut self.l2) == Some(true) {
            self.tally.l2_hits[size as usize] += 1;
            return Level::L2;
        }
        let reads = self.walk(page, size);
        self.tally.walks[size as usize][usize::from(reads)] += 1;
        self.tally.near[size as usize] += u64::from(self.near.read(page, size));
        Level::Walk
    }

    fn invalidate(&mut self, page: u32, size: Size) {
        let (own, number) = (self.entry[size as usize], page >> size.shift());
        self.drop_where(|entry, held| {
            entry == own && held << entry.shift() >> size.shift() == number
        });
    }

    fn invalidate_region(&mut self, region: u32) {
        self.drop_where(|entry, held| {
            let wide = Size::Large.max(entry).shift();
            held << entry.shift() >> wide == region << Size::Large.shift() >> wide
        });
    }

    fn flush(&mut self) {
        self.drop_where(|_, _| true);
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn vectorized<R>(body: impl FnOnce() -> R) -> R {
        body()
    }
}

impl Naive {
    fn drop_where(&mut self, which: impl Fn(Size, u32) -> bool) {
        for store in self.l1.iter_mut().chain(&mut self.l2) {
            store.entries.iter_mut().for_each(|slot| {
                slot.take_if(|held| which(held.size, held.number));
            });
        }
        for cache in [&mut self.pde, &mut self.pdpte, &mut self.pml4e].into_iter().flatten() {
            cache.entries.fill(None);
        }
    }
}

/// One TLB array or walk cache.
#[derive(Debug, Clone)]
struct Store {
    tlb: Tlb,
    /// The entries of each set, set after set.
    entries: Vec<Option<Held>>,
    /// The tree of each set, for [`Replacement::TreePlru`]. Bit n is node n (the root is 1), and points to the half
    /// from which the next entry is evicted.
    trees: Vec<u64>,
    clock: u64,
}

/// One entry.
#[derive(Debug, Clone, Copy)]
struct Held {
    size: Size,
    number: u32,
    used: u64,
}

impl Store {
    fn new(tlb: Tlb) -> Self {
        let entries = vec![None; usize::from(tlb.array.entries)];
        Self { tlb, entries, trees: vec![0; usize::from(tlb.array.sets())], clock: 0 }
    }

    /// Looks an entry up; returns whether it was found. Enters a missing entry.
    fn look_up(&mut self, size: Size, number: u32) -> bool {
        self.clock += 1;
        let (set, ways) = (self.tlb.set(number) as usize, usize::from(self.tlb.array.ways));
        let slots = &mut self.entries[set * ways..][..ways];
        let is = |slot: &Option<Held>| slot.is_some_and(|h| h.size == size && h.number == number);
        let found = slots.iter().position(is);
        let tree = &mut self.trees[set];
        let way = found.unwrap_or_else(|| match slots.iter().position(Option::is_none) {
            Some(free) => free,
            None => match self.tlb.replacement {
                Replacement::Lru => {
                    let used = |way: &usize| slots[*way].map(|held| held.used);
                    (0..ways).min_by_key(used).expect("a set has ways")
                }
                Replacement::TreePlru => pointed_to(*tree, ways),
            },
        });
        slots[way] = Some(Held { size, number, used: self.clock });
        if self.tlb.replacement == Replacement::TreePlru {
            point_away(tree, way, ways);
        }
        found.is_some()
    }
}

/// The way that the tree's bits lead to.
fn pointed_to(tree: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - ways
}

/// Makes all bits on the path to `way` point away from it.
fn point_away(tree: &mut u64, way: usize, ways: usize) {
    let mut node = way + ways;
    while node > 1 {
        let right = node & 1 == 1;
        node /= 2;
        *tree = if right { *tree & !(1 << node) } else { *tree | 1 << node };
    }
}
