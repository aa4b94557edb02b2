//! Why hardware events cannot be counted, told apart, each with its remedy. The kernel's errno
//! alone is ambiguous: EPERM may be a container's filter, EACCES the administrator's limit.

use host::{Cpu, Hypervisor, Root};
use sys::SysError;

/// Why hardware events cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountersUnavailable {
    /// The kernel has no driver for one, as in a virtual machine whose host offers none.
    #[error("this machine has no performance counters: {place}")]
    NoPmu {
        /// Where it is, and what could be done.
        place: String,
    },
    /// There are counters, but it is not known what they count.
    #[error(
        "no event table for this processor ({model}); count its events with perf stat and use --from"
    )]
    UnknownProcessor {
        /// Its name.
        model: String,
    },
    /// The kernel's limit for those without privilege.
    #[error(
        "kernel.perf_event_paranoid is {level}: counting needs CAP_PERFMON, or as root: sysctl \
         kernel.perf_event_paranoid=2"
    )]
    Paranoid {
        /// The limit.
        level: i32,
    },
    /// The container's runtime filters the system call.
    #[error(
        "the container does not allow perf_event_open: run it with a seccomp profile that does, \
         or with --cap-add PERFMON (docker, podman)"
    )]
    Container,
    /// A system-call filter outside of a container.
    #[error("a seccomp filter does not allow perf_event_open: run superpage outside of it")]
    Seccomp,
    /// The process is somebody else's.
    #[error("the process belongs to another user: run superpage as that user, or as root")]
    AnotherUser,
    /// It has ended.
    #[error("no such process")]
    NoProcess,
    /// CONFIG_PERF_EVENTS is off.
    #[error("this kernel cannot count events: it was built without CONFIG_PERF_EVENTS")]
    NoKernelSupport,
    /// More descriptors than this process may have: one for each event of each thread.
    #[error("too many threads for this process's limit of open files; raise it: ulimit -n 65536")]
    TooManyThreads,
    /// The counters are in use, or the events are not to be had.
    #[error("the counters are not available: {error}; does another profiler use them?")]
    Other {
        /// The system call's error.
        error: String,
    },
}

/// What tells the reasons apart, read from the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `kernel.perf_event_paranoid`; `None` where the kernel has no such events at all.
    pub paranoid: Option<i32>,
    /// Whether a system-call filter is in force for us (`Seccomp: 2` in /proc/self/status).
    pub filtered: bool,
    /// Whether we are in a container.
    pub container: bool,
}

impl Facts {
    /// Reads them.
    pub fn read(root: &Root) -> Self {
        let paranoid = root.read("/proc/sys/kernel/perf_event_paranoid").ok();
        let status = root.read("/proc/self/status").unwrap_or_default();
        let seccomp = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        // docker and podman mark their containers so; systemd-nspawn and LXC say it to pid 1.
        let marked = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
        Self {
            paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
            filtered: seccomp.is_some_and(|mode| mode.trim() == "2"),
            container: marked.iter().any(|path| root.path(path).exists()),
        }
    }

    /// Why the kernel refused with this errno.
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
                // Beyond 2 nothing may be counted (Debian's and Android's levels 3 and 4).
                Some(level) if level > 2 => CountersUnavailable::Paranoid { level },
                // At 2 a process of one's own may be counted in user mode: it is another's.
                Some(_) => CountersUnavailable::AnotherUser,
                None => CountersUnavailable::NoKernelSupport,
            },
            _ => CountersUnavailable::Other { error },
        }
    }
}

/// Why the kernel refused, from this machine's facts.
pub(super) fn explain(error: &SysError) -> CountersUnavailable {
    Facts::read(&Root::real()).why(error.errno(), error.to_string())
}

/// Why there is no PMU.
pub(super) fn no_pmu(cpu: Option<&Cpu>) -> CountersUnavailable {
    let place = match cpu.map(|cpu| &cpu.hypervisor) {
        Some(Hypervisor::Present(name)) => {
            let name = name.as_deref().map_or(String::new(), |name| format!(" under {name}"));
            format!(
                "a virtual machine{name} whose host offers none; enable a virtual PMU (libvirt: <pmu \
                 state='on'/>, clouds: a metal instance), or use --method trace"
            )
        }
        _ => "the kernel found none; use --method trace, or give counts of another machine with --from"
            .to_string(),
    };
    CountersUnavailable::NoPmu { place }
}

#[cfg(test)]
mod tests {
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
