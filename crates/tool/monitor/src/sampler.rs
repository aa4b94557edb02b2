//! `Sampler`: looks at processes again and again within a budget of CPU time.
//!
//! Counters are read of every process for every sample. Page tables are read in turn, the process whose figures are
//! oldest first, until the budget is used up; a walk that is not at its end then goes on with the next sample. The
//! figures of a process are those of its last whole walk, with their age.
//!
//! See docs/decisions/watching.md#1.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use host::process::{self, Stat};
use host::{ReadError, Root, Thp, Unknown};
use services::{Process, SpaceError, Target};
use sys::param::{monotonic_time, own_pid, process_cpu_time, thread_cpu_time};
use sys::user::User;
use units::{ByteSize, PageSize, Pid};

use crate::cgroup::CgroupCounters;
use crate::machine::Machine;
use crate::sample::{Cost, Grouping, Row, Sample, Unread, cgroup_of, groups};
use crate::walk::{Mapped, Step, Walk};

/// Maximum number of processes whose errors a sample names.
const MAX_ERRORS: usize = 20;

/// How often a process that no target means is asked again: it may have moved to another cgroup.
const RECHECK: Duration = Duration::from_secs(30);

/// How much may be read of page tables for one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// CPU time. One step of a walk may exceed it, by some milliseconds.
    Cpu(Duration),
    /// Every process once.
    All,
}

/// Looks at processes again and again.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    targets: Vec<Target>,
    superpage: Option<PageSize>,
    known: BTreeMap<Pid, Known>,
    /// The walk in progress.
    turn: Option<Turn>,
    names: HashMap<u32, Option<String>>,
    unnamed: u64,
    /// When the last sample was taken, and its machine.
    last: Option<(Duration, Machine)>,
    longest_slice: Duration,
}

/// A process that has been seen.
#[derive(Debug)]
struct Known {
    process: Process,
    stat: Stat,
    is_meant: bool,
    /// When `is_meant` was decided.
    asked: Duration,
    resident: Option<ByteSize>,
    swap: Option<ByteSize>,
    /// Minor and major faults per second.
    rates: Option<(f64, f64)>,
    memory: Option<(Mapped, Duration)>,
    unread: Option<Unread>,
    error: Option<String>,
    /// When its last turn began.
    tried: Option<Duration>,
}

#[derive(Debug)]
struct Turn {
    pid: Pid,
    start_ticks: u64,
    stack_start: u64,
    walk: Walk,
}

/// What scanning for one sample cost.
#[derive(Debug, Clone, Copy, Default)]
struct Scan {
    time: Duration,
    slice: Duration,
    scanned: u64,
}

impl Sampler {
    /// Creates a sampler of the processes that any of `targets` means; without targets, of all.
    pub fn new(root: &Root, targets: Vec<Target>) -> Self {
        Self {
            root: root.clone(),
            targets,
            superpage: Thp::pmd_size_of(root).ok(),
            known: BTreeMap::new(),
            turn: None,
            names: HashMap::new(),
            unnamed: 0,
            last: None,
            longest_slice: Duration::ZERO,
        }
    }

    /// Takes a sample. `more` is asked between slices whether to go on reading page tables.
    ///
    /// # Errors
    /// `/proc` cannot be listed.
    pub fn sample(
        &mut self,
        budget: Budget,
        more: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<Sample, ReadError> {
        let now = monotonic_time();
        let interval = self.last.as_ref().map(|(last, _)| now.saturating_sub(*last).as_secs_f64());
        self.observe(now, interval)?;
        let before = self.last.take().map(|(_, machine)| machine).zip(interval);
        let machine = Machine::read(
            &self.root,
            before.as_ref().map(|(machine, seconds)| (machine, *seconds)),
        );
        let observed = monotonic_time();
        let scan = self.scan(now, budget, more);
        let sample = self.finish(interval, machine.clone(), scan, observed.saturating_sub(now));
        self.last = Some((now, machine));
        Ok(sample)
    }

    /// Reads counters of every process.
    fn observe(&mut self, now: Duration, interval: Option<f64>) -> Result<(), ReadError> {
        let own = self.root.is_real().then(own_pid);
        let mut known = std::mem::take(&mut self.known);
        self.unnamed = 0;
        let pids = process::pids(&self.root)?;
        for pid in pids.into_iter().filter(|pid| Some(*pid) != own) {
            match self.look(pid, known.remove(&pid), now, interval) {
                Ok(Some(one)) => {
                    self.known.insert(pid, one);
                }
                Ok(None) => {}
                Err(error) if error.is_gone() => {}
                Err(_) => self.unnamed += 1,
            }
        }
        Ok(())
    }

    /// Reads the counters of one process; `None`: it has no memory.
    fn look(
        &self,
        pid: Pid,
        known: Option<Known>,
        now: Duration,
        interval: Option<f64>,
    ) -> Result<Option<Known>, ReadError> {
        let stat = process::stat(&self.root, pid)?;
        if stat.is_dead() || stat.mapped == 0 {
            return Ok(None);
        }
        // An exec or prctl(PR_SET_NAME) changes the name, and with it perhaps what the targets mean.
        let known = known.filter(|known| {
            known.stat.start_ticks == stat.start_ticks && known.stat.name == stat.name
        });
        let is_new = known.is_none();
        let mut one = match known {
            Some(known) => known,
            None => {
                let Some(process) = Process::read(&self.root, pid)? else { return Ok(None) };
                Known {
                    is_meant: self.is_meant(&process),
                    asked: now,
                    process,
                    stat: stat.clone(),
                    resident: None,
                    swap: None,
                    rates: None,
                    memory: None,
                    unread: Some(Unread::Waiting),
                    error: None,
                    tried: None,
                }
            }
        };
        if !one.is_meant && now.saturating_sub(one.asked) > RECHECK {
            (one.is_meant, one.asked) = (self.is_meant(&one.process), now);
        }
        let memory =
            |stat: &Stat| (stat.minor_faults, stat.major_faults, stat.mapped, stat.resident_pages);
        // Resident pages and swap do not change while none of these does.
        if one.is_meant && (one.resident.is_none() || memory(&one.stat) != memory(&stat)) {
            let status = process::status(&self.root, pid)?;
            (one.resident, one.swap) = (status.total(), status.swap);
        }
        let grown = |now: u64, before: u64| Some(now.checked_sub(before)? as f64 / interval?);
        let minor = grown(stat.minor_faults, one.stat.minor_faults);
        let major = grown(stat.major_faults, one.stat.major_faults);
        one.rates = minor.zip(major).filter(|_| !is_new);
        one.stat = stat;
        Ok(Some(one))
    }

    fn is_meant(&self, process: &Process) -> bool {
        self.targets.is_empty()
            || self.targets.iter().any(|target| process.is_meant_by(&self.root, target))
    }

    /// Reads page tables, oldest figures first, of processes that had no turn since `now`.
    fn scan(
        &mut self,
        now: Duration,
        budget: Budget,
        more: &mut dyn FnMut(Progress) -> bool,
    ) -> Scan {
        let (began, cpu) = (monotonic_time(), thread_cpu_time());
        let mut scan = Scan::default();
        let meant = self.known.iter().filter(|(_, known)| known.is_meant);
        let mut queue: Vec<(Option<Duration>, Pid)> =
            meant.map(|(pid, known)| (known.tried, *pid)).collect();
        queue.sort_unstable();
        let total = queue.len() as u64;
        let mut queue: VecDeque<Pid> = queue.into_iter().map(|(_, pid)| pid).collect();
        loop {
            let used = thread_cpu_time().saturating_sub(cpu);
            let is_over = matches!(budget, Budget::Cpu(most) if used >= most);
            let progress = Progress { done: total - queue.len() as u64, total };
            if is_over || !more(progress) {
                break;
            }
            let Some(turn) = &mut self.turn else {
                let Some(pid) = queue.pop_front() else { break };
                self.begin(pid, now);
                continue;
            };
            let step = turn.walk.step();
            scan.slice = scan.slice.max(turn.walk.longest());
            match step {
                Ok(Step::More) => {}
                Ok(Step::End(mapped)) => scan.scanned += u64::from(self.end(Ok(mapped))),
                Err(error) => {
                    self.end(Err(error));
                }
            }
        }
        self.longest_slice = self.longest_slice.max(scan.slice);
        Scan { time: monotonic_time().saturating_sub(began), ..scan }
    }

    /// Begins the turn of a process.
    fn begin(&mut self, pid: Pid, now: Duration) {
        let identity = Process::read(&self.root, pid);
        let is_meant = identity
            .as_ref()
            .is_ok_and(|found| found.as_ref().is_some_and(|process| self.is_meant(process)));
        let Some(known) = self.known.get_mut(&pid) else { return };
        known.tried = Some(now);
        // The process may have moved to another cgroup.
        match identity {
            Ok(Some(process)) if process.start_ticks == known.stat.start_ticks => {
                (known.process, known.is_meant) = (process, is_meant);
            }
            _ => return,
        }
        // Page tables exist on the real machine alone.
        if !self.root.is_real() {
            return;
        }
        let Stat { start_ticks, stack_start, .. } = known.stat;
        match Walk::new(&self.root, pid, self.superpage) {
            Ok(walk) => self.turn = Some(Turn { pid, start_ticks, stack_start, walk }),
            Err(error) => known.note(error),
        }
    }

    /// Ends the turn with what the walk found. Returns whether figures were taken.
    fn end(&mut self, result: Result<Mapped, SpaceError>) -> bool {
        let Some(turn) = self.turn.take() else { return false };
        let stat = process::stat(&self.root, turn.pid);
        let Some(known) = self.known.get_mut(&turn.pid) else { return false };
        // The files belong to an address space, which an exec replaces: the walk then ended early. The start of the
        // stack is new after an exec.
        let is_same = stat.is_ok_and(|stat| {
            stat.start_ticks == turn.start_ticks && stat.stack_start == turn.stack_start
        });
        match result {
            Ok(mut mapped) if is_same => {
                // The kernel counts its own swap entries. What else looks swapped are markers, such as those of userfaultfd.
                mapped.swapped = known.swap.map_or(mapped.swapped, |swap| swap.min(mapped.swapped));
                known.memory = Some((mapped, monotonic_time()));
                (known.unread, known.error) = (None, None);
                true
            }
            Ok(_) => false,
            Err(error) => {
                known.note(error);
                false
            }
        }
    }

    fn finish(
        &mut self,
        interval: Option<f64>,
        machine: Machine,
        scan: Scan,
        observe: Duration,
    ) -> Sample {
        let now = monotonic_time();
        let names = &mut self.names;
        let meant = self.known.values().filter(|known| known.is_meant);
        let rows: Vec<Row> = meant
            .clone()
            .map(|known| {
                let user_id = known.process.user;
                let user = user_id
                    .and_then(|id| names.entry(id).or_insert_with(|| User::name_of(id)).clone());
                known.row(now, user)
            })
            .collect();
        let errors = meant.filter_map(|known| {
            let why = known.error.clone()?;
            Some(Unknown { what: format!("pid {}", known.process.pid), why })
        });
        let unknown = errors.take(MAX_ERRORS).collect();
        let all: Vec<(Pid, Option<&str>)> = self
            .known
            .values()
            .map(|known| (known.process.pid, known.process.cgroup.as_deref()))
            .collect();
        let mut cgroups = groups(&rows, Grouping::Cgroup);
        for group in &mut cgroups {
            group.kernel =
                group.cgroup.as_deref().and_then(|path| CgroupCounters::read(&self.root, path));
            group.resident_once = cgroup_of(group, &rows, &all)
                .and_then(|_| group.kernel.as_ref().and_then(|kernel| kernel.mapped_once));
        }
        let mut units = groups(&rows, Grouping::Unit);
        for group in &mut units {
            group.resident_once = cgroup_of(group, &rows, &all)
                .and_then(|path| CgroupCounters::read(&self.root, path)?.mapped_once);
        }
        Sample {
            interval,
            machine,
            units,
            cgroups,
            processes: rows,
            unnamed: self.unnamed,
            hides_processes: services::hides_processes(&self.root),
            cost: Cost {
                cpu: process_cpu_time(own_pid()).unwrap_or_default().as_secs_f64(),
                observe: observe.as_secs_f64(),
                scan: scan.time.as_secs_f64(),
                scanned: scan.scanned,
                slice: scan.slice.as_secs_f64(),
                longest_slice: self.longest_slice.as_secs_f64(),
            },
            unknown,
        }
    }
}

/// How far reading page tables has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of processes done or in progress.
    pub done: u64,
    /// Number of processes to be read.
    pub total: u64,
}

impl Known {
    fn note(&mut self, error: SpaceError) {
        let (unread, text) = match error {
            SpaceError::Ended => return,
            SpaceError::Denied(_) => (Unread::Denied, None),
            SpaceError::NoScan => (Unread::NoScan, None),
            error @ (SpaceError::Executes | SpaceError::Read(_)) => {
                (Unread::Failed, Some(error.to_string()))
            }
        };
        (self.unread, self.error) = (Some(unread), text);
    }

    fn row(&self, now: Duration, user: Option<String>) -> Row {
        Row {
            pid: self.process.pid,
            start_ticks: self.stat.start_ticks,
            name: self.stat.name.clone(),
            user_id: self.process.user,
            user,
            unit: self.process.unit.clone(),
            cgroup: self.process.cgroup.clone(),
            resident: self.resident,
            swap: self.swap,
            memory: self.memory.map(|(memory, _)| memory),
            age: self.memory.map(|(_, at)| now.saturating_sub(at).as_secs_f64()),
            unread: self.unread,
            minor_faults: self.rates.map(|(minor, _)| minor),
            major_faults: self.rates.map(|(_, major)| major),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of a fake /proc.
    fn write(root: &Root, pid: i32, ticks: u64, faults: u64, rss: u64) {
        let dir = root.path(&format!("/proc/{pid}"));
        std::fs::create_dir_all(&dir).unwrap();
        let stat = format!(
            "{pid} (x{pid}) S 1 1 1 0 -1 0 {faults} 0 3 0 0 0 0 0 20 0 1 0 {ticks} 4096 {rss} 0 0 0 9\n"
        );
        std::fs::write(dir.join("stat"), stat).unwrap();
        std::fs::write(dir.join("cmdline"), "x\0").unwrap();
        std::fs::write(dir.join("status"), format!("Uid:\t0\t0\t0\t0\nVmRSS:\t{rss} kB\n"))
            .unwrap();
        std::fs::write(dir.join("cgroup"), format!("0::/s/u{pid}.service\n")).unwrap();
    }

    fn sample(sampler: &mut Sampler) -> Sample {
        sampler.sample(Budget::All, &mut |_| true).unwrap()
    }

    #[test]
    fn rates_need_two_looks_at_the_same_process() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        write(&root, 7, 1, 10, 100);
        write(&root, 8, 1, 10, 100);
        let mut sampler = Sampler::new(&root, Vec::new());
        let first = sample(&mut sampler);
        assert_eq!(first.interval, None);
        assert!(first.processes.iter().all(|row| row.minor_faults.is_none()));
        assert_eq!(first.processes[0].unit.as_deref(), Some("u7.service"));
        // Page tables are on the real machine alone: unknown, not zero.
        assert_eq!(first.units[0].memory, None);
        assert_eq!(first.processes[0].unread, Some(Unread::Waiting));
        // 7 faults, 8 is another process with the same pid, 9 is new.
        write(&root, 7, 1, 110, 300);
        write(&root, 8, 2, 500, 100);
        write(&root, 9, 3, 500, 100);
        std::thread::sleep(Duration::from_millis(2));
        let second = sample(&mut sampler);
        let interval = second.interval.unwrap();
        let rates: Vec<_> = second.processes.iter().map(|row| row.minor_faults).collect();
        assert_eq!(rates, [Some(100.0 / interval), None, None]);
        assert_eq!(second.processes[0].resident, Some(ByteSize(300 << 10)));
        assert_eq!(second.processes[0].major_faults, Some(0.0));
        std::fs::remove_dir_all(root.path("/proc/7")).unwrap();
        assert_eq!(sample(&mut sampler).processes.len(), 2);
    }

    #[test]
    fn only_what_targets_mean_is_sampled() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        for pid in [7, 8] {
            write(&root, pid, 1, 0, 100);
        }
        let mut sampler = Sampler::new(&root, vec![Target::Unit("u8".into())]);
        assert_eq!(
            sample(&mut sampler).processes.iter().map(|row| row.pid.0).collect::<Vec<_>>(),
            [8]
        );
        // A process that leaves the unit is dropped when its turn comes.
        std::fs::write(root.path("/proc/8/cgroup"), "0::/s/u9.service\n").unwrap();
        assert_eq!(sample(&mut sampler).processes.len(), 0);
        // One that moves to the unit is found when it is asked again.
        std::fs::write(root.path("/proc/7/cgroup"), "0::/s/u8.service\n").unwrap();
        for known in sampler.known.values_mut() {
            known.asked = Duration::ZERO;
        }
        assert_eq!(
            sample(&mut sampler).processes.iter().map(|row| row.pid.0).collect::<Vec<_>>(),
            [7]
        );
    }

    #[test]
    fn an_unreadable_process_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        write(&root, 7, 1, 0, 100);
        std::fs::create_dir_all(root.path("/proc/8/stat")).unwrap();
        let sample = sample(&mut Sampler::new(&root, Vec::new()));
        assert_eq!((sample.unnamed, sample.processes.len()), (1, 1));
        assert!(!sample.hides_processes);
    }

    #[test]
    fn a_budget_of_nothing_reads_no_page_tables_and_a_later_sample_goes_on() {
        let (root, own) = (Root::real(), own_pid());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid(child.id() as i32);
        let mut sampler = Sampler::new(&root, vec![Target::Pid(pid), Target::Pid(own)]);
        let nothing = sampler.sample(Budget::Cpu(Duration::ZERO), &mut |_| true).unwrap();
        let row = |sample: &Sample| sample.processes.iter().find(|row| row.pid == pid).cloned();
        assert_eq!(row(&nothing).unwrap().unread, Some(Unread::Waiting));
        assert_eq!((nothing.cost.scanned, nothing.cost.slice), (0, 0.0));
        let whole = sample(&mut sampler);
        let seen = row(&whole).unwrap();
        if seen.unread == Some(Unread::NoScan) {
            testkit::skipped!("this kernel has no PAGEMAP_SCAN");
        } else {
            assert!(seen.memory.unwrap().resident.bytes() > 0 && seen.age.unwrap() >= 0.0);
            assert!(whole.cost.slice > 0.0 && whole.cost.longest_slice >= whole.cost.slice);
            // Its figures stay, and grow older.
            let later = sampler.sample(Budget::Cpu(Duration::ZERO), &mut |_| true).unwrap();
            assert_eq!(row(&later).unwrap().memory, seen.memory);
            assert!(row(&later).unwrap().age > seen.age);
        }
        // This process is never in a sample.
        assert_eq!(whole.processes.len(), 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(sample(&mut sampler).processes.len(), 0);
    }
}
