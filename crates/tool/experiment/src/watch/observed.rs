//! Results of a watch, and the decision which of them hold after the run.

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

const MAX_POINTS: usize = 240;

/// Memory of the tree at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Moment {
    /// Seconds since the start of the program.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// Resident bytes of all processes, hugetlb included.
    #[serde(deserialize_with = "units::bytes")]
    pub resident_bytes: u64,
    /// The part of `resident_bytes` on superpages; `null` if the moment is a tick, not a look.
    #[serde(deserialize_with = "units::bytes")]
    pub superpage_bytes: Option<u64>,
}

units::checked!(Moment, Observed);

impl Moment {
    fn check(&self) -> Result<(), String> {
        let is_part = self.superpage_bytes.is_none_or(|some| some <= self.resident_bytes);
        is_part.then_some(()).ok_or("superpage_bytes are more than resident_bytes".to_string())
    }

    /// Returns the share of the memory that was on superpages; `None` for a tick, or without memory.
    pub fn coverage(&self) -> Option<f64> {
        let superpages = self.superpage_bytes.filter(|_| self.resident_bytes > 0)?;
        Some(superpages as f64 / self.resident_bytes as f64)
    }
}

/// A process killed by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Its pid.
    pub pid: Pid,
    /// The signal.
    pub signal: i32,
}

/// Results of a watch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Observed {
    /// Maximum resident size, hugetlb included, shared pages counted once. Within 5 % of the truth; `null` if only
    /// bounds are known.
    #[serde(deserialize_with = "units::bytes")]
    pub peak_resident_bytes: Option<u64>,
    /// Lower bound of the peak: the observed size, or the kernel's high-water mark of one process if that is larger.
    #[serde(default, deserialize_with = "units::bytes")]
    pub peak_at_least_bytes: Option<u64>,
    /// Upper bound of the peak; `null` if unknown.
    #[serde(default, deserialize_with = "units::bytes")]
    pub peak_at_most_bytes: Option<u64>,
    /// Number of processes that ended before their memory was seen, or that left the tree.
    #[serde(default, deserialize_with = "units::count")]
    pub processes_unseen: u64,
    /// Coverage at the last look near the maximum; see [`Observed::coverage_of_peak`].
    pub coverage: Option<Coverage>,
    /// Coverage over time and at the end.
    #[serde(default)]
    pub over_time: OverTime,
    /// Zero-filled superpage memory at that look, estimated by sampling.
    #[serde(alias = "wasted_bytes", deserialize_with = "units::bytes")]
    pub zero_filled_bytes: Option<u64>,
    /// Whether every process had THP disabled and no hugetlb page, at every tick; `null` if no tick saw a process.
    pub base_pages_only: Option<bool>,
    /// Resident size over time.
    pub timeline: Vec<Moment>,
    /// Number of looks, including those that the program's processes made at their own memory.
    pub looks: u32,
    /// CPU seconds spent watching.
    #[serde(deserialize_with = "units::seconds")]
    pub watch_seconds: f64,
    /// CPU seconds of the longest look, which is about the maximum stall of the program.
    #[serde(deserialize_with = "units::seconds")]
    pub longest_look_seconds: f64,
    /// Why a field above is unknown, if the kernel reported a reason.
    pub unknown: Option<String>,
    /// Number of observed processes that have loaded the library and do not add to the run's counters.
    #[serde(skip)]
    pub uncounted: usize,
    /// Processes killed by a signal, in order; `None` if the kernel does not report them (taskstats).
    #[serde(skip)]
    pub killed: Option<Vec<Killed>>,
    /// Name of the last observed process that had THP disabled.
    #[serde(skip)]
    pub without_thp: Option<String>,
    /// Whether any process held pages of a pool at a tick.
    #[serde(skip)]
    pub(super) saw_pool: bool,
    /// Whether the coverage counts shared memory once for each process.
    #[serde(skip)]
    pub(super) counts_shared_again: bool,
    #[serde(skip)]
    pub(super) peak: Peak,
    /// Number of processes that may belong to the run but were not counted.
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

    /// Returns the ratio of the coverage's memory to the peak; `None` if one of them is unknown.
    pub fn coverage_of_peak(&self) -> Option<f64> {
        let (peak, coverage) = (self.peak_resident_bytes?, self.coverage.as_ref()?);
        (peak > 0).then(|| (coverage.resident().bytes() as f64 / peak as f64).min(1.0))
    }

    /// Returns a lower bound of the bytes at the peak, if known.
    pub fn least_peak(&self) -> Option<u64> {
        self.peak_resident_bytes.or(self.peak_at_least_bytes)
    }

    /// Drops a coverage of less than [`NEAR_PEAK`] of the peak, because it does not represent the memory at the peak.
    pub fn forget_partial_look(&mut self) {
        let counted = self.coverage.as_ref().map(|coverage| coverage.resident().bytes() as f64);
        let looked = counted.zip(self.least_peak());
        if looked.is_some_and(|(counted, peak)| counted < NEAR_PEAK * peak as f64) {
            (self.coverage, self.zero_filled_bytes) = (None, None);
        }
    }

    /// Adds the kernel's result at the end of a run: the largest resident set of any process. The kernel starts that
    /// value with this process's size at the fork, so a value that small proves nothing. The value excludes pages of a
    /// pool.
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

    /// Drops a coverage beyond the maximum possible. Before Linux 6.7 processes are read one by one, so shared memory
    /// may have been counted twice.
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

    /// Inserts a moment in time order, because a process may report a moment in the past.
    pub(super) fn note(&mut self, moment: Moment) {
        let is_before = |other: &Moment| other.seconds <= moment.seconds;
        let place = self.timeline.iter().rposition(is_before).map_or(0, |place| place + 1);
        self.timeline.insert(place, moment);
        if self.timeline.len() >= 2 * MAX_POINTS {
            thin(&mut self.timeline);
        }
    }
}

/// Drops every second moment but the last. Drops only ticks, unless there are too many looks too.
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

// Computes coverage over time and at the end, from the looks of a watch. Pure.
//
// A look represents the time until halfway to its neighbours. If two neighbours have about the same result, the time
// between them is known. Otherwise a long time without a look makes the mean unknown.
// See docs/decisions/watch.md#6.

/// Coverage at times other than the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    /// Share of resident memory on superpages: the mean over the run, weighted by time.
    #[serde(deserialize_with = "units::share")]
    pub mean_coverage: Option<f64>,
    /// Memory at the end. Among the looks in the last fifth of the run (at least 50 ms), the last look that found the
    /// most memory: a program may free memory object by object before it ends.
    pub end: Option<Moment>,
    /// The longest time without a look; `null` if mean and end are known.
    pub gap: Option<Gap>,
}

/// A period without a look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Gap {
    /// Start, in seconds since the start of the program.
    #[serde(deserialize_with = "units::seconds")]
    pub from_seconds: f64,
    /// End, in seconds since the start of the program.
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

/// Share of the run without a look above which the mean is unknown.
const LONGEST_GAP: f64 = 0.5;
/// Difference between two looks up to which nothing is assumed to have happened in between.
const ALIKE: f64 = 0.05;
/// Share of a run that counts as its end.
const END: f64 = 0.2;
/// Minimum length of a run's end, in seconds.
const SHORTEST_END: f64 = 0.05;
/// Memory of at least this share of the maximum counts as the maximum.
const MOST: f64 = 0.98;

impl OverTime {
    /// Computes coverage over a run; `timeline` is in time order.
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

    /// Computes coverage over a run that cannot have had superpages: every moment, including ticks, counts as a look
    /// that found none.
    pub(super) fn without_superpages(timeline: &[Moment], run_seconds: f64) -> Self {
        let none = |moment: &Moment| Moment { superpage_bytes: Some(0), ..*moment };
        let moments: Vec<Moment> = timeline.iter().map(none).collect();
        Self::new(&moments, run_seconds)
    }

    /// Returns the share of resident memory on superpages at the end.
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

/// Returns the longest of the times before the first look, after the last, and between two looks that differ.
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

// Reads records of the program's processes: looks at their own memory, and their ends.
//
// One process's look represents the run if all other processes held almost nothing at the last tick. Otherwise the
// look is only a lower bound of the run's memory. See docs/decisions/watch.md#5.

/// Maximum number of processes whose lifetimes are remembered.
const MAX_LIVES: usize = 1024;
/// Time for which a lifetime is remembered after the process ended.
const REMEMBERED: Duration = Duration::from_millis(200);
/// All other processes together may hold at most 1/OTHERS of the process's memory.
const OTHERS: u64 = 8;

pub(super) struct Own {
    looks: OwnLooks,
    /// Start of the program, by the clock of the records.
    started: Duration,
    /// Processes that ended since the last query, with their maximum memory in bytes.
    ended: Vec<(Pid, u64)>,
    /// Reported lifetimes of processes.
    lives: BTreeMap<Pid, Life>,
    /// Number of processes that reported themselves, that no tick saw, and that are not yet counted as unseen.
    never_seen: u64,
}

impl Own {
    /// Maps the records; `None` if the counters cannot be read.
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

/// Converts an instant to the clock of the records. On a busy machine this thread may lose its CPU between two
/// readings, so the closest pair of several is used.
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

    /// Returns facts about processes that ended since the last tick, from the kernel or from the processes themselves.
    pub(super) fn ends(&mut self, unseen: u64) -> Ends {
        let mut ends = self.members.ends(unseen, self.is_long());
        let hears_kernel = self.members.hears_ends();
        if let Some(own) = &mut self.own {
            ends.lives.clone_from(&own.lives);
            // Forget ended processes, because their pids are eventually reused.
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

// The processes of a run that add to its counters.

pub(super) struct Attached {
    mark: Option<Mark>,
    processes: BTreeMap<Pid, Attachment>,
    /// Number of processes that executed another program before they had added to the counters.
    left: usize,
}

struct Attachment {
    /// Name of the command when the process's mappings were last read.
    name: String,
    since: Instant,
    read: Instant,
    is_attached: bool,
    /// Number of consecutive reads that found the library but not the counters.
    misses: u32,
}

/// After one miss, the process may be about to attach.
const MISSES: u32 = 2;

impl Attached {
    pub(super) fn new(mark: Option<Mark>) -> Self {
        Self { mark, processes: BTreeMap::new(), left: 0 }
    }

    /// Reads the mappings of a process when it is first seen or executed another program. Repeats at growing intervals
    /// until the process is attached, because the library may not be loaded yet.
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

    /// Returns the number of processes that have loaded the library and do not add to the counters.
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

    /// Returns looks from (seconds, resident bytes, bytes on superpages).
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
        // Coverage is 0 for a tenth of the time, with frequent looks, and then 1.
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
