//! Turning hugetlb pages of a running program into ordinary memory, in place.
//!
//! Needed when a program unmaps, protects or replaces part of such a page: it asked for ordinary
//! memory and may do that. Other threads may be writing to the rest of the page meanwhile, so it
//! is write-protected through userfaultfd first: who writes then waits in the kernel, be it the
//! program or a system call on its behalf. The contents are copied, the copy is moved over the
//! page in one step, and with the descriptor closed the waiters go on, on the copy.
//!
//! In a process with one thread nobody can write meanwhile, and the descriptor is not needed.
//!
//! # Safety
//! The page belongs to a range of `table`. Its contents are read while nobody can change them.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

use super::table::{self, Range};
use crate::ledger::{self, Column, Kind, Reason};
use crate::settings::{self, Fallback};
use crate::{maps, raw};

/// Whether pages can be demoted at all in this process. Where they cannot, a program's own
/// mappings must not be put on them.
pub fn is_possible() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);
    match ANSWER.load(Ordering::Relaxed) {
        UNKNOWN => {
            let possible = raw::keeping_errno(|| Guard::open().is_some());
            ANSWER.store(if possible { YES } else { NO }, Ordering::Relaxed);
            possible
        }
        answer => answer == YES,
    }
}

/// Demotes the pages of private ranges that `[from, to)` covers only partly. `false`: there was no
/// memory or no descriptor for it, and nothing has changed.
pub fn edges(from: usize, to: usize) -> bool {
    [from, to].into_iter().all(|edge| match table::first(edge, edge + 1) {
        Some(range) if !range.shared && edge > range.start && edge % range.page != 0 => {
            page(&range, edge - edge % range.page)
        }
        _ => true,
    })
}

/// Demotes one page.
fn page(range: &Range, start: usize) -> bool {
    let Some(protection) = protection_of(start) else { return false };
    let length = range.page;
    let flags = raw::PRIVATE_ANONYMOUS;
    // SAFETY: fresh memory.
    let Ok(copy) = (unsafe { raw::mmap(0, length, raw::READ_WRITE, flags, -1, 0) }) else {
        return false;
    };
    if settings::get().fallback == Fallback::Thp {
        // SAFETY: as above. Advice may be refused.
        let _ = unsafe { raw::madvise(copy, length, libc::MADV_HUGEPAGE) };
    }
    let replaced = raw::keeping_errno(|| replace(start, length, protection, copy));
    if replaced {
        table::remove(start, start + length);
        ledger::because(Reason::Split);
        ledger::count(Kind::Mmap, Column::Returned, length);
        ledger::count(Kind::Mmap, Column::FellBack, length);
    } else {
        // SAFETY: ours, and used by nobody.
        let _ = unsafe { raw::munmap(copy, length) };
    }
    replaced
}

fn replace(start: usize, length: usize, protection: c_int, copy: usize) -> bool {
    let guard = if has_one_thread() {
        None
    } else {
        match Guard::open().filter(|guard| guard.protect(start, length)) {
            None => return false,
            guard => guard,
        }
    };
    // SAFETY: the page is readable once it is made so, nobody writes it, and `copy` is ours; the
    // copy then takes the page's place with the page's protection.
    let moved = unsafe {
        let readable = protection & libc::PROT_READ != 0
            || raw::mprotect(start, length, protection | libc::PROT_READ).is_ok();
        if readable && is_present(start) {
            std::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
        }
        readable
            && raw::mprotect(copy, length, protection).is_ok()
            && raw::move_to(copy, length, start).is_ok()
    };
    drop(guard);
    moved
}

/// Whether the page exists; one that does not is zero, like a fresh copy.
pub fn is_present(start: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: one base page is asked about, one byte is written.
    let asked =
        unsafe { libc::syscall(libc::SYS_mincore, start, raw::base_page(), &raw mut present) };
    asked != 0 || present & 1 != 0
}

fn protection_of(address: usize) -> Option<c_int> {
    let mut found = None;
    maps::each(|vma| {
        if (vma.start..vma.end).contains(&address) {
            found = Some(vma.protection());
        }
    })?;
    found
}

unsafe extern "C" {
    /// glibc 2.32: nonzero while the process has never had a second thread.
    static __libc_single_threaded: std::ffi::c_char;
}

fn has_one_thread() -> bool {
    // SAFETY: libc's variable; a thread that could change it is this one.
    unsafe { (&raw const __libc_single_threaded).read_volatile() != 0 }
}

/// A userfaultfd that can hold up writers of hugetlb pages. Closing it lets them go on.
struct Guard(c_int);

/// `struct uffdio_api`
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}
/// `struct uffdio_register`
#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}
/// `struct uffdio_writeprotect`
#[repr(C)]
struct WriteProtect {
    start: u64,
    length: u64,
    mode: u64,
}

// linux/userfaultfd.h: _IOWR(0xAA, nr, size)
const fn command(number: u64, size: usize) -> u64 {
    3 << 30 | (size as u64) << 16 | 0xaa << 8 | number
}
const UFFDIO_API: u64 = command(0x3f, size_of::<Api>());
const UFFDIO_REGISTER: u64 = command(0x00, size_of::<Register>());
const UFFDIO_WRITEPROTECT: u64 = command(0x06, size_of::<WriteProtect>());
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
/// Without privilege only faults from user space are held up; a system call that writes there
/// meanwhile fails with EFAULT.
const UFFD_USER_MODE_ONLY: c_int = 1;

impl Guard {
    fn open() -> Option<Self> {
        [0, UFFD_USER_MODE_ONLY].into_iter().find_map(|mode| {
            // SAFETY: flags only; the descriptor is ours.
            let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | mode) };
            let guard = (fd >= 0).then_some(Self(fd as c_int))?;
            let mut api =
                Api { api: UFFD_API, features: UFFD_FEATURE_WP_HUGETLBFS_SHMEM, ioctls: 0 };
            guard.call(UFFDIO_API, &mut api).then_some(guard)
        })
    }

    fn protect(&self, start: usize, length: usize) -> bool {
        let (start, length) = (start as u64, length as u64);
        let mut register = Register { start, length, mode: UFFDIO_REGISTER_MODE_WP, ioctls: 0 };
        let mut protect = WriteProtect { start, length, mode: UFFDIO_WRITEPROTECT_MODE_WP };
        self.call(UFFDIO_REGISTER, &mut register) && self.call(UFFDIO_WRITEPROTECT, &mut protect)
    }

    fn call<T>(&self, command: u64, argument: &mut T) -> bool {
        // SAFETY: the command's own structure, which the kernel reads and writes.
        unsafe {
            libc::syscall(libc::SYS_ioctl, self.0, command, std::ptr::from_mut(argument)) == 0
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}
