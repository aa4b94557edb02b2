//! Event groups: the kernel schedules all counters of a group on the PMU together, so their counts cover the same time
//! intervals.

use std::os::fd::AsRawFd;

use perf_event_open_sys as raw;
use raw::bindings as abi;
use units::Pid;

use super::{Count, Counter, Event};
use crate::SysError;

/// The threads whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A thread, and all threads and children that this thread creates from now on. A process id means its main thread.
    Thread(Pid),
    /// All processes that the calling thread starts from now on, counted from their first exec. The calling thread
    /// itself is not counted.
    Children,
}

/// The privilege levels in which events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modes {
    /// User and kernel mode; needs `kernel.perf_event_paranoid` of 1 or less, or CAP_PERFMON.
    All,
    /// User mode only; needs `kernel.perf_event_paranoid` of 2 or less.
    User,
}

/// An event group, which counts until it is stopped or dropped.
#[derive(Debug)]
pub struct Group {
    /// The leader first; never empty.
    counters: Vec<Counter>,
}

impl Group {
    /// Opens `events` as one group; the first is the leader. Errors as for [`Counter::open`], and `EINVAL` if the PMU
    /// has too few counters for the group.
    pub fn open(events: &[Event], target: Target, modes: Modes) -> Result<Self, SysError> {
        let mut counters: Vec<Counter> = Vec::with_capacity(events.len());
        for event in events {
            let counter = Counter::open_in(*event, target, modes, counters.first())?;
            counters.push(counter);
        }
        assert!(!counters.is_empty(), "a group has a leader");
        Ok(Self { counters })
    }

    /// Stops all counters at once, including inherited ones (`PERF_EVENT_IOC_DISABLE` with `PERF_IOC_FLAG_GROUP`).
    pub fn stop(&self) -> Result<(), SysError> {
        let leader = self.counters[0].file.as_raw_fd();
        // SAFETY: the descriptor is open as long as `self`, and the argument is an integer.
        match unsafe { raw::ioctls::DISABLE(leader, abi::PERF_IOC_FLAG_GROUP) } {
            0 => Ok(()),
            _ => Err(SysError::last("ioctl(PERF_EVENT_IOC_DISABLE)", "a group of counters")),
        }
    }

    /// Reads the counts, in the order of the events. The counters are read one after another, so stop the group first.
    /// (Before Linux 4.13 PERF_FORMAT_GROUP cannot be combined with inherit.)
    pub fn read(&mut self) -> Result<Vec<Count>, SysError> {
        self.counters.iter_mut().map(Counter::read).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::process::Command;

    use super::*;
    use crate::mem::{Backing, Mapping};

    const SOFTWARE: [Event; 2] = [Event::TaskClock, Event::PageFaults];

    fn open(target: Target) -> Option<Group> {
        let opened = [Modes::All, Modes::User].map(|modes| Group::open(&SOFTWARE, target, modes));
        match opened.into_iter().find_map(Result::ok) {
            Some(group) => Some(group),
            None => {
                testkit::skipped!("no counters here");
                None
            }
        }
    }

    #[test]
    fn children_are_counted_from_their_exec_on_and_we_are_not() {
        let Some(mut group) = open(Target::Children) else { return };
        let ours: Vec<u8> = black_box(vec![1; 8 << 20]);
        assert_eq!(group.read().unwrap()[1].value, 0, "{}", ours.len());
        // Grandchildren are counted too, and the counts survive the exits of children and
        // grandchildren.
        let status = Command::new("sh").args(["-c", "true; (true); :"]).status().unwrap();
        assert!(status.success());
        let counts = group.read().unwrap();
        assert!(counts[1].value > 20, "{counts:?}");
        assert!(counts[0].enabled_ns > 0 && counts[0].enabled_ns == counts[1].enabled_ns);
    }

    #[test]
    fn a_stopped_group_counts_no_more() {
        let thread = Pid(rustix::thread::gettid().as_raw_nonzero().get());
        let Some(mut group) = open(Target::Thread(thread)) else { return };
        // A new mapping, because malloc may return memory that another test has touched and freed.
        let touch = || Mapping::anonymous(8 << 20, Backing::Pages).unwrap().bytes_mut().fill(1);
        // For a running thread, the kernel may start a new event only when it next schedules the thread in.
        for _ in 0..9_000 {
            touch();
            if group.read().unwrap()[1].value > 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        group.stop().unwrap();
        let stopped = group.read().unwrap();
        assert!(stopped[1].value > 0, "{stopped:?}");
        touch();
        assert_eq!(group.read().unwrap(), stopped);
    }

    #[test]
    fn a_pmu_that_is_not_there_is_an_error() {
        let event = Event::Encoded { pmu: 0xffff, config: [0; 3] };
        let error = Group::open(&[event], Target::Children, Modes::User).unwrap_err();
        assert!(
            [libc::ENOENT, libc::EACCES, libc::EPERM, libc::EINVAL].contains(&error.errno()),
            "{error}"
        );
    }
}
