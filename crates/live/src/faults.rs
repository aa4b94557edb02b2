//! Where memory grows: one of some page faults of the machine, with its address, as the kernel serves it.
//!
//! The rings are the machine's, one a CPU: the served programs inherit nothing, and neither their context switches nor
//! their forks get slower. Samples of other programs are passed over. See docs/decisions/live.md#7.

use std::collections::BTreeMap;
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::Duration;

use sys::SysError;
use sys::perf::{Event, Ring};
use units::Pid;

/// One of so many faults is sampled.
const EVERY: u64 = 32;
/// Base pages of a ring, of 512 samples.
const RING: usize = 4;
/// So many samples on a CPU, of 2 MiB that is filled page by page, end a wait.
const WAKE: u32 = 16;

/// The faults of the machine.
#[derive(Debug)]
pub(crate) struct Faults {
    rings: Vec<Ring>,
    /// Closed when the executor is to stop.
    stop: PipeReader,
}

impl Faults {
    /// Not permitted without CAP_PERFMON, and in containers that forbid `perf_event_open(2)`.
    pub(crate) fn open(stop: PipeReader) -> Result<Self, SysError> {
        let open = |cpu| Ring::sample_cpu(Event::MinorFaults, cpu, RING, EVERY, WAKE);
        let rings = sys::affinity::online()?.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { rings, stop })
    }

    /// The addresses of faults since the last call, by process, and in the order that each CPU took them.
    pub(crate) fn take(&mut self) -> BTreeMap<Pid, Vec<u64>> {
        let mut taken = BTreeMap::<Pid, Vec<u64>>::new();
        for ring in &mut self.rings {
            ring.drain(|record| {
                if let Some(sample) = record.sample() {
                    taken.entry(sample.pid).or_default().push(sample.address);
                }
            });
        }
        taken
    }

    /// Waits for many faults, for the end, or so long.
    pub(crate) fn wait(&self, timeout: Duration) {
        Ring::wait(&self.rings, self.stop.as_fd(), timeout);
    }
}
