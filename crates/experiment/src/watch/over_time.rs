//! Coverage over time and at the end, from the looks of a watch. Pure.
//!
//! A look stands for the time until halfway to its neighbours. Where two looks found about the same, nothing between
//! them is missing; else a long time without a look makes the mean unknown.
//! See docs/decisions/watch.md#6.

use serde::{Deserialize, Serialize};

use super::Moment;

/// Coverage beside that at the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    /// The share of resident memory on superpages, mean over the run, weighted by time.
    #[serde(deserialize_with = "units::share")]
    pub mean_coverage: Option<f64>,
    /// At the end: of the looks in the last fifth of the run (50 ms at least) the last of those that found most, so that
    /// memory which a program frees one object after the other before it ends is seen whole.
    pub end: Option<Moment>,
    /// The longest time without a look; `null` if both are known.
    pub gap: Option<Gap>,
}

/// A time in which memory was not read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Gap {
    /// Seconds since the program was started.
    #[serde(deserialize_with = "units::seconds")]
    pub from_seconds: f64,
    /// The same.
    #[serde(deserialize_with = "units::seconds")]
    pub to_seconds: f64,
}

units::checked!(Gap);

impl Gap {
    fn check(&self) -> Result<(), String> {
        let is_gap = self.from_seconds <= self.to_seconds;
        is_gap.then_some(()).ok_or("from_seconds is after to_seconds".to_string())
    }
}

/// Without a look for a longer part of the run, the mean is unknown.
const LONGEST_GAP: f64 = 0.5;
/// Looks that differ by less say that nothing happened between them.
const ALIKE: f64 = 0.05;
/// The end of a run: this part of it, and at least these seconds.
const END: f64 = 0.2;
const SHORTEST_END: f64 = 0.05;
/// What is held is the most if it is this share of it.
const MOST: f64 = 0.98;

impl OverTime {
    /// Of a run; `timeline` is in the order of time.
    pub(super) fn new(timeline: &[Moment], run_seconds: f64) -> Self {
        let looks: Vec<Moment> =
            timeline.iter().copied().filter(|it| it.coverage().is_some()).collect();
        let gap = longest_gap(&looks, run_seconds);
        let is_known = gap.to_seconds - gap.from_seconds <= LONGEST_GAP * run_seconds;
        let mean_coverage = mean(&looks, run_seconds).filter(|_| is_known);
        let end = at_end(&looks, run_seconds);
        let gap = (mean_coverage.is_none() || end.is_none()).then_some(gap);
        Self { mean_coverage, end, gap }
    }

    /// Of a run whose processes can have had no superpage: every moment is one of none, also those of ticks.
    pub(super) fn without_superpages(timeline: &[Moment], run_seconds: f64) -> Self {
        let none = |moment: &Moment| Moment { superpage_bytes: Some(0), ..*moment };
        let moments: Vec<Moment> = timeline.iter().map(none).collect();
        Self::new(&moments, run_seconds)
    }

    /// At the end, the share of resident memory on superpages.
    pub fn end_coverage(&self) -> Option<f64> {
        self.end.as_ref().and_then(Moment::coverage)
    }
}

fn mean(looks: &[Moment], run_seconds: f64) -> Option<f64> {
    let (first, last) = (looks.first()?, looks.last()?);
    let share = |look: &Moment| look.coverage().unwrap_or(0.0);
    let mut sum =
        share(first) * first.seconds + share(last) * (run_seconds - last.seconds).max(0.0);
    let mut time = first.seconds + (run_seconds - last.seconds).max(0.0);
    for pair in looks.windows(2) {
        let passed = pair[1].seconds - pair[0].seconds;
        sum += passed * (share(&pair[0]) + share(&pair[1])) / 2.0;
        time += passed;
    }
    (time > 0.0).then(|| sum / time)
}

/// Of the times before the first look, after the last, and between two that differ.
fn longest_gap(looks: &[Moment], run_seconds: f64) -> Gap {
    let gap = |from_seconds, to_seconds| Gap { from_seconds, to_seconds };
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else {
        return gap(0.0, run_seconds);
    };
    let differ = |pair: &&[Moment]| match (pair[0].coverage(), pair[1].coverage()) {
        (Some(before), Some(after)) => (before - after).abs() > ALIKE,
        _ => true,
    };
    let between = looks.windows(2).filter(differ);
    let between = between.map(|pair| gap(pair[0].seconds, pair[1].seconds));
    let ends = [gap(0.0, first.seconds), gap(last.seconds, run_seconds.max(last.seconds))];
    let length = |gap: &Gap| gap.to_seconds - gap.from_seconds;
    let longer = |a: Gap, b: Gap| if length(&b) > length(&a) { b } else { a };
    between.chain(ends).fold(gap(0.0, 0.0), longer)
}

fn at_end(looks: &[Moment], run_seconds: f64) -> Option<Moment> {
    let from = run_seconds - (END * run_seconds).max(SHORTEST_END);
    let late = || looks.iter().filter(|look| look.seconds >= from);
    let most = late().map(|look| look.resident_bytes).max()?;
    late().rfind(|look| look.resident_bytes as f64 >= MOST * most as f64).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks: seconds, resident bytes, bytes on superpages.
    fn looks(looks: &[(f64, u64, u64)]) -> Vec<Moment> {
        let look = |&(seconds, resident_bytes, superpages)| Moment {
            seconds,
            resident_bytes,
            superpage_bytes: Some(superpages),
        };
        looks.iter().map(look).collect()
    }

    fn about(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() < 1e-9)
    }

    #[test]
    fn the_mean_is_weighted_by_time_and_not_by_the_number_of_looks() {
        // A tenth of the time at 0, then at 1; looked at often while at 0.
        let early = [0.2, 0.4, 0.6, 0.8, 1.0].map(|at| (at, 100, 0));
        let seen: Vec<_> = early.into_iter().chain([(1.0, 100, 100), (9.9, 100, 100)]).collect();
        let over = OverTime::new(&looks(&seen), 10.0);
        assert!(about(over.mean_coverage, 0.9), "{over:?}");
        assert!(about(over.end_coverage(), 1.0) && over.gap.is_none(), "{over:?}");
    }

    #[test]
    fn ticks_without_a_look_say_nothing() {
        let mut timeline = looks(&[(0.5, 100, 50), (0.96, 100, 50)]);
        timeline.push(Moment { seconds: 0.99, resident_bytes: 500, superpage_bytes: None });
        let over = OverTime::new(&timeline, 1.0);
        assert!(about(over.mean_coverage, 0.5) && about(over.end_coverage(), 0.5), "{over:?}");
    }

    #[test]
    fn a_long_time_without_a_look_is_a_gap_unless_both_ends_are_alike() {
        let at = |from, to| Some(Gap { from_seconds: from, to_seconds: to });
        let over = OverTime::new(&looks(&[(0.1, 100, 0), (0.98, 100, 98)]), 1.0);
        assert_eq!((over.mean_coverage, over.gap), (None, at(0.1, 0.98)));
        assert!(about(over.end_coverage(), 0.98));
        let over = OverTime::new(&looks(&[(0.1, 100, 96), (0.98, 100, 98)]), 1.0);
        assert!(over.mean_coverage.is_some() && over.gap.is_none(), "{over:?}");
        let over = OverTime::new(&looks(&[(0.1, 100, 96), (0.3, 100, 98)]), 1.0);
        assert_eq!((over.mean_coverage, over.end, over.gap), (None, None, at(0.3, 1.0)));
        let never = OverTime::new(&[], 1.0);
        assert_eq!((never.mean_coverage, never.end, never.gap), (None, None, at(0.0, 1.0)));
    }

    #[test]
    fn where_there_can_be_no_superpages_ticks_are_enough() {
        let tick = |seconds| Moment { seconds, resident_bytes: 100, superpage_bytes: None };
        let timeline = [tick(0.1), tick(0.5), tick(0.99)];
        let over = OverTime::without_superpages(&timeline, 1.0);
        assert_eq!(
            (over.mean_coverage, over.end_coverage(), over.gap),
            (Some(0.0), Some(0.0), None)
        );
        assert_eq!(OverTime::new(&timeline, 1.0).mean_coverage, None);
    }

    #[test]
    fn what_is_freed_before_the_end_is_still_of_the_end_and_what_was_freed_long_before_is_not() {
        let seen = [(0.3, 900, 900), (0.95, 400, 100), (0.97, 400, 200), (0.99, 10, 0)];
        let over = OverTime::new(&looks(&seen), 1.0);
        assert_eq!(over.end.map(|end| (end.seconds, end.resident_bytes)), Some((0.97, 400)));
    }
}
