//! Private memory in tmpfs files on superpages, so that base pages are promoted to a superpage in place, without a
//! copy.
//!
//! Each range of whole superpages of a mapping is a file of its own in a tmpfs that `superpage run` made for the run,
//! mapped shared. At the first touch of an extent the kernel allocates a superpage's frame to the file, and each touch
//! maps one base page of it (`write_protect::map_by_page`). When the design asks for promotion, `superpage run`
//! unregisters the extent from userfaultfd and calls MADV_COLLAPSE: the frame stays, and a PMD maps it.
//!
//! The program expects private memory. Before a fork, or a call that the kernel treats differently on shared memory,
//! the memory therefore becomes anonymous memory with the same contents, as pool memory does (`mapping::demote`).
//! Discarded contents are removed from the file.
//!
//! # Safety
//! Callers own the addresses at which files are mapped, and discard only contents that the program gave up.
//! See docs/decisions/live.md#11.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use abi::environment::IN_PLACE_FILE;

use crate::counters::Reason;
use crate::executor::advice;
use crate::message::Decimal;
use crate::once::OnceBool;
use crate::raw::{self, Errno};
use crate::text::{Text, first_number};
use crate::{contiguity, files, limits, pagemap, settings, sizes, write_protect};

/// Whether memory meant for the pool goes to files instead.
pub fn is_asked() -> bool {
    settings::get().in_place.is_some()
}

/// Maximum number of superpages. Each promoted one may become a VMA of its own, and a process has at most 65,530 VMAs.
const MAX_SUPERPAGES: usize = 16_384;
/// Bytes of this process in files.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Maps fresh zeroed memory at `at`; `how` is `MAP_FIXED` or `MAP_FIXED_NOREPLACE`. On error nothing has changed.
///
/// # Safety
/// With `MAP_FIXED` the caller owns the range and does not need its contents.
pub unsafe fn place(at: usize, length: usize, protection: c_int, how: c_int) -> Result<(), Reason> {
    let Some(asked) = settings::get().in_place else { return Err(Reason::NoPool) };
    may_be_placed(length)?;
    let is_it = |file: libc::stat| (file.st_dev, file.st_ino) == (asked.device, asked.inode);
    if !raw::keeping_errno(|| raw::fstat(asked.fd)).is_some_and(is_it) {
        return Err(Reason::NoPermission);
    }
    if !write_protect::can_map_by_page(asked.fd + 1) {
        return Err(Reason::Unprotected);
    }
    let fd = raw::keeping_errno(|| new_file(asked.fd, length)).ok_or(Reason::Kernel)?;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | how;
    // SAFETY: the caller keeps this function's contract.
    let mapped = unsafe { raw::mmap(at, length, protection, flags, fd, 0) };
    raw::keeping_errno(|| raw::close(fd));
    if mapped.map_err(|_| Reason::Kernel)? != at {
        // Before Linux 4.17 MAP_FIXED_NOREPLACE is ignored: the address is a hint.
        // SAFETY: our own new mapping, which nothing uses yet.
        let _ = unsafe { raw::munmap(mapped.unwrap_or(at), length) };
        return Err(Reason::Kernel);
    }
    // A child that was not forked through this library must not inherit the mapping, which it would share.
    // SAFETY: fresh memory.
    let _ = unsafe { raw::madvise(at, length, libc::MADV_DONTFORK) };
    // The program was started with THP for advised memory only.
    advice::superpages(at, length);
    // On failure the kernel maps a whole extent at its first touch: superpages that the design did not ask for.
    write_protect::map_by_page(at, length, sizes::superpage());
    USED.fetch_add(length, Ordering::Relaxed);
    Ok(())
}

/// Checks whether `length` more bytes may lie in files. Fails if a limit counts private but not shared memory: calls
/// that should fail could succeed. Fails if too little memory is available: touches that would succeed on base pages
/// could fail.
fn may_be_placed(length: usize) -> Result<(), Reason> {
    let used = USED.load(Ordering::Relaxed).saturating_add(length);
    let is_limited = !limits::has_no_memory_rlimits()
        || !limits::is_unlimited(libc::RLIMIT_FSIZE)
        || counts_all_memory()
        || used / sizes::superpage() > MAX_SUPERPAGES
        || limits::available_memory().is_none_or(|available| used > available);
    if is_limited {
        return Err(Reason::Limit);
    }
    // Without free superpages the first touch of each extent would compact memory.
    match contiguity::free_superpages(length) {
        true => Ok(()),
        false => Err(Reason::Fragmented),
    }
}

/// Whether the kernel charges private memory when it is mapped (vm.overcommit_memory=2). It charges file pages when
/// touched.
fn counts_all_memory() -> bool {
    static ANSWER: OnceBool = OnceBool::new();
    ANSWER.get_or_init(|| {
        let mut buffer = [0; 16];
        let mode = files::read_file(c"/proc/sys/vm/overcommit_memory", &mut buffer);
        mode.and_then(first_number) == Some(2)
    })
}

/// Bytes that a file extends beyond its mapping, for a program that enlarges the mapping without this library.
const ROOM: usize = 1 << 40;

/// Creates a file for a mapping of that length; only /proc/self/maps shows its name.
fn new_file(directory: c_int, length: usize) -> Option<c_int> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let process = Decimal::new(raw::pid() as u64);
    let number = Decimal::new(COUNT.fetch_add(1, Ordering::Relaxed) as u64);
    let name = IN_PLACE_FILE.trim_start_matches('/').as_bytes();
    let name = Text::<64>::join(&[name, b".", process.bytes(), b".", number.bytes()])?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: a descriptor, a name and numbers; the file is ours.
    unsafe {
        let fd = raw::call!(SYS_openat, directory, name.as_c(), flags, 0o600) as c_int;
        if fd < 0 {
            return None;
        }
        let is_gone = raw::call!(SYS_unlinkat, directory, name.as_c(), 0) == 0;
        if is_gone && raw::call!(SYS_ftruncate, fd, length + ROOM) == 0 {
            return Some(fd);
        }
        raw::close(fd);
        None
    }
}

/// Discards the contents of the file at `[from, to)`, which then reads as zeroes.
///
/// # Safety
/// The program gives the contents up, and one file backs the range.
pub unsafe fn discard(from: usize, to: usize) -> Result<(), Errno> {
    // SAFETY: the caller keeps this function's contract.
    unsafe { raw::madvise(from, to - from, libc::MADV_REMOVE) }?;
    // Discarding a PMD-mapped superpage leaves no page table: set up mapping by base page again.
    let page = sizes::superpage();
    let (first, last) = (from.next_multiple_of(page), to / page * page);
    if first < last {
        write_protect::map_by_page(first, last - first, page);
    }
    Ok(())
}

/// Runs `work`, which unmaps `[from, to)` of one file. On success frees that part of the file, which would otherwise
/// stay as long as any part of the file is mapped.
pub fn unmap_and_free<T, E>(
    from: usize,
    to: usize,
    work: &mut dyn FnMut() -> Result<T, E>,
) -> Result<T, E> {
    // Maps the same part of the file at a second address: mremap(2) with an old size of 0 does so for shared memory.
    let also = raw::keeping_errno(|| {
        // SAFETY: a new mapping, wherever the kernel puts it.
        unsafe { raw::call!(SYS_mremap, from, 0, to - from, libc::MREMAP_MAYMOVE) }
    });
    if also == -1 && to - from > raw::base_page() {
        // Parts with different protections are VMAs of their own, and mremap takes only one.
        let middle = from + (to - from) / 2 / raw::base_page() * raw::base_page();
        return unmap_and_free(from, middle, &mut || unmap_and_free(middle, to, work));
    }
    let result = work();
    if also != -1 {
        let also = also as usize;
        // SAFETY: mapped above; no other code has the address.
        unsafe {
            if result.is_ok() {
                let _ = raw::madvise(also, to - from, libc::MADV_REMOVE);
                forget(to - from);
            }
            let _ = raw::munmap(also, to - from);
        }
    }
    result
}

/// Subtracts bytes that are no longer in files.
pub fn forget(bytes: usize) {
    let less = |used: usize| Some(used.saturating_sub(bytes));
    let _ = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Whether the superpage-sized range at `start` may have contents: swapped-out pages are not resident, but count.
pub fn may_have_contents(start: usize, length: usize) -> bool {
    pagemap::resident(start, length / raw::base_page()) != Some(0) || limits::may_be_paged_out()
}
