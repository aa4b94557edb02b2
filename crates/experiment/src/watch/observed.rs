//! What a watch saw, and what of it holds when the run is over.

use host::coverage::Coverage;
use host::{Root, process};
use serde::{Deserialize, Serialize};
use units::{ByteSize, Pid};

use super::bounds::{Peak, Range};
use super::{NEAR_PEAK, OverTime};

/// A timeline is thinned to this many points.
const MAX_POINTS: usize = 240;

/// What the tree held at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Moment {
    /// Seconds since the program was started.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// Resident bytes of all its processes, hugetlb included.
    #[serde(deserialize_with = "units::bytes")]
    pub resident_bytes: u64,
    /// Of these on superpages; `null` when only a tick was made.
    #[serde(deserialize_with = "units::bytes")]
    pub superpage_bytes: Option<u64>,
}

units::checked!(Moment, Observed);

impl Moment {
    fn check(&self) -> Result<(), String> {
        let is_part = self.superpage_bytes.is_none_or(|some| some <= self.resident_bytes);
        is_part.then_some(()).ok_or("superpage_bytes are more than resident_bytes".to_string())
    }

    /// The share of what was held that was on superpages; `None` of a tick, and where nothing was held.
    pub fn coverage(&self) -> Option<f64> {
        let superpages = self.superpage_bytes.filter(|_| self.resident_bytes > 0)?;
        Some(superpages as f64 / self.resident_bytes as f64)
    }
}

/// A process that a signal killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Its pid.
    pub pid: Pid,
    /// The signal.
    pub signal: i32,
}

/// What a watch saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Observed {
    /// The largest resident size, hugetlb included, what several processes share counted once; within 5 %,
    /// `null` if only bounds of it are known.
    #[serde(deserialize_with = "units::bytes")]
    pub peak_resident_bytes: Option<u64>,
    /// It was at least this: what was seen, or the kernel's high-water mark of one process if that is more.
    #[serde(default, deserialize_with = "units::bytes")]
    pub peak_at_least_bytes: Option<u64>,
    /// And at most this; `null` if unknown.
    #[serde(default, deserialize_with = "units::bytes")]
    pub peak_at_most_bytes: Option<u64>,
    /// Processes that ended before it was seen what they held, or left the others.
    #[serde(default, deserialize_with = "units::count")]
    pub processes_unseen: u64,
    /// Coverage at the last look that found (nearly) most; see [`Observed::coverage_of_peak`].
    pub coverage: Option<Coverage>,
    /// Coverage over time and at the end.
    #[serde(default)]
    pub over_time: OverTime,
    /// Superpage memory that was all zero at that look, estimated by sampling.
    #[serde(alias = "wasted_bytes", deserialize_with = "units::bytes")]
    pub zero_filled_bytes: Option<u64>,
    /// Whether every process had THP disabled and no hugetlb page, at every tick; `null` if no tick
    /// saw any.
    pub base_pages_only: Option<bool>,
    /// Resident size over time.
    pub timeline: Vec<Moment>,
    /// Looks made, those that the program's processes made at themselves included.
    pub looks: u32,
    /// CPU seconds spent watching.
    #[serde(deserialize_with = "units::seconds")]
    pub watch_seconds: f64,
    /// CPU seconds the longest look took: about the most it can have held the program up.
    #[serde(deserialize_with = "units::seconds")]
    pub longest_look_seconds: f64,
    /// Why something above is unknown, if the kernel said so.
    pub unknown: Option<String>,
    /// Processes seen that have the library in them and do not add to the run's counters.
    #[serde(skip)]
    pub uncounted: usize,
    /// Processes that a signal killed, the first among them; `None` if the kernel does not tell (taskstats).
    #[serde(skip)]
    pub killed: Option<Vec<Killed>>,
    /// The name of a process that had THP turned off, the last one seen.
    #[serde(skip)]
    pub without_thp: Option<String>,
    /// Whether any process held pages of a pool at a tick.
    #[serde(skip)]
    pub(super) saw_pool: bool,
    /// Whether the coverage counts what processes share once for each.
    #[serde(skip)]
    pub(super) counts_shared_again: bool,
    #[serde(skip)]
    pub(super) peak: Peak,
    /// Processes that may be of the run and were not counted.
    #[serde(skip)]
    pub(super) lost: u64,
}

impl Observed {
    fn check(&self) -> Result<(), String> {
        let (least, most) = (self.peak_at_least_bytes, self.peak_at_most_bytes);
        let peak = self.peak_resident_bytes;
        let bounds = [(least, peak), (peak, most), (least, most)];
        if bounds.iter().any(|(low, high)| low.zip(*high).is_some_and(|(low, high)| low > high)) {
            return Err(
                "peak_at_least_bytes, peak_resident_bytes and peak_at_most_bytes do not ascend"
                    .to_string(),
            );
        }
        match self.timeline.is_sorted_by_key(|moment| moment.seconds) {
            true => Ok(()),
            false => Err("the timeline is not in the order of time".to_string()),
        }
    }

    /// How large a share of the peak the coverage is of; `None` if one of them is unknown.
    pub fn coverage_of_peak(&self) -> Option<f64> {
        let (peak, coverage) = (self.peak_resident_bytes?, self.coverage.as_ref()?);
        (peak > 0).then(|| (coverage.resident().bytes() as f64 / peak as f64).min(1.0))
    }

    /// What was held at the peak: as far as it is known, at least.
    pub fn least_peak(&self) -> Option<u64> {
        self.peak_resident_bytes.or(self.peak_at_least_bytes)
    }

    /// Forgets a look that found less than [`NEAR_PEAK`] of the peak: of what was held then it says nothing.
    pub fn forget_partial_look(&mut self) {
        let counted = self.coverage.as_ref().map(|coverage| coverage.resident().bytes() as f64);
        let looked = counted.zip(self.least_peak());
        if looked.is_some_and(|(counted, peak)| counted < NEAR_PEAK * peak as f64) {
            (self.coverage, self.zero_filled_bytes) = (None, None);
        }
    }

    /// Takes in what the kernel says at the end of a run: the largest resident set of any of its processes.
    /// The kernel begins it with what this process held at the fork, so nothing that small was held for sure;
    /// and pages of a pool, if some were to be used, are not in it.
    pub fn conclude(&mut self, root: &Root, max_rss: ByteSize, uses_pool: bool) {
        let own = process::status(root, sys::param::own_pid()).ok().and_then(|own| own.peak_rss);
        let is_believed = own.is_some_and(|own| max_rss > own);
        let at_least = self.peak.at_least.max(if is_believed { max_rss.bytes() } else { 0 });
        let largest = Some(max_rss.bytes()).filter(|_| !uses_pool && !self.saw_pool);
        let at_most = self.peak.at_most(largest).filter(|_| self.lost == 0);
        let is_of_one = self.peak.is_of_one && self.peak.unseen == 0;
        let at_most = at_most.map(|most| match largest.filter(|_| is_of_one) {
            Some(largest) => most.min(largest),
            None => most,
        });
        let at_most = at_most.map(|at_most| at_most.max(at_least));
        self.peak_at_least_bytes = (at_least > 0).then_some(at_least);
        self.peak_at_most_bytes = at_most;
        self.peak_resident_bytes = at_most.and_then(|at_most| Range { at_least, at_most }.middle());
        self.processes_unseen = self.peak.unseen + self.lost;
        self.drop_counted_again();
    }

    /// Before Linux 6.7 processes are read one by one: more than there ever was is memory that they share.
    fn drop_counted_again(&mut self) {
        let Some(most) = self.peak_at_most_bytes.filter(|_| self.counts_shared_again) else {
            return;
        };
        if self.coverage.as_ref().is_some_and(|it| it.resident().bytes() > most) {
            (self.coverage, self.zero_filled_bytes) = (None, None);
            let why = "this kernel cannot tell apart memory that processes share";
            self.unknown = Some(why.to_string());
        }
        let is_too_much = |it: &Moment| it.superpage_bytes.is_some() && it.resident_bytes > most;
        self.timeline.retain(|moment| !is_too_much(moment));
    }

    /// Adds a moment in the order of time: a process may tell of one that is over.
    pub(super) fn note(&mut self, moment: Moment) {
        let is_before = |other: &Moment| other.seconds <= moment.seconds;
        let place = self.timeline.iter().rposition(is_before).map_or(0, |place| place + 1);
        self.timeline.insert(place, moment);
        if self.timeline.len() >= 2 * MAX_POINTS {
            thin(&mut self.timeline);
        }
    }
}

/// Drops every second moment but the last: ticks only, unless there are too many looks as well.
fn thin(timeline: &mut Vec<Moment>) {
    let last = timeline.len() - 1;
    let looks = timeline.iter().filter(|moment| moment.superpage_bytes.is_some()).count();
    let keeps_looks = looks < MAX_POINTS;
    let mut index = 0;
    timeline.retain(|moment| {
        index += 1;
        (keeps_looks && moment.superpage_bytes.is_some()) || index % 2 == 0 || index > last
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_that_is_counted_for_each_process_is_no_coverage() {
        let seen = |counts_shared_again, counted: u64| {
            let coverage = Coverage { anon_base: ByteSize(counted), ..Coverage::default() };
            let peak = Peak { at_least: 100, at_most: [(0, 104)].into(), ..Peak::default() };
            let moment = Moment { seconds: 1.0, resident_bytes: counted, superpage_bytes: Some(0) };
            let timeline = vec![moment];
            let mut seen = Observed {
                coverage: Some(coverage),
                zero_filled_bytes: Some(0),
                counts_shared_again,
                peak,
                timeline,
                ..Observed::default()
            };
            seen.conclude(&Root::real(), ByteSize(1), false);
            (seen.coverage.is_some(), seen.zero_filled_bytes, seen.timeline.len())
        };
        assert_eq!(seen(true, 500), (false, None, 0));
        assert_eq!(seen(true, 104), (true, Some(0), 1));
        assert_eq!(seen(false, 500), (true, Some(0), 1), "each page was counted once");
    }

    #[test]
    fn thinning_keeps_looks_and_both_ends_of_time() {
        let moment = |index: usize| Moment {
            seconds: index as f64,
            resident_bytes: 1,
            superpage_bytes: (index == 4).then_some(1),
        };
        let mut timeline: Vec<Moment> = (0..9).map(moment).collect();
        thin(&mut timeline);
        let kept: Vec<f64> = timeline.iter().map(|moment| moment.seconds).collect();
        assert_eq!(kept, [1.0, 3.0, 4.0, 5.0, 7.0, 8.0]);
    }
}
