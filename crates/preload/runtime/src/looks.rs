//! Reads this process's own memory for the command that watches the run: right before memory is freed, and at exit. The
//! command samples from outside only now and then, and may miss a peak of milliseconds.
//!
//! A look walks the page tables (PAGEMAP_SCAN) VMA by VMA. The process makes a look only if it holds 16 MiB or more.
//! All looks stay within 1 % of its CPU time. Whenever 1/32 of the held memory was freed, one getrusage(2) checks
//! whether a look is worthwhile.
//!
//! # Safety
//! Only system calls, atomics and about 3 KiB of stack: `_exit` and munmap may be called in a signal handler. A thread
//! or handler that finds a look in progress makes none.
//! See docs/decisions/watch.md#5.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};

use abi::looks::{FIELDS, Field, Why};

use crate::maps::{self, Vma};
use crate::pagemap::{self, Region};
use crate::{counters, files, filter, raw, settings, sizes, text};

/// A process that holds less has little to report.
const MIN_BYTES: u64 = 16 << 20;
/// Minimum bytes freed between checks.
const MIN_STEP: usize = 1 << 20;
/// A check is due whenever 1/STEPS of the held memory was freed. Growth by the same fraction makes a look
/// worthwhile.
const STEPS: u64 = 32;
/// Estimated cost of the VMAs of a process in a look, in nanoseconds.
const LOOK_COST_NS: u64 = 100_000;
/// Estimated cost of a GiB of base pages in a look, in nanoseconds.
const LOOK_COST_PER_GIB_NS: u64 = 1_400_000;
/// Looks take at most 1/CPU_DIVISOR of the CPU time of the process.
const CPU_DIVISOR: u64 = 100;
/// A look is stale after 1/STALE_DIVISOR of the process's age: the same amount of memory may then lie on other pages.
const STALE_DIVISOR: u64 = 8;

/// The process that the statics below describe. A vfork child shares them with its parent.
static OWNER: AtomicI32 = AtomicI32::new(0);
static IS_LOOKING: AtomicBool = AtomicBool::new(false);
/// Bytes freed since the last check.
static RETURNED: AtomicUsize = AtomicUsize::new(0);
/// Value of [`RETURNED`] that triggers the next check.
static STEP: AtomicUsize = AtomicUsize::new(MIN_STEP);
/// Bytes held at the last look.
static HELD: AtomicU64 = AtomicU64::new(0);
/// Time of the last look.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// When the process started.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds spent in looks.
static SPENT: AtomicU64 = AtomicU64::new(0);
/// The high-water mark that the process inherited from its parent at exec.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// Call at load time.
pub fn begin() {
    let now = raw::monotonic();
    BEGAN.store(now.unwrap_or(0), Relaxed);
    INHERITED.store(usage().map_or(0, |usage| usage.high_water), Relaxed);
    OWNER.store(raw::pid(), Release);
    if let Some(now) = now {
        counters::write_look(&Record::new(Why::Begins, now).0);
    }
}

/// In a forked child.
pub fn after_fork() {
    IS_LOOKING.store(false, Relaxed);
    RETURNED.store(0, Relaxed);
    STEP.store(MIN_STEP, Relaxed);
    HELD.store(0, Relaxed);
    LOOKED.store(0, Relaxed);
    if filter::may_be_in_place() {
        return; // no looks under a filter
    }
    BEGAN.store(raw::monotonic().unwrap_or(0), Relaxed);
    SPENT.store(0, Relaxed);
    INHERITED.store(0, Relaxed);
    OWNER.store(raw::pid(), Release);
}

/// Call before memory of that length is freed.
#[inline]
pub fn gives_back(bytes: usize) {
    let returned = RETURNED.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if returned >= STEP.load(Relaxed) && counters::are_shared() {
        look_if_worthwhile(Why::GivesBack);
    }
}

/// Call before the process exits.
pub fn ends() {
    if counters::are_shared() {
        look_if_worthwhile(Why::Ends);
    }
}

#[cold]
fn look_if_worthwhile(why: Why) {
    RETURNED.store(0, Relaxed);
    // A filter may kill the process for reading the clock.
    if filter::may_be_in_place() {
        return;
    }
    if OWNER.load(Acquire) != raw::pid() || IS_LOOKING.swap(true, Acquire) {
        return;
    }
    if let (Some(usage), Some(now)) = (usage(), raw::monotonic()) {
        let mut record = Record::new(why, now);
        let is_own = usage.high_water > INHERITED.load(Relaxed);
        let high_water = if is_own { usage.high_water } else { 0 };
        record.set(Field::HighWater, high_water);
        let held = high_water + counters::given_of_pool();
        STEP.store(MIN_STEP.max((held / STEPS) as usize), Relaxed);
        let has_looked = is_worth(why, held, now) && is_affordable(&usage) && record.look();
        if has_looked {
            HELD.store(held, Relaxed);
            LOOKED.store(now, Relaxed);
            let took = raw::monotonic().unwrap_or(now).saturating_sub(now);
            SPENT.fetch_add(took, Relaxed);
        }
        if has_looked || matches!(why, Why::Ends) {
            counters::write_look(&record.0);
        }
    }
    IS_LOOKING.store(false, Release);
}

/// Whether a look would show something new.
fn is_worth(why: Why, held: u64, now: u64) -> bool {
    if held < MIN_BYTES || !counters::wants_looks() {
        return false;
    }
    let (before, looked) = (HELD.load(Relaxed), LOOKED.load(Relaxed));
    let is_more = held > before + before / STEPS;
    let age = now.saturating_sub(BEGAN.load(Relaxed));
    let is_old = now.saturating_sub(looked) > age / STALE_DIVISOR;
    matches!(why, Why::Ends) || is_more || is_old
}

/// Results of getrusage(2).
struct Usage {
    /// High-water mark of the resident set, in bytes. After exec it is at least the mark from
    /// before exec.
    high_water: u64,
    /// Nanoseconds.
    cpu: u64,
    faults: u64,
}

fn usage() -> Option<Usage> {
    let usage = raw::usage(libc::RUSAGE_SELF)?;
    let nanoseconds =
        |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Some(Usage {
        high_water: usage.ru_maxrss as u64 * 1024,
        cpu: nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime),
        faults: usage.ru_minflt as u64,
    })
}

/// Whether a look keeps within its share of the CPU time. Each base page took a fault, so there are at most as many
/// base pages as faults. Large folios smaller than a superpage took fewer faults and cost more than estimated.
fn is_affordable(usage: &Usage) -> bool {
    let faulted = usage.faults.saturating_mul(raw::base_page() as u64);
    let base = usage.high_water.min(faulted);
    let cost = LOOK_COST_NS + (base >> 20) * LOOK_COST_PER_GIB_NS / 1024;
    SPENT.load(Relaxed) + cost <= usage.cpu / CPU_DIVISOR
}

struct Record([u64; FIELDS]);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Anonymous,
    Shmem,
    File,
    /// A special mapping of the kernel, such as the vdso.
    Special,
}

impl Record {
    fn new(why: Why, now: u64) -> Self {
        let mut record = Self([0; FIELDS]);
        record.set(Field::Pid, raw::pid() as u64);
        record.set(Field::At, now);
        record.set(Field::Why, why as u64);
        record
    }

    fn set(&mut self, field: Field, value: u64) {
        self.0[field as usize] = value;
    }

    fn add(&mut self, field: Field, bytes: u64) {
        self.0[field as usize] += bytes;
    }

    /// Reads the memory of this process; `false`: unreadable.
    fn look(&mut self) -> bool {
        let superpage = pmd_size();
        let read = pagemap::with(|fd| {
            let mut is_complete = true;
            maps::each(|vma| is_complete &= self.read(fd, vma, superpage).is_some())?;
            is_complete.then_some(())
        });
        if read.is_none() {
            Field::ALL[Field::AnonBase as usize..].iter().for_each(|field| self.set(*field, 0));
            return false;
        }
        self.separate_hugetlb();
        true
    }

    fn read(&mut self, fd: c_int, vma: &Vma, superpage: usize) -> Option<()> {
        let (base, huge) = match kind(vma) {
            Kind::Special => return Some(()),
            Kind::Anonymous => (Field::AnonBase, Field::AnonThp),
            Kind::Shmem => (Field::ShmemBase, Field::ShmemPmd),
            Kind::File => (Field::FileBase, Field::FilePmd),
        };
        let first = vma.start.next_multiple_of(superpage);
        let is_roomy = first.checked_add(superpage).is_some_and(|end| end <= vma.end);
        let (mut at, end) = (vma.start as u64, vma.end as u64);
        while at < end {
            let mut regions = [Region::default(); 32];
            let (found, to) = pagemap::scan_resident(fd, at, end, &mut regions).ok()?;
            for region in &regions[..found] {
                let bytes = region.end - region.start;
                match () {
                    () if region.is(pagemap::PAGE_IS_PFNZERO) => {}
                    () if !region.is(pagemap::PAGE_IS_PRESENT) => self.add(Field::Swapped, bytes),
                    () if region.is(pagemap::PAGE_IS_HUGE) => self.add(huge, bytes),
                    () => {
                        self.add(base, bytes);
                        if base == Field::AnonBase && is_roomy {
                            self.add(Field::EligibleBase, bytes);
                        }
                    }
                }
            }
            if to <= at {
                break; // the walk has ended
            }
            at = to;
        }
        Some(())
    }

    /// Separates hugetlb pages from other superpages: both are mapped above PTE level.
    fn separate_hugetlb(&mut self) {
        let [shmem, file] = [Field::ShmemPmd, Field::FilePmd].map(|field| self.0[field as usize]);
        if shmem + file == 0 {
            return;
        }
        let mut buffer = [0; 1800];
        let status = files::read_file(c"/proc/thread-self/status", &mut buffer);
        let pool = status.and_then(|status| text::after(status, b"HugetlbPages:"));
        let pool = pool.and_then(text::first_number).map_or(0, |kib| kib as u64 * 1024);
        let of_shmem = pool.min(shmem);
        self.set(Field::ShmemPmd, shmem - of_shmem);
        self.set(Field::FilePmd, file.saturating_sub(pool - of_shmem));
        self.set(Field::Hugetlb, pool);
        if settings::get().is_hugetlb() {
            self.set(Field::HugetlbSize, sizes::superpage() as u64);
        }
    }
}

/// Returns the type by the kernel's name for the VMA. Files on other tmpfs mounts count as files, and so do pages that
/// a program wrote in a private file mapping.
fn kind(vma: &Vma) -> Kind {
    const SHMEM: [&[u8]; 5] =
        [b"/dev/zero (deleted)", b"/SYSV", b"/memfd:", b"/dev/shm/", b"/anon_hugepage"];
    let has = |name: &&[u8]| vma.name.starts_with(name);
    let is_program_s = [&b"[heap]"[..], b"[stack", b"[anon"].iter().any(has);
    match vma.name {
        _ if is_program_s => Kind::Anonymous,
        [] if vma.is_private() => Kind::Anonymous,
        [] => Kind::Shmem,
        [b'[', ..] => Kind::Special,
        _ if SHMEM.iter().any(has) => Kind::Shmem,
        _ => Kind::File,
    }
}

/// The size that a PMD maps.
fn pmd_size() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    match SIZE.load(Relaxed) {
        0 => {
            let size = sizes::pmd_size().unwrap_or_else(sizes::superpage);
            SIZE.store(size, Relaxed);
            size
        }
        size => size,
    }
}

/// `void _exit(int status)`: runs no destructors, so the process's memory is read here.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    ends();
    raw::exit(status)
}

/// `void _Exit(int status)`
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    ends();
    raw::exit(status)
}
