//! Shared memory: anonymous (`MAP_SHARED | MAP_ANONYMOUS`), memfd and POSIX objects, and System V segments.
//!
//! On hugetlb, shared memory goes to the pool only on request (SUPERPAGE_POOL=always), because it cannot always be
//! demoted. Anonymous memory becomes an object on the pool. The pages are reserved once per object, so faults cannot
//! fail in any process that inherits the object, forked children included. A call that hugetlb does not support, or
//! that unmaps a part, moves the whole mapping to ordinary memory, in one object: unmapped contents stay in the object,
//! and can be mapped again. While another process maps the object, or a part of it is unmapped, such a call fails with
//! `ENOMEM`, and nothing has changed. Memory mapped without PROT_WRITE, such as reserved address space, stays ordinary.
//!
//! A System V segment cannot be demoted: other processes attach it by its id at any time, and `shmdt` identifies it by
//! its object. On the pool its length is rounded up, it attaches only at multiples of a superpage, and no part of it
//! can be protected: such calls fail with `EINVAL`.
//!
//! A memfd or POSIX object keeps its pages. A program may write or read it like a file, give it any length, and send it
//! to processes that know nothing of superpages. A hugetlb file permits none of that. Such an object only gets advice.
//!
//! On THP all shared memory is advised; `shmem_enabled` decides whether the kernel follows the advice.
//!
//! # Safety
//! As the system calls of the same names.
//! See docs/decisions/pool.md#3.

use std::ffi::{c_int, c_void};

use libc::{key_t, size_t};

use super::Request;
use crate::contiguity;
use crate::counters::{self, Column, Kind, Reason};
use crate::executor;
use crate::files;
use crate::raw::{self, Errno};
use crate::settings::{self, Fallback};
use crate::sizes;
use crate::source;
use crate::table::{self, Range};

/// Maps shared memory.
pub(super) unsafe fn map(request: Request) -> Result<usize, Errno> {
    let superpage = sizes::superpage();
    let is_anonymous = request.flags & libc::MAP_ANONYMOUS != 0;
    let known = libc::MAP_TYPE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | libc::MAP_NONBLOCK;
    let is_ours = request.flags & !known == 0 && request.length >= superpage;
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        if !is_ours {
            return request.plain();
        }
        if !is_anonymous {
            let start = request.plain()?;
            if is_memory_file(request.fd) {
                advise(start, request.length);
            }
            return Ok(start);
        }
        let settings = settings::get();
        let is_reserved_only = request.protection & libc::PROT_WRITE == 0;
        if settings.is_hugetlb() && request.address == 0 && !is_reserved_only {
            match anonymous(request) {
                Ok(start) => return Ok(start),
                Err(why) => counters::count_reason(why),
            }
            if executor::fall_back(settings.fallback, request.length) == Fallback::Error {
                counters::count(Kind::Shared, Column::Refused, request.length);
                return Err(libc::ENOMEM);
            }
        }
        let start = request.plain()?;
        if executor::advises() {
            advise(start, request.length);
        } else {
            counters::count(Kind::Shared, Column::FellBack, request.length);
        }
        Ok(start)
    }
}

/// Maps a body of superpages and a tail of base pages: two objects, which the program cannot tell from one.
unsafe fn anonymous(request: Request) -> Result<usize, Reason> {
    if !settings::get().always_pool || !super::may_use_pool(settings::get()) {
        return Err(Reason::Unprotected);
    }
    let page = sizes::superpage();
    let length = request.length.next_multiple_of(raw::base_page());
    let body = length - length % page;
    let start = source::reserve(length, page).map_err(|_| Reason::Kernel)?;
    // SAFETY: address space of our own.
    unsafe {
        let placed = source::place_hugetlb(start, body, request.protection, libc::MAP_SHARED);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let result = placed.and_then(|()| {
            let tail = length - body;
            let has_tail = tail == 0
                || raw::mmap(start + body, tail, request.protection, flags, -1, 0).is_ok();
            let end = start + body;
            let range = Range { start, end, page, shared: true };
            let rest = Range { start: end, end: start + length, page, shared: true };
            let mapping = (start, start + length);
            let is_entered = || {
                table::add_part(range, mapping) && (tail == 0 || table::add_ordinary(rest, mapping))
            };
            if has_tail && is_entered() { Ok(start) } else { Err(Reason::Kernel) }
        });
        if result.is_err() {
            table::remove(start, start + length);
            let _ = raw::munmap(start, length);
        } else {
            counters::count(Kind::Shared, Column::Hugetlb, body);
            counters::count(Kind::Shared, Column::Small, length - body);
            if request.flags & libc::MAP_POPULATE != 0 {
                let _ = raw::populate(start, length);
            }
        }
        result
    }
}

/// Advises shared memory that is mapped at `start`.
pub fn advise(start: usize, length: usize) {
    let advised = if is_heeded() {
        contiguity::advise(Kind::Shared, start, length)
    } else {
        counters::count_reason(Reason::ThpOff);
        0
    };
    counters::count(Kind::Shared, Column::Advised, advised);
    counters::count(Kind::Shared, Column::FellBack, length - advised);
}

/// Whether the kernel gives THP to advised shared memory.
fn is_heeded() -> bool {
    let path = c"/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    files::file_has(path, &[b"[always]", b"[within_size]", b"[advise]", b"[force]"]) == Some(true)
}

/// Whether a file is on tmpfs, as memfd and shm_open files are, rather than on a disk.
pub(super) fn is_memory_file(fd: c_int) -> bool {
    is_on(libc::TMPFS_MAGIC, fd)
}

/// Whether a file is on a file system of this kind.
pub(super) fn is_on(kind: libc::c_long, fd: c_int) -> bool {
    raw::keeping_errno(|| {
        let mut status = std::mem::MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the kernel writes the structure if it returns 0.
        unsafe {
            raw::call!(SYS_fstatfs, fd, status.as_mut_ptr()) == 0
                && status.assume_init().f_type == kind
        }
    })
}

/// `int shmget(key_t key, size_t size, int shmflg)`: a new segment gets pages of the pool, on request.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmget(key: key_t, size: size_t, flags: c_int) -> c_int {
    // `HUGETLB_SHM` of libhugetlbfs.
    if let Some(id) = crate::api::shmget_on_superpages(key, size, flags) {
        return id;
    }
    let settings = settings::get();
    let creates = key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0;
    let is_ours = settings.memory.shared && creates && flags & libc::SHM_HUGETLB == 0;
    let is_new = || {
        // An existing segment has its pages; the kernel reports errors in the request.
        // SAFETY: all arguments are numbers.
        raw::keeping_errno(|| unsafe {
            key == libc::IPC_PRIVATE
                || flags & libc::IPC_EXCL != 0
                || raw::call!(SYS_shmget, key, 0, 0) == -1 && raw::errno() == libc::ENOENT
        })
    };
    let is_wanted = is_ours && settings.is_hugetlb() && size >= sizes::superpage() && is_new();
    if is_wanted && !settings.always_pool {
        counters::count_reason(Reason::Unprotected);
        counters::count(Kind::Shared, Column::FellBack, size);
    } else if is_wanted {
        let page = sizes::superpage();
        let encoded = source::hugetlb_flags(page) & !libc::MAP_HUGETLB;
        // SAFETY: all arguments are numbers.
        let id = raw::keeping_errno(|| unsafe {
            let flags = flags | libc::SHM_HUGETLB | encoded;
            let id = raw::call!(SYS_shmget, key, size, flags);
            if id < 0 {
                return Err(raw::errno());
            }
            // Populates the segment now if faults may fail despite the reservation.
            crate::api::fill_if_needed(id as c_int, size, page).map(|()| id as c_int)
        });
        match id {
            Ok(id) => {
                counters::count(Kind::Shared, Column::Hugetlb, size.next_multiple_of(page));
                return id;
            }
            // Errors of the key, not of the pages.
            Err(libc::EEXIST | libc::EACCES) => {}
            Err(errno) => {
                counters::count_reason(source::reason_of(errno));
                if executor::fall_back(settings.fallback, size) == Fallback::Error {
                    counters::count(Kind::Shared, Column::Refused, size);
                    raw::set_errno(libc::ENOMEM);
                    return -1;
                }
                counters::count(Kind::Shared, Column::FellBack, size);
            }
        }
    }
    // SAFETY: all arguments are numbers.
    unsafe { raw::call!(SYS_shmget, key, size, flags) as c_int }
}

/// `int shmget(key_t key, size_t size, int shmflg)` for the compatible libhugetlbfs.so.0: calls this library's version.
#[unsafe(no_mangle)]
pub extern "C" fn superpage_hugetlbfs_shmget(key: key_t, size: size_t, flags: c_int) -> c_int {
    // SAFETY: all arguments are numbers.
    unsafe { shmget(key, size, flags) }
}

/// `void *shmat(int shmid, const void *shmaddr, int shmflg)`: advises the segment for THP.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, address: *const c_void, flags: c_int) -> *mut c_void {
    // SAFETY: the caller keeps this function's contract.
    let start = unsafe { raw::call!(SYS_shmat, id, address, flags) };
    let settings = settings::get();
    if start != -1 && settings.memory.shared && executor::advises() {
        let mut status = std::mem::MaybeUninit::<libc::shmid_ds>::uninit();
        // SAFETY: the kernel writes the structure if it returns 0.
        let size = raw::keeping_errno(|| unsafe {
            let asked = raw::call!(SYS_shmctl, id, libc::IPC_STAT, status.as_mut_ptr());
            (asked == 0).then(|| status.assume_init().shm_segsz)
        });
        if let Some(size) = size.filter(|size| *size >= sizes::superpage()) {
            // A segment on the pool needs no advice. MADV_COLD fails only on such a segment.
            // SAFETY: advice changes no contents.
            let is_ordinary =
                unsafe { raw::madvise(start as usize, raw::base_page(), libc::MADV_COLD) }.is_ok();
            if is_ordinary {
                advise(start as usize, size);
            }
        }
    }
    start as *mut c_void
}
