//! malloc's mmap threshold and trim threshold. glibc raises both with the largest mapping freed so far (`free` in
//! `malloc/malloc.c`), unless one was set with `mallopt`. This library sets a threshold temporarily, or to grow the
//! heap in pieces. From then on this library raises both as glibc would.
//!
//! A program that sets such a parameter keeps its choice: the library then sets none any more.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{chunk::Chunk, set_option};
use crate::settings;

/// `DEFAULT_MMAP_THRESHOLD_MAX` on 64-bit systems.
pub const MAX_MAPPED_FROM: usize = 32 << 20;
/// `DEFAULT_MMAP_THRESHOLD`, `DEFAULT_TRIM_THRESHOLD`
const DEFAULT: usize = 128 << 10;

/// The mmap threshold that glibc has, or would have without this library.
static MAPPED_FROM: AtomicUsize = AtomicUsize::new(DEFAULT);
static MIN_TRIM: AtomicUsize = AtomicUsize::new(0);
/// Minimum mmap threshold; a higher one lets more objects come from arenas.
static LEAST: AtomicUsize = AtomicUsize::new(DEFAULT);
/// Whether glibc no longer moves the thresholds, because this library has set one.
static ARE_OURS: AtomicBool = AtomicBool::new(false);
static SET_BY_PROGRAM: AtomicBool = AtomicBool::new(false);
/// Whether glibc would have raised its thresholds since this library set them.
static ARE_STALE: AtomicBool = AtomicBool::new(false);

/// Called before the first allocation.
pub fn begin() {
    SET_BY_PROGRAM.store(settings::get().tunes_malloc, Ordering::Relaxed);
}

/// Lets objects below `size` come from arenas from now on, unless the program sets the thresholds itself.
pub fn map_only_from(size: usize) {
    if SET_BY_PROGRAM.load(Ordering::Relaxed) {
        return;
    }
    ARE_OURS.store(true, Ordering::Relaxed);
    LEAST.store(size, Ordering::Relaxed);
    set_trim();
    set_mapped_from();
}

fn set_mapped_from() {
    let size = MAPPED_FROM.load(Ordering::Relaxed).max(LEAST.load(Ordering::Relaxed));
    set_option(libc::M_MMAP_THRESHOLD, size as c_int);
}

/// Whether glibc maps an object of this size separately if no free chunk is large enough.
#[inline(always)]
pub fn is_large(chunk: Chunk) -> bool {
    chunk.size() >= MAPPED_FROM.load(Ordering::Relaxed)
}

/// Whether the thresholds are known: the program has not set them.
pub fn are_known() -> bool {
    !SET_BY_PROGRAM.load(Ordering::Relaxed)
}

/// The mmap threshold that glibc has, or would have without this library.
pub fn mapped_from() -> usize {
    MAPPED_FROM.load(Ordering::Relaxed)
}

/// Call when the program sets a parameter with `mallopt`.
pub fn chosen_by_the_program(parameter: c_int) {
    const THRESHOLD_OPTIONS: [c_int; 4] =
        [libc::M_TRIM_THRESHOLD, libc::M_TOP_PAD, libc::M_MMAP_THRESHOLD, libc::M_MMAP_MAX];
    if THRESHOLD_OPTIONS.contains(&parameter) {
        SET_BY_PROGRAM.store(true, Ordering::Relaxed);
    }
}

/// Call before a mapping is freed.
pub fn freed(chunk: Chunk) {
    let size = chunk.size();
    if size <= MAPPED_FROM.load(Ordering::Relaxed) || size > MAX_MAPPED_FROM {
        return;
    }
    MAPPED_FROM.store(size, Ordering::Relaxed);
    if ARE_OURS.load(Ordering::Relaxed) {
        ARE_STALE.store(true, Ordering::Relaxed);
    }
}

/// Raises stale thresholds. Call at an allocation of a large object or when the heap was trimmed: `mallopt` consolidates
/// all free chunks, which `malloc` of a large object does too, but `free` does not.
pub fn renew() {
    if ARE_STALE.load(Ordering::Relaxed)
        && ARE_STALE.swap(false, Ordering::Relaxed)
        && !SET_BY_PROGRAM.load(Ordering::Relaxed)
    {
        set_mapped_from();
        set_trim();
    }
}

/// Runs `work` while objects of up to 32 MiB come from the arena. From then on, keeps up to `kept` bytes at the heap's
/// top. `None`: the program sets the thresholds itself.
pub fn with_large_from_arena<R>(kept: usize, work: impl FnOnce() -> R) -> Option<R> {
    if SET_BY_PROGRAM.load(Ordering::Relaxed) {
        return None;
    }
    ARE_OURS.store(true, Ordering::Relaxed);
    MIN_TRIM.fetch_max(kept, Ordering::Relaxed);
    set_trim();
    set_option(libc::M_MMAP_THRESHOLD, MAX_MAPPED_FROM as c_int);
    let result = work();
    set_mapped_from();
    Some(result)
}

/// Makes glibc keep all free memory from now on.
pub fn never_trim() {
    MIN_TRIM.store(usize::MAX, Ordering::Relaxed);
}

fn set_trim() {
    // As glibc sets it, but at least the memory kept ahead.
    let mapped_from = MAPPED_FROM.load(Ordering::Relaxed);
    let glibc = if mapped_from > DEFAULT { 2 * mapped_from } else { DEFAULT };
    let trim = glibc.max(MIN_TRIM.load(Ordering::Relaxed));
    set_option(libc::M_TRIM_THRESHOLD, c_int::try_from(trim).unwrap_or(c_int::MAX));
}
