//! perf ring buffers: records of events as they occur (`perf_event_open(2)`).
//!
//! # Safety The kernel writes the ring while we read. A [`Ring`] owns its mapping (it is neither `Clone` nor `Copy`,
//! and unmaps on drop) and hands out only copies. The kernel writes records and then advances `data_head`; it does not
//! overwrite data between `data_tail` and `data_head` (perf_event_open(2), "Ring-buffer layout"). So a reader loads the
//! head with acquire, copies the data, and stores the tail with release.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perf_event_open_sys as raw;
use raw::bindings as abi;

use rustix::event::{PollFd, PollFlags, Timespec};
use units::Pid;

use super::{Event, Target};
use crate::SysError;

/// A record. The body of a sample holds, in this order: pid and tid (u32 each), time, address (u64 each), length of raw
/// data (u32), raw data. The bodies of all other records end with pid, tid and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// `PERF_RECORD_…` type.
    pub kind: u32,
    /// The `misc` bits of the header; their meaning depends on the type.
    pub misc: u16,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// The fixed fields of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The process.
    pub pid: Pid,
    /// Timestamp in nanoseconds of the kernel's scheduler clock.
    pub time: u64,
    /// The address of the event (`PERF_SAMPLE_ADDR`).
    pub address: u64,
}

impl Record<'_> {
    /// Parses the record as a sample; `None` if it has another type.
    pub fn sample(&self) -> Option<Sample> {
        let word = |at: usize| Some(u64::from_ne_bytes(*self.body.get(at..)?.first_chunk()?));
        (self.kind == abi::PERF_RECORD_SAMPLE).then_some(())?;
        let pid = i32::from_ne_bytes(*self.body.first_chunk()?);
        Some(Sample { pid: Pid(pid), time: word(8)?, address: word(16)? })
    }
}

/// A sample of [`Ring::sample_thread`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSample {
    /// The thread.
    pub thread: Pid,
    /// Timestamp in nanoseconds of the kernel's scheduler clock.
    pub time: u64,
    /// Address of the next instruction.
    pub instruction: u64,
    /// The general registers, in the order of `asm/perf_regs.h` (x86: AX, BX, CX, DX, SI, DI, BP, SP, then R8 to R15);
    /// `None`: a 32-bit program, or none were recorded.
    pub registers: Option<[u64; 16]>,
    /// The flags (x86: EFLAGS); 0 without registers.
    pub flags: u64,
}

/// The registers in samples, as bits of `sample_regs_user`: of x86 the first 8 general ones, the flags, the other 8.
const REGISTERS: u64 = 0xff_02ff;
/// The place of the flags among them.
const FLAGS: usize = 8;

/// Record type of lost samples; their number is the second u64 of the body.
const LOST: u32 = abi::PERF_RECORD_LOST;

impl Record<'_> {
    /// Parses the record as a sample of [`Ring::sample_thread`]; `None` if it has another type.
    pub fn user_sample(&self) -> Option<UserSample> {
        let word = |at: usize| Some(u64::from_ne_bytes(*self.body.get(at..)?.first_chunk()?));
        (self.kind == abi::PERF_RECORD_SAMPLE).then_some(())?;
        let thread = i32::from_ne_bytes(*self.body.get(12..)?.first_chunk()?);
        let (mut registers, mut flags) = (None, 0);
        if word(24)? == u64::from(abi::PERF_SAMPLE_REGS_ABI_64) {
            let at = |place: usize| word(32 + 8 * place);
            let mut general = [0; 16];
            for (place, register) in general.iter_mut().enumerate() {
                *register = at(if place < FLAGS { place } else { place + 1 })?;
            }
            (registers, flags) = (Some(general), at(FLAGS)?);
        }
        Some(UserSample {
            thread: Pid(thread),
            time: word(16)?,
            instruction: word(0)?,
            registers,
            flags,
        })
    }

    /// Number of samples for which the ring had no space; 0 for other records.
    pub fn lost(&self) -> u64 {
        let count = || Some(u64::from_ne_bytes(*self.body.get(8..)?.first_chunk()?));
        if self.kind == LOST { count().unwrap_or(0) } else { 0 }
    }
}

/// A ring of one event on one CPU, or of one thread; closed on drop.
#[derive(Debug)]
pub struct Ring {
    base: *mut u8,
    page: usize,
    /// Bytes of the data area, a power of two.
    size: usize,
    copy: Vec<u8>,
    fd: OwnedFd,
}

// SAFETY: the ring alone owns the mapping, and any one thread at a time may read it.
unsafe impl Send for Ring {}

impl Ring {
    /// Records every occurrence of `event` on `cpu` in the target, and in all threads and processes that the target
    /// creates from now on. Also records their mmaps, forks, execs and exits. The ring has `pages` pages (a power of
    /// two).
    ///
    /// Linux 4.1. `EACCES`/`EPERM`: needs CAP_PERFMON, or a lower `kernel.perf_event_paranoid` (-1 for
    /// tracepoints), or fewer pages (`kernel.perf_event_mlock_kb`). `EINVAL`, `ENOENT`: no such event.
    pub fn open(event: Event, target: Target, cpu: u32, pages: usize) -> Result<Self, SysError> {
        let mut attributes = attributes(event, 1);
        attributes.sample_type |= u64::from(abi::PERF_SAMPLE_RAW);
        attributes.set_sample_id_all(1);
        attributes.set_inherit(1);
        let pid = match target {
            Target::Thread(pid) => pid.0,
            Target::Children => {
                attributes.set_disabled(1);
                attributes.set_enable_on_exec(1);
                0
            }
        };
        attributes.set_mmap(1);
        attributes.set_mmap_data(1);
        attributes.set_mmap2(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        attributes.set_task(1);
        let on = || format!("{event:?} of {target:?} on CPU {cpu}");
        Self::new(&mut attributes, pid, cpu as i32, pages, &on)
    }

    /// Records every `every`th occurrence of `event` on `cpu`, whatever runs there, in a ring of `pages` pages (a power
    /// of two). Samples have no raw data. The only other records report lost samples. A [wait](Self::wait) ends after
    /// every `wake` samples.
    ///
    /// Linux 2.6.32. `EACCES`/`EPERM`: needs CAP_PERFMON, or `kernel.perf_event_paranoid` of 0 or less.
    pub fn sample_cpu(
        event: Event,
        cpu: u32,
        pages: usize,
        every: u64,
        wake: u32,
    ) -> Result<Self, SysError> {
        let mut attributes = attributes(event, every);
        attributes.set_watermark(1);
        attributes.__bindgen_anon_2.wakeup_watermark = wake * SAMPLE_BYTES;
        let on = || format!("{event:?} on CPU {cpu}");
        Self::new(&mut attributes, -1, cpu as i32, pages, &on)
    }

    /// Samples what a thread executes in user mode, every `period` nanoseconds of its CPU time, in a ring of `pages`
    /// pages (a power of two): the instruction pointer and the general registers ([`Record::user_sample`]). The clock
    /// is a timer of the kernel, so no PMU is needed. Time in the kernel gives no samples. Threads that the thread
    /// creates are not sampled.
    ///
    /// Linux 3.7. `EACCES`/`EPERM`: another user's process needs CAP_PERFMON or CAP_SYS_PTRACE, and an own one
    /// `kernel.perf_event_paranoid` of 2 or less; or fewer pages (`kernel.perf_event_mlock_kb`). `ESRCH`: no such
    /// thread. `EOPNOTSUPP`, `ENOSYS`: this kernel gives no registers on this architecture.
    pub fn sample_thread(thread: Pid, period: u64, pages: usize) -> Result<Self, SysError> {
        let mut attributes = abi::perf_event_attr::default();
        attributes.size = size_of::<abi::perf_event_attr>() as u32;
        attributes.type_ = abi::PERF_TYPE_SOFTWARE;
        attributes.config = u64::from(abi::PERF_COUNT_SW_CPU_CLOCK);
        attributes.__bindgen_anon_1.sample_period = period;
        attributes.sample_type = u64::from(
            abi::PERF_SAMPLE_IP
                | abi::PERF_SAMPLE_TID
                | abi::PERF_SAMPLE_TIME
                | abi::PERF_SAMPLE_REGS_USER,
        );
        attributes.sample_regs_user = REGISTERS;
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        Self::new(&mut attributes, thread.0, -1, pages, &|| format!("CPU clock of thread {thread}"))
    }

    fn new(
        attributes: &mut abi::perf_event_attr,
        pid: i32,
        cpu: i32,
        pages: usize,
        on: &dyn Fn() -> String,
    ) -> Result<Self, SysError> {
        assert!(pages.is_power_of_two(), "{pages} pages");
        let close_on_exec = abi::PERF_FLAG_FD_CLOEXEC.into();
        // SAFETY: the attributes are a live value of the size they state.
        let fd = unsafe { raw::perf_event_open(attributes, pid, cpu, -1, close_on_exec) };
        if fd < 0 {
            return Err(SysError::last("perf_event_open", on()));
        }
        // SAFETY: the kernel just created this descriptor, so it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let page = crate::param::page_size().bytes() as usize;
        let size = pages * page;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of our own descriptor, at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + size,
                rights,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(SysError::last("mmap", format!("{pages} pages for {}", on())));
        }
        Ok(Self { base: base.cast(), page, size, copy: Vec::new(), fd })
    }

    /// Passes every available record to `what`, in order, and frees the space in the ring. Returns the number of bytes
    /// consumed.
    pub fn drain(&mut self, mut what: impl FnMut(Record<'_>)) -> usize {
        let end = self.counter(HEAD).load(Ordering::Acquire);
        let begin = self.counter(TAIL).load(Ordering::Relaxed);
        let length = (end.wrapping_sub(begin) as usize).min(self.size);
        let mut copy = std::mem::take(&mut self.copy);
        copy.resize(length, 0);
        let at = begin as usize & (self.size - 1);
        let first = length.min(self.size - at);
        // SAFETY: the data area of `size` bytes follows the first page; `at` is inside it, `first` bytes from there end
        // inside it, and the remainder ends before `at`. The kernel does not write there until the tail moves. `copy`
        // is our own memory.
        unsafe {
            let ring = self.base.add(self.page);
            std::ptr::copy_nonoverlapping(ring.add(at), copy.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(ring, copy.as_mut_ptr().add(first), length - first);
        }
        self.counter(TAIL).store(begin.wrapping_add(length as u64), Ordering::Release);
        let mut rest = copy.as_slice();
        // Record header: type (u32), misc (u16), size including the header (u16).
        while let Some((header, _)) = rest.split_first_chunk::<8>() {
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            let Some(body) = rest.get(8..size) else { break };
            let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            what(Record { kind, misc: u16::from_le_bytes([header[4], header[5]]), body });
            rest = &rest[size..];
        }
        self.copy = copy;
        length
    }

    /// Waits until one of the rings has its `wake` samples ([`Self::sample_cpu`]), until `other` is readable or closed
    /// by its writer, or until the timeout expires.
    pub fn wait(rings: &[Self], other: BorrowedFd<'_>, timeout: Duration) {
        let fds = rings.iter().map(|ring| ring.fd.as_fd()).chain([other]);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let timeout =
            Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
    }

    /// `int ioctl(int fd, PERF_EVENT_IOC_ENABLE or _DISABLE, 0)`: starts or stops counting. Interrupts the CPU that is
    /// counted on, which takes some 10 us in a guest. Linux 2.6.31. `perf_event_open(2)`.
    pub fn set_counting(&self, is_on: bool) -> Result<(), SysError> {
        let (fd, name) = (self.fd.as_raw_fd(), if is_on { "ENABLE" } else { "DISABLE" });
        let set = if is_on { raw::ioctls::ENABLE } else { raw::ioctls::DISABLE };
        // SAFETY: the descriptor is of an event that we own; the argument is a flag, no pointer.
        self.controlled(unsafe { set(fd, 0) }, name)
    }

    /// `int ioctl(int fd, PERF_EVENT_IOC_PAUSE_OUTPUT, int)`: stops or continues writing samples. Counting goes on,
    /// but ends no [wait](Self::wait). Linux 4.7. `perf_event_open(2)`.
    pub fn set_output(&self, is_on: bool) -> Result<(), SysError> {
        // SAFETY: the descriptor is of an event that we own; the argument is a flag, no pointer.
        let done = unsafe { raw::ioctls::PAUSE_OUTPUT(self.fd.as_raw_fd(), u32::from(!is_on)) };
        self.controlled(done, "PAUSE_OUTPUT")
    }

    fn controlled(&self, done: i32, name: &str) -> Result<(), SysError> {
        match done {
            0.. => Ok(()),
            _ => Err(SysError::last("ioctl", format!("PERF_EVENT_IOC_{name}, {:?}", self.fd))),
        }
    }

    /// Bytes of the data area.
    pub fn size(&self) -> usize {
        self.size
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is a perf_event_mmap_page, which lives as long as the mapping; both counters are
        // aligned u64s that the kernel and we access only atomically.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }
}

/// Bytes of a sample without raw data: the header, pid and tid, time, address.
const SAMPLE_BYTES: u32 = 8 + 8 + 8 + 8;

/// Attributes common to all rings.
fn attributes(event: Event, every: u64) -> abi::perf_event_attr {
    let (kind, [config, ..]) = event.kind_and_config();
    let mut attributes = abi::perf_event_attr::default();
    attributes.size = size_of::<abi::perf_event_attr>() as u32;
    attributes.type_ = kind;
    attributes.config = config;
    attributes.__bindgen_anon_1.sample_period = every;
    attributes.sample_type =
        u64::from(abi::PERF_SAMPLE_TID | abi::PERF_SAMPLE_TIME | abi::PERF_SAMPLE_ADDR);
    attributes.set_exclude_hv(1);
    attributes
}

/// Offsets of the counters in the first page.
const HEAD: usize = std::mem::offset_of!(abi::perf_event_mmap_page, data_head);
const TAIL: usize = std::mem::offset_of!(abi::perf_event_mmap_page, data_tail);

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives its borrow of `self`.
        unsafe { libc::munmap(self.base.cast(), self.page + self.size) };
    }
}

#[cfg(test)]
mod tests {
    use units::Pid;

    use super::*;
    use crate::mem::{Advice, Backing, Mapping};

    /// A sample at `f(x)` of this thread holds an address in this program's code and registers that are not all zero.
    #[test]
    fn a_thread_that_computes_is_sampled_with_its_registers() {
        let thread = Pid(rustix::thread::gettid().as_raw_nonzero().get());
        let mut ring = match Ring::sample_thread(thread, 1_000_003, 16) {
            Ok(ring) => ring,
            Err(error) => return testkit::skipped!("no samples here: {error}"),
        };
        let mut samples = Vec::new();
        let mut sum = 0u64;
        // Samples come with CPU time, however busy the machine is.
        while samples.len() < 20 {
            for at in 0..1_000_000u64 {
                sum = std::hint::black_box(sum.wrapping_mul(at | 1) + 1);
            }
            ring.drain(|record| samples.extend(record.user_sample()));
        }
        assert!(samples.iter().all(|sample| sample.thread == thread), "{samples:?}");
        assert!(samples.iter().all(|sample| sample.instruction != 0), "{samples:?}");
        assert!(samples.is_sorted_by_key(|sample| sample.time));
        if cfg!(target_arch = "x86_64") {
            let stack = (&raw const samples) as u64;
            let is_near = |sample: &UserSample| {
                sample.registers.is_some_and(|all| all[7].abs_diff(stack) < 1 << 20)
            };
            assert!(samples.iter().all(is_near), "{stack:#x} {samples:?}");
        }
    }

    #[test]
    fn a_sample_of_a_32_bit_program_has_no_registers() {
        let words = |abi: u64| {
            let mut body = Vec::new();
            for word in [0x40_1000, 7 | 9 << 32, 55, abi] {
                body.extend(u64::to_ne_bytes(word));
            }
            (1..=17u64).for_each(|register| body.extend(register.to_ne_bytes()));
            body
        };
        let sample = |body: &[u8]| {
            Record { kind: abi::PERF_RECORD_SAMPLE, misc: 2, body }.user_sample().unwrap()
        };
        let found = sample(&words(2));
        assert_eq!((found.thread, found.time, found.instruction), (Pid(9), 55, 0x40_1000));
        assert_eq!((found.registers.unwrap()[7], found.flags), (8, 9));
        assert_eq!(found.registers.unwrap()[15], 17);
        assert_eq!(sample(&words(1)).registers, None);
        assert_eq!(sample(&words(0)).registers, None);
        let lost: Vec<u8> = [3u64, 41].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!(Record { kind: LOST, misc: 0, body: &lost }.lost(), 41);
    }

    /// A ring on each CPU, of this thread's page faults.
    fn rings_of_own_faults() -> Result<Vec<Ring>, SysError> {
        let thread = Pid(rustix::thread::gettid().as_raw_nonzero().get());
        // The allowed CPUs may not start at 0.
        let cpus = crate::affinity::allowed().unwrap();
        let open = |cpu| Ring::open(Event::PageFaults, Target::Thread(thread), cpu as u32, 16);
        cpus.into_iter().map(open).collect()
    }

    #[test]
    fn what_is_not_counted_or_not_written_is_not_in_the_ring() {
        let mut rings = match rings_of_own_faults() {
            Ok(rings) => rings,
            Err(error) => return testkit::skipped!("no ring here: {error}"),
        };
        let mut faults_with = |is_counting, is_written| {
            let mut mapping = Mapping::anonymous(1 << 20, Backing::Pages).unwrap();
            mapping.advise(Advice::NoHugePage).unwrap();
            for ring in &rings {
                ring.set_counting(is_counting).unwrap();
                ring.set_output(is_written).unwrap();
            }
            mapping.bytes_mut().fill(1);
            let range = mapping.address()..mapping.address() + (1 << 20);
            let mut count = 0;
            for ring in &mut rings {
                ring.drain(|record| {
                    let sample = record.sample().filter(|it| range.contains(&it.address));
                    count += u64::from(sample.is_some());
                });
            }
            count
        };
        let all = crate::param::page_size().count(1 << 20);
        let states = [(true, true), (false, true), (true, false), (true, true)];
        assert_eq!(
            states.map(|(counting, written)| faults_with(counting, written)),
            [all, 0, 0, all]
        );
    }

    #[test]
    fn the_addresses_of_own_faults_come_in_order() {
        let mut rings = match rings_of_own_faults() {
            Ok(rings) => rings,
            Err(error) => return testkit::skipped!("no ring here: {error}"),
        };
        let mut mapping = Mapping::anonymous(1 << 20, Backing::Pages).unwrap();
        mapping.advise(Advice::NoHugePage).unwrap();
        mapping.bytes_mut().fill(1);
        let mut faults: Vec<(u64, u64)> = Vec::new();
        for ring in &mut rings {
            ring.drain(|record| {
                faults.extend(record.sample().map(|sample| (sample.time, sample.address)));
            });
        }
        faults.sort();
        let begin = mapping.bytes_mut().as_ptr() as u64;
        let inside = |address: &u64| (begin..begin + (1 << 20)).contains(address);
        let pages: Vec<u64> = faults
            .iter()
            .map(|fault| fault.1)
            .filter(inside)
            .map(|at| (at - begin) >> 12)
            .collect();
        let count = crate::param::page_size().count(1 << 20);
        assert_eq!(pages.len() as u64, count, "{pages:?}");
        assert!(pages.is_sorted());
    }
}
