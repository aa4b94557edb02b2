//! Resource usage of this process, and the page size.
//!
//! # Safety
//! This file makes two libc calls, which write to at most one local.

use std::time::Duration;

use units::PageSize;

/// `getrusage(2)` of the whole process: the fields that the kernels use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub minor_faults: u64,
    pub user: Duration,
    pub system: Duration,
}

impl Usage {
    /// Reads the current usage; `None` if the call fails.
    pub(crate) fn now() -> Option<Self> {
        let mut raw = std::mem::MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: `raw` is a local that is large enough for the one rusage the call writes.
        let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, raw.as_mut_ptr()) };
        if status != 0 {
            return None;
        }
        // SAFETY: getrusage returned 0, so it filled `raw`.
        let raw = unsafe { raw.assume_init() };
        Some(Self {
            minor_faults: u64::try_from(raw.ru_minflt).ok()?,
            user: duration(raw.ru_utime)?,
            system: duration(raw.ru_stime)?,
        })
    }

    /// Seconds of CPU time, in user mode and in the kernel.
    pub(crate) fn cpu_seconds(self) -> f64 {
        (self.user + self.system).as_secs_f64()
    }

    /// The sum of two usages.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            minor_faults: self.minor_faults + other.minor_faults,
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }

    /// The usage since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// The machine's base page size.
pub fn page_size() -> PageSize {
    // SAFETY: sysconf takes and returns an integer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // POSIX defines no failure for this name, and every page size of Linux is a power of two.
    PageSize::new(bytes as u64).expect("sysconf(_SC_PAGESIZE) is a power of two")
}

fn duration(time: libc::timeval) -> Option<Duration> {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
    Some(seconds + Duration::from_micros(u64::try_from(time.tv_usec).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_faults_of_fresh_memory() {
        let before = Usage::now().unwrap();
        let pages = 4096; // 16 MiB or more: above every malloc's mmap threshold
        let page = page_size().bytes() as usize;
        let mut memory = crate::memory::Zeroed::<u64>::new("a test", pages * page / 8).unwrap();
        memory.iter_mut().step_by(page / 8).for_each(|word| *word = 1);
        assert!(memory[0] == 1 && Usage::now().unwrap().since(before).minor_faults > 0);
    }
}
