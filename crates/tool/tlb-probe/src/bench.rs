//! `Bench`: pages of one size on a probe's table, and how often to look. The estimators' only access
//! to the probe.

use std::time::Instant;

use units::PageSize;
use workload::rng::SplitMix64;

use crate::levels::Sample;
use crate::place::Shape;
use crate::probe::{Offer, Place, Probe, ProbeError};
use crate::statistics::{above, low, median};

/// How much work to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Footprints of a curve: each this many times the one before.
    pub step: f64,
    /// Readings of which the least counts, where one alone is looked at.
    pub readings: usize,
    /// Rounds over a curve, at least and at most: more while its shape is in doubt.
    pub rounds: (usize, usize),
    /// Rounds over the footprints around the end of a level.
    pub turns: usize,
    /// Readings on either side of a rank test. Seven at least: with six no outcome is
    /// rarer than 1 in 924, and the test asks for 1 in 1000; with nine it bears one disturbed reading.
    pub samples: usize,
    /// Estimates of a cost.
    pub attempts: usize,
    /// The most pages of a curve.
    pub most_pages: u64,
}

impl Effort {
    /// As it should be: curves go to four times the largest TLB there is (4096 entries, Zen 5).
    pub const FULL: Self = Self {
        step: 1.09,
        readings: 2,
        rounds: (4, 12),
        turns: 7,
        samples: 9,
        attempts: 7,
        most_pages: 1 << 14,
    };
    /// In a hurry.
    pub const QUICK: Self = Self {
        step: 1.15,
        readings: 2,
        rounds: (3, 6),
        turns: 5,
        samples: 9,
        attempts: 5,
        most_pages: 3 << 12,
    };
}

/// What chases are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Loads: all levels are looked for.
    Loads,
    /// Jumps: only the first level is looked for.
    Jumps,
}

impl Side {
    /// Cycles that chases of many pages may cost more than those of few though nothing misses. Predictors keep far
    /// targets in other places than near ones: between 70 and 200 pages jumps come to cost 1.3 more on an Intel core of
    /// 2023.
    pub fn slack(self) -> f64 {
        match self {
            Self::Loads => 0.0,
            Self::Jumps => 2.0,
        }
    }

    /// Cycles below which steps of a curve are none. The least published cost of a hit in a second level is 5 (Arm);
    /// steps of 1.0 come of data caches (one run in twenty took the second level for two, and found no end of the first
    /// of them).
    pub fn least_step(self) -> f64 {
        1.5 + self.slack()
    }
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
    /// What its chases are made of.
    pub side: Side,
    /// The first level's entries and the cost of missing it, once known: what the packed chase has to
    /// be rid of when it needs more pages than that.
    pub first: Option<(u64, f64)>,
    seed: u64,
    until: Option<Instant>,
}

/// Rounds at most, in multiples of those that there are at least.
const MORE: usize = 3;

/// Whether the lowest readings agree within a hundredth: no fewer than three, or all.
fn settled(readings: &[f64]) -> bool {
    let mut sorted = readings.to_vec();
    sorted.sort_by(f64::total_cmp);
    let third = sorted.get(2).or(sorted.last());
    third.is_none_or(|third| third - sorted[0] <= 0.01 * sorted[0])
}

/// One reading of a footprint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// One line in each page.
    pub spread: f64,
    /// As many lines in few pages, as if their translations cost nothing.
    pub packed: f64,
}

impl<'a> Bench<'a> {
    pub fn new(
        probe: &'a mut dyn Probe,
        page: PageSize,
        effort: Effort,
        seed: u64,
        until: Option<Instant>,
    ) -> Result<Self, ProbeError> {
        let offers = probe.offers();
        let base = offers.first().ok_or(ProbeError::NotOffered(page))?.page;
        let offer = offers.into_iter().find(|offer| offer.page == page);
        let offer = offer.ok_or(ProbeError::NotOffered(page))?;
        let shape = Shape::new(page, base, probe.line());
        let side = Side::Loads;
        Ok(Self { probe, offer, shape, effort, side, first: None, seed, until })
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
    pub fn control(&self, lines: u64) -> f64 {
        let pages = lines.div_ceil(self.shape.page_lines());
        match self.first {
            Some((entries, cost)) if pages > entries => {
                cost * (1.0 - entries as f64 / pages as f64)
            }
            _ => 0.0,
        }
    }

    /// One reading of each of these footprints, in a random order, so that what disturbs for a while does not
    /// meet neighbours alone.
    pub fn round(&mut self, pages: &[u64]) -> Result<Vec<Reading>, ProbeError> {
        let mut order: Vec<usize> = (0..pages.len()).collect();
        let mut rng = SplitMix64::new(self.seed);
        order.sort_by_cached_key(|_| rng.draw());
        let mut readings = vec![Reading { spread: f64::NAN, packed: f64::NAN }; pages.len()];
        for index in order {
            readings[index] = self.reading(pages[index])?;
        }
        Ok(readings)
    }

    /// What translation costs at each of these footprints: low values of several rounds, and of more for those whose
    /// lowest readings do not agree.
    pub fn in_turn(&mut self, pages: &[u64]) -> Result<Vec<f64>, ProbeError> {
        let mut all = vec![(Vec::new(), Vec::new()); pages.len()];
        for turn in 0..MORE * self.effort.turns {
            let open = |(spread, packed): &(Vec<f64>, Vec<f64>)| {
                turn < self.effort.turns || !settled(spread) || !settled(packed)
            };
            let these: Vec<usize> = (0..pages.len()).filter(|index| open(&all[*index])).collect();
            let footprints: Vec<u64> = these.iter().map(|index| pages[*index]).collect();
            for (index, reading) in these.into_iter().zip(self.round(&footprints)?) {
                all[index].0.push(reading.spread);
                all[index].1.push(reading.packed);
            }
        }
        Ok(all.iter().map(|(spread, packed)| low(spread) - low(packed)).collect())
    }

    /// Cycles that an access of these places takes more than one of those: low values of readings in turn.
    pub fn apart(&mut self, these: &[Place], those: &[Place]) -> Result<f64, ProbeError> {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.turns {
            one.push(self.chase(these)?);
            other.push(self.chase(those)?);
        }
        Ok(low(&one) - low(&other))
    }

    /// Whether a test comes out: of three times, twice.
    pub fn surely(
        &mut self,
        mut test: impl FnMut(&mut Self) -> Result<bool, ProbeError>,
    ) -> Result<bool, ProbeError> {
        let (one, two) = (test(self)?, test(self)?);
        if one == two { Ok(one) } else { test(self) }
    }

    /// Whether there is time for what would only make surer.
    pub fn has_time(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
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

/// A curve of several rounds: of each footprint's readings the low one.
pub(crate) fn combined<'a>(
    pages: &[u64],
    rounds: impl IntoIterator<Item = &'a Vec<Reading>>,
) -> Vec<Sample> {
    let rounds: Vec<_> = rounds.into_iter().collect();
    let sample = |(index, pages): (usize, &u64)| {
        let all = |of: fn(&Reading) -> f64| rounds.iter().map(|round| of(&round[index])).collect();
        let (spread, packed): (Vec<f64>, Vec<f64>) = (all(|r| r.spread), all(|r| r.packed));
        let apart = median(&spread) - low(&spread);
        Sample { pages: *pages, spread: low(&spread), packed: low(&packed), apart }
    };
    pages.iter().enumerate().map(sample).collect()
}
