//! Watching a running process tree: what it holds, and on which pages.
//!
//! Owns one thread per watched run. A *tick* reads `/proc/PID/status` (tens of microseconds); a
//! *look* reads the page tables through smaps, whose cost grows with the base pages mapped, and
//! holds the address space's lock meanwhile. A thorough watch (warm-up runs) looks often. A watch
//! within budget (measured runs) spends at most a fixed share of the time passed, and never makes
//! a look that it expects to hold the program up for longer than [`LONGEST_STALL`].

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use machine::coverage::Coverage;
use machine::{Root, process, waste};

use crate::family::Family;
use crate::ledger_file::Mark;
use serde::{Deserialize, Serialize};
use sys::param::thread_cpu_time;
use units::{ByteSize, Pid};

/// How much a watch may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Depth {
    /// See as much as possible: the run's time does not count.
    Thorough,
    /// Spend at most [`BUDGET`] of the run's time.
    WithinBudget,
    /// The same, and never look: a run whose single accesses are timed must not be held up once.
    TicksOnly,
}

/// Share of the watched time that ticks and looks may take together, well under the 1 % the
/// harness is allowed in all.
pub const BUDGET: f64 = 0.005;
/// The longest a look may be expected to take in a measured run.
pub const LONGEST_STALL: Duration = Duration::from_millis(2);
/// What a look costs: smaps of 1 GiB of base pages took 16 to 29 ms on a Zen 4 guest and 3.5 ms on
/// a Cascade Lake one; superpages cost next to nothing.
const SECONDS_PER_BASE_BYTE: f64 = 20e-3 / (1u64 << 30) as f64;
/// Opening and reading the smaps of a small process.
const SECONDS_PER_LOOK: f64 = 0.25e-3;
/// Sampling superpages for waste: 512 reads of 1.4 us, and a scan.
const WASTE_PRICE: Duration = Duration::from_micros(1000);
/// A look counts as "at the peak" if it found at least this share of the largest resident size.
const NEAR_PEAK: f64 = 0.8;
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
    /// The largest resident size seen, hugetlb included; `null` if the run was too short to see.
    pub peak_resident_bytes: Option<u64>,
    /// Coverage at the look that found most; `null` if none near the peak could be afforded.
    pub coverage: Option<Coverage>,
    /// Superpage memory that was all zero at that look, estimated by sampling.
    pub wasted_bytes: Option<u64>,
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
            root,
            family,
            since,
            depth,
            seed,
            members: Vec::new(),
            newest_pid: None,
            spent: Duration::ZERO,
            dearer: 1.0,
            looked_at: None,
            mark,
            counted: BTreeMap::new(),
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
    root: Root,
    family: Family,
    since: Instant,
    depth: Depth,
    seed: u64,
    members: Vec<Pid>,
    /// The newest pid on the machine when `members` was read: while it stays, nobody was born.
    newest_pid: Option<Pid>,
    spent: Duration,
    /// How many times dearer than priced the dearest look was.
    dearer: f64,
    looked_at: Option<(u64, Instant)>,
    mark: Option<Mark>,
    /// By process: its command's name when its mappings were last read, and what was found.
    counted: BTreeMap<Pid, (String, Counted)>,
    seen: Observed,
}

/// Whether a process adds to the run's ledger.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Counted {
    Yes,
    /// Not when it was looked at first: it may have been about to.
    NotYet,
    No,
}

/// What a tick found.
#[derive(Clone, Copy, Default)]
struct Held {
    resident: u64,
    base_at_most: u64,
}

impl Watcher {
    fn run(mut self, stopped: &Receiver<()>) -> Observed {
        loop {
            let began = thread_cpu_time();
            let held = self.tick();
            if self.wants_look(held) {
                self.look(held);
            }
            // CPU time: waiting for a lock that the program holds costs the program nothing.
            let took = thread_cpu_time().saturating_sub(began);
            self.spent += took;
            match stopped.recv_timeout(pause(self.depth, took)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.seen.watch_seconds = self.spent.as_secs_f64();
        let peak = self.seen.peak_resident_bytes.unwrap_or(0) as f64;
        let near = |found: &Coverage| found.resident().bytes() as f64 >= NEAR_PEAK * peak;
        if !self.seen.coverage.as_ref().is_some_and(near) {
            self.seen.coverage = None;
            self.seen.wasted_bytes = None;
        }
        self.seen
    }

    fn tick(&mut self) -> Held {
        self.renew_members();
        let page = self.root.page_size().bytes();
        let mut held = Held::default();
        let mut faulted = 0;
        let mut anonymous = Vec::new();
        let mut base_only = true;
        for pid in self.members.clone() {
            let Ok(process) = process::resident(&self.root, pid) else { continue };
            self.note_counted(pid, &process.name);
            let bytes = |part: Option<ByteSize>| part.map_or(0, ByteSize::bytes);
            held.resident += process.total().map_or(0, ByteSize::bytes);
            // Files and shared memory are mapped many pages at a fault.
            held.base_at_most += bytes(process.file) + bytes(process.shmem);
            anonymous.push(bytes(process.anon));
            faulted += process.minor_faults.unwrap_or(u64::MAX >> 16).saturating_mul(page);
            base_only &= process.thp_enabled == Some(false) && bytes(process.hugetlb) == 0;
        }
        // An anonymous base page was mapped by a fault of its own, of this process or of one that
        // forked it: the faults of all bound the base pages of each.
        held.base_at_most += anonymous.iter().map(|bytes| bytes.min(&faulted)).sum::<u64>();
        if held.resident > 0 {
            self.seen.base_pages_only =
                Some(base_only && self.seen.base_pages_only.unwrap_or(true));
        }
        if held.resident > 0 {
            let peak = self.seen.peak_resident_bytes.get_or_insert(0);
            *peak = held.resident.max(*peak);
            self.note(held.resident, None);
        }
        held
    }

    /// Mappings are read when a process is seen first, and when it executed another program.
    fn note_counted(&mut self, pid: Pid, name: &str) {
        let Some(mark) = &self.mark else { return };
        let before = self.counted.get(&pid).filter(|(before, _)| before == name);
        let before = before.map(|(_, counted)| *counted);
        if matches!(before, Some(Counted::Yes | Counted::No)) {
            return;
        }
        let Ok(is_uncounted) = mark.is_uncounted(&self.root, pid) else { return };
        let counted = match (is_uncounted, before) {
            (false, _) => Counted::Yes,
            (true, None) => Counted::NotYet,
            (true, Some(_)) => Counted::No,
        };
        self.seen.uncounted += usize::from(counted == Counted::No);
        self.counted.insert(pid, (name.to_string(), counted));
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
        let Some((before, when)) = self.looked_at else {
            return held.resident > 0 && self.affords_look(held);
        };
        let grown = held.resident as f64 > before as f64 * 1.02 + f64::from(1 << 20);
        match self.depth {
            Depth::Thorough => grown || when.elapsed() > Duration::from_millis(100),
            Depth::TicksOnly => false,
            Depth::WithinBudget => {
                // Looks farther and farther apart: a growing program would spend the whole budget
                // on what it held early, and have none left near its peak.
                let spaced = self.since.elapsed() > (when - self.since).mul_f64(1.5);
                grown && spaced && self.affords_look(held)
            }
        }
    }

    fn affords_look(&self, held: Held) -> bool {
        match self.depth {
            Depth::Thorough => return true,
            Depth::TicksOnly => return false,
            Depth::WithinBudget => {}
        }
        let price = self.price(held);
        let budget = self.since.elapsed().mul_f64(BUDGET);
        price <= LONGEST_STALL && self.spent + price + WASTE_PRICE <= budget
    }

    fn price(&self, held: Held) -> Duration {
        let seconds = SECONDS_PER_LOOK + SECONDS_PER_BASE_BYTE * held.base_at_most as f64;
        Duration::from_secs_f64(seconds * self.dearer)
    }

    fn look(&mut self, held: Held) {
        let price = self.price(held);
        let (began, cpu_began) = (Instant::now(), thread_cpu_time());
        let mut sum = Coverage::default();
        for pid in &self.members {
            match Coverage::of_process(&self.root, *pid) {
                Ok(coverage) => sum += coverage,
                Err(error) if error.is_gone() => {}
                Err(error) => self.seen.unknown = Some(error.to_string()),
            }
        }
        let took = thread_cpu_time().saturating_sub(cpu_began).as_secs_f64();
        self.seen.longest_look_seconds = self.seen.longest_look_seconds.max(took);
        self.dearer = self.dearer.max(self.dearer * took / price.as_secs_f64());
        self.looked_at = Some((held.resident, began));
        if sum.resident() == ByteSize(0) {
            return; // all of them ended meanwhile
        }
        self.seen.looks += 1;
        self.note(sum.resident().bytes(), Some(sum.superpage_bytes().bytes()));
        let peak = self.seen.peak_resident_bytes.get_or_insert(0);
        *peak = sum.resident().bytes().max(*peak);
        let most = self.seen.coverage.as_ref().map_or(ByteSize(0), Coverage::resident);
        if sum.resident() >= most {
            self.seen.wasted_bytes = self.waste(&sum);
            self.seen.coverage = Some(sum);
        }
    }

    fn waste(&mut self, coverage: &Coverage) -> Option<u64> {
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

/// How long to rest after what took `took`. Half the budget goes to ticks, so that looks have the
/// other half; a warm-up may be slowed down, but not held up most of the time.
fn pause(depth: Depth, took: Duration) -> Duration {
    match depth {
        Depth::Thorough => Duration::from_millis(10).max(took * 4),
        Depth::WithinBudget | Depth::TicksOnly => {
            Duration::from_millis(20).max(took.div_f64(BUDGET / 2.0))
        }
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
            let share = took.as_secs_f64() / pause(Depth::WithinBudget, took).as_secs_f64();
            assert!(share <= BUDGET / 2.0 + 1e-9, "{micros} us: {share}");
        }
        assert!(pause(Depth::Thorough, Duration::from_millis(25)) >= Duration::from_millis(100));
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
