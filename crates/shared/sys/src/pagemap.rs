//! `/proc/PID/pagemap`: PAGEMAP_SCAN, which tells which pages are present, huge or file-backed; and the 64-bit entries.

use std::fs::File;
use std::ops::BitOr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use units::Pid;

use crate::SysError;

/// `_IOWR('f', 16, struct pm_scan_arg)`, Linux 6.7 (`include/uapi/linux/fs.h`); no crate has it yet.
const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;

/// `struct pm_scan_arg` of `include/uapi/linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// A set of page categories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Categories(pub u64);

impl Categories {
    /// Asynchronous write protection is enabled.
    pub const WRITE_PROTECT_ALLOWED: Self = Self(1 << 0);
    /// Written since it was last write-protected.
    pub const WRITTEN: Self = Self(1 << 1);
    /// File-backed or shared memory.
    pub const FILE: Self = Self(1 << 2);
    /// In memory and mapped.
    pub const PRESENT: Self = Self(1 << 3);
    /// In swap.
    pub const SWAPPED: Self = Self(1 << 4);
    /// The shared zero page.
    pub const PFNZERO: Self = Self(1 << 5);
    /// Mapped by an entry above the lowest page-table level: THP or hugetlb.
    pub const HUGE: Self = Self(1 << 6);
    /// A guard region (MADV_GUARD_INSTALL), which is SWAPPED too. The kernel tells it from Linux 6.15 on.
    const GUARD: Self = Self(1 << 8);

    /// Whether `self` contains all categories of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Categories {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A range of adjacent pages with equal categories (`struct page_region`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageRegion {
    /// First address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// The requested categories that its pages have.
    pub categories: Categories,
}

/// An open `/proc/PID/pagemap`.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    pid: Pid,
    /// Bytes of pages of the next call: [`next_slice`].
    slice: AtomicU64,
}

/// Maximum bytes walked per call, during which the kernel holds the mmap lock. 64 MB of base pages take about 0.3 ms
/// (docs/sources/kernel_facts.md 2), a short delay for a page fault.
const STRIDE: u64 = 64 << 20;
/// Minimum bytes walked per call: below, the call itself takes more time than the walk.
const LEAST_SLICE: u64 = 4 << 20;
/// A call that takes longer halves the next one; one that takes less than half of this doubles it.
const SLOW: Duration = Duration::from_micros(400);
/// Maximum bytes walked per call where page tables are missing: reservations of terabytes (Go, the shadow of
/// AddressSanitizer) take 0.3 s in strides of 64 MiB. After a call that found nothing within `QUICK`, the next one walks
/// twice as far; `max_pages` still ends a call after `STRIDE` of matching pages.
const MAX_STRIDE: u64 = 64 << 30;
const QUICK: Duration = Duration::from_micros(50);
/// Maximum regions per call: what the kernel's own buffer holds (`PAGEMAP_WALK_SIZE`). With a longer list it may fill
/// its buffer once, then finish the walk, and still report as `walk_end` where the buffer was full: a walk that continues
/// there counts pages twice (6.18; `do_pagemap_scan` sets `walk_end` only if it is 0).
const REGIONS_PER_CALL: usize = 512;

impl Pagemap {
    /// Opens `/proc/PID/pagemap`. Needs PTRACE_MODE_READ (`EACCES`); `ENOENT`: no such process.
    pub fn open(pid: Pid) -> Result<Self, SysError> {
        let path = format!("/proc/{pid}/pagemap");
        let file = File::open(&path).map_err(|error| SysError::new("open", path, error))?;
        Ok(Self { file, pid, slice: AtomicU64::new(STRIDE) })
    }

    /// `int ioctl(int pagemap_fd, PAGEMAP_SCAN, struct pm_scan_arg *)`: appends to `out` every region of `start..end`
    /// whose pages have at least one of the `wanted` categories. Linux 6.7 (`ENOTTY` before). `start` must be
    /// page-aligned.
    ///
    /// Regions show only the categories `wanted`, PRESENT, PFNZERO and HUGE. The last three need only the page table:
    /// 1.4 ms for 1 GiB of base pages on a Xeon guest. Guard regions are left out where the kernel tells them from swap;
    /// markers of userfaultfd (write protection, poison) still look swapped.
    pub fn scan(
        &self,
        start: u64,
        end: u64,
        wanted: Categories,
        out: &mut Vec<PageRegion>,
    ) -> Result<(), SysError> {
        self.scan_with(start, end, wanted, Categories::default(), out)
    }

    /// Like [`Self::scan`], but regions also show the categories `also`. FILE needs each page's `struct page`: 20 ms
    /// for 1 GiB of base pages on the same guest.
    pub fn scan_with(
        &self,
        start: u64,
        end: u64,
        wanted: Categories,
        also: Categories,
        out: &mut Vec<PageRegion>,
    ) -> Result<(), SysError> {
        self.scan_parts(start, end, wanted, also, out, |out, first, _| join(out, first))
    }

    /// Like [`Self::scan`], in bounded memory and at a pace: after each call of the kernel `each` gets its regions, at
    /// most 512. Adjacent regions of two calls are not joined.
    pub fn scan_each(
        &self,
        start: u64,
        end: u64,
        wanted: Categories,
        pace: &mut Pace,
        mut each: impl FnMut(&[PageRegion]),
    ) -> Result<(), SysError> {
        let mut regions = Vec::new();
        self.scan_parts(
            start,
            end,
            wanted,
            Categories::default(),
            &mut regions,
            |regions, _, took| {
                pace.longest = pace.longest.max(took);
                each(regions);
                regions.clear();
                pace.rest();
            },
        )
    }

    /// Appends regions to `out`; after each call of the kernel `done` gets `out`, the index of the first new region, and
    /// how long the call took.
    fn scan_parts(
        &self,
        start: u64,
        end: u64,
        wanted: Categories,
        also: Categories,
        out: &mut Vec<PageRegion>,
        mut done: impl FnMut(&mut Vec<PageRegion>, usize, Duration),
    ) -> Result<(), SysError> {
        let shown = wanted | also | Categories::PRESENT | Categories::PFNZERO | Categories::HUGE;
        let page = crate::param::page_size().bytes();
        let mut slice = self.slice.load(Relaxed);
        let (mut from, mut stride) = (start, slice);
        while from < end {
            let to = end.min(from.saturating_add(stride));
            // The kernel allocates a buffer for `vec_len` regions, so keep it small for a small range.
            let most = REGIONS_PER_CALL.min(((to - from) / page) as usize + 1);
            let began = Instant::now();
            let before = out.len();
            out.reserve(most);
            let guards = match TELLS_GUARDS.load(Relaxed) {
                true => Categories::GUARD,
                false => Categories::default(),
            };
            let mut argument = ScanArgument {
                size: size_of::<ScanArgument>() as u64,
                start: from,
                end: to,
                vec: out.spare_capacity_mut().as_mut_ptr() as u64,
                vec_len: most as u64,
                max_pages: slice / page,
                category_anyof_mask: wanted.0,
                return_mask: (shown | guards).0,
                ..ScanArgument::default()
            };
            // SAFETY: the argument is a live local of the size it states, and `vec` points to spare capacity for
            // `vec_len` regions, reserved above, and outlives the call.
            let found = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &mut argument) };
            let found = match usize::try_from(found) {
                Ok(found) => found,
                Err(_) => {
                    let error =
                        SysError::last("ioctl(PAGEMAP_SCAN)", format!("{:?} {from:#x}", self.pid));
                    // An unknown category: Linux before 6.15.
                    if error.errno() == libc::EINVAL && guards != Categories::default() {
                        TELLS_GUARDS.store(false, Relaxed);
                        continue;
                    }
                    return Err(error);
                }
            };
            let took = began.elapsed();
            slice = next_slice(slice, took);
            stride = match found == 0 && took < QUICK {
                true => MAX_STRIDE.min(stride.saturating_mul(2)),
                false => slice,
            };
            // SAFETY: the kernel initialized `found` regions, at most `vec_len`.
            unsafe { out.set_len(before + found) };
            leave_out_guards(out, before);
            done(out, before, took);
            if argument.walk_end <= from {
                break; // end of the address space
            }
            from = argument.walk_end;
        }
        self.slice.store(slice, Relaxed);
        Ok(())
    }
}

/// Bytes of pages of the next call, after one of `slice` bytes that took this long: a slow machine, cold page tables and
/// scattered pages take several times longer than the 0.3 ms of [`STRIDE`].
fn next_slice(slice: u64, took: Duration) -> u64 {
    match () {
        () if took > SLOW => LEAST_SLICE.max(slice / 2),
        () if took < SLOW / 2 => STRIDE.min(slice * 2),
        () => slice,
    }
}

/// Leaves the mmap lock alone from time to time.
///
/// One call after another holds off the process's mmap for 8 to 16 ms, although each call takes 0.3 ms
/// (docs/decisions/map.md#1).
#[derive(Debug)]
pub struct Pace {
    rested: Instant,
    longest: Duration,
}

impl Pace {
    /// Longest work between two rests.
    const WORK: Duration = Duration::from_micros(200);
    /// Time for a thread on another CPU to wake up. On a busy machine 0.1 ms was too short.
    const REST: Duration = Duration::from_micros(300);

    /// Starts now.
    #[expect(clippy::new_without_default, reason = "a pace starts at a time")]
    pub fn new() -> Self {
        Self { rested: Instant::now(), longest: Duration::ZERO }
    }

    /// The longest call of the kernel so far: the mmap lock was held at most so long at a time.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Sleeps for 0.3 ms if the last rest is 0.2 ms or longer ago.
    pub fn rest(&mut self) {
        if self.rested.elapsed() >= Self::WORK {
            std::thread::sleep(Self::REST);
            self.rested = Instant::now();
        }
    }
}

/// Bits of a `/proc/PID/pagemap` entry (`Documentation/admin-guide/mm/pagemap.rst`).
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_EXCLUSIVE: u64 = 1 << 56;
const ENTRY_FRAME: u64 = (1 << 55) - 1;

impl Pagemap {
    /// Whether only this process maps the page at `address` (Linux 4.2); `None` if the page is not present.
    pub fn is_exclusive(&self, address: u64) -> Result<Option<bool>, SysError> {
        let page = address / crate::param::page_size().bytes();
        let mut entry = [0; 8];
        self.file.read_exact_at(&mut entry, page * 8).map_err(|error| {
            SysError::new("pread(pagemap)", format!("{:?} {address:#x}", self.pid), error)
        })?;
        let entry = u64::from_ne_bytes(entry);
        Ok((entry & ENTRY_PRESENT != 0).then_some(entry & ENTRY_EXCLUSIVE != 0))
    }

    /// Frame numbers (PFNs) of the pages of `start..end`; `None` for a page that is not present. Without CAP_SYS_ADMIN
    /// all numbers are 0.
    pub fn frames(&self, start: u64, end: u64) -> Result<Vec<Option<u64>>, SysError> {
        let frame = |entry: u64| (entry & ENTRY_PRESENT != 0).then_some(entry & ENTRY_FRAME);
        Ok(self.entries(start, end)?.map(frame).collect())
    }

    /// Whether another process maps a page of `start..end`, except for the zero page.
    pub fn has_shared_memory(&self, start: u64, end: u64) -> Result<bool, SysError> {
        let mut regions = Vec::new();
        self.scan(start, end, Categories::PRESENT, &mut regions)?;
        regions.retain(|region| !region.categories.contains(Categories::PFNZERO));
        for region in regions {
            if self.has_shared(region.start, region.end)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether any present page of `start..end` is also mapped by another process, as after a fork. Reads eight bytes
    /// per page.
    pub fn has_shared(&self, start: u64, end: u64) -> Result<bool, SysError> {
        let is_shared = |entry: u64| entry & ENTRY_PRESENT != 0 && entry & ENTRY_EXCLUSIVE == 0;
        Ok(self.entries(start, end)?.any(is_shared))
    }

    /// Number of present pages of `start..end` that another process also maps. Reads eight bytes per page.
    pub fn count_shared(&self, start: u64, end: u64) -> Result<u64, SysError> {
        let is_shared = |entry: &u64| entry & ENTRY_PRESENT != 0 && entry & ENTRY_EXCLUSIVE == 0;
        Ok(self.entries(start, end)?.filter(is_shared).count() as u64)
    }

    fn entries(&self, start: u64, end: u64) -> Result<impl Iterator<Item = u64>, SysError> {
        let page = crate::param::page_size().bytes();
        let mut entries = vec![0; (end.saturating_sub(start) / page * 8) as usize];
        self.file.read_exact_at(&mut entries, start / page * 8).map_err(|error| {
            SysError::new("pread(pagemap)", format!("{:?} {start:#x}", self.pid), error)
        })?;
        let words = (0..entries.len()).step_by(8);
        Ok(words
            .map(move |at| u64::from_ne_bytes(entries[at..at + 8].try_into().unwrap_or_default())))
    }
}

/// Whether PAGEMAP_SCAN knows guard regions; until a call fails, it is taken to.
static TELLS_GUARDS: AtomicBool = AtomicBool::new(true);

/// Removes guard regions from `first` on.
fn leave_out_guards(regions: &mut Vec<PageRegion>, first: usize) {
    let mut kept = first;
    for index in first..regions.len() {
        let region = regions[index];
        if !region.categories.contains(Categories::GUARD) {
            regions[kept] = region;
            kept += 1;
        }
    }
    regions.truncate(kept);
}

/// Merges adjacent regions, from `first` on, that are separate only because one call ended between them.
fn join(regions: &mut Vec<PageRegion>, first: usize) {
    let mut kept = first;
    for index in first..regions.len() {
        let region = regions[index];
        match kept.checked_sub(1).map(|last| &mut regions[last]) {
            Some(last) if last.end == region.start && last.categories == region.categories => {
                last.end = region.end;
            }
            _ => {
                regions[kept] = region;
                kept += 1;
            }
        }
    }
    regions.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_make_short_slices_and_fast_ones_long_ones() {
        let after = |slice, micros| next_slice(slice, Duration::from_micros(micros));
        assert_eq!(
            [after(STRIDE, 401), after(STRIDE, 399), after(STRIDE, 1)],
            [STRIDE / 2, STRIDE, STRIDE]
        );
        assert_eq!([after(16 << 20, 300), after(16 << 20, 199)], [16 << 20, 32 << 20]);
        assert_eq!([after(LEAST_SLICE, 5000), after(6 << 20, 5000)], [LEAST_SLICE; 2]);
    }
    use crate::mem::{Advice, Backing, Mapping};

    fn scan(mapping: &Mapping, wanted: Categories) -> Option<Vec<PageRegion>> {
        let mut regions = Vec::new();
        let pagemap = Pagemap::open(crate::param::own_pid()).unwrap();
        let (start, end) = (mapping.address(), mapping.address() + mapping.len() as u64);
        match pagemap.scan(start, end, wanted, &mut regions) {
            Err(error) if error.errno() == libc::ENOTTY => None,
            result => result.map(|()| Some(regions)).unwrap(),
        }
    }

    #[test]
    fn finds_exactly_the_pages_touched() {
        let page = crate::param::page_size().bytes();
        let mut mapping = Mapping::anonymous(3000 * page as usize, Backing::Pages).unwrap();
        mapping.advise(Advice::NoHugePage).unwrap();
        for index in (0..3000).step_by(2) {
            mapping.bytes_mut()[index * page as usize] = 1;
        }
        let Some(regions) = scan(&mapping, Categories::PRESENT) else {
            testkit::skipped!("this kernel has no PAGEMAP_SCAN");
            return;
        };
        assert_eq!(regions.len(), 1500);
        for (index, region) in regions.iter().enumerate() {
            assert_eq!(region.start, mapping.address() + 2 * index as u64 * page);
            assert_eq!(region.end, region.start + page);
            assert!(!region.categories.contains(Categories::HUGE));
        }
    }

    /// Between 513 and 1023 regions in one call's range, the kernel's `walk_end` may be stale.
    #[test]
    fn no_page_is_counted_twice_however_many_regions_there_are() {
        let page = crate::param::page_size().bytes() as usize;
        for alternating in [510, 511, 512, 513, 514, 600, 1023, 1024, 1025, 1600] {
            let mut mapping = Mapping::anonymous(60 << 20, Backing::Pages).unwrap();
            mapping.advise(Advice::NoHugePage).unwrap();
            let memory = mapping.bytes_mut();
            (0..alternating).for_each(|index| memory[2 * index * page] = 1);
            memory[(2 * alternating + 2) * page..].fill(1);
            let Some(regions) = scan(&mapping, Categories::PRESENT) else {
                testkit::skipped!("this kernel has no PAGEMAP_SCAN");
                return;
            };
            let pages = mapping.len() / page - 2 * alternating - 2 + alternating;
            let found: u64 = regions.iter().map(|region| region.end - region.start).sum();
            assert_eq!(found as usize / page, pages, "{alternating}");
        }
    }

    #[test]
    fn guard_regions_are_not_in_swap() {
        const MADV_GUARD_INSTALL: i32 = 102; // linux/mman.h, Linux 6.13
        let mapping = Mapping::anonymous(64 << 20, Backing::Pages).unwrap();
        let address = mapping.address() as *mut libc::c_void;
        // SAFETY: this test's memory becomes guard regions, and no code touches it.
        if unsafe { libc::madvise(address, 32 << 20, MADV_GUARD_INSTALL) } != 0 {
            testkit::skipped!("this kernel has no guard regions");
            return;
        }
        let wanted = Categories::PRESENT | Categories::SWAPPED;
        let Some(regions) = scan(&mapping, wanted) else {
            testkit::skipped!("this kernel has no PAGEMAP_SCAN");
            return;
        };
        testkit::require!(TELLS_GUARDS.load(Relaxed), "this kernel does not tell guard regions");
        assert_eq!(regions, []);
    }

    #[test]
    fn pages_behind_a_long_reservation_are_found() {
        let size = units::PageSize::new(2 << 20).unwrap();
        let mut mapping = Mapping::sparse(1 << 40, size).unwrap();
        mapping.advise(Advice::NoHugePage).unwrap();
        let touched = [0usize, 5 << 30, (700 << 30) + 8192, (1 << 40) - 4096];
        for at in touched {
            mapping.bytes_mut()[at] = 1;
        }
        let Some(regions) = scan(&mapping, Categories::PRESENT) else {
            testkit::skipped!("this kernel has no PAGEMAP_SCAN");
            return;
        };
        let found: Vec<usize> =
            regions.iter().map(|region| (region.start - mapping.address()) as usize).collect();
        assert_eq!(found, touched);
    }

    #[test]
    fn a_pace_rests_after_work_and_not_before() {
        let soon = Instant::now() + Duration::from_secs(3600);
        let mut pace = Pace { rested: soon, longest: Duration::ZERO };
        pace.rest();
        assert_eq!(pace.rested, soon);
        let before = Instant::now() - Pace::WORK;
        pace.rested = before;
        pace.rest();
        assert!(pace.rested >= before + Pace::WORK + Pace::REST);
    }

    #[test]
    fn joins_regions_across_calls_and_sees_emptiness() {
        let mut mapping = Mapping::anonymous(200 << 20, Backing::Pages).unwrap();
        mapping.advise(Advice::NoHugePage).unwrap();
        let Some(empty) = scan(&mapping, Categories::PRESENT) else {
            testkit::skipped!("this kernel has no PAGEMAP_SCAN");
            return;
        };
        assert_eq!(empty, []);
        mapping.bytes_mut().fill(1);
        let regions = scan(&mapping, Categories::PRESENT).unwrap();
        assert_eq!(regions.len(), 1, "{regions:?}");
        assert_eq!(regions[0].end - regions[0].start, 200 << 20);
    }
}
