//! What a watch saw, and what of it holds when the run is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use abi::looks::Why;
use host::coverage::Coverage;
use host::{MemInfo, Root, Thp, process};
use serde::{Deserialize, Serialize};
use units::{ByteSize, Pid};

use super::bounds::{Ends, Life, Peak, Range};
use super::{Looked, NEAR_PEAK, Watcher};
use crate::counters::{CounterFile, Mark};
use crate::looks::{OwnLook, OwnLooks};

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

// Coverage over time and at the end, from the looks of a watch. Pure.
//
// A look stands for the time until halfway to its neighbours. Where two looks found about the same, nothing between
// them is missing; else a long time without a look makes the mean unknown.
// See docs/decisions/watch.md#6.

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

// What the program's processes recorded: looks at their own memory, and their ends.
//
// A look of one process is one of the run where all others held next to nothing at the last tick; else it is
// only a lower bound of what was held.
// See docs/decisions/watch.md#5.

/// Processes whose lives are remembered, at most.
const MAX_LIVES: usize = 1024;
/// For so long after they ended.
const REMEMBERED: Duration = Duration::from_millis(200);
/// Of what a process held, the part that all others may hold beside it.
const OTHERS: u64 = 8;

pub(super) struct Own {
    looks: OwnLooks,
    /// When the program was started, by the clock of the records.
    started: Duration,
    /// Processes that ended since that was last asked, and the most that each held.
    ended: Vec<(Pid, u64)>,
    /// When processes began and ended, as far as they told.
    lives: BTreeMap<Pid, Life>,
    /// Of those told of so far, how many were never seen by a tick and not yet counted among the unseen.
    never_seen: u64,
}

impl Own {
    /// `None`: the counters cannot be read.
    pub(super) fn new(counters: &CounterFile, root: &Root, since: Instant) -> Option<Self> {
        let pool = MemInfo::read(root).ok().and_then(|info| info.default_hugepage);
        let pool = pool.or_else(|| Thp::pmd_size_of(root).ok())?;
        let looks = OwnLooks::new(counters.words().ok()?, pool);
        let started = clock_of(since);
        Some(Self { looks, started, ended: Vec::new(), lives: BTreeMap::new(), never_seen: 0 })
    }

    pub(super) fn ask(&self) {
        self.looks.ask();
    }
}

/// An instant by the clock of the records. On a busy machine this thread may lose its CPU between two readings: the closest
/// of a few are taken.
fn clock_of(since: Instant) -> Duration {
    let read = || {
        let before = sys::param::monotonic_time();
        let passed = since.elapsed();
        let after = sys::param::monotonic_time();
        (after.saturating_sub(before), after.saturating_sub(passed))
    };
    let closest = (0..4).map(|_| read()).min_by_key(|(apart, _)| *apart);
    closest.map_or(Duration::ZERO, |(_, started)| started)
}

impl Watcher {
    /// Takes in what processes told since it was last asked.
    pub(super) fn read_own_looks(&mut self, is_last: bool) {
        let Some(mut own) = self.own.take() else { return };
        for OwnLook { pid, at, why, high_water, coverage } in own.looks.take(is_last) {
            let is_end = why == Some(Why::Ends);
            if own.lives.len() < MAX_LIVES && self.members.may_be(pid) {
                let life = own.lives.entry(pid).or_default();
                match why {
                    Some(Why::Begins) if life.ended < Duration::MAX => {
                        *life = Life { began: at, ..Life::default() };
                    }
                    Some(Why::Begins) if life.began.is_zero() => life.began = at,
                    Some(Why::Ends) => life.ended = at,
                    _ => {}
                }
            }
            if let Some(most) = high_water {
                self.bounds.saw(most);
            }
            if let Some(most) = high_water.filter(|_| is_end && self.members.may_be(pid)) {
                own.ended.push((pid, most));
                own.never_seen += u64::from(!self.members.was_seen(pid));
            }
            if let Some(coverage) = coverage {
                self.take_over(at.saturating_sub(own.started), pid, coverage);
            }
        }
        self.own = Some(own);
    }

    fn take_over(&mut self, at: Duration, pid: Pid, coverage: Coverage) {
        let held = coverage.resident().bytes();
        let superpages = coverage.superpage_bytes().bytes();
        self.seen.looks += 1;
        self.bounds.saw(held);
        if self.bounds.held_by_others(pid) > held / OTHERS {
            return;
        }
        let at = at.min(self.since.elapsed());
        self.seen.note(Moment {
            seconds: at.as_secs_f64(),
            resident_bytes: held,
            superpage_bytes: Some(superpages),
        });
        if self.looked.as_ref().is_none_or(|last| last.at < at) {
            self.looked = Some(Looked { at, held, base_bytes: held - superpages });
        }
        if self.is_at_most(at, held) {
            self.cover(at, coverage);
            self.seen.counts_shared_again = false;
        }
    }

    /// What is known of the processes that ended since the last tick: by the kernel, or by themselves.
    pub(super) fn ends(&mut self, unseen: u64) -> Ends {
        let mut ends = self.members.ends(unseen, self.is_long());
        let hears_kernel = self.members.hears_ends();
        if let Some(own) = &mut self.own {
            ends.lives.clone_from(&own.lives);
            // Their numbers are given again some time.
            let now = sys::param::monotonic_time();
            own.lives.retain(|_, life| life.ended.saturating_add(REMEMBERED) > now);
            let told = std::mem::take(&mut own.ended);
            if !hears_kernel {
                ends.known.extend(told);
                let known = own.never_seen.min(ends.unseen);
                ends.unseen -= known;
                own.never_seen -= known;
            }
        }
        ends
    }
}

// Which processes of a run add to its counters.

/// Which processes add to the run's counters.
pub(super) struct Attached {
    mark: Option<Mark>,
    processes: BTreeMap<Pid, Attachment>,
    /// Processes that executed another program and had not added to it before.
    left: usize,
}

struct Attachment {
    /// The command's name when its mappings were last read.
    name: String,
    since: Instant,
    read: Instant,
    is_attached: bool,
    /// How often in a row the library was in it, and the counters not.
    misses: u32,
}

/// One miss is a process that is about to attach.
const MISSES: u32 = 2;

impl Attached {
    pub(super) fn new(mark: Option<Mark>) -> Self {
        Self { mark, processes: BTreeMap::new(), left: 0 }
    }

    /// Mappings are read when a process is seen first or executed another program, and, farther and farther
    /// apart, until it is attached: the library may not be loaded yet.
    pub(super) fn note(&mut self, root: &Root, pid: Pid, name: &str) {
        let Some(mark) = &self.mark else { return };
        let now = Instant::now();
        if self.processes.get(&pid).is_some_and(|process| process.name != name) {
            let before = self.processes.remove(&pid);
            self.left += before.map_or(0, |before| usize::from(before.is_missing()));
        }
        let process = self.processes.entry(pid).or_insert_with(|| Attachment {
            name: name.to_string(),
            since: now,
            read: now,
            is_attached: false,
            misses: 0,
        });
        let is_first = process.read == now;
        let is_due = now - process.read >= process.read - process.since;
        if process.is_attached || !(is_first || is_due) {
            return;
        }
        let Ok(is_uncounted) = mark.is_uncounted(root, pid) else { return };
        process.read = now;
        process.is_attached = is_uncounted == Some(false);
        process.misses = if is_uncounted == Some(true) { process.misses + 1 } else { 0 };
    }

    /// How many have the library in them and do not add to the counters.
    pub(super) fn missing(&self) -> usize {
        let now = self.processes.values().filter(|process| process.is_missing()).count();
        now + self.left
    }
}

impl Attachment {
    fn is_missing(&self) -> bool {
        self.misses >= MISSES
    }
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

#[cfg(test)]
mod over_time_tests {
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
