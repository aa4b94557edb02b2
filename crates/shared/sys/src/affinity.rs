//! CPU affinity and nice value of the calling thread, and the online CPUs.

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
