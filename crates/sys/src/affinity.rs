//! Which CPUs this thread runs on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::SysError;

/// `int sched_setaffinity(0, sizeof set, &set)`: this thread runs on CPU `cpu` alone. `EINVAL`: it is
/// offline, or a cpuset forbids it. No privilege is needed.
pub fn pin(cpu: usize) -> Result<(), SysError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|errno| SysError::new("sched_setaffinity", format!("CPU {cpu}"), errno))
}

/// `int sched_getaffinity(0, ...)`: the CPUs that this thread may run on, ascending.
pub fn allowed() -> Result<Vec<usize>, SysError> {
    let set = sched_getaffinity(None)
        .map_err(|errno| SysError::new("sched_getaffinity", "this thread", errno))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_run_nowhere_else() {
        // A thread of its own: the pin ends with it.
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
