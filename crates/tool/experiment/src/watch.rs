//! Watches a running process tree: how much memory it has, and on which pages.
//!
//! Each watched run has one thread. A *tick* reads `/proc/PID/status` of every process (tens of microseconds each) and
//! never stalls the program. A *look* counts the memory by page size with [`Census`], each page once: the kernel holds
//! the address space's lock for 0.1 ms at a time. On kernels without PAGEMAP_SCAN a look uses smaps, which holds the
//! lock for a whole mapping, and happens only if that is expected to be short.
//!
//! A thorough watch (warm-up runs) looks often. A watch within budget (measured runs, `run`) looks when (`members::Facts`)
//! the program has stopped growing. Cost of looks: docs/decisions/watch.md#4.

mod bounds;
mod members;
mod observed;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use host::coverage::{Census, Counted, Coverage};
use host::{Root, waste};

use crate::counters::CounterFile;
use crate::process_tree::ProcessTree;
use bounds::{Bounds, Part, Range};
pub use members::BUDGET;
use members::Members;
use members::{Facts, Reason};
use observed::Attached;
use observed::Own;
pub use observed::{Gap, OverTime};
pub use observed::{Killed, Moment, Observed};
use sys::param::thread_cpu_time;
use units::{ByteSize, Pid};

/// Permitted cost of a watch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Depth {
    /// See as much as possible, because no verdict uses the run's time.
    Thorough,
    /// Spend at most [`BUDGET`] of the run's time.
    WithinBudget,
    /// Stay within [`BUDGET`] and make no looks, because a run that times single accesses must never be stalled.
    TicksOnly,
}

/// Maximum expected stall of a measured run by a look through smaps.
pub const MAX_STALL: Duration = Duration::from_millis(1);
/// Initial estimate of a look's cost, in seconds per byte: 1.4 ms for 1 GiB of base pages on a Xeon guest.
const SECONDS_PER_BASE_BYTE: f64 = 2e-3 / (1u64 << 30) as f64;
/// Initial estimate of the cost of a look through smaps, in seconds per byte: 16 to 29 ms for 1 GiB of base pages on
/// a Zen 4 guest, 3.5 ms on a Cascade Lake one. Superpages cost almost nothing in either kind of look.
const SMAPS_SECONDS_PER_BASE_BYTE: f64 = 20e-3 / (1u64 << 30) as f64;
/// Seconds to read the mappings of one small process.
const SECONDS_PER_PROCESS: f64 = 0.2e-3;
/// Cost of sampling superpages for zero pages: 512 reads of 1.4 us, and a scan.
const ZERO_PRICE: Duration = Duration::from_micros(1000);
/// If the last tick is older than this, a process may have reached its peak and ended unseen.
const LONG_SPAN: Duration = Duration::from_millis(100);
/// A look that found at least this share of the peak represents the peak; with less, nothing is judged.
pub const NEAR_PEAK: f64 = 0.8;
/// Share of the peak at which a look counts as a look at the peak.
pub const AT_PEAK: f64 = 0.95;
/// A look that found at least this share of the largest look's memory is at the same level.
const LIKE_MOST: f64 = 0.98;

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    stop: Sender<()>,
    /// The watching thread, or why it could not be started.
    thread: std::io::Result<JoinHandle<Observed>>,
}

impl Watch {
    /// Starts watching `tree`, whose program was started at `since` and adds to `counters`.
    pub fn start(
        root: Root,
        tree: ProcessTree,
        since: Instant,
        depth: Depth,
        seed: u64,
        counters: Option<&CounterFile>,
    ) -> Self {
        let (stop, stopped) = channel();
        let own = counters.and_then(|counters| Own::new(counters, &root, since));
        let watcher = Watcher {
            census: None,
            members: Members::new(root.clone(), tree),
            bounds: Bounds::new(root.page_size().bytes()),
            root,
            since,
            depth,
            seed,
            spent_ticking: Duration::ZERO,
            spent_looking: Duration::ZERO,
            spent_growing: Duration::ZERO,
            dearer: 1.0,
            looked: None,
            before: None,
            level: None,
            faults: None,
            attached: Attached::new(counters.map(CounterFile::mark)),
            own,
            coverage_at: Duration::ZERO,
            zeroes: None,
            seen: Observed::default(),
        };
        let thread = Builder::new().spawn(move || watcher.run(&stopped));
        Self { stop, thread }
    }

    /// Ends the watch. Call it while the process is still a zombie, so that its pid is not reused.
    pub fn stop(self) -> Observed {
        let _ = self.stop.send(());
        match self.thread {
            Ok(thread) => thread.join().expect("a watch does not panic"),
            Err(error) => {
                let unknown = Some(format!("a thread cannot be started: {error}"));
                Observed { unknown, ..Observed::default() }
            }
        }
    }
}

struct Watcher {
    census: Option<Census>,
    root: Root,
    members: Members,
    bounds: Bounds,
    since: Instant,
    depth: Depth,
    seed: u64,
    spent_ticking: Duration,
    spent_looking: Duration,
    /// Part of `spent_looking` spent on looks at a growing program.
    spent_growing: Duration,
    /// Ratio of the actual cost of looks to the estimated cost.
    dearer: f64,
    looked: Option<Looked>,
    /// The last tick: time since the start, and total memory in bytes.
    before: Option<(Duration, u64)>,
    /// Start of the current level, and bytes of memory then.
    level: Option<(Duration, u64)>,
    /// Start of a level, and number of faults until then.
    faults: Option<(Duration, u64)>,
    attached: Attached,
    own: Option<Own>,
    /// Time of the look that gave the coverage, since the start.
    coverage_at: Duration,
    zeroes: Option<Zeroes>,
    seen: Observed,
}

struct Looked {
    /// Time since the start of the program.
    at: Duration,
    /// Bytes at the tick before the look; a page counts for each process that maps it.
    held: u64,
    base_bytes: u64,
}

#[derive(Clone, Copy)]
struct Zeroes {
    /// Time since the start of the program.
    at: Duration,
    /// Bytes on superpages at that time.
    superpages: u64,
    /// Bytes of these superpages that are zero-filled.
    zero: u64,
}

impl Zeroes {
    /// Returns whether about the same number of bytes were on superpages when this sample was taken.
    fn is_of(&self, superpages: u64) -> bool {
        self.superpages.abs_diff(superpages) <= superpages / 20
    }
}

#[derive(Clone, Copy, Default)]
struct Held {
    /// Resident bytes; a page counts for each process that maps it.
    resident: u64,
    /// Anonymous bytes; a page counts for each process that maps it.
    anon: u64,
    /// Bytes of shared memory of the process that has most of it.
    shmem: u64,
    /// Bytes of file pages, summed over all processes.
    file: u64,
    /// Bounds of the bytes with each page counted once.
    once: Range,
}

impl Watcher {
    fn run(mut self, stopped: &Receiver<()>) -> Observed {
        self.members.listen();
        if self.depth != Depth::TicksOnly {
            self.census = Census::new(&self.root, sys::param::own_pid());
            // Ask processes to read their own memory only if the kernel lets this process read its own.
            if let (Some(own), Some(_)) = (&self.own, &self.census) {
                own.ask();
            }
        }
        // Count CPU time: waiting for a lock that the program holds costs the program nothing. The time of the set-up
        // is reported, but not charged to the budget, because a short program needs the whole budget.
        let mut began = thread_cpu_time();
        let beginning = began;
        let mut ticked_before = Duration::MAX;
        loop {
            let tick_began = thread_cpu_time();
            let held = self.tick();
            let ticked = thread_cpu_time().saturating_sub(tick_began);
            let mut looked = Duration::ZERO;
            if let Some(reason) = self.wants_look(held) {
                let look_began = thread_cpu_time();
                self.look(held);
                looked = thread_cpu_time().saturating_sub(look_began);
                self.spent_growing +=
                    if reason == Reason::Growing { looked } else { Duration::ZERO };
            }
            let now = thread_cpu_time();
            let took = now.saturating_sub(std::mem::replace(&mut began, now));
            self.spent_looking += looked;
            self.spent_ticking += took.saturating_sub(looked);
            // Use the shorter of two ticks: one tick that took long by chance must not blind the watch.
            let rest = members::pause(ticked.min(ticked_before), self.since.elapsed());
            let rest = match self.depth {
                // A thorough watch may slow the program down, but must not stall it most of the time.
                Depth::Thorough => rest.min(Duration::from_millis(10)).max(took * 4),
                _ => rest,
            };
            ticked_before = ticked;
            match stopped.recv_timeout(rest) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if self.members.pids().len() > 1 {
            self.tick(); // some processes may outlive the first
        }
        let run_seconds = self.since.elapsed().as_secs_f64();
        let unseen = self.members.renew();
        self.read_own_looks(true);
        let ends = self.ends(unseen);
        let timeline = &self.seen.timeline;
        let saw_superpages = timeline.iter().any(|it| it.superpage_bytes.is_some_and(|it| it > 0));
        self.seen.over_time = match self.seen.base_pages_only == Some(true) && !saw_superpages {
            true => OverTime::without_superpages(timeline, run_seconds),
            false => OverTime::new(timeline, run_seconds),
        };
        self.seen.lost = self.members.lost();
        self.seen.killed = self.members.killed();
        self.seen.peak = self.bounds.end(&ends);
        let spent = beginning + self.spent_ticking + self.spent_looking;
        self.seen.watch_seconds = spent.as_secs_f64();
        self.seen.uncounted = self.attached.missing();
        self.seen
    }

    fn tick(&mut self) -> Held {
        let unseen = self.members.renew();
        self.read_own_looks(false);
        let mut held = Held::default();
        let (mut parts, mut base_only) = (Vec::new(), true);
        for pid in self.members.pids().to_vec() {
            let Ok(process) = self.members.status(pid) else { continue };
            if process.rss.is_none() {
                continue; // the process has ended
            }
            self.attached.note(&self.root, pid, &process.name);
            let bytes = |part: Option<ByteSize>| part.map_or(0, ByteSize::bytes);
            let pool = bytes(process.hugetlb);
            held.resident += process.total().map_or(0, ByteSize::bytes);
            held.anon += bytes(process.anon.or(process.rss));
            held.shmem = held.shmem.max(bytes(process.shmem));
            held.file += bytes(process.file);
            self.seen.saw_pool |= pool > 0;
            if process.thp_enabled == Some(false) {
                self.seen.without_thp = Some(process.name.clone());
            }
            base_only &= process.thp_enabled == Some(false) && pool == 0;
            let stat = self.members.stat(pid, self.bounds.wants_stat(pid));
            parts.push(Part {
                parent: self.members.parent(pid),
                image: stat.as_ref().map(|stat| stat.stack_start).filter(|start| *start != 0),
                faults: stat.as_ref().map(|stat| stat.minor_faults),
                ..Part::new(pid, &process)
            });
        }
        let ends = self.ends(unseen);
        held.once = self.bounds.tick(&parts, &ends);
        if held.resident > 0 {
            self.seen.base_pages_only =
                Some(base_only && self.seen.base_pages_only.unwrap_or(true));
            self.note(held.once.middle().unwrap_or(held.once.at_least), None);
        }
        self.note_level(held.resident);
        held
    }

    /// Returns whether processes may have reached their peak and ended since the last tick.
    fn is_long(&self) -> bool {
        let last = self.before.map_or(Duration::ZERO, |(at, _)| at);
        self.since.elapsed() - last > LONG_SPAN
    }

    fn note_level(&mut self, held: u64) {
        let before = self.before.replace((self.since.elapsed(), held));
        let steady = before.filter(|(_, before)| members::is_steady(*before, held));
        let level = self.level.filter(|(_, since)| held.abs_diff(*since) <= held / 20);
        self.level = steady.map(|before| level.unwrap_or(before));
    }

    fn wants_look(&mut self, held: Held) -> Option<Reason> {
        let facts = self.facts(held);
        let reason = facts.reason();
        match self.depth {
            Depth::TicksOnly => None,
            Depth::Thorough => {
                let old = Duration::from_millis(100);
                let is_old = self.looked.as_ref().is_none_or(|it| facts.elapsed > it.at + old);
                reason.or((is_old && held.resident > 0).then_some(Reason::Old))
            }
            Depth::WithinBudget => {
                let reason = reason?;
                let base = self.base_at_most(held);
                if self.affords(held, reason, self.price(base)) {
                    return Some(reason);
                }
                let base = base.min(self.read_once_at_most(held)?);
                self.affords(held, reason, self.price(base)).then_some(reason)
            }
        }
    }

    fn facts(&self, held: Held) -> Facts {
        let elapsed = self.since.elapsed();
        Facts {
            elapsed,
            held: held.resident,
            level_for: self.level.map_or(Duration::ZERO, |(since, _)| elapsed - since),
            looked: self.looked.as_ref().map(|looked| (looked.at, looked.held)),
            spent: self.spent_looking + members::charged(self.spent_ticking, elapsed),
            spent_growing: self.spent_growing,
        }
    }

    /// Returns whether the budget permits a look or a sample of that price.
    fn affords(&self, held: Held, reason: Reason, price: Duration) -> bool {
        let is_short = self.census.is_some() || price <= MAX_STALL;
        self.depth == Depth::Thorough || is_short && self.facts(held).affords(reason, price, BUDGET)
    }

    /// Returns an upper bound of the bytes in base pages: the base pages counted at the last look, plus all
    /// memory added since.
    fn base_at_most(&self, held: Held) -> u64 {
        self.looked.as_ref().map_or(held.resident, |looked| {
            looked.base_bytes + held.resident.saturating_sub(looked.held)
        })
    }

    /// Returns an upper bound of the base pages' bytes at a level, with each page counted once, as [`Census`] reads
    /// them. A base page of anonymous memory took a fault; large folios below a superpage took fewer, and then one look
    /// costs more than expected. A forked process finds its pages mapped, without faults.
    fn read_once_at_most(&mut self, held: Held) -> Option<u64> {
        let (since, _) = self.level.filter(|_| self.census.is_some())?;
        let faults = match self.faults.filter(|(level, _)| *level == since) {
            Some((_, faults)) => faults,
            None => self.members.minor_faults()?,
        };
        self.faults = Some((since, faults));
        let faulted = faults.saturating_mul(self.root.page_size().bytes());
        Some(held.anon.min(faulted) + held.shmem + held.file)
    }

    fn price(&self, base_bytes: u64) -> Duration {
        let per_byte = match self.census {
            Some(_) => SECONDS_PER_BASE_BYTE,
            None => SMAPS_SECONDS_PER_BASE_BYTE,
        };
        let processes = self.members.pids().len() as f64;
        let seconds = SECONDS_PER_PROCESS * processes + per_byte * base_bytes as f64;
        Duration::from_secs_f64(seconds * self.dearer)
    }

    fn look(&mut self, held: Held) {
        let cpu_began = thread_cpu_time();
        let Counted { coverage, base_bytes, missing } = match &self.census {
            Some(census) => census.count(self.members.pids()),
            None => self.through_smaps(),
        };
        let took = thread_cpu_time().saturating_sub(cpu_began).as_secs_f64();
        self.seen.longest_look_seconds = self.seen.longest_look_seconds.max(took);
        self.dearer = dearer_after(self.dearer, took, self.price(base_bytes).as_secs_f64());
        self.seen.unknown = missing.or(self.seen.unknown.take());
        let counted = coverage.resident().bytes();
        self.looked = Some(Looked { at: self.since.elapsed(), held: held.resident, base_bytes });
        if counted == 0 {
            return; // all processes have ended meanwhile
        }
        self.seen.looks += 1;
        self.note(counted, Some(coverage.superpage_bytes().bytes()));
        if self.census.is_some() {
            let after = self.held_now();
            self.bounds.look(counted, &after);
        }
        let at = self.since.elapsed();
        if self.is_at_most(at, counted) {
            let price = Duration::from_secs_f64(took) + ZERO_PRICE;
            let superpages = coverage.superpage_bytes().bytes();
            let is_old =
                self.zeroes.is_none_or(|zeroes| !zeroes.is_of(superpages) || at > 2 * zeroes.at);
            if is_old && self.affords(held, Reason::Old, price) {
                let sampled = self.all_zero(&coverage);
                self.zeroes = sampled.map(|zero| Zeroes { at, superpages, zero });
            }
            self.cover(at, coverage);
            self.seen.counts_shared_again = self.census.is_none() && self.members.pids().len() > 1;
        }
    }

    /// Returns whether a look represents the peak: it found more than earlier looks, or as much at a later time.
    fn is_at_most(&self, at: Duration, counted: u64) -> bool {
        let most = self.seen.coverage.as_ref().map_or(0, |most| most.resident().bytes());
        match at >= self.coverage_at {
            true => counted as f64 >= LIKE_MOST * most as f64,
            false => counted as f64 * LIKE_MOST > most as f64,
        }
    }

    /// Stores this look as the coverage at the peak.
    fn cover(&mut self, at: Duration, coverage: Coverage) {
        let superpages = coverage.superpage_bytes().bytes();
        let zeroes = self.zeroes.filter(|zeroes| zeroes.is_of(superpages));
        let none = (superpages == 0).then_some(0);
        self.seen.zero_filled_bytes = none.or(zeroes.map(|zeroes| zeroes.zero));
        (self.seen.coverage, self.coverage_at) = (Some(coverage), at);
    }

    fn held_now(&mut self) -> Vec<Part> {
        let pids = self.members.pids().to_vec();
        let held = |pid: &Pid| {
            let process = self.members.status(*pid).ok()?;
            process.rss.map(|_| Part::new(*pid, &process))
        };
        pids.iter().filter_map(held).collect()
    }

    fn through_smaps(&self) -> Counted {
        let mut counted = Counted::default();
        for pid in self.members.pids() {
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

    /// Estimates the zero-filled bytes on superpages by a sample; file pages are not read.
    fn all_zero(&mut self, coverage: &Coverage) -> Option<u64> {
        let once = coverage.superpage_bytes().bytes() - coverage.file_pmd.bytes();
        if once == 0 {
            return Some(0);
        }
        let samples = waste::DEFAULT_SAMPLES / self.members.pids().len().clamp(1, 16) as u32;
        // The sums count shared memory once for each process that maps it.
        let (mut zero, mut of) = (0, 0);
        for pid in self.members.pids().to_vec() {
            match waste::sample(&self.root, pid, samples, self.seed) {
                Ok(found) => {
                    zero += found.wasted?.bytes();
                    of += found.superpage_bytes.bytes();
                }
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    self.seen.unknown = Some(error.to_string());
                    return None;
                }
            }
        }
        zero_part(once, zero, of)
    }

    fn note(&mut self, resident_bytes: u64, superpage_bytes: Option<u64>) {
        let seconds = self.since.elapsed().as_secs_f64();
        self.seen.note(Moment { seconds, resident_bytes, superpage_bytes });
    }
}

/// Scales the sampled share `zero / sampled` to `bytes`. Unknown without samples, if every process had ended.
fn zero_part(bytes: u64, zero: u64, sampled: u64) -> Option<u64> {
    (sampled > 0).then(|| (bytes as f64 * (zero as f64 / sampled as f64)) as u64)
}

/// Returns the new ratio of actual to estimated cost, after a look that took `took` seconds and for which the old ratio
/// predicted `priced`. It is the mean of the old ratio and this look's.
fn dearer_after(dearer: f64, took: f64, priced: f64) -> f64 {
    let of_this = dearer * took / priced;
    ((dearer + of_this) / 2.0).clamp(0.25, 16.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn where_no_process_was_left_to_sample_what_is_zero_is_unknown() {
        assert_eq!(zero_part(8, 0, 0), None);
        assert_eq!(zero_part(8, 0, 4), Some(0));
        // The sample counts shared memory once for each process that maps it.
        assert_eq!(zero_part(8, 4, 16), Some(2));
    }

    fn watch(depth: Depth, script: &str) -> Observed {
        let since = Instant::now();
        #[expect(clippy::zombie_processes, reason = "wait4 tells more than `Child::wait`")]
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let tree = ProcessTree::from_child(Root::real(), Pid(child.id() as i32));
        let watch = Watch::start(Root::real(), tree, since, depth, 1, None);
        sys::wait::until_exit(Pid(child.id() as i32)).unwrap();
        let mut seen = watch.stop();
        let (_, usage) = sys::wait::reap(Pid(child.id() as i32)).unwrap();
        seen.conclude(&Root::real(), usage.max_rss, false);
        seen
    }

    /// Returns the first run that was observed well enough. On a busy machine a watcher may get no CPU in a short time,
    /// so runs sleep longer and longer (`PAUSE`, in seconds).
    fn watch_in_turn(depth: Depth, script: &str, is_enough: fn(&Observed) -> bool) -> Observed {
        let mut last = None;
        for pause in ["0.3", "1", "3", "10", "30"] {
            let seen = watch(depth, &script.replace("PAUSE", pause));
            if is_enough(&seen) {
                return seen;
            }
            last = Some(seen);
        }
        panic!("not seen in five runs: {last:?}");
    }

    fn is_seen(seen: &Observed) -> bool {
        seen.base_pages_only.is_some()
    }

    #[test]
    fn sees_children_and_their_memory() {
        // The shell has a few MB at most, so the child's 64 MB string must have been found through the tree.
        let script = "head -c 64000000 /dev/zero | tail -c 64000000 | (head -c 1; sleep PAUSE; cat) >/dev/null";
        let seen = watch_in_turn(Depth::Thorough, script, |seen| {
            let is_large = seen.peak_at_least_bytes.is_some_and(|bytes| bytes > 48 << 20);
            is_large && seen.looks >= 1 && seen.coverage.is_some()
        });
        assert!(seen.timeline.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds));
    }

    #[test]
    fn without_a_look_the_largest_of_several_processes_is_not_the_peak() {
        let one = "(head -c 64000000 /dev/zero | tail -c 64000000 | (head -c 1; sleep PAUSE; cat) >/dev/null)";
        let three = format!("{one} & {one} & {one} & wait");
        // The tree held more at one time than its largest process.
        let seen = watch_in_turn(Depth::TicksOnly, &three, |seen| {
            seen.peak_at_least_bytes.is_some_and(|bytes| bytes > 100_000_000)
        });
        let is_true = |peak: u64| (183_000_000..230_000_000).contains(&peak);
        assert!(seen.peak_resident_bytes.is_none_or(is_true), "{seen:?}");
        assert!(seen.peak_at_least_bytes.unwrap() < 230_000_000, "{seen:?}");
        assert!(seen.peak_at_most_bytes.is_none_or(|most| most > 183_000_000), "{seen:?}");
    }

    #[test]
    fn prices_of_looks_follow_what_looks_took() {
        for (dearer, took, priced, after) in [
            (1.0, 0.001, 0.001, 1.0),
            (1.0, 0.003, 0.001, 2.0),
            (4.0, 0.001, 0.004, 2.5),
            (1.0, 1.0, 0.001, 16.0),
            (0.25, 0.0, 0.001, 0.25),
        ] {
            let is = dearer_after(dearer, took, priced);
            assert!((is - after).abs() < 1e-9, "{dearer} {took} {priced}: {is}");
        }
    }

    #[test]
    fn children_that_a_signal_killed_are_told() {
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
        let is_told = host::process::is_in_first_namespace(&Root::real())
            && sys::exits::Exits::listen(cpus.trim()).is_ok();
        testkit::require!(is_told, "the kernel does not tell of ends (taskstats)");
        // The first child exits without a signal.
        let script = "sh -c 'sleep PAUSE; exit 3'; sh -c 'sleep PAUSE; kill -USR1 $$'; true";
        let seen = watch_in_turn(Depth::Thorough, script, |seen| seen.killed.is_some());
        let signals: Vec<i32> = seen.killed.iter().flatten().map(|one| one.signal).collect();
        assert_eq!(signals, [libc::SIGUSR1]);
    }

    #[test]
    fn a_measured_run_is_seen_too() {
        watch_in_turn(Depth::WithinBudget, "sleep PAUSE", is_seen);
        assert_eq!(watch_in_turn(Depth::TicksOnly, "sleep PAUSE", is_seen).looks, 0);
    }
}
