//! State of this process's pages, from /proc/self/pagemap and mincore(2).
//!
//! # Safety
//! System calls on a descriptor and a buffer of our own.

use std::ffi::c_int;

use crate::raw::{self, Errno};

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A file page, or shared anonymous memory.
const OF_FILE: u64 = 1 << 61;

/// Whether no page of `[start, start + length)`, in a private file mapping, was copied on write.
pub fn is_as_in_file(start: usize, length: usize) -> bool {
    all(start, length, |entry| entry & (PRESENT | SWAPPED) == 0 || entry & OF_FILE != 0)
}

/// Whether `[start, start + length)` of anonymous memory has no pages yet: it reads as zeroes.
pub fn is_untouched(start: usize, length: usize) -> bool {
    all(start, length, |entry| entry & (PRESENT | SWAPPED) == 0)
}

/// Whether no page of `[start, end)` is present or in swap; `false` if unknown (before Linux 6.7).
pub fn is_fresh(start: usize, end: usize) -> bool {
    ask(|fd| !has_any_of(fd, start, end, PAGE_IS_PRESENT | PAGE_IS_SWAPPED))
}

/// Whether the base page at an address is resident (`mincore(2)`); `None`: nothing is mapped. errno is left alone.
pub fn is_resident(address: usize) -> Option<bool> {
    resident(address, 1).map(|count| count > 0)
}

/// Number of resident base pages among `pages` from an address on; `None`: not all are mapped.
pub fn resident(address: usize, pages: usize) -> Option<usize> {
    const CHUNK: usize = 512;
    let (mut present, base) = ([0u8; CHUNK], raw::base_page());
    let mut count = 0;
    for from in (0..pages).step_by(CHUNK) {
        let (at, some) = ((address & !(base - 1)) + from * base, CHUNK.min(pages - from));
        // SAFETY: only a query; each page needs one byte.
        let asked = raw::keeping_errno(|| unsafe {
            raw::call!(SYS_mincore, at, some * base, present.as_mut_ptr())
        });
        if asked != 0 {
            return None;
        }
        count += present[..some].iter().filter(|it| **it & 1 != 0).count();
    }
    Some(count)
}

/// Runs `question` with pagemap open; `false` if it cannot be opened.
fn ask(question: impl FnOnce(c_int) -> bool) -> bool {
    with(|fd| question(fd).then_some(())).is_some()
}

/// Runs `work` with pagemap open; `None` if it cannot be opened.
pub fn with<R>(work: impl FnOnce(c_int) -> Option<R>) -> Option<R> {
    raw::keeping_errno(|| {
        let fd = raw::open(c"/proc/self/pagemap", libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
        let answer = work(fd);
        raw::close(fd);
        answer
    })
}

/// Whether `good` holds for the entry of every page; `false` if the entries cannot be read.
fn all(start: usize, length: usize, good: impl Fn(u64) -> bool) -> bool {
    const CHUNK: usize = 512;
    let base = raw::base_page();
    let end = (start + length) / base;
    ask(|fd| {
        (start / base..end).step_by(CHUNK).all(|at| {
            let mut entries = [0u64; CHUNK];
            let count = CHUNK.min(end - at);
            // SAFETY: a buffer of at least that size.
            let got =
                unsafe { raw::call!(SYS_pread64, fd, entries.as_mut_ptr(), count * 8, at * 8) };
            got == (count * 8) as libc::c_long && entries[..count].iter().all(|it| good(*it))
        })
    })
}

/// `struct pm_scan_arg`
#[repr(C)]
#[derive(Default)]
struct Scan {
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

/// `struct page_region`: adjacent pages of the same categories.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    categories: u64,
}

impl Region {
    /// Whether the pages have the category.
    pub fn is(&self, category: u64) -> bool {
        self.categories & category != 0
    }
}

// linux/fs.h: _IOWR('f', 16, struct pm_scan_arg)
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | (b'f' as u64) << 8 | 16;
/// Mapped above PTE level: THP or hugetlb.
pub const PAGE_IS_HUGE: u64 = 1 << 6;
/// Present.
pub const PAGE_IS_PRESENT: u64 = 1 << 3;
/// In swap.
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// A file page, or shared anonymous memory.
pub const PAGE_IS_FILE: u64 = 1 << 2;
/// The shared zero page, mapped by a read of an unwritten page.
pub const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// `PAGEMAP_SCAN` (Linux 6.7, ENOTTY before) on /proc/self/pagemap: writes the regions of `[start, end)` whose pages
/// have all `categories`. Returns their number and the address where the walk ended.
pub fn scan(
    fd: c_int,
    start: u64,
    end: u64,
    categories: u64,
    regions: &mut [Region],
) -> Result<(usize, u64), Errno> {
    scan_by(
        fd,
        regions,
        Scan { start, end, category_mask: categories, return_mask: categories, ..Scan::default() },
    )
}

/// As [`scan`], for all pages that are present or in swap; each region says whether its pages are present, huge, or the
/// zero page.
pub fn scan_resident(
    fd: c_int,
    start: u64,
    end: u64,
    regions: &mut [Region],
) -> Result<(usize, u64), Errno> {
    let wanted = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
    scan_by(
        fd,
        regions,
        Scan {
            start,
            end,
            category_anyof_mask: wanted,
            return_mask: wanted | PAGE_IS_HUGE | PAGE_IS_PFNZERO,
            ..Scan::default()
        },
    )
}

fn scan_by(fd: c_int, regions: &mut [Region], scan: Scan) -> Result<(usize, u64), Errno> {
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        ..scan
    };
    // SAFETY: an argument of the size it states and an array of the length it states, both live.
    let found = unsafe { raw::call!(SYS_ioctl, fd, PAGEMAP_SCAN, &raw mut scan) };
    match usize::try_from(found) {
        Ok(found) => Ok((found.min(regions.len()), scan.walk_end)),
        Err(_) => Err(raw::errno()),
    }
}

/// Whether superpages map every page of the range.
pub fn is_huge(first: usize, last: usize) -> bool {
    ask(|fd| is_all(fd, first, last, PAGE_IS_HUGE))
}

/// Whether every page of the range has all `categories`.
pub fn is_all(fd: c_int, first: usize, last: usize, categories: u64) -> bool {
    let (first, last) = (first as u64, last as u64);
    let mut region = [Region::default()];
    scan(fd, first, last, categories, &mut region).is_ok_and(|(found, _)| found == 1)
        && region[0].start == first
        && region[0].end == last
}

/// Whether any page of the range has any of `categories`; `true` if unknown.
pub fn has_any_of(fd: c_int, first: usize, last: usize, categories: u64) -> bool {
    (0..u64::BITS).map(|bit| categories & 1 << bit).filter(|it| *it != 0).any(|category| {
        let mut region = [Region::default()];
        let found = scan(fd, first as u64, last as u64, category, &mut region);
        !found.is_ok_and(|(found, _)| found == 0)
    })
}
