//! Limits and a record beside the executor's own, for programs that somebody else started.

use std::time::Duration;

use units::Pid;

/// Limits the superpages that an executor makes, and learns of them.
pub trait Supervisor: Send {
    /// How long no superpage may be made; zero: one may be made now.
    fn pause(&mut self) -> Duration;

    /// Called before superpages are made of `starts` (addresses, ascending). Returns those that may be made now. The
    /// executor asks about the others again, later each time.
    fn permit(&mut self, pid: Pid, starts: &[u64]) -> Vec<u64>;

    /// Called after what was permitted has been tried, or was not tried because of the executor's own limits.
    fn called(&mut self, call: &Call<'_>);
}

/// A call of MADV_COLLAPSE.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The process.
    pub pid: Pid,
    /// Addresses that were permitted.
    pub permitted: &'a [u64],
    /// Those that became superpages.
    pub made: &'a [u64],
    /// Why one that was permitted did not.
    pub failure: Option<&'static str>,
    /// Number of zeroed pages that filled them.
    pub filled_pages: u64,
    /// How long it took. A thread of the process that accesses the memory meanwhile waits at most as long.
    pub took: Duration,
    /// CPU time that it took: without the time in which it waited for a CPU, or for kernel threads on other CPUs.
    pub cpu: Duration,
}
