//! Private memory in files of superpages, so that a superpage is made of its base pages in place, without a copy.
//!
//! Each run of superpages of a mapping is a file of its own in a tmpfs that `superpage run` made for the run, mapped as
//! shared. The kernel gives the file a superpage's frame at the first touch of an extent, and maps one base page of it with
//! each touch (`write_protect::map_by_page`). When the design says so `superpage run` unregisters the extent and asks for
//! MADV_COLLAPSE: the frame stays, and is mapped as a superpage.
//!
//! Shared memory is not private memory: before a call that the kernel carries out otherwise there, and before a fork, it
//! becomes ordinary memory with the same contents (`mapping::demote`), as memory of the pool does. What is discarded is
//! taken out of the file.
//!
//! # Safety
//! Files are mapped where the callers own the addresses; contents are discarded that the program gives up.
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

/// Whether memory that would go to the pool lies in files instead.
pub fn is_asked() -> bool {
    settings::get().in_place.is_some()
}

/// The most superpages of a process: each that is promoted may become a mapping of its own, of which a process has 65,530.
const MAX_SUPERPAGES: usize = 16_384;
/// Bytes of this process in files.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Puts fresh zeroed memory at `at`; `how` is `MAP_FIXED` or `MAP_FIXED_NOREPLACE`. Nothing has changed on errors.
///
/// # Safety
/// With `MAP_FIXED` the range is the caller's, and nothing in it is needed.
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
    // SAFETY: the contract.
    let mapped = unsafe { raw::mmap(at, length, protection, flags, fd, 0) };
    raw::keeping_errno(|| raw::close(fd));
    if mapped.map_err(|_| Reason::Kernel)? != at {
        // Before Linux 4.17 the address is a hint.
        // SAFETY: fresh memory of ours.
        let _ = unsafe { raw::munmap(mapped.unwrap_or(at), length) };
        return Err(Reason::Kernel);
    }
    // A child that was not forked through us does not get it: it would share it with this process.
    // SAFETY: fresh memory.
    let _ = unsafe { raw::madvise(at, length, libc::MADV_DONTFORK) };
    // The program is started so that only what is advised gets superpages.
    advice::superpages(at, length);
    // Where this fails the kernel maps all of an extent at its first touch: superpages that no design asked for.
    write_protect::map_by_page(at, length, sizes::superpage());
    USED.fetch_add(length, Ordering::Relaxed);
    Ok(())
}

/// Whether so much may lie in files: where limits count private memory that do not count shared memory, and where memory
/// is not there for all of it, a touch could fail that would not on base pages, or a call succeed that would fail.
fn may_be_placed(length: usize) -> Result<(), Reason> {
    let used = USED.load(Ordering::Relaxed).saturating_add(length);
    let is_limited = !limits::are_none()
        || !limits::is_unlimited(libc::RLIMIT_FSIZE)
        || counts_all_memory()
        || used / sizes::superpage() > MAX_SUPERPAGES
        || limits::available_memory().is_none_or(|available| used > available);
    if is_limited {
        return Err(Reason::Limit);
    }
    // The first touch of each extent would compact memory.
    match contiguity::free_superpages(length) {
        true => Ok(()),
        false => Err(Reason::Fragmented),
    }
}

/// Whether the kernel promises memory when it is mapped (vm.overcommit_memory=2): of files, it does when they are touched.
fn counts_all_memory() -> bool {
    static ANSWER: OnceBool = OnceBool::new();
    ANSWER.get_or_init(|| {
        let mut buffer = [0; 16];
        let mode = files::read_file(c"/proc/sys/vm/overcommit_memory", &mut buffer);
        mode.and_then(first_number) == Some(2)
    })
}

/// What a file is longer than its mapping by: a program that enlarges the mapping past us finds memory there.
const ROOM: usize = 1 << 40;

/// A file for a mapping of that length, which has its name in /proc/self/maps only.
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

/// Discards what is in the file at `[from, to)`: it reads as zeros.
///
/// # Safety
/// The program gives the contents up, and the range is of one file.
pub unsafe fn discard(from: usize, to: usize) -> Result<(), Errno> {
    // SAFETY: the contract.
    unsafe { raw::madvise(from, to - from, libc::MADV_REMOVE) }?;
    // A superpage that was mapped has left no page table: base pages are mapped by page again.
    let page = sizes::superpage();
    let (first, last) = (from.next_multiple_of(page), to / page * page);
    if first < last {
        write_protect::map_by_page(first, last - first, page);
    }
    Ok(())
}

/// Runs `work`, which takes away what is mapped at `[from, to)` of one file. If it did, that part of the file is freed,
/// which would else stay as long as any of the file is mapped.
pub fn taking_away<T, E>(
    from: usize,
    to: usize,
    work: &mut dyn FnMut() -> Result<T, E>,
) -> Result<T, E> {
    // The same part of the file at another address: shared memory can be mapped again so (mremap(2)).
    let also = raw::keeping_errno(|| {
        // SAFETY: a new mapping, wherever the kernel puts it.
        unsafe { raw::call!(SYS_mremap, from, 0, to - from, libc::MREMAP_MAYMOVE) }
    });
    if also == -1 && to - from > raw::base_page() {
        // Parts of it differ in their protection: they are mappings of their own.
        let middle = from + (to - from) / 2 / raw::base_page() * raw::base_page();
        return taking_away(from, middle, &mut || taking_away(middle, to, work));
    }
    let result = work();
    if also != -1 {
        let also = also as usize;
        // SAFETY: mapped above, and known to nobody.
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

/// So many bytes are in files no longer.
pub fn forget(bytes: usize) {
    let less = |used: usize| Some(used.saturating_sub(bytes));
    let _ = USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Whether the superpage's worth at `start` may have contents: what is paged out is not resident, and has.
pub fn may_have_contents(start: usize, length: usize) -> bool {
    pagemap::resident(start, length / raw::base_page()) != Some(0) || limits::may_be_paged_out()
}
