//! Live counting of the events in the CPU's table, in groups, for a program or for processes. The caller starts the
//! program and decides when counting ends.

use host::{Cpu, Hypervisor, Pmu, Root};
use sys::SysError;
use sys::perf::{Event as Encoded, Group, Modes, Target};
use units::Pid;

use crate::events::{Event, Table};
use crate::{Count, Scope, events};

/// The events that can be counted on this machine.
#[derive(Clone, Debug)]
pub struct Counters {
    pmu: Pmu,
    /// The cycles event, which leads every group.
    cycles: Encoded,
    /// Event table of the CPU.
    pub table: &'static Table,
}

/// Open counters.
#[derive(Debug)]
pub struct Counting {
    /// One instance of each group per thread.
    groups: Vec<OpenGroup>,
    /// Events that the CPU or the kernel lacks.
    missing: Vec<&'static str>,
    modes: Modes,
    pmu: String,
}

#[derive(Debug)]
struct OpenGroup {
    /// Index of the group in the table.
    index: u32,
    events: Vec<&'static Event>,
    /// The group: first cycles, then `events`.
    group: Group,
}

impl Counters {
    /// Finds the counters of this machine. An error says why there are none, or that the CPU's events are unknown.
    pub fn find(root: &Root, cpu: Option<&Cpu>) -> Result<Self, CountersUnavailable> {
        let pmu = Pmu::read(root).ok().flatten().ok_or_else(|| no_pmu(cpu))?;
        let table = cpu.and_then(events::table_of);
        let table = table.ok_or_else(|| CountersUnavailable::UnknownProcessor {
            model: cpu.and_then(|cpu| cpu.model.clone()).unwrap_or_else(|| "?".to_string()),
        })?;
        Ok(Self { cycles: cycles_of(&pmu), pmu, table })
    }

    /// Counts all programs that the calling thread starts from now on. Counting begins at each
    /// program's exec.
    pub fn of_children(&self) -> Result<Counting, CountersUnavailable> {
        self.count(&[Target::Children])
    }

    /// Counts all threads of these processes, and all threads and processes that they create from now on. Skips threads
    /// that exit before counting starts; if none is left, fails with [`CountersUnavailable::NoProcess`].
    pub fn of_processes(&self, root: &Root, pids: &[Pid]) -> Result<Counting, CountersUnavailable> {
        let mut threads = Vec::new();
        for pid in pids {
            let names = root.list(&format!("/proc/{pid}/task")).unwrap_or_default();
            let tids = names.iter().filter_map(|name| name.parse().ok());
            threads.extend(tids.map(|tid| Target::Thread(Pid(tid))));
        }
        if threads.is_empty() {
            return Err(CountersUnavailable::NoProcess);
        }
        self.count(&threads)
    }

    fn count(&self, targets: &[Target]) -> Result<Counting, CountersUnavailable> {
        // Count kernel mode too, because a program's time includes the kernel's work for it. If that is refused, fall
        // back to user mode.
        match self.count_in(targets, Modes::All) {
            Err(error) if is_refusal(&error) => {
                self.count_in(targets, Modes::User).map_err(|error| explain(&error))
            }
            done => done.map_err(|error| explain(&error)),
        }
    }

    fn count_in(&self, targets: &[Target], modes: Modes) -> Result<Counting, SysError> {
        let pmu = self.pmu.name.clone();
        let mut counting = Counting { groups: Vec::new(), missing: Vec::new(), modes, pmu };
        let mut failure = None;
        for target in targets {
            for (index, group) in self.table.groups.iter().enumerate() {
                match self.open(group, index as u32, *target, modes, &mut counting.missing) {
                    Ok(group) => counting.groups.push(group),
                    // The thread has exited meanwhile, which is not an error.
                    Err(error) if error.errno() == libc::ESRCH => {
                        failure.get_or_insert(error);
                        break;
                    }
                    // No event of this group can be counted.
                    Err(error) if !is_refusal(&error) && index > 0 => {
                        counting.missing.extend(group.iter().map(|event| event.name));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        match (counting.groups.is_empty(), failure) {
            (true, Some(failure)) => Err(failure),
            _ => Ok(counting),
        }
    }

    /// Opens one group with cycles. Drops events that do not exist or do not fit, the last event first.
    fn open(
        &self,
        group: &'static [Event],
        index: u32,
        target: Target,
        modes: Modes,
        missing: &mut Vec<&'static str>,
    ) -> Result<OpenGroup, SysError> {
        let encoded: Vec<(&'static Event, Encoded)> =
            group.iter().filter_map(|event| Some((event, self.encode(event)?))).collect();
        let encodable = |event: &&Event| encoded.iter().any(|(known, _)| known == event);
        missing.extend(group.iter().filter(|e| !encodable(e)).map(|event| event.name));
        let mut kept = encoded.len();
        loop {
            let all: Vec<Encoded> = std::iter::once(self.cycles)
                .chain(encoded[..kept].iter().map(|(_, event)| *event))
                .collect();
            match Group::open(&all, target, modes) {
                Ok(group) => {
                    missing.extend(encoded[kept..].iter().map(|(event, _)| event.name));
                    let events = encoded[..kept].iter().map(|(event, _)| *event).collect();
                    return Ok(OpenGroup { index, events, group });
                }
                Err(error) if kept > 1 && lacks_an_event(&error) => kept -= 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn encode(&self, event: &Event) -> Option<Encoded> {
        let terms = [("event", event.select), ("umask", event.umask), ("cmask", event.cmask)];
        let config = self.pmu.encode(&terms).ok()?;
        Some(Encoded::Encoded { pmu: self.pmu.kind, config })
    }
}

impl Counting {
    /// Stops counting and returns the counts, summed over all threads.
    pub fn finish(mut self) -> Result<Vec<Count>, SysError> {
        for open in &self.groups {
            open.group.stop()?;
        }
        let mut sums: Vec<(u32, &'static str, sys::perf::Count)> = Vec::new();
        for open in &mut self.groups {
            let counts = open.group.read()?;
            let names = std::iter::once("cycles").chain(open.events.iter().map(|e| e.name));
            for (name, count) in names.zip(counts) {
                let same = |(index, known, _): &&mut (u32, &str, _)| {
                    *index == open.index && *known == name
                };
                match sums.iter_mut().find(same) {
                    Some((_, _, sum)) => {
                        sum.value = sum.value.saturating_add(count.value);
                        sum.enabled_ns = sum.enabled_ns.saturating_add(count.enabled_ns);
                        sum.running_ns = sum.running_ns.saturating_add(count.running_ns);
                    }
                    None => sums.push((open.index, name, count)),
                }
            }
        }
        let source = format!("perf_event_open of {}, group", self.pmu);
        let modifier = if self.scope() == Scope::User { ":u" } else { "" };
        let mut counts: Vec<Count> = sums
            .into_iter()
            .map(|(group, name, count)| {
                let event = format!("{name}{modifier}");
                let source = format!("{source} {group}");
                let (value, counted) = (scaled(count), share_counted(count));
                Count { event, value, counted, group, gap: None, source }
            })
            .collect();
        self.missing.sort_unstable();
        self.missing.dedup();
        counts.extend(self.missing.iter().map(|name| Count {
            event: name.to_string(),
            value: None,
            counted: None,
            group: 0,
            gap: None,
            source: "not counted".to_string(),
        }));
        Ok(counts)
    }

    /// Returns which of the program's cycles are counted.
    pub fn scope(&self) -> Scope {
        match self.modes {
            Modes::All => Scope::UserAndKernel,
            Modes::User => Scope::User,
        }
    }
}

/// Returns the cycles event of this PMU. On hybrid CPUs the upper half of the generic event's config selects the PMU
/// (`PERF_PMU_CAP_EXTENDED_HW_TYPE`, linux/perf_event.h); type 0 is `PERF_TYPE_HARDWARE`, and config 0 is its event
/// for cycles.
fn cycles_of(pmu: &Pmu) -> Encoded {
    match pmu.name.as_str() {
        "cpu_core" => Encoded::Encoded { pmu: 0, config: [u64::from(pmu.kind) << 32, 0, 0] },
        _ => Encoded::Cycles,
    }
}

/// Scales a multiplexed count up to the whole time (perf_event_open(2), "time_running"); `None` if the counter never
/// ran.
fn scaled(count: sys::perf::Count) -> Option<f64> {
    let share = share_counted(count)?;
    (share > 0.0).then(|| count.value as f64 / share)
}

fn share_counted(count: sys::perf::Count) -> Option<f64> {
    let (enabled, running) = (count.enabled_ns as f64, count.running_ns as f64);
    (enabled > 0.0).then(|| (running / enabled).min(1.0))
}

fn is_refusal(error: &SysError) -> bool {
    matches!(error.errno(), libc::EACCES | libc::EPERM | libc::ENOSYS)
}

/// Whether the error means that the event does not exist or the group is too large.
fn lacks_an_event(error: &SysError) -> bool {
    matches!(error.errno(), libc::ENOENT | libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV)
}

// Reasons why PMU events cannot be counted, each with its remedy. The kernel's errno alone is ambiguous: EPERM may be a
// container's seccomp filter, EACCES the administrator's limit.

/// Why PMU events cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountersUnavailable {
    /// The kernel has no PMU driver, as in a virtual machine without a virtual PMU.
    #[error("this machine has no performance counters: {place}")]
    NoPmu {
        /// Kind of machine, and the remedy.
        place: String,
    },
    /// The CPU has a PMU, but its events are in no table.
    #[error(
        "no event table for this processor ({model}); count its events with perf stat and use --from"
    )]
    UnknownProcessor {
        /// The CPU's model name.
        model: String,
    },
    /// The kernel's limit for unprivileged users forbids counting.
    #[error(
        "kernel.perf_event_paranoid is {level}: counting needs CAP_PERFMON, or as root: sysctl \
         kernel.perf_event_paranoid=2"
    )]
    Paranoid {
        /// The limit.
        level: i32,
    },
    /// The container runtime filters the system call.
    #[error(
        "the container does not allow perf_event_open: run it with a seccomp profile that does, \
         or with --cap-add PERFMON (docker, podman)"
    )]
    Container,
    /// A system-call filter forbids the call, and not in a container.
    #[error("a seccomp filter does not allow perf_event_open: run superpage outside of it")]
    Seccomp,
    /// The process belongs to another user.
    #[error("the process belongs to another user: run superpage as that user, or as root")]
    AnotherUser,
    /// The process does not exist.
    #[error("no such process")]
    NoProcess,
    /// CONFIG_PERF_EVENTS is off.
    #[error("this kernel cannot count events: it was built without CONFIG_PERF_EVENTS")]
    NoKernelSupport,
    /// Too few file descriptors: each event of each thread needs one.
    #[error("too many threads for this process's limit of open files; raise it: ulimit -n 65536")]
    TooManyThreads,
    /// The counters are in use, or the events are unavailable.
    #[error("the counters are not available: {error}; does another profiler use them?")]
    Other {
        /// The system call's error.
        error: String,
    },
}

/// Facts about this machine that determine the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `kernel.perf_event_paranoid`; `None` if the kernel has no perf events.
    pub paranoid: Option<i32>,
    /// Whether a seccomp filter applies to this process (`Seccomp: 2` in /proc/self/status).
    pub filtered: bool,
    /// Whether this process runs in a container.
    pub container: bool,
}

impl Facts {
    /// Reads these facts.
    pub fn read(root: &Root) -> Self {
        let paranoid = root.read("/proc/sys/kernel/perf_event_paranoid").ok();
        let status = root.read("/proc/self/status").unwrap_or_default();
        let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        // Marker files of docker and podman, and of systemd-nspawn and LXC.
        let marked = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
        Self {
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            filtered: seccomp.is_some_and(|mode| mode.trim() == "2"),
            container: marked.iter().any(|path| root.path(path).exists()),
        }
    }

    /// Returns the reason for this errno.
    pub fn why(&self, errno: i32, error: String) -> CountersUnavailable {
        match errno {
            libc::ESRCH => CountersUnavailable::NoProcess,
            libc::EMFILE | libc::ENFILE => CountersUnavailable::TooManyThreads,
            libc::EPERM | libc::ENOSYS | libc::EACCES if self.filtered && self.container => {
                CountersUnavailable::Container
            }
            libc::EPERM | libc::ENOSYS if self.filtered => CountersUnavailable::Seccomp,
            libc::ENOSYS => CountersUnavailable::NoKernelSupport,
            libc::EACCES | libc::EPERM => match self.paranoid {
                // Levels above 2 forbid all counting (Debian's and Android's levels 3 and 4).
                Some(level) if level > 2 => CountersUnavailable::Paranoid { level },
                // Level 2 allows counting one's own processes in user mode, so the process must be another user's.
                Some(_) => CountersUnavailable::AnotherUser,
                None => CountersUnavailable::NoKernelSupport,
            },
            _ => CountersUnavailable::Other { error },
        }
    }
}

/// Returns the reason for an error on this machine.
fn explain(error: &SysError) -> CountersUnavailable {
    Facts::read(&Root::real()).why(error.errno(), error.to_string())
}

/// Returns the reason for a missing PMU.
fn no_pmu(cpu: Option<&Cpu>) -> CountersUnavailable {
    let place = match cpu.map(|cpu| &cpu.hypervisor) {
        Some(Hypervisor::Present(name)) => {
            let name = name.as_deref().map_or(String::new(), |name| format!(" under {name}"));
            format!(
                "a virtual machine{name} whose host offers none; enable a virtual PMU (libvirt: <pmu \
                 state='on'/>, clouds: a metal instance)"
            )
        }
        _ => "the kernel found none; give counts of another machine with --from".to_string(),
    };
    CountersUnavailable::NoPmu { place }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: u64, enabled_ns: u64, running_ns: u64) -> sys::perf::Count {
        sys::perf::Count { value, enabled_ns, running_ns }
    }

    #[test]
    fn what_was_counted_half_the_time_is_twice_as_much() {
        assert_eq!(scaled(count(10, 100, 50)), Some(20.0));
        assert_eq!(share_counted(count(10, 100, 50)), Some(0.5));
        assert_eq!(scaled(count(10, 100, 100)), Some(10.0));
    }

    #[test]
    fn what_was_never_counted_is_unknown() {
        assert_eq!(scaled(count(0, 100, 0)), None);
        assert_eq!(scaled(count(0, 0, 0)), None);
        assert_eq!(share_counted(count(0, 0, 0)), None);
    }

    /// Replaces the CPU's events by software events, so that only the PMU is fake.
    fn software(table: &'static Table) -> Counters {
        let dir = tempfile::tempdir().unwrap();
        let pmu = dir.path().join("sys/bus/event_source/devices/cpu");
        std::fs::create_dir_all(pmu.join("format")).unwrap();
        // PERF_TYPE_SOFTWARE, whose config is the event number.
        std::fs::write(pmu.join("type"), "1").unwrap();
        std::fs::write(pmu.join("format/event"), "config:0-63").unwrap();
        let pmu = Pmu::read(&Root::at(dir.path())).unwrap().unwrap();
        Counters { pmu, cycles: Encoded::TaskClock, table }
    }

    const fn event(name: &'static str, select: u64, umask: u64) -> Event {
        let meaning =
            events::EventMeaning { side: events::Side::Data, meaning: events::Meaning::Walks };
        Event { name, select, umask, cmask: 0, meaning }
    }

    /// linux/perf_event.h: PERF_COUNT_SW_PAGE_FAULTS 2, CONTEXT_SWITCHES 3, and a number that does not exist; the last
    /// event needs a unit mask, but the format has no field for it.
    static SOFTWARE: Table = Table {
        name: "software",
        walkers: 1,
        groups: &[
            &[event("faults", 2, 0), event("no such event", 4000, 0)],
            &[event("switches", 3, 0), event("masked", 2, 1)],
            &[event("nothing else", 4001, 0)],
        ],
        note: None,
    };

    fn value(counts: &[Count], name: &str) -> Option<f64> {
        let found = counts.iter().find(|count| count.name() == name);
        found.unwrap_or_else(|| panic!("no {name}: {counts:?}")).value
    }

    #[test]
    fn a_program_and_what_it_forks_is_counted_and_what_does_not_exist_is_left_out() {
        let counting = software(&SOFTWARE).of_children();
        testkit::require!(counting.is_ok(), "no software events: {counting:?}");
        let script = "(exec sh -c :); (exec sh -c :); sleep 0.01";
        let status = std::process::Command::new("sh").args(["-c", script]).status().unwrap();
        assert!(status.success());
        let counts = counting.unwrap().finish().unwrap();
        // All four programs cause page faults.
        assert!(value(&counts, "faults").unwrap() > 100.0, "{counts:?}");
        assert!(value(&counts, "switches").is_some());
        for missing in ["no such event", "masked", "nothing else"] {
            assert_eq!(value(&counts, missing), None);
        }
        let groups: Vec<u32> =
            counts.iter().filter(|count| count.is_cycles()).map(|count| count.group).collect();
        assert_eq!(groups, [0, 1], "{counts:?}");
    }

    #[test]
    fn a_process_that_dies_is_counted_until_then() {
        let script = "read go; (exec sh -c :); exit 0";
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid(child.id() as i32);
        let counting = software(&SOFTWARE).of_processes(&Root::real(), &[pid]);
        drop(child.stdin.take());
        child.wait().unwrap();
        testkit::require!(counting.is_ok(), "no software events: {counting:?}");
        let counts = counting.unwrap().finish().unwrap();
        assert!(value(&counts, "faults").unwrap() > 10.0, "{counts:?}");
        let gone = software(&SOFTWARE).of_processes(&Root::real(), &[pid]);
        assert_eq!(gone.err(), Some(CountersUnavailable::NoProcess));
    }

    #[test]
    fn cores_of_two_kinds_have_cycles_of_their_own() {
        let mut counters = software(&SOFTWARE);
        assert_eq!(cycles_of(&counters.pmu), Encoded::Cycles);
        (counters.pmu.name, counters.pmu.kind) = ("cpu_core".to_string(), 4);
        let expected = Encoded::Encoded { pmu: 0, config: [4 << 32, 0, 0] };
        assert_eq!(cycles_of(&counters.pmu), expected);
    }

    #[test]
    fn this_machine_counts_or_says_why_not() {
        let root = Root::real();
        let cpu = host::Snapshot::read(&root).cpu;
        let counters = match Counters::find(&root, cpu.as_ref()) {
            Ok(counters) => counters,
            Err(why) => {
                assert!(!why.to_string().contains('\n'), "{why}");
                testkit::skipped!("hardware is not counted here: {why}");
                return;
            }
        };
        let counting = counters.of_children();
        testkit::require!(counting.is_ok(), "no counters: {counting:?}");
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", busy]).status().unwrap();
        assert!(status.success());
        let counts = counting.unwrap().finish().unwrap();
        let context = crate::Context { table: Some(counters.table), cost: None };
        let estimate = crate::interpret(&counts, context);
        assert!(estimate.evidence.iter().any(|e| e.name.starts_with("cycles") && e.value > 1e6));
    }
}

#[cfg(test)]
mod unavailable_tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_line() {
        let facts = |paranoid, filtered, container| Facts { paranoid, filtered, container };
        for (facts, errno, expected) in [
            (
                facts(Some(3), false, false),
                libc::EACCES,
                CountersUnavailable::Paranoid { level: 3 },
            ),
            (facts(Some(4), false, true), libc::EPERM, CountersUnavailable::Paranoid { level: 4 }),
            (facts(Some(2), false, false), libc::EACCES, CountersUnavailable::AnotherUser),
            (facts(Some(2), true, true), libc::EPERM, CountersUnavailable::Container),
            (facts(Some(3), true, true), libc::EACCES, CountersUnavailable::Container),
            (facts(Some(2), true, false), libc::EPERM, CountersUnavailable::Seccomp),
            (facts(None, false, false), libc::ENOSYS, CountersUnavailable::NoKernelSupport),
            (facts(Some(2), true, true), libc::ESRCH, CountersUnavailable::NoProcess),
            (facts(Some(2), false, false), libc::EMFILE, CountersUnavailable::TooManyThreads),
            (
                facts(Some(2), false, false),
                libc::EBUSY,
                CountersUnavailable::Other { error: "busy".to_string() },
            ),
        ] {
            let why = facts.why(errno, "busy".to_string());
            assert_eq!(why, expected, "{facts:?} {errno}");
            assert!(!why.to_string().contains('\n'));
        }
    }

    #[test]
    fn facts_are_read_from_any_root() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::at(dir.path());
        assert_eq!(Facts::read(&root), Facts::default());
        write("proc/sys/kernel/perf_event_paranoid", "-1\n");
        write("proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        write("run/.containerenv", "");
        let all = Facts { paranoid: Some(-1), filtered: true, container: true };
        assert_eq!(Facts::read(&root), all);
    }

    #[test]
    fn a_guest_is_told_what_its_host_would_have_to_do() {
        let guest = host::parse::cpuinfo("flags : fpu hypervisor\n", "x".as_ref()).unwrap();
        assert!(no_pmu(Some(&guest)).to_string().contains("virtual PMU"));
        assert!(no_pmu(None).to_string().contains("--from"));
    }
}
