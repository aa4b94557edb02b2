//! CPU affinity, nice value and scheduling policy of the calling thread, and the online CPUs.
//!
//! # Safety
//! The raw system calls take integers and one pointer to a local structure that outlives the call; they change scheduling
//! only, no memory.

use std::marker::PhantomData;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::SysError;

/// `int sched_setaffinity(0, sizeof set, &set)`: restricts this thread to CPU `cpu`. `EINVAL`: the CPU is offline, or a
/// cpuset excludes it. No privilege is needed.
pub fn pin(cpu: usize) -> Result<(), SysError> {
    set(&[cpu])
}

/// Like [`pin`], for several CPUs.
pub fn set(cpus: &[usize]) -> Result<(), SysError> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set)
        .map_err(|errno| SysError::new("sched_setaffinity", format!("CPUs {cpus:?}"), errno))
}

/// Makes a CPU mask of `cpus`; omits numbers that the mask cannot hold.
pub(crate) fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
    set
}

/// Sets the affinity mask of a forked child before its exec.
pub(crate) fn restrict(set: &CpuSet) -> std::io::Result<()> {
    Ok(sched_setaffinity(None, set)?)
}

/// `int sched_getaffinity(0, ...)`: the CPUs that this thread may run on, ascending.
pub fn allowed() -> Result<Vec<usize>, SysError> {
    let set = sched_getaffinity(None)
        .map_err(|errno| SysError::new("sched_getaffinity", "this thread", errno))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// `int nice(int increment)` for this thread only. `EPERM`: lowering the nice value needs CAP_SYS_NICE.
pub fn add_nice(increment: i32) -> Result<(), SysError> {
    let added = rustix::process::nice(increment);
    added.map(|_| ()).map_err(|errno| SysError::new("nice", format!("{increment}"), errno))
}

/// Real-time priority of the calling thread until the value is dropped.
///
/// A thread that holds another process's lock inside the kernel and loses its CPU keeps the lock for as long as it waits: on
/// a machine with two tasks for each CPU 4 ms and more, where the call takes 0.2 ms (docs/decisions/map.md#4). Real-time tasks
/// lose their CPU to no ordinary task, of whatever cgroup. Take it for calls that are short, or rest between them.
#[derive(Debug)]
pub struct Undisturbed {
    /// The policy to restore; `None`: the thread was a real-time task before.
    before: Option<libc::c_int>,
    /// The priority is that of one thread.
    _of_this_thread: PhantomData<*const ()>,
}

impl Undisturbed {
    /// `int sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, {1})`: the lowest real-time priority; children do
    /// not inherit it. `EPERM`: needs CAP_SYS_NICE or an RLIMIT_RTPRIO of 1, and a cgroup with real-time bandwidth.
    pub fn new() -> Result<Self, SysError> {
        // musl's functions only return ENOSYS, so the calls are made here.
        // SAFETY: no pointers.
        let before = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        let before = libc::c_int::try_from(before).unwrap_or(-1);
        if before < 0 {
            return Err(SysError::last("sched_getscheduler", "this thread".to_string()));
        }
        let is_ordinary = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE]
            .contains(&(before & !RESET_ON_FORK));
        if is_ordinary {
            set_policy(libc::SCHED_FIFO | RESET_ON_FORK, 1)?;
        }
        Ok(Self { before: is_ordinary.then_some(before), _of_this_thread: PhantomData })
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Clearing SCHED_RESET_ON_FORK needs CAP_SYS_NICE; the policy itself can always be lowered.
            if set_policy(before, 0).is_err() {
                let _ = set_policy(before | RESET_ON_FORK, 0);
            }
        }
    }
}

/// `SCHED_RESET_ON_FORK` of `include/uapi/linux/sched.h`.
const RESET_ON_FORK: libc::c_int = 0x4000_0000;

/// `int sched_setscheduler(0, policy, &param)` for this thread.
fn set_policy(policy: libc::c_int, priority: libc::c_int) -> Result<(), SysError> {
    // `struct sched_param` of the kernel is this one number.
    let param: libc::c_int = priority;
    // SAFETY: `param` is a live local of the size that the kernel reads.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const param) } {
        0 => Ok(()),
        _ => Err(SysError::last("sched_setscheduler", format!("policy {policy}"))),
    }
}

/// The online CPUs, ascending.
pub fn online() -> Result<Vec<u32>, SysError> {
    let path = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(path).map_err(|error| SysError::new("read", path, error))?;
    let invalid = || std::io::Error::other(format!("invalid list of CPUs `{}`", text.trim()));
    list(text.trim()).ok_or_else(|| SysError::new("read", path, invalid()))
}

/// Parses a CPU list: `0-3,8`.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(
            first.parse::<u32>().ok()?..=last.parse::<u32>().ok().filter(|&last| last < 1 << 16)?,
        );
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(list("0"), Some(vec![0]));
        assert_eq!((list(""), list("x-3"), list("0-99999999")), (None, None, None));
        assert!(!online().unwrap().is_empty());
    }

    #[test]
    fn a_real_time_priority_ends_with_its_value() {
        // SAFETY: no pointers.
        let policy = || unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        // A thread of its own: the policy is the thread's.
        std::thread::spawn(move || {
            let before = policy();
            match Undisturbed::new() {
                Err(error) => {
                    assert_eq!(error.errno(), libc::EPERM, "{error}");
                    testkit::skipped!("no real-time priority here: {error}");
                }
                Ok(undisturbed) => {
                    assert_eq!(policy() as libc::c_int, libc::SCHED_FIFO | RESET_ON_FORK);
                    let nested = Undisturbed::new().unwrap();
                    drop(nested);
                    assert_eq!(policy() as libc::c_int, libc::SCHED_FIFO | RESET_ON_FORK);
                    drop(undisturbed);
                }
            }
            assert_eq!(policy(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_pinned_thread_may_run_nowhere_else() {
        // Use a separate thread, because the affinity ends with the thread.
        let pinned = std::thread::spawn(|| {
            let cpu = *allowed().unwrap().last().unwrap();
            pin(cpu).unwrap();
            (cpu, allowed().unwrap())
        });
        let (cpu, allowed) = pinned.join().unwrap();
        assert_eq!(allowed, [cpu]);
        assert!(pin(CpuSet::MAX_CPU - 1).is_err());
    }
}
