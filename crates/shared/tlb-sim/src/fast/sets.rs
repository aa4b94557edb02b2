//! `Sets`: set-associative arrays. The lanes of a set are in the order of use, least recently used
//! last. The arrays of a level (for example one for each page size) lie one after the other.

use machine::{Array, Index, Replacement, SIZES, Tlb};

use super::{Arrays, EMPTY, Placement, Vectors};

/// One set: `N` lanes for tags, of which the first `ways` are used. The others may hold any value.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Row<const N: usize>(pub(crate) [u32; N]);

/// Fewer than `R` sets (`R` is a power of two) of up to `N` ways.
#[derive(Debug, Clone)]
pub(crate) struct Sets<const N: usize, const R: usize> {
    rows: Box<[Row<N>; R]>,
    /// Number of ways of each row in use.
    used: Vec<usize>,
}

impl<const N: usize, const R: usize> Sets<N, R> {
    /// Makes one walk cache. `None` gives an array that is never looked up.
    pub(super) fn of(array: Option<Array>) -> Option<(Self, Placement)> {
        let array = array.unwrap_or(Array { entries: 1, ways: 1 });
        let (index, replacement) = (Index::Modulo, Replacement::Lru);
        let tlb = Tlb { array, holds: [true; SIZES], index, replacement, cycles: 0 };
        let (sets, placements) = Self::new(&[tlb])?;
        Some((sets, placements[0]))
    }
}

impl<const N: usize, const R: usize> Arrays for Sets<N, R> {
    fn new(level: &[Tlb]) -> Option<(Self, [Placement; SIZES])> {
        let mut placements = [Placement::default(); SIZES];
        let mut used = Vec::new();
        for tlb in level {
            let (sets, ways) = (u32::from(tlb.array.sets()), usize::from(tlb.array.ways));
            if ways > N || !sets.is_power_of_two() || tlb.replacement != Replacement::Lru {
                return None;
            }
            let fold = match tlb.index {
                Index::Modulo => 31,
                Index::Xor => sets.trailing_zeros(),
            };
            let (first, ways_mask) = (used.len() as u32, u64::MAX >> (64 - ways));
            let placement = Placement { first, mask: sets - 1, fold, ways: ways_mask };
            for (slot, holds) in placements.iter_mut().zip(tlb.holds) {
                if holds {
                    *slot = placement;
                }
            }
            used.extend((0..sets).map(|_| ways));
        }
        // Look-ups of a size that no array holds go to the row after the arrays, with no lane in
        // use.
        let nowhere = used.len();
        if nowhere >= R {
            return None;
        }
        for slot in placements.iter_mut().filter(|slot| slot.ways == 0) {
            slot.first = nowhere as u32;
        }
        let rows = vec![Row([EMPTY; N]); R].into_boxed_slice();
        let rows = rows.try_into().ok()?;
        Some((Self { rows, used }, placements))
    }

    #[inline(always)]
    fn touch<V: Vectors>(&mut self, vectors: V, at: &Placement, number: u32, tag: u32) -> bool {
        let set = (number ^ number >> at.fold) & at.mask;
        // The index is below `R`, a power of two; the mask shows this to the compiler.
        let row = &mut self.rows[(at.first + set) as usize & (R - 1)];
        vectors.touch(&mut row.0, tag, at.ways)
    }

    #[inline(always)]
    fn drop_tag(&mut self, at: &Placement, number: u32, tag: u32) {
        let set = (number ^ number >> at.fold) & at.mask;
        let lanes = &mut self.rows[(at.first + set) as usize & (R - 1)].0;
        let any = lanes.iter().fold(false, |any, lane| any | (*lane == tag));
        if any {
            keep(&mut lanes[..at.ways.trailing_ones() as usize], |lane| lane != tag);
        }
    }

    #[inline(always)]
    fn drop_matching(&mut self, pairs: &[(u32, u32)]) {
        let rows = self.rows.iter_mut();
        for (row, &ways) in rows.zip(&self.used) {
            let mut any = false;
            for &(bits, value) in pairs {
                // Do not stop early, so that the compiler vectorizes the loop.
                any |= row.0.iter().fold(false, |any, tag| any | (tag & bits == value));
            }
            if any {
                keep(&mut row.0[..ways], |tag| {
                    pairs.iter().all(|(bits, value)| tag & bits != *value)
                });
            }
        }
    }

    fn flush(&mut self) {
        for row in self.rows.iter_mut().take(self.used.len()) {
            row.0.fill(EMPTY);
        }
    }
}

/// Keeps the tags for which `which` is true, in the same order at the front. The remaining lanes
/// become free.
fn keep(lanes: &mut [u32], which: impl Fn(u32) -> bool) {
    let mut kept = 0;
    for lane in 0..lanes.len() {
        if which(lanes[lane]) {
            lanes[kept] = lanes[lane];
            kept += 1;
        }
    }
    lanes[kept..].fill(EMPTY);
}
