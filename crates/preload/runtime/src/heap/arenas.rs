//! Superpages for glibc's arenas: the main arena, which grows by brk, and those of threads, each of which grows inside
//! 64 MiB of address space.
//!
//! An arena grows by a few base pages at a time, but the kernel gives a superpage only where all of it is mapped. So
//! the library grows the heap ahead, by the allocator's own means. It allocates an object of several MiB from the
//! arena's top. It advises the superpages that lie wholly inside the object, or replaces them by pages of the pool; no
//! other code uses the object at that moment. Then it frees the object, which becomes the top again. This relies only
//! on the allocator's interface, cannot race with other threads, and makes no system call that glibc's malloc does not
//! make.
//!
//! Life of a superpage of an arena: unmapped -> inside the object, untouched -> backed -> allocated in pieces ->
//! returned to the kernel when glibc trims the top.
//!
//! If the program touches what it allocates, the main arena gets superpages once the heap holds 3 MiB, and threads'
//! arenas once it holds 32 MiB. Memory allocated earlier is then advised, too, and left to khugepaged.
//!
//! # Safety
//! Memory that is discarded or replaced lies inside an object that this thread has just allocated.
//! See docs/decisions/heap.md#2, heap.md#3 and heap.md#10.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::spans::{SPAN, STEP, is_below, slot};
use super::{Chunk, large, next, packed, thresholds};
use crate::counters::{self, Column, Kind, Reason};
use crate::once::OnceBool;
use crate::settings::{self, Fallback};
use crate::table;
use crate::{executor, filter, in_place, limits, pagemap, raw, sizes, source, write_protect};

/// Minimum heap size for THP in the main arena, whose last superpage is half used on average.
const LARGE_HEAP: usize = 3 << 20;
/// Minimum heap size for THP in threads' arenas, each of which has a last superpage that is half
/// used.
const LARGE_HEAP_OF_THREADS: usize = 32 << 20;
/// Minimum heap size for THP in any arena once separately mapped objects and arenas hold
/// [`LARGE_IN_ALL`].
const MIN_HEAP_AMONG_MAPPED: usize = 4 << 20;
const LARGE_IN_ALL: usize = 64 << 20;
/// Minimum heap size for pool pages in any arena.
const LARGE_HEAP_ON_POOL: usize = 4 << 20;
/// Size of the newest part of an arena, whose density decides. The last [`DENSITY_SKIPPED_TAIL`] bytes do not count:
/// the program may be about to touch them.
const DENSITY_WINDOW: usize = 4 << 20;
const DENSITY_SKIPPED_TAIL: usize = 256 << 10;
/// An arena is grown ahead by an eighth of the heap, within these bounds.
const MIN_AHEAD: usize = 4 << 20;
const MAX_AHEAD: usize = 16 << 20;
/// Maximum number of bytes grown ahead on the pool, whose pages are reserved for this process.
const MAX_AHEAD_ON_POOL: usize = 8 << 20;

/// Address in the main arena below which an allocation needs no check.
static MAIN: AtomicUsize = AtomicUsize::new(0);
/// Start of the main arena.
static START: AtomicUsize = AtomicUsize::new(0);
/// Bytes in threads' arenas, not counting the last [`STEP`] of each.
static IN_THREADS: AtomicUsize = AtomicUsize::new(0);
/// End of the brk area at the last check.
static LAST_BREAK: AtomicUsize = AtomicUsize::new(0);
/// (a) Try-lock for growing an arena; callers that lose it return.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// Whether the heap is large and its early memory was advised.
static IS_LARGE: AtomicBool = AtomicBool::new(false);
/// Whether an arena may lie on the pool. If so, glibc must discard nothing by `madvise`, unless the pool is wanted at
/// any price. If the pool has surplus pages, discarded memory loses its reservation, and a later touch may be killed.
/// glibc discards tops of threads' arenas, and in `malloc_trim` parts of all arenas. (It returns the top of the main
/// arena by `brk`.)
static IS_ON_POOL: AtomicBool = AtomicBool::new(false);
/// Whether a thread's arena may lie on the pool.
static KEEPS_THREAD_TOPS: AtomicBool = AtomicBool::new(false);
/// Whether an arena was ever grown ahead on THP.
static HAS_GROWN: AtomicBool = AtomicBool::new(false);
/// Whether an arena was grown ahead since memory last ran out.
static IS_AHEAD: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// glibc's record of the end of the brk area.
    static __curbrk: *mut c_void;
}

fn current_break() -> usize {
    // SAFETY: libc's variable; if another thread writes it meanwhile, the old and the new value will both do.
    unsafe { (&raw const __curbrk).read_volatile() as usize }
}

/// Call before the first allocation. If even the first bytes are to lie on the pool, makes the main arena begin at a
/// superpage.
pub fn begin() {
    // SAFETY: queries the end of the brk area, and moves it up.
    unsafe {
        let start = libc::sbrk(0) as usize;
        START.store(start, Ordering::Relaxed);
        let settings = settings::get();
        let page = sizes::superpage();
        if is_pool_forced() && is_for_pool() && !settings.maps_nothing {
            raise_mmap_threshold();
        }
        if !settings.whole_heap || page > MAX_AHEAD {
            return;
        }
        if settings.maps_nothing {
            // A separate mapping begins with a base page; libhugetlbfs' heap did not map objects either.
            super::set_option(libc::M_MMAP_MAX, 0);
        }
        // malloc's own first object lies on the last base page below the boundary.
        let boundary = (start + raw::base_page()).next_multiple_of(page);
        libc::sbrk((boundary - raw::base_page() - start) as isize);
        let first = next::malloc(1);
        if first.is_null() {
            return;
        }
        // A header precedes the program's first object, and may lie on the base page.
        let gap = boundary.saturating_sub(Chunk::from_memory(first).end() + HEADERS / 2);
        let last = if gap >= HEADERS { next::malloc(gap - HEADERS / 2) } else { first };
        if !last.is_null() {
            back_up_to(Chunk::from_memory(last));
        }
    }
}

/// Two headers, which is also more than the smallest chunk.
const HEADERS: usize = 4 * size_of::<usize>();

/// Called after each allocation: grows the arena ahead if it is near the end of backed memory. `false`: there are no
/// superpages, and the fallback is `error`.
#[inline(always)]
pub fn back_up_to(chunk: Chunk) -> bool {
    let end = chunk.end();
    let is_known = if chunk.is_of_a_thread() {
        is_below(slot(end).load(Ordering::Relaxed), end)
    } else {
        end <= MAIN.load(Ordering::Relaxed)
    };
    is_known || check(chunk)
}

/// Checks an allocation. One thread at a time does so; arenas of other threads are checked at their next allocation.
#[cold]
fn check(chunk: Chunk) -> bool {
    if IS_BUSY.swap(true, Ordering::Acquire) {
        return true;
    }
    let is_backed = raw::keeping_errno(|| advance(chunk));
    IS_BUSY.store(false, Ordering::Release);
    is_backed
}

fn advance(chunk: Chunk) -> bool {
    let end = chunk.end();
    let next_look = end.next_multiple_of(STEP);
    let (limit, known, holds) = if chunk.is_of_a_thread() {
        let span = end - end % SPAN;
        let limit = slot(end);
        let known = limit.load(Ordering::Relaxed);
        if is_below(known, end) {
            return true; // another thread was faster
        }
        let is_first = known == 0;
        let known = if is_first { span } else { known };
        // Of the last step only the used part counts: the first object of a thread does not make the heap 2 MiB larger.
        let counted = if is_first { span + STEP } else { known };
        let more = next_look.saturating_sub(counted);
        let in_threads = IN_THREADS.fetch_add(more, Ordering::Relaxed) + more;
        let in_step = end - (next_look - STEP);
        (limit, known, in_threads + in_step + main_size())
    } else {
        LAST_BREAK.store(current_break(), Ordering::Relaxed);
        let known = MAIN.load(Ordering::Relaxed).max(START.load(Ordering::Relaxed));
        let holds = end.saturating_sub(START.load(Ordering::Relaxed));
        (&MAIN, known, holds + IN_THREADS.load(Ordering::Relaxed))
    };
    if !is_large(chunk, holds) || limits::is_future_locked() {
        counters::count(Kind::Heap, Column::Small, next_look.saturating_sub(known));
        limit.store(next_look, Ordering::Relaxed);
        return true;
    }
    match grow(chunk, holds) {
        Growth::To(backed) => {
            let ahead = backed.saturating_sub(sizes::superpage());
            if chunk.is_of_a_thread() {
                IN_THREADS.fetch_add(ahead.saturating_sub(next_look), Ordering::Relaxed);
            }
            limit.store(ahead.max(end), Ordering::Relaxed);
            IS_AHEAD.store(true, Ordering::Relaxed);
        }
        Growth::None => {
            counters::count(Kind::Heap, Column::Small, next_look.saturating_sub(known));
            limit.store(next_look, Ordering::Relaxed);
        }
        Growth::Refused => return false,
    }
    true
}

/// Whether arenas may lie on the pool. A fork that finds the pool short demotes parts of them, so system calls of other
/// threads must be blockable, unless the pool is wanted at any price.
fn is_for_pool() -> bool {
    static CAN_BE_MOVED: OnceBool = OnceBool::new();
    let settings = settings::get();
    if !settings.is_hugetlb() || in_place::is_asked() {
        return false;
    }
    let can_be_moved = || !filter::may_be_in_place() && write_protect::can_block_system_calls();
    is_pool_forced() || CAN_BE_MOVED.get_or_init(can_be_moved)
}

/// Whether the pool is wanted at any price, or for the whole heap.
fn is_pool_forced() -> bool {
    let settings = settings::get();
    settings.whole_heap || !source::requires_demotable()
}

/// Lets objects that are too small for pool pages of their own come from arenas.
fn raise_mmap_threshold() {
    thresholds::map_only_from(large::BACKED_FROM.load(Ordering::Relaxed));
}

/// On the pool: once separately mapped objects hold this many bytes, smaller ones come from arenas.
const MAPPED_UNTIL: usize = 16 << 20;
/// Bytes that separately mapped objects hold, on the pool.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Call when an object got a separate mapping.
pub fn mapped(length: usize) {
    if !settings::get().is_hugetlb() {
        return;
    }
    let holds = MAPPED.fetch_add(length, Ordering::Relaxed) + length;
    if holds >= MAPPED_UNTIL && is_for_pool() {
        raw::keeping_errno(raise_mmap_threshold);
    }
}

/// Call before a separately mapped object is freed.
pub fn unmapped(length: usize) {
    if !settings::get().is_hugetlb() {
        return;
    }
    let less = |holds: usize| Some(holds.saturating_sub(length));
    let _ = MAPPED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Whether the top of an arena may be larger than glibc alone would make it.
pub fn have_grown() -> bool {
    HAS_GROWN.load(Ordering::Relaxed) && !is_for_pool()
}

/// Whether an object was cut from the top of its arena; a guess, because other threads may change the arena meanwhile.
///
/// # Safety
/// The object was just allocated.
pub unsafe fn is_cut_from_top(chunk: Chunk) -> bool {
    /// Offset of the size in `struct _heap_info` of a thread's arena (`malloc/arena.c`).
    const SIZE: usize = 2 * size_of::<usize>();
    let (next, span) = (chunk.end(), chunk.memory / SPAN * SPAN);
    // With glibc.malloc.hugetlb=2 heaps of threads are smaller than a span, and the span's first page may be unmapped.
    if chunk.is_of_a_thread() && pagemap::is_resident(span) != Some(true) {
        return false;
    }
    // SAFETY: in an arena another chunk follows, whose size is the second word; a span begins with its `struct
    // _heap_info`.
    unsafe {
        let size = (next as *const usize).add(1).read_volatile() & !7;
        let end = match chunk.is_of_a_thread() {
            true => span.wrapping_add(((span + SIZE) as *const usize).read_volatile()),
            false => current_break(),
        };
        next.wrapping_add(size) == end
    }
}

/// Bytes in all arenas.
pub fn total_bytes() -> usize {
    main_size() + IN_THREADS.load(Ordering::Relaxed)
}

/// Whether arenas get superpages.
pub fn are_large() -> bool {
    IS_LARGE.load(Ordering::Relaxed)
}

fn main_size() -> usize {
    let start = START.load(Ordering::Relaxed);
    current_break().saturating_sub(start)
}

/// Whether the arena of `chunk` gets superpages, in a heap of `holds` bytes.
fn is_large(chunk: Chunk, holds: usize) -> bool {
    let settings = settings::get();
    let least = match (settings.whole_heap, is_for_pool()) {
        (true, _) => 0,
        (false, true) => LARGE_HEAP_ON_POOL,
        // With enough other objects, the unused parts of last superpages are small in comparison.
        (false, false) if holds + packed::total_bytes() >= LARGE_IN_ALL => MIN_HEAP_AMONG_MAPPED,
        (false, false) if chunk.is_of_a_thread() => LARGE_HEAP_OF_THREADS,
        (false, false) => LARGE_HEAP,
    };
    if holds < least {
        return false;
    }
    if !is_for_pool() && !IS_LARGE.load(Ordering::Relaxed) && !is_dense(chunk) {
        return false;
    }
    if !IS_LARGE.swap(true, Ordering::Relaxed) {
        large::heap_is_large();
        if !is_for_pool() && executor::advises() {
            let page = sizes::superpage();
            let from = START.load(Ordering::Relaxed).next_multiple_of(page);
            let to = MAIN.load(Ordering::Relaxed);
            if to > from + page {
                large::advise_old(from, (to - from) / page * page);
            }
        }
    }
    true
}

/// Whether nine tenths of the newest part of an object's arena are touched; older parts may have changed since.
fn is_dense(chunk: Chunk) -> bool {
    let base = raw::base_page();
    // A filter may kill the process for the query.
    if filter::may_be_in_place() {
        return true;
    }
    let begins = match chunk.is_of_a_thread() {
        true => chunk.end() / SPAN * SPAN,
        false => START.load(Ordering::Relaxed),
    };
    let to = chunk.memory.saturating_sub(DENSITY_SKIPPED_TAIL) / base * base;
    let from = to.saturating_sub(DENSITY_WINDOW).max(begins.next_multiple_of(base));
    if from >= to {
        return false;
    }
    let pages = (to - from) / base;
    pagemap::resident(from, pages).is_some_and(|touched| touched >= pages / 10 * 9)
}

/// Result of growing an arena ahead.
enum Growth {
    /// Backed up to this address.
    To(usize),
    /// Unchanged.
    None,
    /// There are no superpages, and the fallback is `error`.
    Refused,
}

/// Grows the arena whose newest chunk is `chunk`.
fn grow(chunk: Chunk, holds: usize) -> Growth {
    let page = sizes::superpage();
    let is_on_pool = is_for_pool();
    let most = if is_on_pool { MAX_AHEAD_ON_POOL } else { MAX_AHEAD };
    // Under a limit, memory grown ahead would be missing for mappings and thread stacks.
    if page > most / 2 || !limits::has_no_memory_rlimits() {
        return Growth::None;
    }
    let ahead = (holds / 8).clamp(MIN_AHEAD, most).next_multiple_of(page);
    // A thread's arena continues in another span.
    let left = if chunk.is_of_a_thread() { SPAN - chunk.end() % SPAN } else { usize::MAX };
    let ahead = ahead.min(left.saturating_sub(2 * page) / page * page);
    if ahead == 0 {
        return Growth::None;
    }
    let size = ahead + page;
    if is_on_pool && source::requires_demotable() {
        IS_ON_POOL.store(true, Ordering::Relaxed);
        if chunk.is_of_a_thread() {
            KEEPS_THREAD_TOPS.store(true, Ordering::Relaxed);
            thresholds::never_trim();
        }
    }
    // SAFETY: memory of malloc, freed below.
    let Some(object) =
        thresholds::with_large_from_arena(size + ahead, || unsafe { next::malloc(size) })
    else {
        return Growth::None;
    };
    if object.is_null() {
        return Growth::None;
    }
    // SAFETY: just allocated.
    let inside = unsafe { Chunk::from_memory(object) };
    let is_next = !inside.is_mapped()
        && inside.is_of_a_thread() == chunk.is_of_a_thread()
        && inside.memory > chunk.memory;
    let (from, to) = (inside.memory.next_multiple_of(page), inside.end() / page * page);
    let growth = if !is_next || from >= to {
        Growth::None
    } else if is_on_pool {
        // SAFETY: the object is this thread's, and its contents are not needed.
        unsafe { on_pool(from, to) }
    } else {
        if settings::get().is_hugetlb() {
            counters::count_reason(Reason::Unprotected);
        }
        if executor::advises() {
            // glibc has written the header of the top behind the last object. That base page would stay mapped.
            // SAFETY: as above.
            let _ = unsafe { raw::madvise(from, page, libc::MADV_DONTNEED) };
        }
        large::advise(from, to - from);
        HAS_GROWN.store(true, Ordering::Relaxed);
        Growth::To(to)
    };
    // SAFETY: allocated above.
    unsafe { next::free(object) };
    if !chunk.is_of_a_thread() {
        LAST_BREAK.store(current_break(), Ordering::Relaxed);
    }
    growth
}

/// Puts `[from, to)` on pages of the pool, or applies the fallback.
unsafe fn on_pool(from: usize, to: usize) -> Growth {
    // SAFETY: the caller keeps this function's contract.
    if unsafe { large::put_on_pool(from, to) } {
        return Growth::To(to);
    }
    if executor::fall_back(settings::get().fallback, to - from) == Fallback::Error {
        counters::count(Kind::Heap, Column::Refused, to - from);
        return Growth::Refused;
    }
    large::advise(from, to - from);
    Growth::To(to)
}

/// Called after each free: glibc may have trimmed the main arena.
#[inline(always)]
pub fn notice_trim() {
    let now = current_break();
    if now < LAST_BREAK.load(Ordering::Relaxed) {
        trimmed(now);
    }
}

#[cold]
fn trimmed(now: usize) {
    thresholds::renew();
    let before = LAST_BREAK.swap(now, Ordering::Relaxed);
    MAIN.fetch_min(now, Ordering::Relaxed);
    if before > now {
        counters::count(Kind::Heap, Column::Returned, before - now);
        table::remove(now, before);
    }
}

/// Call when memory ran out: returns the memory that arenas hold ahead, and does not grow them ahead for a while.
/// `false`: they held nothing ahead.
#[cold]
pub fn stop_growing_ahead() -> bool {
    let was_ahead = packed::give_back_ahead();
    if !IS_AHEAD.swap(false, Ordering::Relaxed) {
        return was_ahead;
    }
    trim(0);
    MAIN.fetch_add(2 * MAX_AHEAD, Ordering::Relaxed);
    true
}

/// Whether glibc must keep the tops of threads' arenas.
pub fn are_kept_whole() -> bool {
    KEEPS_THREAD_TOPS.load(Ordering::Relaxed)
}

/// `malloc_trim(kept)`, if glibc may discard memory; returns its result.
pub fn trim(kept: usize) -> c_int {
    if IS_ON_POOL.load(Ordering::Relaxed) {
        return 0;
    }
    // SAFETY: glibc's function.
    let is_released = unsafe { next::malloc_trim(kept) };
    notice_trim();
    is_released
}

/// In a forked child: frees the try-lock.
pub fn after_fork() {
    IS_BUSY.store(false, Ordering::Relaxed);
}
