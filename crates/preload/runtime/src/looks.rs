//! Looks at this process's own memory, for the command that watches the run: right before memory is given back, and when
//! the process ends. The command looks from outside now and then, and may be late for a peak of milliseconds.
//!
//! A look reads the page tables (PAGEMAP_SCAN) mapping by mapping. It is made where the process holds 16 MiB or more,
//! and where it keeps the looks of the process within 1 % of its CPU time. What is asked before costs one getrusage(2) for
//! each thirty-second part of the memory that is given back.
//!
//! # Safety
//! Only system calls, atomics and memory on the stack, about 3 KiB: `_exit` and munmap may be called in a signal handler.
//! A second thread, or a handler, that finds a look under way makes none.
//! See docs/decisions/watch.md#5.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize};

use abi::looks::{FIELDS, Field, Why};

use crate::maps::{self, Vma};
use crate::pagemap::{self, Region};
use crate::{counters, files, filter, raw, settings, sizes, text};

/// Below this a process has little to tell.
const MIN_BYTES: u64 = 16 << 20;
/// The least that is given back before the next question.
const MIN_STEP: usize = 1 << 20;
/// Of what is held, the part that is given back before the next question: a look finds the others.
const STEPS: u64 = 32;
/// Nanoseconds of a look: of the mappings of a process, and of a GiB of base pages.
const PRICE: u64 = 100_000;
const PRICE_OF_GIB: u64 = 1_400_000;
/// Looks take at most this part of the CPU time of the process.
const SHARE: u64 = 100;
/// After this part of its time a process may hold as much and have it on other pages.
const OLD: u64 = 8;

/// The process that the other words are of: a child of vfork shares its parent's.
static OWNER: AtomicI32 = AtomicI32::new(0);
static IS_LOOKING: AtomicBool = AtomicBool::new(false);
/// Bytes given back since the last question, and how many lead to the next.
static RETURNED: AtomicUsize = AtomicUsize::new(0);
static STEP: AtomicUsize = AtomicUsize::new(MIN_STEP);
/// What was held at the last look, and when that was.
static HELD: AtomicU64 = AtomicU64::new(0);
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// When the process began.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds that looks took.
static SPENT: AtomicU64 = AtomicU64::new(0);
/// The high-water mark that the process was executed with: its parent's.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// At load time.
pub fn begin() {
    let now = raw::monotonic();
    BEGAN.store(now.unwrap_or(0), Relaxed);
    INHERITED.store(usage().map_or(0, |usage| usage.high_water), Relaxed);
    OWNER.store(raw::pid(), Release);
    if let Some(now) = now {
        counters::tell_look(&Record::new(Why::Begins, now).0);
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
        return; // There are no looks.
    }
    BEGAN.store(raw::monotonic().unwrap_or(0), Relaxed);
    SPENT.store(0, Relaxed);
    INHERITED.store(0, Relaxed);
    OWNER.store(raw::pid(), Release);
}

/// Memory of that length is about to be given back.
#[inline]
pub fn gives_back(bytes: usize) {
    let returned = RETURNED.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if returned >= STEP.load(Relaxed) && counters::are_shared() {
        consider(Why::GivesBack);
    }
}

/// The process is about to end.
pub fn ends() {
    if counters::are_shared() {
        consider(Why::Ends);
    }
}

#[cold]
fn consider(why: Why) {
    RETURNED.store(0, Relaxed);
    // A filter may end the process for asking what time it is.
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
            counters::tell_look(&record.0);
        }
    }
    IS_LOOKING.store(false, Release);
}

/// Whether there is something to see.
fn is_worth(why: Why, held: u64, now: u64) -> bool {
    if held < MIN_BYTES || !counters::wants_looks() {
        return false;
    }
    let (before, looked) = (HELD.load(Relaxed), LOOKED.load(Relaxed));
    let is_more = held > before + before / STEPS;
    let age = now.saturating_sub(BEGAN.load(Relaxed));
    let is_old = now.saturating_sub(looked) > age / OLD;
    matches!(why, Why::Ends) || is_more || is_old
}

/// What getrusage(2) says.
struct Usage {
    /// Bytes. That of an executed program is its parent's if that is more.
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

/// Whether a look keeps within the share of the CPU time. A base page took a fault, so there are no more base pages than
/// faults; large folios below a superpage took fewer, and cost more than that.
fn is_affordable(usage: &Usage) -> bool {
    let faulted = usage.faults.saturating_mul(raw::base_page() as u64);
    let base = usage.high_water.min(faulted);
    let price = PRICE + (base >> 20) * PRICE_OF_GIB / 1024;
    SPENT.load(Relaxed) + price <= usage.cpu / SHARE
}

/// A record for the command.
struct Record([u64; FIELDS]);

/// What a mapping is made of.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Anonymous,
    Shmem,
    File,
    /// The kernel's own.
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

    /// Reads the memory of this process; whether that could be done.
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
        self.part_pool();
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
                break; // nothing is left to walk
            }
            at = to;
        }
        Some(())
    }

    /// Tells pages of a pool from other superpages: both are mapped by entries above the lowest level.
    fn part_pool(&mut self) {
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

/// By the kernel's names. A file on another tmpfs counts as a file, and what a program wrote to a private
/// mapping of a file too.
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

/// The size that one entry above the lowest level maps.
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

/// `void _exit(int status)`: past the destructors, so what the process holds is read here.
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
