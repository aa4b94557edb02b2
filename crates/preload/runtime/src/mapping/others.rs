//! Rare calls that work differently on the pool than on ordinary memory: locking, protection keys, nonlinear mappings,
//! advice by pidfd, userfaultfd. Other calls need additional work: `prctl`, `chroot`, and `mincore` on memory that
//! `prepare` has populated.
//!
//! # Safety
//! As the system calls of the same names.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{iovec, size_t, ssize_t};

use super::demote::{self, Scope};
use super::parts::{first_make_ordinary, protect, round_up, scope_of};
use crate::table::{self, Locked};
use crate::text::Text;
use crate::{contiguity, filter, in_place, limits, maps, message, prepare, raw, source};

/// Demotes the superpages concerned, and makes the call; -1 with errno if that fails.
unsafe fn demote_then(
    address: *const c_void,
    length: size_t,
    scope: Scope,
    call: impl FnOnce() -> libc::c_long,
) -> c_int {
    let start = address as usize;
    let end = round_up(start, length);
    prepare::changed(start, end);
    match first_make_ordinary(start, end, scope) {
        Ok(()) => call() as c_int,
        Err(errno) => raw::fails_with(errno),
    }
}

/// `int mlock(const void *addr, size_t len)`. The kernel neither counts nor records locks of hugetlb pages.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, length: size_t) -> c_int {
    // SAFETY: the caller keeps this function's contract.
    let result = unsafe {
        demote_then(address, length, Scope::Covered, || raw::call!(SYS_mlock, address, length))
    };
    record_lock(result, address, length, Locked::Now)
}

fn record_lock(result: c_int, address: *const c_void, length: size_t, locked: Locked) -> c_int {
    if result == 0 {
        let start = address as usize;
        table::mark(start, round_up(start, length), |marks| marks.locked = locked);
    }
    result
}

/// `int munlock(const void *addr, size_t len)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(address: *const c_void, length: size_t) -> c_int {
    // SAFETY: the caller keeps this function's contract.
    let result = unsafe { raw::call!(SYS_munlock, address, length) } as c_int;
    record_lock(result, address, length, Locked::No)
}

/// `int mlock2(const void *addr, size_t len, unsigned flags)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, length: size_t, flags: c_uint) -> c_int {
    // As in glibc: without flags, mlock2 is mlock.
    if flags == 0 {
        // SAFETY: the caller keeps this function's contract.
        return unsafe { mlock(address, length) };
    }
    // SAFETY: the caller keeps this function's contract.
    let result = unsafe {
        demote_then(address, length, Scope::Covered, || {
            raw::call!(SYS_mlock2, address, length, flags)
        })
    };
    record_lock(result, address, length, Locked::OnFault)
}

/// `int mincore(void *addr, size_t length, unsigned char *vec)`: first discards prepared pages that the program has not
/// written, which would not be resident without this library.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mincore(
    address: *mut c_void,
    length: size_t,
    into: *mut std::ffi::c_uchar,
) -> c_int {
    let start = address as usize;
    prepare::discard_untouched(start, round_up(start, length));
    // SAFETY: the caller keeps this function's contract.
    unsafe { raw::call!(SYS_mincore, start, length, into) as c_int }
}

/// `int mlockall(int flags)`: pool pages are never swapped out, but their copies must be locked.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // Kept mappings would be locked, and counted; memory grown ahead would become resident.
    prepare::release_all();
    let (was_locked, is_asked) = (limits::is_future_locked(), flags & libc::MCL_FUTURE != 0);
    // Set before the call, because another thread may be about to grow the heap ahead.
    limits::lock_future(was_locked || is_asked);
    if flags & libc::MCL_CURRENT != 0 {
        limits::run_before_locking();
    }
    // SAFETY: all arguments are numbers.
    let result = unsafe { raw::call!(SYS_mlockall, flags) } as c_int;
    // Without MCL_FUTURE the call revokes an earlier MCL_FUTURE.
    limits::lock_future(if result == 0 { is_asked } else { was_locked });
    if result == 0 && flags & libc::MCL_CURRENT != 0 {
        demote::lock_copies(true);
    }
    result
}

/// `int munlockall(void)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlockall() -> c_int {
    demote::lock_copies(false);
    limits::lock_future(false);
    table::mark(0, usize::MAX, |marks| marks.locked = Locked::No);
    // SAFETY: the call takes no arguments.
    unsafe { raw::call!(SYS_munlockall) as c_int }
}

/// `int pkey_mprotect(void *addr, size_t len, int prot, int pkey)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pkey_mprotect(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    key: c_int,
) -> c_int {
    // As in glibc: without a key it works on kernels without protection keys.
    if key == -1 {
        // SAFETY: the caller keeps this function's contract.
        return raw::answer(unsafe { protect(address as usize, length, protection) });
    }
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        demote_then(address, length, Scope::Covered, || {
            raw::call!(SYS_pkey_mprotect, address, length, protection, key)
        })
    }
}

/// `int remap_file_pages(void *addr, size_t size, int prot, size_t pgoff, int flags)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remap_file_pages(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    offset: size_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        demote_then(address, length, Scope::Mapping, || {
            raw::call!(SYS_remap_file_pages, address, length, protection, offset, flags)
        })
    }
}

/// `ssize_t process_madvise(int pidfd, const struct iovec *iov, size_t n, int advice, unsigned flags)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    ranges: *const iovec,
    count: size_t,
    advice: c_int,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        if table::may_overlap(0, usize::MAX) && !ranges.is_null() && is_this_process(process) {
            let ranges = std::slice::from_raw_parts(ranges, count.min(libc::UIO_MAXIOV as usize));
            let scope = match advice {
                libc::MADV_DONTNEED => Some(Scope::Covered),
                _ => scope_of(advice),
            };
            for range in ranges.iter().filter(|_| scope.is_some()) {
                let (start, scope) = (range.iov_base as usize, scope.unwrap_or(Scope::Covered));
                if first_make_ordinary(start, round_up(start, range.iov_len), scope).is_err() {
                    return raw::fails_with(libc::ENOMEM) as ssize_t;
                }
            }
        }
        raw::call!(SYS_process_madvise, process, ranges, count, advice, flags) as ssize_t
    }
}

/// Whether a pidfd refers to this process.
fn is_this_process(process: c_int) -> bool {
    /// PIDFD_SELF_THREAD and PIDFD_SELF_THREAD_GROUP (Linux 6.14, linux/pidfd.h).
    const OURS: [c_int; 2] = [-10_000, -10_001];
    if process < 0 {
        return OURS.contains(&process);
    }
    let number = message::Decimal::new(process.unsigned_abs().into());
    let path = Text::<64>::join(&[b"/proc/thread-self/fdinfo/", number.bytes()]);
    let Some(path) = path else { return false };
    let ours = message::Decimal::new(raw::pid() as u64);
    let mut is_ours = false;
    let _ = maps::each_line(path.c_str(), |line| {
        let pid = line.strip_prefix(b"Pid:").map(<[u8]>::trim_ascii);
        is_ours |= pid == Some(ours.bytes());
    });
    is_ours
}

/// linux/userfaultfd.h: `_IOWR(0xAA, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: c_ulong = 0xc020_aa00;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
/// `_IOWR(0xAA, 0x05, struct uffdio_move)`.
const UFFDIO_MOVE: c_ulong = 0xc028_aa05;

/// `int ioctl(int fd, unsigned long request, ...)`, with one argument, as in the kernel. Userfaultfd fills and protects
/// memory by base pages, so the memory must be ordinary. Other requests cost two comparisons.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // A thread that is cancelled in the call unwinds through this frame, which has nothing to clean up.
    // SAFETY: the caller keeps this function's contract.
    unsafe {
        match request {
            UFFDIO_REGISTER | UFFDIO_MOVE => of_userfaultfd(fd, request, argument),
            _ => raw::call!(SYS_ioctl, fd, request, argument) as c_int,
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn of_userfaultfd(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    raw::not_cancelled(|| {
        if request == UFFDIO_REGISTER {
            contiguity::set_watched();
        }
        if let Err(errno) = before_userfaultfd(request, argument) {
            return raw::fails_with(errno);
        }
        // SAFETY: the caller keeps this function's contract.
        unsafe { raw::call!(SYS_ioctl, fd, request, argument) as c_int }
    })
}

/// Demotes memory before userfaultfd registers it (whole mappings), or moves it (the source).
fn before_userfaultfd(request: c_ulong, argument: *mut c_void) -> Result<(), raw::Errno> {
    if argument.is_null() {
        return Ok(());
    }
    // struct uffdio_register: start, length, mode. struct uffdio_move: to, from, length.
    let mut words = [0u64; 3];
    let size = size_of_val(&words);
    let ours = iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size };
    let theirs = iovec { iov_base: argument, iov_len: size };
    // Read by a system call, which fails on an invalid address instead of raising SIGSEGV.
    // SAFETY: the kernel writes at most the three words.
    let got = raw::keeping_errno(|| unsafe {
        raw::call!(SYS_process_vm_readv, raw::pid(), &raw const ours, 1, &raw const theirs, 1, 0)
    });
    if got != size as libc::c_long {
        return Ok(());
    }
    let (start, length, scope) = match request {
        UFFDIO_REGISTER => (words[0], words[1], Scope::Mapping),
        _ => (words[1], words[2], Scope::Covered),
    };
    let start = start as usize;
    let end = round_up(start, length as usize);
    if request == UFFDIO_REGISTER {
        // No page may be present before its fault, and registered memory is not kept when it is unmapped.
        prepare::discard_untouched(start, end);
        prepare::changed(start, end);
    }
    first_make_ordinary(start, end, scope)?;
    if request == UFFDIO_REGISTER && words[2] & UFFDIO_REGISTER_MODE_MISSING != 0 {
        contiguity::release_untouched(start, end);
    }
    Ok(())
}

/// `include/uapi/linux/prctl.h`.
const PR_SET_VMA_ANON_NAME: c_ulong = 0;
/// `include/uapi/linux/prctl.h` (6.4).
const PR_SET_MEMORY_MERGE: c_int = 67;

/// `int prctl(int option, ...)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    const STRICT: c_ulong = 1;
    if option == libc::PR_SET_NO_NEW_PRIVS {
        expect_filter();
    }
    if option == libc::PR_SET_SECCOMP && (second == STRICT || third != 0) {
        // SAFETY: the caller keeps this function's contract.
        let set = || unsafe { raw::call!(SYS_prctl, option, second, third, fourth, fifth) };
        return setting_filter(set) as c_int;
    }
    if option == libc::PR_SET_VMA && second == PR_SET_VMA_ANON_NAME {
        // The kernel names anonymous memory only.
        let (start, end) = (third as usize, round_up(third as usize, fourth as usize));
        if let Err(errno) = first_make_ordinary(start, end, Scope::Covered) {
            return raw::fails_with(errno);
        }
    }
    if option == PR_SET_MEMORY_MERGE {
        super::merge(second != 0);
    }
    // SAFETY: the caller keeps this function's contract.
    unsafe { raw::call!(SYS_prctl, option, second, third, fourth, fifth) as c_int }
}

/// `int chroot(const char *path)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    // SAFETY: the caller keeps this function's contract.
    unsafe { changing_root(path, || raw::call!(SYS_chroot, path)) as c_int }
}

/// Runs `change`, which makes `path` the root directory. If the new root has no /proc, the maps can no longer be read,
/// and nothing can be demoted. In that case demotes as much as possible first.
///
/// # Safety
/// `path` is a C string, or a pointer that the kernel refuses.
pub(super) unsafe fn changing_root(path: *const c_char, change: impl FnOnce() -> c_long) -> c_long {
    let is_on_pool = || source::requires_demotable() && table::first(0, usize::MAX).is_some();
    // SAFETY: the caller keeps this function's contract.
    if is_on_pool() && !filter::may_be_in_place() && unsafe { has_no_list_of_mappings(path) } {
        let _ = demote::make_all_ordinary();
    }
    change()
}

/// Whether `path` is a directory that lacks the maps file that this library reads (`maps`).
unsafe fn has_no_list_of_mappings(path: *const c_char) -> bool {
    let open = |directory: c_int, path: *const c_char, flags: c_int| {
        // SAFETY: `path` is a C string by this function's contract or by its literal.
        let fd = unsafe { raw::call!(SYS_openat, directory, path, flags | libc::O_CLOEXEC) };
        (fd >= 0).then_some(fd as c_int)
    };
    raw::keeping_errno(|| {
        let Some(root) = open(libc::AT_FDCWD, path, libc::O_PATH | libc::O_DIRECTORY) else {
            return false;
        };
        let list = open(root, c"proc/thread-self/maps".as_ptr(), libc::O_RDONLY);
        raw::close(root);
        list.map(raw::close).is_none()
    })
}

/// Call before the program may set a filter. Empties the stock, which needs calls that the filter may not permit.
pub(super) fn expect_filter() {
    filter::expect();
    prepare::release_all();
    if in_place::is_asked() {
        // Memory that cannot be demoted stays, and calls that require it to be ordinary fail.
        let _ = demote::make_all_ordinary();
    }
}

/// Runs `set`, which installs a seccomp filter. First demotes as much memory as possible: later a call on part of a
/// superpage, or a fork, would need system calls that the filter may not permit. Such calls fail on memory that stays
/// on the pool.
/// See docs/decisions/pool.md#8.
pub(super) fn setting_filter(set: impl FnOnce() -> c_long) -> c_long {
    let was_set = filter::is_set();
    expect_filter();
    if !was_set && source::requires_demotable() {
        let _ = demote::make_all_ordinary();
    }
    filter::set(true);
    let result = set();
    if result == -1 && !was_set {
        filter::set(false); // the kernel refused
    }
    result
}
