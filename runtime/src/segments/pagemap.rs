//! What lies under the pages of this process, asked of /proc/self/pagemap.
//!
//! # Safety
//! System calls on a descriptor and a buffer of our own.

use std::ffi::c_int;

use crate::raw;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A page of a file, or shared anonymous memory.
const OF_FILE: u64 = 1 << 61;

/// Whether no page at `[start, start + length)` of a file's private mapping was changed.
pub fn is_as_in_file(start: usize, length: usize) -> bool {
    all(start, length, |entry| entry & (PRESENT | SWAPPED) == 0 || entry & OF_FILE != 0)
}

/// Whether nothing is at `[start, start + length)` of anonymous memory yet: it reads as zeroes.
pub fn is_untouched(start: usize, length: usize) -> bool {
    all(start, length, |entry| entry & (PRESENT | SWAPPED) == 0)
}

/// Asks the file; `false` if it cannot be opened.
fn ask(question: impl FnOnce(c_int) -> bool) -> bool {
    raw::keeping_errno(|| {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let Some(fd) = raw::open(c"/proc/self/pagemap", flags, 0) else { return false };
        let answer = question(fd);
        raw::close(fd);
        answer
    })
}

/// Whether `good` holds for every page; not if they cannot be asked about.
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

/// `struct page_region`
#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

// linux/fs.h: _IOWR('f', 16, struct pm_scan_arg)
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | (b'f' as u64) << 8 | 16;
const PAGE_IS_HUGE: u64 = 1 << 6;

/// `PAGEMAP_SCAN` (Linux 6.7): whether every page of the range is mapped by superpages.
pub fn is_huge(first: usize, last: usize) -> bool {
    let mut region = Region::default();
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        start: first as u64,
        end: last as u64,
        vec: (&raw mut region) as u64,
        vec_len: 1,
        category_mask: PAGE_IS_HUGE,
        return_mask: PAGE_IS_HUGE,
        ..Scan::default()
    };
    // SAFETY: the structures of the call, which outlive it.
    let found = ask(|fd| unsafe { raw::call!(SYS_ioctl, fd, PAGEMAP_SCAN, &raw mut scan) == 1 });
    found && region.start == first as u64 && region.end == last as u64
}
