//! Watching a running process tree: what it holds, and on which pages.
//!
//! Owns one thread per watched run. A *tick* reads `/proc/PID/status` of every process (tens of microseconds
//! each) and never holds the program up. A *look* counts what lies on which pages, each page once, by
//! [`Census`]: the kernel holds the address space's lock for 0.1 ms at a time. Kernels without PAGEMAP_SCAN
//! are looked at through smaps, which holds it for as long as a mapping takes, and only where that is expected
//! to be short.
//!
//! A thorough watch (warm-up runs) looks often. A watch within budget (measured runs, `run`) looks when the
//! program holds more than at the last look: at once where it has stopped growing, now and then while it grows.

mod attached;

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::coverage::{Census, Counted, Coverage};
use machine::{Root, process, waste};

use crate::family::Family;
use crate::ledger_file::Mark;
use attached::Attached;
use serde::{Deserialize, Serialize};
use sys::param::thread_cpu_time;
use units::{ByteSize, Pid};

/// How much a watch may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Depth {
    /// See as much as possible: the run's time does not count.
    Thorough,
    /// Spend at most [`budget`] of the run's time.
    WithinBudget,
    /// The same, and never look: a run whose single accesses are timed must not be held up once.
    TicksOnly,
}

/// Share of the time of the CPUs, of at most [`MOST_CPUS`], that ticks and looks may take together.
const BUDGET: f64 = 0.008;
const MOST_CPUS: usize = 4;
/// What a program of a few tenths of a second may cost beyond that, so that it is seen at all.
const CREDIT: Duration = Duration::from_micros(500);
/// Between ticks, at least; while the credit lasts, a quarter of the time passed.
const PAUSE: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest that a look through smaps may be expected to hold a measured run up.
pub const LONGEST_STALL: Duration = Duration::from_millis(1);
/// What a look costs, to begin with: 1.4 ms for 1 GiB of base pages on a Xeon guest.
const SECONDS_PER_BASE_BYTE: f64 = 2e-3 / (1u64 << 30) as f64;
/// The same through smaps: 16 to 29 ms on a Zen 4 guest and 3.5 ms on a Cascade Lake one; superpages cost next to
/// nothing either way.
const SMAPS_SECONDS_PER_BASE_BYTE: f64 = 20e-3 / (1u64 << 30) as f64;
/// Reading the mappings of one small process.
const SECONDS_PER_PROCESS: f64 = 0.2e-3;
/// Sampling superpages for zero pages: 512 reads of 1.4 us, and a scan.
const ZERO_PRICE: Duration = Duration::from_micros(1000);
/// Where the resident size is within this share of what it was a tick ago, it has stopped growing.
const STEADY: f64 = 0.01;
/// A look that found at least this share of the peak speaks for it; by less, nothing is judged.
pub const NEAR_PEAK: f64 = 0.8;
/// A run of fewer seconds may have been at its peak between ticks.
const SHORT_RUN: f64 = 0.1;
/// A timeline is thinned to this many points.
const MOST_POINTS: usize = 240;

/// What the tree held at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Seconds since the program was started.
    pub seconds: f64,
    /// Resident bytes of all its processes, hugetlb included.
    pub resident_bytes: u64,
    /// Of these on superpages; `null` when only a tick was made.
    pub superpage_bytes: Option<u64>,
}

/// What a watch saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The largest resident size, hugetlb included, what several processes share counted once: what was
    /// seen, or the kernel's high-water mark of one process if that is more; `null` if the run was too short.
    pub peak_resident_bytes: Option<u64>,
    /// Coverage at the last look that found (nearly) most; see [`Observed::coverage_of_peak`].
    pub coverage: Option<Coverage>,
    /// Superpage memory that was all zero at that look, estimated by sampling.
    #[serde(alias = "wasted_bytes")]
    pub zero_filled_bytes: Option<u64>,
    /// Whether every process had THP disabled and no hugetlb page, at every tick; `null` if no tick
    /// saw any.
    pub base_pages_only: Option<bool>,
    /// Resident size over time.
    pub timeline: Vec<Moment>,
    /// Looks made.
    pub looks: u32,
    /// CPU seconds spent watching.
    pub watch_seconds: f64,
    /// CPU seconds the longest look took: about the most it can have held the program up.
    pub longest_look_seconds: f64,
    /// Why something above is unknown, if the kernel said so.
    pub unknown: Option<String>,
    /// Processes seen that have the library in them and do not add to the run's ledger.
    #[serde(skip)]
    pub uncounted: usize,
    /// Whether any process held pages of a pool at a tick.
    #[serde(skip)]
    saw_pool: bool,
}

impl Observed {
    /// How large a share of the peak the coverage is of; `None` if one of them is unknown.
    pub fn coverage_of_peak(&self) -> Option<f64> {
        let (peak, coverage) = (self.peak_resident_bytes?, self.coverage.as_ref()?);
        (peak > 0).then(|| (coverage.resident().bytes() as f64 / peak as f64).min(1.0))
    }

    /// Takes in what the kernel says at the end of a run that took `wall_seconds`: the largest resident set of
    /// any of its processes. The kernel begins it with what this process held at the fork, so nothing that
    /// small is believed; and pages of a pool, if some were to be used, are not in it. Where it does not
    /// help, and the program was not seen towards its end, the peak is unknown.
    pub fn conclude(&mut self, root: &Root, max_rss: ByteSize, wall_seconds: f64, uses_pool: bool) {
        let last = self.timeline.last().map_or(0.0, |moment| moment.seconds);
        let was_seen = wall_seconds >= SHORT_RUN && last >= 0.8 * wall_seconds;
        let own = process::status(root, sys::param::own_pid()).ok().and_then(|own| own.peak_rss);
        let is_believed = own.is_some_and(|own| max_rss > own);
        if is_believed {
            self.peak_resident_bytes = self.peak_resident_bytes.max(Some(max_rss.bytes()));
        }
        let is_all = if uses_pool { self.saw_pool } else { is_believed };
        if !is_all && !was_seen {
            self.peak_resident_bytes = None;
        }
    }
}

/// A watch under way.
#[derive(Debug)]
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Observed>,
}

impl Watch {
    /// Starts watching `family`, whose program was started at `since` and adds to the ledger of `mark`.
    pub fn start(
        root: Root,
        family: Family,
        since: Instant,
        depth: Depth,
        seed: u64,
        mark: Option<Mark>,
    ) -> Self {
        let (stop, stopped) = channel();
        let watcher = Watcher {
            census: None,
            root,
            family,
            since,
            depth,
            seed,
            members: Vec::new(),
            newest_pid: None,
            spent: Duration::ZERO,
            dearer: 1.0,
            looked: None,
            before: None,
            attached: Attached::new(mark),
            seen: Observed::default(),
        };
        let thread = std::thread::spawn(move || watcher.run(&stopped));
        Self { stop, thread }
    }

    /// Ends the watch. Call while the process is still a zombie, so that its pid means it.
    pub fn stop(self) -> Observed {
        let _ = self.stop.send(());
        self.thread.join().expect("a watch does not panic")
    }
}

struct Watcher {
    census: Option<Census>,
    root: Root,
    family: Family,
    since: Instant,
    depth: Depth,
    seed: u64,
    members: Vec<Pid>,
    /// The newest pid on the machine when `members` was read: while it stays, nobody was born.
    newest_pid: Option<Pid>,
    spent: Duration,
    /// How many times dearer than priced looks are.
    dearer: f64,
    looked: Option<Looked>,
    /// What was held a tick ago, in all.
    before: Option<u64>,
    attached: Attached,
    seen: Observed,
}

/// The last look.
struct Looked {
    at: Instant,
    members: Vec<Pid>,
    /// What the tick before it found, where a page counts for each process that maps it.
    held: u64,
    /// What the look found, where it counts once.
    counted: u64,
    base_bytes: u64,
}

/// What a tick found.
#[derive(Clone, Copy, Default)]
struct Held {
    /// A page counts for each process that maps it.
    resident: u64,
    /// The largest of the processes.
    largest: u64,
}

impl Watcher {
    fn run(mut self, stopped: &Receiver<()>) -> Observed {
        if self.depth != Depth::TicksOnly {
            self.census = Census::of(&self.root, sys::param::own_pid());
        }
        loop {
            // CPU time: waiting for a lock that the program holds costs the program nothing.
            let began = thread_cpu_time();
            let held = self.tick();
            let ticked = thread_cpu_time().saturating_sub(began);
            if self.wants_look(held) {
                self.look(held);
            }
            self.before = Some(held.resident);
            let took = thread_cpu_time().saturating_sub(began);
            self.spent += took;
            let rest = match self.spent < CREDIT {
                // A program may be at its peak for milliseconds and end.
                true => (self.since.elapsed() / 4).clamp(FIRST_PAUSE, PAUSE),
                false => pause(self.depth, ticked, took),
            };
            match stopped.recv_timeout(rest) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.seen.watch_seconds = self.spent.as_secs_f64();
        self.seen.uncounted = self.attached.missing();
        self.seen
    }

    fn tick(&mut self) -> Held {
        self.renew_members();
        let mut held = Held::default();
        let (mut high_water, mut base_only) = (0, true);
        for pid in self.members.clone() {
            let Ok(process) = process::status(&self.root, pid) else { continue };
            self.attached.note(&self.root, pid, &process.name);
            let bytes = |part: Option<ByteSize>| part.map_or(0, ByteSize::bytes);
            let total = process.total().map_or(0, ByteSize::bytes);
            held.resident += total;
            held.largest = held.largest.max(total);
            high_water = high_water.max(bytes(process.peak_rss));
            self.seen.saw_pool |= bytes(process.hugetlb) > 0;
            base_only &= process.thp_enabled == Some(false) && bytes(process.hugetlb) == 0;
        }
        if held.resident > 0 {
            self.seen.base_pages_only =
                Some(base_only && self.seen.base_pages_only.unwrap_or(true));
            let once = self.counted_once(held);
            self.raise_peak(once.max(high_water));
            self.note(once, None);
        }
        held
    }

    /// What is held, where a page counts once: as at the last look, or at least.
    fn counted_once(&self, held: Held) -> u64 {
        if self.members.len() < 2 || self.census.is_none() {
            return held.resident;
        }
        match &self.looked {
            Some(looked) if looked.members == self.members => {
                let share = looked.counted as f64 / looked.held as f64;
                (held.resident as f64 * share.min(1.0)) as u64
            }
            Some(looked) => held.largest.max(held.resident.min(looked.counted)),
            None => held.largest,
        }
    }

    fn raise_peak(&mut self, bytes: u64) {
        self.seen.peak_resident_bytes = self.seen.peak_resident_bytes.max(Some(bytes));
    }

    /// Reads the members anew only if a process was born anywhere since (`/proc/loadavg`, field 5):
    /// finding children costs a read per process on kernels without CONFIG_PROC_CHILDREN.
    fn renew_members(&mut self) {
        let newest = process::newest_pid(&self.root).ok();
        if newest.is_none() || newest != self.newest_pid {
            self.members = self.family.members();
            self.newest_pid = newest;
        }
    }

    fn wants_look(&self, held: Held) -> bool {
        let (Some(before), true) = (self.before, held.resident > 0) else { return false };
        let Some(looked) = &self.looked else {
            return self.depth == Depth::Thorough || self.affords(self.price(held), 1.0);
        };
        let is_higher = held.resident as f64 > looked.held as f64 * 1.02 + f64::from(1 << 20);
        if self.depth == Depth::Thorough {
            return is_higher || looked.at.elapsed() > Duration::from_millis(100);
        }
        let is_steady = held.resident.abs_diff(before) as f64 <= STEADY * held.resident as f64;
        // What lies where may change while the size stays.
        let is_old = self.since.elapsed() > 2 * (looked.at - self.since);
        let is_old = is_old && held.resident as f64 >= 0.98 * looked.held as f64;
        let share = if is_higher && is_steady { 1.0 } else { 0.5 };
        (is_higher || is_old) && self.affords(self.price(held), share)
    }

    /// Whether that much more may be spent, of so large a share of the budget.
    fn affords(&self, price: Duration, share: f64) -> bool {
        match self.depth {
            Depth::Thorough => return true,
            Depth::TicksOnly => return false,
            Depth::WithinBudget => {}
        }
        let is_short = self.census.is_some() || price <= LONGEST_STALL;
        let budget = self.since.elapsed().mul_f64(budget() * share) + CREDIT;
        is_short && self.spent + price <= budget
    }

    fn price(&self, held: Held) -> Duration {
        let base_at_most = self.looked.as_ref().map_or(held.resident, |looked| {
            looked.base_bytes + held.resident.saturating_sub(looked.held)
        });
        let per_byte = match self.census {
            Some(_) => SECONDS_PER_BASE_BYTE,
            None => SMAPS_SECONDS_PER_BASE_BYTE,
        };
        let seconds =
            SECONDS_PER_PROCESS * self.members.len() as f64 + per_byte * base_at_most as f64;
        Duration::from_secs_f64(seconds * self.dearer)
    }

    fn look(&mut self, held: Held) {
        let (price, cpu_began) = (self.price(held), thread_cpu_time());
        let Counted { coverage, base_bytes, missing } = match &self.census {
            Some(census) => census.count(&self.members),
            None => self.through_smaps(),
        };
        let took = thread_cpu_time().saturating_sub(cpu_began).as_secs_f64();
        self.seen.longest_look_seconds = self.seen.longest_look_seconds.max(took);
        let dearer = self.dearer * took / price.as_secs_f64();
        self.dearer = ((self.dearer + dearer) / 2.0).clamp(0.25, 16.0);
        self.seen.unknown = missing.or(self.seen.unknown.take());
        let counted = coverage.resident().bytes();
        self.looked = Some(Looked {
            at: Instant::now(),
            members: self.members.clone(),
            held: held.resident,
            counted,
            base_bytes,
        });
        if counted == 0 {
            return; // all of them ended meanwhile
        }
        self.seen.looks += 1;
        self.note(counted, Some(coverage.superpage_bytes().bytes()));
        self.raise_peak(counted);
        let most = self.seen.coverage.as_ref().map_or(0, |most| most.resident().bytes());
        if counted as f64 >= 0.98 * most as f64 {
            let affords_zeroes = self.affords(Duration::from_secs_f64(took) + ZERO_PRICE, 0.5);
            self.seen.zero_filled_bytes =
                if affords_zeroes { self.all_zero(&coverage) } else { None };
            self.seen.coverage = Some(coverage);
        }
    }

    fn through_smaps(&self) -> Counted {
        let mut counted = Counted::default();
        for pid in &self.members {
            match Coverage::of_process(&self.root, *pid) {
                Ok(coverage) => counted.coverage += coverage,
                Err(error) if error.is_gone() => {}
                Err(error) => counted.missing = Some(error.to_string()),
            }
        }
        let coverage = &counted.coverage;
        counted.base_bytes = coverage.resident().bytes() - coverage.superpage_bytes().bytes();
        counted
    }

    /// How much of the superpages is zero, by a sample.
    fn all_zero(&mut self, coverage: &Coverage) -> Option<u64> {
        if coverage.superpage_bytes() == ByteSize(0) {
            return Some(0);
        }
        let samples = waste::DEFAULT_SAMPLES / self.members.len().clamp(1, 16) as u32;
        let mut sum = 0;
        for pid in self.members.clone() {
            match waste::sample(&self.root, pid, samples, self.seed) {
                Ok(found) => sum += found.wasted?.bytes(),
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    self.seen.unknown = Some(error.to_string());
                    return None;
                }
            }
        }
        Some(sum)
    }

    fn note(&mut self, resident_bytes: u64, superpage_bytes: Option<u64>) {
        let seconds = self.since.elapsed().as_secs_f64();
        self.seen.timeline.push(Moment { seconds, resident_bytes, superpage_bytes });
        if self.seen.timeline.len() >= 2 * MOST_POINTS {
            thin(&mut self.seen.timeline);
        }
    }
}

/// How much of one CPU's time a watch may take: it runs beside the program, on another one where there are several.
pub fn budget() -> f64 {
    static CPUS: OnceLock<usize> = OnceLock::new();
    let cpus = CPUS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    BUDGET * (*cpus).min(MOST_CPUS) as f64
}

/// How long to rest after a tick, and what a look made of it. Ticks take half the budget at most, and a look
/// is paid for before it is made; a warm-up may be slowed down, but not held up most of the time.
fn pause(depth: Depth, ticked: Duration, took: Duration) -> Duration {
    match depth {
        Depth::Thorough => Duration::from_millis(10).max(took * 4),
        Depth::WithinBudget | Depth::TicksOnly => PAUSE.max(ticked.div_f64(budget() / 2.0)),
    }
}

/// Drops every second moment but the last: ticks only, unless there are too many looks as well.
fn thin(timeline: &mut Vec<Moment>) {
    let last = timeline.len() - 1;
    let looks = timeline.iter().filter(|moment| moment.superpage_bytes.is_some()).count();
    let keeps_looks = looks < MOST_POINTS;
    let mut index = 0;
    timeline.retain(|moment| {
        index += 1;
        (keeps_looks && moment.superpage_bytes.is_some()) || index % 2 == 0 || index > last
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn watch(depth: Depth, script: &str) -> Observed {
        let since = Instant::now();
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let family = Family::of_child(Root::real(), Pid(child.id() as i32));
        let watch = Watch::start(Root::real(), family, since, depth, 1, None);
        sys::wait::until_exit(Pid(child.id() as i32)).unwrap();
        let seen = watch.stop();
        child.wait().unwrap();
        seen
    }

    #[test]
    fn sees_children_and_their_memory() {
        // The shell holds a few MB at most; the child's 64 MB string is found through the tree.
        let script = "head -c 64000000 /dev/zero | tail -c 64000000 | (sleep 0.3; cat) >/dev/null";
        let seen = watch(Depth::Thorough, script);
        assert!(seen.peak_resident_bytes.unwrap() > 48 << 20, "{seen:?}");
        assert!(seen.looks >= 1 && seen.coverage.is_some(), "{seen:?}");
        assert!(seen.timeline.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
    }

    #[test]
    fn ticks_leave_half_the_budget_to_looks_however_long_they_take() {
        for micros in [1, 50, 1_000, 100_000] {
            let took = Duration::from_micros(micros);
            let share = took.as_secs_f64() / pause(Depth::WithinBudget, took, took).as_secs_f64();
            assert!(share <= budget() / 2.0 + 1e-9, "{micros} us: {share}");
        }
        assert!(
            pause(Depth::Thorough, Duration::ZERO, Duration::from_millis(25))
                >= Duration::from_millis(100)
        );
    }

    #[test]
    fn a_measured_run_is_seen_too() {
        // Where much else runs, a watcher may get no turn in so short a time.
        let seen = |depth| {
            let mut runs = (0..5).map(|_| watch(depth, "sleep 0.3"));
            runs.find(|seen| seen.peak_resident_bytes.is_some()).expect("a turn in five runs")
        };
        let measured = seen(Depth::WithinBudget);
        assert!(measured.base_pages_only.is_some(), "{measured:?}");
        assert_eq!(seen(Depth::TicksOnly).looks, 0);
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
