//! Software and hardware perf events of one process: `perf_event_open(2)`.

mod group;
mod ring;

pub use group::{Group, Modes, Target};
pub use ring::{Record, Ring, Sample, UserSample};

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as raw;
use raw::bindings as abi;
use units::Pid;

use crate::SysError;

/// What to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All page faults; a software event, needs no PMU.
    PageFaults,
    /// Page faults that needed no I/O.
    MinorFaults,
    /// Nanoseconds of CPU time.
    TaskClock,
    /// CPU cycles; needs a PMU.
    Cycles,
    /// Instructions; needs a PMU.
    Instructions,
    /// Loads that missed the data TLB; needs a PMU.
    DataTlbLoadMisses,
    /// Stores that missed the data TLB; needs a PMU.
    DataTlbStoreMisses,
    /// Instruction fetches that missed the TLB; needs a PMU.
    InstructionTlbMisses,
    /// A tracepoint by its number in the `id` file under tracefs.
    Tracepoint(u64),
    /// A raw event code of this CPU's PMU.
    Raw(u64),
    /// An event of another PMU, with type and config as sysfs describes them.
    Encoded {
        /// The PMU's `type`.
        pmu: u32,
        /// `config`, `config1` and `config2`.
        config: [u64; 3],
    },
}

/// A count with its enabled and running times. If the running time is shorter, the kernel multiplexed the PMU; the
/// estimated count is `value * enabled / running`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Number of events counted.
    pub value: u64,
    /// Nanoseconds for which the counter was enabled.
    pub enabled_ns: u64,
    /// Nanoseconds for which the counter ran on the PMU.
    pub running_ns: u64,
}

/// An open perf event; counts from open to drop.
#[derive(Debug)]
pub struct Counter {
    file: File,
    event: Event,
}

impl Counter {
    /// Counts `event` on every CPU, for thread `pid` and for all threads and children that this thread creates from now
    /// on. A process id means its main thread.
    ///
    /// Linux 2.6.31. `ENOENT`/`EOPNOTSUPP`: no PMU, or no such event. `EACCES`/`EPERM`: needs CAP_PERFMON or a lower
    /// `kernel.perf_event_paranoid`. `ESRCH`: no such process.
    pub fn open(event: Event, pid: Pid) -> Result<Self, SysError> {
        Self::open_in(event, Target::Thread(pid), Modes::All, None)
    }

    /// Like [`Self::open`], for any target. The counter joins the group of `leader`, or becomes a leader if `None`.
    fn open_in(
        event: Event,
        target: Target,
        modes: Modes,
        leader: Option<&Self>,
    ) -> Result<Self, SysError> {
        let (kind, [config, config1, config2]) = event.kind_and_config();
        let mut attributes = abi::perf_event_attr::default();
        attributes.size = size_of::<abi::perf_event_attr>() as u32;
        attributes.type_ = kind;
        attributes.config = config;
        attributes.__bindgen_anon_3.config1 = config1;
        attributes.__bindgen_anon_4.config2 = config2;
        attributes.read_format = u64::from(abi::PERF_FORMAT_TOTAL_TIME_ENABLED)
            | u64::from(abi::PERF_FORMAT_TOTAL_TIME_RUNNING);
        attributes.set_inherit(1);
        attributes.set_exclude_hv(1);
        attributes.set_exclude_kernel((modes == Modes::User).into());
        let pid = match target {
            Target::Thread(pid) => pid.0,
            Target::Children => {
                // Only the leader waits for the exec: members count only while their leader does.
                attributes.set_disabled(leader.is_none().into());
                attributes.set_enable_on_exec(leader.is_none().into());
                0
            }
        };
        let group = leader.map_or(-1, |leader| leader.file.as_raw_fd());
        let close_on_exec = abi::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: the attributes are a live local of the size they state.
        let fd = unsafe { raw::perf_event_open(&mut attributes, pid, -1, group, close_on_exec) };
        if fd < 0 {
            return Err(SysError::last("perf_event_open", format!("{event:?} of {target:?}")));
        }
        // SAFETY: the kernel just created this descriptor, so it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { file: File::from(fd), event })
    }

    /// Reads the count, including inherited children.
    pub fn read(&mut self) -> Result<Count, SysError> {
        let mut words = [0; 24];
        self.file
            .read_exact(&mut words)
            .map_err(|error| SysError::new("read", format!("counter {:?}", self.event), error))?;
        let word = |index: usize| {
            u64::from_ne_bytes(words[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
        };
        Ok(Count { value: word(0), enabled_ns: word(1), running_ns: word(2) })
    }
}

impl Event {
    fn kind_and_config(self) -> (u32, [u64; 3]) {
        let software = |config: u32| (abi::PERF_TYPE_SOFTWARE, u64::from(config));
        let hardware = |config: u32| (abi::PERF_TYPE_HARDWARE, u64::from(config));
        let tlb_miss = |cache: u32, operation: u32| {
            let miss = u64::from(abi::PERF_COUNT_HW_CACHE_RESULT_MISS) << 16;
            (abi::PERF_TYPE_HW_CACHE, u64::from(cache) | u64::from(operation) << 8 | miss)
        };
        let (kind, config) = match self {
            Self::Encoded { pmu, config } => return (pmu, config),
            Self::PageFaults => software(abi::PERF_COUNT_SW_PAGE_FAULTS),
            Self::MinorFaults => software(abi::PERF_COUNT_SW_PAGE_FAULTS_MIN),
            Self::TaskClock => software(abi::PERF_COUNT_SW_TASK_CLOCK),
            Self::Cycles => hardware(abi::PERF_COUNT_HW_CPU_CYCLES),
            Self::Instructions => hardware(abi::PERF_COUNT_HW_INSTRUCTIONS),
            Self::DataTlbLoadMisses => {
                tlb_miss(abi::PERF_COUNT_HW_CACHE_DTLB, abi::PERF_COUNT_HW_CACHE_OP_READ)
            }
            Self::DataTlbStoreMisses => {
                tlb_miss(abi::PERF_COUNT_HW_CACHE_DTLB, abi::PERF_COUNT_HW_CACHE_OP_WRITE)
            }
            Self::InstructionTlbMisses => {
                tlb_miss(abi::PERF_COUNT_HW_CACHE_ITLB, abi::PERF_COUNT_HW_CACHE_OP_READ)
            }
            Self::Tracepoint(id) => (abi::PERF_TYPE_TRACEPOINT, id),
            Self::Raw(config) => (abi::PERF_TYPE_RAW, config),
        };
        (kind, [config, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Advice, Backing, Mapping};

    fn open_own(event: Event) -> Option<Counter> {
        let thread = Pid(rustix::thread::gettid().as_raw_nonzero().get());
        match Counter::open(event, thread) {
            Ok(counter) => Some(counter),
            Err(error) => {
                testkit::skipped!("no counter here: {error}");
                None
            }
        }
    }

    #[test]
    fn counts_the_page_faults_a_mapping_takes() {
        let Some(mut counter) = open_own(Event::PageFaults) else { return };
        let mut mapping = Mapping::anonymous(4 << 20, Backing::Pages).unwrap();
        mapping.advise(Advice::NoHugePage).unwrap();
        let before = counter.read().unwrap().value;
        mapping.bytes_mut().fill(1);
        let pages = crate::param::page_size().count(4 << 20);
        assert!(counter.read().unwrap().value - before >= pages);
    }

    #[test]
    fn hardware_counts_where_there_is_a_pmu() {
        let Some(mut counter) = open_own(Event::Instructions) else { return };
        let first = counter.read().unwrap();
        let second = counter.read().unwrap();
        assert!(second.value > first.value || second.running_ns == 0, "{first:?} {second:?}");
    }

    #[test]
    fn a_missing_process_is_esrch() {
        let error = Counter::open(Event::PageFaults, Pid(i32::MAX)).unwrap_err();
        assert!([libc::ESRCH, libc::EACCES].contains(&error.errno()), "{error}");
    }
}
