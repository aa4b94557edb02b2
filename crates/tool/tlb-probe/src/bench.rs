//! `Bench`: a probe with pages of one size and the number of repetitions. Estimators access the probe only through a
//! `Bench`.

use std::time::Instant;

use units::PageSize;
use workload::rng::SplitMix64;

use crate::levels::Sample;
use crate::place::Shape;
use crate::probe::{Offer, Place, Probe, ProbeError};
use crate::statistics::{above, low_mean, median};

/// Number of repetitions and footprints.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// Ratio of successive footprints of a curve.
    pub step: f64,
    /// Number of readings of a single footprint, of which the minimum counts.
    pub readings: usize,
    /// Minimum and maximum number of rounds over a curve. Rounds are added while the curve's shape
    /// is uncertain.
    pub rounds: (usize, usize),
    /// Number of rounds over the footprints around the end of a level.
    pub turns: usize,
    /// Number of readings on either side of a rank test. The test requires an outcome rarer than 1 in 1000, so at least
    /// seven: with six no outcome is rarer than 1 in 924. Nine tolerate one disturbed reading.
    pub samples: usize,
    /// Number of estimates of a cost.
    pub attempts: usize,
    /// Maximum number of pages of a curve.
    pub most_pages: u64,
}

impl Effort {
    /// The default: curves extend to four times the largest known TLB (4096 entries, Zen 5).
    pub const FULL: Self = Self {
        step: 1.09,
        readings: 2,
        rounds: (4, 12),
        turns: 7,
        samples: 9,
        attempts: 7,
        most_pages: 1 << 14,
    };
    /// Fewer rounds, to be faster.
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

/// The accesses that chases consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Loads: all levels are measured.
    Loads,
    /// Jumps: only the first level is measured.
    Jumps,
}

impl Side {
    /// Number of cycles by which a chase over many pages may be slower than over few pages even without a miss. Branch
    /// predictors store far targets differently from near ones: on an Intel core of 2023, jumps become 1.3 cycles
    /// slower between 70 and 200 pages.
    pub fn slack(self) -> f64 {
        match self {
            Self::Loads => 0.0,
            Self::Jumps => 2.0,
        }
    }

    /// Minimum height of a step, in cycles. The smallest published cost of a second-level hit is 5 (Arm); data caches
    /// cause steps of 1.0. (With a lower limit, one run in twenty split the second level in two and did not find the
    /// end of the first part.)
    pub fn least_step(self) -> f64 {
        1.5 + self.slack()
    }
}

/// Pages of one size.
pub(crate) struct Bench<'a> {
    probe: &'a mut dyn Probe,
    /// Size and number of the pages.
    pub offer: Offer,
    /// Shape of the pages in lines and base pages.
    pub shape: Shape,
    /// Number of repetitions.
    pub effort: Effort,
    /// The kind of accesses that the chases make.
    pub side: Side,
    /// Number of entries of the first level and cost of missing it, once known. If the packed chase needs more pages
    /// than the first level has entries, the packed chase is corrected by this cost.
    pub first: Option<(u64, f64)>,
    seed: u64,
    until: Option<Instant>,
}

/// Maximum number of rounds, as a multiple of the minimum.
const MAX_ROUND_FACTOR: usize = 3;

/// Whether the lowest three readings (or all, if there are fewer) agree within a hundredth.
fn readings_agree(readings: &[f64]) -> bool {
    let mut sorted = readings.to_vec();
    sorted.sort_by(f64::total_cmp);
    let third = sorted.get(2).or(sorted.last());
    third.is_none_or(|third| third - sorted[0] <= 0.01 * sorted[0])
}

/// One reading of a footprint, in cycles per access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// One line in each page.
    pub spread: f64,
    /// The same number of lines in few pages, corrected for their translation cost.
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

    /// Chases these places in a new random order; returns cycles per access.
    pub fn chase(&mut self, places: &[Place]) -> Result<f64, ProbeError> {
        self.seed = self.seed.wrapping_add(1);
        self.probe.chase(self.offer.page, places, self.seed)
    }

    /// Switches to other memory.
    pub fn renew(&mut self) -> Result<(), ProbeError> {
        self.probe.renew(self.offer.page)
    }

    /// Reads a footprint of `pages` pages.
    pub fn reading(&mut self, pages: u64) -> Result<Reading, ProbeError> {
        let spread = self.chase(&self.shape.spread(pages))?;
        let packed = self.chase(&self.shape.packed(pages))?;
        Ok(Reading { spread, packed: packed - self.control(pages) })
    }

    /// Translation cost in cycles per access of a packed chase over `lines` lines. A random access finds its page in
    /// the first level with probability entries / pages.
    pub fn control(&self, lines: u64) -> f64 {
        let pages = lines.div_ceil(self.shape.page_lines());
        match self.first {
            Some((entries, cost)) if pages > entries => {
                cost * (1.0 - entries as f64 / pages as f64)
            }
            _ => 0.0,
        }
    }

    /// Reads each of these footprints once, in a random order, so that a temporary disturbance does not hit only
    /// adjacent footprints.
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

    /// Translation cost in cycles at each of these footprints: the low values of several rounds. Footprints whose
    /// lowest readings disagree get more rounds.
    pub fn translation_costs(&mut self, pages: &[u64]) -> Result<Vec<f64>, ProbeError> {
        let mut all = vec![(Vec::new(), Vec::new()); pages.len()];
        for turn in 0..MAX_ROUND_FACTOR * self.effort.turns {
            let open = |(spread, packed): &(Vec<f64>, Vec<f64>)| {
                turn < self.effort.turns || !readings_agree(spread) || !readings_agree(packed)
            };
            let these: Vec<usize> = (0..pages.len()).filter(|index| open(&all[*index])).collect();
            let footprints: Vec<u64> = these.iter().map(|index| pages[*index]).collect();
            for (index, reading) in these.into_iter().zip(self.round(&footprints)?) {
                all[index].0.push(reading.spread);
                all[index].1.push(reading.packed);
            }
        }
        Ok(all.iter().map(|(spread, packed)| low_mean(spread) - low_mean(packed)).collect())
    }

    /// Number of cycles per access by which `these` places are slower than `those`, from the low values of alternating
    /// readings.
    pub fn difference(&mut self, these: &[Place], those: &[Place]) -> Result<f64, ProbeError> {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.turns {
            one.push(self.chase(these)?);
            other.push(self.chase(those)?);
        }
        Ok(low_mean(&one) - low_mean(&other))
    }

    /// Makes up to three tests and returns the majority's result.
    pub fn majority(
        &mut self,
        mut test: impl FnMut(&mut Self) -> Result<bool, ProbeError>,
    ) -> Result<bool, ProbeError> {
        let (one, two) = (test(self)?, test(self)?);
        if one == two { Ok(one) } else { test(self) }
    }

    /// Whether there is time for repetitions that only improve confidence.
    pub fn has_time(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }

    /// Minimum cycles per access of several readings of these places.
    pub fn least(&mut self, places: &[Place]) -> Result<f64, ProbeError> {
        let mut least = self.chase(places)?;
        for _ in 1..self.effort.readings {
            least = least.min(self.chase(places)?);
        }
        Ok(least)
    }

    /// Whether `one` is slower than `other`: according to a rank test of alternating samples, and by at least `least`
    /// cycles.
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

/// Combines rounds into one curve, with the low value of the readings at each footprint.
pub(crate) fn combined<'a>(
    pages: &[u64],
    rounds: impl IntoIterator<Item = &'a Vec<Reading>>,
) -> Vec<Sample> {
    let rounds: Vec<_> = rounds.into_iter().collect();
    let sample = |(index, pages): (usize, &u64)| {
        let all = |of: fn(&Reading) -> f64| rounds.iter().map(|round| of(&round[index])).collect();
        let (spread, packed): (Vec<f64>, Vec<f64>) = (all(|r| r.spread), all(|r| r.packed));
        let deviation = median(&spread) - low_mean(&spread);
        Sample { pages: *pages, spread: low_mean(&spread), packed: low_mean(&packed), deviation }
    };
    pages.iter().enumerate().map(sample).collect()
}
