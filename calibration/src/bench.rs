//! `Bench`: pages of one size on a probe's table, and how often to look. The estimators' only access
//! to the probe.

use units::PageSize;

use crate::place::Shape;
use crate::probe::{Offer, Place, Probe, ProbeError};
use crate::statistics::{above, median};

/// How much work to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Footprints of a curve: each this many times the one before.
    pub step: f64,
    /// Readings for each point of a curve.
    pub readings: usize,
    /// Readings on either side of a rank test. Seven at least: with six no outcome is
    /// rarer than 1 in 924, and the test asks for 1 in 1000; with nine it bears one disturbed reading.
    pub samples: usize,
    /// Attempts to have three estimates agree.
    pub attempts: usize,
    /// The most pages of a curve.
    pub most_pages: u64,
}

impl Effort {
    /// As it should be: curves go to four times the largest TLB there is (4096 entries, Zen 5).
    pub const FULL: Self =
        Self { step: 1.09, readings: 3, samples: 9, attempts: 12, most_pages: 1 << 14 };
    /// In a hurry.
    pub const QUICK: Self =
        Self { step: 1.15, readings: 2, samples: 9, attempts: 6, most_pages: 3 << 12 };
}

/// Pages of one size.
pub(crate) struct Bench<'a> {
    probe: &'a mut dyn Probe,
    /// Which, and how many.
    pub offer: Offer,
    /// Their shape.
    pub shape: Shape,
    /// How much work to do.
    pub effort: Effort,
    /// The first level's entries and the cost of missing it, once known: what the packed chase has to
    /// be rid of when it needs more pages than that.
    pub first: Option<(u64, f64)>,
    seed: u64,
}

/// One reading of a footprint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// One line in each page.
    pub spread: f64,
    /// As many lines in few pages, as if their translations cost nothing.
    pub packed: f64,
}

impl Reading {
    /// What translation cost.
    pub fn excess(self) -> f64 {
        self.spread - self.packed
    }
}

impl<'a> Bench<'a> {
    pub fn new(
        probe: &'a mut dyn Probe,
        page: PageSize,
        effort: Effort,
        seed: u64,
    ) -> Result<Self, ProbeError> {
        let offers = probe.offers();
        let base = offers.first().ok_or(ProbeError::NotOffered(page))?.page;
        let offer = offers.into_iter().find(|offer| offer.page == page);
        let offer = offer.ok_or(ProbeError::NotOffered(page))?;
        let shape = Shape::new(page, base, probe.line());
        Ok(Self { probe, offer, shape, effort, first: None, seed })
    }

    /// A chase over these places; each in an order of its own.
    pub fn chase(&mut self, places: &[Place]) -> Result<f64, ProbeError> {
        self.seed = self.seed.wrapping_add(1);
        self.probe.chase(self.offer.page, places, self.seed)
    }

    /// Other memory from now on.
    pub fn renew(&mut self) -> Result<(), ProbeError> {
        self.probe.renew(self.offer.page)
    }

    /// A footprint of `pages` pages.
    pub fn reading(&mut self, pages: u64) -> Result<Reading, ProbeError> {
        let spread = self.chase(&self.shape.spread(pages))?;
        let packed = self.chase(&self.shape.packed(pages))?;
        Ok(Reading { spread, packed: packed - self.control(pages) })
    }

    /// What translation costs the packed chase over `lines` lines: of its pages, as many as the first level
    /// has entries are in it when a random access comes.
    fn control(&self, lines: u64) -> f64 {
        let pages = lines.div_ceil(self.shape.page_lines());
        match self.first {
            Some((entries, cost)) if pages > entries => {
                cost * (1.0 - entries as f64 / pages as f64)
            }
            _ => 0.0,
        }
    }

    /// The least of some readings: what disturbs a chase makes it slower.
    pub fn best(&mut self, pages: u64) -> Result<Reading, ProbeError> {
        let mut best = self.reading(pages)?;
        for _ in 1..self.effort.readings {
            let next = self.reading(pages)?;
            best.spread = best.spread.min(next.spread);
            best.packed = best.packed.min(next.packed);
        }
        Ok(best)
    }

    /// The least of some readings of these places.
    pub fn least(&mut self, places: &[Place]) -> Result<f64, ProbeError> {
        let mut least = self.chase(places)?;
        for _ in 1..self.effort.readings {
            least = least.min(self.chase(places)?);
        }
        Ok(least)
    }

    /// Whether `one` is slower than `other`: by a rank test of alternating samples, and by `least` cycles.
    pub fn slower(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<f64, ProbeError>,
        mut other: impl FnMut(&mut Self) -> Result<f64, ProbeError>,
        least: f64,
    ) -> Result<bool, ProbeError> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.samples {
            a.push(one(self)?);
            b.push(other(self)?);
        }
        Ok(above(&a, &b) && median(&a) - median(&b) >= least)
    }
}
