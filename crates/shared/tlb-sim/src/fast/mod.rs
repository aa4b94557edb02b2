//! `Fast`: a fast TLB simulation for common geometries. It behaves exactly like [`crate::Naive`].
//! Only [`crate::dispatch`] makes one.
//!
//! Why it is fast, measured on a Zen 4 (`benches/translate.rs`):
//! - Tags are packed u32 with the size in their top bits.
//! - The order of lanes in a set is the order of use, so looking up a set is one compare and one masked shift, without
//!   a branch (`sets`).
//! - Large fully associative arrays use a hash table and a list (`full`), three times as fast as comparing 64 lanes.
//! - The last hit in a page-walk cache is remembered.
//!
//! Rejected: testing the first lane before the compare, which mispredicts on random hits; and leaving vectorization to
//! the compiler, which was three times as slow.

mod full;
mod kinds;
mod sets;
mod vectors;

pub(crate) use full::Full;
pub(crate) use sets::Sets;
pub(crate) use vectors::{Scalar, Vectors};
#[cfg(target_arch = "x86_64")]
pub(crate) use vectors::{V3, V4};

use kinds::{Kind, tag};

#[cfg(test)]
mod tests;

use machine::{Array, Level, Machine, Organisation, SIZES, Size, Tally, Tlb};

use crate::Translate;
use crate::near::Near;

/// Tag of a free entry; no page has this tag.
const EMPTY: u32 = u32::MAX;

/// A page of at most this many TLB entries is dropped entry by entry. For larger pages all sets are
/// searched.
const FEW: u32 = 16;

/// The arrays of one level.
pub(crate) trait Arrays: Sized + Send + 'static {
    /// Makes empty arrays, and tells where the entries of each size are. `None` if this type cannot simulate the level.
    /// If no array of `level` holds a size, look-ups of this size never hit.
    fn new(level: &[Tlb]) -> Option<(Self, [Placement; SIZES])>;
    /// Looks `tag` up in its set; returns whether it was found. Enters a missing tag. `tag` then is
    /// the most recently used of the set.
    fn touch<V: Vectors>(&mut self, vectors: V, at: &Placement, number: u32, tag: u32) -> bool;
    /// Drops `tag` from its set.
    fn drop_tag(&mut self, at: &Placement, number: u32, tag: u32);
    /// Drops every tag for which `tag & bits == value` with one of the pairs `(bits, value)`.
    fn drop_matching(&mut self, pairs: &[(u32, u32)]);
    /// Drops all tags.
    fn flush(&mut self);
}

/// Where the entries of one size are in a level's arrays.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Placement {
    /// Index of the first row.
    pub(crate) first: u32,
    /// Number of rows (a power of two) minus one.
    pub(crate) mask: u32,
    /// The set index is `number ^ number >> fold`. 31 disables the xor, because `number` has at
    /// most 31 bits.
    pub(crate) fold: u32,
    /// Bit mask of the lanes in use.
    pub(crate) ways: u64,
}

/// A TLB hierarchy, monomorphised for its geometry and the host's vectors.
#[derive(Debug, Clone)]
pub(crate) struct Fast<V, A, B> {
    vectors: V,
    kinds: [Kind; SIZES],
    l1: A,
    l2: B,
    pde: Sets<8, 64>,
    pde_at: Placement,
    pdpte: Full<32, 512>,
    pml4e: Full<32, 512>,
    /// The number that the PDE cache looked up last, which needs no further look-up; `EMPTY`: none.
    last_pde: u32,
    /// The same for the PML4E cache.
    last_pml4e: u32,
    near: Near,
    tally: Tally,
}

impl<V: Vectors, A: Arrays, B: Arrays> Fast<V, A, B> {
    /// Makes an empty TLB of `machine`; `None` if the arrays do not fit its geometry.
    pub(crate) fn new(vectors: V, machine: &Machine) -> Option<Self> {
        let ((l1, first), (l2, second)) = (A::new(&machine.l1)?, B::new(&machine.l2)?);
        let kinds = Size::ALL.map(|size| Kind::new(machine, size, &first, &second));
        let (pde, pde_at) = Sets::of(machine.walk_caches.pde)?;
        let full = |array: Option<Array>| match array {
            Some(array) if array.sets() == 1 => Full::with_ways(usize::from(array.ways)),
            Some(_) => None,
            None => Full::with_ways(1),
        };
        let (pdpte, pml4e) = (full(machine.walk_caches.pdpte)?, full(machine.walk_caches.pml4e)?);
        // `walk` looks up every cache between a leaf and the root, so all of them must exist.
        let caches =
            [machine.walk_caches.pde, machine.walk_caches.pdpte, machine.walk_caches.pml4e];
        let asked = usize::from(machine.levels - 1).min(caches.len());
        let is_linear = matches!(machine.organisation, Organisation::Linear { .. });
        if is_linear || caches[..asked].contains(&None) {
            return None;
        }
        Some(Self {
            vectors,
            kinds,
            l1,
            l2,
            pde,
            pde_at,
            pdpte,
            pml4e,
            last_pde: EMPTY,
            last_pml4e: EMPTY,
            near: Near::default(),
            tally: Tally::default(),
        })
    }

    /// Number of page-table entries that a walk reads; see `Naive::walk`.
    #[inline(always)]
    fn walk(&mut self, page: u32, kind: Kind) -> u8 {
        let full = kind.full_walk;
        let mut reads = 1;
        if kind.leaf == 0 {
            if reads == full || self.pde_hits(page >> 9) {
                return reads;
            }
            reads += 1;
        }
        if kind.leaf <= 1 {
            if reads == full || self.pdpte.touch_tag(page >> 18) {
                return reads;
            }
            reads += 1;
        }
        if reads == full || self.pml4e_hits(page >> 27) { reads } else { full }
    }

    #[inline(always)]
    fn pde_hits(&mut self, region: u32) -> bool {
        if region == self.last_pde {
            return true;
        }
        self.last_pde = region;
        self.pde.touch(self.vectors, &self.pde_at, region, region)
    }

    #[inline(always)]
    fn pml4e_hits(&mut self, number: u32) -> bool {
        if number == self.last_pml4e {
            return true;
        }
        self.last_pml4e = number;
        self.pml4e.touch_tag(number)
    }

    fn forget_walks(&mut self) {
        // The caches are still empty: the common case when many pages are unmapped.
        if self.last_pde == EMPTY && self.last_pml4e == EMPTY && self.pdpte.is_empty() {
            return;
        }
        self.pde.flush();
        self.pdpte.flush();
        self.pml4e.flush();
        (self.last_pde, self.last_pml4e) = (EMPTY, EMPTY);
    }

    /// Compares all rows, so inline this where the caller is compiled for these vectors.
    #[inline(always)]
    fn drop_matching(&mut self, pairs: &[(u32, u32)]) {
        self.l1.drop_matching(pairs);
        self.l2.drop_matching(pairs);
        self.forget_walks();
    }
}

impl<V: Vectors, A: Arrays, B: Arrays> Translate for Fast<V, A, B> {
    #[inline(always)]
    fn look_up(&mut self, page: u32, size: Size) -> Level {
        debug_assert!(page >> 31 == 0, "page numbers have 31 bits");
        self.tally.lookups[size as usize] += 1;
        let kind = self.kinds[size as usize];
        let number = page >> kind.shift;
        let tag = number | kind.mark;
        if self.l1.touch(self.vectors, &kind.first, number, tag) {
            return Level::L1;
        }
        if self.l2.touch(self.vectors, &kind.second, number, tag) {
            self.tally.l2_hits[size as usize] += 1;
            return Level::L2;
        }
        let reads = self.walk(page, kind);
        self.tally.walks[size as usize][usize::from(reads)] += 1;
        self.tally.near[size as usize] += u64::from(self.near.read(page, size));
        Level::Walk
    }

    #[inline(always)]
    fn invalidate(&mut self, page: u32, size: Size) {
        let kind = self.kinds[size as usize];
        let entry = kind.entry;
        let number = page >> size.shift() << size.shift() >> entry.shift();
        let pieces = 1 << (size.shift() - entry.shift());
        if pieces <= FEW {
            for number in number..number + pieces {
                self.l1.drop_tag(&kind.first, number, tag(number, entry));
                self.l2.drop_tag(&kind.second, number, tag(number, entry));
            }
            return self.forget_walks();
        }
        // Compare all bits of a tag except those that number the entries within the page.
        self.drop_matching(&[(!(pieces - 1), tag(number, entry))]);
    }

    #[inline(always)]
    fn invalidate_region(&mut self, region: u32) {
        self.drop_matching(&Size::ALL.map(|size| {
            let pieces = (1u32 << (Size::Large.shift().saturating_sub(size.shift()))) - 1;
            (!pieces, tag(region << Size::Large.shift() >> size.shift(), size))
        }));
    }

    fn flush(&mut self) {
        self.l1.flush();
        self.l2.flush();
        self.forget_walks();
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    #[inline(always)]
    fn vectorized<R>(body: impl FnOnce() -> R) -> R {
        V::vectorized(body)
    }
}
