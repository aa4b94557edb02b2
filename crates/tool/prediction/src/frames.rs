//! Where the frames of base pages lie, and what that changes about prices.
//!
//! In a virtual machine the hardware also translates the address of the frame, by the hypervisor's page table. One
//! cache line of that table holds eight entries. Pages that are neighbours in random places of physical memory need a
//! line each, and these lines compete for the caches. The same chase through 512 MiB took 163 ns on superpages, 175 on
//! base pages with neighbouring frames, and 182, 196 and 229 where the frames were in 1.1, 1.9 and 3.5 times as many
//! groups of eight. See docs/decisions/advise.md#6.

use serde::{Deserialize, Serialize};

use crate::{Curve, Pair, PriceError, Prices};

/// Frames of one cache line of a page table.
const GROUP: u64 = 8;
/// Frame groups that are kept; of more, a part is kept and stands for all.
const MAX_GROUPS: usize = 1 << 20;
/// Least difference of two spreads between whose prices a line is drawn.
const APART: f64 = 0.25;
/// Factor by which prices may be drawn out beyond the measured spread.
const BEYOND: f64 = 2.0;

/// Counts groups of neighbouring frames.
#[derive(Debug, Clone, Default)]
pub struct Frames {
    groups: Vec<u64>,
    pages: u64,
    /// One in 2^`thinning` groups is counted.
    thinning: u32,
}

impl Frames {
    /// Adds a base page by the number of its frame.
    pub fn add(&mut self, frame: u64) {
        let group = frame / GROUP;
        if !self.is_kept(group) {
            return;
        }
        self.groups.push(group);
        self.pages += 1;
        if self.groups.len() == MAX_GROUPS {
            self.groups.sort_unstable();
            self.groups.dedup();
            if self.groups.len() > MAX_GROUPS / 2 {
                self.thinning += 1;
                let shift = 64 - self.thinning;
                self.groups.retain(|group| hash(*group) >> shift == 0);
                self.pages /= 2;
            }
        }
    }

    fn is_kept(&self, group: u64) -> bool {
        self.thinning == 0 || hash(group) >> (64 - self.thinning) == 0
    }

    /// Groups of eight frames that the pages are in, as a multiple of the fewest possible: 1 to 8. `None`: no pages.
    pub fn spread(mut self) -> Option<f64> {
        self.groups.sort_unstable();
        self.groups.dedup();
        let most = GROUP as f64;
        (self.pages > 0)
            .then(|| (self.groups.len() as f64 * most / self.pages as f64).clamp(1.0, most))
    }
}

fn hash(group: u64) -> u64 {
    group.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Prices on base pages with neighbouring frames, beside [`Prices`] on base pages whose frames are further apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Near {
    /// Of dependent loads.
    pub dependent: Curve,
    /// Of independent loads.
    pub reads: Curve,
    /// Of independent accesses that read and write each word.
    pub writes: Curve,
    /// Spread of the frames that [`Prices`] were measured on, by footprint: [`Frames::spread`].
    pub spread: Vec<f64>,
}

impl Near {
    /// Checks that every curve is usable, and has the footprints of `prices`.
    ///
    /// # Errors
    /// A curve of other footprints, an invalid time, or an invalid spread.
    pub fn check(&self, prices: &Prices) -> Result<(), PriceError> {
        let pairs = [
            ("near dependent", &self.dependent, &prices.dependent),
            ("near reads", &self.reads, &prices.reads),
            ("near writes", &self.writes, &prices.writes),
        ];
        for (curve, near, pair) in pairs {
            let (first, number) = (pair.base.first, pair.base.ns.len());
            if (near.first, near.ns.len(), self.spread.len()) != (first, number, number) {
                return Err(PriceError::Curve { curve, what: "has other footprints than prices" });
            }
            if near.ns.iter().any(|ns| !ns.is_finite() || *ns < 0.0) {
                return Err(PriceError::Curve { curve, what: "holds an invalid time" });
            }
        }
        let most = GROUP as f64;
        match self.spread.iter().all(|spread| (1.0..=most).contains(spread)) {
            true => Ok(()),
            false => Err(PriceError::Curve { curve: "near", what: "has a spread beyond 1 to 8" }),
        }
    }

    /// The prices of base pages whose frames have this spread.
    pub fn at(&self, prices: &Prices, spread: f64) -> Prices {
        let mut prices = prices.clone();
        let pairs = [&mut prices.dependent, &mut prices.reads, &mut prices.writes];
        for (pair, near) in pairs.into_iter().zip([&self.dependent, &self.reads, &self.writes]) {
            self.bend(pair, near, spread);
        }
        prices
    }

    fn bend(&self, pair: &mut Pair, near: &Curve, spread: f64) {
        let points = pair.base.ns.iter_mut().zip(&near.ns).zip(&self.spread);
        for ((far, near), measured) in points {
            if measured - 1.0 >= APART {
                let part = ((spread - 1.0) / (measured - 1.0)).clamp(0.0, BEYOND);
                *far = near + (*far - near).max(0.0) * part;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faults, Sequential};

    #[test]
    fn spread_is_that_of_groups_however_many_pages_there_are() {
        for pages in [800, 4 * MAX_GROUPS as u64] {
            for every in [1, 2, 8, 100] {
                let mut frames = Frames::default();
                (0..pages).for_each(|page| frames.add(page * every));
                let spread = frames.spread().unwrap();
                let expected = every.min(8) as f64;
                assert!((spread / expected - 1.0).abs() < 0.05, "{pages} {every}: {spread}");
            }
        }
        assert_eq!(Frames::default().spread(), None);
    }

    #[test]
    fn prices_are_between_those_measured() {
        let curve = |ns: f64| Curve { first: 6, ns: vec![4.0, ns] };
        let pair = || Pair { base: curve(100.0), superpage: curve(60.0) };
        let flat = Sequential { base: 1.0, superpage: 1.0 };
        let prices = Prices {
            dependent: pair(),
            reads: pair(),
            writes: pair(),
            sequential_reads: flat,
            sequential_writes: flat,
            faults: Faults { base: 1.0, superpage: 1.0 },
        };
        let near = || curve(70.0);
        let near =
            Near { dependent: near(), reads: near(), writes: near(), spread: vec![1.0, 4.0] };
        assert!(near.check(&prices).is_ok());
        let bad = |spread| Near { spread, ..near.clone() }.check(&prices);
        assert!(bad(vec![1.0]).unwrap_err().to_string().contains("footprints"));
        assert!(bad(vec![1.0, f64::NAN]).unwrap_err().to_string().contains("spread"));
        for (spread, expected) in [(1.0, 70.0), (2.0, 80.0), (4.0, 100.0), (8.0, 130.0)] {
            let at = near.at(&prices, spread);
            assert_eq!(at.reads.base.ns, [4.0, expected], "{spread}");
            assert_eq!(at.reads.superpage, prices.reads.superpage);
        }
    }
}
